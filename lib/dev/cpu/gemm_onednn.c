/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 products through oneDNN, on machines that have instructions for them. */
#include "dev/cpu/gemm.h"

#ifdef QDRI_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

int qdri_bf16_native(void) { return 0; }

qdr_status qdri_gemm_onednn(const qdri_gemm *gemm, int n_threads)
{
    (void)gemm;
    (void)n_threads;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "product: this build has no oneDNN");
}
