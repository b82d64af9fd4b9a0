/* SPDX-License-Identifier: Apache-2.0 */
/* A stack as data: its nodes, edges and parameters on one rank, their places in memory, and the resulting task lists.
 * No grid, device or rank is needed: a position on a grid is a pair of numbers for each axis. The runtime executes
 * these lists on memory of these sizes, the model prices them.
 *
 *   qdri_net_begin → qdri_net_add_… in order of execution → qdri_net_build → sizes and lists
 *
 * Names are not copied: none may be NULL, and they must live as long as the net. A function that adds something returns
 * its node (the last one), or fails: after an error the net is unchanged, and results are undefined. */
#ifndef QDRI_SCHEDULE_NET_H
#define QDRI_SCHEDULE_NET_H

#include "core/facts.h"
#include "quadrille/optim.h"
#include "schedule/linear.h"
#include "schedule/memory.h"
#include "schedule/waits.h"

enum { QDRI_MOST_NODE_PARAMETERS = 3 };

/* What AdamW keeps of a parameter: the moments, and, of BF16 and F16, a copy in F32. */
enum { QDRI_STATE_M, QDRI_STATE_V, QDRI_STATE_MASTER, QDRI_N_STATES };

/* A parameter: rows × columns, each split over at most one of x and y; matrices are flat over z. */
typedef struct qdri_parameter {
    int node, slot; /* node: its owner; slot: its number in that node */
    const char *what; /* "weight", "bias", … */
    qdr_block rows[QDR_MAX_BLOCKS], cols[QDR_MAX_BLOCKS]; /* global */
    int row_parts, row_part, col_parts, col_part; /* this rank's part of the rows and of the columns */
    int64_t n_rows, n_cols; /* of the local block */
    int64_t n_global;
    int flat_over_z; /* a matrix: this rank stores one of gz equal parts of the block */
    int is_vector; /* [n], without rows */
    int split_axes; /* sum of 1 << axis, of x, y and z: those over which ranks store different parts */
    qdr_storage storage; /* of the block; AUTO: not chosen yet, which schedules treat as OUT_IN */
    int64_t shard_elems; /* stored, with padding */
    int64_t shard_begin, n_elems; /* elements of the block that this rank stores */
    int64_t gradient_begin, gradient_elems; /* of the shard, with padding: those whose gradient this rank stores */
    int64_t state_begin, state_elems; /* of these, those that it updates */
    int n_copies, copy; /* ranks of d that update the same, and which of them this one is */
    int returns; /* a rank updates only a part of its shard, and others return the rest */
    int extra_sums; /* for small ones: sum of 1 << axis, of x and y, over which gradients are summed besides z and d */
    double initial; /* of an operation: what its elements begin as */
    int decay, counted, first_copy; /* first_copy: of all that hold a copy of what this rank updates */
    qdri_ref data, gradient;
    qdri_ref all_feedback; /* of a matrix; QDRI_NO_REF: none */
    qdri_ref feedback[QDRI_N_GRADIENT_SUMS]; /* parts of it, by sum of the gradient */
    qdri_ref state[QDRI_N_STATES]; /* of an optimizer, of what this rank updates; QDRI_NO_REF: none */
} qdri_parameter;

/* How many of n elements of a shard from `begin` on are not padding. */
int64_t qdri_parameter_elems(const qdri_parameter *p, int64_t begin, int64_t n);
/* Those that this rank updates. */
static inline int64_t qdri_parameter_updates(const qdri_parameter *p)
{
    return qdri_parameter_elems(p, p->state_begin, p->state_elems);
}

typedef struct qdri_edge {
    const char *name;
    qdr_matrix matrix;
    qdr_owned owned;
    qdr_dtype dtype;
    int with_gradient;
    int n_uses;
    int keeps_gradient; /* visible to the caller: has its own memory */
    int keeps_value; /* the caller has asked for it */
    /* Set by qdri_net_place(), see lives.c. Of nodes: numbers; -1: none. */
    int passes; /* its value is one of lists, and does not last from forward to backward */
    int maker, last_use; /* the node that makes it; -1: the caller does. The last that reads it */
    int read_from, read_to; /* whose backward reads it: the first that does, and the last, which is lower */
    int last_again; /* the last that reads it while values are made again */
    int is_needed; /* while its segment is chosen: it is read there */
    qdri_ref value, gradient; /* value: of one that passes QDRI_NO_REF, but while a forward list is built */
    qdri_ref d; /* while a backward pass is built: the location of the gradient, or QDRI_NO_REF */
} qdri_edge;

/* Rotary positions of attentions. */
typedef struct qdri_rotation {
    int64_t context, n_pairs;
    double magnitude;
    double *frequencies;
    qdri_ref table; /* for each row of a sequence, cosines and then sines of all pairs, in the type of sums */
} qdri_rotation;

/* Kinds of nodes, and the file of ops/ that has each; all but the first two are operations. */
#define QDRI_NODE_KINDS(X)                                                                                             \
    X(LINEAR, linear)                                                                                                  \
    X(EMBEDDING, embedding)                                                                                            \
    X(NORM, norm)                                                                                                      \
    X(ATTENTION, attention)                                                                                            \
    X(ACTIVATION, activation)                                                                                          \
    X(RESIDUAL, residual)                                                                                              \
    X(CROSS_ENTROPY, loss)                                                                                             \
    X(CALLER, caller)

typedef enum qdri_node_kind {
#define QDRI_NODE_KIND(kind, file) QDRI_NODE_##kind,
    QDRI_NODE_KINDS(QDRI_NODE_KIND)
#undef QDRI_NODE_KIND
        QDRI_N_NODE_KINDS
} qdri_node_kind;

/* A linear layer or an embedding. */
typedef struct qdri_layer {
    int weight, bias; /* indices of parameters; bias -1: none; embedding: bias is P */
    int shares_first, shares_last; /* tied W: this use's gradient is computed first, or last */
    qdri_layer_shape shape;
    qdri_ref gathered;
    int gathered_passes; /* gathered rows do not last: a product that is repeated gathers them for the backward, too */
    int panels; /* as requested for this layer; 0: the net's */
} qdri_layer;

/* Which key heads the attention on this rank needs, and where they are. */
typedef struct qdri_key_heads {
    int gathered; /* from all ranks of the axis; 0: each rank has the ones that its queries need */
    int64_t first_query, first_own, n_own; /* index of this rank's first query head, and of its first key head */
    int64_t n_all, group; /* total number of key heads, and the number of query heads per key head */
} qdri_key_heads;

typedef struct qdri_node {
    qdri_node_kind kind;
    const char *name;
    int n_in, in[QDR_MAX_OP_INPUTS];
    int out; /* edge; -1: none */
    int segment; /* neighbours of one number are repeated together, by QDR_RECOMPUTE_FULL; 0: this one never is */
    int again_at; /* it runs again right before the backward of this node; -1: never */
    /* For operations: */
    int passes_gradient; /* residual: the gradient of an input is that of the output, of the second
                          * one times the kernel's factor */
    int overwrites_only; /* backward cannot accumulate */
    int in_place; /* backward may write the input's gradient over the output's */
    int needs_all_rows; /* in one call, not part by part */
    int may_repeat; /* of the caller's: its forward may run again */
    int saved_passes; /* what it saves does not last: it is saved again when the node is repeated */
    int makes_scores; /* what QDR_RECOMPUTE_ATTENTION repeats */
    int parameter, n_parameters; /* norms: gamma, and beta if there are two */
    int n_blocks; /* of columns that a norm treats each by itself */
    size_t saved_bytes, work_bytes;
    qdri_ref saved;
    qdr_axis axis; /* that splits the columns of the first input, over which statistics are combined */
    qdri_kernel kernel; /* what its kernels have in common, of all rows */
    qdri_key_heads keys; /* attention */
    int rotation; /* attention: 1 + its number; 0: none */
    double flops[2], bytes[2]; /* of the caller's operation, forward and backward */
    qdri_layer layer;
} qdri_node;

enum { QDRI_CALLER_X = 0, QDRI_CALLER_Y, QDRI_CALLER_DX, QDRI_CALLER_DY, QDRI_CALLER_STATE, QDRI_N_CALLER };

typedef struct qdri_net {
    qdri_position position;
    qdr_stack_opts opts; /* with defaults filled in; prefetch: set by qdri_net_build() */
    qdri_coding coding; /* set by qdri_net_set_coding(); zeros: nothing is coded */
    int n_codings; /* that have been set */
    qdr_dtype grad_dtype;
    int64_t cell_rows;
    qdri_edge *edges;
    int n_edges, edge_capacity;
    qdri_node *nodes;
    int n_nodes, node_capacity;
    qdri_parameter *parameters;
    int n_parameters, parameter_capacity;
    qdri_rotation *rotations;
    int n_rotations, rotation_capacity;
    int segment, n_segments; /* to which nodes belong that are added; 0: to none */
    int64_t segment_layer; /* of a network, see qdri_network_enter(); -1: none */
    qdri_buffers buffers; /* region_bytes: set by qdri_net_build() */
    qdri_hazards hazards; /* of the list whose waits were set last */
    qdri_ref workspace; /* for the values of any list that has been made */
    int most_tasks; /* of any list of a net that is built */
    qdri_ref caller[QDRI_N_CALLER]; /* x, y, dx, dy of single-layer calls; the optimizer's memory */
    size_t state_bytes; /* of that: the numbers of a step, then the state of each parameter */
    int shares_parameters; /* those of another net: forward only, without gradients */
    qdri_ref op_work, small_gradients;
    qdri_ref loss; /* {sum, rows} for each part of the rows, and space to add them up over ranks */
    int is_placed; /* qdri_net_place() */
    int n_loss_parts; /* number of parts of this rank's rows */
    int64_t n_small, small_begin[5]; /* classes: no further sum, over x, over x and y, over y; then the end */
} qdri_net;

/* ---- describing: net.c, ops/ ---- */

/* Begins a description. *net is zeroed, or an older net, whose lists are reused. */
QDR_NODISCARD qdr_status qdri_net_begin(qdri_net *net, const qdri_position *position, const qdr_stack_opts *opts);
void qdri_net_free(qdri_net *net);

/* Like qdr_stack_add_…(); no argument may be NULL. */
QDR_NODISCARD qdr_status qdri_net_add_input(qdri_net *net, const char *name, const qdr_edge_desc *desc,
                                            int with_gradient, qdr_edge *edge);
QDR_NODISCARD qdr_status qdri_net_add_tokens(qdri_net *net, const char *name, qdr_edge *edge);

/* A node, as it is described: its inputs, and what its kind needs to know. */
typedef struct qdri_node_desc {
    qdri_node_kind kind;
    const char *name;
    qdr_edge in[QDR_MAX_OP_INPUTS];
    union {
        struct {
            qdr_linear_desc desc; /* its own name is not read */
            int tied_to; /* 1 + the node of an embedding, whose E is W: only the layout of `desc` is read; 0: none */
        } linear;
        qdr_embedding_desc embedding;
        qdr_norm_desc norm;
        qdr_attention_desc attention;
        qdr_activation_desc activation; /* its own name is not read */
        qdr_op_desc caller; /* its name and functions are not read */
        qdr_residual_desc residual; /* its own name is not read, nor that of the next */
        qdr_cross_entropy_desc loss;
    } u;
} qdri_node_desc;

/* Adds a node and the edge that it makes, or, of a loss, reads. */
QDR_NODISCARD qdr_status qdri_net_add(qdri_net *net, const qdri_node_desc *desc, qdr_edge *edge);
/* The kind as users are told it, such as "attention". */
const char *qdri_node_kind_name(const qdri_node_desc *desc);
/* Adds what ranks compare of a node that the net has added. who: what the facts are about */
void qdri_node_describe(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc);
/* What is added from here on is a segment, until the next call; or belongs to none. */
void qdri_net_begin_segment(qdri_net *net);
void qdri_net_end_segment(qdri_net *net);
/* Sets how a layer's W is stored; call it before qdri_net_build(). */
void qdri_net_set_storage(qdri_net *net, int node, qdr_storage storage);
/* Sets which of the device's algorithms its three products use; call it before qdri_net_build(). */
void qdri_net_set_algorithms(qdri_net *net, int node, const int algorithms[QDRI_N_PRODUCTS]);

/* Sets the codecs of its collectives; call it before qdri_net_place() and qdri_net_build(). */
void qdri_net_set_coding(qdri_net *net, const qdri_coding *coding);

/* Makes the net use the parameters of `owner`, a net that is built, with the same storage of each W; call it before
 * qdri_net_build().
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
/* Whether its rows are divided over a group of more than one rank. */
int qdri_edge_scattered(const qdri_net *net, const qdri_edge *edge);
static inline int qdri_node_is_layer(const qdri_node *node)
{
    return node->kind == QDRI_NODE_LINEAR || node->kind == QDRI_NODE_EMBEDDING;
}
/* A layer's extents on the rank where they are largest; equal on all ranks. */
void qdri_layer_largest(const qdri_net *net, const qdri_layer *layer, int64_t *m, int64_t *n, int64_t *k);
/* The loss; NULL: there is none. */
const qdri_node *qdri_net_find_loss(const qdri_net *net);
/* Whether it can be run as a whole: it has its own activations, and each of them but the last is read at least once. */
int qdri_net_runs_whole(const qdri_net *net);
/* The number of parts into which the stack's rows are divided, if a cell has enough rows; equal on all ranks. */
int qdri_net_batch_parts(const qdri_net *net);
/* Whether activations are summed over several ranks; whether rows are scattered, which cannot be divided into parts. */
int qdri_net_sums(const qdri_net *net);
int qdri_net_scatters(const qdri_net *net);
/* Sets the number of row panels of all layers that do not request their own, and of the batch's parts, before lists are
 * built. Ranks that exchange rows must divide them in the same way. */
void qdri_net_set_panels(qdri_net *net, int panels, int batch_parts);

/* Writes the table of a rotation. */
void qdri_rotation_fill(const qdri_rotation *rotation, qdr_dtype sum_type, void *table);

/* The rectangles of the whole parameter that this rank stores; those that it updates, whose offsets begin at
 * state_begin. @return their number */
int qdri_parameter_runs(const qdri_parameter *p, qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS]);
int qdri_parameter_state_runs(const qdri_parameter *p, qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS]);

/* ---- memory and task lists: net_build.c, net_schedules.c ---- */

/* How gradients of parameters are added. Index of a backward schedule = 2 · mode + deferred. */
typedef enum qdri_gradient_mode {
    QDRI_GRADIENT_OVERWRITE = 0,
    QDRI_GRADIENT_ADD_TO_PARTIAL, /* existing values still lack sums: every copy adds */
    QDRI_GRADIENT_ADD_TO_COMPLETE /* existing values are complete: one copy adds, the others overwrite */
} qdri_gradient_mode;
#define QDRI_N_BACKWARDS 6

/* All lists of a net; zeroed, or older ones, whose memory is reused. */
typedef struct qdri_net_lists {
    qdri_schedule forward, backward[QDRI_N_BACKWARDS]; /* empty if the stack cannot be run as a whole */
    qdri_schedule first_forward; /* returns updated parameters; empty without levels, too */
    qdri_schedule returns; /* does nothing else; empty without levels */
    qdri_schedule loss; /* empty without a loss */
    struct qdri_layer_lists **layers; /* by node: of layers that have been run alone; NULL: none yet */
    int n_layers;
} qdri_net_lists;
void qdri_net_lists_free(qdri_net_lists *lists);

/* Ends the description, without building lists: they can then be built one by one, for their tasks alone. A second call
 * does nothing. */
QDR_NODISCARD qdr_status qdri_net_place(qdri_net *net);
/* Takes back what qdri_net_place() did, for other options. */
void qdri_net_unplace(qdri_net *net);
/* Sets how long values last, in edges and nodes, by the options: qdri_net_place() does so, and models, after it, to see
 * what other options would repeat.
 * @retval QDR_ERR_ARGUMENT  segments are to be repeated, and there is nothing that can be */
QDR_NODISCARD qdr_status qdri_net_choose_lives(qdri_net *net);
/* Ends the description: assigns everything a place in a region, builds all lists, and thereby determines the sizes of
 * all regions. */
QDR_NODISCARD qdr_status qdri_net_build(qdri_net *net, qdri_net_lists *lists);
/* Sets other codecs for a net that is built: in its lists, and in those that it makes later.
 * @retval QDR_ERR_STATE  a codec has feedback, for which the net was built without memory; nothing has changed */
QDR_NODISCARD qdr_status qdri_net_change_coding(qdri_net *net, qdri_net_lists *lists, const qdri_coding *coding);
/* One list, exactly as qdri_net_build() makes it. returns: it begins with the returns of parameters that have been
 * updated in parts. */
QDR_NODISCARD qdr_status qdri_net_forward(qdri_net *net, int returns, qdri_schedule *schedule);
QDR_NODISCARD qdr_status qdri_net_backward(qdri_net *net, qdri_gradient_mode mode, int deferred,
                                           qdri_schedule *schedule);
/* The tasks alone, whose values have no places and which do not wait: enough to add up what they do. */
QDR_NODISCARD qdr_status qdri_net_forward_tasks(qdri_net *net, int returns, qdri_schedule *schedule);
QDR_NODISCARD qdr_status qdri_net_backward_tasks(qdri_net *net, qdri_gradient_mode mode, int deferred,
                                                 qdri_schedule *schedule);
/* Returns parameters and does nothing else: those of all layers, or the W of one; node -1: all. */
QDR_NODISCARD qdr_status qdri_net_returns(qdri_net *net, int node, qdri_schedule *schedule);
/* What ends a step, on the compute stream: net_step.c. The sums of the loss and the numbers of valid rows, of each part
 * of the rows in turn, of all ranks; they are where qdri_net_loss_sums() says. */
QDR_NODISCARD qdr_status qdri_net_loss(qdri_net *net, qdri_schedule *schedule);
qdri_ref qdri_net_loss_sums(const qdri_net *net);
/* Σg² of the whole model, at the beginning of the optimizer's memory, which may end there. */
QDR_NODISCARD qdr_status qdri_net_norm(qdri_net *net, qdri_schedule *schedule);
/* A step of AdamW, with the norm; the tasks alone, which do not wait. opts: with defaults filled in */
QDR_NODISCARD qdr_status qdri_net_adamw(qdri_net *net, const qdr_adamw_opts *opts, qdri_schedule *schedule);
QDR_NODISCARD qdr_status qdri_net_adamw_tasks(const qdri_net *net, const qdr_adamw_opts *opts, qdri_schedule *schedule);
/* Two finished lists in one, which waits only for what its tasks need. */
QDR_NODISCARD qdr_status qdri_net_join(qdri_net *net, const qdri_schedule *pass, const qdri_schedule *step,
                                       qdri_schedule *both);
/* A linear layer alone, on the caller's memory. flags: QDR_DEFER_SYNC, QDR_DX_ACCUMULATE, QDR_NO_DX. */
QDR_NODISCARD qdr_status qdri_net_layer_forward(qdri_net *net, int node, int accumulate_y, qdri_schedule *schedule);
QDR_NODISCARD qdr_status qdri_net_layer_backward(qdri_net *net, int node, int flags, qdri_gradient_mode mode,
                                                 qdri_schedule *schedule);
/* The same of a net that is built, made at the first call. */
QDR_NODISCARD qdr_status qdri_net_list_layer_forward(qdri_net *net, qdri_net_lists *lists, int node, int accumulate_y,
                                                     const qdri_schedule **list);
QDR_NODISCARD qdr_status qdri_net_list_layer_backward(qdri_net *net, qdri_net_lists *lists, int node, int flags,
                                                      qdri_gradient_mode mode, const qdri_schedule **list);
QDR_NODISCARD qdr_status qdri_net_list_layer_returns(qdri_net *net, qdri_net_lists *lists, int node,
                                                     const qdri_schedule **list);

#endif
