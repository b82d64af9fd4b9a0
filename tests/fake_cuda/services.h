/* SPDX-License-Identifier: Apache-2.0 */
/* The fake's functions for other libraries that the plugin opens, such as the fake cuDNN. */
#ifndef FAKE_CUDA_SERVICES_H
#define FAKE_CUDA_SERVICES_H

#include "fake.h"

typedef struct fake_services {
    void (*enqueue)(cudaStream_t stream, void (*run)(void *args), const void *args, size_t bytes);
    cudaError_t (*use)(cudaStream_t stream, const char *name, const fake_access *accesses, int n);
    int (*stream_device)(cudaStream_t stream, const char *name);
    cudaError_t (*current_device)(int *device);
    int (*take_failure)(const char *kind);
    const fake_region_of_all *region;
} fake_services;

#define FAKE_SERVICES_SYMBOL "fake_cuda_services"

#endif
