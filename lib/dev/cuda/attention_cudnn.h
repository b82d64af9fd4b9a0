/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by cuDNN, where it is asked for (QDR_ATTENTION=cudnn) and cuDNN has it. Statistics are the same as those of
 * the own kernels, number by number, so that either may compute the backward of the other's forward. */
#ifndef QDRI_DEV_CUDA_ATTENTION_CUDNN_H
#define QDRI_DEV_CUDA_ATTENTION_CUDNN_H

#include "dev/cuda/cuda.h"

/* Enqueues a kernel of attention. *is_done = 0: cuDNN does not compute this one, the own kernels must; why is logged
 * once. The first call of a shape makes its plans, which takes seconds.
 * @retval QDR_ERR_DEVICE  cuDNN failed with what it had promised */
QDR_NODISCARD qdr_status qdri_cuda_attention_cudnn(qdr_stream *stream, const qdri_kernel *kernel, int *is_done);
void qdri_cuda_attention_free(qdri_cuda_dev *dev);

#endif
