/* SPDX-License-Identifier: Apache-2.0 */
/* The lists that plans are priced by, compared at full depth and task by task with those that stacks of the same
 * network execute: random networks, grids, orders, layouts, types, panels, parts, overlaps. */
#include <dirent.h>
#include <unistd.h>

#include "../../examples/common/gpt.h"
#include "../../src/common/transformer.h"
#include "core/operands.h"
#include "dist.h"
#include "linear/internal.h"
#include "network/describe.h"
#include "optim/optim.h"
#include "price/lists.h"

enum { MOST_LAYERS = 6 };

typedef struct planned_case {
    const qdr_grid *grid;
    qdr_network network;
    transformer_desc desc; /* with ends */
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

static int alike_kernels(const qdri_kernel *a, const qdri_kernel *b)
{
    const qdri_operand *operands;
    const int n = qdri_kernel_operands(a->kind, &operands);
    if (a->kind != b->kind || a->dtype != b->dtype || a->accumulate != b->accumulate) return 0;
    for (int i = 0; i < n; i++)
        if (qdri_operand_elems(a, &operands[i]) != qdri_operand_elems(b, &operands[i])) return 0;
    return 1;
}

static int alike_work(const qdri_task *a, const qdri_task *b)
{
    return a->kind == b->kind && a->node == b->node && a->accumulate == b->accumulate && a->dtype == b->dtype &&
           a->out_dtype == b->out_dtype && a->m == b->m && a->n == b->n && a->k == b->k &&
           alike_kernels(&a->kernel, &b->kernel) && a->trans_a == b->trans_a && a->trans_b == b->trans_b &&
           a->zero_tail == b->zero_tail && a->flops == b->flops && a->parameter_gradient == b->parameter_gradient &&
           a->again == b->again && a->work.bytes == b->work.bytes && a->work.flops == b->work.flops &&
           a->work.n_kernels == b->work.n_kernels && a->work.cost == b->work.cost;
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
    const transformer_desc *d = &the_case->desc;
    const qdr_network *n = &the_case->network;
    for (int j = i > 2 ? i - 2 : 0; j <= i && j < ran->n_tasks; j++) show(ran, j);
    fprintf(stderr, " planned:\n");
    for (int j = i > 2 ? i - 2 : 0; j <= i && j < planned->n_tasks; j++) show(planned, j);
    DIST_CHECK(
        0,
        "%s: task %d of %d (planned: %d) differs: %dx%dx%dx%d, %lld layers, hidden %lld, %lld heads of %lld, %lld "
        "key heads, ffn %lld, vocab %lld, %lld sequences of %lld, positions %lld, gated %d, biases %d %d %d, tied "
        "%d, parallel %d, layout %d, type %d, overlap %d, panels %d, parts %d",
        the_case->list, i, ran->n_tasks, planned->n_tasks, qdr_grid_size(the_case->grid, QDR_X),
        qdr_grid_size(the_case->grid, QDR_Y), qdr_grid_size(the_case->grid, QDR_Z),
        qdr_grid_size(the_case->grid, QDR_D), (long long)d->n_layers, (long long)n->hidden, (long long)n->heads,
        (long long)n->head_size, (long long)n->kv_heads, (long long)n->ffn, (long long)n->vocab,
        (long long)d->n_sequences, (long long)d->sequence, (long long)n->positions, n->gated, n->qkv_bias, n->out_bias,
        n->mlp_bias, n->tied, n->parallel_residual, (int)d->layout, (int)d->dtype, d->overlap, d->n_panels,
        d->n_batch_parts);
}

/* ---- what the planner says of this rank ---- */

static const qdr_recompute recomputes[] = {QDR_RECOMPUTE_NONE, QDR_RECOMPUTE_OPERATIONS, QDR_RECOMPUTE_FULL};

/* The nodes of a plan, where this rank is, and any number of layers. */
static void compare_described(planned_case *the_case, qdr_stack *stack)
{
    const transformer_desc *desc = &the_case->desc;
    const qdri_position position = dist_position(the_case->grid);
    const qdr_stack_opts *opts = &stack->net.opts; /* with the panels and parts that were chosen */
    const qdr_stack_opts described = {QDR_INIT(qdr_stack_opts),         .n_rows = desc->n_sequences * desc->sequence,
                                      .row_unit = desc->sequence,       .dtype = desc->dtype,
                                      .overlap = desc->overlap,         .panels = opts->panels,
                                      .batch_parts = opts->batch_parts, .recompute = desc->recompute};
    int layer_of[QDRI_NODES_OF(MOST_LAYERS)];
    qdri_net net = {0};
    qdri_schedule list = {0};
    DIST_OK(qdri_describe(&net, &the_case->network, &position, &described, desc->sequence, desc->layout,
                          (int)desc->n_layers, layer_of));
    DIST_OK(qdri_net_place(&net));
    DIST_OK(qdri_net_forward(&net, 0, &list));
    the_case->list = "forward, described";
    compare(the_case, &stack->lists.forward, &list);
    if (stack->lists.first_forward.n_tasks) {
        DIST_OK(qdri_net_forward(&net, 1, &list));
        the_case->list = "first forward, described";
        compare(the_case, &stack->lists.first_forward, &list);
    }
    the_case->list = "backward, described";
    for (int i = 0; i < 2; i++) {
        DIST_OK(qdri_net_backward(&net, QDRI_GRADIENT_OVERWRITE, i, &list));
        compare(the_case, &stack->lists.backward[i], &list);
    }
    const qdr_adamw_opts adamw = {QDR_INIT(qdr_adamw_opts), .clip_norm = (double)(desc->n_layers % 2)};
    qdr_adamw *optimizer = NULL;
    DIST_OK(qdr_adamw_create(stack, &adamw, &optimizer));
    DIST_OK(qdri_net_adamw(&net, &adamw, &list));
    the_case->list = "step, described";
    compare(the_case, qdri_adamw_list(optimizer), &list);
    qdr_adamw_destroy(&optimizer);
    qdri_schedule_free(&list);
    qdri_net_free(&net);
}

static int64_t cells_of(const qdr_grid *grid)
{
    return (int64_t)qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D);
}

static qdr_plan plan_of(const planned_case *the_case, int n_micro)
{
    const transformer_desc *d = &the_case->desc;
    return (qdr_plan){QDR_INIT(qdr_plan),
                      .x = qdr_grid_size(the_case->grid, QDR_X),
                      .y = qdr_grid_size(the_case->grid, QDR_Y),
                      .z = qdr_grid_size(the_case->grid, QDR_Z),
                      .d = qdr_grid_size(the_case->grid, QDR_D),
                      .layout = d->layout,
                      .dtype = d->dtype,
                      .batch = n_micro * d->n_sequences,
                      .micro_batch = d->n_sequences / cells_of(the_case->grid),
                      .sequence = d->sequence,
                      .gradient_parts = qdr_grid_parts(the_case->grid, QDR_LEVEL_GRADIENTS),
                      .optimizer_parts = qdr_grid_parts(the_case->grid, QDR_LEVEL_OPTIMIZER),
                      .overlap = d->overlap,
                      .panels = d->n_panels,
                      .batch_parts = d->n_batch_parts,
                      .recompute = d->recompute};
}

/* Windows in all layers or in none, and nothing else that differs: a plan prices some of each kind. */
static int are_alike(const qdr_network *network)
{
    for (int i = 1; i < MOST_LAYERS; i++)
        if (network->layer_kinds[i] != network->layer_kinds[0]) return 0;
    return !(network->layer_kinds[0] & ~QDR_LAYER_WINDOW);
}

/* The lists that a plan is priced by, on the rank that has most. */
static void compare_priced(planned_case *the_case, const qdr_stack *stack, int n_micro)
{
    const transformer_desc *d = &the_case->desc;
    const qdri_position position = dist_position(the_case->grid);
    qdr_plan plan = plan_of(the_case, n_micro);
    plan.panels = stack->net.opts.panels;
    plan.batch_parts = stack->net.opts.batch_parts;
    const int modes[QDRI_N_LIST_KINDS] = {[QDRI_LIST_BACKWARD_ONLY] = 2 * QDRI_GRADIENT_OVERWRITE,
                                          [QDRI_LIST_BACKWARD_BEFORE] = 2 * QDRI_GRADIENT_ADD_TO_PARTIAL + 1,
                                          [QDRI_LIST_BACKWARD_LAST] = 2 * QDRI_GRADIENT_ADD_TO_PARTIAL};
    qdri_lists lists = {.n_kinds = 0};
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        if (position.coordinate[axis] > 0) return;
    if (!are_alike(&the_case->network)) return;
    if (d->n_layers > QDRI_FEW_LAYERS || d->n_sequences % cells_of(the_case->grid) != 0) return;
    DIST_OK(qdri_lists_make(&the_case->network, &plan, 1, (int)d->n_layers, (double)d->n_layers, 1, &lists));
    DIST_CHECK((lists.n_micro > 1) == (n_micro > 1), "%g forward passes, not %d", lists.n_micro, n_micro);
    the_case->list = "forward, priced";
    compare(the_case, &stack->lists.forward, &lists.of[QDRI_LIST_FORWARD].schedule);
    const int has_levels = plan.optimizer_parts > plan.z;
    the_case->list = "first forward, priced";
    DIST_CHECK(qdri_has_returns(&lists) == has_levels, "returns: %d", has_levels);
    if (has_levels) compare(the_case, &stack->lists.first_forward, &lists.of[QDRI_LIST_FORWARD_FIRST].schedule);
    the_case->list = "backward, priced";
    for (int kind = QDRI_LIST_BACKWARD_ONLY; kind < QDRI_N_LIST_KINDS; kind++)
        if (lists.of[kind].schedule.n_tasks > 0)
            compare(the_case, &stack->lists.backward[modes[kind]], &lists.of[kind].schedule);
    qdri_lists_free(&lists);
}

/* ---- random cases ---- */

/* Widths, rows and sequences that no axis divides, too. */
static transformer_desc random_desc(uint64_t *seed, int64_t cells)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    return (transformer_desc){.has_ends = 1,
                              .n_layers = 1 + dist_below(seed, MOST_LAYERS),
                              .n_sequences = dist_below(seed, 3) ? cells * (1 + dist_below(seed, 5))
                                                                 : 1 + dist_below(seed, 17),
                              .sequence = 1 + dist_below(seed, 9),
                              .layout = dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED,
                              .dtype = dtypes[dist_below(seed, 4)],
                              .overlap = (int)dist_below(seed, QDR_OVERLAP_NONE + 1),
                              .n_panels = (int)dist_below(seed, 9),
                              .n_batch_parts = (int)dist_below(seed, 5),
                              .recompute = recomputes[dist_below(seed, 3)]};
}

/* Everything in which networks differ. */
static qdr_network random_network(uint64_t *seed, int64_t sequence)
{
    const int64_t kv_heads = 1 + dist_below(seed, 5), positions = dist_below(seed, 2) ? sequence : 0;
    const int has_windows = (int)dist_below(seed, 2), differ = (int)dist_below(seed, 2);
    qdr_network network = {QDR_INIT(qdr_network),
                           .name = "random",
                           .layers = MOST_LAYERS,
                           .hidden = 1 + dist_below(seed, 60),
                           .heads = kv_heads * (1 + dist_below(seed, 4)),
                           .kv_heads = kv_heads,
                           .head_size = positions ? 1 + dist_below(seed, 12) : 2 * (1 + dist_below(seed, 6)),
                           .ffn = 1 + dist_below(seed, 90),
                           .vocab = 3 + dist_below(seed, 90),
                           .context = sequence,
                           .positions = positions,
                           .gated = (int)dist_below(seed, 2),
                           .qkv_bias = (int)dist_below(seed, 2),
                           .out_bias = (int)dist_below(seed, 2),
                           .mlp_bias = (int)dist_below(seed, 2),
                           .norm = (qdr_norm_kind)dist_below(seed, 2),
                           .norm_place = (qdr_norm_place)dist_below(seed, 3),
                           .head_norm = (qdr_head_norm)dist_below(seed, 3),
                           .tied = (int)dist_below(seed, 2),
                           .parallel_residual = (int)dist_below(seed, 2)};
    if (has_windows) network.window = 1 + dist_below(seed, 2 * sequence);
    for (int i = 0; i < MOST_LAYERS; i++) {
        static const unsigned char rotations[] = {0, QDR_LAYER_UNROTATED, QDR_LAYER_LOCAL};
        if (differ) network.layer_kinds[i] = rotations[dist_below(seed, 3)];
        if (has_windows && (!differ || dist_below(seed, 2))) network.layer_kinds[i] |= QDR_LAYER_WINDOW;
        network.window_layers += network.layer_kinds[i] & QDR_LAYER_WINDOW;
    }
    return network;
}

static void compare_lists(planned_case *the_case, qdr_stack *stack)
{
    compare_described(the_case, stack);
    compare_priced(the_case, stack, 1);
    compare_priced(the_case, stack, 3);
}

/* Every rank makes all lists: with more ranks there is more to do. */
static int n_rounds(qdr_context *ctx) { return dist_rounds(qdr_context_size(ctx) < 4 ? 75 : 40); }

/* Stacks as the command builds them to measure a network. */
DIST_TEST(plans_are_what_networks_run)
{
    for (int round = 0; round < n_rounds(ctx); round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        planned_case the_case = {.grid = grid, .desc = random_desc(&seed, cells_of(grid))};
        transformer made = {.stack = NULL};
        the_case.network = random_network(&seed, the_case.desc.sequence);
        the_case.desc.network = &the_case.network;
        DIST_OK(transformer_create(grid, &the_case.desc, &made));
        compare_lists(&the_case, made.stack);
        qdr_stack_destroy(&made.stack);
        qdr_grid_destroy(&grid);
    }
}

/* Those of the examples, which are written independently. */
DIST_TEST(plans_are_what_examples_run)
{
    for (int round = 0; round < n_rounds(ctx); round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        planned_case the_case = {.grid = grid, .desc = random_desc(&seed, cells_of(grid))};
        const transformer_desc *d = &the_case.desc;
        const int64_t n_heads = 1 + dist_below(&seed, 9);
        const gpt_config config = {.network = gpt_network((qdr_network){.layers = d->n_layers,
                                                                        .hidden = n_heads * (1 + dist_below(&seed, 12)),
                                                                        .heads = n_heads,
                                                                        .vocab = 3 + dist_below(&seed, 90),
                                                                        .tied = (int)dist_below(&seed, 2),
                                                                        .context = d->sequence}),
                                   .context = d->sequence,
                                   .n_sequences = d->n_sequences,
                                   .layout = d->layout,
                                   .dtype = d->dtype,
                                   .overlap = d->overlap,
                                   .panels = d->n_panels,
                                   .batch_parts = d->n_batch_parts,
                                   .recompute = d->recompute};
        gpt model;
        the_case.network = config.network;
        DIST_OK(gpt_create(grid, &config, &model));
        compare_lists(&the_case, model.stack);
        gpt_destroy(&model);
        qdr_grid_destroy(&grid);
    }
}

/* ---- memory ---- */

/* Bytes that a plan says, and that its stack holds: no fewer, and at most a share more. */
typedef struct held_bytes {
    const char *what;
    double planned, held, more;
} held_bytes;

/* On the rank that has most; others may hold less. Whoever plans one micro-batch cannot know where the shard goes that
 * adding to gradients takes: it may fit beside the other values. */
static void check_memory(const planned_case *the_case, const qdr_stack *stack)
{
    const qdri_position position = dist_position(the_case->grid);
    qdr_plan plan = plan_of(the_case, 1);
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_model *model;
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    size_t optimizer_bytes;
    int has_most = 1;
    for (int axis = 0; axis < QDR_N_AXES; axis++) has_most &= position.coordinate[axis] == 0;
    plan.threads = qdr_context_threads(qdr_grid_context(the_case->grid));
    DIST_OK(qdr_machine_load("laptop", &machine));
    DIST_OK(qdr_model_create(&machine, &the_case->network, &model));
    DIST_OK(qdr_model_predict(model, &plan, &result));
    qdr_model_destroy(&model);
    DIST_OK(qdr_stack_get_sizes(stack, &sizes));
    DIST_OK(qdr_adamw_size(stack, &optimizer_bytes));
    const double *planned = result.memory;
    const int is_told = plan.dtype != QDR_BF16; /* a machine's file does not say whether it has instructions for it */
    const held_bytes all[] = {
        {"parameters", planned[QDR_MEMORY_PARAMETERS], (double)sizes.parameters, 0},
        {"gradients", planned[QDR_MEMORY_GRADIENTS], (double)sizes.gradients, 0},
        {"optimizer", planned[QDR_MEMORY_OPTIMIZER], (double)optimizer_bytes, 0},
        {"activations", planned[QDR_MEMORY_ACTIVATIONS], (double)sizes.activations, 0},
        {"device", is_told * planned[QDR_MEMORY_DEVICE], is_told * (double)sizes.device, 0},
        {"workspace", planned[QDR_MEMORY_GATHERED] + planned[QDR_MEMORY_WORKSPACE], (double)sizes.workspace, 0.1}};
    /* How well the many values of a layer that is repeated are packed depends on how long the list is. */
    const int is_full = plan.recompute == QDR_RECOMPUTE_FULL;
    const double least = is_full ? 0.99 : 1, slack = is_full ? 16 * QDRI_BUFFER_ALIGN : 0;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        DIST_CHECK(all[i].planned >= (all[i].more > 0 ? least * all[i].held - slack : all[i].held) &&
                       (!has_most || all[i].planned <= (1 + all[i].more) * all[i].held),
                   "%s, %dx%dx%dx%d, layout %d, %s, panels %d, parts %d: %.0f bytes of %s planned, %.0f held",
                   the_case->network.name, plan.x, plan.y, plan.z, plan.d, (int)plan.layout, qdr_dtype_name(plan.dtype),
                   plan.panels, plan.batch_parts, all[i].planned, all[i].what, all[i].held);
}

/* Of few rows, most buffers are padded. */
static void check_network(qdr_grid *grid, void *user)
{
    static const qdr_dtype types[] = {QDR_F32, QDR_BF16, QDR_F32, QDR_F16};
    for (int i = 0; i < 8; i++) {
        planned_case the_case = {.grid = grid, .network = *(const qdr_network *)user};
        const int is_small = i >= 6;
        if (i % 2) the_case.network.local_rotary = the_case.network.rotary; /* and one table for both */
        transformer made = {.stack = NULL};
        the_case.desc = (transformer_desc){
            .network = &the_case.network,
            .has_ends = 1,
            .n_layers = the_case.network.layers,
            .n_sequences = (is_small ? 3 : 8) * cells_of(grid),
            .sequence = is_small ? 11 : 32,
            .dtype = types[i / 2],
            .layout = i & 1 ? QDR_SCATTERED : QDR_REPLICATED,
            .n_panels = i < 4 || is_small ? 1 : 2,
            .n_batch_parts = i < 4 || is_small ? 1 : 2,
            .recompute = recomputes[(i < 2 || i > 5) + (the_case.network.heads + i) % 2]};
        DIST_OK(transformer_create(grid, &the_case.desc, &made));
        check_memory(&the_case, made.stack);
        qdr_stack_destroy(&made.stack);
    }
}

/* All that classes of transformers compute, on every grid of up to four ranks. */
DIST_TEST(plans_need_what_networks_hold)
{
    const char *folder = getenv("QDR_TEST_NETWORKS");
    int n_networks = 0;
    if (qdr_context_size(ctx) > 4) return;
    DIST_CHECK(folder, "set QDR_TEST_NETWORKS to tests/reference/networks");
    DIR *dir = opendir(folder);
    DIST_CHECK(dir, "there is no folder %s", folder);
    for (const struct dirent *entry; n_networks < dist_rounds(26) && (entry = readdir(dir)) != NULL;) {
        char path[600];
        qdr_network network = {QDR_INIT(qdr_network)};
        snprintf(path, sizeof path, "%s/%s/config.json", folder, entry->d_name);
        if (access(path, R_OK) != 0) continue;
        DIST_OK(qdr_network_load(path, &network));
        dist_every_grid(ctx, 0, check_network, &network);
        n_networks++;
    }
    closedir(dir);
    DIST_CHECK(n_networks == dist_rounds(26), "%d networks, not %d", n_networks, dist_rounds(26));
}

/* ---- choices ---- */

/* Wide enough for panels to matter, with as many layers as a plan prices: it extends longer networks from these, while
 * a stack prices all its layers. */
static void widen(planned_case *the_case)
{
    transformer_desc *d = &the_case->desc;
    qdr_network *n = &the_case->network;
    d->n_layers = n->layers = QDRI_FEW_LAYERS;
    n->window_layers = n->window ? QDRI_FEW_LAYERS : 0; /* in all of them */
    memset(n->layer_kinds, 0, sizeof n->layer_kinds);
    d->n_panels = d->n_batch_parts = 0;
    d->dtype = QDR_F32;
    d->sequence *= 16;
    n->hidden *= 10;
    n->ffn *= 10;
    n->head_size *= 4;
    n->context *= 16;
    n->positions *= 16;
}

/* 1: the stack's choice of panels and parts for its machine is that of the plan that recomputes nothing, by which it
 * chooses whatever it recomputes. If not, it costs no more. */
static int choose_alike(const planned_case *the_case, const qdr_stack *stack, const qdr_machine *machine)
{
    qdr_plan plan = plan_of(the_case, 1);
    snprintf(plan.order, sizeof plan.order, "%s", qdri_grid_order(the_case->grid));
    plan.recompute = QDR_RECOMPUTE_NONE;
    qdr_model *model;
    qdr_plan_result best = {QDR_INIT(qdr_plan_result)}, own = {QDR_INIT(qdr_plan_result)};
    DIST_OK(qdr_model_create(machine, &the_case->network, &model));
    DIST_OK(qdr_model_predict(model, &plan, &best));
    plan.panels = stack->net.opts.panels;
    plan.batch_parts = stack->net.opts.batch_parts;
    DIST_OK(qdr_model_predict(model, &plan, &own));
    qdr_model_destroy(&model);
    DIST_CHECK(own.secs <= (1 + 1e-9) * best.secs,
               "%s, %dx%dx%dx%d, layout %d, overlap %d: %d panels and %d parts take %g s, %d and %d %g s",
               machine->name, plan.x, plan.y, plan.z, plan.d, (int)plan.layout, plan.overlap, plan.panels,
               plan.batch_parts, own.secs, best.panels, best.batch_parts, best.secs);
    return best.panels == plan.panels && best.batch_parts == plan.batch_parts;
}

DIST_TEST(stacks_choose_as_plans_do)
{
    static const char *const machines[] = {"laptop",   "perlmutter", "frontier", "dgx-h100",
                                           "dgx-a100", "alps",       "summit"};
    const int n_rounds = dist_rounds(40);
    int n_alike = 0;
    for (int round = 0; round < n_rounds; round++) {
        qdr_machine machine = {QDR_INIT(qdr_machine)};
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        planned_case the_case = {.grid = grid, .desc = random_desc(&seed, cells_of(grid))};
        transformer made = {.stack = NULL};
        the_case.network = random_network(&seed, the_case.desc.sequence);
        the_case.desc.network = &the_case.network;
        the_case.desc.n_sequences = cells_of(grid) * (1 + dist_below(&seed, 3)); /* as many in each cell */
        widen(&the_case);
        DIST_OK(qdr_machine_load(machines[dist_below(&seed, 7)], &machine));
        DIST_OK(qdr_context_set_machine(ctx, &machine));
        DIST_OK(transformer_create(grid, &the_case.desc, &made));
        n_alike += choose_alike(&the_case, made.stack, &machine);
        qdr_stack_destroy(&made.stack);
        qdr_grid_destroy(&grid);
    }
    DIST_CHECK(20 * n_alike >= 19 * n_rounds, "%d of %d choices are alike", n_alike, n_rounds);
}
