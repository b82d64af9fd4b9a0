/* SPDX-License-Identifier: Apache-2.0 */
/* Queries about layers. */
#include "core/sized.h"
#include "linear/internal.h"

static qdr_status get_matrix(const qdr_linear *layer, int of_output, qdr_matrix *matrix)
{
    if (!layer || !matrix) return QDR_FAIL(QDR_ERR_ARGUMENT, "linear: the layer or the result pointer is NULL");
    const qdri_net *net = &layer->stack->net;
    const qdri_node *node = &net->nodes[layer->node];
    QDR_TRY(QDRI_CLEAR(qdr_matrix, matrix));
    QDRI_GIVE(qdr_matrix, matrix, &net->edges[of_output ? node->out : node->in[0]].matrix);
    return QDR_OK;
}

qdr_status qdr_linear_in_matrix(const qdr_linear *layer, qdr_matrix *matrix) { return get_matrix(layer, 0, matrix); }

qdr_status qdr_linear_out_matrix(const qdr_linear *layer, qdr_matrix *matrix) { return get_matrix(layer, 1, matrix); }

int qdr_linear_weight_index(const qdr_linear *layer) { return layer ? qdri_linear_layer(layer)->weight : -1; }
