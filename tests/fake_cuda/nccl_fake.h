/* SPDX-License-Identifier: Apache-2.0 */
/* What tests may ask of the fake NCCL. Its ranks are threads of one process, each on a GPU of its own of the fake CUDA.
 * A collective runs on its stream and waits there for all members, while it holds as many SMs of its GPU as its
 * communicator has CTAs; what has no room waits, in the order of the host's calls with NCCL_LAUNCH_ORDER_IMPLICIT=1.
 * Sums are taken in rank order.
 *
 * Environment: FAKE_NCCL_VERSIONS ("22809,22703": by GPU, the last for the rest); FAKE_NCCL_REGISTER ("1,0": where
 * memory is registered); of FAKE_CUDA_FAIL "nccl_register:N", the Nth registration fails, "nccl:N", the Nth call fails,
 * and "nccl_async:N", the Nth collective to be enqueued runs into an error and never ends, "nccl_lost:N", the Nth rank
 * that joins is not heard; FAKE_CUDA_SMS, FAKE_CUDA_REPORT, FAKE_CUDA_LEAKS. */
#ifndef FAKE_CUDA_NCCL_FAKE_H
#define FAKE_CUDA_NCCL_FAKE_H

#include <stdint.h>

/* Misuse, and kernels that wait for each other for ever: how often, and the last in words. */
int64_t fake_nccl_faults(void);
const char *fake_nccl_last_fault(void);
void fake_nccl_forget(void);
/* 1: faults are counted, instead of ending the process. */
void fake_nccl_count_faults(int counts);
/* Communicators that are neither destroyed nor aborted. */
int64_t fake_nccl_live(void);
/* Kernels that hold SMs. */
int fake_nccl_holding(void);
/* CTAs of the communicator that a rank made last; for tests of limits. */
int fake_nccl_last_max_ctas(void);

#endif
