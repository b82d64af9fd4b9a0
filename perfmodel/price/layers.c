/* SPDX-License-Identifier: Apache-2.0 */
/* Layers alone: the complete lists of a net with this number of layers, each task priced with its own extents. */
#include <stdlib.h>
#include <string.h>

#include "core/order.h"
#include "core/size.h"
#include "price/model.h"

/* The extents of the task being priced are stored in places that no operation's columns use. */
static const qdri_size place_m = QDRI_SIZE_ROWS, place_n = QDRI_SIZE_SHARD_QKV, place_k = QDRI_SIZE_SHARD_PROJ;

static qdri_price price_of(const qdri_net *net, const qdri_task *task, qdri_pricing *pricing)
{
    const qdri_node *node = &net->nodes[task->node];
    qdri_role role = {.kind = task->kind,
                      .whose = QDRI_OF_LAYER,
                      .trans_a = task->trans_a,
                      .trans_b = task->trans_b,
                      .accumulate = task->accumulate != 0,
                      .is_gradient = task->overlap_class == QDRI_CLASS_GRADIENTS ||
                                     (task->kind == QDRI_TASK_PRODUCT && task->trans_a),
                      .m = place_m,
                      .n = place_n,
                      .k = place_k};
    double *of = pricing->sizes.of;
    of[place_m] = (double)task->m;
    of[place_n] = (double)task->n;
    of[place_k] = (double)task->k;
    if (task->kind == QDRI_TASK_FORWARD || task->kind == QDRI_TASK_BACKWARD) {
        role.node_kind = node->kind;
        role.is_gate = node->kind == QDRI_NODE_USER && strcmp(node->name, "gate") == 0;
        role.gathers_keys = node->kind == QDRI_NODE_ATTENTION && node->u.attention.keys.gathered;
    } else if (task->kind == QDRI_TASK_COLLECTIVE) {
        role.coll = task->coll;
        role.channel = task->channel;
        role.m = QDRI_SIZE_ONE;
        role.per_member = qdri_task_counts_part(task);
        of[place_n] = (double)task->count;
    }
    return qdri_role_price_of(pricing, &role).price;
}

static qdr_status simulate(const qdri_net *net, const qdri_schedule *schedule, qdri_pricing *pricing, double *secs)
{
    const qdri_sim_slowdown slowdown = qdri_sim_slowdown_of(pricing->machine);
    qdri_price *prices = NULL;
    int *next = NULL;
    qdri_sim_list list;
    qdri_sim_times times;
    QDR_TRY(QDRI_NEW(schedule->n_tasks, "prices of tasks", &prices));
    const qdr_status status = QDRI_NEW(schedule->n_tasks, "prices of tasks", &next);
    if (status == QDR_OK) {
        for (int i = 0; i < schedule->n_tasks; i++) prices[i] = price_of(net, &schedule->tasks[i], pricing);
        qdri_sim_list_make(schedule, next, &list);
        qdri_simulate(&list, prices, &slowdown, &times, NULL);
        *secs = times.end_secs;
    }
    free(next);
    free(prices);
    return status;
}

/* As the runtime passes it to the net: for groups that span nodes, the largest power of two that is at most the number
 * of members on one node. */
static void set_node_members(const qdr_machine *machine, const qdr_plan *plan, int node_members[QDR_N_AXES])
{
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    int stride[QDR_N_AXES];
    qdri_order_strides(size, plan->order[0] ? plan->order : QDRI_USUAL_ORDER, stride);
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        int members = 1;
        while (2 * members * stride[axis] <= machine->ranks_per_node) members *= 2;
        node_members[axis] = (size[axis] - 1) * stride[axis] >= machine->ranks_per_node ? members : 0;
    }
}

static qdr_status describe(const qdr_model *model, const qdr_plan *plan, int n_layers, qdri_net *net)
{
    const int64_t context = plan->sequence ? plan->sequence : model->network.context;
    const qdri_place place = {.size = {plan->x, plan->y, plan->z, plan->d}};
    const qdr_stack_opts opts = {.version = QDR_OPTS_INIT,
                                 .n_rows = plan->batch * context,
                                 .row_unit = context,
                                 .dtype = plan->dtype,
                                 .overlap = plan->overlap};
    int node_members[QDR_N_AXES];
    qdri_net_lists lists = {.single = {0}};
    set_node_members(&model->machine, plan, node_members);
    QDR_TRY(qdri_describe_layers(net, &model->network, &place, node_members, &opts, context, plan->layout, n_layers));
    const qdr_status status = qdri_net_build(net, &lists);
    qdri_net_lists_free(&lists);
    return status;
}

static qdr_status layers_time(const qdr_model *model, const qdr_plan *plan, int n_layers, qdri_net *net,
                              qdri_schedule *schedule, double secs[2])
{
    qdr_plan whole = *plan; /* all sequences at once */
    qdri_pricing pricing;
    whole.micro_batch = 0;
    whole.pipeline = 0;
    QDR_TRY(describe(model, &whole, n_layers, net));
    qdri_pricing_make(&model->machine, &model->network, &whole, n_layers, &pricing);
    QDR_TRY(qdri_net_forward(net, schedule));
    QDR_TRY(simulate(net, schedule, &pricing, &secs[0]));
    QDR_TRY(qdri_net_backward(net, QDRI_GRADIENT_OVERWRITE, 0, schedule));
    return simulate(net, schedule, &pricing, &secs[1]);
}

qdr_status qdr_model_layers_time(const qdr_model *model, const qdr_plan *plan, int n_layers, double *forward_secs,
                                 double *backward_secs)
{
    if (!model || !plan || !forward_secs || !backward_secs)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "layers: the model, the plan or a result pointer is NULL");
    *forward_secs = *backward_secs = 0;
    if (n_layers < 1 || n_layers > 1024)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "layers: %d layers; use 1 to 1024", n_layers);
    QDR_TRY(qdri_plan_check(model, plan));
    qdri_net net;
    qdri_schedule schedule = {0};
    double secs[2] = {0};
    memset(&net, 0, sizeof net);
    const qdr_status status = layers_time(model, plan, n_layers, &net, &schedule, secs);
    qdri_schedule_free(&schedule);
    qdri_net_free(&net);
    if (status != QDR_OK) return status;
    *forward_secs = secs[0];
    *backward_secs = secs[1];
    return QDR_OK;
}
