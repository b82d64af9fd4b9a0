/* SPDX-License-Identifier: Apache-2.0 */
/* A block's attention alone, with inputs of its own. */
#ifndef QDR_TESTS_GPU_BLOCK_ATTENTION_H
#define QDR_TESTS_GPU_BLOCK_ATTENTION_H

#include "block.h"
#include "core/kernels.h"

typedef struct attention {
    const block *of;
    qdri_kernel forward, backward;
    void *qkv, *y, *dy, *dqkv, *saved, *work;
} attention;

attention attention_make(const block *b);
void attention_free(attention *a);
/* Forward and backward. */
void attention_run(const attention *a);

#endif
