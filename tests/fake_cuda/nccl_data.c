/* SPDX-License-Identifier: Apache-2.0 */
/* The effect of the fake NCCL's collectives on memory: sums in rank order, in fp32 (f64 for doubles), rounded once. */
#include <math.h>
#include <string.h>

#include "lt.h"
#include "nccl_internal.h"

size_t fake_nccl_type_bytes(ncclDataType_t type)
{
    switch (type) {
    case ncclInt64:
    case ncclFloat64: return 8;
    case ncclFloat32:
    case ncclInt32: return 4;
    case ncclBfloat16:
    case ncclFloat16: return 2;
    default: return 1;
    }
}

static int data_type(ncclDataType_t type)
{
    switch (type) {
    case ncclFloat64: return CUDA_R_64F;
    case ncclBfloat16: return CUDA_R_16BF;
    case ncclFloat16: return CUDA_R_16F;
    default: return CUDA_R_32F;
    }
}

static double add(ncclDataType_t type, ncclRedOp_t red, double a, double b)
{
    if (red == ncclSum) return type == ncclFloat64 ? a + b : (double)((float)a + (float)b);
    return red == ncclMax ? fmax(a, b) : fmin(a, b); /* NCCL, too, takes the number if the other is NaN */
}

static int64_t add_integers(ncclDataType_t type, ncclRedOp_t red, int64_t a, int64_t b)
{
    if (red == ncclSum && type == ncclInt32) return (int32_t)((uint32_t)a + (uint32_t)b);
    if (red == ncclSum) return (int64_t)((uint64_t)a + (uint64_t)b);
    return (red == ncclMax) == (a > b) ? a : b;
}

static int is_integer(ncclDataType_t type) { return type == ncclInt32 || type == ncclInt64; }

static int64_t load_integer(ncclDataType_t type, const void *at)
{
    int32_t narrow;
    int64_t wide;
    memcpy(&narrow, at, 4);
    if (type == ncclInt32) return narrow;
    memcpy(&wide, at, 8);
    return wide;
}

/* Element i of everyone's send, added. */
static void reduce_one(const meeting *all, int size, size_t i, void *result)
{
    const nccl_op *first = all->ops[0];
    const size_t at = i * fake_nccl_type_bytes(first->type);
    double sum = 0;
    int64_t integers = 0;
    for (int j = 0; j < size; j++) {
        const char *from = (const char *)fake_translate(all->ops[j]->parts[0].send) + at;
        if (is_integer(first->type)) {
            const int64_t integer = load_integer(first->type, from);
            integers = j ? add_integers(first->type, first->red, integers, integer) : integer;
            continue;
        }
        const double value = fake_load(from, 0, data_type(first->type));
        sum = j ? add(first->type, first->red, sum, value) : value;
    }
    const int32_t low = (int32_t)integers;
    if (first->type == ncclInt32)
        memcpy(result, &low, 4);
    else if (first->type == ncclInt64)
        memcpy(result, &integers, 8);
    else
        fake_store(result, 0, data_type(first->type), sum);
}

/* Elements are independent, so sends may be receives as long as each is read before it is written. */
static void all_reduce(const meeting *all, int size)
{
    const size_t bytes = fake_nccl_type_bytes(all->ops[0]->type);
    for (size_t i = 0; i < all->ops[0]->parts[0].count; i++) {
        unsigned char result[8];
        reduce_one(all, size, i, result);
        for (int j = 0; j < size; j++)
            memcpy((char *)fake_translate(all->ops[j]->parts[0].recv) + i * bytes, result, bytes);
    }
}

static void reduce_scatter(const meeting *all, int size)
{
    const size_t bytes = fake_nccl_type_bytes(all->ops[0]->type), n = all->ops[0]->parts[0].count;
    for (int j = 0; j < size; j++) {
        char *to = fake_translate(all->ops[j]->parts[0].recv);
        for (size_t i = 0; i < n; i++) {
            unsigned char result[8];
            reduce_one(all, size, (size_t)j * n + i, result);
            memcpy(to + i * bytes, result, bytes);
        }
    }
}

static void all_gather(const meeting *all, int size)
{
    const size_t bytes = fake_nccl_type_bytes(all->ops[0]->type) * all->ops[0]->parts[0].count;
    for (int from = 0; from < size; from++)
        for (int to = 0; to < size; to++)
            memmove((char *)fake_translate(all->ops[to]->parts[0].recv) + (size_t)from * bytes,
                    fake_translate(all->ops[from]->parts[0].send), bytes);
}

static void broadcast(const meeting *all, int size)
{
    const op_part *root = &all->ops[all->ops[0]->root]->parts[0];
    const size_t bytes = fake_nccl_type_bytes(all->ops[0]->type) * root->count;
    for (int to = 0; to < size; to++)
        memmove(fake_translate(all->ops[to]->parts[0].recv), fake_translate(root->send), bytes);
}

void fake_nccl_perform(const meeting *all, int size)
{
    switch (all->ops[0]->kind) {
    case ALL_GATHER: all_gather(all, size); break;
    case REDUCE_SCATTER: reduce_scatter(all, size); break;
    case ALL_REDUCE: all_reduce(all, size); break;
    default: broadcast(all, size);
    }
}
