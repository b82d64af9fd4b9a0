/* SPDX-License-Identifier: Apache-2.0 */
/* The memory plan of a net, and all its task lists. */
#include <stdlib.h>
#include <string.h>

#include "core/group.h"
#include "core/size.h"
#include "quadrille/linear.h"
#include "schedule/ops/op.h"

/* ---- panels and parts ---- */

void qdri_net_set_panels(qdri_net *net, int panels, int batch_parts)
{
    net->opts.panels = panels;
    net->opts.batch_parts = batch_parts;
    for (int i = 0; i < net->n_nodes; i++) {
        qdri_layer *layer = &net->nodes[i].layer;
        if (net->nodes[i].kind != QDRI_NODE_LINEAR) continue;
        int n = layer->panels ? layer->panels : panels;
        if (n > layer->shape.m) n = (int)layer->shape.m;
        layer->shape.forward_panels = layer->shape.backward_panels = n < 1 ? 1 : n;
    }
}

/* ---- places ---- */

static void place_edges(qdri_net *net)
{
    const int last = net->n_nodes ? net->nodes[net->n_nodes - 1].out : -1;
    if (last >= 0) net->edges[last].keeps_gradient = 1;
    for (int i = 0; i < net->n_edges && net->shares_parameters; i++) net->edges[i].keeps_gradient = 0;
    if (net->opts.caller_activations) return;
    for (int i = 0; i < net->n_edges; i++) {
        qdri_edge *edge = &net->edges[i];
        if (!edge->passes) edge->value = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, qdri_edge_bytes(edge));
        if (edge->keeps_gradient)
            edge->gradient = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, qdri_edge_bytes(edge));
    }
}

static void place_nodes(qdri_net *net)
{
    /* A gathered X is kept for dW. */
    for (int i = 0; i < net->n_nodes; i++) {
        qdri_node *node = &net->nodes[i];
        if (!qdri_node_is_layer(node)) continue;
        node->layer.shape.drop_gathered |= net->shares_parameters;
        if (node->layer.shape.in_scattered && !node->layer.shape.drop_gathered && !node->layer.gathered_passes) {
            const size_t bytes = (size_t)net->cell_rows * (size_t)node->layer.shape.k *
                                 qdr_dtype_bytes(net->opts.dtype);
            node->layer.gathered = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, bytes);
        }
    }
    if (net->opts.caller_activations) return;
    /* The saved state and workspace of operations, which run on one stream only and share it. */
    size_t work_bytes = 0;
    for (int i = 0; i < net->n_nodes; i++) {
        qdri_node *node = &net->nodes[i];
        if (qdri_node_is_layer(node)) continue;
        if (node->saved_bytes && !node->saved_passes)
            node->saved = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, node->saved_bytes);
        if (node->work_bytes > work_bytes) work_bytes = node->work_bytes;
    }
    qdri_rotations_place(net);
    net->op_work = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS, work_bytes);
    const int n_parts = qdri_net_batch_parts(net); /* at least 2, which may be chosen later */
    net->loss = qdri_buffers_add(&net->buffers, QDRI_ACTIVATIONS,
                                 (size_t)(n_parts > 2 ? n_parts : 2) * 4 * sizeof(double));
}

/* ---- layers that run alone: each list is made when it is first needed, and kept ---- */

enum {
    LAYER_FORWARD, /* 1 more: adds to Y */
    LAYER_BACKWARD = LAYER_FORWARD + 2, /* QDRI_N_BACKWARDS each with dX overwritten, added to, not wanted */
    LAYER_RETURNS = LAYER_BACKWARD + 3 * QDRI_N_BACKWARDS,
    N_LAYER_LISTS
};
struct qdri_layer_lists {
    qdri_schedule of[N_LAYER_LISTS];
};

/* Empties the lists of an older net. */
static void begin_lists(qdri_net_lists *lists)
{
    for (int i = 0; i < lists->n_layers; i++) {
        for (int j = 0; lists->layers[i] && j < N_LAYER_LISTS; j++) qdri_schedule_free(&lists->layers[i]->of[j]);
        free(lists->layers[i]);
    }
    free(lists->layers);
    lists->layers = NULL;
    lists->n_layers = 0;
    lists->forward.n_tasks = lists->first_forward.n_tasks = lists->returns.n_tasks = lists->loss.n_tasks = 0;
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) lists->backward[i].n_tasks = 0;
}

void qdri_net_lists_free(qdri_net_lists *lists)
{
    begin_lists(lists);
    qdri_schedule_free(&lists->forward);
    qdri_schedule_free(&lists->first_forward);
    qdri_schedule_free(&lists->returns);
    qdri_schedule_free(&lists->loss);
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) qdri_schedule_free(&lists->backward[i]);
}

static qdr_status find_list(const qdri_net *net, qdri_net_lists *lists, int node, int number, qdri_schedule **list)
{
    if (!lists->layers) {
        QDR_TRY(QDRI_NEW(net->n_nodes, "the lists of layers", &lists->layers));
        lists->n_layers = net->n_nodes;
    }
    if (!lists->layers[node]) QDR_TRY(QDRI_NEW(1, "the lists of a layer", &lists->layers[node]));
    *list = &lists->layers[node]->of[number];
    return QDR_OK;
}

/* A list that could not be made is made at the next call. */
static qdr_status keep(qdr_status status, qdri_schedule *schedule, const qdri_schedule **list)
{
    if (status != QDR_OK) schedule->n_tasks = 0;
    *list = schedule;
    return status;
}

qdr_status qdri_net_list_layer_forward(qdri_net *net, qdri_net_lists *lists, int node, int accumulate_y,
                                       const qdri_schedule **list)
{
    qdri_schedule *schedule;
    QDR_TRY(find_list(net, lists, node, LAYER_FORWARD + (accumulate_y != 0), &schedule));
    return keep(schedule->n_tasks ? QDR_OK : qdri_net_layer_forward(net, node, accumulate_y, schedule), schedule, list);
}

qdr_status qdri_net_list_layer_backward(qdri_net *net, qdri_net_lists *lists, int node, int flags,
                                        qdri_gradient_mode mode, const qdri_schedule **list)
{
    qdri_schedule *schedule;
    const int dx = flags & QDR_NO_DX ? 2 : (flags & QDR_DX_ACCUMULATE) != 0;
    const int number = dx * QDRI_N_BACKWARDS + 2 * (int)mode + ((flags & QDR_DEFER_SYNC) != 0);
    QDR_TRY(find_list(net, lists, node, LAYER_BACKWARD + number, &schedule));
    return keep(schedule->n_tasks ? QDR_OK : qdri_net_layer_backward(net, node, flags, mode, schedule), schedule, list);
}

qdr_status qdri_net_list_layer_returns(qdri_net *net, qdri_net_lists *lists, int node, const qdri_schedule **list)
{
    qdri_schedule *schedule;
    QDR_TRY(find_list(net, lists, node, LAYER_RETURNS, &schedule));
    return keep(schedule->n_tasks ? QDR_OK : qdri_net_returns(net, node, schedule), schedule, list);
}

/* ---- all of a net ---- */

/* All but where the layer stands, and its name. */
static int have_same_shape(const qdri_layer_shape *a, const qdri_layer_shape *b)
{
    return a->in_axis == b->in_axis && a->out_axis == b->out_axis && a->m == b->m && a->in_rows == b->in_rows &&
           a->out_rows == b->out_rows && a->k == b->k && a->n == b->n && a->in_scattered == b->in_scattered &&
           a->out_scattered == b->out_scattered && a->in_unit == b->in_unit && a->out_unit == b->out_unit &&
           a->shard_elems == b->shard_elems && a->storage == b->storage && a->rounds == b->rounds &&
           a->bias == b->bias && a->drop_gathered == b->drop_gathered && a->forward_panels == b->forward_panels &&
           a->backward_panels == b->backward_panels && a->context == b->context && a->first_row == b->first_row &&
           a->dtype == b->dtype && a->grad_dtype == b->grad_dtype &&
           memcmp(a->algorithms, b->algorithms, sizeof a->algorithms) == 0;
}

/* Whether the lists of an earlier layer need the same memory, if they run alone. */
static int is_measured(const qdri_net *net, int node)
{
    const qdri_layer *b = &net->nodes[node].layer;
    for (int i = node - 1; i >= 0; i--) {
        const qdri_layer *a = &net->nodes[i].layer;
        if (net->nodes[i].kind == QDRI_NODE_LINEAR && have_same_shape(&a->shape, &b->shape) &&
            (a->bias < 0) == (b->bias < 0) && a->gathered_passes == b->gathered_passes &&
            a->shares_first == b->shares_first && a->shares_last == b->shares_last)
            return 1;
    }
    return 0;
}

/* Makes the variants of a layer's lists, so that the workspace suffices for all of them. Those that are left out have
 * the same values, used in the same order. */
static qdr_status measure_layer(qdri_net *net, int node, qdri_schedule *schedule)
{
    static const int dx_flags[] = {0, QDR_DX_ACCUMULATE, QDR_NO_DX};
    for (int accumulate = 0; accumulate < 2; accumulate++)
        QDR_TRY(qdri_net_layer_forward(net, node, accumulate, schedule));
    for (int mode = QDRI_GRADIENT_OVERWRITE; mode <= QDRI_GRADIENT_ADD_TO_PARTIAL; mode++)
        for (int i = 0; i < 3 && !net->shares_parameters; i++)
            QDR_TRY(qdri_net_layer_backward(net, node, dx_flags[i], (qdri_gradient_mode)mode, schedule));
    return QDR_OK;
}

static qdr_status measure_layers(qdri_net *net)
{
    qdri_schedule schedule = {.tasks = NULL};
    qdr_status status = QDR_OK;
    for (int i = 0; i < net->n_nodes && status == QDR_OK; i++)
        if (net->nodes[i].kind == QDRI_NODE_LINEAR && !is_measured(net, i)) status = measure_layer(net, i, &schedule);
    qdri_schedule_free(&schedule);
    return status;
}

qdr_status qdri_net_place(qdri_net *net)
{
    if (net->is_placed) return QDR_OK;
    net->is_placed = 1;
    qdri_net_set_panels(net, net->opts.panels, net->opts.batch_parts);
    if (net->opts.prefetch <= 0) { /* All ranks prefetch the same number of weights, whatever their blocks' sizes. */
        const size_t each = qdri_largest_gathered_bytes(net), most = (size_t)net->n_parameters + 2;
        const size_t n_slots = each ? net->opts.prefetch_bytes / each : 0;
        net->opts.prefetch = n_slots < 2 ? 1 : (int)(n_slots < most ? n_slots : most) - 1;
    }
    qdri_parameters_place(net);
    QDR_TRY(qdri_net_choose_lives(net));
    place_edges(net);
    place_nodes(net);
    return net->buffers.status;
}

void qdri_net_unplace(qdri_net *net)
{
    net->is_placed = 0;
    net->buffers.n = net->workspace.buffer + 1; /* those of an empty net */
    net->n_small = 0;
    for (int i = 0; i < net->n_edges; i++) net->edges[i].value = net->edges[i].gradient = QDRI_NO_REF;
    for (int i = 0; i < net->n_nodes; i++) net->nodes[i].saved = net->nodes[i].layer.gathered = QDRI_NO_REF;
}

qdr_status qdri_net_build(qdri_net *net, qdri_net_lists *lists)
{
    QDR_TRY(qdri_net_place(net));
    begin_lists(lists);
    net->buffers.items[net->workspace.buffer].bytes = 0; /* not of lists that were only tried */
    net->most_tasks = 0;
    QDR_TRY(measure_layers(net));
    if (qdri_has_levels(&net->position)) QDR_TRY(qdri_net_returns(net, -1, &lists->returns));
    if (qdri_net_runs_whole(net)) {
        QDR_TRY(qdri_net_forward(net, 0, &lists->forward));
        if (qdri_has_levels(&net->position)) QDR_TRY(qdri_net_forward(net, 1, &lists->first_forward));
        if (qdri_net_find_loss(net)) QDR_TRY(qdri_net_loss(net, &lists->loss));
        for (int i = 0; i < QDRI_N_BACKWARDS && !net->shares_parameters; i++)
            QDR_TRY(qdri_net_backward(net, (qdri_gradient_mode)(i / 2), i % 2, &lists->backward[i]));
    }
    QDR_TRY(qdri_buffers_finish(&net->buffers));
    if (net->shares_parameters) net->buffers.region_bytes[QDRI_PARAMETERS] = 0;
    return QDR_OK;
}

/* ---- other codecs ---- */

static void change_list(const qdri_net *net, qdri_schedule *list)
{
    for (int i = 0; i < list->n_tasks; i++)
        if (list->tasks[i].kind == QDRI_TASK_COLLECTIVE)
            qdri_task_set_codec(&net->position, &net->coding, &list->tasks[i]);
}

qdr_status qdri_net_change_coding(qdri_net *net, qdri_net_lists *lists, const qdri_coding *coding)
{
    QDR_TRY(qdri_parameters_check_feedback(net, coding));
    qdri_net_set_coding(net, coding);
    change_list(net, &lists->forward);
    change_list(net, &lists->first_forward);
    for (int i = 0; i < QDRI_N_BACKWARDS; i++) change_list(net, &lists->backward[i]);
    for (int i = 0; i < lists->n_layers; i++)
        for (int j = 0; lists->layers[i] && j < N_LAYER_LISTS; j++) change_list(net, &lists->layers[i]->of[j]);
    return QDR_OK;
}
