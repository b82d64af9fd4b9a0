/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the nodes that have a W: linear layers and embeddings. */
#ifndef QDRI_SCHEDULE_OPS_LAYER_H
#define QDRI_SCHEDULE_OPS_LAYER_H

#include "schedule/ops/op.h"

/* Adds a node with an empty layer. */
QDR_NODISCARD qdr_status qdri_layer_node_add(qdri_net *net, const char *name, qdri_node_kind kind, qdri_node **node);
QDR_NODISCARD qdr_status qdri_weight_add(qdri_net *net, const qdr_block *rows, const qdr_block *cols, qdr_axis row_axis,
                                         qdr_axis col_axis, int *index);
/* Connects a layer whose parameters are known to its edges, and sets its shape. The input of an embedding is an edge of
 * tokens. */
void qdri_layer_connect(qdri_net *net, qdri_node *node, qdr_axis in_axis, qdr_edge in, qdr_edge out);

#endif
