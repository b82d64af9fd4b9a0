/* SPDX-License-Identifier: Apache-2.0 */
/* How the real cuDNN, if it is installed, handles our graphs; no GPU is needed. It gets a description of a GPU, as for
 * compiling ahead of time, finds its fused kernels for the graphs, and compiles them with NVRTC; a driver for tests
 * accepts the code unchecked.
 *
 *   real DRIVER     77: there is no cuDNN, or no NVRTC */
#include <dlfcn.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/cuda/cudnn.h"

enum { SKIPPED = 77, WORKSPACE_GIB = 2 };

/* What cudaGetDeviceProperties() says of them. */
typedef struct device {
    const char *name;
    int capability, n_sms, shared_bytes, l2_bytes;
} device;

static const device devices[] = {
    {"NVIDIA H100 80GB HBM3", 900, 132, 232448, 52428800},
    {"NVIDIA A100-SXM4-80GB", 800, 108, 166912, 41943040},
};

typedef struct wish {
    qdri_cudnn_shape shape;
    int is_for_800; /* 1: capability 8.0 has it, too */
} wish;

/* rows, context, heads, key heads, head size, heads and key heads of the arrays */
static const wish wishes[] = {
    {{8192, 2048, 32, 32, 128, 32, 32, QDR_BF16}, 1}, {{8192, 2048, 32, 8, 128, 32, 8, QDR_F16}, 1},
    {{1000, 100, 12, 12, 64, 12, 12, QDR_BF16}, 1},   {{74, 37, 4, 2, 40, 4, 2, QDR_F16}, 1},
    {{8192, 8192, 8, 8, 128, 32, 32, QDR_BF16}, 1},   {{8192, 8192, 8, 2, 128, 32, 8, QDR_BF16}, 1},
    {{2048, 1024, 16, 16, 256, 16, 16, QDR_BF16}, 0},
};

static const char format[] = "{\"cudaDeviceId\":0,\"deviceVer\":%d,\"driverVer\":13000,\"deviceName\":\"%s\","
                             "\"multiProcessorCount\":%d,\"maxSharedMemoryPerBlockOptin\":%d,\"l2CacheSize\":%d,"
                             "\"maxGridSize\":[2147483647,65535,65535],\"maxBlockSize\":[1024,1024,64],"
                             "\"regsPerBlock\":65536,\"warpSize\":32,\"maxSharedMemoryPerBlock\":49152,"
                             "\"reservedSharedMemoryPerBlock\":1024,\"maxRegistersPerSM\":65536,\"maxCtasPerSM\":32,"
                             "\"maxThreadsPerBlock\":1024,\"maxThreadsPerSM\":2048,\"pciDeviceId\":0,\"isTccDriver\":0,"
                             "\"supportCoopLaunch\":1,\"totalGlobalMem\":85000000000,\"smClockRateKHz\":1500000,"
                             "\"memClockRateKHz\":2600000}";

static qdri_cudnn_desc describe(const qdri_cudnn *api, const device *d)
{
    char text[1024];
    qdri_cudnn_desc desc = NULL;
    snprintf(text, sizeof text, format, d->capability, d->name, d->n_sms, d->shared_bytes, d->l2_bytes);
    if (api->desc_create(QDRI_CUDNN_DEVICE, &desc) ||
        api->desc_set(desc, QDRI_CUDNN_DEVICE_JSON, QDRI_CUDNN_OF_CHAR, (int64_t)strlen(text), text) ||
        api->desc_finalize(desc)) {
        fprintf(stderr, "real: cuDNN does not take the description of %s\n", d->name);
        exit(1);
    }
    return desc;
}

/* The backward pass keeps its scores' gradients, which is what makes it deterministic. */
static int64_t least_workspace(const qdri_cudnn_shape *s, int is_backward)
{
    return is_backward ? 2 * s->n_rows * s->context * s->n_heads : 0;
}

static int check_plan(const qdri_cudnn *api, const device *d, qdri_cudnn_target target, const wish *w, int is_backward)
{
    qdri_cudnn_plan plan;
    const int is_wanted = w->is_for_800 || d->capability > 800 || !is_backward;
    const qdr_status status = qdri_cudnn_plan_make(api, target, &w->shape, is_backward, (int64_t)WORKSPACE_GIB << 30,
                                                   &plan);
    printf("%s, %s, %" PRId64 " rows, head size %" PRId64 ": %s, workspace %" PRId64 "\n", d->name,
           is_backward ? "backward" : "forward", w->shape.n_rows, w->shape.head_size,
           status == QDR_OK ? "ok" : qdr_last_error(), plan.workspace_bytes);
    const int is_right = is_wanted ? status == QDR_OK && plan.workspace_bytes >= least_workspace(&w->shape, is_backward)
                                   : status == QDR_ERR_UNSUPPORTED;
    qdri_cudnn_plan_free(api, &plan);
    return is_right;
}

int main(int argc, char **argv)
{
    const qdri_cudnn *api = NULL;
    int n_wrong = 0;
    if (argc != 2 || !dlopen(argv[1], RTLD_NOW | RTLD_GLOBAL)) {
        fprintf(stderr, "usage: real DRIVER\n");
        return 2;
    }
    if (qdri_cudnn_open(&api) != QDR_OK) {
        printf("%s\n", qdr_last_error());
        return SKIPPED;
    }
    if (!dlopen("libnvrtc.so.13", RTLD_NOW) && !dlopen("libnvrtc.so.12", RTLD_NOW)) {
        printf("there is no NVRTC: %s\n", dlerror());
        return SKIPPED;
    }
    printf("cuDNN %zu\n", api->version);
    for (size_t d = 0; d < sizeof devices / sizeof *devices; d++) {
        const qdri_cudnn_target target = {.device = describe(api, &devices[d])};
        for (size_t i = 0; i < 2 * (sizeof wishes / sizeof *wishes); i++)
            n_wrong += !check_plan(api, &devices[d], target, &wishes[i / 2], i % 2);
        (void)api->desc_destroy(target.device);
    }
    return n_wrong != 0;
}
