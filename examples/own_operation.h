/* SPDX-License-Identifier: Apache-2.0 */
/* SiLU on a GPU (own_operation_kernels.cu): enqueued on the stream. Arrays are in GPU memory. @return 0, or CUDA's
 * error */
#ifndef OWN_OPERATION_H
#define OWN_OPERATION_H

#include <stdint.h>

struct CUstream_st;

#ifdef __cplusplus
extern "C" {
#endif

int silu_forward_on_gpu(struct CUstream_st *stream, const double *x, double *y, int64_t n);
int silu_backward_on_gpu(struct CUstream_st *stream, const double *x, const double *dy, double *dx, int accumulate,
                         int64_t n);

#ifdef __cplusplus
}
#endif
#endif
