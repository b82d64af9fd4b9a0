/* SPDX-License-Identifier: Apache-2.0 */
/* The tasks of an operation: its kernels, with the small collectives between them. */
#include "core/size.h"
#include "schedule/net_parts.h"
#include "schedule/op_bytes.h"

/* One part of an operation's rows. */
typedef struct op_part {
    qdri_builder *builder;
    const qdri_net *net;
    const qdri_node *node;
    int number; /* of the node */
    int part;
    int64_t begin, end; /* rows of the first input */
    double elems, bytes; /* of these rows */
    qdri_ref dy;
    const qdri_ref *d_in; /* whole gradients of the inputs */
    int accumulates; /* bits as in qdri_op_backward_tasks() */
} op_part;

static op_part part_of(qdri_builder *builder, const qdri_net *net, int number, int part)
{
    const qdri_node *node = &net->nodes[number];
    const qdri_edge *edge = &net->edges[node->in[0]];
    op_part p = {.builder = builder, .net = net, .node = node, .number = number, .part = part};
    p.end = edge->owned.n_rows;
    if (!node->needs_all_rows) qdri_part_rows(builder, part, p.end, &p.begin, &p.end);
    p.elems = (double)(p.end - p.begin) * (double)edge->owned.n_cols;
    p.bytes = p.elems * (double)qdr_dtype_bytes(edge->dtype);
    return p;
}

/* ---- operands ---- */

static qdri_ref slice(qdri_ref ref, size_t offset, size_t bytes)
{
    return ref.buffer < 0 ? ref : (qdri_ref){ref.buffer, ref.offset + offset, bytes};
}

static const qdri_edge *edge_of(const op_part *p, int i) { return &p->net->edges[p->node->in[i]]; }
static int64_t columns(const op_part *p) { return edge_of(p, 0)->owned.n_cols; }
static int64_t n_rows(const op_part *p) { return p->end - p->begin; }
static size_t real_bytes(const op_part *p) { return qdr_dtype_bytes(qdri_sum_type(p->net->opts.dtype)); }
static qdri_ref input(const op_part *p, int i)
{
    return qdri_edge_rows(edge_of(p, i), edge_of(p, i)->value, p->begin, p->end);
}
static qdri_ref output(const op_part *p)
{
    const qdri_edge *edge = &p->net->edges[p->node->out];
    return qdri_edge_rows(edge, edge->value, p->begin, p->end);
}
static qdri_ref d_input(const op_part *p, int i) { return qdri_edge_rows(edge_of(p, i), p->d_in[i], p->begin, p->end); }
static qdri_ref saved(const op_part *p)
{
    const int64_t n_all = edge_of(p, 0)->owned.n_rows;
    if (n_rows(p) == n_all) return p->node->saved;
    const size_t row_bytes = p->node->saved_bytes / (size_t)n_all;
    return slice(p->node->saved, (size_t)p->begin * row_bytes, (size_t)n_rows(p) * row_bytes);
}
static qdri_ref parameter(const op_part *p, int i) { return p->net->parameters[p->node->parameter + i].data; }
static qdri_ref gradient(const op_part *p, int i) { return p->net->parameters[p->node->parameter + i].gradient; }

/* Some numbers for each of the part's rows, in the operation's work; `offset`: where those of the first row are. */
static qdri_ref numbers(const op_part *p, size_t offset, int64_t n_per_row)
{
    const size_t row_bytes = (size_t)n_per_row * real_bytes(p);
    return slice(p->net->op_work, offset + (size_t)p->begin * row_bytes, (size_t)n_rows(p) * row_bytes);
}

/* ---- adding ---- */

typedef struct refs {
    int n;
    qdri_ref of[QDRI_MAX_READS];
} refs;

/* A task on the part's rows. It reports the flops of its work if it does not state others. */
static void add_task(const op_part *p, qdri_task *task, const refs *reads, const refs *writes)
{
    task->node = p->number;
    task->name = p->node->name;
    task->m = n_rows(p);
    task->dtype = task->out_dtype = p->net->opts.dtype;
    task->n_reads = reads->n;
    task->n_writes = writes->n;
    for (int i = 0; i < reads->n; i++) task->reads[i] = reads->of[i];
    for (int i = 0; i < writes->n; i++) task->writes[i] = writes->of[i];
    if (!(task->flops > 0)) task->flops = task->work.flops;
    qdri_schedule_add(p->builder, task);
}

static const qdri_task_work no_work = {.n_kernels = 0}; /* too little to count */

/* A kernel on all columns of the first input. */
static void add_kernel(const op_part *p, qdri_task_kind kind, qdri_task_work work, const refs *reads,
                       const refs *writes, int accumulate)
{
    add_task(p, &(qdri_task){.kind = kind, .accumulate = accumulate, .n = columns(p), .work = work}, reads, writes);
}

/* A collective on n_per_row numbers for each row. The task states its kind, operands and type. */
static void add_collective(const op_part *p, qdr_axis axis, int64_t n_per_row, qdri_task *task)
{
    task->node = p->number;
    task->name = p->node->name;
    task->channel = qdri_statistics_channel(axis);
    task->m = n_rows(p);
    task->n = n_per_row;
    task->count = task->m * task->n;
    task->out_dtype = task->dtype;
    qdri_add_collective(p->builder, task);
}

/* Combines the ranks' numbers in place. */
static void reduce(const op_part *p, qdr_axis axis, qdr_reduce how, int64_t n_per_row, qdri_ref data)
{
    add_collective(p, axis, n_per_row,
                   &(qdri_task){.coll = QDR_ALL_REDUCE,
                                .reduce = how,
                                .n_writes = 1,
                                .writes = {data},
                                .dtype = qdri_sum_type(p->net->opts.dtype)});
}

/* ---- layer norm ---- */

static void norm_forward(const op_part *p)
{
    const qdr_axis axis = p->node->u.norm.axis;
    const int g = p->net->position.size[axis], rank = p->net->position.coordinate[axis], n = p->node->n_parameters;
    const size_t own_bytes = (size_t)n_rows(p) * 3 * real_bytes(p);
    const qdri_ref moments = numbers(p, 0, 3 * (int64_t)g);
    add_kernel(p, QDRI_TASK_NORM_MOMENTS, (qdri_task_work){p->bytes, 3 * p->elems, 1, QDRI_COST_FUSED},
               &(refs){1, {input(p, 0)}}, &(refs){1, {slice(moments, (size_t)rank * own_bytes, own_bytes)}}, 0);
    add_collective(
        p, axis, 3,
        &(qdri_task){
            .coll = QDR_ALL_GATHER, .n_writes = 1, .writes = {moments}, .dtype = qdri_sum_type(p->net->opts.dtype)});
    add_task(p, &(qdri_task){.kind = QDRI_TASK_NORM_MERGE, .n = columns(p), .k = g}, &(refs){1, {moments}},
             &(refs){1, {saved(p)}});
    add_kernel(p, QDRI_TASK_NORM_APPLY, (qdri_task_work){2 * p->bytes, 5 * p->elems, 1, QDRI_COST_AFTER_FUSED},
               &(refs){2 + n, {input(p, 0), saved(p), parameter(p, 0), n > 1 ? parameter(p, 1) : QDRI_NO_REF}},
               &(refs){1, {output(p)}}, 0);
}

static void norm_backward(const op_part *p)
{
    const qdri_ref sums = numbers(p, 0, 2);
    const int n = p->node->n_parameters;
    add_kernel(p, QDRI_TASK_NORM_SUMS, (qdri_task_work){2 * p->bytes, 6 * p->elems, 2, QDRI_COST_PLAIN},
               &(refs){4, {p->dy, input(p, 0), saved(p), parameter(p, 0)}},
               &(refs){1 + n, {sums, gradient(p, 0), n > 1 ? gradient(p, 1) : QDRI_NO_REF}},
               (p->accumulates >> QDR_MAX_OP_INPUTS) & 1);
    reduce(p, p->node->u.norm.axis, QDR_SUM, 2, sums);
    add_kernel(p, QDRI_TASK_NORM_BACKWARD, (qdri_task_work){3 * p->bytes, 8 * p->elems, 0, QDRI_COST_PLAIN},
               &(refs){5, {p->dy, input(p, 0), saved(p), parameter(p, 0), sums}}, &(refs){1, {d_input(p, 0)}},
               p->accumulates & 1);
}

/* ---- attention ---- */

/* The memory of an attention that gathers key heads; it has one part. */
typedef struct gathered {
    qdri_ref saved, assembled; /* saved state */
    qdri_ref heads, d_assembled, own, one; /* work */
} gathered;

static gathered gathered_of(const op_part *p)
{
    const qdr_attention *local = &p->node->u.attention.local;
    const qdri_key_heads *keys = &p->node->u.attention.keys;
    qdri_key_heads_bytes bytes = {0};
    if (p->builder->status == QDR_OK) p->builder->status = qdri_key_heads_parts(local, keys, &bytes);
    const size_t heads = bytes.kernel_work, d_assembled = heads + bytes.heads, own = d_assembled + bytes.assembled;
    return (gathered){.saved = slice(p->node->saved, 0, bytes.kernel_saved),
                      .assembled = slice(p->node->saved, bytes.kernel_saved, bytes.assembled),
                      .heads = slice(p->net->op_work, heads, bytes.heads),
                      .d_assembled = slice(p->net->op_work, d_assembled, bytes.assembled),
                      .own = slice(p->net->op_work, own, bytes.own),
                      .one = slice(p->net->op_work, own + bytes.own, bytes.one)};
}

/* Gathers the key heads of all ranks, or sums their gradients. */
static void move_key_heads(const op_part *p, qdr_coll_kind kind, const gathered *g)
{
    const qdr_attention *local = &p->node->u.attention.local;
    const qdri_key_heads *keys = &p->node->u.attention.keys;
    const int64_t pair = 2 * local->head_size; /* columns of the keys and values of a head */
    const int gathers = kind == QDR_ALL_GATHER;
    add_collective(p, keys->axis, keys->n_all * pair,
                   &(qdri_task){.coll = kind,
                                .n_reads = gathers ? 0 : 1,
                                .reads = {g->heads},
                                .n_writes = 1,
                                .writes = {gathers ? g->heads : g->own},
                                .split_unit = n_rows(p) ? n_rows(p) * pair : 1,
                                .dtype = local->dtype});
}

static qdri_ref attention_work(const op_part *p)
{
    return slice(p->net->op_work, 0, qdri_attention_work_bytes(&p->node->u.attention.local));
}

/* A row sees its own position and, on average, half of the others; the flops that are reported leave its own out. */
static void attend(const op_part *p, int backward, const refs *reads, const refs *writes)
{
    const qdr_attention *local = &p->node->u.attention.local;
    const int64_t query_columns = local->n_heads * local->head_size;
    const double rows = (double)n_rows(p), context = (double)local->context, times = backward ? 2.5 : 1;
    const double bytes = rows * (double)qdr_dtype_bytes(local->dtype) * (double)(columns(p) + query_columns);
    const double flops = 4 * rows * ((context + 1) / 2) * (double)query_columns;
    qdri_task task = {.kind = backward ? QDRI_TASK_ATTENTION_BACKWARD : QDRI_TASK_ATTENTION,
                      .n = query_columns,
                      .k = columns(p),
                      .context = local->context,
                      .heads = local->n_heads,
                      .flops = times * 2 * rows * context * (double)query_columns};
    if (local->n_heads > 0)
        task.work = backward ? (qdri_task_work){2 * bytes, times * flops, 3, QDRI_COST_SCORES_BACKWARD}
                             : (qdri_task_work){bytes, flops, 1, QDRI_COST_SCORES};
    add_task(p, &task, reads, writes);
}

static void attention_forward(const op_part *p)
{
    const qdri_key_heads *keys = &p->node->u.attention.keys;
    if (!keys->gathered) {
        attend(p, 0, &(refs){1, {input(p, 0)}}, &(refs){3, {output(p), saved(p), attention_work(p)}});
        return;
    }
    const gathered g = gathered_of(p);
    const qdr_attention *local = &p->node->u.attention.local;
    const size_t pair = 2 * (size_t)(n_rows(p) * local->head_size) * qdr_dtype_bytes(local->dtype);
    const qdri_ref own = slice(g.heads, (size_t)keys->first_own * pair, (size_t)keys->n_own * pair);
    add_kernel(p, QDRI_TASK_KEYS_PACK, no_work, &(refs){1, {input(p, 0)}}, &(refs){1, {own}}, 0);
    move_key_heads(p, QDR_ALL_GATHER, &g);
    add_kernel(p, QDRI_TASK_KEYS_ASSEMBLE, no_work, &(refs){2, {input(p, 0), g.heads}}, &(refs){1, {g.assembled}}, 0);
    attend(p, 0, &(refs){1, {g.assembled}}, &(refs){3, {output(p), g.saved, attention_work(p)}});
}

static void attention_backward(const op_part *p)
{
    const qdri_key_heads *keys = &p->node->u.attention.keys;
    if (!keys->gathered) {
        attend(p, 1, &(refs){4, {p->dy, input(p, 0), output(p), saved(p)}},
               &(refs){2, {d_input(p, 0), attention_work(p)}});
        return;
    }
    const gathered g = gathered_of(p);
    attend(p, 1, &(refs){4, {p->dy, g.assembled, output(p), g.saved}}, &(refs){2, {g.d_assembled, attention_work(p)}});
    add_kernel(p, QDRI_TASK_KEYS_SPREAD, no_work, &(refs){1, {g.d_assembled}},
               &(refs){3, {g.heads, d_input(p, 0), g.one}}, 0);
    move_key_heads(p, QDR_REDUCE_SCATTER, &g);
    add_kernel(p, QDRI_TASK_KEYS_UNPACK, no_work, &(refs){1, {g.own}}, &(refs){1, {d_input(p, 0)}}, 0);
}

/* ---- element by element ---- */

static void gelu_forward(const op_part *p)
{
    add_kernel(p, QDRI_TASK_GELU, (qdri_task_work){2 * p->bytes, 12 * p->elems, 1, QDRI_COST_PLAIN},
               &(refs){1, {input(p, 0)}}, &(refs){1, {output(p)}}, 0);
}

static void gelu_backward(const op_part *p)
{
    add_kernel(p, QDRI_TASK_GELU_BACKWARD, (qdri_task_work){3 * p->bytes, 20 * p->elems, 1, QDRI_COST_PLAIN},
               &(refs){2, {p->dy, input(p, 0)}}, &(refs){1, {d_input(p, 0)}}, p->accumulates & 1);
}

static void residual_forward(const op_part *p)
{
    add_kernel(p, QDRI_TASK_RESIDUAL, (qdri_task_work){3 * p->bytes, p->elems, 1, QDRI_COST_PLAIN},
               &(refs){2, {input(p, 0), input(p, 1)}}, &(refs){1, {output(p)}}, 0);
}

/* ---- cross-entropy ---- */

static void loss_forward(const op_part *p)
{
    const qdr_cross_entropy *ce = &p->node->u.cross_entropy;
    const qdri_ref maxima = numbers(p, 0, 1), sums = numbers(p, qdri_cross_entropy_sums(ce), 2);
    const size_t loss_bytes = 2 * sizeof(double);
    const qdri_ref loss = slice(p->net->loss, (size_t)p->part * loss_bytes, loss_bytes);
    add_kernel(p, QDRI_TASK_LOSS_MAX, (qdri_task_work){p->bytes, 2 * p->elems, 1, QDRI_COST_LOGITS},
               &(refs){1, {input(p, 0)}}, &(refs){1, {maxima}}, 0);
    reduce(p, ce->axis, QDR_MAX, 1, maxima);
    add_kernel(p, QDRI_TASK_LOSS_SUMS, (qdri_task_work){p->bytes, 3 * p->elems, 0, QDRI_COST_LOGITS},
               &(refs){3, {input(p, 0), input(p, 1), maxima}}, &(refs){1, {sums}}, 0);
    reduce(p, ce->axis, QDR_SUM, 2, sums);
    add_kernel(p, QDRI_TASK_LOSS, no_work, &(refs){3, {input(p, 1), maxima, sums}}, &(refs){2, {loss, saved(p)}}, 0);
}

static void loss_backward(const op_part *p)
{
    add_kernel(p, QDRI_TASK_LOSS_BACKWARD, (qdri_task_work){2 * p->bytes, 4 * p->elems, 1, QDRI_COST_LOGITS},
               &(refs){3, {input(p, 0), input(p, 1), saved(p)}}, &(refs){1, {d_input(p, 0)}}, 0);
}

/* ---- the caller's operation ---- */

static qdri_task_work callers_work(const op_part *p, double bytes, double flops)
{
    return n_rows(p) ? (qdri_task_work){bytes, flops, 1, QDRI_COST_CALLER}
                     : (qdri_task_work){0, 0, 1, QDRI_COST_CALLER};
}

static void caller_forward(const op_part *p)
{
    const qdr_op_cost *cost = &p->node->cost;
    refs inputs = {.n = p->node->n_in};
    for (int i = 0; i < inputs.n; i++) inputs.of[i] = input(p, i);
    add_kernel(p, QDRI_TASK_CALLER_FORWARD, callers_work(p, cost->forward_bytes, cost->forward_flops), &inputs,
               &(refs){2, {output(p), saved(p)}}, 0);
}

static void caller_backward(const op_part *p)
{
    const int n_in = p->node->n_in;
    const qdr_op_cost *cost = &p->node->cost;
    refs reads = {3 + n_in, {p->dy}}, writes = {.n = n_in};
    for (int i = 0; i < n_in; i++) {
        reads.of[1 + i] = input(p, i);
        writes.of[i] = d_input(p, i);
    }
    reads.of[1 + n_in] = output(p);
    reads.of[2 + n_in] = saved(p);
    add_kernel(p, QDRI_TASK_CALLER_BACKWARD, callers_work(p, cost->backward_bytes, cost->backward_flops), &reads,
               &writes, p->accumulates & ((1 << n_in) - 1));
}

/* ---- by kind ---- */

static const struct {
    void (*forward)(const op_part *p);
    void (*backward)(const op_part *p); /* none: gradients are passed on */
} adders[QDRI_N_NODE_KINDS] = {
    [QDRI_NODE_NORM] = {norm_forward, norm_backward},
    [QDRI_NODE_ATTENTION] = {attention_forward, attention_backward},
    [QDRI_NODE_GELU] = {gelu_forward, gelu_backward},
    [QDRI_NODE_RESIDUAL] = {residual_forward, NULL},
    [QDRI_NODE_CROSS_ENTROPY] = {loss_forward, loss_backward},
    [QDRI_NODE_USER] = {caller_forward, caller_backward},
};

void qdri_op_forward_tasks(qdri_builder *builder, const qdri_net *net, int number, int part)
{
    const op_part p = part_of(builder, net, number, part);
    adders[p.node->kind].forward(&p);
}

void qdri_op_backward_tasks(qdri_builder *builder, const qdri_net *net, int number, int part, const qdri_ref *d_in,
                            int accumulates)
{
    op_part p = part_of(builder, net, number, part);
    const qdri_edge *out = p.node->out >= 0 ? &net->edges[p.node->out] : NULL;
    p.dy = out ? qdri_edge_rows(out, out->d, p.begin, p.end) : QDRI_NO_REF;
    p.d_in = d_in;
    p.accumulates = accumulates;
    adders[p.node->kind].backward(&p);
}
