/* SPDX-License-Identifier: Apache-2.0 */
/* Device names, as used in options and in the environment. */
#ifndef QDRI_CORE_DEVICE_NAME_H
#define QDRI_CORE_DEVICE_NAME_H

typedef enum qdri_device_kind { QDRI_DEVICE_UNKNOWN, QDRI_DEVICE_CPU, QDRI_DEVICE_CUDA } qdri_device_kind;

/* Reads "cpu", "cuda" or "cuda:N". *gpu: N, or -1. */
qdri_device_kind qdri_device_name_read(const char *name, int *gpu);

#endif
