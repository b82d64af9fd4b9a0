/* SPDX-License-Identifier: Apache-2.0 */
/* Two GPUs: the current one, and access to each other's memory. The environment is set by meson. */
#include "test_fake.h"

FAKE_TEST(test_wrong_device)
{
    OK(cudaSetDevice(1));
    cudaStream_t there = new_stream();
    cudaEvent_t event = new_event();
    OK(cudaSetDevice(0));
    cudaStream_t here = new_stream();
    char *data = new_memory(100);
    QUIET(OK(cudaMemsetAsync(data, 0, 100, here)));
    OK(cudaStreamSynchronize(here));
    REPORTS(FAKE_WRONG_DEVICE, cudaMemsetAsync(data, 0, 100, there)); /* another is current */
    OK(cudaSetDevice(1));
    REPORTS(FAKE_WRONG_DEVICE, cudaMemsetAsync(data, 0, 100, there)); /* memory of another */
    REPORTS(FAKE_WRONG_DEVICE, use(there, "kernel", FAKE_READ, data, 100));
    REPORTS(FAKE_WRONG_DEVICE, cudaEventRecord(event, here));
    char *other = new_memory(100);
    QUIET(OK(cudaMemcpyAsync(other, data, 100, cudaMemcpyDefault, there))); /* the engine may */
    OK(cudaDeviceEnablePeerAccess(0, 0));
    GIVES(cudaDeviceEnablePeerAccess(0, 0), cudaErrorPeerAccessAlreadyEnabled);
    QUIET(OK(use(there, "kernel", FAKE_READ, data, 100)));
    QUIET(OK(cudaEventRecord(event, there)));
    QUIET(OK(cudaStreamWaitEvent(here, event, 0))); /* across is allowed */
    OK(cudaStreamSynchronize(there));
    OK(cudaStreamSynchronize(here));
    OK(cudaSetDevice(0));
}

FAKE_TEST(test_pool_of_another)
{
    void *data = NULL;
    cudaMemPool_t pool = new_pool();
    const struct cudaMemAccessDesc access = {.location = {cudaMemLocationTypeDevice, 1},
                                             .flags = cudaMemAccessFlagsProtReadWrite};
    cudaStream_t here = new_stream();
    OK(cudaSetDevice(1));
    cudaStream_t there = new_stream();
    OK(cudaMallocFromPoolAsync(&data, 8, pool, here));
    OK(cudaStreamSynchronize(here));
    REPORTS(FAKE_WRONG_DEVICE, use(there, "kernel", FAKE_WRITE, data, 8));
    OK(cudaMemPoolSetAccess(pool, &access, 1));
    QUIET(OK(use(there, "kernel", FAKE_WRITE, data, 8)));
    OK(cudaStreamSynchronize(there));
    OK(cudaFreeAsync(data, here));
    OK(cudaStreamSynchronize(here));
    OK(cudaSetDevice(0));
}
