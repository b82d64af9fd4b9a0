/* SPDX-License-Identifier: Apache-2.0 */
/* Ranges for profilers. NVTX is header-only: its calls go to the tool that started the process, and do nothing without
 * one. */
#include <nvtx3/nvToolsExt.h>

#include "dev/cuda/cuda.h"

/* NVTX searches for a tool at its first call, without a lock. */
static void look_for_tool(void) { nvtxInitialize(NULL); }

void qdri_cuda_ranges_open(qdri_cuda_dev *dev)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    (void)pthread_once(&once, look_for_tool);
    /* Without a tool, the depth of ranges is not counted. */
    const int depth = nvtxRangePushA("quadrille");
    (void)nvtxRangePop();
    dev->wants_ranges = dev->opts.ranges || depth != NVTX_NO_PUSH_POP_TRACKING;
}

int qdri_cuda_wants_ranges(const qdri_dev *dev) { return ((const qdri_cuda_dev *)dev)->wants_ranges; }

void qdri_cuda_range_begin(qdri_dev *dev, const char *name)
{
    (void)dev;
    (void)nvtxRangePushA(name);
}

void qdri_cuda_range_end(qdri_dev *dev)
{
    (void)dev;
    (void)nvtxRangePop();
}
