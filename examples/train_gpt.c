/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a small GPT on text, byte by byte, on a 4D grid of ranks, and lets it write a few lines at the end.
 *
 *   train_gpt --local 4 --grid 2x2x1x1 --plot loss.svg
 *
 * Read it from the bottom up: main, run_rank, train, train_step. The model itself is in common/gpt.c. */
#include <math.h>
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/chart.h"
#include "common/choice.h"
#include "common/codec_switch.h"
#include "common/corpus.h"
#include "common/gpt.h"
#include "common/gpt_step.h"
#include "common/meter.h"
#include "common/progress.h"
#include "common/run_log.h"
#include "common/sample.h"

#define VOCABULARY 256 /* a token is a byte */
#define MAX_POINTS 4096
#define VALIDATION_WINDOWS 256 /* during training; at the end all windows */

typedef struct settings {
    choice how; /* must be first; grid, order, layout, overlap, type; context, batch, micro-batch */
    const char *file, *log, *plot, *prompt, *late;
    int tied;
    int64_t n_layers, hidden, n_heads;
    int64_t n_steps, warmup, seed;
    int64_t validate_every, n_windows, n_sample, codec_after;
    double lr, weight_decay, clip, loss_scale, stddev, temperature, codec_guard;
} settings;

/* The state of one rank during training. */
typedef struct training {
    const settings *set; /* `own`: the given settings, completed */
    settings own;
    qdr_context *ctx;
    int talks; /* rank 0: writes files and prints */
    char *sentence;
    qdr_grid *grid;
    gpt model;
    qdr_adamw *optimizer;
    gpt_step step;
    corpus text;
    int64_t *starts; /* where each sequence of a forward pass begins in the text */
    qdr_output *log;
    double *losses; /* of each step */
    codec_switch codecs; /* of --codec-after and --codec-guard */
    chart_point points[MAX_POINTS];
    int64_t n_points;
    double train_secs;
    double memory_before;
    int late_rank;
    double late_secs;
} training;

/* One forward pass over at most `n` sequences; the rest of the batch is empty. Adds to the sums. */
static qdr_status forward(training *run, const uint8_t *text)
{
    TRY(gpt_fill(&run->model, text, run->starts));
    return qdr_stack_forward(run->model.stack);
}

static qdr_status add_loss(training *run, double *sum, int64_t *n)
{
    double loss_sum;
    int64_t n_valid;
    TRY(qdr_stack_loss(run->model.stack, &loss_sum, &n_valid));
    *sum += loss_sum;
    *n += n_valid;
    return QDR_OK;
}

/* The mean loss over windows spread evenly over the last tenth of the text: during training a fixed sample of it, at
 * the end all of it. */
static qdr_status validate(training *run, int at_end, double *mean)
{
    const settings *set = run->set;
    const int64_t n_all = corpus_validation_windows(&run->text, set->how.context);
    const int64_t n_some = n_all < VALIDATION_WINDOWS ? n_all : VALIDATION_WINDOWS;
    const int64_t n_windows = set->n_windows ? set->n_windows : at_end ? n_all : n_some;
    const int64_t per_forward = run->model.config.n_sequences;
    double sum = 0;
    int64_t n = 0;
    for (int64_t first = 0; first < n_windows; first += per_forward) {
        for (int64_t i = 0; i < per_forward; i++)
            run->starts[i] = first + i < n_windows
                                 ? corpus_validation_window(&run->text, set->how.context, first + i, n_windows)
                                 : -1;
        TRY(forward(run, run->text.bytes));
        TRY(add_loss(run, &sum, &n));
    }
    *mean = sum / (double)n;
    return QDR_OK;
}

/* Rises linearly, then falls as half a cosine to 2 %. */
static double learning_rate(const settings *set, int64_t step)
{
    const int64_t warmup = set->warmup < set->n_steps / 4 ? set->warmup : set->n_steps / 4;
    if (step < warmup) return set->lr * (double)(step + 1) / (double)warmup;
    const double done = (double)(step - warmup) / (double)(set->n_steps - warmup);
    return set->lr * (0.02 + 0.98 * 0.5 * (1 + cos(3.14159265358979323846 * done)));
}

/* One optimizer step on set->how.batch sequences, with as many forward and backward passes as they need. The sequences
 * depend only on seed and step; which rank has them depends on the grid. The loss is scaled once, so sums over
 * micro-batches and ranks are means; the optimizer divides by loss_scale. */
static qdr_status train_step(training *run, int64_t step, double *loss)
{
    const settings *set = run->set;
    const int64_t per_forward = run->model.config.n_sequences;
    double sum = 0;
    int64_t n = 0;
    TRY(qdr_adamw_set_rate(run->optimizer, learning_rate(set, step)));
    for (int64_t first = 0; first < set->how.batch; first += per_forward) {
        for (int64_t i = 0; i < per_forward; i++)
            run->starts[i] = first + i < set->how.batch
                                 ? corpus_train_window(&run->text, set->how.context, (uint64_t)set->seed,
                                                       step * set->how.batch + first + i)
                                 : -1;
        TRY(gpt_fill(&run->model, run->text.bytes, run->starts));
        TRY(gpt_step_run(&run->step, first > 0, first + per_forward >= set->how.batch));
        TRY(add_loss(run, &sum, &n)); /* waits for everything that was enqueued, so it comes last */
    }
    *loss = sum / (double)n;
    return QDR_OK;
}

/* The diagnostic behind --late: in the middle of the run one rank sleeps; how busy are the others meanwhile? */
static qdr_status late_step(training *run, int64_t step, double *loss)
{
    const int p = qdr_context_size(run->ctx), rank = qdr_context_rank(run->ctx);
    double *cpu = program_new(run->ctx, p, sizeof *cpu);
    if (!cpu) return QDR_ERR_MEMORY;
    qdr_status status = qdr_barrier(run->ctx);
    const double began = meter_secs(), cpu_began = meter_cpu_secs();
    if (rank == run->late_rank) meter_sleep(run->late_secs);
    if (status >= 0) status = train_step(run, step, loss);
    if (status >= 0) status = meter_all(run->grid, meter_cpu_secs() - cpu_began, cpu);
    if (status >= 0 && run->talks) {
        fprintf(stderr,
                "rank %d was %g s late for step %lld, which took %.2f s; processor seconds of the %s:", run->late_rank,
                run->late_secs, (long long)step + 1, meter_secs() - began, run->set->how.n_local ? "process" : "ranks");
        for (int i = 0; i < (run->set->how.n_local ? 1 : p); i++) fprintf(stderr, " %.2f", cpu[i]);
        fputc('\n', stderr);
    }
    free(cpu);
    return status;
}

/* The log line of a step, and other work after it, such as a validation. */
static qdr_status after_step(training *run, progress *line, int64_t step, double loss, double secs)
{
    const settings *set = run->set;
    const int64_t every = set->validate_every ? set->validate_every : (set->n_steps + 9) / 10;
    const double tokens_per_s = (double)(set->how.batch * set->how.context) / secs;
    const int measured = (step + 1) % every == 0 || step + 1 == set->n_steps;
    double validation = NAN;
    if (measured) {
        TRY(validate(run, step + 1 == set->n_steps, &validation));
        if (run->n_points < MAX_POINTS) run->points[run->n_points++] = (chart_point){step + 1, validation};
    }
    run->losses[step] = loss;
    const run_log_line logged = {step + 1, loss, tokens_per_s, learning_rate(set, step), validation};
    /* The first failure ends the log; all ranks hear of it at the next validation. */
    if (run->log && !*run->sentence && !run_log_step(run->log, &logged)) {
        const int is_told = qdr_output_finish(run->log) < 0;
        snprintf(run->sentence, PROBLEM_BYTES, "%s", is_told ? qdr_last_error() : "--log: out of memory for a line");
    }
    const qdr_status status = *run->sentence ? QDR_ERR_IO : QDR_OK;
    if (measured) TRY(qdr_agree(run->ctx, status));
    if (run->talks) {
        const double newest = run->n_points ? run->points[run->n_points - 1].loss : NAN;
        progress_step(line, step + 1, loss, newest,
                      (double)((step + 1) * set->how.batch * set->how.context) / run->train_secs, measured);
    }
    return QDR_OK;
}

static qdr_status begin_codecs(training *run)
{
    const settings *set = run->set;
    if (!set->codec_after && set->codec_guard <= 0) return QDR_OK;
    return codec_switch_begin(&run->codecs, &run->step, set->codec_after, set->codec_guard, run->sentence);
}

/* All ranks have the same losses. */
static qdr_status guard_codecs(training *run, progress *line, int64_t step)
{
    char why[CODEC_SWITCH_BYTES];
    int gives_up;
    TRY(codec_switch_look(&run->codecs, run->losses, step, why, &gives_up));
    if (!gives_up || !run->talks) return QDR_OK;
    progress_end(line);
    fprintf(stderr, "--codec-guard: after step %lld %s; going on with --codec safe\n", (long long)step + 1, why);
    return QDR_OK;
}

static qdr_status train(training *run)
{
    const settings *set = run->set;
    progress line = progress_begin(set->n_steps);
    for (int64_t step = 0; step < set->n_steps; step++) {
        TRY(codec_switch_step(&run->codecs, step));
        const double began = meter_secs();
        double loss;
        if (run->late_secs > 0 && step == set->n_steps / 2)
            TRY(late_step(run, step, &loss));
        else
            TRY(train_step(run, step, &loss));
        const double secs = meter_secs() - began;
        run->train_secs += secs;
        if (!isfinite(loss) && !codec_switch_forgives(&run->codecs, step)) {
            snprintf(run->sentence, PROBLEM_BYTES,
                     "the loss of step %lld is not a finite number; use a lower --lr than %g%s%s", (long long)step + 1,
                     set->lr, set->how.dtype == QDR_F16 ? ", or --dtype bf16" : "",
                     set->how.codecs.version ? ", or a milder --codec" : "");
            return QDR_ERR_STATE;
        }
        TRY(after_step(run, &line, step, loss, secs));
        TRY(guard_codecs(run, &line, step));
    }
    if (run->talks) progress_end(&line);
    return QDR_OK;
}

/* The model continues the prompt. It sees the last `context` bytes, as the first sequence of a forward pass. */
static qdr_status write_sample(training *run)
{
    const settings *set = run->set;
    const int64_t context = set->how.context;
    uint8_t *window = program_new(run->ctx, context + 1, 1);
    if (!window) return QDR_ERR_MEMORY;
    const char *prompt = set->prompt ? set->prompt : "\n";
    const int64_t n_prompt = (int64_t)strlen(prompt);
    int64_t seen = n_prompt < context ? n_prompt : context;
    memcpy(window, prompt + (n_prompt - seen), (size_t)seen);
    for (int64_t i = 0; i < run->model.config.n_sequences; i++) run->starts[i] = i == 0 ? 0 : -1;
    sample_text text = {.out = stdout};
    if (run->talks) fputs(prompt, stdout);

    qdr_status status = QDR_OK;
    for (int64_t i = 0; i < set->n_sample; i++) {
        float logits[VOCABULARY];
        if ((status = forward(run, window)) < 0 || (status = gpt_logits_row(&run->model, seen - 1, logits)) < 0) break;
        const uint8_t byte = sample_draw(logits, VOCABULARY, set->temperature,
                                         corpus_uniform((uint64_t)set->seed ^ 0x5a17, (uint64_t)i));
        if (run->talks) sample_put(&text, byte);
        if (seen == context) memmove(window, window + 1, (size_t)--seen);
        window[seen++] = byte;
    }
    if (run->talks) {
        sample_end(&text);
        putchar('\n');
        fflush(stdout);
    }
    free(window);
    return status;
}

static qdr_status draw_chart(training *run)
{
    const settings *set = run->set;
    char title[160], subtitle[320], count[24];
    const int p = qdr_context_size(run->ctx);
    snprintf(title, sizeof title, "Loss of a %lld-layer GPT on a %s grid", (long long)set->n_layers,
             grid_words(set->how.grid).text);
    snprintf(subtitle, sizeof subtitle, "%s, %s parameters, %d rank%s, %s, %s, %.0f tokens/s", run->text.name,
             progress_count((double)gpt_n_parameters(&run->model), count), p, PLURAL(p),
             layout_word((qdr_layout)set->how.layout), qdr_dtype_name((qdr_dtype)set->how.dtype),
             (double)(set->n_steps * set->how.batch * set->how.context) / run->train_secs);
    const loss_chart chart = {title, subtitle, run->losses, set->n_steps, run->points, run->n_points};
    return chart_write(&chart, set->plot, run->sentence) ? QDR_OK : QDR_ERR_IO;
}

/* The memory planned according to the size queries, the peak that was used, and the growth of the process. */
static qdr_status report_memory(training *run, size_t peak)
{
    qdr_stack_sizes sizes;
    size_t optimizer;
    TRY(qdr_stack_get_sizes(run->model.stack, &sizes));
    TRY(qdr_adamw_size(run->model.stack, &optimizer));
    /* After a late rank's step, one number of each rank is gathered. */
    const size_t meter = run->late_secs > 0 ? (size_t)qdr_context_size(run->ctx) * 8 : 0;
    const size_t asked = sizes.parameters + sizes.gradients + sizes.feedback + sizes.activations + sizes.workspace +
                         sizes.communication + sizes.device + optimizer + meter;
    if (run->talks)
        fprintf(stderr,
                "memory of rank 0: %zu bytes planned (parameters %zu, gradients %zu, feedback %zu, optimizer %zu, "
                "activations %zu, workspace %zu, communication %zu, device %zu, measuring %zu), %zu at peak; the "
                "process grew by %.1f MB%s\n",
                asked, sizes.parameters, sizes.gradients, sizes.feedback, optimizer, sizes.activations, sizes.workspace,
                sizes.communication, sizes.device, meter, peak, 1e-6 * (meter_memory_peak() - run->memory_before),
                run->set->how.n_local > 1 ? " (all ranks)" : "");
    return QDR_OK;
}

/* What codecs have saved, if there are any. */
static void report_codecs(const training *run)
{
    qdr_traffic all = {0};
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
            const qdr_traffic one = qdr_grid_traffic(run->grid, (qdr_channel)channel, (qdr_coll_kind)kind);
            all.bytes_sent += one.bytes_sent;
            all.bytes_plain += one.bytes_plain;
            all.codec_secs += one.codec_secs;
        }
    if (!run->talks || all.bytes_plain == all.bytes_sent) return;
    fprintf(stderr, "codecs: rank 0 sent %.4g MB instead of %.4g MB, and spent %.3g s on encoding and decoding\n",
            1e-6 * (double)all.bytes_sent, 1e-6 * (double)all.bytes_plain, all.codec_secs);
}

static qdr_status report_skipped(training *run)
{
    int64_t n = 0;
    if (run->talks) TRY(qdr_adamw_skipped(run->optimizer, &n));
    if (n > 0)
        fprintf(stderr, "%lld step%s skipped because gradients overflowed; use a --loss-scale below %g\n", (long long)n,
                n == 1 ? " was" : "s were", run->set->loss_scale);
    return QDR_OK;
}

static qdr_status report(training *run, size_t peak)
{
    const settings *set = run->set;
    const double tokens = (double)(set->n_steps * set->how.batch * set->how.context);
    char clock[24], count[24];
    if (run->talks)
        fprintf(stderr,
                "validation loss %.4f nats per byte after %lld step%s: %s tokens in %s (%.0f "
                "tokens/s)\n",
                run->points[run->n_points - 1].loss, (long long)set->n_steps, PLURAL(set->n_steps),
                progress_count(tokens, count), progress_clock(run->train_secs, clock), tokens / run->train_secs);
    TRY(report_skipped(run));
    report_codecs(run);
    TRY(report_memory(run, peak));
    return qdr_agree(run->ctx, run->talks && set->plot ? draw_chart(run) : QDR_OK);
}

static void announce(const training *run)
{
    const settings *set = run->set;
    const int p = qdr_context_size(run->ctx);
    const int64_t n_tokens = set->how.batch * set->how.context;
    char count[24];
    fprintf(stderr, "%d rank%s of %d thread%s as grid %s (%s, %s, overlap %s%s); text: %s, %.2f MB\n", p, PLURAL(p),
            qdr_context_threads(run->ctx), PLURAL(qdr_context_threads(run->ctx)), grid_words(set->how.grid).text,
            layout_word((qdr_layout)set->how.layout), qdr_dtype_name((qdr_dtype)set->how.dtype),
            set->how.serial ? "off" : "on", set->how.recorded ? ", as graphs" : "", run->text.name,
            1e-6 * (double)run->text.n_bytes);
    fprintf(stderr,
            "%lld layer%s, hidden %lld, %lld head%s, context %lld: %s parameters; %lld step%s of "
            "%lld token%s\n",
            (long long)set->n_layers, PLURAL(set->n_layers), (long long)set->hidden, (long long)set->n_heads,
            PLURAL(set->n_heads), (long long)set->how.context,
            progress_count((double)gpt_n_parameters(&run->model), count), (long long)set->n_steps, PLURAL(set->n_steps),
            (long long)n_tokens, PLURAL(n_tokens));
}

/* Over how many ranks parameters, gradients and optimizer state are split, and what a rank has of each. */
static qdr_status announce_levels(const training *run)
{
    const int weights = qdr_grid_parts(run->grid, QDR_LEVEL_WEIGHTS);
    const int gradients = qdr_grid_parts(run->grid, QDR_LEVEL_GRADIENTS);
    const int state = qdr_grid_parts(run->grid, QDR_LEVEL_OPTIMIZER);
    qdr_stack_sizes sizes;
    size_t optimizer;
    if (state == weights) return QDR_OK;
    TRY(qdr_stack_get_sizes(run->model.stack, &sizes));
    TRY(qdr_adamw_size(run->model.stack, &optimizer));
    if (run->talks)
        fprintf(stderr,
                "levels: weights over %d rank%s (%.3g MB a rank), gradients over %d (%.3g MB), optimizer state over %d "
                "(%.3g MB)\n",
                weights, PLURAL(weights), 1e-6 * (double)sizes.parameters, gradients, 1e-6 * (double)sizes.gradients,
                state, 1e-6 * (double)optimizer);
    return QDR_OK;
}

/* Checks that involve several options. The same on all ranks. */
static qdr_status check(training *run)
{
    const settings *set = run->set;
    const int64_t h = set->hidden, heads = set->n_heads;
    char rest = 0;
    if (h % heads != 0) {
        return REFUSE(run->sentence, "--hidden %lld is not divisible by --heads %lld; use --hidden %lld, or %s%lld",
                      (long long)h, (long long)heads, (long long)((h / heads + 1) * heads),
                      h < heads ? "at most --heads " : "--hidden ", (long long)(h < heads ? h : h / heads * heads));
    }
    if (set->late &&
        (sscanf(set->late, "%d:%lf%c", &run->late_rank, &run->late_secs, &rest) != 2 || run->late_rank < 0 ||
         run->late_rank >= qdr_context_size(run->ctx) || !(run->late_secs > 0 && run->late_secs <= 60))) {
        return REFUSE(run->sentence, "--late %.100s: give RANK:SECONDS with a rank from 0 to %d and 0 to 60 seconds",
                      set->late, qdr_context_size(run->ctx) - 1);
    }
    return QDR_OK;
}

static qdr_status open_files(training *run)
{
    const settings *set = run->set;
    qdr_status status = QDR_OK;
    if (run->talks && set->plot && !chart_try(set->plot, run->sentence)) status = QDR_ERR_ARGUMENT;
    if (status >= 0 && run->talks && set->log && (run->log = run_log_open(set->log, run->sentence)) == NULL)
        status = QDR_ERR_ARGUMENT;
    return qdr_agree(run->ctx, status);
}

static const choice usual = {.order = "xyzd", .context = 128, .batch = 4};

/* What the command line leaves open may be set by a plan or the model. */
static qdr_status choose(training *run)
{
    const settings *set = run->set;
    const gpt_config shape = {.n_layers = set->n_layers,
                              .hidden = set->hidden,
                              .n_heads = set->n_heads,
                              .vocab = VOCABULARY,
                              .tied = set->tied};
    const qdr_network network = gpt_network(&shape);
    const choice given_how = set->how;
    return choice_make(run->ctx, &given_how, &usual, &network, &run->own.how, run->sentence);
}

static qdr_status prepare(training *run)
{
    const settings *set = run->set;
    TRY(check(run));
    TRY(choose(run));
    if (set->loss_scale == 0) run->own.loss_scale = set->how.dtype == QDR_F16 ? 1024 : 1;
    TRY(choice_make_grid(run->ctx, &run->own.how, run->sentence, &run->grid));
    TRY(corpus_read(run->ctx, set->file, set->how.context, &run->text, run->sentence));
    run->memory_before = meter_memory_now();
    qdr_mem_reset_peak(run->ctx);

    /* --micro-batch counts per (z, d) cell, --batch over all ranks; without --micro-batch, one forward pass takes the
     * whole batch. */
    const int64_t cells = (int64_t)qdr_grid_size(run->grid, QDR_Z) * qdr_grid_size(run->grid, QDR_D);
    const int64_t per_cell = set->how.micro_batch ? set->how.micro_batch : (set->how.batch + cells - 1) / cells;
    const gpt_config config = {
        .n_layers = set->n_layers,
        .hidden = set->hidden,
        .n_heads = set->n_heads,
        .context = set->how.context,
        .vocab = VOCABULARY,
        .n_sequences = per_cell * cells,
        .tied = set->tied,
        .layout = (qdr_layout)set->how.layout,
        .dtype = (qdr_dtype)set->how.dtype,
        .overlap = set->how.serial ? QDR_OVERLAP_NONE : set->how.overlap,
        .panels = (int)set->how.n_panels,
        .batch_parts = (int)set->how.n_batch_parts,
        .codecs = set->how.codecs.version ? &set->how.codecs : NULL,
    };
    TRY(gpt_create(run->grid, &config, &run->model));
    TRY(gpt_init(&run->model, (uint64_t)set->seed, set->stddev));
    const qdr_adamw_opts opts = {QDR_OPTS_INIT,          .beta1 = 0.9,
                                 .beta2 = 0.99,          .weight_decay = set->weight_decay,
                                 .clip_norm = set->clip, .grad_scale = set->loss_scale};
    TRY(qdr_adamw_create(run->model.stack, &opts, &run->optimizer));
    run->step = (gpt_step){&run->model, run->optimizer,
                           .loss_scale = set->loss_scale / (double)(set->how.batch * set->how.context),
                           .is_recorded = set->how.recorded};
    run->starts = program_new(run->ctx, config.n_sequences, sizeof *run->starts);
    run->losses = program_new(run->ctx, set->n_steps, sizeof *run->losses);
    if (!run->starts || !run->losses) return QDR_ERR_MEMORY;
    TRY(begin_codecs(run));
    return open_files(run);
}

static qdr_status run_all(training *run)
{
    TRY(prepare(run));
    if (run->talks) announce(run);
    TRY(announce_levels(run));
    TRY(train(run));
    size_t now, peak;
    qdr_mem_usage(run->ctx, &now, &peak);
    TRY(report(run, peak));
    return run->set->n_sample ? write_sample(run) : QDR_OK;
}

static qdr_status run_rank(qdr_context *ctx, const void *user, char sentence[PROBLEM_BYTES])
{
    training *run = program_new(ctx, 1, sizeof *run);
    if (!run) return QDR_ERR_MEMORY;
    run->own = *(const settings *)user;
    run->set = &run->own, run->ctx = ctx, run->sentence = sentence, run->talks = qdr_context_rank(ctx) == 0;
    const qdr_status status = run_all(run);
    gpt_step_destroy(&run->step);
    qdr_adamw_destroy(&run->optimizer);
    gpt_destroy(&run->model);
    qdr_grid_destroy(&run->grid);
    corpus_free(&run->text);
    free(run->starts);
    free(run->losses);
    const qdr_status closed = run->log ? qdr_output_commit(&run->log) : QDR_OK;
    free(run);
    return status < 0 ? status : closed;
}

/* The defaults, which the command line overwrites. */
static settings given = {
    .how = {.layout = -1, .dtype = -1, .serial = -1},
    .n_layers = 4,
    .hidden = 128,
    .n_heads = 4,
    .n_steps = 2000,
    .warmup = 100,
    .seed = 1,
    .n_sample = 400,
    .lr = 3e-3,
    .weight_decay = 0.3,
    .clip = 1,
    .stddev = 0.08,
    .temperature = 0.8,
};

#define AT(member) .at = offsetof(settings, member)

static const option_spec specs[] = {
    CHOICE_SPECS,
    {"model", .kind = OPTION_HEADING},
    {"layers", 0, "N", "transformer blocks (default 4)", OPTION_COUNT, AT(n_layers), 1, 1024},
    {"hidden", 0, "N", "features (default 128)", OPTION_COUNT, AT(hidden), 1, 1 << 20},
    {"heads", 0, "N", "attention heads; must divide --hidden (default 4)", OPTION_COUNT, AT(n_heads), 1, 1 << 16},
    {"ctx", 0, "N", "bytes per sequence (default 128)", OPTION_COUNT, AT(how.context), 1, 1 << 20},
    {"dtype", 0, "f32|f64|bf16|f16", "type of parameters and activations (default f32)", OPTION_DTYPE, AT(how.dtype)},
    {"tie", 0, NULL, "share the embedding's weights with the head", OPTION_FLAG, AT(tied)},
    {"init", 0, "STDDEV", "standard deviation of the initial weights (default 0.08)", OPTION_REAL, AT(stddev), 0, 10},
    {"training", .kind = OPTION_HEADING},
    {"steps", 0, "N", "optimizer steps (default 2000)", OPTION_COUNT, AT(n_steps), 1, 100000000},
    {"batch", 0, "N", "sequences per optimizer step, over all ranks (default 4)", OPTION_COUNT, AT(how.batch), 1,
     1 << 24},
    {"micro-batch", 0, "N", "sequences per forward pass in each (z,d) cell (default: all)", OPTION_COUNT,
     AT(how.micro_batch), 1, 1 << 24},
    {"lr", 0, "RATE", "peak learning rate (default 0.003)", OPTION_REAL, AT(lr), 0, 10},
    {"warmup", 0, "N", "warm-up steps to the peak rate, at most a quarter of all steps (default 100)", OPTION_COUNT,
     AT(warmup), 0, 100000000},
    {"weight-decay", 0, "X", "weight decay, for matrices only (default 0.3)", OPTION_REAL, AT(weight_decay), 0, 10},
    {"loss-scale", 0, "S", "loss scale in the backward pass (default 1024 for f16, else 1)", OPTION_REAL,
     AT(loss_scale), 0, 1e12},
    {"clip", 0, "NORM", "maximum gradient norm; 0: no clipping (default 1)", OPTION_REAL, AT(clip), 0, 1e9},
    {"seed", 0, "N", "seed of weights, batches and sample; it gives the same batches on every grid (default 1)",
     OPTION_COUNT, AT(seed), 0, 1e15},
    {"codec-after", 0, "N", "train N steps without codecs first", OPTION_COUNT, AT(codec_after), 0, 100000000},
    {"codec-guard", 0, "X",
     "go on with the codecs 'safe' once the mean loss of 50 steps is X nats above its least; with f16 also after a "
     "loss "
     "that is not finite, whose step is skipped",
     OPTION_REAL, AT(codec_guard), 0, 100},
    {"output", .kind = OPTION_HEADING},
    {"log", 0, "FILE", "JSON Lines, one object per step; an older file is kept as FILE.1, FILE.2 ...", OPTION_LOG,
     AT(log)},
    {"plot", 0, "FILE", "draw the loss curve as SVG", OPTION_OUTPUT, AT(plot)},
    {"val-every", 0, "N", "steps between validations (default: a tenth of --steps)", OPTION_COUNT, AT(validate_every),
     1, 1e8},
    {"val-windows", 0, "N", "sequences per validation (default: 256, and the whole validation text at the end)",
     OPTION_COUNT, AT(n_windows), 1, 1 << 24},
    {"sample", 0, "N", "bytes of text to generate at the end (default 400)", OPTION_COUNT, AT(n_sample), 0, 1 << 24},
    {"prompt", 0, "TEXT", "text that the sample continues (default: a newline)", OPTION_TEXT, AT(prompt)},
    {"temperature", 0, "X", "sampling temperature (default 0.8)", OPTION_REAL, AT(temperature), 0.01, 100},
    {"late", 0, "RANK:SECONDS", "diagnostic: delay one rank once, halfway through the steps", OPTION_TEXT, AT(late)},
    OPTIONS_END,
};

int main(int argc, char **argv)
{
    const program about = {
        .name = "train_gpt",
        .usage = "train_gpt [FILE] [options]        or: mpiexec.mpich -n P train_gpt [FILE] [options]",
        .text = "Trains a small GPT on the bytes of FILE on a 4D grid of ranks. Without FILE it uses the King James "
                "Bible if the\n"
                "package bible-kjv is installed, else the licences in /usr/share/common-licenses. The last tenth of "
                "the text is\n"
                "used for validation. Afterwards it writes a sample of text to standard output; messages go to "
                "standard error.",
        .options = specs,
        .operand = &given.file,
        .examples = "  train_gpt --local 4 --grid 2x2x1x1 --plot loss.svg\n"
                    "  mpiexec.mpich -n 2 train_gpt --grid 1x1x1x2 --layers 2 --steps 10000 "
                    "--log run.jsonl\n"
                    "  train_gpt --local 4 --grid auto --machine laptop\n"
                    "  train_gpt poems.txt --local 2 --ctx 64 --layout scattered --grid 2x1x1x1\n",
        .run = run_rank,
    };
    return program_start(&about, argc, argv, &given.how);
}
