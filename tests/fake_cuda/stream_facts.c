/* SPDX-License-Identifier: Apache-2.0 */
/* Queries about streams, and host functions on them. */
#include "internal.h"

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    const cudaError_t error = fake_ready();
    *least = 0;
    *greatest = error == cudaSuccess ? FAKE_GREATEST_PRIORITY : 0;
    return fake_note(error);
}

cudaError_t cudaStreamGetDevice(cudaStream_t handle, int *device)
{
    *device = fake_stream_device(handle, "cudaStreamGetDevice");
    return fake_note(*device >= 0 ? cudaSuccess : cudaErrorInvalidResourceHandle);
}

/* ---- functions of the host ---- */

typedef struct host_call {
    cudaHostFn_t fn;
    void *user;
} host_call;

void fake_run_host_call(void *args)
{
    const host_call *call = args;
    call->fn(call->user);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t fn, void *user)
{
    const host_call call = {fn, user};
    fake_lock();
    fake_stream *stream = fake_find_stream(handle, "cudaLaunchHostFunc");
    cudaError_t error = stream ? fake_capture_check(stream) : cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess && fake_take_failure("launch")) error = cudaErrorLaunchFailure;
    fake_managed_be_unsure();
    if (error == cudaSuccess) fake_submit(stream, fake_run_host_call, &call, sizeof call);
    fake_unlock();
    return fake_note(error);
}
