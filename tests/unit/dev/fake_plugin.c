/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libquadrille_cuda.so: it answers queries, but creates no devices. FAKE_PLUGIN says what it finds:
 * "none" (no driver), "hidden" (no GPU), "lost" (two GPUs, one of which cannot be queried), else two GPUs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "dev/plugin.h"

static const qdri_plugin_host *host;
static qdri_plugin_host its_host;

static int is(const char *what)
{
    const char *mode = getenv("FAKE_PLUGIN");
    return mode && strcmp(mode, what) == 0;
}

static qdr_status fail(qdr_status status, const char *sentence)
{
    snprintf(host->last_error(), QDRI_ERROR_BYTES, "%s", sentence);
    return status;
}

static void connect(const qdri_plugin_host *with)
{
    its_host = *with;
    host = &its_host;
}

static qdr_status find_versions(qdri_cuda_versions *versions)
{
    *versions = (qdri_cuda_versions){.runtime = 13000, .cublaslt = 130101, .nccl = 22809};
    if (is("none")) return fail(QDR_ERR_UNSUPPORTED, "cuda: no driver in the test; install one");
    versions->driver = 13010;
    versions->n_gpus = is("hidden") ? 0 : 2;
    return QDR_OK;
}

static qdr_status find_gpu(int number, qdr_gpu *gpu)
{
    if (is("lost") && number == 0) return fail(QDR_ERR_DEVICE, "cuda: GPU 0 is lost in the test; start anew");
    *gpu = (qdr_gpu){.number = number,
                     .n_sms = 132,
                     .major = 9 - number,
                     .bytes = (int64_t)80 << 30,
                     .bytes_free = (int64_t)79 << 30};
    snprintf(gpu->name, sizeof gpu->name, "Fake %d", number);
    snprintf(gpu->bus, sizeof gpu->bus, "FFFF:A%d:00.0", number);
    return QDR_OK;
}

static qdr_status find_cudnn(int *version)
{
    *version = is("lost") ? 0 : 91900;
    if (*version) return QDR_OK;
    return fail(QDR_ERR_UNSUPPORTED, "cuDNN: none in the test; install it");
}

static qdr_status dev_create(const qdri_cuda_opts *opts, qdri_dev **dev)
{
    (void)opts;
    *dev = NULL;
    return fail(QDR_ERR_DEVICE, "cuda: no devices in the test; use the CPU");
}

extern const qdri_plugin qdr_cuda_plugin;
__attribute__((visibility("default"))) const qdri_plugin qdr_cuda_plugin = {
    .build = QDRI_PLUGIN_BUILD,
    .connect = connect,
    .find_versions = find_versions,
    .find_gpu = find_gpu,
    .find_cudnn = find_cudnn,
    .dev_create = dev_create,
};
