/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's implementation of lib/dev/plugin.h. */
#include "core/log.h"
#include "dev/cuda/cuda.h"
#include "dev/cuda/cudnn.h"

static void connect(const qdri_plugin_host *host)
{
    qdri_share_last_error(host->last_error);
    qdri_share_log(host->log);
}

static qdr_status find_versions(qdri_cuda_versions *versions)
{
    const qdr_status status = qdri_cuda_find_versions(versions);
    versions->nccl = qdri_plugin_nccl_version();
    return status;
}

static qdr_status find_cudnn(int *version)
{
    const qdri_cudnn *api = NULL;
    *version = 0;
    QDR_TRY(qdri_cudnn_open(&api));
    *version = (int)api->version;
    return QDR_OK;
}

QDR_API extern const qdri_plugin qdr_cuda_plugin;
const qdri_plugin qdr_cuda_plugin = {
    .build = QDRI_PLUGIN_BUILD,
    .connect = connect,
    .find_versions = find_versions,
    .find_gpu = qdri_cuda_find_gpu,
    .find_cudnn = find_cudnn,
    .dev_create = qdri_cuda_dev_create,
    .comm = &qdri_plugin_comms,
};
