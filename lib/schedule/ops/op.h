/* SPDX-License-Identifier: Apache-2.0 */
/* Operations: everything between products. Each is one file of this folder: how it is added to a net, with its checks,
 * edges, parameters and bytes, and its tasks in both directions with what they cost. table.c has the table of all. */
#ifndef QDRI_SCHEDULE_OPS_OP_H
#define QDRI_SCHEDULE_OPS_OP_H

#include "schedule/net_parts.h"

/* What the backward of an operation reads, in addition to the gradient of its output. */
enum {
    QDRI_NEEDS_INPUT = 1, /* bit i: input i */
    QDRI_NEEDS_OUTPUT = 1 << QDR_MAX_OP_INPUTS,
    QDRI_NEEDS_SAVED = 2 << QDR_MAX_OP_INPUTS
};

/* One part of an operation's rows, for which tasks are added. */
typedef struct qdri_op_part {
    qdri_builder *builder;
    const qdri_net *net;
    const qdri_node *node;
    int number; /* of the node */
    int part;
    int64_t begin, end, n_rows; /* of the first input */
    double elems, bytes; /* of these rows */
    qdri_ref dy;
    const qdri_ref *d_in; /* whole gradients of the inputs */
    int accumulates; /* bits as in qdri_op_backward_tasks() */
} qdri_op_part;

/* A kind of node. */
typedef struct qdri_op {
    const char *name; /* as users are told it */
    int n_in; /* inputs that its description states; 0: the caller's number */
    qdr_status (*add)(qdri_net *net, const qdri_node_desc *desc, qdr_edge *edge);
    /* Adds what ranks compare, in addition to the inputs; NULL: nothing. */
    void (*describe)(qdri_facts *facts, const char *who, const qdri_net *net, const qdri_node_desc *desc);
    /* Not of linear layers and embeddings, whose tasks are in linear.h. */
    void (*forward)(const qdri_op_part *part);
    void (*backward)(const qdri_op_part *part); /* NULL: gradients are passed on */
    int backward_needs; /* sum of QDRI_NEEDS_… */
    /* Makes the output of a forward again, from the inputs and what was saved; NULL: that is no less work than
     * `forward`, which saves again. */
    void (*repeat)(const qdri_op_part *part);
} qdri_op;
#define QDRI_DECLARE_OP(kind, file) extern const qdri_op qdri_##file##_op;
QDRI_NODE_KINDS(QDRI_DECLARE_OP)
#undef QDRI_DECLARE_OP

/* What the backward of a kind of node needs; whether it can be repeated. */
int qdri_op_backward_needs(qdri_node_kind kind);
int qdri_op_repeats(qdri_node_kind kind);

/* ---- adding to a net ---- */

/* Checks that the edges exist and contain features. */
QDR_NODISCARD qdr_status qdri_op_check_inputs(const qdri_net *net, const char *who, int n_in, const qdr_edge *in);
/* Checks that the edge exists and has an integer for each row of the cell; what: those, as users are told. */
QDR_NODISCARD qdr_status qdri_op_check_tokens(const qdri_net *net, const char *who, qdr_edge edge, const char *what);
/* Checks a factor, of which 0 means 1. */
QDR_NODISCARD qdr_status qdri_op_check_factor(const char *who, double factor);
/* Whether two edges have their columns on one axis, and their rows in one layout. */
int qdri_same_layout(const qdr_matrix *a, const qdr_matrix *b);

/* ---- operands of a part ---- */

qdri_ref qdri_op_input(const qdri_op_part *p, int i);
qdri_ref qdri_op_output(const qdri_op_part *p);
qdri_ref qdri_op_input_gradient(const qdri_op_part *p, int i);
qdri_ref qdri_op_saved(const qdri_op_part *p);
/* Parameter i of the operation; QDRI_NO_REF: it has fewer. */
qdri_ref qdri_op_parameter(const qdri_op_part *p, int i);
qdri_ref qdri_op_gradient(const qdri_op_part *p, int i);
int qdri_op_adds(const qdri_op_part *p, int i); /* to this gradient, instead of overwriting it */
/* Some numbers for each row, in the operation's work; `offset`: where those of the first row of all are. */
qdri_ref qdri_op_numbers(const qdri_op_part *p, size_t offset, int64_t n_per_row);
size_t qdri_op_number_bytes(const qdri_op_part *p);
int64_t qdri_op_columns(const qdri_op_part *p); /* of the first input */

/* ---- adding tasks ---- */

typedef struct qdri_refs {
    int n;
    qdri_ref of[QDRI_MAX_READS];
} qdri_refs;

/* A task on the rows, which states its kind, columns and work. It reports the flops of its work if it states no
 * others. */
void qdri_op_add(const qdri_op_part *p, qdri_task *task, const qdri_refs *reads, const qdri_refs *writes);
/* A kernel on all columns of the first input. */
void qdri_op_add_kernel(const qdri_op_part *p, const qdri_kernel *kernel, qdri_task_work work, const qdri_refs *reads,
                        const qdri_refs *writes, int accumulate);
/* A collective on n_per_row numbers for each row. The task states its kind, operands and type. */
void qdri_op_add_collective(const qdri_op_part *p, qdr_axis axis, int64_t n_per_row, qdri_task *task);
/* Combines the ranks' numbers in place. */
void qdri_op_reduce(const qdri_op_part *p, qdr_axis axis, qdr_reduce how, int64_t n_per_row, qdri_ref data);

/* Work that is too little to count. */
#define QDRI_NO_WORK ((qdri_task_work){.n_kernels = 0})

#endif
