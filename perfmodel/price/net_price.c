/* SPDX-License-Identifier: Apache-2.0 */
/* The price of a list of any net: of a stack, or of the layers of a network. */
#include "schedule/net_price.h"

#include <stdlib.h>
#include <string.h>

#include "core/group.h"
#include "core/order.h"
#include "core/sized.h"
#include "network/describe.h"
#include "price/gemm.h"
#include "price/model.h"
#include "schedule/panel_search.h"

/* secs: of each task; NULL: not wanted. end_secs: of the list, without and with the host that enqueues it. */
static qdr_status price_list(const qdri_pricing *pricing, const qdri_schedule *schedule, double *secs,
                             double end_secs[2])
{
    qdri_step_work work = {.capacity = 0};
    qdri_sim_times times;
    double host_secs = 0;
    const qdr_status status = qdri_step_work_reserve(&work, schedule->n_tasks);
    if (status == QDR_OK) {
        for (int i = 0; i < schedule->n_tasks; i++) {
            const qdri_task_price price = qdri_task_price_of(pricing, &schedule->tasks[i]);
            work.prices[i] = price.price;
            host_secs += price.host_secs;
            if (secs) secs[i] = price.secs;
        }
        qdri_simulate(pricing->machine, schedule, work.prices, work.next, &times, NULL);
        end_secs[0] = times.end_secs;
        end_secs[1] = qdri_secs_with_host(&pricing->machine->software, times.end_secs, host_secs);
    }
    qdri_step_work_free(&work);
    return status;
}

/* Products of a type without a peak would never end. */
static qdr_status check(const qdri_net *net, const qdr_machine *machine)
{
    QDR_TRY(qdr_machine_check(machine, machine->name));
    if (qdri_machine_products(machine, net->opts.dtype)->peak_flops > 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_DTYPE, "price: %s has no peak for %s; add one to the machine's file", machine->name,
                    qdr_dtype_name(net->opts.dtype));
}

/* The pricing points to the plan. */
static void pricing_of_net(const qdri_net *net, const char *order, const qdr_machine *machine, qdr_plan *plan,
                           qdri_pricing *pricing)
{
    const qdri_position *at = &net->position;
    const int *size = at->size, near = at->near > 1 ? at->near : 1, far = at->far > 1 ? at->far : 1;
    *plan = (qdr_plan){QDR_INIT(qdr_plan),
                       .x = size[QDR_X],
                       .y = size[QDR_Y],
                       .z = size[QDR_Z],
                       .d = size[QDR_D],
                       .gradient_parts = size[QDR_Z] * near,
                       .optimizer_parts = size[QDR_Z] * near * far,
                       .codecs = net->coding.codecs,
                       .dtype = net->opts.dtype};
    memcpy(plan->order, order, 4);
    qdri_pricing_place(machine, plan, pricing);
}

qdr_status qdri_net_price(const qdri_net *net, const char *order, const qdr_machine *machine,
                          const qdri_schedule *schedule, double *secs, double *end_secs)
{
    qdr_plan plan;
    qdri_pricing pricing;
    QDR_TRY(check(net, machine));
    pricing_of_net(net, order, machine, &plan, &pricing);
    double ends[2] = {0};
    QDR_TRY(price_list(&pricing, schedule, secs, ends));
    *end_secs = ends[0];
    return QDR_OK;
}

int qdri_net_sample(const qdri_net *net, const char *order, const qdri_task *task, qdr_sample *sample)
{
    return qdri_task_sample(task, &net->position, order, sample);
}

/* ---- panels and parts ---- */

/* Nodes are alike after the first layers: of a long net only so many are priced. */
enum { MOST_PRICED_NODES = 64 };

/* One forward and one backward pass, a step of one micro-batch, or the calls of all layers. */
static qdr_status net_secs(qdri_net *net, const qdri_pricing *pricing, qdri_schedule *schedule, double *sum)
{
    const int is_whole = qdri_net_runs_whole(net);
    *sum = 0;
    for (int i = 0; i < (is_whole ? 1 : net->n_nodes); i++) {
        double secs[2] = {0};
        if (!is_whole && net->nodes[i].kind != QDRI_NODE_LINEAR) continue;
        QDR_TRY(is_whole ? qdri_net_forward(net, qdri_has_levels(&net->position), schedule)
                         : qdri_net_layer_forward(net, i, 0, schedule));
        QDR_TRY(price_list(pricing, schedule, NULL, secs));
        *sum += secs[1];
        if (net->shares_parameters) continue;
        QDR_TRY(is_whole ? qdri_net_backward(net, QDRI_GRADIENT_OVERWRITE, 0, schedule)
                         : qdri_net_layer_backward(net, i, 0, QDRI_GRADIENT_OVERWRITE, schedule));
        QDR_TRY(price_list(pricing, schedule, NULL, secs));
        *sum += secs[1];
    }
    return QDR_OK;
}

static qdr_status choose(qdri_net *net, const qdri_pricing *pricing, qdri_schedule *schedule)
{
    qdri_panel_search search;
    double secs = 0;
    qdri_panel_search_begin(&search, net->opts.panels, net->opts.batch_parts, qdri_net_sums(net),
                            qdri_net_scatters(net));
    while (qdri_panel_search_next(&search)) {
        qdri_net_set_panels(net, search.panels, search.batch_parts);
        QDR_TRY(net_secs(net, pricing, schedule, &secs));
        qdri_panel_search_note(&search, secs, 0);
    }
    const qdri_panel_trial *best = &search.tried[qdri_panel_search_best(&search)];
    qdri_net_set_panels(net, best->panels, best->batch_parts);
    return QDR_OK;
}

qdr_status qdri_net_choose_panels(qdri_net *net, const char *order, const qdr_machine *machine)
{
    const int n_nodes = net->n_nodes;
    qdr_plan plan;
    qdri_pricing pricing;
    qdri_schedule schedule = {0};
    QDR_TRY(check(net, machine));
    pricing_of_net(net, order, machine, &plan, &pricing);
    if (n_nodes > 2 * MOST_PRICED_NODES) net->n_nodes = MOST_PRICED_NODES;
    while (net->n_nodes < n_nodes && net->nodes[net->n_nodes].segment &&
           net->nodes[net->n_nodes].segment == net->nodes[net->n_nodes - 1].segment)
        net->n_nodes++; /* whole segments */
    const qdr_status status = choose(net, &pricing, &schedule);
    net->n_nodes = n_nodes;
    qdri_net_set_panels(net, net->opts.panels, net->opts.batch_parts); /* of all nodes */
    qdri_schedule_free(&schedule);
    return status;
}

/* ---- layers alone ---- */

static qdr_status layers_time(const qdr_model *model, const qdr_plan *plan, int n_layers, qdri_net *net,
                              qdri_schedule *schedule, double secs[2])
{
    const int64_t context = plan->sequence ? plan->sequence : model->network.context;
    const qdri_position position = qdri_plan_position(plan);
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),
                                 .n_rows = plan->batch * context,
                                 .row_unit = context,
                                 .dtype = plan->dtype,
                                 .overlap = plan->overlap,
                                 .panels = plan->panels,
                                 .batch_parts = plan->batch_parts};
    double ends[2] = {0};
    qdr_plan whole = *plan; /* all sequences at once */
    qdri_pricing pricing;
    whole.micro_batch = 0;
    whole.pipeline = 0;
    qdri_pricing_make(&model->machine, &model->network, &whole, &pricing);
    QDR_TRY(qdri_describe(net, &model->network, &position, &opts, context, plan->layout, n_layers, NULL));
    const qdri_coding coding = qdri_plan_coding(plan, model->machine.ranks_per_node);
    qdri_net_set_coding(net, &coding);
    QDR_TRY(qdri_net_place(net));
    QDR_TRY(qdri_net_choose_panels(net, plan->order[0] ? plan->order : QDRI_USUAL_ORDER, &model->machine));
    QDR_TRY(qdri_net_forward(net, qdri_plan_has_levels(plan), schedule));
    QDR_TRY(price_list(&pricing, schedule, NULL, ends));
    secs[0] = ends[0];
    QDR_TRY(qdri_net_backward(net, QDRI_GRADIENT_OVERWRITE, 0, schedule));
    QDR_TRY(price_list(&pricing, schedule, NULL, ends));
    secs[1] = ends[0];
    return QDR_OK;
}

qdr_status qdr_model_layers_time(const qdr_model *model, const qdr_plan *plan, int n_layers, double *forward_secs,
                                 double *backward_secs)
{
    qdr_plan own;
    if (!model || !forward_secs || !backward_secs)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "layers: the model or a result pointer is NULL");
    *forward_secs = *backward_secs = 0;
    if (n_layers < 1 || n_layers > 1024)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "layers: %d layers; use 1 to 1024", n_layers);
    QDR_TRY(QDRI_TAKE(qdr_plan, plan, &own));
    QDR_TRY(qdri_plan_check(model, &own));
    qdri_net net;
    qdri_schedule schedule = {0};
    double secs[2] = {0};
    memset(&net, 0, sizeof net);
    const qdr_status status = layers_time(model, &own, n_layers, &net, &schedule, secs);
    qdri_schedule_free(&schedule);
    qdri_net_free(&net);
    if (status != QDR_OK) return status;
    *forward_secs = secs[0];
    *backward_secs = secs[1];
    return QDR_OK;
}
