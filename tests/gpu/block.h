/* SPDX-License-Identifier: Apache-2.0 */
/* One transformer block of the examples on 1x1x1x1, with random inputs. */
#ifndef QDR_TESTS_GPU_BLOCK_H
#define QDR_TESTS_GPU_BLOCK_H

#include "common/gpt.h"
#include "gpu.h"

typedef struct block_shape {
    int64_t hidden, n_heads, context, n_sequences;
    qdr_dtype dtype; /* F32 or BF16 */
} block_shape;

typedef struct block {
    gpu_place *place;
    block_shape shape;
    qdr_stack *stack;
    qdr_edge in, out;
    int64_t n; /* elements of in, out and their gradients */
    void *dy; /* copied to the gradient of out before each backward */
} block;

block block_make(gpu_place *place, const block_shape *shape);
void block_free(block *b);
void block_set_gradient(const block *b);
/* Forward, block_set_gradient(), backward. */
void block_step(const block *b);
void *block_value(const block *b, qdr_edge edge);
void *block_gradient(const block *b, qdr_edge edge);
size_t block_bytes(const block *b); /* of n elements */

#endif
