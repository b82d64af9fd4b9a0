/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels of the CPU device: the table of the best instruction set this machine has.
 */
#include "dev/cpu/cpu.h"

qdr_status qdri_cpu_kernel(qdr_stream *stream, const qdri_kernel *kernel)
{
    (void)stream;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "kernel %d: not there yet", (int)kernel->kind);
}
