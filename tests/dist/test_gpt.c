/* SPDX-License-Identifier: Apache-2.0 */
/* The GPT of examples/common on every grid of p local ranks and in both layouts, compared with one process that uses
 * plain loops:
 *   f64   the loss of each AdamW step within 1e-9 relative, every gradient of step 0 within its rounding bound
 *   f32   the loss of each step within 1e-4 relative
 *   bf16  the loss of each step within 2 % (parameters have 8 bits; this only checks that everything is connected)
 *   f16   gradients scaled by 1024, the loss of each step within 0.25 %: it has three bits more
 * Initial weights are drawn on each grid and must be the same on all. --levels: with all partitions of gradients and
 * optimizer state of each grid. --validate: after every other step the loss of another batch is compared, too.
 *
 *   test_gpt [--ranks P | --boot P | --mpi] [--steps N] [--dtype f32|f64|bf16|f16] [--grid GXxGYxGZxGD]
 *            [--micro-batch 1] [--batch-parts N] [--tie] [--overlap off] [--levels] [--validate]
 *            [--oracle]: the oracle alone, against finite differences */
#include <math.h>
#include <quadrille/quadrille.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../examples/common/gpt.h"
#include "../narrow.h"
#include "../reference/gpt_serial.h"
#include "common/boot.h"
#include "common/options.h"

/* Nothing divides anything: 5 sequences, 3 heads, a vocabulary of 37. */
static const serial_config shape = {
    .n_layers = 2, .hidden = 24, .n_heads = 3, .context = 8, .vocab = 37, .n_sequences = 5};
#define MAX_TOKENS 64
#define MAX_PARAMETERS 64
#define MAX_STEPS 1000
#define TEXT_BYTES 4096
#define LR 3e-3
/* Two runs differ by the error of both: variance 2·σ². Errors of one row are not quite independent (they share a mean,
 * a softmax), so standard deviations are taken tenfold, where 9 would already leave one element in 10^18. */
#define CONFIDENCE 10

typedef struct settings {
    int64_t ranks, boot, steps, per_forward, batch_parts;
    int dtype, tied, serial, oracle, levels, validate, by_mpi;
    grid_size grid; /* x = 0: all grids */
} settings;
static settings set = {.ranks = 8, .steps = 50, .dtype = QDR_F64};

/* What the serial run gave. */
static struct {
    uint8_t text[TEXT_BYTES];
    double losses[MAX_STEPS], validation[MAX_STEPS]; /* of each step; after it */
    double *weights[MAX_PARAMETERS]; /* before step 0 */
    int decay[MAX_PARAMETERS];
    serial_gpt *gpt; /* after step 0's backward it keeps those gradients in `gradient` */
    double *gradient[MAX_PARAMETERS], *variance[MAX_PARAMETERS];
    int n_parameters, n_cases, n_bad;
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
        oracle.text[i] = (uint8_t)(byte % shape.vocab);
    }
}

static int64_t start_of(int64_t step, int sequence)
{
    uint32_t state = (uint32_t)(step * 131 + sequence);
    lcg(&state);
    return (int64_t)lcg(&state) % (TEXT_BYTES - 1 - shape.context);
}

static void serial_batch(int64_t step, int32_t *tokens, int32_t *targets)
{
    for (int i = 0; i < shape.n_sequences; i++)
        for (int j = 0; j < shape.context; j++) {
            tokens[i * shape.context + j] = oracle.text[start_of(step, i) + j];
            targets[i * shape.context + j] = oracle.text[start_of(step, i) + j + 1];
        }
}

static gpt_config model_config(qdr_layout layout)
{
    return (gpt_config){.n_layers = shape.n_layers,
                        .hidden = shape.hidden,
                        .n_heads = shape.n_heads,
                        .context = shape.context,
                        .vocab = shape.vocab,
                        .n_sequences = set.per_forward ? set.per_forward : shape.n_sequences,
                        .tied = set.tied,
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

/* Rank 0, the first time: the serial run starts from the weights that the library drew on one rank. */
static int run_serial(void)
{
    for (int i = 0; i < oracle.n_parameters; i++)
        memcpy(serial_parameter(oracle.gpt, i), oracle.weights[i],
               (size_t)serial_n_elems(oracle.gpt, i) * sizeof(double));
    for (int64_t step = 0; step < set.steps; step++) {
        int32_t tokens[MAX_TOKENS], targets[MAX_TOKENS];
        serial_batch(step, tokens, targets);
        oracle.losses[step] = serial_backprop(oracle.gpt, tokens, targets);
        for (int i = 0; step == 0 && i < oracle.n_parameters; i++) {
            const size_t bytes = (size_t)serial_n_elems(oracle.gpt, i) * sizeof(double);
            memcpy(oracle.gradient[i], serial_gradient(oracle.gpt, i), bytes);
            memcpy(oracle.variance[i], serial_gradient_variance(oracle.gpt, i), bytes);
        }
        serial_adamw(oracle.gpt, LR, 0.9, 0.95, 0.1, 1.0, oracle.decay);
        serial_batch(MAX_STEPS + step, tokens, targets);
        if (is_validated(step)) oracle.validation[step] = serial_backprop(oracle.gpt, tokens, targets);
    }
    fprintf(stderr, "serial: loss %.4f at step 0, %.4f at step %d\n", oracle.losses[0], oracle.losses[set.steps - 1],
            (int)set.steps - 1);
    return 0;
}

/* The weights of this grid: kept if they are the first, else equal to the first bit for bit. */
static int check_weights(const char *where, int index, const void *full, int64_t n)
{
    double *kept = oracle.weights[index];
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

static int check_gradient(const char *where, int index, const char *name, const double *full, int64_t n, double *worst)
{
    for (int64_t i = 0; i < n; i++) {
        const double difference = fabs(full[i] - oracle.gradient[index][i]),
                     bound = CONFIDENCE * sqrt(2 * oracle.variance[index][i]);
        if (!(difference <= bound))
            return complain(where, "gradient of %s, element %d: %.17g, serial %.17g, difference %.2g, bound %.2g", name,
                            (int)i, full[i], oracle.gradient[index][i], difference, bound);
        if (bound > 0) *worst = fmax(*worst, difference / bound);
    }
    return 0;
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
    if (test->root && n != oracle.n_parameters)
        complain(test->name, "the model has %d parameters, the serial one %d", n, oracle.n_parameters);
    int good = n == oracle.n_parameters;
    for (int i = 0; good && i < n; i++) {
        qdr_parameter parameter = {QDR_INIT(qdr_parameter)};
        TRY(qdr_stack_parameter(test->model.stack, i, &parameter));
        if (parameter.n_global != serial_n_elems(oracle.gpt, i)) {
            if (test->root)
                complain(test->name, "%s has %d elements, the serial one %d", parameter.name, (int)parameter.n_global,
                         (int)serial_n_elems(oracle.gpt, i));
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
                check_gradient(test->name, i, parameter.name, test->full, parameter.n_global, &test->worst);
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
    for (int64_t first = 0; first < shape.n_sequences; first += per_forward) {
        int64_t starts[MAX_TOKENS];
        for (int64_t i = 0; i < per_forward; i++)
            starts[i] = first + i < shape.n_sequences ? start_of(step, (int)(first + i)) : -1;
        double loss_sum;
        int64_t n_valid;
        const int defer = first + per_forward < shape.n_sequences ? QDR_DEFER_SYNC : 0;
        TRY(gpt_fill(&test->model, oracle.text, starts));
        TRY(qdr_stack_forward(test->model.stack));
        const int flags = (first ? QDR_ACCUMULATE : 0) | defer;
        const double scale = grad_scale() / (shape.n_sequences * shape.context);
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
    if (test.root)
        test.full = calloc((size_t)(4 * shape.hidden * shape.hidden + shape.vocab * shape.hidden), sizeof(double));
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

/* weight += factor · direction, the direction being drawn anew from the same state. */
static void move(double *weight, int64_t n, double factor, uint32_t state)
{
    for (int64_t j = 0; j < n; j++) weight[j] += factor * ((double)(lcg(&state) >> 8) * 0x1p-23 - 1);
}

/* The oracle's gradients against central differences, along a drawn direction for each parameter: a wrong formula shows
 * as a wrong first digit. */
static int check_oracle(void)
{
    const double h = 1e-5;
    uint32_t state = 99;
    int32_t tokens[MAX_TOKENS], targets[MAX_TOKENS];
    serial_batch(0, tokens, targets);
    targets[3] = -1;
    for (int i = 0; i < oracle.n_parameters; i++) {
        const int64_t n = serial_n_elems(oracle.gpt, i);
        for (int64_t j = 0; j < n; j += 7) serial_parameter(oracle.gpt, i)[j] = 1;
        move(serial_parameter(oracle.gpt, i), n, 0.3, lcg(&state));
    }
    (void)serial_backprop(oracle.gpt, tokens, targets);
    for (int i = 0; i < oracle.n_parameters; i++)
        memcpy(oracle.gradient[i], serial_gradient(oracle.gpt, i),
               (size_t)serial_n_elems(oracle.gpt, i) * sizeof(double));
    for (int i = 0; i < oracle.n_parameters; i++) {
        const int64_t n = serial_n_elems(oracle.gpt, i);
        double *weight = serial_parameter(oracle.gpt, i), expected = 0;
        const uint32_t drawn = lcg(&state);
        move(weight, n, h, drawn);
        const double above = serial_backprop(oracle.gpt, tokens, targets);
        move(weight, n, -2 * h, drawn);
        const double below = serial_backprop(oracle.gpt, tokens, targets);
        move(weight, n, h, drawn);
        uint32_t again = drawn;
        for (int64_t j = 0; j < n; j++) expected += oracle.gradient[i][j] * ((double)(lcg(&again) >> 8) * 0x1p-23 - 1);
        const double slope = (above - below) / (2 * h);
        if (!(fabs(slope - expected) <= 1e-6 * (1 + fabs(expected))))
            complain("oracle", "parameter %d: slope %.10g, by differences %.10g", i, expected, slope);
    }
    return oracle.n_bad ? 1 : 0;
}

static int make_oracle(void)
{
    serial_config config = shape;
    config.tied = set.tied;
    oracle.gpt = serial_create(&config);
    if (oracle.gpt == NULL) return 0;
    oracle.n_parameters = serial_n_parameters(oracle.gpt);
    int good = 1;
    for (int i = 0; i < oracle.n_parameters; i++) {
        const size_t n = (size_t)serial_n_elems(oracle.gpt, i);
        oracle.weights[i] = calloc(n, sizeof(double));
        oracle.gradient[i] = calloc(n, sizeof(double));
        oracle.variance[i] = calloc(n, sizeof(double));
        good &= oracle.weights[i] && oracle.gradient[i] && oracle.variance[i];
    }
    make_text();
    return good;
}

static void free_oracle(void)
{
    serial_destroy(oracle.gpt);
    for (int i = 0; i < oracle.n_parameters; i++) {
        free(oracle.weights[i]);
        free(oracle.gradient[i]);
        free(oracle.variance[i]);
    }
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
    {"oracle", 0, NULL, "check the oracle itself by finite differences", OPTION_FLAG, AT(oracle)},
    {"grid", 0, "GXxGYxGZxGD", "only this grid", OPTION_GRID, AT(grid), .max = 64},
    OPTIONS_END,
};

int main(int argc, char **argv)
{
    failure why = {0};
    program_name = "test_gpt";
    if (options_read(argc, argv, specs, &set, NULL, &why)) return fail_print(&why);
    int exit_code = 1;
    if (!make_oracle())
        fputs("test_gpt: no memory for the oracle\n", stderr);
    else if (set.oracle)
        exit_code = check_oracle();
    else if ((set.boot ? boot_launch((int)set.boot, NULL, run_rank, NULL, &exit_code)
                       : qdr_launch(set.by_mpi ? 0 : (int)set.ranks, NULL, run_rank, NULL, &exit_code)) < 0)
        fprintf(stderr, "test_gpt: %s\n", qdr_last_error());
    const int bad = oracle.n_bad > 0;
    free_oracle();
    return exit_code ? exit_code : bad;
}
