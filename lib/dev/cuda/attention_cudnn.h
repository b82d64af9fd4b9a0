/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by cuDNN, if it is requested (QDR_ATTENTION=cudnn) and cuDNN supports it. The saved statistics are the same
 * as those of the library's own kernels, number by number, so that either can compute the backward pass of the other's
 * forward pass. */
#ifndef QDRI_DEV_CUDA_ATTENTION_CUDNN_H
#define QDRI_DEV_CUDA_ATTENTION_CUDNN_H

#include "dev/cuda/cuda.h"

/* Enqueues an attention kernel. *is_done = 0: cuDNN does not compute this one, so the library's own kernels must; the
 * reason is logged once. The first call of a shape creates its plans, which takes seconds.
 * @retval QDR_ERR_DEVICE  cuDNN failed to run a plan that it had accepted */
QDR_NODISCARD qdr_status qdri_cuda_attention_cudnn(qdr_stream *stream, const qdri_kernel *kernel, int *is_done);
void qdri_cuda_attention_free(qdri_cuda_dev *dev);

#endif
