/* SPDX-License-Identifier: Apache-2.0 */
/* Prices of the tasks of any net. Each task becomes a role whose named extents have the task's own values, so that the
 * formulas of price.c apply. */
#include "schedule/net_price.h"

#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "price/gemm.h"
#include "price/price.h"

/* The extents of a task, stored in the sizes of its pricing. */
static const qdri_size of_m = QDRI_SIZE_ROWS, of_n = QDRI_SIZE_ROWS_X, of_k = QDRI_SIZE_ROWS_Y;

/* The list whose tasks are being priced. */
typedef struct pricing_net {
    const qdri_net *net;
    qdr_plan plan, turned_plan;
    qdri_pricing straight; /* norms have their columns over x, everything else over y, as in a transformer */
    qdri_pricing turned; /* x and y swapped */
    int *next;
    qdri_price *prices;
} pricing_net;

/* ---- the machine and the grid ---- */

static qdr_plan plan_of(const qdri_net *net, const char *order)
{
    const int *size = net->place.size;
    qdr_plan plan = {.version = QDR_OPTS_INIT,
                     .x = size[QDR_X],
                     .y = size[QDR_Y],
                     .z = size[QDR_Z],
                     .d = size[QDR_D],
                     .dtype = net->opts.dtype,
                     .batch = 1};
    memcpy(plan.order, order, 4);
    return plan;
}

static void begin_pricing(pricing_net *p, const char *order, const qdr_machine *machine)
{
    /* Only the placement of ranks matters here; extents come from the tasks. */
    static const qdr_network nothing = {.version = QDR_OPTS_INIT,
                                        .layers = 1,
                                        .hidden = 1,
                                        .heads = 1,
                                        .kv_heads = 1,
                                        .head_size = 1,
                                        .ffn = 1,
                                        .vocab = 1,
                                        .context = 1};
    p->plan = p->turned_plan = plan_of(p->net, order);
    qdri_pricing_make(machine, &nothing, &p->plan, 1, &p->straight);
    p->turned = p->straight;
    p->turned.plan = &p->turned_plan;
    p->turned_plan.x = p->plan.y;
    p->turned_plan.y = p->plan.x;
    p->turned.ways[QDR_X] = p->straight.ways[QDR_Y];
    p->turned.ways[QDR_Y] = p->straight.ways[QDR_X];
}

/* ---- operations ---- */

static double columns_of(const qdri_net *net, int edge) { return (double)net->edges[edge].owned.n_cols; }

/* Sets its columns, by the names used in the formulas; returns whether its sums run over the other axis. */
static int set_columns(const qdri_net *net, const qdri_node *node, qdri_sizes *sizes)
{
    const qdr_attention *local = &node->u.attention.local;
    switch (node->kind) {
    case QDRI_NODE_NORM: sizes->of[QDRI_SIZE_HIDDEN] = columns_of(net, node->in[0]); return node->u.norm.axis != QDR_X;
    case QDRI_NODE_ATTENTION:
        sizes->heads = (double)local->n_heads;
        sizes->context = (double)local->context;
        sizes->seen = (sizes->context + 1) / 2;
        sizes->of[QDRI_SIZE_QUERIES] = sizes->heads * (double)local->head_size;
        sizes->of[QDRI_SIZE_QKV] = columns_of(net, node->in[0]);
        return node->u.attention.keys.axis != QDR_Y;
    case QDRI_NODE_CROSS_ENTROPY:
        sizes->of[QDRI_SIZE_VOCAB] = columns_of(net, node->in[0]);
        return node->u.cross_entropy.axis != QDR_Y;
    default: sizes->of[QDRI_SIZE_HIDDEN] = sizes->of[QDRI_SIZE_FFN] = columns_of(net, node->in[0]); return 0;
    }
}

/* The caller's own operation: as it states itself. */
static qdri_price own_price(const qdri_net *net, const qdri_task *task, const qdr_machine *machine)
{
    const qdri_node *node = &net->nodes[task->node];
    const int forward = task->kind == QDRI_TASK_FORWARD;
    const double rows = (double)net->edges[node->in[0]].owned.n_rows;
    const double bytes = forward ? node->cost.forward_bytes : node->cost.backward_bytes;
    const double share = rows > 0 ? (double)task->m / rows : 0;
    return (qdri_price){.latency_secs = machine->software.launch_secs,
                        .work_secs = qdri_kernel_secs(machine, share * bytes, task->flops)};
}

static qdri_price operation_price(const pricing_net *p, const qdri_task *task)
{
    const qdri_node *node = &p->net->nodes[task->node];
    qdri_pricing pricing = p->straight;
    const qdri_role role = {.kind = task->kind,
                            .node_kind = node->kind,
                            .gathers_keys = node->kind == QDRI_NODE_ATTENTION && node->u.attention.keys.gathered,
                            .m = of_m};
    if (node->kind == QDRI_NODE_USER) return own_price(p->net, task, p->straight.machine);
    if (node->kind == QDRI_NODE_ATTENTION && node->u.attention.local.n_heads == 0)
        return (qdri_price){.latency_secs = 0};
    if (set_columns(p->net, node, &pricing.sizes)) {
        pricing = p->turned;
        (void)set_columns(p->net, node, &pricing.sizes);
    }
    pricing.sizes.of[of_m] = (double)task->m;
    return qdri_role_price_of(&pricing, &role).price;
}

/* ---- other tasks ---- */

static qdri_price collective_price(const pricing_net *p, const qdri_task *task)
{
    qdri_pricing pricing = p->straight;
    const qdri_role role = {.kind = task->kind,
                            .coll = task->coll,
                            .channel = task->channel,
                            .per_member = qdri_task_counts_part(task),
                            .m = QDRI_SIZE_ONE,
                            .n = of_n};
    pricing.sizes.of[QDRI_SIZE_ONE] = 1;
    pricing.sizes.of[of_n] = (double)task->count;
    pricing.sizes.elem_bytes = (double)qdr_dtype_bytes(task->dtype);
    return qdri_role_price_of(&pricing, &role).price;
}

static qdri_price work_price(const pricing_net *p, const qdri_task *task)
{
    qdri_pricing pricing = p->straight;
    const int is_product = task->kind == QDRI_TASK_PRODUCT;
    const qdri_role role = {.kind = task->kind,
                            .trans_a = task->trans_a,
                            .trans_b = task->trans_b,
                            .accumulate = task->accumulate != 0,
                            .is_gradient = is_product && task->trans_a,
                            .m = of_m,
                            .n = of_n,
                            .k = of_k};
    pricing.sizes.of[of_m] = (double)task->m;
    pricing.sizes.of[of_n] = (double)task->n;
    pricing.sizes.of[of_k] = (double)task->k;
    pricing.sizes.elem_bytes = (double)qdr_dtype_bytes(task->dtype);
    pricing.sizes.gradient_bytes = (double)qdr_dtype_bytes(is_product ? task->out_dtype : task->dtype);
    return qdri_role_price_of(&pricing, &role).price;
}

static qdri_price price_of(const pricing_net *p, const qdri_task *task)
{
    switch (task->kind) {
    case QDRI_TASK_COLLECTIVE: return collective_price(p, task);
    case QDRI_TASK_FORWARD:
    case QDRI_TASK_BACKWARD: return operation_price(p, task);
    default: return work_price(p, task);
    }
}

/* ---- lists ---- */

static double simulate(const pricing_net *p, const qdri_schedule *schedule)
{
    const qdri_sim_slowdown slowdown = qdri_sim_slowdown_of(p->straight.machine);
    qdri_sim_list list;
    qdri_sim_times times;
    qdri_sim_list_make(schedule, p->next, &list);
    qdri_simulate(&list, p->prices, &slowdown, &times, NULL);
    return times.end_secs;
}

static qdr_status check(const qdri_net *net, const qdr_machine *machine)
{
    QDR_TRY(qdr_machine_check(machine, machine->name));
    if (qdri_machine_products(machine, net->opts.dtype)->peak_flops > 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_DTYPE, "price: %s has no peak for %s", machine->name, qdr_dtype_name(net->opts.dtype));
}

qdr_status qdri_net_price(const qdri_net *net, const char *order, const qdr_machine *machine,
                          const qdri_schedule *schedule, double *secs, double *end_secs)
{
    pricing_net p = {.net = net};
    QDR_TRY(check(net, machine));
    qdr_status status = QDRI_NEW(schedule->n_tasks, "prices", &p.prices);
    if (status == QDR_OK) status = QDRI_NEW(schedule->n_tasks, "prices", &p.next);
    QDR_TRY_OUT(status, status);
    begin_pricing(&p, order, machine);
    for (int i = 0; i < schedule->n_tasks; i++) {
        p.prices[i] = price_of(&p, &schedule->tasks[i]);
        secs[i] = p.prices[i].latency_secs + p.prices[i].work_secs;
    }
    *end_secs = simulate(&p, schedule);
out:
    free(p.prices);
    free(p.next);
    return status;
}
