/* SPDX-License-Identifier: Apache-2.0 */
/* The decorator `staged`: collectives on device memory (of a GPU), performed by a host communicator. What is sent is
 * copied to pinned memory, a thread of the host device drives the inner communicator, and what was received is copied
 * back. The GPU's streams wait for a flag that the thread sets; the caller does not wait. */
#ifndef QDRI_COMM_DECORATORS_STAGED_H
#define QDRI_COMM_DECORATORS_STAGED_H

#include "comm/comm.h"

/* Wraps a world whose device, `host`, is a CPU, for use with `dev`, and takes ownership of it. The host device must
 * outlive the result. Collective: fails on all ranks, and then the caller keeps the world, or on none. */
QDR_NODISCARD qdr_status qdri_comm_stage(qdri_comm **comm, qdri_dev *host, qdri_dev *dev);

#endif
