/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's information about this machine's GPUs, for any caller. */
#include <ctype.h>
#include <stdio.h>

#include "dev/plugin.h"
#include "quadrille/gpu.h"

/* Keeps the first failure. */
static void note(qdr_gpu_report *report, qdr_status status)
{
    if (status == QDR_OK || report->status != QDR_OK) return;
    report->status = status;
    snprintf(report->sentence, sizeof report->sentence, "%s", qdr_last_error());
}

static qdr_status query_gpu(const qdri_plugin *plugin, int number, qdr_gpu *gpu)
{
    qdri_gpu found;
    *gpu = (qdr_gpu){.number = number};
    gpu->status = plugin->find_gpu(number, &found);
    if (gpu->status != QDR_OK) return gpu->status;
    snprintf(gpu->name, sizeof gpu->name, "%s", found.name);
    for (int i = 0; i < 23 && found.bus[i]; i++) /* all but CUDA write it in lower case */
        gpu->bus[i] = (char)tolower((unsigned char)found.bus[i]);
    gpu->n_sms = found.n_sms;
    gpu->major = found.major;
    gpu->minor = found.minor;
    gpu->bytes = (int64_t)found.bytes;
    gpu->bytes_free = (int64_t)found.bytes_free;
    return QDR_OK;
}

qdr_status qdr_gpu_query(qdr_gpu_report *report)
{
    const qdri_plugin *plugin = NULL;
    qdri_cuda_versions versions = {0};
    if (!report) return QDR_FAIL(QDR_ERR_ARGUMENT, "GPUs: the report pointer is NULL");
    *report = (qdr_gpu_report){.status = QDR_OK};
    note(report, qdri_plugin_open(&plugin));
    if (!plugin) return QDR_OK;
    const qdr_status status = plugin->find_versions(&versions);
    note(report, status);
    report->has_plugin = 1;
    report->driver = versions.driver;
    report->runtime = versions.runtime;
    report->cublaslt = (int)versions.cublaslt;
    report->nccl = versions.nccl;
    if (status != QDR_OK) return QDR_OK;
    if (versions.n_gpus == 0) {
        note(report, QDR_FAIL(QDR_ERR_UNSUPPORTED, "cuda: the driver is installed, but this process sees no GPU; see "
                                                   "nvidia-smi and CUDA_VISIBLE_DEVICES, or use the CPU"));
        return QDR_OK;
    }
    for (int i = 0; i < versions.n_gpus && i < QDR_MAX_GPUS; i++)
        note(report, query_gpu(plugin, i, &report->gpus[report->n_gpus++]));
    if (plugin->find_cudnn(&report->cudnn) != QDR_OK)
        snprintf(report->cudnn_sentence, sizeof report->cudnn_sentence, "%s", qdr_last_error());
    return QDR_OK;
}
