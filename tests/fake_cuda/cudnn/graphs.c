/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: operations in a computable order, consistent shapes. */
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "descriptors.h"

static int is_turned(const fake_tensor *x, const fake_tensor *y)
{
    int is = x->strides[2] == y->strides[3] && x->strides[3] == y->strides[2] && x->dims[2] == y->dims[3] &&
             x->dims[3] == y->dims[2];
    for (int d = 0; d < 2; d++) is &= x->dims[d] == y->dims[d] && x->strides[d] == y->strides[d];
    return is;
}

/* Each number of the smaller one serves equally many of the larger one. */
static int serves(const fake_tensor *few, const fake_tensor *many, int n_dims)
{
    for (int d = 0; d < n_dims; d++)
        if (few->dims[d] == 0 || many->dims[d] % few->dims[d]) return 0;
    return 1;
}

static void read_tensor(fake_tensor *t, const descriptor *d)
{
    t->id = fake_cudnn_long(d, QDRI_CUDNN_TENSOR_ID);
    t->type = (int)fake_cudnn_word(d, QDRI_CUDNN_TENSOR_TYPE, 0);
    t->alignment = (int)fake_cudnn_long(d, QDRI_CUDNN_TENSOR_ALIGNMENT);
    t->is_virtual = (int)fake_cudnn_word(d, QDRI_CUDNN_TENSOR_VIRTUAL, 0);
    t->is_value = (int)fake_cudnn_word(d, QDRI_CUDNN_TENSOR_BY_VALUE, 0);
    memcpy(t->dims, fake_cudnn_find(d, QDRI_CUDNN_TENSOR_DIMS)->values, sizeof t->dims);
    memcpy(t->strides, fake_cudnn_find(d, QDRI_CUDNN_TENSOR_STRIDES)->values, sizeof t->strides);
    for (int i = 0; i < 4; i++)
        if (t->dims[i] < 1 || t->strides[i] < 1)
            fake_cudnn_wrong("tensor %lld has dimension %d of %lld, stride %lld", (long long)t->id, i,
                             (long long)t->dims[i], (long long)t->strides[i]);
    if (t->alignment < (t->type == QDRI_CUDNN_F32 ? 4 : 2))
        fake_cudnn_wrong("tensor %lld is aligned to %d", (long long)t->id, t->alignment);
    if (t->is_virtual && t->is_value) fake_cudnn_wrong("a tensor is virtual and a number");
}

/* Its index in the graph; the same number must be the same tensor. */
static int find_tensor(fake_graph *g, const descriptor *d)
{
    fake_tensor t = {0};
    if (!d) return -1;
    read_tensor(&t, d);
    for (int i = 0; i < g->n_tensors; i++) {
        if (g->tensors[i].id != t.id) continue;
        if (memcmp(&g->tensors[i], &t, sizeof t) != 0)
            fake_cudnn_wrong("two tensors have the number %lld", (long long)t.id);
        return i;
    }
    if (g->n_tensors == TENSORS_MOST) fake_cudnn_wrong("more than %d tensors", TENSORS_MOST);
    g->tensors[g->n_tensors] = t;
    return g->n_tensors++;
}

static fake_op read_op(fake_graph *g, const descriptor *d)
{
    static const struct {
        int kind, desc, mode, x[INPUTS_MOST], y;
    } forms[] = {
        {QDRI_CUDNN_OP_POINTWISE,
         QDRI_CUDNN_OP_POINTWISE_DESC,
         QDRI_CUDNN_POINTWISE_MODE,
         {QDRI_CUDNN_OP_POINTWISE_X, QDRI_CUDNN_OP_POINTWISE_B, QDRI_CUDNN_OP_POINTWISE_T},
         QDRI_CUDNN_OP_POINTWISE_Y},
        {QDRI_CUDNN_OP_MATMUL,
         QDRI_CUDNN_OP_MATMUL_DESC,
         QDRI_CUDNN_MATMUL_TYPE,
         {QDRI_CUDNN_OP_MATMUL_A, QDRI_CUDNN_OP_MATMUL_B, -1},
         QDRI_CUDNN_OP_MATMUL_C},
        {QDRI_CUDNN_OP_REDUCTION,
         QDRI_CUDNN_OP_REDUCTION_DESC,
         QDRI_CUDNN_REDUCTION_OPERATOR,
         {QDRI_CUDNN_OP_REDUCTION_X, -1, -1},
         QDRI_CUDNN_OP_REDUCTION_Y},
        {QDRI_CUDNN_OP_RESHAPE, -1, -1, {QDRI_CUDNN_OP_RESHAPE_X, -1, -1}, QDRI_CUDNN_OP_RESHAPE_Y},
    };
    size_t f = 0;
    fake_op op = {.kind = d->kind};
    while (f < sizeof forms / sizeof *forms && forms[f].kind != d->kind) f++;
    if (f == sizeof forms / sizeof *forms) fake_cudnn_wrong("an operation of kind %d", d->kind);
    const descriptor *what = forms[f].desc < 0 ? NULL : fake_cudnn_desc(d, forms[f].desc);
    if (what) op.mode = (int)fake_cudnn_word(what, forms[f].mode, 0);
    if (what && what->kind == QDRI_CUDNN_POINTWISE && op.mode == QDRI_CUDNN_INDEX)
        op.axis = (int)fake_cudnn_long(what, QDRI_CUDNN_POINTWISE_AXIS);
    for (int k = 0; k < INPUTS_MOST; k++)
        op.x[k] = find_tensor(g, forms[f].x[k] < 0 ? NULL : fake_cudnn_desc(d, forms[f].x[k]));
    op.y = find_tensor(g, fake_cudnn_desc(d, forms[f].y));
    return op;
}

static int n_inputs(const fake_op *op)
{
    if (op->kind == QDRI_CUDNN_OP_MATMUL) return 2;
    if (op->kind != QDRI_CUDNN_OP_POINTWISE || op->mode == QDRI_CUDNN_EXP || op->mode == QDRI_CUDNN_LOG ||
        op->mode == QDRI_CUDNN_INDEX)
        return 1;
    return op->mode == QDRI_CUDNN_SELECT ? 3 : 2;
}

static int fits(const fake_graph *g, const fake_op *op)
{
    const fake_tensor *x = &g->tensors[op->x[0]], *y = &g->tensors[op->y];
    const fake_tensor *b = op->x[1] < 0 ? x : &g->tensors[op->x[1]];
    switch (op->kind) {
    case QDRI_CUDNN_OP_MATMUL:
        return x->dims[2] == y->dims[2] && x->dims[3] == b->dims[2] && b->dims[3] == y->dims[3] && serves(x, y, 2) &&
               serves(b, y, 2);
    case QDRI_CUDNN_OP_REDUCTION: return serves(y, x, 4);
    case QDRI_CUDNN_OP_RESHAPE: return is_turned(x, y);
    default: return serves(x, y, 4) && serves(b, y, 4);
    }
}

static void check_op(const fake_graph *g, const fake_op *op, int number)
{
    for (int k = 0; k < INPUTS_MOST; k++) {
        if ((op->x[k] >= 0) != (k < n_inputs(op)))
            fake_cudnn_wrong("operation %d has another number of operands than %d", number, n_inputs(op));
        if (op->x[k] < 0 || !g->tensors[op->x[k]].is_virtual) continue;
        int is_made = 0;
        for (int i = 0; i < number; i++) is_made |= g->ops[i].y == op->x[k];
        if (!is_made) fake_cudnn_wrong("operation %d reads what none before it made", number);
    }
    if (g->tensors[op->y].is_value) fake_cudnn_wrong("operation %d writes a number", number);
    if (!fits(g, op)) fake_cudnn_wrong("the shapes of operation %d do not fit", number);
}

fake_graph *fake_cudnn_read_graph(const descriptor *graph)
{
    static _Atomic(fake_graph *) all; /* forever: what was recorded may use it */
    descriptor *ops[OPS_MOST];
    const attribute *list = fake_cudnn_find(graph, QDRI_CUDNN_GRAPH_OPS);
    fake_graph *g = calloc(1, sizeof *g);
    if (!g) fake_cudnn_wrong("there is no memory for a graph");
    memcpy(ops, list->values, (size_t)list->n * sizeof *ops);
    for (int64_t i = 0; i < list->n; i++) {
        g->ops[i] = read_op(g, ops[i]);
        g->n_ops++;
        check_op(g, &g->ops[i], (int)i);
    }
    g->next = atomic_exchange(&all, g); /* ranks that are threads add to it at once */
    return g;
}
