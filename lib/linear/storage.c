/* SPDX-License-Identifier: Apache-2.0 */
/* How each W is stored, and the output about it. */
#include <string.h>

#include "core/sized.h"
#include "linear/internal.h"
#include "schedule/tune.h"

void qdri_layer_set_storage(qdr_linear *layer, qdr_storage storage, qdr_storage_reason reason)
{
    qdri_net_set_storage(&layer->stack->net, layer->node, storage);
    layer->storage_reason = reason;
}

qdr_status qdr_linear_get_storage(const qdr_linear *layer, qdr_linear_storage *storage)
{
    if (!layer) return QDR_FAIL(QDR_ERR_ARGUMENT, "storage: the layer is NULL");
    QDR_TRY(QDRI_CLEAR(qdr_linear_storage, storage));
    const qdri_net *net = &layer->stack->net;
    const qdri_layer *l = qdri_linear_layer(layer);
    qdr_linear_storage own = {.storage = net->parameters[l->weight].storage, .reason = layer->storage_reason};
    qdri_layer_largest(net, l, &own.m, &own.n, &own.k);
    memcpy(own.secs, layer->storage_secs, sizeof own.secs);
    const int has_products = net->nodes[layer->node].kind == QDRI_NODE_LINEAR && own.storage != QDR_STORAGE_AUTO;
    for (int i = 0; i < QDRI_N_PRODUCTS; i++) {
        qdri_task product = {.kind = QDRI_TASK_PRODUCT};
        qdri_set_product(&product, (qdri_product_kind)i, own.storage, 1, 1, 1);
        qdri_set_rounding(&product, (qdri_product_kind)i, &l->shape);
        own.modes[i] = has_products ? qdri_product_mode(&product) : "";
    }
    QDRI_GIVE(qdr_linear_storage, storage, &own);
    return QDR_OK;
}

qdr_status qdr_stack_print_storage(const qdr_stack *stack, FILE *file)
{
    if (!stack || !file) return QDR_FAIL(QDR_ERR_ARGUMENT, "print storage: a stack and a file are needed, not NULL");
    static const char *const reasons[] = {"fixed", "asked for", "stored", "measured"};
    for (int node = 0; node < stack->net.n_nodes; node++) {
        const qdr_linear *layer = stack->attached[node].layer;
        qdr_linear_storage s = {QDR_INIT(qdr_linear_storage)};
        if (stack->net.nodes[node].kind != QDRI_NODE_LINEAR || qdr_linear_get_storage(layer, &s) != QDR_OK) continue;
        fprintf(file, "%-16s %s Y %s dX %s dW %s m=%" PRId64 " n=%" PRId64 " k=%" PRId64 " %s", qdri_linear_name(layer),
                s.storage ? qdri_storage_name(s.storage) : "open", s.modes[0], s.modes[1], s.modes[2], s.m, s.n, s.k,
                reasons[s.reason]);
        for (int i = 0; i < 2; i++)
            if (s.secs[i][QDRI_PRODUCT_Y] > 0)
                fprintf(file, ", %s %.3f+%.3f+%.3f ms", qdri_storage_name((qdr_storage)((int)QDR_OUT_IN + i)),
                        1e3 * s.secs[i][QDRI_PRODUCT_Y], 1e3 * s.secs[i][QDRI_PRODUCT_DX],
                        1e3 * s.secs[i][QDRI_PRODUCT_DW]);
        fputc('\n', file);
    }
    return QDR_OK;
}
