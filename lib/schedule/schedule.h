/* SPDX-License-Identifier: Apache-2.0 */
/* The schedule: lists of tasks {kind, stream, dependencies, operands, flops, bytes}, built by pure functions of sizes
 * and coordinates. The runtime executes the list, the model prices it, tests print it.
 *
 * A builder appends tasks, which name the bytes of buffers and of values that they read and write. When the list is
 * complete, two passes follow: values get their places in the workspace (memory.h), and what tasks must wait for
 * follows from their operands (waits.h), so no builder states a dependency by hand and none can be forgotten. */
#ifndef QDRI_SCHEDULE_SCHEDULE_H
#define QDRI_SCHEDULE_SCHEDULE_H

#include <stdio.h>

#include "core/coded.h"
#include "core/dtype.h"
#include "core/kernels.h"
#include "core/layout.h"
#include "quadrille/grid.h"
#include "schedule/buffer.h"

/* Streams: 0 is the compute stream, 1 + channel runs that channel's collectives. */
#define QDRI_STREAM_OF_COMPUTE 0
#define QDRI_STREAM_OF_CHANNEL(channel) (1 + (int)(channel))
#define QDRI_N_STREAMS (1 + (int)QDR_N_CHANNELS)

typedef enum qdri_task_kind {
    QDRI_TASK_PRODUCT = 0, /* reads A, B; writes C */
    QDRI_TASK_COLLECTIVE, /* reads send (none: in place); writes recv */
    QDRI_TASK_KERNEL, /* reads and writes what core/operands.h says of its kernel, in that order */
    QDRI_TASK_CALLER_FORWARD, /* the caller's operation: reads inputs; writes output, saved state */
    QDRI_TASK_CALLER_BACKWARD /* reads dy, inputs, output, saved state; writes the gradients of inputs */
} qdri_task_kind;

/* The class of a task, by which overlap can be switched off. Values as in QDR_OVERLAP_…; products have no class. */
typedef enum qdri_task_class {
    QDRI_CLASS_NONE = 0,
    QDRI_CLASS_WEIGHTS = 1,
    QDRI_CLASS_ROWS = 2,
    QDRI_CLASS_GRADIENTS = 4
} qdri_task_class;

/* Kinds of work that constants of a machine's software (quadrille/machine.h) change. */
typedef enum qdri_cost {
    QDRI_COST_PLAIN = 0, /* none does */
    QDRI_COST_CALLER, /* none does; only the caller knows how to measure it */
    QDRI_COST_FUSED, /* fused_biases: another kernel does it on its way */
    QDRI_COST_AFTER_FUSED, /* launched with the FUSED task before it, or alone if that one is fused elsewhere */
    QDRI_COST_LOGITS, /* logit_bytes: of four passes over the logits, two of them backward; its bytes tell how many */
    QDRI_COST_SCORES, /* attention_efficiency, score_bytes: for each of `heads` and each sequence, context² scores */
    QDRI_COST_SCORES_BACKWARD, /* the same, for their gradients */
    QDRI_COST_OPTIMIZER /* optimizer_bytes for each element that is updated, and nothing for the norm */
} qdri_cost;

/* What the kernels of a task do: all that the model knows of them. */
typedef struct qdri_task_work {
    double bytes, flops; /* bytes to and from memory */
    int n_kernels; /* launched; 0: they count with those of another task, or are too small to count */
    qdri_cost cost;
} qdri_task_work;

/* Those of the backward of attention. */
#define QDRI_MAX_READS 9
#define QDRI_MAX_WRITES 5
#define QDRI_MAX_BATCH_PARTS 16

typedef struct qdri_task {
    qdri_task_kind kind;
    qdri_task_class overlap_class;
    int stream;
    int node; /* index of the layer or operation in the stack */
    const char *name; /* of that node; not owned */
    int n_reads, n_writes;
    qdri_ref reads[QDRI_MAX_READS], writes[QDRI_MAX_WRITES];
    int accumulate; /* add to what is written; CALLER_BACKWARD: bit i: to the gradient of input i */
    qdri_kernel kernel; /* without pointers, which are the operands' */
    qdr_dtype dtype, out_dtype;
    int64_t m, n, k; /* product: extents; others: rows m, columns n. Collectives state their rows and columns if they
                      * are statistics, else 0 */
    int trans_a, trans_b;
    int algorithm; /* product: as in qdri_gemm */
    qdri_rounding round_a, round_b; /* product: as in qdri_gemm */
    size_t zero_tail; /* bytes at the end of writes[0] that are set to zero afterwards */
    qdr_coll_kind coll;
    qdr_reduce reduce; /* collective: how elements are combined */
    qdr_channel channel;
    int64_t count; /* total elements (all-reduce, or with split_unit); send-recv: elements sent; else elements of each
                    * member's part */
    int64_t split_unit; /* > 0: member j's part is qdri_split(count, split_unit, size, j) */
    int64_t recv_count; /* send-recv: count goes to `peer`, recv_count comes from `peer2` */
    int peer, peer2;
    int again; /* of a backward list: it repeats what a forward list has done */
    double flops; /* reported: of products and operations */
    qdri_task_work work; /* not of products and collectives, whose extents tell */
    qdri_task_work turns; /* of an attention, besides: on queries, keys and scores, beside its products */
    /* Collectives, see core/coded.h: */
    int traffic; /* 1 + the qdr_traffic_class of what may be coded; 0: nothing may */
    int64_t row_elems; /* of an activation's row; 0: there are no rows */
    qdr_codec codec; /* how elements travel; RAW: as they are. With feedback, that is the last of `writes`, which may be
                      * there for other codecs, too */
    int parameter_gradient; /* only gradients of parameters come from it: nothing but their sums needs it */
    int64_t bytes_sent, bytes_plain; /* plain: that it would send without a codec */
    /* Set by qdri_schedule_set_waits(): */
    int n_waits;
    int waits[QDRI_N_STREAMS]; /* tasks on other streams to wait for, at most one per stream */
    int signals; /* a task on another stream waits for this one */
} qdri_task;

/* Workspace of one list. */
typedef struct qdri_value {
    size_t bytes;
    int n_users; /* while the list is built */
    int end; /* tasks from this one on may use its memory for something else, unless it is still in use */
    size_t offset; /* in the workspace; set by qdri_schedule_allocate() */
} qdri_value;

typedef struct qdri_schedule {
    qdri_task *tasks;
    int n_tasks, capacity;
    qdri_value *values;
    int n_values, value_capacity;
    int first_value; /* operands refer to value i as to buffer first_value + i, until it has a place */
    /* Set by qdri_schedule_allocate(): the workspace that it needs, and the largest sum of values that are in use at
     * the same time, below which no list can be. */
    size_t workspace_bytes, least_bytes;
} qdri_schedule;

/* Builds one schedule. The first failure is kept in `status`; later calls do nothing. */
typedef struct qdri_builder {
    qdri_schedule *schedule;
    qdri_position position;
    const qdri_coding *coding; /* NULL: nothing is coded */
    qdr_status status;
    /* The cell's rows in parts, each of which passes through the schedule after the other: part p begins at
     * part_begin[p]. */
    int n_parts;
    int64_t part_begin[QDRI_MAX_BATCH_PARTS + 1];
    int part; /* the part to which new tasks belong, or one of the two constants below */
    int again; /* new tasks repeat a forward list */
    int holds;
    struct qdri_held_task *held;
    int n_held, held_capacity;
    qdri_ref *given; /* values that have lost a user together with the held tasks */
    int n_given, given_capacity;
    /* Gathered weights: uses in order of execution, and the values that they take turns in. */
    struct qdri_weight_use *uses;
    int n_uses, use_capacity, n_gathered, next_use;
    int prefetch;
    qdri_ref *gathered;
    int n_turns; /* of these values */
    qdri_ref whole_gradients[2]; /* used alternately for a whole dW before its reduce-scatter */
    int n_whole_gradients;
    qdri_ref reduced_gradient; /* a reduced shard before it is added */
} qdri_builder;

/* Starts an empty schedule, whose tasks use buffers with numbers below n_buffers. */
void qdri_builder_begin(qdri_builder *builder, qdri_schedule *schedule, int n_buffers, const qdri_position *position,
                        int prefetch);
/* Divides the cell's rows into up to n_parts nonempty parts of whole `unit`s. Before this call there is one part. */
void qdri_builder_cut_rows(qdri_builder *builder, int64_t n_rows, int64_t unit, int n_parts);
/* Rows [begin, end) of a part; all n_rows if there is one part. */
void qdri_part_rows(const qdri_builder *builder, int part, int64_t n_rows, int64_t *begin, int64_t *end);
/* Between hold and release, tasks are held back, and then appended part by part: those of BEFORE_PARTS, those of part 0
 * in the order in which they were added, …, those of AFTER_PARTS. Values given back meanwhile keep their users until
 * then. If there is only one part, nothing is held back. */
#define QDRI_BEFORE_PARTS (-1)
#define QDRI_AFTER_PARTS QDRI_MAX_BATCH_PARTS
void qdri_builder_hold(qdri_builder *builder);
void qdri_builder_release(qdri_builder *builder);
/* A new value, with one user; makes one at least that large. */
qdri_ref qdri_builder_take(qdri_builder *builder, size_t bytes);
void qdri_builder_enlarge(qdri_builder *builder, qdri_ref value, size_t bytes);
/* Adds a user to a value; each user ends with a give. After the last one, tasks that are added may use its memory.
 * Values that are never given back keep it to the end of the list. Both ignore buffers. */
void qdri_builder_share(qdri_builder *builder, qdri_ref value);
void qdri_builder_give(qdri_builder *builder, qdri_ref value);
/* The number of users; 0 for buffers. */
int qdri_builder_users(const qdri_builder *builder, qdri_ref value);
/* Appends a task; a kernel gets the task's type and `accumulate`. */
void qdri_schedule_add(qdri_builder *builder, const qdri_task *task);
/* Frees the builder's memory. @return the first failure */
QDR_NODISCARD qdr_status qdri_builder_end(qdri_builder *builder);
void qdri_schedule_free(qdri_schedule *schedule);

/* The work of the task: a pass over m × n elements that moves `times` as many, with one flop each. */
void qdri_set_pass(qdri_task *task, int64_t m, int64_t n, int times);
/* Makes the task, whose type is set, y = a + b, or a copy, of m × n elements. */
void qdri_set_sum(qdri_task *task, int64_t m, int64_t n, qdri_ref a, qdri_ref b, qdri_ref y);
void qdri_set_copy(qdri_task *task, int64_t m, int64_t n, qdri_ref from, qdri_ref to);

/* The channel of an axis: sums (QDR_X: QDR_CHANNEL_X_REDUCE), gathers, and statistics. */
qdr_channel qdri_reduce_channel(qdr_axis axis);
qdr_channel qdri_gather_channel(qdr_axis axis);
qdr_channel qdri_statistics_channel(qdr_axis axis);

/* Sets kind, stream, codec and bytes of a collective over `channel`, and appends it, unless its group has one
 * member. */
void qdri_add_collective(qdri_builder *builder, qdri_task *task);

/* Settles how the elements of a collective travel, and how many bytes that sends. coding NULL: as they are. */
void qdri_task_set_codec(const qdri_position *position, const qdri_coding *coding, qdri_task *task);

/* Announces, in order of execution, that a whole W will be needed: shard_elems per member of z. */
void qdri_plan_weight(qdri_builder *builder, int node, const char *name, qdri_ref shard, int64_t shard_elems,
                      qdr_dtype dtype);
/* The whole W of the next announced use; adds tasks that gather it and the next `prefetch` ones, but those that are
 * still there since an earlier use. Valid until the following call. */
qdri_ref qdri_next_weight(qdri_builder *builder);

/* Whether it is this kernel. */
static inline int qdri_task_runs(const qdri_task *task, qdri_kernel_kind kind)
{
    return task->kind == QDRI_TASK_KERNEL && task->kernel.kind == kind;
}
/* The stream to which a task belongs in a picture: a collective to its channel's, wherever it runs. */
int qdri_task_row(const qdri_task *task);
/* Whether a collective's count is each member's part, and not the total, or what this rank sends. */
int qdri_task_counts_part(const qdri_task *task);
/* The name of a task: the kind of its collective, or of its work. */
const char *qdri_task_name(const qdri_task *task);
/* How a product reads its operands: "NN", "NT" or "TN"; "NN fp8" etc. if it rounds them. */
const char *qdri_product_mode(const qdri_task *task);
/* Writes one task per line. */
void qdri_schedule_print(const qdri_schedule *schedule, FILE *file);

#endif
