/* SPDX-License-Identifier: Apache-2.0 */
/* The decorator `staged`: collectives on device memory (a GPU's), performed by a communicator on the host. What is sent
 * is copied to pinned memory, a thread of the host device drives the inner communicator, what has come is copied back.
 * The GPU's streams wait for a flag that the thread raises; the caller waits for nothing. */
#ifndef QDRI_COMM_STAGED_H
#define QDRI_COMM_STAGED_H

#include "comm/comm.h"

/* Wraps a world whose device, `host`, is the CPU's, for `dev`; takes it over. The host device lives longer than the
 * result. Collective: fails on all ranks, and the world stays the caller's, or on none. */
QDR_NODISCARD qdr_status qdri_comm_stage(qdri_comm **comm, qdri_dev *host, qdri_dev *dev);

#endif
