/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a stack: edges, nodes, parameters, schedules. */
#ifndef QDRI_LINEAR_INTERNAL_H
#define QDRI_LINEAR_INTERNAL_H

#include "core/schedule_linear.h"
#include "grid/internal.h"
#include "quadrille/coll.h"
#include "quadrille/linear.h"
#include "quadrille/ops.h"

/* A parameter: rows × columns, each split over at most one of x and y; matrices are flat over z. */
typedef struct qdri_parameter {
    char *name;
    qdr_block rows[QDR_MAX_BLOCKS], cols[QDR_MAX_BLOCKS]; /* global */
    int row_parts, row_part, col_parts, col_part; /* this rank's part of either */
    int64_t n_rows, n_cols; /* of the local block */
    int64_t n_global;
    int flat_over_z; /* a matrix: this rank stores one of gz equal parts of the block */
    qdr_storage storage; /* of the block; AUTO: not chosen yet */
    int64_t shard_elems; /* stored, with padding */
    int64_t shard_begin, n_elems; /* elements of the block that this rank stores */
    int extra_sum; /* small ones: 1 + axis over which gradients are summed besides z and d; 0: none
                    */
    int decay, counted, first_copy;
    int deferred; /* the gradient lacks sums that QDR_DEFER_SYNC left out */
    qdri_ref data, gradient;
} qdri_parameter;

typedef struct qdri_edge {
    char *name;
    qdr_matrix matrix;
    qdr_owned owned;
    qdr_dtype dtype;
    int with_gradient;
    int n_uses;
    int keeps_gradient; /* the caller sees it: memory of its own */
    qdri_ref value, gradient;
    qdri_ref d; /* while a backward is built: where the gradient is, or QDRI_NO_REF */
} qdri_edge;

typedef enum qdri_node_kind { QDRI_NODE_LINEAR, QDRI_NODE_EMBEDDING, QDRI_NODE_OP } qdri_node_kind;

/* One call of an operation: the task says which rows (m of them, from k on), where gradients lie,
 * and which inputs accumulate (bit i; bit QDR_MAX_OP_INPUTS: the parameters' gradients). */
typedef struct qdri_op_run {
    qdr_stack *stack;
    const struct qdri_node *node;
    const qdri_task *task;
    qdr_stream *stream;
} qdri_op_run;
typedef qdr_status (*qdri_op_run_fn)(const qdri_op_run *run);

/* Which key heads attention needs on this rank, and where they are. */
typedef struct qdri_key_heads {
    int gathered; /* from all ranks of the axis; 0: each rank has those that its queries need */
    qdr_axis axis;
    int64_t first_query, first_own,
        n_own; /* this rank's query heads begin here, and its key heads */
    int64_t n_all, group; /* key heads in all, and the query heads that each serves */
} qdri_key_heads;

typedef struct qdri_node {
    qdri_node_kind kind;
    char *name;
    int n_in, in[QDR_MAX_OP_INPUTS];
    int out; /* edge; -1: none */
    qdr_linear *layer;
    /* Operations: */
    qdri_op_run_fn forward, backward;
    int passes_gradient; /* residual: the gradient of every input is that of the output */
    int overwrites_only; /* backward cannot accumulate */
    int needs_all_rows; /* in one call */
    int parameter, n_parameters;
    size_t saved_bytes, work_bytes;
    qdri_ref saved;
    qdr_op_cost cost;
    union {
        qdr_layer_norm norm;
        struct {
            qdr_attention local; /* what the kernel sees, gathered heads among it */
            qdri_key_heads keys;
        } attention;
        qdr_cross_entropy cross_entropy;
        qdr_op_desc user;
    } u;
} qdri_node;

struct qdr_linear {
    qdr_stack *stack;
    int node;
    int transposed, drop_gathered;
    int weight, bias; /* indices of parameters; bias -1: none; embedding: bias is P */
    int shares_first, shares_last; /* a tied W: this use's gradient comes first, or last */
    qdri_layer_shape shape;
    qdr_storage_reason storage_reason; /* of shape.storage */
    double storage_secs[2][QDRI_N_PRODUCTS]; /* as in qdr_linear_storage */
    qdri_ref gathered;
    int64_t vocab_begin, vocab_end; /* embedding */
};

/* How gradients of parameters are added: index of a backward schedule = 2 · mode + deferred. */
typedef enum qdri_gradient_mode {
    QDRI_GRADIENT_OVERWRITE = 0,
    QDRI_GRADIENT_ADD_TO_PARTIAL, /* what is there still lacks sums: every copy adds */
    QDRI_GRADIENT_ADD_TO_COMPLETE /* what is there is complete: one copy adds, the others overwrite
                                   */
} qdri_gradient_mode;
#define QDRI_N_BACKWARDS 6

struct qdr_stack {
    qdr_grid *grid;
    qdr_stack_opts opts;
    qdr_dtype grad_dtype;
    qdri_place place;
    int64_t cell_rows;
    int built, bound;
    qdri_edge *edges;
    int n_edges, edge_capacity;
    qdri_node *nodes;
    int n_nodes, node_capacity;
    qdri_parameter *parameters;
    int n_parameters, parameter_capacity;
    qdri_buffers buffers;
    qdri_ref caller[4]; /* x, y, dx, dy of single-layer calls */
    void *caller_memory[4];
    qdri_ref op_work, small_gradients;
    qdri_ref loss; /* {sum, rows} of each part of the rows, and room to add them up over ranks */
    int n_loss_parts; /* parts of this rank's rows */
    int64_t n_small, small_begin[3], small_end[3]; /* classes: no further sum, over x, over y */
    qdri_schedule forward, backward[QDRI_N_BACKWARDS], single;
    void *memory[QDRI_N_REGIONS]; /* where the regions lie */
    void *owned[QDRI_N_REGIONS]; /* those that the stack allocated */
    size_t staging_bytes[QDR_N_CHANNELS];
    qdr_event **events; /* of signalling tasks */
    int n_events;
    qdr_event *start, *done[QDRI_N_STREAMS];
    double loss_scale;
};

enum { QDRI_CALLER_X = 0, QDRI_CALLER_Y, QDRI_CALLER_DX, QDRI_CALLER_DY };

/* stack.c */
QDR_NODISCARD qdr_status qdri_stack_open(const qdr_stack *stack,
                                         const char *who); /* still being described */
QDR_NODISCARD qdr_status qdri_stack_ready(const qdr_stack *stack,
                                          const char *who); /* built and bound */
QDR_NODISCARD qdr_status qdri_node_add(qdr_stack *stack, const char *name, qdri_node_kind kind,
                                       qdri_node **node);
void qdri_node_drop(qdr_stack *stack); /* takes the last one back */
/* Rows of a (z, d) cell. */
int64_t qdri_cell_rows(const qdri_place *place, int64_t n_rows, int64_t unit);

/* edges.c */
QDR_NODISCARD qdr_status qdri_edge_check(const qdr_stack *stack, qdr_edge edge, const char *who);
QDR_NODISCARD qdr_status qdri_edge_add(qdr_stack *stack, const char *name, const qdr_matrix *matrix,
                                       qdr_dtype dtype, qdr_edge *edge);
/* The matrix of an edge whose columns are split over col_axis (x or y). */
qdr_matrix qdri_edge_matrix(const qdr_stack *stack, const qdr_block cols[QDR_MAX_BLOCKS],
                            qdr_axis col_axis, qdr_layout layout, int64_t scatter_unit);
int64_t qdri_edge_elems(const qdri_edge *edge);
size_t qdri_edge_bytes(const qdri_edge *edge);
/* Rows [begin, end) of `ref`, a value or gradient of the edge. */
qdri_ref qdri_edge_rows(const qdri_edge *edge, qdri_ref ref, int64_t begin, int64_t end);
/* Rows are in parts over a group of more than one. */
int qdri_edge_scattered(const qdr_stack *stack, const qdri_edge *edge);
/* The blocks of a node's output that is like its input. */
static inline qdr_axis qdri_other_axis(qdr_axis axis) { return axis == QDR_X ? QDR_Y : QDR_X; }

/* parameters.c */
/* What a parameter is, before this rank's share is known. */
typedef struct qdri_parameter_desc {
    const char *owner, *what;
    const qdr_block *rows, *cols; /* NULL: one row */
    int row_split, col_split; /* 1 + axis; 0: whole */
    int flat_over_z;
    int extra_sum; /* 1 + axis; 0: none */
} qdri_parameter_desc;
QDR_NODISCARD qdr_status qdri_parameter_add(qdr_stack *stack, const qdri_parameter_desc *desc,
                                            int *index);
/* Bytes of the largest whole W of any rank; the same on all ranks. */
size_t qdri_largest_gathered_bytes(const qdr_stack *stack);
/* Gives all parameters their buffers. */
void qdri_parameters_place(qdr_stack *stack);
void qdri_parameters_free(qdr_stack *stack);
QDR_NODISCARD qdr_status qdri_parameter_init(qdr_stack *stack, int index, uint64_t seed,
                                             double stddev);
QDR_NODISCARD qdr_status qdri_parameter_fill(qdr_stack *stack, int index, double value);

/* schedules.c */
/* State that an operation keeps of rows [begin, end). */
qdri_ref qdri_saved_rows(const qdr_stack *stack, const qdri_node *node, int64_t begin, int64_t end);
/* The schedule of one layer's forward (accumulate_y) or backward (flags) on the caller's memory,
 * into stack->single. */
QDR_NODISCARD qdr_status qdri_build_layer_forward(qdr_linear *layer, int accumulate_y);
QDR_NODISCARD qdr_status qdri_build_layer_backward(qdr_linear *layer, int flags,
                                                   qdri_gradient_mode mode);
QDR_NODISCARD qdr_status qdri_build_forward(qdr_stack *stack);
QDR_NODISCARD qdr_status qdri_build_backward(qdr_stack *stack, qdri_gradient_mode mode,
                                             int deferred);
void qdri_plan_layer_weight(qdri_builder *builder, const qdr_linear *layer);

/* panels.c */
/* Into how many parts the rows of the stack are cut, where a cell has enough of them; equal on all
 * ranks. */
int qdri_stack_batch_parts(const qdr_stack *stack);
/* Row panels of the layer's products: `wanted`, or 0: as the stack's options say. */
void qdri_layer_set_panels(qdr_linear *layer, int wanted);

/* storage.c */
void qdri_layer_set_storage(qdr_linear *layer, qdr_storage storage, qdr_storage_reason reason);
/* The layer's sizes on the rank that has most; equal on all ranks. */
void qdri_layer_largest(const qdr_linear *layer, int64_t *m, int64_t *n, int64_t *k);
/* Writes how each W is stored, one layer a line. */
void qdri_storage_print(const qdr_stack *stack, FILE *file);

/* tune.c */
/* Chooses the storage of each W whose layer asked for none. Collective, agrees. */
QDR_NODISCARD qdr_status qdri_stack_choose_storage(qdr_stack *stack);

/* execute.c */
void *qdri_stack_pointer(const qdr_stack *stack, qdri_ref ref);
/* The collective or product of a task, without its memory. */
qdri_coll qdri_task_coll(const qdri_task *task);
qdri_gemm qdri_task_gemm(const qdri_task *task);
/* Passes `status` on. An error after the arguments were found right would leave the other ranks
 * waiting for tasks that this rank never enqueues: it poisons the device, and so ends the world. */
qdr_status qdri_give_up(const qdr_stack *stack, qdr_status status);
QDR_NODISCARD qdr_status qdri_execute(qdr_stack *stack, const qdri_schedule *schedule,
                                      qdr_stream *stream);

#endif
