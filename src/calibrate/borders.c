/* SPDX-License-Identifier: Apache-2.0 */
/* From how many bytes on collectives among the ranks of a node are faster in one way than in another
 * (qdr_machine_collectives). Measured on steps of a stack of layers: what counts is how long collectives keep products
 * of ranks that share cores waiting, which differs from the time that they take alone. */
#include <math.h>
#include <stdio.h>

#include "bench/bench.h"
#include "calibrate/calibrate.h"

/* Over z, products take longer than collectives, as in training, and hide them. */
enum { N_LAYERS = 6, WIDTH = 256, Z_ROWS = 1024, MOST_STEPS = 1000 };
#define NEVER_KIB 1e9
#define ALWAYS_KIB 1e-3

/* Sizes are LEAST_KIB·2^i. */
enum { LEAST_KIB = 8, N_SIZES = 9, ROUNDS = 21, QUICK_LEAST_KIB = 64, N_QUICK_SIZES = 4, QUICK_ROUNDS = 5 };
#define ROUND_SECS 0.01
#define QUICK_ROUND_SECS 0.001

/* A border, and an axis along which layers use its collectives. */
typedef struct border {
    const char *key;
    qdr_axis axis;
    int of_pairs; /* it concerns groups of two */
} border;

/* The last one is measured without direct reads, since it concerns memory that other ranks cannot map. */
static const border borders[] = {
    {"collectives.direct_KiB", QDR_Z, 0}, /* gathers of weights, sums of their gradients */
    {"collectives.direct_all_reduce_KiB", QDR_X, 0}, /* sums of outputs, and of gradients of inputs */
    {"collectives.two_round_KiB", QDR_X, 1},
};
enum { N_BORDERS = sizeof borders / sizeof *borders, ALL_REDUCE_BORDER = 1 };

typedef struct layers {
    const calibration *c;
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_machine ways[2]; /* on rank 0: as if all sizes were below the border, and above it */
    int n_steps; /* of a round */
} layers;

static qdr_status run_round(void *user, int way)
{
    const layers *l = user;
    TRY(qdr_context_set_machine(l->c->ctx, &l->ways[way]));
    for (int i = 0; i < l->n_steps; i++) {
        TRY(qdr_stack_forward(l->stack));
        TRY(qdr_stack_backward(l->stack, 0, 1));
        TRY(qdr_stream_synchronize(qdr_context_stream(l->c->ctx)));
    }
    return QDR_OK;
}

static qdr_status add_layers(qdr_stack *stack, int64_t width)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{width, 1}}, .col_axis = QDR_X};
    qdr_edge edge;
    qdr_status status = qdr_stack_add_input(stack, "x", &input, 1, &edge);
    for (int i = 0; i < N_LAYERS && status >= 0; i++) {
        char name[24];
        qdr_linear *layer;
        snprintf(name, sizeof name, "layer %d", i);
        const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = name, .in = {{width, 1}}, .out = {{width, 1}},
                                      .transposed = i % 2};
        status = qdr_stack_add_linear(stack, &desc, edge, &edge, &layer);
    }
    return status;
}

/* Layers whose collectives along the axis are of that size. */
static qdr_status make_layers(layers *l, const border *measured, int n_members, int64_t bytes)
{
    const int is_z = measured->axis == QDR_Z;
    const grid_size size = {is_z ? 1 : n_members, 1, is_z ? n_members : 1, qdr_context_size(l->c->ctx) / n_members};
    const int64_t width = is_z ? (int64_t)sqrt((double)bytes / 4) : WIDTH, rows = is_z ? Z_ROWS : bytes / 4 / WIDTH;
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = rows * size.d, .dtype = QDR_F32, .panels = 1,
                                 .batch_parts = 1};
    qdr_status status = grid_make(l->c->ctx, size, NULL, &l->grid);
    if (status >= 0) status = qdr_stack_create(l->grid, &opts, &l->stack);
    if (status >= 0) status = qdr_agree(l->c->ctx, add_layers(l->stack, width));
    if (status >= 0) status = qdr_stack_build(l->stack);
    return status >= 0 ? qdr_stack_init(l->stack, 1, 0.1) : status;
}

/* How much longer a step takes above the border than below, as a logarithm: the median over rounds. */
static int compare_ways(layers *l, double *longer, failure *why)
{
    const int is_quick = l->c->is_quick;
    const bench_options once = {.n_iterations = 1, .n_warmup = 1};
    const bench_options all = {.n_iterations = is_quick ? QUICK_ROUNDS : ROUNDS, .n_warmup = 1};
    const bench_subject subject = {.call = run_round, .user = l};
    bench_samples samples = {0};
    l->n_steps = 1;
    if (!bench_measure(l->c->ctx, &once, &subject, 1, 0, &samples, why)) {
        const double wanted = (is_quick ? QUICK_ROUND_SECS : ROUND_SECS) / bench_times_of(&samples, 0).median;
        l->n_steps = wanted < 1 ? 1 : wanted < MOST_STEPS ? (int)wanted : MOST_STEPS;
    }
    bench_free(&samples);
    if (!why->code && !bench_measure(l->c->ctx, &all, &subject, 2, 0, &samples, why))
        *longer = log(bench_ratio(&samples, 1, 0));
    bench_free(&samples);
    return why->code;
}

static int measure_size(calibration *c, const border *measured, int64_t bytes, double *longer, failure *why)
{
    layers l = {.c = c, .ways = {c->machine, c->machine}};
    qdr_status status = QDR_OK;
    for (int way = 0; way < 2 && status >= 0; way++) {
        if (measured->of_pairs) status = qdr_machine_set(&l.ways[way], borders[ALL_REDUCE_BORDER].key, NEVER_KIB);
        if (status >= 0) status = qdr_machine_set(&l.ways[way], measured->key, way ? ALWAYS_KIB : NEVER_KIB);
    }
    if (status >= 0) status = make_layers(&l, measured, measured->of_pairs ? 2 : c->ranks_per_node, bytes);
    if (!fail_status(why, status)) compare_ways(&l, longer, why);
    qdr_stack_destroy(&l.stack);
    qdr_grid_destroy(&l.grid);
    return why->code;
}

/* The border for which steps of all sizes together take the least time. */
static int measure_border(calibration *c, const border *measured, failure *why)
{
    double longer[N_SIZES], sum = 0, least = 0;
    const int64_t least_kib = c->is_quick ? QUICK_LEAST_KIB : LEAST_KIB;
    const int n_sizes = c->is_quick ? N_QUICK_SIZES : N_SIZES;
    int first = n_sizes; /* of the sizes above the border */
    for (int i = 0; i < n_sizes; i++) {
        if (measure_size(c, measured, least_kib * 1024 << i, &longer[i], why)) return why->code;
        calibrate_show(c, c->stage);
    }
    for (int i = n_sizes - 1; i >= 0; i--) {
        sum += longer[i];
        if (sum >= least) continue;
        least = sum;
        first = i;
    }
    return fail_status(why, qdr_machine_set(&c->machine, measured->key, (double)(least_kib << first)));
}

int calibrate_borders(calibration *c, failure *why)
{
    calibrate_show(c, "ways of collectives inside a node");
    for (int i = 0; i < N_BORDERS && !why->code; i++)
        if (c->ranks_per_node % 2 == 0 || !borders[i].of_pairs) measure_border(c, &borders[i], why);
    return why->code ? why->code : fail_status(why, qdr_context_set_machine(c->ctx, &c->machine));
}
