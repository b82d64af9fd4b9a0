/* SPDX-License-Identifier: Apache-2.0 */
/* Names of devices. */
#include "core/device_name.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_GPUS = 1024 };

qdri_device_kind qdri_device_name_read(const char *name, int *gpu)
{
    char *end = NULL;
    *gpu = -1;
    if (strcmp(name, "cpu") == 0) return QDRI_DEVICE_CPU;
    if (strcmp(name, "cuda") == 0) return QDRI_DEVICE_CUDA;
    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9') return QDRI_DEVICE_UNKNOWN;
    const long number = strtol(name + 5, &end, 10);
    if (*end || number >= MOST_GPUS) return QDRI_DEVICE_UNKNOWN;
    *gpu = (int)number;
    return QDRI_DEVICE_CUDA;
}
