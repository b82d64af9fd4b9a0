/* SPDX-License-Identifier: Apache-2.0 */
/* A profiler attached to NVTX (NVTX_INJECTION64_PATH): writes each range that begins, one per line, to the file named
 * by LISTENER_FILE; ranges that end without having begun are "lost". */
#include <nvtx3/nvToolsExt.h>
#include <stdio.h>
#include <stdlib.h>

static FILE *file;
static _Thread_local int depth;

static int NVTX_API push(const char *name)
{
    if (file) fprintf(file, "%s\n", name);
    return depth++;
}

static int NVTX_API pop(void)
{
    if (file && depth == 0) fputs("lost\n", file);
    return --depth;
}

__attribute__((visibility("default"))) int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table);

int InitializeInjectionNvtx2(NvtxGetExportTableFunc_t get_table)
{
    const NvtxExportTableCallbacks *callbacks = get_table(NVTX_ETID_CALLBACKS);
    NvtxFunctionTable table = NULL;
    unsigned size = 0;
    const char *name = getenv("LISTENER_FILE");
    if (!callbacks || !callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &table, &size)) return 0;
    file = name ? fopen(name, "w") : NULL;
    if (size <= NVTX_CBID_CORE_RangePop) return 0;
    *table[NVTX_CBID_CORE_RangePushA] = (NvtxFunctionPointer)push;
    *table[NVTX_CBID_CORE_RangePop] = (NvtxFunctionPointer)pop;
    return 1;
}
