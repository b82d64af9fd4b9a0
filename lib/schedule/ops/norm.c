/* SPDX-License-Identifier: Apache-2.0 */
/* Norms over features that may be split over an axis. Layer norm: moments of each rank's columns, merged in rank order
 * (Chan, Golub, LeVeque 1983); saved: mean and 1/sigma of each row. RMS norm: a sum of squares; saved: 1/rms. Blocks of
 * columns that are normed by themselves share their messages: numbers of rows are those of all rows of the first block,
 * then those of the next. Work: the moments of all ranks, or the sums of the backward. */
#include "core/block.h"
#include "core/size.h"
#include "schedule/ops/op.h"

/* ---- the node ---- */

static int is_rms(const qdri_node *node) { return node->kernel.u.norm.is_rms; }

/* Numbers of a row: moments, what is saved, and what the backward sums. */
static int64_t n_moments(const qdri_node *node) { return is_rms(node) ? 1 : 3; }

static int64_t n_numbers(const qdri_node *node) { return is_rms(node) ? 1 : 2; }

static double epsilon_of(const qdr_norm_desc *desc) { return desc->epsilon > 0 ? desc->epsilon : 1e-5; }

static qdr_status check(const qdr_norm_desc *desc, const char *who, const qdr_block *cols)
{
    const int n_blocks = qdri_blocks_count(cols);
    if (!(desc->epsilon >= 0))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: epsilon %g; use a number ≥ 0, 0 means 1e-5", who, desc->epsilon);
    if ((int)desc->kind < QDR_NORM_LAYER || desc->kind > QDR_NORM_RMS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: there is no kind of norm %d; use QDR_NORM_LAYER or QDR_NORM_RMS", who,
                        (int)desc->kind);
    QDR_TRY(qdri_check_switch(who, "no_beta", desc->no_beta));
    QDR_TRY(qdri_check_switch(who, "one_plus", desc->one_plus));
    if (desc->n_blocks < 0 || desc->n_blocks > n_blocks)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: n_blocks is %d, but the input has %d; use 0 to norm all features together",
                        who, desc->n_blocks, n_blocks);
    return QDR_OK;
}

static qdr_status add_parameters(qdri_net *net, const qdr_norm_desc *desc, const qdr_matrix *matrix, qdri_node *node)
{
    qdr_block cols[QDR_MAX_BLOCKS] = {{0}};
    for (int i = 0; i < (desc->n_blocks ? desc->n_blocks : QDR_MAX_BLOCKS); i++) cols[i] = matrix->cols[i];
    qdri_parameter_desc parameter = {.what = "gamma",
                                     .cols = cols,
                                     .col_split = 1 + (int)matrix->col_axis,
                                     .extra_sums = matrix->scatter_rows ? 1 << matrix->scatter_axis : 0,
                                     .initial = desc->one_plus ? 0 : 1};
    int beta;
    QDR_TRY(qdri_parameter_add(net, &parameter, &node->parameter));
    node->n_parameters = 1;
    if (desc->kind == QDR_NORM_RMS || desc->no_beta) return QDR_OK;
    parameter.what = "beta";
    parameter.initial = 0;
    node->n_parameters = 2;
    return qdri_parameter_add(net, &parameter, &beta);
}

static qdr_status add(qdri_net *net, const qdri_node_desc *described, qdr_edge *out)
{
    const char *who = described->name;
    const qdr_norm_desc *desc = &described->u.norm;
    const qdr_edge in = described->in[0];
    qdri_node *node = NULL;
    QDR_TRY(qdri_op_check_inputs(net, who, 1, &in));
    const qdr_matrix matrix = net->edges[in].matrix;
    const qdr_owned owned = net->edges[in].owned;
    const qdr_dtype sum_type = qdri_sum_type(net->opts.dtype);
    QDR_TRY(check(desc, who, matrix.cols));
    QDR_TRY(qdri_node_add_with_edge(net, who, QDRI_NODE_NORM, &matrix, net->opts.dtype, out, &node));
    node->axis = matrix.col_axis;
    node->n_blocks = desc->n_blocks;
    node->overwrites_only = desc->n_blocks && desc->n_blocks < qdri_blocks_count(matrix.cols); /* the rest is copied */
    node->kernel.u.norm.stride = owned.n_cols;
    node->kernel.u.norm.is_rms = desc->kind == QDR_NORM_RMS;
    node->kernel.u.norm.one_plus = desc->one_plus;
    node->kernel.u.norm.n_parts = is_rms(node) ? 1 : net->position.size[matrix.col_axis];
    node->kernel.u.norm.epsilon = epsilon_of(desc);
    const int64_t n = desc->n_blocks ? desc->n_blocks : 1, n_parts = node->kernel.u.norm.n_parts;
    QDR_TRY(qdri_block_bytes(owned.n_rows, n * n_moments(node) * n_parts, sum_type, &node->work_bytes));
    QDR_TRY(qdri_block_bytes(owned.n_rows, n * n_numbers(node), sum_type, &node->saved_bytes));
    QDR_TRY(add_parameters(net, desc, &matrix, node));
    qdri_node_connect(net, node, 1, &in, *out);
    return QDR_OK;
}

static void describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc)
{
    (void)net;
    qdri_facts_add_real(facts, who, "epsilon", epsilon_of(&desc->u.norm));
    qdri_facts_add_int(facts, who, "kind", (int)desc->u.norm.kind);
    qdri_facts_add_int(facts, who, "no_beta", desc->u.norm.no_beta);
    qdri_facts_add_int(facts, who, "one_plus", desc->u.norm.one_plus);
    qdri_facts_add_int(facts, who, "n_blocks", desc->u.norm.n_blocks);
}

/* ---- blocks ---- */

static int64_t count_blocks(const qdri_op_part *p) { return p->node->n_blocks ? p->node->n_blocks : 1; }

static const qdr_block *columns_of(const qdri_op_part *p) { return p->net->edges[p->node->in[0]].matrix.cols; }

/* This rank's columns of the first n blocks of the input. */
static int64_t columns_before(const qdri_op_part *p, int n)
{
    const qdr_axis axis = p->node->axis;
    qdr_block cols[QDR_MAX_BLOCKS] = {{0}};
    for (int i = 0; i < n; i++) cols[i] = columns_of(p)[i];
    return qdri_blocks_part(cols, p->net->position.size[axis], p->net->position.coordinate[axis]);
}

/* Columns that are normed together, in a kernel for them. */
typedef struct block {
    int number;
    int64_t first; /* of this rank's columns */
    qdri_kernel kernel;
    double elems, bytes;
} block;

static block block_of(const qdri_op_part *p, int number, qdri_kernel_kind kind)
{
    const int is_whole = p->node->n_blocks == 0;
    block b = {.number = number, .first = columns_before(p, number), .kernel = p->node->kernel};
    const int64_t n_cols = columns_before(p, is_whole ? QDR_MAX_BLOCKS : number + 1) - b.first;
    b.kernel.kind = kind;
    b.kernel.u.norm.n_rows = p->n_rows;
    b.kernel.u.norm.n_cols = n_cols;
    b.kernel.u.norm.n_features = is_whole ? qdri_blocks_width(columns_of(p)) : columns_of(p)[number].width;
    b.elems = (double)p->n_rows * (double)n_cols;
    b.bytes = b.elems * (double)qdr_dtype_bytes(p->net->opts.dtype);
    return b;
}

/* Columns of a matrix, from the first of the first row to the last of the last one. */
static qdri_ref columns_in(const qdri_op_part *p, qdri_ref matrix, int64_t first, int64_t n_cols)
{
    const size_t each = qdr_dtype_bytes(p->net->opts.dtype);
    const int64_t n = p->n_rows ? (p->n_rows - 1) * p->node->kernel.u.norm.stride + n_cols : 0;
    return qdri_slice(matrix, (size_t)first * each, (size_t)n * each);
}

static qdri_ref matrix_of(const qdri_op_part *p, const block *b, qdri_ref matrix)
{
    return columns_in(p, matrix, b->first, b->kernel.u.norm.n_cols);
}

static qdri_ref vector_of(const block *b, qdri_ref vector, size_t each)
{
    return qdri_slice(vector, (size_t)b->first * each, (size_t)b->kernel.u.norm.n_cols * each);
}

static qdri_ref parameter_of(const qdri_op_part *p, const block *b, int i)
{
    return vector_of(b, qdri_op_parameter(p, i), qdr_dtype_bytes(p->net->opts.dtype));
}

static qdri_ref gradient_of(const qdri_op_part *p, const block *b, int i)
{
    return vector_of(b, qdri_op_gradient(p, i), qdri_op_number_bytes(p));
}

/* As many numbers of each row, of all blocks. */
static qdri_ref numbers_of(const qdri_op_part *p, const block *b, qdri_ref numbers, int64_t n_per_row)
{
    const size_t bytes = (size_t)p->n_rows * (size_t)n_per_row * qdri_op_number_bytes(p);
    return qdri_slice(numbers, (size_t)b->number * bytes, bytes);
}

/* The columns behind the blocks that are normed. */
static void pass_on(const qdri_op_part *p, qdri_ref from, qdri_ref to)
{
    const int64_t stride = p->node->kernel.u.norm.stride, first = columns_before(p, p->node->n_blocks);
    const size_t each = qdr_dtype_bytes(p->net->opts.dtype), row_bytes = (size_t)(stride - first) * each;
    const qdri_kernel kernel = {.kind = QDRI_K_COPY_BLOCK,
                                .u.block = {.n_rows = p->n_rows,
                                            .row_bytes = row_bytes,
                                            .x_stride = (size_t)stride * each,
                                            .y_stride = (size_t)stride * each}};
    if (!p->node->overwrites_only) return;
    qdri_op_add_kernel(p, &kernel, (qdri_task_work){2 * (double)p->n_rows * (double)row_bytes, 0, 1, QDRI_COST_PLAIN},
                       &(qdri_refs){1, {columns_in(p, from, first, stride - first)}},
                       &(qdri_refs){1, {columns_in(p, to, first, stride - first)}}, 0);
}

/* ---- tasks ---- */

/* Moments of all ranks, or the sum of their squares. */
static void add_moments(const qdri_op_part *p, qdri_ref moments)
{
    const qdri_node *node = p->node;
    const int64_t n = count_blocks(p), each = n_moments(node);
    const int rank = is_rms(node) ? 0 : p->net->position.coordinate[node->axis];
    const size_t own_bytes = (size_t)p->n_rows * (size_t)(n * each) * qdri_op_number_bytes(p);
    const qdri_ref own = qdri_slice(moments, (size_t)rank * own_bytes, own_bytes);
    for (int i = 0; i < n; i++) {
        const block b = block_of(p, i, QDRI_K_NORM_MOMENTS);
        qdri_op_add_kernel(p, &b.kernel,
                           (qdri_task_work){b.bytes, (is_rms(node) ? 2 : 3) * b.elems, 1, QDRI_COST_FUSED},
                           &(qdri_refs){1, {matrix_of(p, &b, qdri_op_input(p, 0))}},
                           &(qdri_refs){1, {numbers_of(p, &b, own, each)}}, 0);
    }
    if (is_rms(node))
        qdri_op_reduce(p, node->axis, QDR_SUM, n, moments);
    else
        qdri_op_add_collective(p, node->axis, n * each,
                               &(qdri_task){.coll = QDR_ALL_GATHER,
                                            .n_writes = 1,
                                            .writes = {moments},
                                            .dtype = qdri_sum_type(p->net->opts.dtype)});
}

/* With the statistics that were saved. */
static void apply(const qdri_op_part *p, qdri_cost cost)
{
    const qdri_node *node = p->node;
    for (int i = 0; i < count_blocks(p); i++) {
        const block b = block_of(p, i, QDRI_K_NORM_APPLY);
        qdri_op_add_kernel(
            p, &b.kernel, (qdri_task_work){2 * b.bytes, (is_rms(node) ? 3 : 5) * b.elems, 1, cost},
            &(qdri_refs){4,
                         {matrix_of(p, &b, qdri_op_input(p, 0)), numbers_of(p, &b, qdri_op_saved(p), n_numbers(node)),
                          parameter_of(p, &b, 0), parameter_of(p, &b, 1)}},
            &(qdri_refs){1, {matrix_of(p, &b, qdri_op_output(p))}}, 0);
    }
    pass_on(p, qdri_op_input(p, 0), qdri_op_output(p));
}

static void forward(const qdri_op_part *p)
{
    const qdri_node *node = p->node;
    const int64_t n = count_blocks(p);
    const qdri_ref moments = qdri_op_numbers(p, 0, n * n_moments(node) * node->kernel.u.norm.n_parts);
    add_moments(p, moments);
    qdri_kernel merge = node->kernel;
    merge.kind = QDRI_K_NORM_MERGE;
    merge.u.norm.n_rows = n * p->n_rows;
    qdri_op_add_kernel(p, &merge, QDRI_NO_WORK, &(qdri_refs){1, {moments}}, &(qdri_refs){1, {qdri_op_saved(p)}}, 0);
    apply(p, QDRI_COST_AFTER_FUSED);
}

static void repeat(const qdri_op_part *p) { apply(p, QDRI_COST_PLAIN); }

static qdri_refs backward_reads(const qdri_op_part *p, const block *b, qdri_ref sums)
{
    const int64_t each = n_numbers(p->node);
    return (qdri_refs){5,
                       {matrix_of(p, b, p->dy), matrix_of(p, b, qdri_op_input(p, 0)),
                        numbers_of(p, b, qdri_op_saved(p), each), parameter_of(p, b, 0), numbers_of(p, b, sums, each)}};
}

static void backward(const qdri_op_part *p)
{
    const qdri_node *node = p->node;
    const int64_t n = count_blocks(p), each = n_numbers(node);
    const qdri_ref sums = qdri_op_numbers(p, 0, n * each);
    for (int i = 0; i < n; i++) {
        const block b = block_of(p, i, QDRI_K_NORM_SUMS);
        qdri_refs reads = backward_reads(p, &b, sums);
        reads.n = 4;
        qdri_op_add_kernel(
            p, &b.kernel, (qdri_task_work){2 * b.bytes, (is_rms(node) ? 4 : 6) * b.elems, 2, QDRI_COST_PLAIN}, &reads,
            &(qdri_refs){3, {numbers_of(p, &b, sums, each), gradient_of(p, &b, 0), gradient_of(p, &b, 1)}},
            qdri_op_adds(p, 0));
    }
    qdri_op_reduce(p, node->axis, QDR_SUM, n * each, sums);
    for (int i = 0; i < n; i++) {
        const block b = block_of(p, i, QDRI_K_NORM_BACKWARD);
        const qdri_refs reads = backward_reads(p, &b, sums);
        qdri_op_add_kernel(p, &b.kernel,
                           (qdri_task_work){3 * b.bytes, (is_rms(node) ? 6 : 8) * b.elems, 0, QDRI_COST_PLAIN}, &reads,
                           &(qdri_refs){1, {matrix_of(p, &b, qdri_op_input_gradient(p, 0))}}, p->accumulates & 1);
    }
    pass_on(p, p->dy, qdri_op_input_gradient(p, 0));
}

const qdri_op qdri_norm_op = {"norm", 1, add, describe, forward, backward, QDRI_NEEDS_INPUT | QDRI_NEEDS_SAVED, repeat};
