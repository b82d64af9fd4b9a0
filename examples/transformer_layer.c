/* SPDX-License-Identifier: Apache-2.0 */
/* Times one transformer block on a grid: forward, backward, and the traffic along each axis.
 *
 *   transformer_layer --local 2 --grid 1x2x1x1 --hidden 512 --batch 4 --ctx 256
 *
 * Times are medians over iterations on the slowest rank. Bytes and calls are rank 0's, per iteration. */
#include <jansson.h>
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/choice.h"
#include "common/gpt.h"
#include "common/meter.h"
#include "src/common/process.h"
#include "src/common/statistics.h"
#include "src/common/transformer.h"

#define WARM_ITERATIONS 2

typedef struct settings {
    choice how; /* must be first; grid, order, layout, overlap, type; context, batch */
    int json, products; /* products: 1 in fp8 */
    int64_t hidden, n_heads, n_iterations; /* 0: not given */
    const char *model; /* a name or a file; NULL: not given */
    qdr_network network; /* made: that of the block */
} settings;

typedef struct block_driver {
    const settings *set; /* `own`: the given settings, completed */
    settings own;
    qdr_context *ctx;
    char *sentence;
    qdr_grid *grid;
    transformer made;
    double *forward_secs, *backward_secs; /* of each iteration, on the slowest rank */
    qdr_graph *forward, *backward; /* recorded; NULL: enqueued task by task */
} block_driver;

/* One kind of collective on one channel, per iteration. */
typedef struct traffic_row {
    const char *channel, *kind;
    double n_calls, bytes, planned_bytes, secs; /* secs: 0 on GPUs, where it is not measured */
} traffic_row;

static qdr_status build(block_driver *driver)
{
    const settings *set = driver->set;
    const transformer_desc desc = {
        .network = &set->network,
        .n_layers = 1,
        .n_sequences = set->how.batch,
        .sequence = set->how.context,
        .dtype = (qdr_dtype)set->how.dtype,
        .layout = (qdr_layout)set->how.layout,
        .overlap = set->how.serial ? QDR_OVERLAP_NONE : set->how.overlap,
        .n_panels = (int)set->how.n_panels,
        .n_batch_parts = (int)set->how.n_batch_parts,
        .codecs = set->how.codecs.size ? &set->how.codecs : NULL,
        .recompute = (qdr_recompute)set->how.recompute,
        .products = set->products == 1 ? QDR_PRODUCT_FP8 : QDR_PRODUCT_AS_STORED,
    };
    return transformer_create(driver->grid, &desc, &driver->made);
}

static int has_levels(const block_driver *driver)
{
    return qdr_grid_parts(driver->grid, QDR_LEVEL_OPTIMIZER) > qdr_grid_parts(driver->grid, QDR_LEVEL_WEIGHTS);
}

/* With levels, each forward is the first one after a step, which returns parameters. */
static qdr_status run_forward(const block_driver *driver)
{
    if (!driver->forward) TRY(qdr_stack_mark_updated(driver->made.stack));
    return driver->forward ? qdr_graph_launch(driver->forward, NULL) : qdr_stack_forward(driver->made.stack);
}

static qdr_status run_backward(const block_driver *driver)
{
    return driver->backward ? qdr_graph_launch(driver->backward, NULL) : qdr_stack_backward(driver->made.stack, 0, 1);
}

static qdr_status record(const block_driver *driver, qdr_status (*run)(const block_driver *driver), qdr_graph **graph)
{
    TRY(qdr_graph_begin(driver->ctx));
    const qdr_status status = run(driver);
    const qdr_status ended = qdr_graph_end(driver->ctx, graph);
    return status < 0 ? status : ended;
}

/* Both directions, each from a common start to the end of this rank's work. */
static qdr_status iterate(block_driver *driver, double *forward, double *backward)
{
    qdr_stream *stream = qdr_context_stream(driver->ctx);
    TRY(qdr_barrier(driver->ctx));
    double began = process_secs();
    TRY(run_forward(driver));
    TRY(qdr_stream_synchronize(stream));
    *forward = process_secs() - began;
    TRY(qdr_agree(driver->ctx, transformer_fill_gradient(&driver->made)));
    TRY(qdr_barrier(driver->ctx));
    began = process_secs();
    TRY(run_backward(driver));
    TRY(qdr_stream_synchronize(stream));
    *backward = process_secs() - began;
    return QDR_OK;
}

static qdr_status measure(block_driver *driver)
{
    const int64_t n = driver->set->n_iterations;
    double forward, backward;
    for (int i = 0; i < WARM_ITERATIONS; i++) TRY(iterate(driver, &forward, &backward));
    qdr_grid_reset_traffic(driver->grid);
    if (driver->set->how.recorded) {
        TRY(record(driver, run_forward, &driver->forward));
        TRY(record(driver, run_backward, &driver->backward));
    }
    for (int64_t i = 0; i < n; i++) TRY(iterate(driver, &driver->forward_secs[i], &driver->backward_secs[i]));
    return QDR_OK;
}

static int read_traffic(const block_driver *driver, traffic_row rows[QDR_N_CHANNELS * QDR_N_COLL_KINDS])
{
    /* Recorded work is enqueued, and counted, once. */
    const double n = driver->set->how.recorded ? 1 : (double)driver->set->n_iterations;
    const qdr_list forwards = has_levels(driver) ? QDR_LIST_FIRST_FORWARD : QDR_LIST_FORWARD;
    int n_rows = 0;
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
            const qdr_channel c = (qdr_channel)channel;
            const qdr_coll_kind k = (qdr_coll_kind)kind;
            qdr_traffic done = {QDR_INIT(qdr_traffic)};
            qdr_planned forward = {QDR_INIT(qdr_planned)}, backward = {QDR_INIT(qdr_planned)};
            if (qdr_grid_traffic(driver->grid, c, k, &done) < 0 ||
                qdr_stack_planned(driver->made.stack, forwards, c, k, &forward) < 0 ||
                qdr_stack_planned(driver->made.stack, QDR_LIST_BACKWARD, c, k, &backward) < 0)
                continue;
            if (done.n_calls || forward.n_calls || backward.n_calls)
                rows[n_rows++] = (traffic_row){qdr_channel_name(c),
                                               qdr_coll_kind_name(k),
                                               (double)done.n_calls / n,
                                               (double)done.bytes_sent / n,
                                               (double)(forward.bytes_sent + backward.bytes_sent),
                                               done.secs / n};
        }
    return n_rows;
}

typedef struct block_result {
    double forward_secs, backward_secs, forward_gflops, backward_gflops, tokens_per_s;
    traffic_row rows[QDR_N_CHANNELS * QDR_N_COLL_KINDS];
    int n_rows;
} block_result;

static qdr_status conclude(block_driver *driver, block_result *result)
{
    const settings *set = driver->set;
    double forward_flops, backward_flops, unused;
    result->n_rows = read_traffic(driver, result->rows); /* before this function's own collectives */
    for (int64_t i = 0; i < set->n_iterations; i++) {
        TRY(meter_over_ranks(driver->grid, driver->forward_secs[i], &unused, &driver->forward_secs[i]));
        TRY(meter_over_ranks(driver->grid, driver->backward_secs[i], &unused, &driver->backward_secs[i]));
    }
    /* In the replicated layout, norms and residuals are computed, and counted, more than once. */
    TRY(meter_over_ranks(driver->grid, qdr_stack_flops(driver->made.stack, QDR_LIST_FORWARD), &forward_flops, &unused));
    TRY(meter_over_ranks(driver->grid, qdr_stack_flops(driver->made.stack, QDR_LIST_BACKWARD), &backward_flops,
                         &unused));
    result->forward_secs = statistics_median(driver->forward_secs, (size_t)set->n_iterations);
    result->backward_secs = statistics_median(driver->backward_secs, (size_t)set->n_iterations);
    result->forward_gflops = 1e-9 * forward_flops / result->forward_secs;
    result->backward_gflops = 1e-9 * backward_flops / result->backward_secs;
    result->tokens_per_s = (double)(set->how.batch * set->how.context) / (result->forward_secs + result->backward_secs);
    return QDR_OK;
}

static void print_table(const block_driver *driver, const block_result *result)
{
    const settings *set = driver->set;
    printf("transformer block, hidden %lld, %lld heads, %lld sequences of %lld tokens\n",
           (long long)set->network.hidden, (long long)set->network.heads, (long long)set->how.batch,
           (long long)set->how.context);
    char split[64] = "";
    if (has_levels(driver))
        snprintf(split, sizeof split, ", levels %d,%d", qdr_grid_parts(driver->grid, QDR_LEVEL_GRADIENTS),
                 qdr_grid_parts(driver->grid, QDR_LEVEL_OPTIMIZER));
    printf("grid %s, order %s%s, %s, %s%s, %sthreads per rank: %d, median of %lld iterations\n\n",
           grid_words(set->how.grid).text, set->how.order, split, layout_word((qdr_layout)set->how.layout),
           qdr_dtype_name((qdr_dtype)set->how.dtype), set->products ? " with fp8 products" : "",
           set->how.recorded ? "as graphs, " : "", qdr_context_threads(driver->ctx), (long long)set->n_iterations);
    if (qdr_stack_print_storage(driver->made.stack, stdout) == QDR_OK) putchar('\n');
    printf("forward   %10.3f ms %10.1f GFLOP/s\n", 1e3 * result->forward_secs, result->forward_gflops);
    printf("backward  %10.3f ms %10.1f GFLOP/s\n", 1e3 * result->backward_secs, result->backward_gflops);
    printf("together  %10.3f ms %10.0f tokens/s\n\n", 1e3 * (result->forward_secs + result->backward_secs),
           result->tokens_per_s);
    if (result->n_rows == 0) {
        puts("no rank sends anything");
        return;
    }
    printf("%-10s %-15s %8s %14s %14s %10s\n", "channel", "collective", "calls", "bytes sent", "bytes planned", "ms");
    for (int i = 0; i < result->n_rows; i++) {
        const traffic_row *row = &result->rows[i];
        printf("%-10s %-15s %8.4g %14.0f %14.0f ", row->channel, row->kind, row->n_calls, row->bytes,
               row->planned_bytes);
        if (row->secs > 0)
            printf("%10.3f\n", 1e3 * row->secs);
        else
            printf("%10s\n", "-");
    }
}

static json_t *traffic_json(const block_result *result)
{
    json_t *list = json_array();
    for (int i = 0; i < result->n_rows; i++) {
        const traffic_row *row = &result->rows[i];
        json_array_append_new(list, json_pack("{s:s, s:s, s:f, s:f, s:f, s:o}", "channel", row->channel, "collective",
                                              row->kind, "calls", row->n_calls, "bytes_sent", row->bytes,
                                              "bytes_planned", row->planned_bytes, "secs",
                                              row->secs > 0 ? json_real(row->secs) : json_null()));
    }
    return list;
}

static void print_json(const block_driver *driver, const block_result *result)
{
    const settings *set = driver->set;
    json_t *all = json_pack(
        "{s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:b, s:i, s:i, s:I, s:I, s:I, s:I, s:I, s:f, s:f, s:f, s:f, s:f, "
        "s:o}",
        "grid", grid_words(set->how.grid).text, "order", set->how.order, "gradient_parts",
        qdr_grid_parts(driver->grid, QDR_LEVEL_GRADIENTS), "optimizer_parts",
        qdr_grid_parts(driver->grid, QDR_LEVEL_OPTIMIZER), "layout", layout_word((qdr_layout)set->how.layout),
        "recompute", recompute_word((qdr_recompute)set->how.recompute), "dtype",
        qdr_dtype_name((qdr_dtype)set->how.dtype), "products", set->products ? "fp8" : "stored", "graph",
        set->how.recorded, "ranks", qdr_context_size(driver->ctx), "threads_per_rank", qdr_context_threads(driver->ctx),
        "hidden", (json_int_t)set->network.hidden, "heads", (json_int_t)set->network.heads, "ctx",
        (json_int_t)set->how.context, "batch", (json_int_t)set->how.batch, "iterations", (json_int_t)set->n_iterations,
        "forward_secs", result->forward_secs, "backward_secs", result->backward_secs, "forward_gflops",
        result->forward_gflops, "backward_gflops", result->backward_gflops, "tokens_per_s", result->tokens_per_s,
        "traffic", traffic_json(result));
    if (all != NULL) json_dumpf(all, stdout, JSON_INDENT(2) | JSON_PRESERVE_ORDER);
    putchar('\n');
    json_decref(all);
}

/* One forward pass takes the whole batch, unless a plan divides it. */
static const choice usual = {.order = "xyzd", .context = 256, .batch = 4, .micro_batch = 1 << 24};

/* The network whose first layer is timed: a model, that of a plan, or a GPT-2 of one layer with the smallest possible
 * ends. */
static qdr_status complete(block_driver *driver)
{
    settings *set = &driver->own;
    qdr_network *network = &set->network;
    TRY(choice_load_plan(driver->ctx, &set->how));
    if (set->model && (set->hidden || set->n_heads))
        return REFUSE(driver->sentence, "--model %.300s says all sizes; leave out --hidden and --heads", set->model);
    if (set->model) return choice_load_network(driver->ctx, set->model, network);
    if (set->how.planned.plan.x) {
        *network = set->how.planned.network;
        if (set->hidden) network->hidden = set->hidden;
        if (set->n_heads) network->heads = set->n_heads;
        return QDR_OK;
    }
    const qdr_network sizes = {.layers = 1,
                               .hidden = set->hidden ? set->hidden : 512,
                               .heads = set->n_heads ? set->n_heads : 8,
                               .vocab = 1,
                               .context = usual.context};
    if (sizes.hidden % sizes.heads != 0)
        return REFUSE(driver->sentence, "--hidden %lld is not divisible by --heads %lld; use --hidden %lld",
                      (long long)sizes.hidden, (long long)sizes.heads,
                      (long long)((sizes.hidden / sizes.heads + 1) * sizes.heads));
    *network = gpt_network(sizes);
    return QDR_OK;
}

/* What the command line leaves open may be set by a plan or the model. */
static qdr_status choose(block_driver *driver)
{
    choice *how = &driver->own.how;
    qdr_network network = driver->set->network;
    how->is_part = how->planned.plan.x != 0;
    if (!how->is_part) network.layers = network.vocab = 1; /* which need least memory */
    const choice given_how = *how;
    TRY(choice_make(driver->ctx, &given_how, &usual, &network, how, driver->sentence));
    const int64_t cells = how->grid.x ? (int64_t)how->grid.z * how->grid.d : 1;
    if (how->micro_batch <= how->batch / cells) how->batch = how->micro_batch * cells;
    return QDR_OK;
}

static qdr_status drive(block_driver *driver)
{
    const settings *set = driver->set;
    block_result result = {0};
    TRY(complete(driver));
    TRY(choose(driver));
    TRY(choice_make_grid(driver->ctx, &driver->own.how, driver->sentence, &driver->grid));
    driver->forward_secs = program_new(driver->ctx, set->n_iterations, sizeof(double));
    driver->backward_secs = program_new(driver->ctx, set->n_iterations, sizeof(double));
    if (!driver->forward_secs || !driver->backward_secs) return QDR_ERR_MEMORY;
    TRY(build(driver));
    qdr_codecs codecs;
    TRY(qdr_stack_get_codecs(driver->made.stack, &codecs));
    choice_tell_codecs(driver->ctx, &codecs);
    TRY(measure(driver));
    TRY(conclude(driver, &result));
    if (qdr_context_rank(driver->ctx) == 0) (set->json ? print_json : print_table)(driver, &result);
    return QDR_OK;
}

static qdr_status run_rank(qdr_context *ctx, const void *user, char sentence[PROBLEM_BYTES])
{
    block_driver driver = {.own = *(const settings *)user, .ctx = ctx, .sentence = sentence};
    driver.set = &driver.own;
    const qdr_status status = drive(&driver);
    qdr_graph_destroy(&driver.forward);
    qdr_graph_destroy(&driver.backward);
    qdr_stack_destroy(&driver.made.stack);
    qdr_grid_destroy(&driver.grid);
    free(driver.forward_secs);
    free(driver.backward_secs);
    return status;
}

/* The defaults, which the command line overwrites. */
static settings given = {.how = {.layout = -1, .dtype = -1, .serial = -1, .recompute = -1}, .n_iterations = 20};

#define AT(member) .at = offsetof(settings, member)

static const option_spec specs[] = {
    CHOICE_SPECS,
    {"shape", .kind = OPTION_HEADING},
    {"model", 0, "NAME|FILE",
     "time the first layer of this network, a name of `quadrille list models` or a config.json (default: that of the "
     "plan, else a GPT-2's)",
     OPTION_TEXT, AT(model)},
    {"hidden", 0, "N", "hidden size; the MLP is four times as wide (default 512)", OPTION_COUNT, AT(hidden), 1,
     1 << 20},
    {"heads", 0, "N", "attention heads; must divide --hidden (default 8)", OPTION_COUNT, AT(n_heads), 1, 1 << 16},
    {"ctx", 0, "N", "tokens per sequence (default 256)", OPTION_COUNT, AT(how.context), 1, 1 << 20},
    {"batch", 0, "N", "sequences over all ranks (default 4)", OPTION_COUNT, AT(how.batch), 1, 1 << 24},
    {"dtype", 0, "f32|f64|bf16|f16", "type of parameters and activations (default f32)", OPTION_DTYPE, AT(how.dtype)},
    {"products", 0, "stored|fp8",
     "operands of products: as stored (default), or rounded to fp8 first (needs --dtype f32 or bf16)", OPTION_CHOICE,
     AT(products)},
    {"measurement", .kind = OPTION_HEADING},
    {"iterations", 0, "N", "measured iterations, after two warm-up iterations (default 20)", OPTION_COUNT,
     AT(n_iterations), 1, 1000000},
    {"json", 0, NULL, "print one JSON object instead of a table", OPTION_FLAG, AT(json)},
    OPTIONS_END,
};

int main(int argc, char **argv)
{
    const program about = {
        .name = "transformer_layer",
        .usage = "transformer_layer [options]        or: mpiexec.mpich -n P transformer_layer [options]",
        .text = "Times one transformer block (norm, qkv, attention, proj, norm, fc, gelu, fc2), or the first layer of\n"
                "another network, on a 4D grid, forward and backward, and prints the bytes that each kind of\n"
                "collective sent, beside the bytes planned.",
        .options = specs,
        .examples = "  transformer_layer --local 2 --grid 1x2x1x1\n"
                    "  mpiexec.mpich -n 4 transformer_layer --grid 2x2x1x1 --layout scattered "
                    "--hidden 1024 --json\n"
                    "  transformer_layer --local 4 --grid 2x2x1x1 --model llama-3.2-1b --batch 1\n",
        .run = run_rank,
    };
    return program_start(&about, argc, argv, &given.how);
}
