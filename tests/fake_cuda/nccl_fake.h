/* SPDX-License-Identifier: Apache-2.0 */
/* The fake NCCL's interface for tests. Its ranks are threads of one process, each on its own GPU of the fake CUDA. A
 * collective runs on its stream and waits there for all members, while it occupies as many SMs of its GPU as its
 * communicator has CTAs, sends and receives the next power of two; a collective for which other collectives and
 * products leave too few waits, in the order of the host's calls if NCCL_LAUNCH_ORDER_IMPLICIT=1 at the first of them.
 * The first call of a kind waits on the host for the other members. Sums are computed in rank order.
 *
 * Environment: FAKE_NCCL_VERSIONS ("22809,22703": by GPU, the last for the rest); FAKE_NCCL_REGISTER ("1,0": where
 * memory is registered); in FAKE_CUDA_FAIL "nccl_register:N": the Nth registration fails, "nccl:N": the Nth call
 * fails, "nccl_async:N": the Nth enqueued collective has an error and never ends, "nccl_split:N": the Nth part is
 * made and the split fails, "nccl_lost:N": the Nth rank that joins is not heard; FAKE_CUDA_SMS. */
#ifndef FAKE_CUDA_NCCL_FAKE_H
#define FAKE_CUDA_NCCL_FAKE_H

#include <stdint.h>

/* Communicators that are neither destroyed nor aborted. */
int64_t fake_nccl_live(void);
/* Kernels that hold SMs. */
int fake_nccl_holding(void);

#endif
