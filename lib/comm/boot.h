/* SPDX-License-Identifier: Apache-2.0 */
/* The `boot` backend: the host's talk of ranks that only have two callbacks of the caller's. It carries no collectives,
 * and its parts carry nothing: it is what `nccl` stands on. */
#ifndef QDRI_COMM_BOOT_H
#define QDRI_COMM_BOOT_H

#include "comm/comm.h"
#include "quadrille/context.h"

/* Collective: all ranks return the same, `mine` being what this rank has met so far. The result has no device yet.
 * @retval QDR_ERR_PEER  a callback failed */
QDR_NODISCARD qdr_status qdri_comm_create_boot(const qdr_boot *boot, int rank, int size, qdr_status mine,
                                               qdri_comm **comm);
/* Gives a new world its device. */
void qdri_boot_bind(qdri_comm *comm, qdri_dev *dev);
/* Waits in the caller's barrier until all have come. */
QDR_NODISCARD qdr_status qdri_boot_barrier(qdri_comm *comm);

#endif
