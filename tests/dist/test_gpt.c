/* SPDX-License-Identifier: Apache-2.0 */
/* The GPT of examples/common on every grid of p local ranks and in both layouts, compared with one process that uses
 * plain loops:
 *   f64   the loss of each AdamW step within 1e-9 relative, every gradient of step 0 within the roundings' effect
 *   f32   the loss of each step within 1e-4 relative
 *   bf16  the loss of each step within 2 % (parameters have 8 bits; this only checks that everything is connected)
 *   f16   gradients scaled by 1024, the loss of each step within 0.25 %: it has three bits more
 * Initial weights are drawn on each grid and must be the same on all. --levels: with all partitions of gradients and
 * optimizer state of each grid. --validate: after every other step the loss of another batch is compared, too.
 *
 *   test_gpt [--ranks P | --boot P | --mpi] [--steps N] [--dtype f32|f64|bf16|f16] [--grid GXxGYxGZxGD]
 *            [--micro-batch 1] [--batch-parts N] [--tie] [--overlap off] [--levels] [--validate] */
#include <math.h>
#include <quadrille/quadrille.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../narrow.h"
#include "../reference/network_serial.h"
#include "../support/gpt_fill.h"
#include "common/boot.h"
#include "common/options.h"

/* Nothing divides anything: 5 sequences, 3 heads, a vocabulary of 37. */
enum { LAYERS = 2, HIDDEN = 24, HEADS = 3, CONTEXT = 8, VOCAB = 37, N_SEQUENCES = 5 };
#define MAX_TOKENS 64
#define MAX_PARAMETERS 64
#define MAX_STEPS 1000
#define TEXT_BYTES 4096
#define LR 3e-3

typedef struct settings {
    int64_t ranks, boot, steps, per_forward, batch_parts;
    int dtype, tied, serial, levels, validate, by_mpi;
    grid_size grid; /* x = 0: all grids */
} settings;
static settings set = {.ranks = 8, .steps = 50, .dtype = QDR_F64};

/* What the serial run gave. */
static struct {
    uint8_t text[TEXT_BYTES];
    double losses[MAX_STEPS], validation[MAX_STEPS]; /* of each step; after it */
    int decay[MAX_PARAMETERS];
    serial_network first, net; /* before step 0, with its gradients; after the last step */
    int n_cases, n_bad;
} oracle;

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status try_status_ = (call);                                                                         \
        if (try_status_ < 0) return try_status_;                                                                       \
    } while (0)

static uint32_t lcg(uint32_t *state) { return *state = *state * 1664525u + 1013904223u; }

/* Something to learn: most bytes follow from the one before. */
static void make_text(void)
{
    uint32_t state = 4711;
    for (int i = 0; i < TEXT_BYTES; i++) {
        const int drawn = (int)(lcg(&state) >> 8);
        const int byte = i > 0 && drawn % 4 != 0 ? oracle.text[i - 1] * 5 + 1 : drawn / 4;
        oracle.text[i] = (uint8_t)(byte % VOCAB);
    }
}

static int64_t start_of(int64_t step, int sequence)
{
    uint32_t state = (uint32_t)(step * 131 + sequence);
    lcg(&state);
    return (int64_t)lcg(&state) % (TEXT_BYTES - 1 - CONTEXT);
}

static void serial_batch(int64_t step, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < N_SEQUENCES; i++)
        for (int j = 0; j < CONTEXT; j++) {
            tokens[i * CONTEXT + j] = oracle.text[start_of(step, i) + j];
            targets[i * CONTEXT + j] = oracle.text[start_of(step, i) + j + 1];
        }
}

static gpt_config model_config(qdr_layout layout)
{
    return (gpt_config){
        .network = gpt_network((qdr_network){
            .layers = LAYERS, .hidden = HIDDEN, .heads = HEADS, .vocab = VOCAB, .tied = set.tied, .context = CONTEXT}),
        .context = CONTEXT,
        .n_sequences = set.per_forward ? set.per_forward : N_SEQUENCES,
        .layout = layout,
        .dtype = (qdr_dtype)set.dtype,
        .overlap = set.serial ? QDR_OVERLAP_NONE : QDR_OVERLAP_ALL,
        .batch_parts = (int)set.batch_parts};
}

/* A gathered parameter or gradient as f64. */
static double element(const void *values, int64_t i, qdr_dtype dtype)
{
    if (dtype == QDR_F64) return ((const double *)values)[i];
    if (dtype == QDR_F32) return (double)((const float *)values)[i];
    return narrow_value(dtype, ((const uint16_t *)values)[i]);
}

static int complain(const char *where, const char *format, ...) __attribute__((format(printf, 2, 3)));
static int complain(const char *where, const char *format, ...)
{
    va_list list;
    va_start(list, format);
    fprintf(stderr, "%s: ", where);
    vfprintf(stderr, format, list);
    fputc('\n', stderr);
    va_end(list);
    oracle.n_bad++;
    return -1;
}

/* So that the first forward after a step is sometimes that of a validation, sometimes the next step's. */
static int is_validated(int64_t step) { return set.validate && step % 2; }

/* The mean loss. */
static double serial_pass(const int32_t *tokens, const int32_t *targets)
{
    const double n_rows = N_SEQUENCES * CONTEXT;
    return serial_network_backprop(&oracle.net, N_SEQUENCES, tokens, targets, 1 / n_rows, (serial_noise){0}) / n_rows;
}

/* Rank 0, the first time: the serial run starts from the weights that the library drew on one rank. */
static void run_serial(void)
{
    int32_t tokens[MAX_TOKENS], targets[MAX_TOKENS];
    for (int i = 0; i < oracle.net.n_tensors; i++) {
        const serial_tensor *t = &oracle.first.tensors[i];
        memcpy(oracle.net.tensors[i].value, t->value, (size_t)t->n * sizeof *t->value);
    }
    serial_batch(0, tokens, targets);
    (void)serial_network_expect(&oracle.first, N_SEQUENCES, tokens, targets, 1.0 / (N_SEQUENCES * CONTEXT), 0x1p-52, 1);
    for (int64_t step = 0; step < set.steps; step++) {
        serial_batch(step, tokens, targets);
        oracle.losses[step] = serial_pass(tokens, targets);
        serial_network_adamw(&oracle.net, LR, 0.9, 0.95, 0.1, 1.0, oracle.decay);
        serial_batch(MAX_STEPS + step, tokens, targets);
        if (is_validated(step)) oracle.validation[step] = serial_pass(tokens, targets);
    }
    fprintf(stderr, "serial: loss %.4f at step 0, %.4f at step %d\n", oracle.losses[0], oracle.losses[set.steps - 1],
            (int)set.steps - 1);
}

/* The weights of this grid: kept if they are the first, else equal to the first bit for bit. */
static int check_weights(const char *where, int index, const void *full, int64_t n)
{
    double *kept = oracle.first.tensors[index].value;
    for (int64_t i = 0; i < n; i++) {
        const double value = element(full, i, (qdr_dtype)set.dtype);
        if (oracle.n_cases == 0)
            kept[i] = value;
        else if (kept[i] != value)
            return complain(where, "first weights: parameter %d, element %d is %.17g, on one rank %.17g", index, (int)i,
                            value, kept[i]);
    }
    return 0;
}

static void check_gradient(const char *where, int index, const double *full, double *worst)
{
    const serial_tensor *t = &oracle.first.tensors[index];
    const double distance = serial_tensor_distance(t, full);
    if (!(distance <= t->off))
        complain(where, "the gradient of %s is off by %.2g, more than %.2g", t->name, distance, t->off);
    if (t->off > 0) *worst = fmax(*worst, distance / t->off);
}

typedef struct test_case {
    qdr_context *ctx;
    qdr_grid *grid;
    gpt model;
    qdr_adamw *optimizer;
    int root;
    char name[80];
    double *full; /* the largest parameter, on rank 0 */
    double worst, worst_loss;
} test_case;

/* which 0: weights, 1: gradients. */
static qdr_status check_parameters(test_case *test, int which)
{
    const int n = qdr_stack_n_parameters(test->model.stack);
    if (test->root && n != oracle.first.n_tensors)
        complain(test->name, "the model has %d parameters, the serial one %d", n, oracle.first.n_tensors);
    int good = n == oracle.first.n_tensors;
    for (int i = 0; good && i < n; i++) {
        const serial_tensor *t = &oracle.first.tensors[i];
        qdr_parameter parameter = {QDR_INIT(qdr_parameter)};
        TRY(qdr_stack_parameter(test->model.stack, i, &parameter));
        if (parameter.n_global != t->n || strcmp(parameter.name, t->name) != 0) {
            if (test->root)
                complain(test->name, "%s has %d elements, the serial %s %d", parameter.name, (int)parameter.n_global,
                         t->name, (int)t->n);
            return QDR_ERR_SHAPE;
        }
        TRY(qdr_stack_gather_parameter(test->model.stack, i, (qdr_parameter_data)which,
                                       test->root ? test->full : NULL));
        if (test->root) {
            /* Matrices decay; biases, norms and positions do not. */
            oracle.decay[i] = strstr(parameter.name, ".weight") != NULL;
            if (which == 0)
                check_weights(test->name, i, test->full, parameter.n_global);
            else if (set.dtype == QDR_F64)
                check_gradient(test->name, i, test->full, &test->worst);
        }
    }
    return good ? QDR_OK : QDR_ERR_SHAPE;
}

/* So that small gradients of activations are not lost. */
static double grad_scale(void) { return set.dtype == QDR_F16 ? 1024 : 1; }

/* Every other step is one list with the last backward. */
static int joins(int64_t step) { return step % 2 == 1; }

/* Without backward: only the loss. */
static qdr_status pass_batch(test_case *test, int64_t step, int with_backward, double *loss)
{
    const int64_t per_forward = test->model.config.n_sequences;
    double sum = 0;
    int64_t n = 0;
    for (int64_t first = 0; first < N_SEQUENCES; first += per_forward) {
        int64_t starts[MAX_TOKENS];
        for (int64_t i = 0; i < per_forward; i++)
            starts[i] = first + i < N_SEQUENCES ? start_of(step, (int)(first + i)) : -1;
        double loss_sum;
        int64_t n_valid;
        const int defer = first + per_forward < N_SEQUENCES ? QDR_DEFER_SYNC : 0;
        TRY(gpt_fill(&test->model, oracle.text, starts));
        TRY(qdr_stack_forward(test->model.stack));
        const int flags = (first ? QDR_ACCUMULATE : 0) | defer;
        const double scale = grad_scale() / (N_SEQUENCES * CONTEXT);
        if (with_backward && joins(step) && !defer)
            TRY(qdr_adamw_backward(test->optimizer, flags, scale));
        else if (with_backward)
            TRY(qdr_stack_backward(test->model.stack, flags, scale));
        TRY(qdr_stack_loss(test->model.stack, &loss_sum, &n_valid));
        sum += loss_sum;
        n += n_valid;
    }
    *loss = sum / (double)n;
    return QDR_OK;
}

static void check_loss(test_case *test, const char *what, int64_t step, double loss, double expected)
{
    static const double allowed[] = {[QDR_F32] = 1e-4, [QDR_F64] = 1e-9, [QDR_BF16] = 0.02, [QDR_F16] = 0.0025};
    const double relative = fabs(loss - expected) / expected;
    test->worst_loss = fmax(test->worst_loss, relative);
    if (!(relative <= allowed[set.dtype]))
        complain(test->name, "%s of step %d is %.12g, serial %.12g: relative %.2g > %.0e", what, (int)step, loss,
                 expected, relative, allowed[set.dtype]);
}

static qdr_status run_model(test_case *test, qdr_layout layout)
{
    const gpt_config config = model_config(layout);
    TRY(gpt_create(test->grid, &config, &test->model));
    TRY(gpt_init(&test->model, 1, 0.08));
    TRY(check_parameters(test, 0));
    if (test->root && oracle.n_cases++ == 0) run_serial();
    const qdr_adamw_opts opts = {QDR_INIT(qdr_adamw_opts), .weight_decay = 0.1, .clip_norm = 1,
                                 .grad_scale = grad_scale()};
    TRY(qdr_adamw_create(test->model.stack, &opts, &test->optimizer));
    for (int64_t step = 0; step < set.steps; step++) {
        double loss;
        TRY(pass_batch(test, step, 1, &loss));
        if (test->root) check_loss(test, "loss", step, loss, oracle.losses[step]);
        if (step == 0) TRY(check_parameters(test, 1));
        if (!joins(step)) TRY(qdr_adamw_step(test->optimizer, LR));
        if (!is_validated(step)) continue;
        TRY(pass_batch(test, MAX_STEPS + step, 0, &loss));
        if (test->root) check_loss(test, "validation loss", step, loss, oracle.validation[step]);
    }
    return QDR_OK;
}

static qdr_status run_grid(qdr_context *ctx, const qdr_grid_opts *opts, qdr_layout layout)
{
    test_case test = {.ctx = ctx, .root = qdr_context_rank(ctx) == 0};
    snprintf(test.name, sizeof test.name, "%dx%dx%dx%d levels %d,%d %s %s", opts->x, opts->y, opts->z, opts->d,
             opts->gradient_parts, opts->optimizer_parts, layout ? "scattered" : "replicated",
             qdr_dtype_name((qdr_dtype)set.dtype));
    if (test.root) test.full = calloc((size_t)(4 * HIDDEN * HIDDEN + VOCAB * HIDDEN), sizeof(double));
    qdr_status status = qdr_agree(ctx, test.root && !test.full ? QDR_ERR_MEMORY : QDR_OK);
    if (status >= 0) status = qdr_grid_create(ctx, opts, &test.grid);
    if (status >= 0) status = run_model(&test, layout);
    if (test.root && status < 0)
        complain(test.name, "%s: %s", qdr_status_name(status), qdr_last_error());
    else if (test.root && set.dtype == QDR_F64)
        fprintf(stderr, "%s: losses within %.1e, gradients within %.2f of their bounds\n", test.name, test.worst_loss,
                test.worst);
    else if (test.root)
        fprintf(stderr, "%s: losses within %.1e\n", test.name, test.worst_loss);
    qdr_adamw_destroy(&test.optimizer);
    gpt_destroy(&test.model);
    qdr_grid_destroy(&test.grid);
    free(test.full);
    return status;
}

/* One grid with each partition of its gradients and optimizer state; without --levels over z alone. */
static qdr_status run_levels(qdr_context *ctx, qdr_grid_opts opts, qdr_layout layout)
{
    const int all = opts.z * opts.d;
    for (int gradients = opts.z; gradients <= (set.levels ? all : opts.z); gradients += opts.z)
        for (int state = gradients; state <= (set.levels ? all : opts.z); state += gradients) {
            if (all % gradients || all % state) continue;
            opts.gradient_parts = gradients;
            opts.optimizer_parts = state;
            TRY(run_grid(ctx, &opts, layout));
        }
    return QDR_OK;
}

/* All grids of the ranks there are, each in both layouts; or the one asked for. */
static int run_rank(qdr_context *ctx, void *user)
{
    (void)user;
    const int p = qdr_context_size(ctx);
    for (int x = 1; x <= p; x++)
        for (int y = 1; y <= p / x; y++)
            for (int z = 1; z <= p / (x * y); z++) {
                const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = x, .y = y, .z = z, .d = p / (x * y * z)};
                const int wanted = set.grid.x == 0 || (set.grid.x == x && set.grid.y == y && set.grid.z == z);
                if (x * y * z * opts.d != p || !wanted) continue;
                for (int layout = 0; layout < 2; layout++)
                    if (run_levels(ctx, opts, (qdr_layout)layout) < 0) return 1;
            }
    return qdr_context_rank(ctx) == 0 && oracle.n_bad > 0; /* rank 0 compares */
}

static void make_oracle(void)
{
    qdr_network network = {
        QDR_INIT(qdr_network), .layers = LAYERS, .hidden = HIDDEN,   .heads = HEADS,       .kv_heads = HEADS,
        .ffn = 4 * HIDDEN,     .vocab = VOCAB,   .context = CONTEXT, .positions = CONTEXT, .head_size = HIDDEN / HEADS,
        .qkv_bias = 1,         .out_bias = 1,    .mlp_bias = 1,      .tied = set.tied};
    oracle.first = serial_network_make(&network, CONTEXT, 0);
    oracle.net = serial_network_make(&network, CONTEXT, 0);
    make_text();
}

#define AT(member) .at = offsetof(settings, member)

static const option_spec specs[] = {
    {"ranks", 0, "P", "local ranks", OPTION_COUNT, AT(ranks), 1, 64},
    {"boot", 0, "P", "ranks connected by callbacks", OPTION_COUNT, AT(boot), 0, 64},
    {"steps", 0, "N", "optimizer steps", OPTION_COUNT, AT(steps), 1, MAX_STEPS},
    {"batch-parts", 0, "N", "parts of a rank's sequences that follow one another", OPTION_COUNT, AT(batch_parts), 1,
     16},
    {"micro-batch", 0, "N", "sequences of one forward over all ranks", OPTION_COUNT, AT(per_forward), 1, MAX_TOKENS},
    {"dtype", 0, DTYPE_WORDS, "of the model", OPTION_DTYPE, AT(dtype)},
    {"overlap", 0, "on|off", "of the schedule", OPTION_CHOICE, AT(serial)},
    {"tie", 0, NULL, "head and embedding", OPTION_FLAG, AT(tied)},
    {"mpi", 0, NULL, "the ranks that mpiexec started, instead of --ranks", OPTION_FLAG, AT(by_mpi)},
    {"levels", 0, NULL, "all partitions of gradients and optimizer state", OPTION_FLAG, AT(levels)},
    {"validate", 0, NULL, "after every other step", OPTION_FLAG, AT(validate)},
    {"grid", 0, "GXxGYxGZxGD", "only this grid", OPTION_GRID, AT(grid), .max = 64},
    OPTIONS_END,
};

int main(int argc, char **argv)
{
    failure why = {0};
    program_name = "test_gpt";
    if (options_read(argc, argv, specs, &set, NULL, &why)) return fail_print(&why);
    int exit_code = 1;
    make_oracle();
    if ((set.boot ? boot_launch((int)set.boot, NULL, run_rank, NULL, &exit_code)
                  : qdr_launch(set.by_mpi ? 0 : (int)set.ranks, NULL, run_rank, NULL, &exit_code)) < 0)
        fprintf(stderr, "test_gpt: %s\n", qdr_last_error());
    const int bad = oracle.n_bad > 0;
    serial_network_free(&oracle.first);
    serial_network_free(&oracle.net);
    return exit_code ? exit_code : bad;
}
