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
#include <sys/stat.h>

#include "common/meter.h"
#include "common/progress.h"
#include "common/run_log.h"
#include "common/sample.h"
#include "common/training.h"

#define VALIDATION_WINDOWS 256 /* during training; at the end all windows */

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

/* How many sequences have been used before a step; the batch may have been another before this run. */
static int64_t sequences_before(const training *run, int64_t step)
{
    return run->first_sequence + (step - run->first_step) * run->set->how.batch;
}

/* One optimizer step on set->how.batch sequences, with as many forward and backward passes as they need. The sequences
 * depend only on the seed and on how many were used before; which rank has them depends on the grid. The loss is scaled
 * once, so sums over micro-batches and ranks are means; the optimizer divides by loss_scale. */
static qdr_status train_step(training *run, int64_t step, double *loss)
{
    const settings *set = run->set;
    const int64_t per_forward = run->model.config.n_sequences;
    const int64_t number = sequences_before(run, step);
    double sum = 0;
    int64_t n = 0;
    TRY(qdr_adamw_set_rate(run->optimizer, learning_rate(set, step)));
    for (int64_t first = 0; first < set->how.batch; first += per_forward) {
        for (int64_t i = 0; i < per_forward; i++)
            run->starts[i] = first + i < set->how.batch ? corpus_train_window(&run->text, set->how.context,
                                                                              (uint64_t)set->seed, number + first + i)
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
    const int measured = (step + 1) % every == 0 || step + 1 == run->n_steps;
    double validation = NAN;
    if (measured) {
        TRY(validate(run, step + 1 == run->n_steps, &validation));
        if (run->n_points < MAX_POINTS) run->points[run->n_points++] = (chart_point){step + 1, validation};
    }
    run->losses[step - run->first_step] = loss;
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
                      (double)((step + 1 - run->first_step) * set->how.batch * set->how.context) / run->train_secs,
                      measured);
    }
    return QDR_OK;
}

static qdr_status begin_codecs(training *run)
{
    const settings *set = run->set;
    if (!set->codec_after && set->codec_guard <= 0) return QDR_OK;
    const int64_t after = set->codec_after > run->first_step ? set->codec_after - run->first_step : 0;
    return codec_switch_begin(&run->codecs, &run->step, after, set->codec_guard, run->sentence);
}

/* All ranks have the same losses. */
static qdr_status guard_codecs(training *run, progress *line, int64_t step)
{
    char why[CODEC_SWITCH_BYTES];
    int gives_up;
    TRY(codec_switch_look(&run->codecs, run->losses, step - run->first_step, why, &gives_up));
    if (!gives_up || !run->talks) return QDR_OK;
    progress_end(line);
    fprintf(stderr, "--codec-guard: after step %lld %s; going on with --codec safe\n", (long long)step + 1, why);
    return QDR_OK;
}

/* The run's own part of a checkpoint: with the tensors, all that is needed to go on. */
static void write_note(const training *run, int64_t n_steps, char note[SAVED_NOTE_BYTES])
{
    char crc[16];
    note[0] = '\0';
    snprintf(crc, sizeof crc, "%08lx", (unsigned long)run->text_crc);
    saved_note_word(note, "program", "train_gpt");
    saved_note_number(note, "step", (double)n_steps);
    saved_note_number(note, "sequences", (double)sequences_before(run, n_steps));
    saved_note_number(note, "text_bytes", (double)run->text.n_bytes);
    saved_note_word(note, "text_crc32", crc);
    settings_note(run->set, note);
    saved_note_end(note);
}

static qdr_status begin_save(training *run, int64_t n_steps)
{
    char note[SAVED_NOTE_BYTES];
    write_note(run, n_steps, note);
    return saver_begin(&run->save, n_steps, note);
}

/* Saves after a step where that was asked for, by an option or by a signal. */
static qdr_status save_step(training *run, const progress *line, int64_t n_steps, int *stops)
{
    const settings *set = run->set;
    const int is_last = n_steps == run->n_steps;
    if (!set->save) return QDR_OK;
    TRY(stop_is_requested(run->ctx, stops));
    *stops |= n_steps - run->first_step == set->stop_after;
    *stops &= !is_last;
    const int is_due = set->save_every && n_steps % set->save_every == 0;
    if (run->talks && (is_due || is_last || *stops || run->save.pending)) progress_end(line);
    TRY(saver_poll(&run->save));
    if (!is_due && !is_last && !*stops) return QDR_OK;
    TRY(begin_save(run, n_steps));
    return is_last || *stops ? saver_finish(&run->save) : QDR_OK;
}

static qdr_status check_loss(const training *run, int64_t step, double loss)
{
    const settings *set = run->set;
    if (isfinite(loss) || codec_switch_forgives(&run->codecs, step - run->first_step)) return QDR_OK;
    snprintf(run->sentence, PROBLEM_BYTES, "the loss of step %lld is not a finite number; use a lower --lr than %g%s%s",
             (long long)step + 1, set->lr, set->how.dtype == QDR_F16 ? ", or --dtype bf16" : "",
             set->how.codecs.version ? ", or a milder --codec" : "");
    return QDR_ERR_STATE;
}

/* *stops: a signal has ended it. */
static qdr_status train(training *run, int *stops)
{
    progress line = progress_begin(run->first_step, run->n_steps);
    for (int64_t step = run->first_step; step < run->n_steps && !*stops; step++) {
        TRY(codec_switch_step(&run->codecs, step - run->first_step));
        const double began = meter_secs();
        double loss;
        if (run->late_secs > 0 && step == run->first_step + (run->n_steps - run->first_step) / 2)
            TRY(late_step(run, step, &loss));
        else
            TRY(train_step(run, step, &loss));
        const double secs = meter_secs() - began;
        run->train_secs += secs;
        TRY(check_loss(run, step, loss));
        const int is_last = step + 1 == run->n_steps;
        if (is_last) { /* before the last validation, which may take long and which signals may end */
            TRY(save_step(run, &line, step + 1, stops));
            stop_by_default();
        }
        TRY(after_step(run, &line, step, loss, secs));
        TRY(guard_codecs(run, &line, step));
        if (!is_last) TRY(save_step(run, &line, step + 1, stops));
    }
    if (run->talks) progress_end(&line);
    return QDR_OK;
}

/* A run without steps. */
static qdr_status only_validate(training *run)
{
    double validation;
    stop_by_default();
    TRY(validate(run, 1, &validation));
    run->points[run->n_points++] = (chart_point){run->n_steps, validation};
    if (run->set->resume && run->talks)
        fprintf(stderr, "%s has %lld step%s; give a larger --steps to train on\n", run->set->resume,
                (long long)run->first_step, PLURAL(run->first_step));
    if (!run->set->save || run->set->resume) return QDR_OK;
    TRY(begin_save(run, run->n_steps));
    return saver_finish(&run->save);
}

/* The model continues the prompt. It sees the last `context` bytes, as the first sequence of a forward pass. window:
 * one byte more; logits: of the vocabulary, of which only the bytes are drawn. */
static qdr_status write_bytes(training *run, uint8_t *window, float *logits)
{
    const settings *set = run->set;
    const int64_t context = set->how.context;
    const char *prompt = set->prompt ? set->prompt : "\n";
    const int64_t n_prompt = (int64_t)strlen(prompt);
    int64_t seen = n_prompt < context ? n_prompt : context;
    memcpy(window, prompt + (n_prompt - seen), (size_t)seen);
    for (int64_t i = 0; i < run->model.config.n_sequences; i++) run->starts[i] = i == 0 ? 0 : -1;
    sample_text text = {.out = stdout};
    if (run->talks) fputs(prompt, stdout);

    qdr_status status = QDR_OK;
    for (int64_t i = 0; i < set->n_sample; i++) {
        if ((status = forward(run, window)) < 0 || (status = gpt_logits_row(&run->model, seen - 1, logits)) < 0) break;
        const uint8_t byte = sample_draw(logits, N_BYTES, set->temperature,
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
    return status;
}

static qdr_status write_sample(training *run)
{
    uint8_t *window = program_new(run->ctx, run->set->how.context + 1, 1);
    float *logits = program_new(run->ctx, run->set->vocab, sizeof *logits);
    const qdr_status status = window && logits ? write_bytes(run, window, logits) : QDR_ERR_MEMORY;
    free(logits);
    free(window);
    return status;
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

/* Whether a file can be saved there later, as far as can be known. */
static qdr_status try_save(const training *run)
{
    struct stat info;
    const char *path = run->set->save;
    if (stat(path, &info) == 0 && !S_ISREG(info.st_mode) && !S_ISDIR(info.st_mode))
        return REFUSE(run->sentence, "--save %.300s: it is no regular file; name another one", path);
    return qdr_output_try("--save", path);
}

static qdr_status open_files(training *run)
{
    const settings *set = run->set;
    qdr_status status = QDR_OK;
    if (run->talks && set->plot && !chart_try(set->plot, run->sentence)) status = QDR_ERR_ARGUMENT;
    if (status >= 0 && run->talks && set->save) status = try_save(run);
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
                              .vocab = set->vocab,
                              .tied = set->tied};
    const qdr_network network = gpt_network(&shape);
    const choice given_how = set->how;
    return choice_make(run->ctx, &given_how, &usual, &network, &run->own.how, run->sentence);
}

static qdr_status make_model(training *run)
{
    const settings *set = run->set;
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
        .vocab = set->vocab,
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
    if (!set->resume && !set->load) TRY(gpt_init(&run->model, (uint64_t)set->seed, set->stddev));
    run->loss_scale = set->loss_scale > 0 ? set->loss_scale : set->how.dtype == QDR_F16 ? 1024 : 1;
    const qdr_adamw_opts opts = {QDR_OPTS_INIT,          .beta1 = 0.9,
                                 .beta2 = 0.99,          .weight_decay = set->weight_decay,
                                 .clip_norm = set->clip, .grad_scale = run->loss_scale};
    TRY(qdr_adamw_create(run->model.stack, &opts, &run->optimizer));
    run->step = (gpt_step){&run->model, run->optimizer,
                           .loss_scale = run->loss_scale / (double)(set->how.batch * set->how.context),
                           .is_recorded = set->how.recorded};
    run->starts = program_new(run->ctx, config.n_sequences, sizeof *run->starts);
    return run->starts ? QDR_OK : QDR_ERR_MEMORY;
}

/* The position in the data, which another text does not have. */
static qdr_status take_position(training *run, const saved_run *saved)
{
    static const saved_range positions = {0, 1e15, 1, "use --load for its parameters alone"};
    double step = -1, sequences = -1, bytes = -1;
    char crc[16] = "", here[16];
    snprintf(here, sizeof here, "%08lx", (unsigned long)run->text_crc);
    TRY(saved_run_number(saved, "step", &positions, &step, run->sentence));
    TRY(saved_run_number(saved, "sequences", &positions, &sequences, run->sentence));
    TRY(saved_run_number(saved, "text_bytes", &positions, &bytes, run->sentence));
    if (step < 0 || sequences < 0 || bytes < 0 || !saved_run_word(saved, "text_crc32", crc, sizeof crc))
        return REFUSE(run->sentence,
                      "--resume %.300s: the file does not say how far its run was; use --load for its parameters alone",
                      run->set->resume);
    if ((int64_t)bytes != run->text.n_bytes || strcmp(crc, here) != 0)
        return REFUSE(run->sentence,
                      "--resume %.300s: its run was on another text, of %.0f bytes and checksum %s; %s has %lld bytes "
                      "and checksum %s: give that text, or use --load for the parameters alone",
                      run->set->resume, bytes, crc, run->text.name, (long long)run->text.n_bytes, here);
    run->first_step = (int64_t)step;
    run->first_sequence = (int64_t)sequences;
    return QDR_OK;
}

/* Continues a run, or begins with the parameters of another. */
static qdr_status load(training *run, const saved_run *saved)
{
    const settings *set = run->set;
    const char *path = set->resume ? set->resume : set->load;
    qdr_checkpoint_loaded loaded;
    if (!path) return QDR_OK;
    if (set->resume) TRY(take_position(run, saved));
    const qdr_status status = qdr_checkpoint_load(run->model.stack, set->resume ? run->optimizer : NULL, path, &loaded);
    run->load_failed = status == QDR_ERR_IO;
    TRY(status);
    if (run->talks && set->resume)
        fprintf(stderr, "continuing after step %lld of %s\n", (long long)run->first_step, path);
    if (run->talks && !set->resume) fprintf(stderr, "parameters: %d tensors of %s\n", loaded.n_tensors, path);
    if (run->talks && loaded.n_ignored && !(set->load && loaded.has_optimizer))
        fprintf(stderr, "%d other tensor%s of the file %s ignored\n", loaded.n_ignored, PLURAL(loaded.n_ignored),
                loaded.n_ignored == 1 ? "is" : "are");
    qdr_checkpoint_loaded_free(&loaded);
    return QDR_OK;
}

static qdr_status prepare(training *run)
{
    const settings *set = run->set;
    const char *path = set->resume ? set->resume : set->load;
    saved_run saved;
    if (path) {
        const qdr_status status = saved_run_read(run->ctx, path, &saved);
        run->load_failed = status == QDR_ERR_IO || status == QDR_ERR_ARGUMENT;
        TRY(status == QDR_ERR_IO ? QDR_ERR_ARGUMENT : status); /* the name was wrong */
    }
    TRY(settings_complete(&run->own, path ? &saved : NULL, run->sentence));
    TRY(check(run));
    TRY(choose(run));
    TRY(choice_make_grid(run->ctx, &run->own.how, run->sentence, &run->grid));
    TRY(corpus_read(run->ctx, set->file, set->how.context, &run->text, run->sentence));
    run->text_crc = set->save || set->resume ? corpus_crc(&run->text) : 0;
    TRY(make_model(run));
    TRY(load(run, &saved));
    run->n_steps = set->n_steps > run->first_step ? set->n_steps : run->first_step;
    run->losses = program_new(run->ctx, run->n_steps - run->first_step + 1, sizeof *run->losses);
    if (!run->losses) return QDR_ERR_MEMORY;
    run->save = (saver){.path = set->save,
                        .keep = (int)set->keep,
                        .background = !set->in_foreground,
                        .talks = run->talks,
                        .stack = run->model.stack,
                        .optimizer = run->optimizer};
    TRY(begin_codecs(run));
    return open_files(run);
}

static qdr_status end(training *run)
{
    size_t now, peak;
    qdr_mem_usage(run->ctx, &now, &peak);
    TRY(training_report(run, peak));
    return run->set->n_sample ? write_sample(run) : QDR_OK;
}

static qdr_status run_all(training *run)
{
    int stops = 0;
    TRY(prepare(run));
    if (run->talks) training_announce(run);
    TRY(training_announce_levels(run));
    TRY(run->first_step < run->n_steps ? train(run, &stops) : only_validate(run));
    if (!stops) TRY(end(run));
    if (run->save.has_failed) {
        snprintf(run->sentence, PROBLEM_BYTES, "--save %.300s: the last step was not saved, as the warning says",
                 run->set->save);
        return QDR_ERR_IO;
    }
    if (stops && run->talks) fprintf(stderr, "stopped; --resume %s continues\n", run->set->save);
    return QDR_OK;
}

static qdr_status run_once(qdr_context *ctx, const settings *set, const char *path, char sentence[PROBLEM_BYTES],
                           int *load_failed)
{
    training *run = program_new(ctx, 1, sizeof *run);
    if (!run) return QDR_ERR_MEMORY;
    run->own = *set;
    run->own.resume = path;
    run->set = &run->own, run->ctx = ctx, run->sentence = sentence, run->talks = qdr_context_rank(ctx) == 0;
    qdr_status status = run_all(run);
    const qdr_status saved = qdr_checkpoint_finish(&run->save.pending); /* of a run that failed */
    if (status >= 0) status = saved;
    *load_failed = run->load_failed;
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

/* --resume auto: from the file of --save, from an older one if that is missing or broken, or from the beginning. Any
 * other failure is an error: going on from an older file would replace one that is whole. */
static qdr_status run_auto(qdr_context *ctx, const settings *set, char sentence[PROBLEM_BYTES])
{
    char path[SAVED_PATH_BYTES], next[SAVED_PATH_BYTES], why[PROBLEM_BYTES];
    const int talks = qdr_context_rank(ctx) == 0;
    int load_failed = 0, number = 0;
    if (!saved_run_is_there(ctx, set->save, 0, path)) {
        if (!saved_run_is_there(ctx, set->save, ++number, path))
            return run_once(ctx, set, NULL, sentence, &load_failed);
        if (talks) fprintf(stderr, "warning: %s is missing; trying %s\n", set->save, path);
    }
    for (;;) {
        const qdr_status status = run_once(ctx, set, path, sentence, &load_failed);
        if (status >= 0 || !load_failed) return status;
        snprintf(why, sizeof why, "%s", *sentence ? sentence : qdr_last_error());
        if (!saved_run_is_broken(ctx, path) || !saved_run_is_there(ctx, set->save, ++number, next)) {
            memcpy(sentence, why, PROBLEM_BYTES);
            return status;
        }
        if (talks) fprintf(stderr, "warning: %s; trying %s\n", why, next);
        sentence[0] = '\0';
        memcpy(path, next, sizeof path);
    }
}

static qdr_status run_rank(qdr_context *ctx, const void *user, char sentence[PROBLEM_BYTES])
{
    const settings *set = user;
    int load_failed;
    TRY(settings_check(set, qdr_context_size(ctx), sentence));
    if (set->save) stop_on_signals(); /* before anything takes long */
    if (set->resume && strcmp(set->resume, "auto") == 0) return run_auto(ctx, set, sentence);
    return run_once(ctx, set, set->resume, sentence, &load_failed);
}

static settings given; /* by the command line */

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
        .options = settings_specs,
        .operand = &given.file,
        .examples = "  train_gpt --local 4 --grid 2x2x1x1 --plot loss.svg\n"
                    "  mpiexec.mpich -n 2 train_gpt --grid 1x1x1x2 --layers 2 --steps 10000 "
                    "--log run.jsonl\n"
                    "  train_gpt --local 4 --grid auto --machine laptop\n"
                    "  train_gpt --local 4 --save run.safetensors --save-every 100 --resume auto\n"
                    "  train_gpt poems.txt --local 2 --ctx 64 --layout scattered --grid 2x1x1x1\n",
        .run = run_rank,
    };
    given = settings_begin;
    return program_start(&about, argc, argv, &given.how);
}
