/* SPDX-License-Identifier: Apache-2.0 */
/* A block's attention alone. */
#include "block_attention.h"

#include "core/operands.h"
#include "dev/dev.h"

attention attention_make(const block *b)
{
    const block_shape *shape = &b->shape;
    const gpu_place *place = b->place;
    const int64_t n_rows = shape->n_sequences * shape->context;
    attention a = {.of = b,
                   .forward = {.kind = QDRI_K_ATTENTION_FORWARD,
                               .dtype = shape->dtype,
                               .u.attention = {.n_rows = n_rows,
                                               .context = shape->context,
                                               .window = shape->context,
                                               .scale = 1 / sqrt((double)shape->hidden / (double)shape->n_heads),
                                               .n_heads = shape->n_heads,
                                               .n_kv_heads = shape->n_heads,
                                               .head_size = shape->hidden / shape->n_heads}}};
    a.qkv = gpu_random(place, 3 * b->n, shape->dtype, 1);
    a.dy = gpu_random(place, b->n, shape->dtype, 1);
    a.y = gpu_memory(place, b->n, shape->dtype);
    a.dqkv = gpu_memory(place, 3 * b->n, shape->dtype);
    a.saved = gpu_memory(place, n_rows * shape->n_heads, QDR_F32);
    OK(qdr_mem_alloc(place->ctx, qdri_attention_work_bytes(&a.forward), &a.work));
    a.backward = a.forward;
    a.backward.kind = QDRI_K_ATTENTION_BACKWARD;
    qdri_kernel_bind(&a.forward, &a.qkv, 1, (void *[]){a.y, a.saved, a.work}, 3);
    qdri_kernel_bind(&a.backward, (void *[]){a.dy, a.qkv, a.y, a.saved}, 4, (void *[]){a.dqkv, a.work}, 2);
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
    qdr_stream *stream = qdr_context_stream(a->of->place->ctx);
    OK(qdri_kernel_run(stream, &a->forward));
    OK(qdri_kernel_run(stream, &a->backward));
}
