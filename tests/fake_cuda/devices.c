/* SPDX-License-Identifier: Apache-2.0 */
/* GPUs: their number, the current one, their properties, and peer access. */
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>

#include "internal.h"

#define SHOWN __attribute__((visibility("default"))) /* for programs that the plugin serves */

static _Thread_local int current_device = -1; /* none: work goes to GPU 0 */
static atomic_int contexts[FAKE_GPUS_MOST];
static char peers[FAKE_GPUS_MOST][FAKE_GPUS_MOST];
static atomic_int sticky;

cudaError_t fake_ready(void)
{
    const fake_settings *settings = fake_get_settings();
    if (atomic_load(&sticky)) return (cudaError_t)atomic_load(&sticky);
    if (settings->driver / 1000 < CUDART_VERSION / 1000) return cudaErrorInsufficientDriver;
    return settings->n_gpus > 0 ? cudaSuccess : cudaErrorNoDevice;
}

void fake_break(cudaError_t error) { atomic_store(&sticky, (int)error); }
cudaError_t fake_broken(void) { return (cudaError_t)atomic_load(&sticky); }

/* The first call of a thread that needs a GPU makes a context there, half a gigabyte on real ones. */
static void use_device(int device)
{
    current_device = device;
    if (atomic_exchange(&contexts[device], 1)) return;
    fake_count("context");
    if (device == 0) fake_count("context of GPU 0");
}

SHOWN int fake_current_device(void)
{
    if (current_device < 0) use_device(0);
    return current_device;
}

SHOWN void fake_set_device(int device) { use_device(device); }

cudaError_t fake_check_current(int device, const char *name)
{
    const int current = fake_current_device();
    if (device == current) return cudaSuccess;
    fake_report(FAKE_WRONG_DEVICE, "\"%s\" on a stream of GPU %d, but GPU %d is current", name, device, current);
    return cudaErrorInvalidResourceHandle;
}

static cudaError_t check_number(int device)
{
    const cudaError_t error = fake_ready();
    if (error != cudaSuccess) return error;
    return device >= 0 && device < fake_get_settings()->n_gpus ? cudaSuccess : cudaErrorInvalidDevice;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = fake_get_settings()->driver;
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *n)
{
    const cudaError_t error = fake_ready();
    *n = error == cudaSuccess ? fake_get_settings()->n_gpus : 0;
    return fake_note(error);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t error = check_number(device);
    fake_check_taken("cudaSetDevice");
    if (error == cudaSuccess && fake_take_failure("device")) error = cudaErrorDevicesUnavailable;
    if (error == cudaSuccess) use_device(device);
    return fake_note(error);
}

/* ---- contexts, as the driver has them ---- */

CUresult fake_ctx_get(CUcontext *context)
{
    *context = NULL;
    fake_check_taken("cuCtxGetCurrent");
    if (current_device >= 0) *context = (CUcontext)(uintptr_t)&contexts[current_device];
    return CUDA_SUCCESS;
}

CUresult fake_ctx_set(CUcontext context)
{
    current_device = context ? (int)((atomic_int *)(uintptr_t)context - contexts) : -1;
    return CUDA_SUCCESS;
}

cudaError_t cudaGetDevice(int *device)
{
    *device = current_device < 0 ? 0 : current_device;
    return fake_note(fake_ready());
}

/* ---- what they are ---- */

cudaError_t cudaDeviceGetPCIBusId(char *bus, int bytes, int device)
{
    const cudaError_t error = check_number(device);
    if (error != cudaSuccess) return fake_note(error);
    if (bytes < 13) return fake_note(cudaErrorInvalidValue);
    snprintf(bus, (size_t)bytes, "0000:%02X:00.0", 1 + device);
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *made, int device)
{
    const cudaError_t error = check_number(device);
    const fake_settings *settings = fake_get_settings();
    if (error != cudaSuccess) return fake_note(error);
    *made = (struct cudaDeviceProp){.totalGlobalMem = settings->memory_bytes,
                                    .major = settings->capability / 10,
                                    .minor = settings->capability % 10,
                                    .multiProcessorCount = settings->n_sms};
    snprintf(made->name, sizeof made->name, "Fake GPU %d", device);
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device)
{
    const fake_settings *settings = fake_get_settings();
    const cudaError_t error = check_number(device);
    switch (attribute) {
    case cudaDevAttrConcurrentManagedAccess: *value = settings->shares_managed; break;
    case cudaDevAttrMultiProcessorCount: *value = settings->n_sms; break;
    case cudaDevAttrMemoryPoolsSupported: *value = settings->has_pools; break;
    default: return fake_note(cudaErrorInvalidValue); /* others are not faked */
    }
    return fake_note(error);
}

/* ---- peers ---- */

int fake_peer_enabled(int device, int peer) { return peers[device][peer]; }

cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer)
{
    cudaError_t error = check_number(device);
    if (error == cudaSuccess) error = check_number(peer);
    *can = error == cudaSuccess && device != peer && fake_get_settings()->has_peers;
    return fake_note(error);
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags)
{
    int can = 0;
    const int device = fake_current_device();
    cudaError_t error = cudaDeviceCanAccessPeer(&can, device, peer);
    if (error != cudaSuccess) return error;
    if (flags) return fake_note(cudaErrorInvalidValue);
    if (!can) return fake_note(cudaErrorPeerAccessUnsupported);
    fake_lock();
    if (peers[device][peer]) error = cudaErrorPeerAccessAlreadyEnabled;
    peers[device][peer] = 1;
    fake_unlock();
    return fake_note(error);
}

/* ---- what has no meaning here ---- */

cudaError_t cudaFuncSetAttribute(const void *function, enum cudaFuncAttribute attribute, int value)
{
    const int most = 227 << 10;
    (void)function;
    if (attribute == cudaFuncAttributeMaxDynamicSharedMemorySize && (value < 0 || value > most))
        return fake_note(cudaErrorInvalidValue);
    return fake_note(fake_ready());
}
