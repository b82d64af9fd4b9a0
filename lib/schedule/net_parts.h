/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files that implement a net. */
#ifndef QDRI_SCHEDULE_NET_PARTS_H
#define QDRI_SCHEDULE_NET_PARTS_H

#include "schedule/net.h"

/* net.c */
/* Adds a node without inputs or output; *node is valid until the next one is added. */
QDR_NODISCARD qdr_status qdri_node_add(qdri_net *net, const char *name, qdri_node_kind kind, qdri_node **node);
/* Adds a node and an edge that is created with it; after an error neither. */
QDR_NODISCARD qdr_status qdri_node_add_with_edge(qdri_net *net, const char *name, qdri_node_kind kind,
                                                 const qdr_matrix *matrix, qdr_dtype dtype, qdr_edge *edge,
                                                 qdri_node **node);
/* Sets the node's inputs and marks them as used. */
void qdri_node_connect(qdri_net *net, qdri_node *node, int n_in, const qdr_edge *in, qdr_edge out);
QDR_NODISCARD qdr_status qdri_edge_add(qdri_net *net, const char *name, const qdr_matrix *matrix, qdr_dtype dtype,
                                       qdr_edge *edge);
/* The matrix of an edge whose columns are split over col_axis (x or y). */
qdr_matrix qdri_edge_matrix(const qdri_net *net, const qdr_block cols[QDR_MAX_BLOCKS], qdr_axis col_axis,
                            qdr_layout layout, int64_t scatter_unit);
static inline qdr_axis qdri_other_axis(qdr_axis axis) { return axis == QDR_X ? QDR_Y : QDR_X; }

/* net_parameters.c */
/* The description of a parameter, before this rank's share of it is known. */
typedef struct qdri_parameter_desc {
    const char *what;
    const qdr_block *rows, *cols; /* NULL: one row */
    int row_split, col_split; /* 1 + axis; 0: whole */
    int flat_over_z;
    int extra_sums; /* as in qdri_parameter, as is the next */
    double initial;
} qdri_parameter_desc;
/* Adds a parameter to the last node. */
QDR_NODISCARD qdr_status qdri_parameter_add(qdri_net *net, const qdri_parameter_desc *desc, int *index);
/* Bytes of the largest whole W on any rank; the same on all ranks. */
size_t qdri_largest_gathered_bytes(const qdri_net *net);
/* Assigns buffers to all parameters. */
void qdri_parameters_place(qdri_net *net);
/* Whether they have the feedback that these codecs need, see qdri_net_change_coding(). */
QDR_NODISCARD qdr_status qdri_parameters_check_feedback(const qdri_net *net, const qdri_coding *coding);

/* rotations.c */
/* The rotation of these numbers, which are copied, is a new one or an older one. *number: 1 + its index */
QDR_NODISCARD qdr_status qdri_rotation_add(qdri_net *net, const qdr_attention_desc *desc, int *number);
void qdri_rotations_place(qdri_net *net);
void qdri_rotations_free(qdri_net *net);

/* net_schedules.c */
/* Starts a list in which the rows are not divided into parts. */
void qdri_net_begin_list(qdri_builder *builder, const qdri_net *net, qdri_schedule *schedule);
/* Places a list's values, and sets its waits. */
QDR_NODISCARD qdr_status qdri_net_finish(qdri_net *net, qdri_schedule *schedule);

/* net_step.c */
#define QDRI_NORM_NAME "gradient norm"

/* options.c */
QDR_NODISCARD qdr_status qdri_check_layout(qdr_layout layout, const char *who);
const char *qdri_layout_name(qdr_layout layout);
QDR_NODISCARD qdr_status qdri_check_product_type(qdr_product_type type, qdr_dtype dtype, const char *who);
const char *qdri_product_type_name(qdr_product_type type);

/* ops/table.c */
/* Adds the tasks of an operation for one part of its rows; for all rows if it needs them at once. */
void qdri_op_forward_tasks(qdri_builder *builder, const qdri_net *net, int number, int part);
/* The same of one that makes its output again, from what was saved if that is less work. */
void qdri_op_repeat_tasks(qdri_builder *builder, const qdri_net *net, int number, int part);
/* d_in: where the gradients of the inputs go. accumulates: bit i: add to that of input i, bit QDR_MAX_OP_INPUTS + i: to
 * that of parameter i. */
void qdri_op_backward_tasks(qdri_builder *builder, const qdri_net *net, int number, int part, const qdri_ref *d_in,
                            int accumulates);

#endif
