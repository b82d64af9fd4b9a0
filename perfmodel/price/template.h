/* SPDX-License-Identifier: Apache-2.0 */
/* Templates: the task lists of a transformer with few layers, built once by the same builders as in the runtime, with
 * every extent known by name, so that another network or grid with the same structure can be priced without building
 * anything.
 *
 * Which tasks there are and what they wait for depends only on which axes have more than one rank, the layout, and some
 * properties of the network: the structure. Sizes do not matter. */
#ifndef QDRI_PERFMODEL_PRICE_TEMPLATE_H
#define QDRI_PERFMODEL_PRICE_TEMPLATE_H

#include "network/describe.h"
#include "network/sizes.h"
#include "price/simulate.h"

/* Everything on which the lists depend. */
typedef struct qdri_structure {
    unsigned char wide[QDR_N_AXES]; /* the axis has several ranks */
    unsigned char scattered;
    unsigned char few_sequences; /* attention's rows cannot be scattered */
    unsigned char few_key_heads; /* keys are gathered over y */
    unsigned char gated, tied, positions, parallel, qkv_bias, out_bias, mlp_bias;
    unsigned char overlap; /* QDR_OVERLAP_… */
} qdri_structure;

/* The part of the network to which a task belongs. */
typedef enum qdri_whose { QDRI_OF_FIRST, QDRI_OF_LAYER, QDRI_OF_LAST } qdri_whose;

/* One kind of task with named extents. Many tasks share a role. */
typedef struct qdri_role {
    qdri_task_kind kind;
    qdri_node_kind node_kind; /* of operations */
    qdri_whose whose;
    int trans_a, trans_b, accumulate;
    int is_gate; /* for the caller's operations: the gated activation, otherwise the rotation */
    int gathers_keys; /* for attention */
    int is_gradient; /* its elements, or those of a product's result, are gradients of parameters */
    qdr_coll_kind coll;
    qdr_channel channel;
    qdri_task_class overlap_class;
    qdri_size m, n, k; /* products and kernels: extents; collectives: m·n is the total number of elements */
    int per_member; /* the count is one member's part */
    int on_processor; /* on the compute stream, and not a collective */
} qdri_role;

enum { QDRI_TEMPLATE_LAYERS = 4, QDRI_MAX_ROLES = 192 };

/* One list: a role for each task, and the last task of each layer on each stream. */
typedef struct qdri_template_list {
    qdri_schedule schedule;
    int *next, *role;
    qdri_sim_list sim;
    int last_of_layer[QDRI_TEMPLATE_LAYERS][QDRI_N_STREAMS]; /* -1: none */
    int last_of_first, last_of_last; /* on the compute stream, of embedding and head; -1: none */
    /* How often each role occurs in one layer, and in embedding and head. */
    int n_in_layer[QDRI_MAX_ROLES], n_in_first[QDRI_MAX_ROLES], n_in_last[QDRI_MAX_ROLES];
} qdri_template_list;

/* The lists of which a step consists: one forward and one backward for each micro-batch. */
typedef enum qdri_list_kind {
    QDRI_LIST_FORWARD,
    QDRI_LIST_BACKWARD_ONLY, /* of a step with a single micro-batch */
    QDRI_LIST_BACKWARD_BEFORE, /* adds to the gradients, without sums over d */
    QDRI_LIST_BACKWARD_LAST, /* adds, and sums over all ranks */
    QDRI_N_LIST_KINDS
} qdri_list_kind;

typedef struct qdri_template {
    qdri_structure structure;
    int n_roles;
    qdri_role roles[QDRI_MAX_ROLES];
    qdri_template_list lists[QDRI_N_LIST_KINDS];
} qdri_template;

qdri_structure qdri_structure_of(const qdr_network *network, const qdr_plan *plan);
QDR_NODISCARD qdr_status qdri_template_make(const qdri_structure *structure, qdri_template **result);
void qdri_template_free(qdri_template *made);

#endif
