/* SPDX-License-Identifier: Apache-2.0 */
/* The inside of a stack: the net, and what only a run of it needs. */
#ifndef QDRI_LINEAR_INTERNAL_H
#define QDRI_LINEAR_INTERNAL_H

#include "core/net.h"
#include "grid/internal.h"
#include "linear/life.h"
#include "linear/measures.h"
#include "quadrille/coll.h"
#include "quadrille/linear.h"
#include "quadrille/ops.h"

struct qdr_linear {
    qdr_stack *stack;
    int node;
    qdr_storage_reason storage_reason;
    double storage_secs[2][QDRI_N_PRODUCTS]; /* as in qdr_linear_storage */
};

/* What the runtime keeps of a node besides. */
typedef struct qdri_attached {
    char *name; /* the net's, and the room for the names of its parameters */
    struct {
        const char *name; /* "node.weight" */
        int deferred; /* the gradient lacks sums that QDR_DEFER_SYNC left out */
    } parameters[2];
    qdr_linear *layer;
    qdr_op_fn forward, backward; /* the caller's operations */
    void *user;
} qdri_attached;

struct qdr_stack {
    qdri_life life;
    qdr_grid *grid;
    qdr_stack *owner; /* of its parameters; NULL: itself */
    qdri_net net;
    qdri_facts described; /* until it is built: what ranks compare */
    int n_described; /* entries in it */
    qdri_attached *attached; /* to each node */
    int attached_capacity;
    char **input_names;
    int n_input_names, input_name_capacity;
    int built, bound;
    void *caller_memory[4]; /* as net.caller */
    qdri_net_lists lists;
    void *memory[QDRI_N_REGIONS]; /* where the regions lie */
    void *owned[QDRI_N_REGIONS]; /* those that the stack allocated */
    size_t staging_bytes[QDR_N_CHANNELS];
    size_t product_bytes; /* of the device's, for the products */
    qdr_event **events; /* of signalling tasks */
    int n_events;
    qdr_event *start, *done[QDRI_N_STREAMS];
    double loss_scale; /* of the last backward, like its flags */
    int backward_flags;
    int has_values; /* a forward of the whole stack was enqueued */
    qdri_measures *measures; /* NULL: nothing is measured */
    int reports; /* when it is destroyed */
};

static inline const qdri_layer *qdri_linear_layer(const qdr_linear *layer)
{
    return &layer->stack->net.nodes[layer->node].u.layer;
}
static inline const char *qdri_linear_name(const qdr_linear *layer)
{
    return layer->stack->net.nodes[layer->node].name;
}

/* stack.c */
QDR_NODISCARD qdr_status qdri_stack_open(const qdr_stack *stack, const char *who); /* still being described */
QDR_NODISCARD qdr_status qdri_stack_ready(const qdr_stack *stack, const char *who); /* built and bound */
/* Waits until nothing of this stack runs any more, also where the context is poisoned: what a GPU was given before, it
 * may still run. */
QDR_NODISCARD qdr_status qdri_stack_drain(const qdr_stack *stack);

/* share.c */
/* Takes the parameters of the stack that owns them. Collective, agrees. */
QDR_NODISCARD qdr_status qdri_stack_share(qdr_stack *stack);
/* The stack may write its parameters, and has their gradients. */
QDR_NODISCARD qdr_status qdri_stack_owns(const qdr_stack *stack, const char *who);

/* needs.c: finds what the lists need, and takes the staging. */
QDR_NODISCARD qdr_status qdri_stack_reserve_staging(qdr_stack *stack);

/* report.c: what QDR_REPORT asks for. */
QDR_NODISCARD qdr_status qdri_report_begin(qdr_stack *stack);
void qdri_report_end(qdr_stack *stack);

/* attach.c */
/* Makes what belongs to the next node, with a copy of its name, so that nothing can fail once the net has the node. */
QDR_NODISCARD qdr_status qdri_attach_begin(qdr_stack *stack, const char *name, int is_layer, const char **kept);
/* What the net said to the node: attaches it, or passes the error on. edge: its result, -1 after an error. @return
 * status */
QDR_NODISCARD qdr_status qdri_attach_end(qdr_stack *stack, qdr_status status, qdr_edge *edge);
void qdri_attached_free(qdr_stack *stack);

/* parameters.c */
const char *qdri_parameter_name(const qdr_stack *stack, int index);
int *qdri_parameter_deferred(const qdr_stack *stack, int index);

/* values.c */
QDR_NODISCARD qdr_status qdri_parameter_init(qdr_stack *stack, int index, uint64_t seed, double stddev);
QDR_NODISCARD qdr_status qdri_parameter_fill(qdr_stack *stack, int index, double value);

/* storage.c */
void qdri_layer_set_storage(qdr_linear *layer, qdr_storage storage, qdr_storage_reason reason);
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
/* Passes `status` on. An error after the arguments were found right would leave the other ranks waiting for tasks that
 * this rank never enqueues: it poisons the device, and so ends the world. Not in a record that is lost, which nobody
 * waits for. */
qdr_status qdri_give_up(const qdr_stack *stack, qdr_status status);
QDR_NODISCARD qdr_status qdri_execute(qdr_stack *stack, const qdri_schedule *schedule, qdr_stream *stream);

/* fuse.c Adds to *gemm, the product of a task with its memory, what the tasks right behind it do with its result, as
 * far as the device does it at once.
 * @return the last task that is done with it; `number`: no other */
int qdri_fuse(const qdr_stack *stack, const qdri_schedule *schedule, int number, qdri_gemm *gemm);

#endif
