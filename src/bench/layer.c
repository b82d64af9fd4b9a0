/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench layer`: transformer layers on grids, alternately with and without overlap, compared with their
 * products alone. */
#include <quadrille/plan.h>
#include <stdio.h>
#include <unistd.h>

#include "bench/product.h"
#include "common/planning.h"
#include "common/ranks.h"
#include "common/transformer.h"

typedef struct layer_options {
    bench_options shared;
    const char *model; /* NULL: none */
    int64_t hidden, n_heads; /* 0: not given */
    int64_t context, n_sequences, n_layers, n_batch_parts;
    qdr_network network; /* made of these */
    const char *levels; /* NULL: none */
    codec_choice codec;
    const char *machine_name; /* NULL: no prediction */
    qdr_machine machine;
} layer_options;

#define AT(member) .at = offsetof(layer_options, member)

static const option_spec specs[] = {
    {"model", 0, "MODEL", "the first layers of this network, a model's name or a config.json; default: of a GPT-2",
     OPTION_TEXT, AT(model)},
    {"hidden", 0, "N", "hidden size; the MLP is four times as wide; default 512", OPTION_COUNT, AT(hidden), 1, 1 << 20},
    {"heads", 0, "N", "attention heads; must divide --hidden; default 8", OPTION_COUNT, AT(n_heads), 1, 1 << 16},
    {"context", 0, "N", "tokens per sequence; default 256", OPTION_COUNT, AT(context), 1, 1 << 20},
    {"sequences", 0, "N", "sequences over all ranks; default 4", OPTION_COUNT, AT(n_sequences), 1, 1 << 20},
    {"layers", 0, "N", "number of transformer layers; default 1", OPTION_COUNT, AT(n_layers), 1, 1024},
    {"batch-parts", 0, "N", "parts of a rank's sequences (needs x or y > 1, rows replicated); default 1", OPTION_COUNT,
     AT(n_batch_parts), 1, 16},
    {"levels", 0, "GP,OP", BENCH_LEVELS_HELP, OPTION_TEXT, AT(levels)},
    {"codec", 0, "CODECS", CODEC_HELP "; default: QDR_CODEC, which --machine does not know, else none", OPTION_OTHER,
     AT(codec), .take = take_codecs},
    {"machine", 0, "M", "a machine's name or file: also print the predicted time", OPTION_TEXT, AT(machine_name)},
    BENCH_PRODUCT_SPECS,
};

/* Of a model, or of layers like those of GPT-2. */
static int choose_network(layer_options *options, failure *why)
{
    const int64_t hidden = options->hidden ? options->hidden : 512, n_heads = options->n_heads ? options->n_heads : 8;
    options->network.size = sizeof options->network;
    if (options->model && (options->hidden || options->n_heads))
        return fail(why, EXIT_USAGE, "bench layer: --model %s says all sizes; leave out --hidden and --heads",
                    options->model);
    if (options->model && fail_loading(why, qdr_network_load(options->model, &options->network))) return why->code;
    if (options->model && options->n_layers > options->network.layers)
        return fail(why, EXIT_USAGE, "bench layer: --layers %lld, but %s has %lld; use at most these",
                    (long long)options->n_layers, options->model, (long long)options->network.layers);
    if (options->model) return EXIT_OK;
    if (hidden % n_heads != 0)
        return fail(why, EXIT_USAGE, "bench layer: %lld heads do not divide --hidden %lld; use %lld",
                    (long long)n_heads, (long long)hidden, (long long)((hidden / n_heads + 1) * n_heads));
    options->network = planning_network("layers", options->n_layers, hidden, n_heads, options->context);
    options->network.vocab = 1;
    return EXIT_OK;
}

static int check_options(void *user, failure *why)
{
    layer_options *options = user;
    levels parts = {.is_zero3 = 0};
    if (options->levels && read_levels("levels", options->levels, options->levels, 0, &parts, why)) return why->code;
    if (parts.is_zero3)
        return fail(why, EXIT_USAGE, "bench layer: --levels zero3 is a grid without d; use --grid 1x1xPx1");
    if (options->machine_name && (options->shared.n_panels || options->n_batch_parts != 1))
        return fail(why, EXIT_USAGE,
                    "bench layer: --machine predicts panels that are chosen by cost, and one part "
                    "of the batch; leave --panels and --batch-parts out");
    if (choose_network(options, why)) return why->code;
    options->machine.size = sizeof options->machine;
    return options->machine_name ? fail_status(why, qdr_machine_load(options->machine_name, &options->machine))
                                 : EXIT_OK;
}

static void write_title(const void *user, int n_ranks, char *title, size_t capacity)
{
    const layer_options *options = user;
    snprintf(
        title, capacity,
        "# %lld transformer layer%s%s%s, hidden %lld, %lld heads, %lld sequences of %lld tokens, %s, %s, %d rank%s\n"
        "# times of the slowest rank: with overlap; serial: without; gain: median of serial / time\n"
        "# limit: each rank's products alone, alternating; share: median of limit / time\n"
        "%s",
        (long long)options->n_layers, PLURAL(options->n_layers), options->model ? " of " : "",
        options->model ? options->network.name : "", (long long)options->network.hidden,
        (long long)options->network.heads, (long long)options->n_sequences, (long long)options->context,
        qdr_dtype_name(options->shared.dtype), layout_word(options->shared.layout), n_ranks, PLURAL(n_ranks),
        options->machine_name ? "# model: what --machine says of both; error: model / median - 1\n" : "");
}

/* ---- what is measured ---- */

/* The series of one pass. The series of the two passes are followed by those of both together. */
enum { OVERLAPPED, SERIAL, LIMIT, N_VARIANTS };
enum { N_SERIES = N_PASSES * N_VARIANTS, PASS_TOGETHER = N_PASSES };

static const char *const layer_products[] = {"block0.qkv", "block0.proj", "block0.fc", "block0.fc2"};
enum { N_LAYER_PRODUCTS = 4 };

typedef struct layer_bench {
    qdr_context *ctx, *alone;
    qdr_grid *grid;
    transformer stacks[LIMIT]; /* with overlap, and without */
    product limits[N_LAYER_PRODUCTS]; /* of one layer, on this rank alone */
    int64_t n_layers;
} layer_bench;

/* Whether the parameters and gradients of this node's ranks can be held at all, on CPUs, where the system would end the
 * program; a GPU says what it lacks. The products alone are those of one more layer. */
static int check_memory(const layer_bench *bench, const layer_options *options, failure *why)
{
    const qdr_dtype dtype = options->shared.dtype;
    const double node_bytes = (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
    const int rank = qdr_context_rank(bench->ctx);
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    int n_here = 0;
    for (int i = 0; i < qdr_context_size(bench->ctx); i++)
        n_here += qdr_context_node(bench->ctx, i) == qdr_context_node(bench->ctx, rank);
    if (is_on_gpu(bench->ctx) || fail_status(why, qdr_network_params(&options->network, &counts))) return why->code;
    const double share = (double)n_here / qdr_context_size(bench->ctx) * qdr_grid_size(bench->grid, QDR_D);
    const double each = (double)qdr_dtype_bytes(dtype) + (dtype == QDR_F64 ? 8 : 4);
    const double bytes = share * each * (double)(LIMIT * options->n_layers + 1) * (double)counts.layer;
    if (bytes > node_bytes)
        fail(why, EXIT_NOTHING_FITS,
             "bench layer: the parameters and gradients of two stacks of %lld layer%s take %.3g GiB of a node's %.3g; "
             "use fewer layers, a grid with a smaller d, another --dtype or more nodes",
             (long long)options->n_layers, PLURAL(options->n_layers), bytes / GIB, node_bytes / GIB);
    return fail_together(why, bench->ctx);
}

static qdr_status prepare(layer_bench *bench, const layer_options *options)
{
    const qdr_network *network = &options->network;
    const int biases[N_LAYER_PRODUCTS] = {network->qkv_bias, network->out_bias, network->mlp_bias, network->mlp_bias};
    for (int i = 0; i < LIMIT; i++) {
        const transformer_desc desc = {
            .network = network,
            .n_layers = options->n_layers,
            .n_sequences = options->n_sequences,
            .sequence = options->context,
            .dtype = options->shared.dtype,
            .layout = options->shared.layout,
            .n_panels = (int)options->shared.n_panels,
            .n_batch_parts = (int)options->n_batch_parts,
            .overlap = i == SERIAL ? QDR_OVERLAP_NONE : QDR_OVERLAP_ALL,
            .codecs = options->codec.is_given ? &options->codec.codecs : NULL,
        };
        TRY(transformer_create(bench->grid, &desc, &bench->stacks[i]));
    }
    TRY(context_alone(bench->ctx, &bench->alone));
    qdr_status status = QDR_OK;
    product_desc own = {.dtype = options->shared.dtype, .n_panels = 1};
    for (int i = 0; status >= 0 && i < N_LAYER_PRODUCTS; i++) {
        own.bias = biases[i];
        status = product_create_own(bench->alone, bench->grid,
                                    qdr_stack_find_layer(bench->stacks[0].stack, layer_products[i]), &own,
                                    &bench->limits[i]);
    }
    return qdr_agree(bench->ctx, status);
}

static qdr_status call(void *user, int series)
{
    const layer_bench *bench = user;
    const int variant = series % N_VARIANTS;
    const product_pass pass = (product_pass)(series / N_VARIANTS);
    if (variant == LIMIT) {
        for (int64_t layer = 0; layer < bench->n_layers; layer++)
            for (int i = 0; i < N_LAYER_PRODUCTS; i++) TRY(product_run(&bench->limits[i], pass));
        return QDR_OK;
    }
    /* Each forward is the first after a step: with levels, parameters return. */
    qdr_stack *stack = bench->stacks[variant].stack;
    if (pass == PASS_FORWARD) TRY(qdr_stack_mark_updated(stack));
    TRY(pass == PASS_BACKWARD ? qdr_stack_backward(stack, 0, 1) : qdr_stack_forward(stack));
    return qdr_stream_synchronize(qdr_context_stream(bench->ctx));
}

/* A backward pass follows its forward pass and overwrites the gradient that it starts from. */
static void fill_gradients(void *user, int series, int64_t iteration)
{
    const layer_bench *bench = user;
    (void)iteration;
    /* A device that has failed says so in the next call. */
    if (series < LIMIT) (void)transformer_fill_gradient(&bench->stacks[series]);
}

/* Seconds of each pass and of both together, with and without overlap. */
static qdr_status predict(const layer_options *options, const qdr_grid *grid, grid_size size,
                          double said[N_PASSES + 1][2])
{
    static const int overlaps[] = {QDR_OVERLAP_ALL, QDR_OVERLAP_NONE};
    qdr_plan plan = {QDR_INIT(qdr_plan),
                     .x = size.x,
                     .y = size.y,
                     .z = size.z,
                     .d = size.d,
                     .gradient_parts = qdr_grid_parts(grid, QDR_LEVEL_GRADIENTS),
                     .optimizer_parts = qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER),
                     .layout = options->shared.layout,
                     .dtype = options->shared.dtype,
                     .batch = options->n_sequences,
                     .sequence = options->context,
                     .codecs = options->codec.codecs};
    qdr_model *model = NULL;
    if (!options->machine_name) return QDR_OK;
    qdr_status status = qdr_model_create(&options->machine, &options->network, &model);
    for (int i = 0; i < 2 && status >= 0; i++) {
        double secs[N_PASSES];
        plan.overlap = overlaps[i];
        status = qdr_model_layers_time(model, &plan, (int)options->n_layers, &secs[0], &secs[1]);
        for (int pass = 0; pass < N_PASSES; pass++) said[pass][i] = secs[pass];
        said[PASS_TOGETHER][i] = secs[0] + secs[1];
    }
    qdr_model_destroy(&model);
    return status;
}

/* ---- one grid ---- */

static void print_pass(bench_run *run, const layer_options *options, const qdr_grid *grid, grid_size size,
                       const bench_samples *samples, const double said[2], int pass)
{
    const grid_text shape = grid_words(size);
    char split[32], codecs[CODECS_BYTES];
    const int first = N_VARIANTS * pass;
    const bench_times overlapped = bench_times_of(samples, first + OVERLAPPED);
    const bench_times serial = bench_times_of(samples, first + SERIAL);
    const double n_tokens = (double)options->n_sequences * (double)options->context;
    snprintf(split, sizeof split, "%d,%d", qdr_grid_parts(grid, QDR_LEVEL_GRADIENTS),
             qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER));
    qdr_codecs_text(&options->codec.codecs, codecs, sizeof codecs);
    const bench_cell cells[] = {
        {"grid", "grid", "", 12, BENCH_TEXT(shape.text)},
        {"levels", "levels", "", 9, BENCH_IF(options->levels, BENCH_TEXT(split))},
        {"codec", "codec", "", 12, BENCH_IF(options->codec.is_given, BENCH_TEXT(codecs))},
        {"pass", "pass", "", 9, BENCH_TEXT(pass == PASS_TOGETHER ? "together" : product_pass_text((product_pass)pass))},
        BENCH_SETTING("model", BENCH_TEXT(options->network.name)),
        BENCH_SETTING("hidden", BENCH_WHOLE(options->network.hidden)),
        BENCH_SETTING("heads", BENCH_WHOLE(options->network.heads)),
        BENCH_SETTING("context", BENCH_WHOLE(options->context)),
        BENCH_SETTING("sequences", BENCH_WHOLE(options->n_sequences)),
        BENCH_SETTING("layers", BENCH_WHOLE(options->n_layers)),
        BENCH_SETTING("batch_parts", BENCH_WHOLE(options->n_batch_parts)),
        BENCH_SETTING("dtype", BENCH_TEXT(qdr_dtype_name(options->shared.dtype))),
        BENCH_SETTING("layout", BENCH_TEXT(layout_word(options->shared.layout))),
        BENCH_SETTING("ranks", BENCH_WHOLE(qdr_context_size(run->ctx))),
        BENCH_TIMES("", "(ms)", 1e3, overlapped),
        BENCH_TIMES("serial_", "serial", 1e3, serial),
        {"gain", "gain", "", 6, BENCH_REAL(bench_ratio(samples, first + SERIAL, first + OVERLAPPED), 1, 3)},
        {"limit_median_secs", "limit", "(ms)", 10, BENCH_REAL(bench_times_of(samples, first + LIMIT).median, 1e3, 3)},
        {"share", "share", "", 6, BENCH_REAL(bench_ratio(samples, first + LIMIT, first + OVERLAPPED), 1, 3)},
        {"tokens_per_sec", "tokens/s", "", 10, BENCH_REAL(n_tokens / overlapped.median, 1, 0)},
        {"samples", "samples", "", 7, BENCH_WHOLE(samples->n)},
        {"predicted_secs", "model", "(ms)", 9, BENCH_IF(options->machine_name, BENCH_REAL(said[0], 1e3, 3))},
        {"serial_predicted_secs", "model", "serial", 9, BENCH_IF(options->machine_name, BENCH_REAL(said[1], 1e3, 3))},
        {"error", "error", "", 7, BENCH_IF(options->machine_name, BENCH_REAL(said[0] / overlapped.median - 1, 1, 3))},
    };
    BENCH_ROW(run, cells);
}

static int run_grid(bench_run *run, const void *user, grid_size size, failure *why)
{
    const layer_options *options = user;
    layer_bench bench = {.ctx = run->ctx, .n_layers = options->n_layers};
    const bench_subject passes = {.call = call, .after = fill_gradients, .user = &bench};
    bench_samples samples = {0};
    double said[N_PASSES + 1][2] = {{0}};
    if (bench_make_grid(run, &options->shared, options->levels, size, &bench.grid, why) || !bench.grid)
        return why->code;
    if (!check_memory(&bench, options, why) && !fail_status(why, predict(options, bench.grid, size, said)) &&
        !fail_status(why, prepare(&bench, options)))
        bench_measure(run->ctx, &options->shared, &passes, N_SERIES, N_VARIANTS, &samples, why);
    for (int variant = 0; !why->code && variant < N_VARIANTS; variant++)
        bench_add(&samples, variant, N_VARIANTS + variant, N_SERIES + variant);
    for (int pass = 0; !why->code && pass <= PASS_TOGETHER; pass++)
        print_pass(run, options, bench.grid, size, &samples, said[pass], pass);
    bench_free(&samples);
    for (int i = 0; i < N_LAYER_PRODUCTS; i++) product_destroy(&bench.limits[i]);
    qdr_context_destroy(&bench.alone);
    for (int i = 0; i < LIMIT; i++) qdr_stack_destroy(&bench.stacks[i].stack);
    qdr_grid_destroy(&bench.grid);
    return why->code;
}

static const bench_kind kind = {
    .command = &command_bench_layer,
    .check = check_options,
    .write_title = write_title,
    .run_grid = run_grid,
};

static int run(int argc, char **argv)
{
    layer_options options = {.shared = {.n_iterations = 10, .n_warmup = 2},
                             .context = 256,
                             .n_sequences = 4,
                             .n_layers = 1,
                             .n_batch_parts = 1};
    return bench_main(&kind, &options.shared, argc, argv);
}

const command command_bench_layer = {
    .name = "bench layer",
    .summary = "transformer layers with and without overlap, tokens per second",
    .text = "Times forward and backward of transformer layers (norm, qkv, attention, proj; norm, fc, gelu, fc2)\n"
            "on a grid, alternating with two references: the same schedule without overlap, and each rank's\n"
            "products alone (no norms, attention or communication).",
    .options = specs,
    .examples = "  quadrille bench layer --local 4 --grid all --hidden 1024 --heads 16\n"
                "  mpiexec.mpich -n 4 quadrille bench layer --grid 2x2x1x1 --layout scattered --json\n"
                "  mpiexec.mpich -n 4 quadrille bench layer --grid all --machine cluster.json\n"
                "  quadrille bench layer --local 4 --grid 2x2x1x1 --model llama-3.2-1b --sequences 1\n",
    .run = run,
};
