/* SPDX-License-Identifier: Apache-2.0 */
/* A block's attention alone. */
#include "block_attention.h"

attention attention_make(const block *b)
{
    const block_shape *shape = &b->shape;
    const gpu_place *place = b->place;
    attention a = {.of = b,
                   .desc = {QDR_OPTS_INIT, .n_rows = shape->n_sequences * shape->context, .context = shape->context,
                            .n_heads = shape->n_heads, .n_kv_heads = shape->n_heads,
                            .head_size = shape->hidden / shape->n_heads, .dtype = shape->dtype}};
    size_t saved_bytes, work_bytes;
    OK(qdr_attention_sizes(&a.desc, &saved_bytes, &work_bytes));
    OK(qdr_mem_alloc(place->ctx, saved_bytes, &a.saved));
    OK(qdr_mem_alloc(place->ctx, work_bytes, &a.work));
    a.qkv = gpu_random(place, 3 * b->n, shape->dtype, 1);
    a.dy = gpu_random(place, b->n, shape->dtype, 1);
    a.y = gpu_memory(place, b->n, shape->dtype);
    a.dqkv = gpu_memory(place, 3 * b->n, shape->dtype);
    return a;
}

void attention_free(attention *a)
{
    void **all[] = {&a->qkv, &a->y, &a->dy, &a->dqkv, &a->saved, &a->work};
    gpu_wait(a->of->place);
    for (int i = 0; i < 6; i++) qdr_mem_free(a->of->place->ctx, all[i]);
}

void attention_run(const attention *a)
{
    qdr_context *ctx = a->of->place->ctx;
    OK(qdr_attention_forward(ctx, &a->desc, a->qkv, a->y, a->saved, a->work, NULL));
    OK(qdr_attention_backward(ctx, &a->desc, a->qkv, a->y, a->saved, a->dy, a->dqkv, a->work, NULL));
}
