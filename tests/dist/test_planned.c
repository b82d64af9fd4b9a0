/* SPDX-License-Identifier: Apache-2.0 */
/* The lists that plans are priced by, compared at full depth and task by task with those that stacks of the same
 * network execute: random networks, grids, orders, layouts, types, panels, parts, overlaps. */
#include <stdlib.h>
#include <string.h>

#include "../../examples/common/gpt.h"
#include "dist.h"
#include "linear/internal.h"
#include "network/describe.h"
#include "price/lists.h"

typedef struct planned_case {
    const qdr_grid *grid;
    gpt_config config;
    const char *list; /* being compared */
} planned_case;

static void show(const qdri_schedule *schedule, int i)
{
    const qdri_task *t = &schedule->tasks[i];
    fprintf(stderr,
            "  %d %s of %s: stream %d, m %lld, n %lld, k %lld, count %lld, unit %lld, received %lld, %.17g flops, "
            "%.17g bytes moved, %lld sent, %d reads, %d writes, waits",
            i, qdri_task_name(t), t->name, t->stream, (long long)t->m, (long long)t->n, (long long)t->k,
            (long long)t->count, (long long)t->split_unit, (long long)t->recv_count, t->flops, t->work.bytes,
            (long long)t->bytes_sent, t->n_reads, t->n_writes);
    for (int w = 0; w < t->n_waits; w++) fprintf(stderr, " %d", t->waits[w]);
    fputc('\n', stderr);
}

static int alike_operands(int n, const qdri_ref *a, const qdri_ref *b)
{
    for (int i = 0; i < n; i++)
        if (a[i].bytes != b[i].bytes) return 0;
    return 1;
}

static int alike_work(const qdri_task *a, const qdri_task *b)
{
    return a->kind == b->kind && a->node == b->node && a->accumulate == b->accumulate && a->dtype == b->dtype &&
           a->out_dtype == b->out_dtype && a->m == b->m && a->n == b->n && a->k == b->k && a->context == b->context &&
           a->heads == b->heads && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
           a->zero_tail == b->zero_tail && a->flops == b->flops && a->parameter_gradient == b->parameter_gradient &&
           a->work.bytes == b->work.bytes && a->work.flops == b->work.flops && a->work.n_kernels == b->work.n_kernels &&
           a->work.cost == b->work.cost;
}

static int alike_transfer(const qdri_task *a, const qdri_task *b)
{
    return a->coll == b->coll && a->reduce == b->reduce && a->channel == b->channel && a->count == b->count &&
           a->split_unit == b->split_unit && a->recv_count == b->recv_count && a->peer == b->peer &&
           a->peer2 == b->peer2 && a->bytes_sent == b->bytes_sent;
}

static int alike_waits(const qdri_task *a, const qdri_task *b)
{
    if (a->n_waits != b->n_waits || a->signals != b->signals) return 0;
    for (int i = 0; i < a->n_waits; i++)
        if (a->waits[i] != b->waits[i]) return 0;
    return 1;
}

static int alike(const qdri_task *a, const qdri_task *b)
{
    return alike_waits(a, b) && a->overlap_class == b->overlap_class && a->stream == b->stream &&
           a->n_reads == b->n_reads && a->n_writes == b->n_writes && alike_work(a, b) && alike_transfer(a, b) &&
           alike_operands(a->n_reads, a->reads, b->reads) && alike_operands(a->n_writes, a->writes, b->writes);
}

static void compare(const planned_case *the_case, const qdri_schedule *ran, const qdri_schedule *planned)
{
    int i = 0;
    while (i < ran->n_tasks && i < planned->n_tasks && alike(&ran->tasks[i], &planned->tasks[i])) i++;
    if (i == ran->n_tasks && i == planned->n_tasks && i > 0) return;
    const gpt_config *c = &the_case->config;
    for (int j = i > 2 ? i - 2 : 0; j <= i && j < ran->n_tasks; j++) show(ran, j);
    fprintf(stderr, " planned:\n");
    for (int j = i > 2 ? i - 2 : 0; j <= i && j < planned->n_tasks; j++) show(planned, j);
    DIST_CHECK(0,
               "%s: task %d of %d (planned: %d) differs: %dx%dx%dx%d, %lld layers, hidden %lld, %lld heads, context "
               "%lld, vocab %lld, %lld sequences, tied %d, layout %d, type %d, overlap %d, panels %d, parts %d",
               the_case->list, i, ran->n_tasks, planned->n_tasks, qdr_grid_size(the_case->grid, QDR_X),
               qdr_grid_size(the_case->grid, QDR_Y), qdr_grid_size(the_case->grid, QDR_Z),
               qdr_grid_size(the_case->grid, QDR_D), (long long)c->n_layers, (long long)c->hidden,
               (long long)c->n_heads, (long long)c->context, (long long)c->vocab, (long long)c->n_sequences, c->tied,
               (int)c->layout, (int)c->dtype, c->overlap, c->panels, c->batch_parts);
}

/* ---- what the planner says of this rank ---- */

static qdr_network network_of(const gpt_config *config)
{
    qdr_network network = gpt_network(config);
    network.context = network.positions = config->context;
    return network;
}

static qdri_position position_of(const qdr_grid *grid)
{
    qdri_position position = {.size = {0}};
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        position.size[axis] = qdr_grid_size(grid, (qdr_axis)axis);
        position.coordinate[axis] = qdr_grid_coordinate(grid, (qdr_axis)axis);
    }
    return position;
}

/* The nodes of a plan, where this rank is, and any number of layers. */
static void compare_described(planned_case *the_case, const qdr_stack *stack)
{
    const gpt_config *config = &the_case->config;
    const qdr_network network = network_of(config);
    const qdri_position position = position_of(the_case->grid);
    const qdr_stack_opts *opts = &stack->net.opts; /* with the panels and parts that were chosen */
    const qdr_stack_opts described = {QDR_OPTS_INIT,
                                      .n_rows = config->n_sequences * config->context,
                                      .row_unit = config->context,
                                      .dtype = config->dtype,
                                      .overlap = config->overlap,
                                      .panels = opts->panels,
                                      .batch_parts = opts->batch_parts};
    int layer_of[QDRI_NODES_OF(8)];
    qdri_net net = {0};
    qdri_schedule list = {0};
    DIST_OK(qdri_describe(&net, &network, &position, &described, config->context, config->layout, (int)config->n_layers,
                          layer_of));
    DIST_OK(qdri_net_place(&net));
    DIST_OK(qdri_net_forward(&net, &list));
    the_case->list = "forward, described";
    compare(the_case, &stack->lists.forward, &list);
    the_case->list = "backward, described";
    for (int i = 0; i < 2; i++) {
        DIST_OK(qdri_net_backward(&net, QDRI_GRADIENT_OVERWRITE, i, &list));
        compare(the_case, &stack->lists.backward[i], &list);
    }
    qdri_schedule_free(&list);
    qdri_net_free(&net);
}

/* The lists that a plan is priced by, on the rank that has most. */
static void compare_priced(planned_case *the_case, const qdr_stack *stack, int n_micro)
{
    const gpt_config *c = &the_case->config;
    const qdr_network network = network_of(c);
    const qdri_position position = position_of(the_case->grid);
    const int64_t cells = (int64_t)position.size[QDR_Z] * position.size[QDR_D];
    const qdr_plan plan = {.version = QDR_OPTS_INIT,
                           .x = position.size[QDR_X],
                           .y = position.size[QDR_Y],
                           .z = position.size[QDR_Z],
                           .d = position.size[QDR_D],
                           .layout = c->layout,
                           .dtype = c->dtype,
                           .batch = n_micro * c->n_sequences,
                           .micro_batch = c->n_sequences / cells,
                           .sequence = c->context,
                           .overlap = c->overlap,
                           .panels = stack->net.opts.panels,
                           .batch_parts = stack->net.opts.batch_parts};
    const int modes[QDRI_N_LIST_KINDS] = {[QDRI_LIST_BACKWARD_ONLY] = 2 * QDRI_GRADIENT_OVERWRITE,
                                          [QDRI_LIST_BACKWARD_BEFORE] = 2 * QDRI_GRADIENT_ADD_TO_PARTIAL + 1,
                                          [QDRI_LIST_BACKWARD_LAST] = 2 * QDRI_GRADIENT_ADD_TO_PARTIAL};
    qdri_lists lists = {.n_layers = 0};
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        if (position.coordinate[axis] > 0) return;
    if (c->n_layers > QDRI_FEW_LAYERS || c->n_sequences % cells != 0) return;
    DIST_OK(qdri_lists_make(&network, &plan, (int)c->n_layers, (double)c->n_layers, 1, &lists));
    DIST_CHECK((lists.n_micro > 1) == (n_micro > 1), "%g forward passes, not %d", lists.n_micro, n_micro);
    the_case->list = "forward, priced";
    compare(the_case, &stack->lists.forward, &lists.of[QDRI_LIST_FORWARD].schedule);
    the_case->list = "backward, priced";
    for (int kind = QDRI_LIST_BACKWARD_ONLY; kind < QDRI_N_LIST_KINDS; kind++)
        if (lists.of[kind].schedule.n_tasks > 0)
            compare(the_case, &stack->lists.backward[modes[kind]], &lists.of[kind].schedule);
    qdri_lists_free(&lists);
}

/* ---- random cases ---- */

/* Widths, rows and sequences that no axis divides, too. */
static gpt_config random_config(uint64_t *seed, int64_t cells)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    const int64_t n_heads = 1 + dist_below(seed, 9);
    return (gpt_config){.n_layers = 1 + dist_below(seed, 6),
                        .hidden = n_heads * (1 + dist_below(seed, 12)),
                        .n_heads = n_heads,
                        .context = 1 + dist_below(seed, 9),
                        .vocab = 3 + dist_below(seed, 90),
                        .n_sequences = dist_below(seed, 3) ? cells * (1 + dist_below(seed, 5))
                                                           : 1 + dist_below(seed, 17),
                        .tied = (int)dist_below(seed, 2),
                        .layout = dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED,
                        .dtype = dtypes[dist_below(seed, 4)],
                        .overlap = (int)dist_below(seed, QDR_OVERLAP_NONE + 1),
                        .panels = (int)dist_below(seed, 9),
                        .batch_parts = (int)dist_below(seed, 5)};
}

static void plans_are_what_stacks_run(qdr_context *ctx, uint64_t seed)
{
    for (int round = 0; round < dist_rounds(75); round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const int64_t cells = (int64_t)qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D);
        planned_case the_case = {.grid = grid, .config = random_config(&seed, cells)};
        gpt model;
        DIST_OK(gpt_create(grid, &the_case.config, &model));
        compare_described(&the_case, model.stack);
        compare_priced(&the_case, model.stack, 1);
        compare_priced(&the_case, model.stack, 3);
        gpt_destroy(&model);
        qdr_grid_destroy(&grid);
    }
}

int main(int argc, char **argv)
{
    static const dist_test tests[] = {{"plans are what stacks run", plans_are_what_stacks_run}};
    return dist_main(argc, argv, tests, 1);
}
