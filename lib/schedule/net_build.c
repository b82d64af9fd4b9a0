/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan of a net, and all its task lists. */
#include "quadrille/linear.h"
#include "schedule/net_parts.h"

/* ---- lists ---- */

static qdr_status set_waits(qdri_net *net, qdri_schedule *schedule)
{
    return qdri_schedule_set_waits(schedule, &net->hazards, net->buffers.n, net->opts.overlap & QDR_OVERLAP_ALL);
}

qdr_status qdri_net_forward(qdri_net *net, qdri_schedule *schedule)
{
    QDR_TRY(qdri_net_forward_tasks(net, schedule));
    return set_waits(net, schedule);
}

qdr_status qdri_net_backward(qdri_net *net, qdri_gradient_mode mode, int deferred, qdri_schedule *schedule)
{
    QDR_TRY(qdri_net_backward_tasks(net, mode, deferred, schedule));
    return set_waits(net, schedule);
}

qdr_status qdri_net_layer_forward(qdri_net *net, int node, int accumulate_y, qdri_schedule *schedule)
{
    QDR_TRY(qdri_net_layer_forward_tasks(net, node, accumulate_y, schedule));
    return set_waits(net, schedule);
}

qdr_status qdri_net_layer_backward(qdri_net *net, int node, int flags, qdri_gradient_mode mode, qdri_schedule *schedule)
{
    QDR_TRY(qdri_net_layer_backward_tasks(net, node, flags, mode, schedule));
    return set_waits(net, schedule);
}

/* The task list of a single layer is built again at each call; here once for each of its variants, so that memory
 * suffices. */
static qdr_status try_layer_calls(qdri_net *net, int node, qdri_schedule *single)
{
    static const int dx_flags[] = {0, QDR_DX_ACCUMULATE, QDR_NO_DX};
    for (int accumulate = 0; accumulate < 2; accumulate++)
        QDR_TRY(qdri_net_layer_forward(net, node, accumulate, single));
    for (int mode = QDRI_GRADIENT_OVERWRITE; mode <= QDRI_GRADIENT_ADD_TO_COMPLETE; mode++)
        for (int i = 0; i < 3 && !net->shares_parameters; i++)
            QDR_TRY(qdri_net_layer_backward(net, node, dx_flags[i], (qdri_gradient_mode)mode, single));
    return QDR_OK;
}

int qdri_net_runs_whole(const qdri_net *net)
{
    if (net->opts.caller_activations) return 0;
    for (int i = 0; i < net->n_nodes; i++) {
        const int out = net->nodes[i].out;
        if (out >= 0 && net->edges[out].n_uses == 0 && i < net->n_nodes - 1) return 0;
    }
    return net->n_nodes > 0;
}

static void place_edges(qdri_net *net)
{
    const int last = net->n_nodes ? net->nodes[net->n_nodes - 1].out : -1;
    if (last >= 0) net->edges[last].keeps_gradient = 1;
    for (int i = 0; i < net->n_edges && net->shares_parameters; i++) net->edges[i].keeps_gradient = 0;
    if (net->opts.caller_activations) return;
    for (int i = 0; i < net->n_edges; i++) {
        qdri_edge *edge = &net->edges[i];
        edge->value = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, qdri_edge_bytes(edge));
        if (edge->keeps_gradient)
            edge->gradient = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, qdri_edge_bytes(edge));
    }
}

/* The saved state and workspace of operations. They run on one stream only, so the workspace is not a slot of the
 * pool. */
static void place_operations(qdri_net *net)
{
    size_t work_bytes = 0;
    for (int i = 0; i < net->n_nodes; i++) {
        qdri_node *node = &net->nodes[i];
        if (qdri_node_is_layer(node)) continue;
        if (node->saved_bytes) node->saved = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, node->saved_bytes);
        if (node->work_bytes > work_bytes) work_bytes = node->work_bytes;
    }
    net->op_work = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, work_bytes);
    const int n_parts = qdri_net_batch_parts(net); /* at least 2, which may be chosen later */
    net->loss = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS,
                                 (size_t)(n_parts > 2 ? n_parts : 2) * 4 * sizeof(double));
}

/* A gathered X is kept for dW. */
static void place_nodes(qdri_net *net)
{
    for (int i = 0; i < net->n_nodes; i++) {
        qdri_node *node = &net->nodes[i];
        if (!qdri_node_is_layer(node)) continue;
        if (node->u.layer.shape.in_scattered && !node->u.layer.shape.drop_gathered) {
            const size_t bytes = (size_t)net->cell_rows * (size_t)node->u.layer.shape.k *
                                 qdr_dtype_bytes(net->opts.dtype);
            node->u.layer.gathered = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, bytes);
        }
    }
    if (!net->opts.caller_activations) place_operations(net);
}

static qdr_status make_schedules_once(qdri_net *net, qdri_net_lists *lists)
{
    for (int i = 0; i < net->n_nodes; i++)
        if (net->nodes[i].kind == QDRI_NODE_LINEAR) QDR_TRY(try_layer_calls(net, i, &lists->single));
    if (!qdri_net_runs_whole(net)) return QDR_OK;
    QDR_TRY(qdri_net_forward(net, &lists->forward));
    for (int i = 0; i < QDRI_N_BACKWARDS && !net->shares_parameters; i++)
        QDR_TRY(qdri_net_backward(net, (qdri_gradient_mode)(i / 2), i % 2, &lists->backward[i]));
    return QDR_OK;
}

/* Repeats until no slot grows: a list that is built again at a call then gets the same slots as here. Slots only grow,
 * and never beyond the largest request, so this terminates; usually after two rounds. */
static qdr_status make_schedules(qdri_net *net, qdri_net_lists *lists)
{
    for (int64_t before = -1, n_before = -1;;) {
        QDR_TRY(make_schedules_once(net, lists));
        const int64_t bytes = qdri_buffers_pool_bytes(&net->buffers);
        if (bytes == before && net->buffers.n == n_before) return QDR_OK;
        before = bytes;
        n_before = net->buffers.n;
    }
}

/* All ranks prefetch the same number of weights, whatever the sizes of their blocks. */
static void choose_prefetch(qdri_net *net)
{
    const size_t each = qdri_largest_gathered_bytes(net);
    const size_t n_slots = each ? net->opts.prefetch_bytes / each : 0;
    const size_t most = (size_t)net->n_parameters + 2;
    if (net->opts.prefetch > 0) return;
    net->opts.prefetch = n_slots < 2 ? 1 : (int)(n_slots < most ? n_slots : most) - 1;
}

qdr_status qdri_net_place(qdri_net *net)
{
    if (net->is_placed) return QDR_OK;
    net->is_placed = 1;
    qdri_net_set_panels(net, net->opts.panels, net->opts.batch_parts);
    choose_prefetch(net);
    qdri_parameters_place(net);
    place_edges(net);
    place_nodes(net);
    return net->buffers.status;
}

qdr_status qdri_net_build(qdri_net *net, qdri_net_lists *lists)
{
    QDR_TRY(qdri_net_place(net));
    lists->forward.n_tasks = 0;
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) lists->backward[i].n_tasks = 0;
    QDR_TRY(make_schedules(net, lists));
    QDR_TRY(qdri_buffers_finish(&net->buffers));
    if (net->shares_parameters) net->buffers.region_bytes[QDRI_PARAMETERS] = 0;
    return QDR_OK;
}

void qdri_net_lists_free(qdri_net_lists *lists)
{
    qdri_schedule_free(&lists->forward);
    qdri_schedule_free(&lists->single);
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) qdri_schedule_free(&lists->backward[i]);
}
