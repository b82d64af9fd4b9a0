/* SPDX-License-Identifier: Apache-2.0 */
/* The implementation of a stack: the net, and the data needed to run it. */
#ifndef QDRI_LINEAR_INTERNAL_H
#define QDRI_LINEAR_INTERNAL_H

#include "core/ranges.h"
#include "grid/internal.h"
#include "linear/measures.h"
#include "quadrille/coll.h"
#include "quadrille/linear.h"
#include "schedule/net.h"

struct qdr_linear {
    qdr_stack *stack;
    int node;
    qdr_storage_reason storage_reason;
    double storage_secs[2][QDRI_N_PRODUCTS]; /* as in qdr_linear_storage */
};

/* The runtime's data for a parameter, in addition to the net's. */
typedef struct qdri_attached_parameter {
    const char *name; /* "node.weight" */
    int deferred; /* 1: the gradient lacks sums that QDR_DEFER_SYNC postponed */
    int flags; /* of the last backward that wrote the gradient */
    int stale; /* updated in parts that have not been returned: sum of QDRI_STALE_… */
} qdri_attached_parameter;

/* The same for a node. */
typedef struct qdri_attached {
    char *name; /* the net's; followed by the names of its parameters */
    qdri_attached_parameter parameters[QDRI_MOST_NODE_PARAMETERS];
    qdr_linear *layer;
    qdr_op_fn forward, backward; /* of the caller's operations */
    void *user;
} qdri_attached;

struct qdr_stack {
    qdri_life life;
    qdr_stack *next; /* in the context's list of stacks that have memory */
    qdr_grid *grid;
    qdr_stack *owner; /* the stack whose parameters it uses; NULL: its own */
    qdri_net net;
    qdr_codecs codecs; /* version 0: none were given */
    uint64_t n_executed; /* lists; for seeds of stochastic rounding */
    qdri_facts described; /* facts that ranks compare; until the stack is built */
    int n_described; /* number of entries */
    qdri_attached *attached; /* by node */
    int attached_capacity;
    char **input_names;
    int n_input_names, input_name_capacity;
    int built, bound;
    void *caller_memory[QDRI_N_CALLER]; /* like net.caller */
    qdri_net_lists lists;
    void *memory[QDRI_N_REGIONS]; /* addresses of the regions */
    void *owned[QDRI_N_REGIONS]; /* those that the stack allocated itself */
    qdri_need staging[QDR_N_CHANNELS];
    size_t product_bytes, kernel_bytes; /* device memory for the products, and for attention */
    qdr_event **events; /* of tasks that signal */
    int n_events, event_capacity;
    qdr_event *start, *done[QDRI_N_STREAMS];
    double loss_scale; /* of the last backward pass, as are its flags */
    int backward_flags;
    int layers_ran; /* since then: backward passes of single layers, whose flags the parameters remember */
    int has_values; /* a forward pass of the whole stack has been enqueued */
    /* Of the stack that owns parameters, for returns.c: */
    int64_t record; /* the last one in which it was used; 0: none */
    int64_t n_record_runs; /* when its stale parameters were last looked at */
    qdri_measures *measures; /* NULL: not measured */
    int reports; /* prints a report when it is destroyed */
    int is_saving; /* a checkpoint of it is being written in the background */
};

static inline const qdri_layer *qdri_linear_layer(const qdr_linear *layer)
{
    return &layer->stack->net.nodes[layer->node].layer;
}
static inline const char *qdri_linear_name(const qdr_linear *layer)
{
    return layer->stack->net.nodes[layer->node].name;
}

/* The stack whose parameters it uses. */
static inline const qdr_stack *qdri_stack_owner(const qdr_stack *stack) { return stack->owner ? stack->owner : stack; }

/* stack.c */
qdri_life *qdri_stack_life(qdr_stack *stack); /* for higher modules, to keep it alive */
/* Makes the stack use the parameters of its owner. Collective, agrees. */
QDR_NODISCARD qdr_status qdri_stack_share(qdr_stack *stack);

/* state.c */
QDR_NODISCARD qdr_status qdri_stack_open(const qdr_stack *stack, const char *who); /* it is still being described */
QDR_NODISCARD qdr_status qdri_stack_ready(const qdr_stack *stack, const char *who); /* it is built and bound */
/* Waits until all work of this stack has ended, even if the context is poisoned: a GPU may still be running work that
 * it received earlier. */
QDR_NODISCARD qdr_status qdri_stack_drain(const qdr_stack *stack);
/* The address of memory that the net refers to. */
void *qdri_stack_pointer(const qdr_stack *stack, qdri_ref ref);
qdri_attached_parameter *qdri_parameter_of(const qdr_stack *stack, int index);

/* Checks that the stack may write its parameters, and has their gradients. */
QDR_NODISCARD qdr_status qdri_stack_owns(const qdr_stack *stack, const char *who);

/* staging.c: gives communicators the staging that the lists need. */
QDR_NODISCARD qdr_status qdri_stack_reserve_staging(qdr_stack *stack);

/* codecs.c */
/* Takes and checks those of a caller; NULL: *codecs stays as it is. */
QDR_NODISCARD qdr_status qdri_stack_take_codecs(const qdr_stack *stack, const qdr_codecs *given, qdr_codecs *codecs);
/* Settles what is coded, and prepares the communicators for it. Collective, agrees. */
QDR_NODISCARD qdr_status qdri_stack_settle_codecs(qdr_stack *stack);
/* Prints what QDR_CODEC_CHECK has found, on rank 0. */
void qdri_codec_report_end(qdr_stack *stack);

/* apart.c */
extern const char *const qdri_region_names[QDRI_CALLER];
/* Adds a stack to the context's list, once it has memory; removes it, if it is there. */
void qdri_stack_enlist(qdr_stack *stack);
void qdri_stack_strike_out(const qdr_stack *stack);
/* What a call does with a region of its stack. */
typedef enum qdri_use { QDRI_IGNORED, QDRI_READ, QDRI_WRITTEN } qdri_use;
/* Checks that memory which the caller passes to a call overlaps no region of the stack, or of a stack with the same
 * parameters, unless both are only read. */
QDR_NODISCARD qdr_status qdri_stack_check_apart(const qdr_stack *stack, const char *who, const qdri_range *callers,
                                                const qdri_use uses[QDRI_CALLER]);
/* Checks memory that the stack is to be bound to: the members do not overlap, nor do parameters and gradients of this
 * stack or of others in the context overlap anything else. */
QDR_NODISCARD qdr_status qdri_stack_check_bind(const qdr_stack *stack, void *const callers[QDRI_CALLER]);

/* report.c: measurements and output for QDR_REPORT. */
QDR_NODISCARD qdr_status qdri_report_begin(qdr_stack *stack);
void qdri_report_end(qdr_stack *stack);

/* attach.c */
/* Creates the runtime's data for the next node, with a copy of its name, so that nothing can fail once the net has
 * added the node. */
QDR_NODISCARD qdr_status qdri_attach_begin(qdr_stack *stack, const char *name, int is_layer, const char **kept);
/* Attaches the data if the net added the node (status), else drops them. edge: the node's result, -1 after an error.
 * @return status */
QDR_NODISCARD qdr_status qdri_attach_end(qdr_stack *stack, qdr_status status, qdr_edge *edge);
void qdri_attached_free(qdr_stack *stack);

/* operations.c: adds a node, which is named like its kind if it has no name. *edge = -1 until it is known. */
QDR_NODISCARD qdr_status qdri_stack_add_node(qdr_stack *stack, qdri_node_desc *desc, qdr_edge *edge);

/* parameters.c */
QDR_NODISCARD qdr_status qdri_parameter_check(const qdr_stack *stack, int index); /* there is one of that number */

/* stale.c: parameters that have been updated in parts, of this stack or of the one that owns them. */
/* Whether one is stale; node: the W of that layer; -1: any. */
int qdri_stack_is_stale(const qdr_stack *stack, int node);
int qdri_parameter_is_stale(const qdr_stack *stack, int index);
/* They have all been updated in parts. */
void qdri_stack_set_updated(qdr_stack *stack);
/* Their returns have been enqueued, or all ranks have written them whole; node: as before. */
void qdri_stack_set_returned(qdr_stack *stack, int node);
/* All ranks have written the whole value of a parameter. */
void qdri_parameter_set_whole(qdr_stack *stack, int index);
/* returns.c: enqueues the return of a layer's W, if it is stale. */
QDR_NODISCARD qdr_status qdri_layer_return(qdr_stack *stack, int node, qdr_stream *stream);

/* storage.c */
void qdri_layer_set_storage(qdr_linear *layer, qdr_storage storage, qdr_storage_reason reason);

/* tune.c */
/* Chooses the storage of each W for which the layer requested none. Collective, agrees. */
QDR_NODISCARD qdr_status qdri_stack_choose_storage(qdr_stack *stack);

/* execute.c */
/* The collective or product of a task, without its memory. */
qdri_coll qdri_task_coll(const qdri_task *task);
qdri_gemm qdri_task_gemm(const qdri_task *task);
/* Returns `status`. An error that occurs after the arguments have been checked would leave the other ranks waiting for
 * tasks that this rank never enqueues, so it poisons the device, and thereby ends the world. Except in a recording that
 * is discarded, for which no rank waits. */
qdr_status qdri_give_up(const qdr_stack *stack, qdr_status status);
QDR_NODISCARD qdr_status qdri_execute(qdr_stack *stack, const qdri_schedule *schedule, qdr_stream *stream);
/* A list that ends a step, on the context's stream. pass: the backward pass with which it begins, whose tasks are
 * measured, and rounded, as if it ran alone; NULL: none */
QDR_NODISCARD qdr_status qdri_execute_step(qdr_stack *stack, const qdri_schedule *schedule, const qdri_schedule *pass);
/* Makes the events of lists with up to n_tasks. */
QDR_NODISCARD qdr_status qdri_stack_reserve_events(qdr_stack *stack, int n_tasks);

/* run.c: a backward pass as qdr_stack_backward() begins it. *list: what must follow */
QDR_NODISCARD qdr_status qdri_stack_begin_backward(qdr_stack *stack, int flags, double loss_scale,
                                                   const qdri_schedule **list);

/* fuse.c: adds to *gemm, the product of a task with its memory, the work of the tasks that directly follow it, as far
 * as the device can perform it as part of the product.
 * @return the last task included; `number`: no other */
int qdri_fuse(const qdr_stack *stack, const qdri_schedule *schedule, int number, qdri_gemm *gemm);

#endif
