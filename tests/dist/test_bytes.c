/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes by channel and kind of collective, over all ranks, known in four ways: planned (by the lists of the stack and
 * of AdamW), priced (by the model, task by task), traced (QDR_TRACE), and counted where they are copied. They agree for
 * random GPTs and grouped attentions, with statistics and gathered key heads; they do not if an operation communicates
 * on its own. */
#include <quadrille/coll.h>
#include <quadrille/machine.h>

#include "../support/gpt_fill.h"
#include "context/context.h"
#include "dist.h"
#include "linear/internal.h"
#include "nodes.h"
#include "optim/optim.h"
#include "price/price.h"
#include "schedule/trace.h"

enum { N_PLACES = QDR_N_CHANNELS * QDR_N_COLL_KINDS };
typedef enum way { PLANNED, PRICED, TRACED, COUNTED, N_WAYS } way;
static const char *const way_names[N_WAYS] = {"planned", "priced", "traced", "counted"};

typedef struct book {
    double bytes[N_WAYS][N_PLACES];
} book;

static int place_of(qdr_channel channel, qdr_coll_kind kind) { return (int)channel * QDR_N_COLL_KINDS + (int)kind; }

/* ---- the four ways ---- */

/* All ranks in one node: how a collective travels between nodes is the machine's affair. */
static void price_lists(const qdr_stack *stack, const qdri_schedule *const *lists, int n_lists, book *all)
{
    qdr_grid *grid = stack->grid;
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    DIST_OK(qdr_machine_load("laptop", &machine));
    machine.ranks_per_node = machine.links[0].n_ranks = qdr_context_size(qdr_grid_context(grid));
    qdr_plan plan = {QDR_INIT(qdr_plan),
                     .x = qdr_grid_size(grid, QDR_X),
                     .y = qdr_grid_size(grid, QDR_Y),
                     .z = qdr_grid_size(grid, QDR_Z),
                     .d = qdr_grid_size(grid, QDR_D),
                     .gradient_parts = qdr_grid_parts(grid, QDR_LEVEL_GRADIENTS),
                     .optimizer_parts = qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER),
                     .dtype = stack->net.opts.dtype};
    memcpy(plan.order, qdri_grid_order(grid), 4);
    qdri_pricing pricing;
    qdri_pricing_place(&machine, &plan, &pricing);
    for (int l = 0; l < n_lists; l++)
        for (int i = 0; i < lists[l]->n_tasks; i++) {
            const qdri_task *task = &lists[l]->tasks[i];
            if (task->kind == QDRI_TASK_COLLECTIVE)
                all->bytes[PRICED][place_of(task->channel, task->coll)] +=
                    qdri_task_price_of(&pricing, task).bytes_sent;
        }
}

static void plan(const qdri_schedule *const *lists, int n_lists, book *all)
{
    for (int l = 0; l < n_lists; l++)
        for (int i = 0; i < lists[l]->n_tasks; i++) {
            const qdri_task *task = &lists[l]->tasks[i];
            if (task->kind == QDRI_TASK_COLLECTIVE)
                all->bytes[PLANNED][place_of(task->channel, task->coll)] += (double)task->bytes_sent;
        }
}

static void count(qdr_stack *stack, book *all)
{
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
            const int place = place_of((qdr_channel)channel, (qdr_coll_kind)kind);
            all->bytes[COUNTED][place] +=
                (double)dist_traffic(stack->grid, (qdr_channel)channel, (qdr_coll_kind)kind).bytes_sent;
        }
}

/* What was traced since event number `first`. */
static void read_trace(const qdri_trace *trace, int first, book *all)
{
    const qdri_trace_event *event;
    for (int i = first; (event = qdri_trace_event_at(trace, i)); i++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++)
            if (strcmp(event->kind, qdr_coll_kind_name((qdr_coll_kind)kind)) == 0)
                all->bytes[TRACED][place_of((qdr_channel)(event->stream - 1), (qdr_coll_kind)kind)] +=
                    (double)event->bytes_sent;
}

static int n_traced(const qdri_trace *trace)
{
    int n = 0;
    while (qdri_trace_event_at(trace, n)) n++;
    return n;
}

static void add_ranks(qdr_grid *grid, book *all)
{
    const int n = N_WAYS * N_PLACES;
    double *sums = dist_memory(qdr_grid_context(grid), n, QDR_F64);
    memcpy(sums, all->bytes, sizeof all->bytes);
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        DIST_OK(qdr_all_reduce(grid, (qdr_axis)axis, QDR_SUM, sums, n, QDR_F64, NULL));
    dist_synchronize(qdr_grid_context(grid));
    memcpy(all->bytes, sums, sizeof all->bytes);
    qdr_mem_free(qdr_grid_context(grid), (void **)&sums);
}

/* One step of training. With levels the backward and AdamW are one list.
 * @return the number of places where the ways disagree; the first is printed if `says` */
static int disagreements(qdr_stack *stack, int says, double *total)
{
    const int has_levels = stack->lists.first_forward.n_tasks > 0, has_loss = stack->lists.loss.n_tasks > 0;
    const qdr_adamw_opts opts = {QDR_INIT(qdr_adamw_opts), .clip_norm = *total > 0};
    qdr_adamw *optimizer = NULL;
    double loss;
    int64_t n_valid;
    DIST_OK(qdr_adamw_create(stack, &opts, &optimizer));
    const qdri_schedule *const lists[] = {has_levels ? &stack->lists.first_forward : &stack->lists.forward,
                                          &stack->lists.backward[0], qdri_adamw_list(optimizer), &stack->lists.loss};
    qdr_context *ctx = qdr_grid_context(stack->grid);
    book all = {{{0}}};
    int n = 0;
    const int first = n_traced(ctx->tracing.trace);
    qdr_grid_reset_traffic(stack->grid);
    DIST_OK(qdr_stack_mark_updated(stack));
    DIST_OK(qdr_stack_forward(stack));
    DIST_OK(qdr_adamw_set_rate(optimizer, 0));
    if (has_levels)
        DIST_OK(qdr_adamw_backward(optimizer, 0, 1));
    else
        DIST_OK(qdr_stack_backward(stack, 0, 1));
    if (!has_levels) DIST_OK(qdr_adamw_step_as_set(optimizer));
    if (has_loss) DIST_OK(qdr_stack_loss(stack, &loss, &n_valid));
    dist_synchronize(ctx);
    plan(lists, 3 + has_loss, &all);
    count(stack, &all);
    read_trace(ctx->tracing.trace, first, &all);
    price_lists(stack, lists, 3 + has_loss, &all);
    qdr_adamw_destroy(&optimizer);
    add_ranks(stack->grid, &all);
    for (int place = 0; place < N_PLACES; place++) {
        const double planned = all.bytes[PLANNED][place];
        *total += planned;
        for (int w = PRICED; w < N_WAYS; w++) {
            const double bytes = all.bytes[w][place];
            if (fabs(bytes - planned) <= 1e-9 * planned) continue; /* the price is a product of rates and times */
            if (n++ == 0 && says && qdr_context_rank(ctx) == 0)
                fprintf(stderr, "%s, %s: planned %.17g bytes, %s %.17g\n",
                        qdr_channel_name((qdr_channel)(place / QDR_N_COLL_KINDS)),
                        qdr_coll_kind_name((qdr_coll_kind)(place % QDR_N_COLL_KINDS)), planned, way_names[w], bytes);
        }
    }
    return n;
}

/* ---- random stacks ---- */

DIST_TEST(gpts_agree)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16};
    double total = 0;
    for (int round = 0; round < dist_rounds(30); round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const int64_t n_heads = 1 + dist_below(&seed, 6);
        const int64_t context = 1 + dist_below(&seed, 6);
        const gpt_config config = {.network = gpt_network((qdr_network){.layers = 1 + dist_below(&seed, 3),
                                                                        .hidden = n_heads * (1 + dist_below(&seed, 7)),
                                                                        .heads = n_heads,
                                                                        .vocab = 3 + dist_below(&seed, 50),
                                                                        .tied = (int)dist_below(&seed, 2),
                                                                        .context = context}),
                                   .context = context,
                                   .n_sequences = 1 + dist_below(&seed, 17),
                                   .layout = dist_below(&seed, 2) ? QDR_SCATTERED : QDR_REPLICATED,
                                   .dtype = dtypes[dist_below(&seed, 3)],
                                   .overlap = (int)dist_below(&seed, QDR_OVERLAP_NONE + 1),
                                   .panels = (int)dist_below(&seed, 5),
                                   .batch_parts = (int)dist_below(&seed, 3)};
        uint8_t text[4096];
        int64_t starts[32];
        gpt model;
        for (size_t i = 0; i < sizeof text; i++) text[i] = (uint8_t)(i % (size_t)config.network.vocab);
        for (int i = 0; i < 32; i++) starts[i] = i;
        DIST_OK(gpt_create(grid, &config, &model));
        DIST_OK(gpt_init(&model, seed, 0.02));
        DIST_OK(gpt_fill(&model, text, starts));
        DIST_CHECK(disagreements(model.stack, 1, &total) == 0, "round %d: %lld layers, hidden %lld, %s, panels %d",
                   round, (long long)config.network.layers, (long long)config.network.hidden,
                   qdr_dtype_name(config.dtype), config.panels);
        gpt_destroy(&model);
        qdr_grid_destroy(&grid);
    }
    DIST_CHECK(qdr_context_size(ctx) == 1 || total > 0, "nothing was sent");
}

/* ---- grouped attentions ---- */

enum { HEAD = 3, CONTEXT = 4, WIDTH = 10 };

typedef struct attention {
    qdr_stack *stack;
    qdr_edge in, out;
} attention;

/* q, k, v of a normed input; there may be fewer key heads than ranks. own: NULL, or an operation at the end. */
static attention attention_create(qdr_grid *grid, uint64_t *seed, const qdr_op_desc *own)
{
    const qdr_layout layout = dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED;
    const int64_t kv = 1 + dist_below(seed, 3), queries = kv * (1 + dist_below(seed, 3));
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),
                                 .n_rows = CONTEXT * (1 + dist_below(seed, 9)),
                                 .row_unit = CONTEXT,
                                 .dtype = QDR_F64,
                                 .panels = (int)dist_below(seed, 4),
                                 .batch_parts = (int)dist_below(seed, 3)};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{WIDTH, 1}}, .col_axis = QDR_X, .layout = layout};
    const qdr_linear_desc qkv_desc = {
        QDR_INIT(qdr_linear_desc), .name = "qkv",
        .in = {{WIDTH, 1}},        .out = {{queries * HEAD, HEAD}, {kv * HEAD, HEAD}, {kv * HEAD, HEAD}},
        .out_layout = layout,      .out_row_unit = CONTEXT};
    attention made = {.stack = NULL};
    qdr_edge norm, qkv;
    DIST_OK(qdr_stack_create(grid, &opts, &made.stack));
    DIST_OK(qdr_stack_add_input(made.stack, "x", &input, 1, &made.in));
    DIST_OK(test_add_norm(made.stack, "norm", 0, made.in, &norm));
    DIST_OK(qdr_stack_add_linear(made.stack, &qkv_desc, norm, &qkv, NULL));
    DIST_OK(test_add_attention(made.stack, "attention", HEAD, CONTEXT, qkv, &made.out));
    if (own) {
        qdr_op_desc op = *own;
        op.in[0] = made.out;
        DIST_OK(qdr_stack_add_op(made.stack, &op, &made.out));
    }
    DIST_OK(qdr_stack_build(made.stack));
    DIST_OK(qdr_stack_init(made.stack, *seed, 0.1));
    return made;
}

static int attention_disagreements(attention *made, int says, double *total)
{
    void *data = dist_edge_value(made->stack, made->in);
    dist_fill_edge(made->stack, made->in, data, 1);
    data = dist_edge_gradient(made->stack, made->out);
    dist_fill_edge(made->stack, made->out, data, 2);
    return disagreements(made->stack, says, total);
}

DIST_TEST(attentions_agree)
{
    double total = 0;
    for (int round = 0; round < dist_rounds(30); round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        attention made = attention_create(grid, &seed, NULL);
        DIST_CHECK(attention_disagreements(&made, 1, &total) == 0, "round %d", round);
        qdr_stack_destroy(&made.stack);
        qdr_grid_destroy(&grid);
    }
    DIST_CHECK(qdr_context_size(ctx) == 1 || total > 0, "nothing was sent");
}

/* ---- an operation that communicates on its own ---- */

typedef struct secret {
    qdr_grid *grid;
    double *cell; /* in device memory */
} secret;

static qdr_status add_in_secret(const qdr_op_call *call, void *user)
{
    const secret *s = user;
    const size_t bytes = (size_t)(call->n_rows * call->out_cols) * sizeof(double);
    const int is_forward = call->d_out == NULL;
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const qdr_status status = qdr_all_reduce(s->grid, (qdr_axis)axis, QDR_SUM, s->cell, 1, QDR_F64, call->stream);
        if (status != QDR_OK) return status;
    }
    if (is_forward) return qdr_copy(call->ctx, call->out, call->in[0], bytes, call->stream);
    return qdr_copy(call->ctx, call->d_in[0], call->d_out, bytes, call->stream);
}

DIST_TEST(hidden_collectives_show)
{
    double total = 0;
    for (int round = 0; round < 4; round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        secret s = {grid, dist_memory(ctx, 1, QDR_F64)};
        const qdr_op_desc own = {QDR_INIT(qdr_op_desc),    .name = "secretive",       .n_in = 1,
                                 .forward = add_in_secret, .backward = add_in_secret, .user = &s};
        attention made = attention_create(grid, &seed, &own);
        *s.cell = 0;
        const int n = attention_disagreements(&made, 0, &total);
        DIST_CHECK(n > 0 || qdr_context_size(ctx) == 1, "round %d: a collective inside an operation was not noticed",
                   round);
        qdr_stack_destroy(&made.stack);
        qdr_mem_free(ctx, (void **)&s.cell);
        qdr_grid_destroy(&grid);
    }
}
