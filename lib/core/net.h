/* SPDX-License-Identifier: Apache-2.0 */
/* A stack as data: its nodes, edges and parameters on one rank, their places in memory, and the resulting task lists.
 * No grid, device or rank is needed: a place on a grid is a pair of numbers for each axis. The runtime executes these
 * lists on memory of these sizes, the model prices them.
 *
 *   qdri_net_begin → qdri_net_add_… in order of execution → qdri_net_build → sizes and lists
 *
 * Names are borrowed: none is NULL, and they must live as long as the net. A function that adds gives its node (the
 * last one) or nothing: after an error the net is unchanged, and results are undefined. */
#ifndef QDRI_CORE_NET_H
#define QDRI_CORE_NET_H

#include "core/key_heads.h"
#include "core/schedule_linear.h"

/* A parameter: rows × columns, each split over at most one of x and y; matrices are flat over z. */
typedef struct qdri_parameter {
    int node, slot; /* whose it is, and which of that node's: 0 or 1 */
    const char *what; /* "weight", "bias", … */
    qdr_block rows[QDR_MAX_BLOCKS], cols[QDR_MAX_BLOCKS]; /* global */
    int row_parts, row_part, col_parts, col_part; /* this rank's part of either */
    int64_t n_rows, n_cols; /* of the local block */
    int64_t n_global;
    int flat_over_z; /* a matrix: this rank stores one of gz equal parts of the block */
    qdr_storage storage; /* of the block; AUTO: not chosen yet, which schedules take for OUT_IN */
    int64_t shard_elems; /* stored, with padding */
    int64_t shard_begin, n_elems; /* elements of the block that this rank stores */
    int extra_sum; /* small ones: 1 + axis over which gradients are summed in addition to z and d; 0: none */
    int decay, counted, first_copy;
    qdri_ref data, gradient;
} qdri_parameter;

typedef struct qdri_edge {
    const char *name;
    qdr_matrix matrix;
    qdr_owned owned;
    qdr_dtype dtype;
    int with_gradient;
    int n_uses;
    int keeps_gradient; /* the caller sees it: memory of its own */
    qdri_ref value, gradient;
    qdri_ref d; /* while a backward is built: where the gradient is, or QDRI_NO_REF */
} qdri_edge;

typedef enum qdri_node_kind {
    QDRI_NODE_LINEAR,
    QDRI_NODE_EMBEDDING,
    QDRI_NODE_NORM, /* this one and the following ones: operations */
    QDRI_NODE_ATTENTION,
    QDRI_NODE_GELU,
    QDRI_NODE_RESIDUAL,
    QDRI_NODE_CROSS_ENTROPY,
    QDRI_NODE_USER,
    QDRI_N_NODE_KINDS
} qdri_node_kind;

/* A linear layer or an embedding. */
typedef struct qdri_layer {
    int weight, bias; /* indices of parameters; bias -1: none; embedding: bias is P */
    int shares_first, shares_last; /* a tied W: this use's gradient comes first, or last */
    qdri_layer_shape shape;
    qdri_ref gathered;
    int64_t vocab_begin, vocab_end; /* embedding */
} qdri_layer;

typedef struct qdri_node {
    qdri_node_kind kind;
    const char *name;
    int n_in, in[QDR_MAX_OP_INPUTS];
    int out; /* edge; -1: none */
    /* Operations: */
    int passes_gradient; /* residual: the gradient of every input is that of the output */
    int overwrites_only; /* backward cannot accumulate */
    int in_place; /* backward may write the input's gradient over the output's */
    int needs_all_rows; /* in one call */
    int parameter, n_parameters; /* norms */
    size_t saved_bytes, work_bytes;
    qdri_ref saved;
    qdr_op_cost cost;
    union {
        qdri_layer layer;
        qdr_layer_norm norm;
        struct {
            qdr_attention local; /* what the kernel sees, gathered heads among it */
            qdri_key_heads keys;
        } attention;
        qdr_cross_entropy cross_entropy;
    } u;
} qdri_node;

typedef struct qdri_net {
    qdri_place place;
    qdr_stack_opts opts; /* with the defaults filled in; prefetch: known after qdri_net_build() */
    int node_members[QDR_N_AXES];
    qdr_dtype grad_dtype;
    int64_t cell_rows;
    qdri_edge *edges;
    int n_edges, edge_capacity;
    qdri_node *nodes;
    int n_nodes, node_capacity;
    qdri_parameter *parameters;
    int n_parameters, parameter_capacity;
    qdri_buffers buffers; /* region_bytes: known after qdri_net_build() */
    qdri_hazards hazards; /* of the list that is being made */
    qdri_ref caller[4]; /* x, y, dx, dy of single-layer calls */
    int shares_parameters; /* another net's: only forward, without gradients */
    qdri_ref op_work, small_gradients;
    qdri_ref loss; /* {sum, rows} of each part of the rows, and room to add them up over ranks */
    int n_loss_parts; /* parts of this rank's rows */
    int64_t n_small, small_begin[3], small_end[3]; /* classes: no further sum, over x, over y */
} qdri_net;

enum { QDRI_CALLER_X = 0, QDRI_CALLER_Y, QDRI_CALLER_DX, QDRI_CALLER_DY };

/* ---- describing: net.c, net_layers.c, net_operations.c ---- */

/* Begins a description. *net is zero, or an older net, whose lists are used again. node_members[axis]: of the axis'
 * groups that span nodes, how many members are on the same one; 0: none spans nodes (for panels that cost decides).
 * NULL: none of any axis. */
QDR_NODISCARD qdr_status qdri_net_begin(qdri_net *net, const qdri_place *place, const int node_members[QDR_N_AXES],
                                        const qdr_stack_opts *opts);
void qdri_net_free(qdri_net *net);

/* As qdr_stack_add_…(); nothing may be NULL. */
QDR_NODISCARD qdr_status qdri_net_add_input(qdri_net *net, const char *name, const qdr_edge_desc *desc,
                                            int with_gradient, qdr_edge *edge);
QDR_NODISCARD qdr_status qdri_net_add_tokens(qdri_net *net, const char *name, qdr_edge *edge);
QDR_NODISCARD qdr_status qdri_net_add_linear(qdri_net *net, const qdr_linear_desc *desc, qdr_edge in, qdr_edge *out);
QDR_NODISCARD qdr_status qdri_net_add_embedding(qdri_net *net, const qdr_embedding_desc *desc, qdr_edge tokens,
                                                qdr_edge *out);
/* table: the embedding's node; others are refused. */
QDR_NODISCARD qdr_status qdri_net_add_tied_head(qdri_net *net, const char *name, int table, qdr_layout out_layout,
                                                qdr_edge in, qdr_edge *out);
QDR_NODISCARD qdr_status qdri_net_add_layer_norm(qdri_net *net, const char *name, double epsilon, qdr_edge in,
                                                 qdr_edge *out);
QDR_NODISCARD qdr_status qdri_net_add_attention(qdri_net *net, const char *name, int64_t head_size, int64_t context,
                                                qdr_edge in, qdr_edge *out);
QDR_NODISCARD qdr_status qdri_net_add_gelu(qdri_net *net, const char *name, qdr_edge in, qdr_edge *out);
QDR_NODISCARD qdr_status qdri_net_add_residual(qdri_net *net, const char *name, qdr_edge a, qdr_edge b, qdr_edge *out);
QDR_NODISCARD qdr_status qdri_net_add_cross_entropy(qdri_net *net, const char *name, qdr_edge logits,
                                                    qdr_edge *targets);
/* What the operation is and costs; its functions are not looked at. */
QDR_NODISCARD qdr_status qdri_net_add_op(qdri_net *net, const qdr_op_desc *desc, qdr_edge *out);
/* How a layer's W is stored; call it before qdri_net_build(). */
void qdri_net_set_storage(qdri_net *net, int node, qdr_storage storage);
/* Which of the device's ways its three products take; before qdri_net_build(). */
void qdri_net_set_algorithms(qdri_net *net, int node, const int algorithms[QDRI_N_PRODUCTS]);

/* Makes the parameters those of `owner`, a net that is built, and stores each W as it does; before qdri_net_build().
 * @retval QDR_ERR_SHAPE, QDR_ERR_DTYPE  they differ; nothing has changed */
QDR_NODISCARD qdr_status qdri_net_share(qdri_net *net, const qdri_net *owner);

/* ---- what was described ---- */

QDR_NODISCARD qdr_status qdri_edge_check(const qdri_net *net, qdr_edge edge, const char *who);
static inline int64_t qdri_edge_elems(const qdri_edge *edge) { return edge->owned.n_rows * edge->owned.n_cols; }
static inline size_t qdri_edge_bytes(const qdri_edge *edge)
{
    return (size_t)qdri_edge_elems(edge) * qdr_dtype_bytes(edge->dtype);
}
/* Rows [begin, end) of `ref`, a value or gradient of the edge. */
qdri_ref qdri_edge_rows(const qdri_edge *edge, qdri_ref ref, int64_t begin, int64_t end);
/* Rows are in parts over a group of more than one. */
int qdri_edge_scattered(const qdri_net *net, const qdri_edge *edge);
static inline int qdri_node_is_layer(const qdri_node *node)
{
    return node->kind == QDRI_NODE_LINEAR || node->kind == QDRI_NODE_EMBEDDING;
}
/* State that an operation keeps of rows [begin, end). */
qdri_ref qdri_saved_rows(const qdri_net *net, const qdri_node *node, int64_t begin, int64_t end);
/* A layer's sizes on the rank that has most; equal on all ranks. */
void qdri_layer_largest(const qdri_net *net, const qdri_layer *layer, int64_t *m, int64_t *n, int64_t *k);
/* Into how many parts the rows of the stack are cut, where a cell has enough of them; equal on all ranks. */
int qdri_net_batch_parts(const qdri_net *net);

/* The rectangles of the whole parameter that this rank stores. @return how many */
int qdri_parameter_runs(const qdri_parameter *p, qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS]);

/* ---- memory and task lists: net_build.c, net_schedules.c ---- */

/* How gradients of parameters are added: index of a backward schedule = 2 · mode + deferred. */
typedef enum qdri_gradient_mode {
    QDRI_GRADIENT_OVERWRITE = 0,
    QDRI_GRADIENT_ADD_TO_PARTIAL, /* what is there still lacks sums: every copy adds */
    QDRI_GRADIENT_ADD_TO_COMPLETE /* what is there is complete: one copy adds, the others overwrite */
} qdri_gradient_mode;
#define QDRI_N_BACKWARDS 6

/* All lists of a net; zero, or older ones, whose memory is used again. */
typedef struct qdri_net_lists {
    qdri_schedule forward, backward[QDRI_N_BACKWARDS]; /* empty where the stack cannot run whole */
    qdri_schedule single; /* the last single-layer call's */
} qdri_net_lists;
void qdri_net_lists_free(qdri_net_lists *lists);

/* Ends the description: gives everything its place in a region, makes all lists, and with them the sizes of all
 * regions. */
QDR_NODISCARD qdr_status qdri_net_build(qdri_net *net, qdri_net_lists *lists);
/* One list, anew, as qdri_net_build() made it. */
QDR_NODISCARD qdr_status qdri_net_forward(qdri_net *net, qdri_schedule *schedule);
QDR_NODISCARD qdr_status qdri_net_backward(qdri_net *net, qdri_gradient_mode mode, int deferred,
                                           qdri_schedule *schedule);
/* A linear layer alone, on the caller's memory. flags: QDR_DEFER_SYNC, QDR_DX_ACCUMULATE, QDR_NO_DX. */
QDR_NODISCARD qdr_status qdri_net_layer_forward(qdri_net *net, int node, int accumulate_y, qdri_schedule *schedule);
QDR_NODISCARD qdr_status qdri_net_layer_backward(qdri_net *net, int node, int flags, qdri_gradient_mode mode,
                                                 qdri_schedule *schedule);

#endif
