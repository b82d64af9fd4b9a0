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

/* A kernel on the part's rows. It reports the flops of its work if it does not state others. */
static void add_kernel(const op_part *p, const qdri_task *what)
{
    qdri_task task = *what;
    task.node = p->number;
    task.name = p->node->name;
    task.m = n_rows(p);
    task.dtype = task.out_dtype = p->net->opts.dtype;
    if (!(task.flops > 0)) task.flops = task.work.flops;
    qdri_schedule_add(p->builder, &task);
}

/* A collective on n_per_row numbers for each row. `what`: its kind, operands and type. */
static void add_collective(const op_part *p, qdr_axis axis, int64_t n_per_row, const qdri_task *what)
{
    qdri_task task = *what;
    task.node = p->number;
    task.name = p->node->name;
    task.channel = qdri_statistics_channel(axis);
    task.m = n_rows(p);
    task.n = n_per_row;
    task.count = task.m * task.n;
    task.out_dtype = task.dtype;
    qdri_add_collective(p->builder, &task);
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
    const int g = p->net->place.size[axis], rank = p->net->place.coordinate[axis];
    const size_t own_bytes = (size_t)n_rows(p) * 3 * real_bytes(p);
    const qdri_ref moments = numbers(p, 0, 3 * (int64_t)g);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_NORM_MOMENTS,
                               .n_reads = 1,
                               .reads = {input(p, 0)},
                               .n_writes = 1,
                               .writes = {slice(moments, (size_t)rank * own_bytes, own_bytes)},
                               .n = columns(p),
                               .work = {p->bytes, 3 * p->elems, 1, QDRI_COST_FUSED}});
    add_collective(
        p, axis, 3,
        &(qdri_task){
            .coll = QDR_ALL_GATHER, .n_writes = 1, .writes = {moments}, .dtype = qdri_sum_type(p->net->opts.dtype)});
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_NORM_MERGE,
                               .n_reads = 1,
                               .reads = {moments},
                               .n_writes = 1,
                               .writes = {saved(p)},
                               .n = columns(p),
                               .k = g});
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_NORM_APPLY,
                               .n_reads = 4,
                               .reads = {input(p, 0), saved(p), parameter(p, 0), parameter(p, 1)},
                               .n_writes = 1,
                               .writes = {output(p)},
                               .n = columns(p),
                               .work = {2 * p->bytes, 5 * p->elems, 1, QDRI_COST_AFTER_FUSED}});
}

static void norm_backward(const op_part *p)
{
    const qdri_ref sums = numbers(p, 0, 2);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_NORM_SUMS,
                               .n_reads = 4,
                               .reads = {p->dy, input(p, 0), saved(p), parameter(p, 0)},
                               .n_writes = 3,
                               .writes = {sums, gradient(p, 0), gradient(p, 1)},
                               .accumulate = (p->accumulates >> QDR_MAX_OP_INPUTS) & 1,
                               .n = columns(p),
                               .work = {2 * p->bytes, 6 * p->elems, 2, QDRI_COST_PLAIN}});
    reduce(p, p->node->u.norm.axis, QDR_SUM, 2, sums);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_NORM_BACKWARD,
                               .n_reads = 5,
                               .reads = {p->dy, input(p, 0), saved(p), parameter(p, 0), sums},
                               .n_writes = 1,
                               .writes = {d_input(p, 0)},
                               .accumulate = p->accumulates & 1,
                               .n = columns(p),
                               .work = {3 * p->bytes, 8 * p->elems, 0, QDRI_COST_PLAIN}});
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
    qdri_key_heads_bytes bytes;
    p->builder->status = qdri_key_heads_parts(local, keys, &bytes);
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

/* This rank's key heads among all. */
static qdri_ref own_among_all(const op_part *p, const gathered *g)
{
    const qdr_attention *local = &p->node->u.attention.local;
    const qdri_key_heads *keys = &p->node->u.attention.keys;
    const size_t pair = 2 * (size_t)(n_rows(p) * local->head_size) * qdr_dtype_bytes(local->dtype);
    return slice(g->heads, (size_t)keys->first_own * pair, (size_t)keys->n_own * pair);
}

static qdri_ref attention_work(const op_part *p)
{
    return slice(p->net->op_work, 0, qdri_attention_work_bytes(&p->node->u.attention.local));
}

static double attention_flops(const op_part *p)
{
    const qdr_attention *local = &p->node->u.attention.local;
    /* causal: half of the 2·2·T·T·head_size of each head */
    return 2.0 * (double)n_rows(p) * (double)local->context * (double)(local->n_heads * local->head_size);
}

static int64_t query_columns(const op_part *p)
{
    return p->node->u.attention.local.n_heads * p->node->u.attention.local.head_size;
}

/* A row sees its own position and, on average, half of the others. */
static qdri_task_work work_of_attention(const op_part *p, int backward)
{
    const qdr_attention *local = &p->node->u.attention.local;
    const double rows = (double)n_rows(p), seen = ((double)local->context + 1) / 2;
    const double bytes = rows * (double)qdr_dtype_bytes(local->dtype) * (double)(columns(p) + query_columns(p));
    const double flops = 4 * rows * seen * (double)query_columns(p);
    if (local->n_heads == 0) return (qdri_task_work){.n_kernels = 0};
    return backward ? (qdri_task_work){2 * bytes, 2.5 * flops, 3, QDRI_COST_SCORES_BACKWARD}
                    : (qdri_task_work){bytes, flops, 1, QDRI_COST_SCORES};
}

static void attend(const op_part *p, qdri_ref qkv, qdri_ref kept)
{
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_ATTENTION,
                               .n_reads = 1,
                               .reads = {qkv},
                               .n_writes = 3,
                               .writes = {output(p), kept, attention_work(p)},
                               .n = query_columns(p),
                               .k = columns(p),
                               .context = p->node->u.attention.local.context,
                               .heads = p->node->u.attention.local.n_heads,
                               .flops = attention_flops(p),
                               .work = work_of_attention(p, 0)});
}

static void attend_backward(const op_part *p, qdri_ref qkv, qdri_ref kept, qdri_ref d_qkv)
{
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_ATTENTION_BACKWARD,
                               .n_reads = 4,
                               .reads = {p->dy, qkv, output(p), kept},
                               .n_writes = 2,
                               .writes = {d_qkv, attention_work(p)},
                               .n = query_columns(p),
                               .k = columns(p),
                               .context = p->node->u.attention.local.context,
                               .heads = p->node->u.attention.local.n_heads,
                               .flops = 2.5 * attention_flops(p),
                               .work = work_of_attention(p, 1)});
}

static void attention_forward(const op_part *p)
{
    const qdri_key_heads *keys = &p->node->u.attention.keys;
    if (!keys->gathered) {
        attend(p, input(p, 0), saved(p));
        return;
    }
    const gathered g = gathered_of(p);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_KEYS_PACK,
                               .n_reads = 1,
                               .reads = {input(p, 0)},
                               .n_writes = 1,
                               .writes = {own_among_all(p, &g)},
                               .n = columns(p)});
    move_key_heads(p, QDR_ALL_GATHER, &g);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_KEYS_ASSEMBLE,
                               .n_reads = 2,
                               .reads = {input(p, 0), g.heads},
                               .n_writes = 1,
                               .writes = {g.assembled},
                               .n = columns(p)});
    attend(p, g.assembled, g.saved);
}

static void attention_backward(const op_part *p)
{
    const qdri_key_heads *keys = &p->node->u.attention.keys;
    if (!keys->gathered) {
        attend_backward(p, input(p, 0), saved(p), d_input(p, 0));
        return;
    }
    const gathered g = gathered_of(p);
    attend_backward(p, g.assembled, g.saved, g.d_assembled);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_KEYS_SPREAD,
                               .n_reads = 1,
                               .reads = {g.d_assembled},
                               .n_writes = 3,
                               .writes = {g.heads, d_input(p, 0), g.one},
                               .n = columns(p)});
    move_key_heads(p, QDR_REDUCE_SCATTER, &g);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_KEYS_UNPACK,
                               .n_reads = 1,
                               .reads = {g.own},
                               .n_writes = 1,
                               .writes = {d_input(p, 0)},
                               .n = columns(p)});
}

/* ---- element by element ---- */

static void gelu_forward(const op_part *p)
{
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_GELU,
                               .n_reads = 1,
                               .reads = {input(p, 0)},
                               .n_writes = 1,
                               .writes = {output(p)},
                               .n = columns(p),
                               .work = {2 * p->bytes, 12 * p->elems, 1, QDRI_COST_PLAIN}});
}

static void gelu_backward(const op_part *p)
{
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_GELU_BACKWARD,
                               .n_reads = 2,
                               .reads = {p->dy, input(p, 0)},
                               .n_writes = 1,
                               .writes = {d_input(p, 0)},
                               .accumulate = p->accumulates & 1,
                               .n = columns(p),
                               .work = {3 * p->bytes, 20 * p->elems, 1, QDRI_COST_PLAIN}});
}

static void residual_forward(const op_part *p)
{
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_RESIDUAL,
                               .n_reads = 2,
                               .reads = {input(p, 0), input(p, 1)},
                               .n_writes = 1,
                               .writes = {output(p)},
                               .n = columns(p),
                               .work = {3 * p->bytes, p->elems, 1, QDRI_COST_PLAIN}});
}

/* ---- cross-entropy ---- */

/* Two numbers. */
static qdri_ref loss_of(const op_part *p)
{
    const size_t bytes = 2 * sizeof(double);
    return slice(p->net->loss, (size_t)p->part * bytes, bytes);
}

static void loss_forward(const op_part *p)
{
    const qdr_cross_entropy *ce = &p->node->u.cross_entropy;
    const qdri_ref maxima = numbers(p, 0, 1), sums = numbers(p, qdri_cross_entropy_sums(ce), 2);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_LOSS_MAX,
                               .n_reads = 1,
                               .reads = {input(p, 0)},
                               .n_writes = 1,
                               .writes = {maxima},
                               .n = columns(p),
                               .work = {p->bytes, 2 * p->elems, 1, QDRI_COST_LOGITS}});
    reduce(p, ce->axis, QDR_MAX, 1, maxima);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_LOSS_SUMS,
                               .n_reads = 3,
                               .reads = {input(p, 0), input(p, 1), maxima},
                               .n_writes = 1,
                               .writes = {sums},
                               .n = columns(p),
                               .work = {p->bytes, 3 * p->elems, 0, QDRI_COST_LOGITS}});
    reduce(p, ce->axis, QDR_SUM, 2, sums);
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_LOSS,
                               .n_reads = 3,
                               .reads = {input(p, 1), maxima, sums},
                               .n_writes = 2,
                               .writes = {loss_of(p), saved(p)},
                               .n = columns(p)});
}

static void loss_backward(const op_part *p)
{
    add_kernel(p, &(qdri_task){.kind = QDRI_TASK_LOSS_BACKWARD,
                               .n_reads = 3,
                               .reads = {input(p, 0), input(p, 1), saved(p)},
                               .n_writes = 1,
                               .writes = {d_input(p, 0)},
                               .n = columns(p),
                               .work = {2 * p->bytes, 4 * p->elems, 1, QDRI_COST_LOGITS}});
}

/* ---- the caller's operation ---- */

/* flops, bytes: as the caller states them for all rows; without rows there is no work */
static qdri_task_work work_of_caller(const op_part *p, double flops, double bytes)
{
    return n_rows(p) ? (qdri_task_work){bytes, flops, 1, QDRI_COST_CALLER}
                     : (qdri_task_work){0, 0, 1, QDRI_COST_CALLER};
}

static void caller_forward(const op_part *p)
{
    const int n_in = p->node->n_in;
    qdri_task task = {.kind = QDRI_TASK_CALLER_FORWARD,
                      .n_reads = n_in,
                      .n_writes = 2,
                      .writes = {output(p), saved(p)},
                      .n = columns(p),
                      .work = work_of_caller(p, p->node->cost.forward_flops, p->node->cost.forward_bytes)};
    for (int i = 0; i < n_in; i++) task.reads[i] = input(p, i);
    add_kernel(p, &task);
}

static void caller_backward(const op_part *p)
{
    const int n_in = p->node->n_in;
    qdri_task task = {.kind = QDRI_TASK_CALLER_BACKWARD,
                      .n_reads = 3 + n_in,
                      .reads = {p->dy},
                      .n_writes = n_in,
                      .accumulate = p->accumulates & ((1 << n_in) - 1),
                      .n = columns(p),
                      .work = work_of_caller(p, p->node->cost.backward_flops, p->node->cost.backward_bytes)};
    for (int i = 0; i < n_in; i++) {
        task.reads[1 + i] = input(p, i);
        task.writes[i] = d_input(p, i);
    }
    task.reads[1 + n_in] = output(p);
    task.reads[2 + n_in] = saved(p);
    add_kernel(p, &task);
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
