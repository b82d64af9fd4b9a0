/* SPDX-License-Identifier: Apache-2.0 */
/* Trains a small GPT, or another transformer, on text, byte by byte, on a 4D grid of ranks, and lets it write a few
 * lines at the end.
 *
 *   train --local 4 --grid 2x2x1x1 --plot loss.svg
 *
 * Read it from the bottom up: main, run_rank, run_all, train, train_step. The model itself is in common/gpt.c, and what
 * comes before the first step in common/training_prepare.c; validating, saving, resuming and sampling are beside it. */
#include <math.h>
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/meter.h"
#include "common/progress.h"
#include "common/stopping.h"
#include "common/training.h"
#include "src/common/process.h"

#ifndef NAME
#define NAME "train" /* the program is also built with its older one, for a release */
#endif

/* Rises linearly, then falls as half a cosine to 2 %. */
static double learning_rate(const settings *set, int64_t step)
{
    const int64_t warmup = set->warmup < set->n_steps / 4 ? set->warmup : set->n_steps / 4;
    if (step < warmup) return set->lr * (double)(step + 1) / (double)warmup;
    const double done = (double)(step - warmup) / (double)(set->n_steps - warmup);
    return set->lr * (0.02 + 0.98 * 0.5 * (1 + cos(3.14159265358979323846 * done)));
}

/* Those of a batch that count; at borders of documents there are none. */
static int64_t count_targets(const training *run, int64_t n_rows)
{
    int64_t n = 0;
    for (int64_t row = 0; row < n_rows; row++) n += run->text.rows.targets[row] >= 0;
    return n;
}

/* One optimizer step on set->how.batch sequences, with as many forward and backward passes as they need. The sequences
 * depend only on the seed and on how many were used before; which rank has them depends on the grid. The loss is scaled
 * once, so sums over micro-batches and ranks are means; the optimizer divides by loss_scale. loss: NAN for a batch
 * without targets, whose gradients are 0. */
static qdr_status train_step(training *run, int64_t step, double *loss)
{
    const settings *set = run->set;
    const int64_t per_forward = run->model.config.n_sequences,
                  n_forwards = (set->how.batch + per_forward - 1) / per_forward;
    const corpus_part batch = {training_sequences(run, step), set->how.batch, n_forwards * per_forward, 0, 1};
    double sum = 0;
    int64_t n = 0;
    TRY(corpus_take(&run->text, batch, run->sentence));
    run->n_targets = count_targets(run, batch.n_rooms * set->how.context);
    run->step.loss_scale = run->loss_scale / (double)(run->n_targets ? run->n_targets : 1);
    TRY(qdr_adamw_set_rate(run->optimizer, learning_rate(set, step)));
    for (int64_t first = 0; first < set->how.batch; first += per_forward) {
        TRY(gpt_fill_rows(&run->model, &run->text.rows, first));
        TRY(gpt_step_run(&run->step, first > 0, first + per_forward >= set->how.batch));
        TRY(training_add_loss(run, &sum, &n)); /* waits for everything that was enqueued, so it comes last */
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
    const double began = process_secs(), cpu_began = meter_cpu_secs();
    if (rank == run->late_rank) meter_sleep(run->late_secs);
    if (status >= 0) status = train_step(run, step, loss);
    if (status >= 0) status = meter_all(run->grid, meter_cpu_secs() - cpu_began, cpu);
    if (status >= 0 && run->talks) {
        fprintf(stderr,
                "rank %d was %g s late for step %lld, which took %.2f s; processor seconds of the %s:", run->late_rank,
                run->late_secs, (long long)step + 1, process_secs() - began,
                run->set->how.n_local ? "process" : "ranks");
        for (int i = 0; i < (run->set->how.n_local ? 1 : p); i++) fprintf(stderr, " %.2f", cpu[i]);
        fputc('\n', stderr);
    }
    free(cpu);
    return status;
}

/* The log line of a step, and other work after it, such as a validation. */
static qdr_status after_step(training *run, progress *line, training_step *step)
{
    const settings *set = run->set;
    const int64_t every = set->validate_every ? set->validate_every : (set->n_steps + 9) / 10;
    const int64_t n_done = step->number - run->first_step;
    const int is_last = step->number == run->n_steps, validates = step->number % every == 0 || is_last;
    if (validates) TRY(training_validate(run, is_last, &step->val_loss));
    const int measured = validates && !run->stops;
    if (measured) {
        if (run->n_points < MAX_POINTS) run->n_points++; /* else the last one makes room for the latest */
        run->points[run->n_points - 1] = (chart_point){step->number, step->val_loss};
    }
    run->losses[n_done - 1] = step->loss;
    TRY(training_measure(run, step, validates));
    TRY(training_log_step(run, step));
    if (validates || run->log_is_stream) TRY(qdr_agree(run->ctx, run->log_status));
    const double tokens_per_s = (double)(n_done * set->how.batch * set->how.context) / run->train_secs;
    const progress_numbers numbers = {
        .loss = step->loss,
        .val_loss = run->n_points ? run->points[run->n_points - 1].loss : NAN,
        .tokens_per_s = tokens_per_s,
        .peak_share = training_peak_share(run, tokens_per_s),
        .exposed = run->exposed,
        .memory = run->memory,
    };
    if (run->talks) progress_step(line, step->number, &numbers, measured);
    return QDR_OK;
}

/* All ranks have the same losses. */
static qdr_status guard_codecs(training *run, progress *line, int64_t step)
{
    char why[CODEC_GUARD_BYTES];
    int gives_up;
    if (run->n_targets == 0) return QDR_OK;
    TRY(codec_switch_look(&run->codecs, run->losses, step - run->first_step, why, &gives_up));
    if (!gives_up || !run->talks) return QDR_OK;
    progress_end(line);
    fprintf(stderr, "--codec-guard: after step %lld %s; going on with --codec safe\n", (long long)step + 1, why);
    return QDR_OK;
}

static qdr_status check_loss(const training *run, int64_t step, double loss)
{
    const settings *set = run->set;
    if (isfinite(loss) || run->n_targets == 0 || codec_switch_forgives(&run->codecs, step - run->first_step))
        return QDR_OK;
    snprintf(run->sentence, PROBLEM_BYTES, "the loss of step %lld is not a finite number; use a lower --lr than %g%s%s",
             (long long)step + 1, set->lr, set->how.dtype == QDR_F16 ? ", or --dtype bf16" : "",
             set->how.codecs.size ? ", or a milder --codec" : "");
    return QDR_ERR_STATE;
}

static qdr_status train(training *run)
{
    progress line = progress_begin(run->first_step, run->n_steps, run->set->every);
    for (int64_t step = run->first_step; step < run->n_steps && !run->stops; step++) {
        TRY(codec_switch_step(&run->codecs, step - run->first_step));
        const double began = process_secs();
        const qdr_traffic before = training_traffic(run);
        double loss;
        if (run->late_secs > 0 && step == run->first_step + (run->n_steps - run->first_step) / 2)
            TRY(late_step(run, step, &loss));
        else
            TRY(train_step(run, step, &loss));
        const double secs = process_secs() - began;
        const qdr_traffic after = training_traffic(run);
        run->train_secs += secs;
        run->waited.own += after.secs - before.secs;
        TRY(check_loss(run, step, loss));
        training_step done = {.number = step + 1,
                              .loss = loss,
                              .lr = learning_rate(run->set, step),
                              .tokens_per_s = (double)(run->set->how.batch * run->set->how.context) / secs,
                              .bytes_sent = after.bytes_sent - before.bytes_sent,
                              .val_loss = NAN,
                              .exposed = NAN};
        const int is_last = step + 1 == run->n_steps;
        if (is_last) TRY(training_save_step(run, &line, step + 1)); /* before the last validation, which may be long */
        TRY(after_step(run, &line, &done));
        TRY(guard_codecs(run, &line, step));
        if (!is_last) TRY(training_save_step(run, &line, step + 1));
    }
    if (run->talks) progress_end(&line);
    return QDR_OK;
}

/* A run without steps. */
static qdr_status only_validate(training *run)
{
    double validation;
    if (run->set->resume && run->talks)
        fprintf(stderr, "%s has %lld step%s; give a larger --steps to train on\n", run->set->resume,
                (long long)run->first_step, PLURAL(run->first_step));
    TRY(training_validate(run, 1, &validation));
    if (!run->stops) {
        run->points[run->n_points++] = (chart_point){run->n_steps, validation};
        training_log_validation(run, validation);
    }
    TRY(qdr_agree(run->ctx, run->log_status));
    if (!run->set->save || run->set->resume) return QDR_OK;
    TRY(training_begin_save(run, run->n_steps));
    return saver_finish(&run->save);
}

static qdr_status end(training *run)
{
    size_t now, peak;
    qdr_mem_usage(run->ctx, &now, &peak);
    TRY(training_report(run, peak));
    return run->set->n_sample ? training_write_sample(run) : QDR_OK;
}

static void say_stopped(const training *run)
{
    const char *file = run->set->save;
    if (run->save.step < run->n_steps && run->first_step < run->n_steps)
        fprintf(stderr, "stopped; --resume %s continues\n", file);
    else
        fprintf(stderr, "stopped after all %lld step%s, before the last validation and the sample were complete\n",
                (long long)run->n_steps, PLURAL(run->n_steps));
}

static qdr_status run_all(training *run)
{
    TRY(training_prepare(run));
    if (run->talks) training_announce(run);
    TRY(training_announce_levels(run));
    if (run->set->eval) return training_eval(run);
    TRY(run->first_step < run->n_steps ? train(run) : only_validate(run));
    if (!run->stops) TRY(end(run));
    if (run->save.has_failed) {
        snprintf(run->sentence, PROBLEM_BYTES, "--save %.300s: the last step was not saved, as the warning says",
                 run->set->save);
        return QDR_ERR_IO;
    }
    if (run->stops && run->talks) say_stopped(run);
    return QDR_OK;
}

static qdr_status run_once(qdr_context *ctx, const settings *set, const char *path, char sentence[PROBLEM_BYTES],
                           int *load_failed)
{
    training *run = program_new(ctx, 1, sizeof *run);
    if (!run) return QDR_ERR_MEMORY;
    run->own = *set;
    run->own.resume = path;
    if (path) run->own.load = NULL; /* its run has begun */
    run->began = process_secs();
    run->memory = run->exposed = NAN;
    run->set = &run->own, run->ctx = ctx, run->sentence = sentence, run->talks = qdr_context_rank(ctx) == 0;
    qdr_status status = run_all(run);
    const qdr_status saved = qdr_checkpoint_finish(&run->save.pending); /* of a run that failed */
    if (status >= 0) status = saved;
    *load_failed = run->load_failed;
    gpt_step_destroy(&run->step);
    qdr_adamw_destroy(&run->optimizer);
    gpt_destroy(&run->model);
    qdr_grid_destroy(&run->grid);
    corpus_close(&run->text);
    saved_run_free(&run->saved);
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
    if (strcmp(NAME, "train") != 0 && qdr_context_rank(ctx) == 0)
        fputs(NAME " is called train now; this name goes with the next release\n", stderr);
    TRY(settings_check(set, sentence));
    const qdr_status status = set->resume && strcmp(set->resume, "auto") == 0
                                  ? run_auto(ctx, set, sentence)
                                  : run_once(ctx, set, set->resume, sentence, &load_failed);
    stop_by_default();
    return status;
}

/* Before anything takes long. */
static void begin(const void *user)
{
    const settings *set = user;
    if (set->save) stop_on_signals();
}

static settings given; /* by the command line */

int main(int argc, char **argv)
{
    const program about = {
        .name = NAME,
        .usage = NAME " [FILE] [options]        or: mpiexec.mpich -n P " NAME " [FILE] [options]",
        .text = "Trains a small GPT, or the network of --model, a plan or a checkpoint, on the bytes of FILE on a 4D\n"
                "grid of ranks. Without FILE it uses the King James Bible if the package bible-kjv is installed, else\n"
                "the licences in /usr/share/common-licenses. The last tenth of the text is used for validation.\n"
                "Afterwards it writes a sample of text to standard output; messages go to standard error.",
        .options = settings_specs,
        .operand = &given.file,
        .examples = "  train --local 4 --grid 2x2x1x1 --plot loss.svg\n"
                    "  mpiexec.mpich -n 2 train --grid 1x1x1x2 --layers 2 --steps 10000 "
                    "--log run.jsonl\n"
                    "  train --local 4 --grid auto --machine laptop\n"
                    "  train --local 8 --grid 2x2x2x1 --model llama/config.json --steps 100\n"
                    "  train --local 4 --save run.safetensors --save-every 100 --resume auto\n"
                    "  train poems.txt --local 2 --ctx 64 --layout scattered --grid 2x1x1x1\n",
        .begin = begin,
        .run = run_rank,
    };
    given = settings_begin;
    return program_start(&about, argc, argv, &given.how);
}
