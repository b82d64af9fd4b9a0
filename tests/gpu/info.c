/* SPDX-License-Identifier: Apache-2.0 */
/* What the plugin finds: versions and the GPU, as one JSON object. Exit code 1: no GPU. */
#include <jansson.h>

#include "dev/plugin.h"
#include "gpu.h"

int main(void)
{
    const qdri_plugin *plugin;
    qdri_cuda_versions versions;
    qdr_gpu gpu;
    OK(qdri_plugin_open(&plugin));
    OK(plugin->find_versions(&versions));
    OK(plugin->find_gpu(0, &gpu));
    json_t *all = json_pack("{s:s,s:s,s:i,s:i,s:i,s:I,s:i,s:i,s:I,s:i}", "gpu", gpu.name, "bus", gpu.bus, "sms",
                            gpu.n_sms, "major", gpu.major, "minor", gpu.minor, "bytes", (json_int_t)gpu.bytes, "driver",
                            versions.driver, "runtime", versions.runtime, "cublaslt", (json_int_t)versions.cublaslt,
                            "nccl", versions.nccl);
    if (!all || json_dumpf(all, stdout, JSON_COMPACT | JSON_PRESERVE_ORDER) != 0)
        gpu_leave("what was found cannot be written");
    putchar('\n');
    json_decref(all);
    return 0;
}
