/* SPDX-License-Identifier: Apache-2.0 */
/* The `boot` backend: host communication for ranks that only have two callbacks of the caller's. It supports no
 * collectives, and its parts support nothing: it is the host communicator below `nccl`. */
#ifndef QDRI_COMM_BOOT_H
#define QDRI_COMM_BOOT_H

#include "comm/comm.h"
#include "quadrille/context.h"

/* Collective: all ranks return the same; `mine` is this rank's status so far. The result has no device yet.
 * @retval QDR_ERR_PEER  a callback failed */
QDR_NODISCARD qdr_status qdri_comm_create_boot(const qdr_boot *boot, int rank, int size, qdr_status mine,
                                               qdri_comm **comm);
/* Sets the device of a new world. */
void qdri_boot_bind(qdri_comm *comm, qdri_dev *dev);
/* Waits in the caller's barrier until all ranks have arrived. */
QDR_NODISCARD qdr_status qdri_boot_barrier(qdri_comm *comm);

#endif
