/* SPDX-License-Identifier: Apache-2.0 */
/* Computes a graph of [a, b, c, d] tensors, in double, with each result rounded to the type of its tensor. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../lt.h"
#include "../services.h"
#include "fake_cudnn.h"

const struct fake_services *fake_cudnn_cuda;

typedef struct numbers {
    const fake_tensor *t;
    double *at; /* dense; NULL: not computed yet */
} numbers;

static int64_t count(const fake_tensor *t) { return t->dims[0] * t->dims[1] * t->dims[2] * t->dims[3]; }

/* The place of the i-th number, its last dimension going fastest. */
static void unravel(const fake_tensor *t, int64_t i, int64_t place[4])
{
    for (int d = 3; d >= 0; d--) {
        place[d] = i % t->dims[d];
        i /= t->dims[d];
    }
}

/* The same place, in a tensor of fewer: of one, or of as many as each serves several. */
static int64_t dense_at(const fake_tensor *t, const int64_t place[4], const fake_tensor *of)
{
    int64_t i = 0;
    for (int d = 0; d < 4; d++) i = i * t->dims[d] + place[d] * t->dims[d] / of->dims[d];
    return i;
}

static int64_t offset_at(const fake_tensor *t, const int64_t place[4])
{
    int64_t offset = 0;
    for (int d = 0; d < 4; d++) offset += place[d] * t->strides[d];
    return offset;
}

/* ---- memory ---- */

static int cuda_type(int type)
{
    if (type == QDRI_CUDNN_BF16) return CUDA_R_16BF;
    return type == QDRI_CUDNN_F16 ? CUDA_R_16F : CUDA_R_32F;
}

static double rounded(double value, int type)
{
    double place = 0;
    if (type == QDRI_CUDNN_I32 || type == QDRI_CUDNN_BOOL) return value;
    fake_store(&place, 0, cuda_type(type), value);
    return fake_load(&place, 0, cuda_type(type));
}

static void *host_address(const void *data)
{
    const fake_region_of_all *region = fake_cudnn_cuda->region;
    const uintptr_t at = (uintptr_t)data;
    return (void *)(at - region->begin < region->bytes ? at + region->bytes : at);
}

static double *new_numbers(const fake_tensor *t)
{
    double *made = calloc((size_t)count(t) + 1, sizeof *made);
    if (!made) fake_cudnn_wrong("there is no memory for %lld numbers", (long long)count(t));
    return made;
}

static void load(numbers *n, const fake_run *run, int index)
{
    int64_t place[4];
    const void *data = host_address(run->data[index]);
    n->at = new_numbers(n->t);
    for (int64_t i = 0; i < count(n->t); i++) {
        unravel(n->t, i, place);
        n->at[i] = n->t->is_value ? (double)run->values[index]
                                  : fake_load(data, offset_at(n->t, place), cuda_type(n->t->type));
    }
}

static void store(const numbers *n, void *data)
{
    int64_t place[4];
    for (int64_t i = 0; i < count(n->t); i++) {
        unravel(n->t, i, place);
        fake_store(host_address(data), offset_at(n->t, place), cuda_type(n->t->type), n->at[i]);
    }
}

/* ---- operations ---- */

static double apply(const fake_op *op, const double x[INPUTS_MOST], const int64_t place[4])
{
    switch (op->mode) {
    case QDRI_CUDNN_ADD: return x[0] + x[1];
    case QDRI_CUDNN_SUB: return x[0] - x[1];
    case QDRI_CUDNN_MUL: return x[0] * x[1];
    case QDRI_CUDNN_DIV: return x[0] / x[1];
    case QDRI_CUDNN_EXP: return exp(x[0]);
    case QDRI_CUDNN_LOG: return log(x[0]);
    case QDRI_CUDNN_GREATER_EQUAL: return x[0] >= x[1];
    case QDRI_CUDNN_INDEX: return (double)place[op->axis];
    case QDRI_CUDNN_SELECT: return x[2] != 0 ? x[0] : x[1];
    default: fake_cudnn_wrong("there is no pointwise mode %d here", op->mode);
    }
}

static void compute_pointwise(const fake_op *op, const numbers *all, numbers *y)
{
    int64_t place[4];
    for (int64_t i = 0; i < count(y->t); i++) {
        double x[INPUTS_MOST] = {0};
        unravel(y->t, i, place);
        for (int k = 0; k < INPUTS_MOST; k++)
            if (op->x[k] >= 0) x[k] = all[op->x[k]].at[dense_at(all[op->x[k]].t, place, y->t)];
        y->at[i] = rounded(apply(op, x, place), y->t->type);
    }
}

static void compute_matmul(const fake_op *op, const numbers *all, numbers *y)
{
    const numbers *a = &all[op->x[0]], *b = &all[op->x[1]];
    const int64_t n_steps = a->t->dims[3];
    int64_t place[4];
    for (int64_t i = 0; i < count(y->t); i++) {
        double sum = 0;
        unravel(y->t, i, place);
        const int64_t head_a = place[1] * a->t->dims[1] / y->t->dims[1],
                      head_b = place[1] * b->t->dims[1] / y->t->dims[1];
        const double *row = a->at + ((place[0] * a->t->dims[1] + head_a) * a->t->dims[2] + place[2]) * n_steps;
        const double *cols = b->at + (place[0] * b->t->dims[1] + head_b) * n_steps * b->t->dims[3];
        for (int64_t k = 0; k < n_steps; k++) sum += row[k] * cols[k * b->t->dims[3] + place[3]];
        y->at[i] = rounded(sum, y->t->type);
    }
}

static void compute_reduction(const fake_op *op, const numbers *all, numbers *y)
{
    const numbers *x = &all[op->x[0]];
    const int is_sum = op->mode == QDRI_CUDNN_SUM;
    int64_t place[4];
    for (int64_t i = 0; i < count(y->t); i++) y->at[i] = is_sum ? 0 : -INFINITY;
    for (int64_t i = 0; i < count(x->t); i++) {
        unravel(x->t, i, place);
        double *to = &y->at[dense_at(y->t, place, x->t)];
        *to = is_sum ? *to + x->at[i] : fmax(*to, x->at[i]);
    }
    for (int64_t i = 0; i < count(y->t); i++) y->at[i] = rounded(y->at[i], y->t->type);
}

/* The last two dimensions change places. */
static void compute_turn(const fake_op *op, const numbers *all, numbers *y)
{
    const numbers *x = &all[op->x[0]];
    int64_t place[4];
    for (int64_t i = 0; i < count(y->t); i++) {
        unravel(y->t, i, place);
        const int64_t from[4] = {place[0], place[1], place[3], place[2]};
        y->at[i] = rounded(x->at[dense_at(x->t, from, x->t)], y->t->type);
    }
}

static void compute_op(const fake_op *op, const numbers *all, numbers *y)
{
    switch (op->kind) {
    case QDRI_CUDNN_OP_POINTWISE: compute_pointwise(op, all, y); break;
    case QDRI_CUDNN_OP_MATMUL: compute_matmul(op, all, y); break;
    case QDRI_CUDNN_OP_REDUCTION: compute_reduction(op, all, y); break;
    default: compute_turn(op, all, y); break;
    }
}

void fake_cudnn_compute(void *args)
{
    const fake_run *run = args;
    const fake_graph *g = run->graph;
    numbers all[TENSORS_MOST];
    for (int i = 0; i < TENSORS_MOST; i++) all[i] = (numbers){&g->tensors[i], NULL};
    for (int i = 0; i < g->n_ops; i++) {
        const fake_op *op = &g->ops[i];
        for (int k = 0; k < INPUTS_MOST; k++)
            if (op->x[k] >= 0 && !all[op->x[k]].at) load(&all[op->x[k]], run, op->x[k]);
        all[op->y].at = new_numbers(all[op->y].t);
        compute_op(op, all, &all[op->y]);
        if (!all[op->y].t->is_virtual) store(&all[op->y], run->data[op->y]);
    }
    for (int i = 0; i < TENSORS_MOST; i++) free(all[i].at);
}
