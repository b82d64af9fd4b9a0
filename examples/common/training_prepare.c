/* SPDX-License-Identifier: Apache-2.0 */
/* All that comes before the first step: the choices, the grid, the text, the model, the files. */
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "meter.h"
#include "src/common/foreign_name.h"
#include "training.h"

static qdr_status begin_codecs(training *run)
{
    const settings *set = run->set;
    if (!set->codec_after && set->codec_guard <= 0) return QDR_OK;
    const int64_t after = set->codec_after > run->first_step ? set->codec_after - run->first_step : 0;
    return codec_switch_begin(&run->codecs, &run->step, after, set->codec_guard, run->sentence);
}

/* Checks that involve several options. The same on all ranks. */
static qdr_status check(training *run)
{
    const settings *set = run->set;
    char rest = 0;
    if (set->save && foreign_name("--save", set->save, set->save, run->sentence, PROBLEM_BYTES))
        return QDR_ERR_ARGUMENT;
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
    TRY(qdr_agree(run->ctx, status));
    return training_open_log(run);
}

/* What the command line leaves open may be set by a plan or the model. */
static qdr_status choose(training *run)
{
    const qdr_network *network = &run->set->network;
    const int is_short = network->context > 0 && network->context < USUAL_CONTEXT;
    const choice usual = {.order = "xyzd", .context = is_short ? network->context : USUAL_CONTEXT, .batch = 4};
    const choice given_how = run->set->how;
    return choice_make(run->ctx, &given_how, &usual, network, &run->own.how, run->sentence);
}

/* Of learned positions there are as many as a sequence has tokens. */
static qdr_status fit_positions(training *run)
{
    qdr_network *network = &run->own.network;
    const int64_t context = run->set->how.context;
    const char *source = run->set->source;
    if (source && network->positions && context > network->positions)
        return REFUSE(run->sentence, "--ctx %lld is longer than the %lld positions of %.300s; use at most %lld",
                      (long long)context, (long long)network->positions, source, (long long)network->positions);
    if (network->positions)
        network->context = network->positions = context;
    else if (run->talks && context > network->context)
        fprintf(stderr, "sequences of %lld tokens are longer than the %lld positions that %s is made for\n",
                (long long)context, (long long)network->context, network->name);
    return QDR_OK;
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
        .network = set->network,
        .context = set->how.context,
        .n_sequences = per_cell * cells,
        .layout = (qdr_layout)set->how.layout,
        .dtype = (qdr_dtype)set->how.dtype,
        .overlap = set->how.serial ? QDR_OVERLAP_NONE : set->how.overlap,
        .panels = (int)set->how.n_panels,
        .batch_parts = (int)set->how.n_batch_parts,
        .codecs = set->how.codecs.size ? &set->how.codecs : NULL,
        .recompute = (qdr_recompute)set->how.recompute,
        .recompute_every = (int)set->recompute_every,
        .documents = set->documents != NULL,
    };
    const int64_t n_forwards = (set->how.batch + config.n_sequences - 1) / config.n_sequences;
    TRY(corpus_reserve(&run->text, set->eval ? config.n_sequences : n_forwards * config.n_sequences));

    TRY(gpt_create(run->grid, &config, &run->model));
    if (!set->resume && !set->load) TRY(gpt_init(&run->model, (uint64_t)set->seed, set->stddev));
    run->loss_scale = set->loss_scale > 0 ? set->loss_scale : set->how.dtype == QDR_F16 ? 1024 : 1;
    const qdr_adamw_opts opts = {
        QDR_INIT(qdr_adamw_opts),          .beta1 = 0.9,           .beta2 = 0.99,
        .weight_decay = set->weight_decay, .clip_norm = set->clip, .grad_scale = run->loss_scale};
    TRY(qdr_adamw_create(run->model.stack, &opts, &run->optimizer));
    /* A recorded step has one scale; with documents, batches have different numbers of targets. */
    run->step = (gpt_step){&run->model, run->optimizer, .is_recorded = set->how.recorded && !set->documents};
    return QDR_OK;
}

qdr_status training_prepare(training *run)
{
    const settings *set = run->set;
    const char *path = set->resume ? set->resume : set->load;
    if (set->model) TRY(choice_load_network(run->ctx, set->model, &run->own.network));
    if (path) {
        const qdr_network *model = set->model ? &set->network : NULL;
        const qdr_status status = saved_run_read(run->ctx, path, model, &run->saved, run->sentence);
        run->load_failed = status == QDR_ERR_IO || status == QDR_ERR_ARGUMENT;
        TRY(status == QDR_ERR_IO ? QDR_ERR_ARGUMENT : status); /* the name was wrong */
    }
    TRY(choice_load_plan(run->ctx, &run->own.how));
    TRY(settings_complete(&run->own, path ? &run->saved : NULL, run->sentence));
    TRY(check(run));
    TRY(choose(run));
    if (set->recompute_every && set->how.recompute != QDR_RECOMPUTE_FULL)
        return REFUSE(run->sentence,
                      "--recompute-every %lld is for --recompute full, but this run has %s; give --recompute full, or "
                      "leave out --recompute-every",
                      (long long)set->recompute_every, recompute_word((qdr_recompute)set->how.recompute));
    TRY(fit_positions(run));
    TRY(choice_make_grid(run->ctx, &run->own.how, run->sentence, &run->grid));
    TRY(corpus_open(run->ctx, set, &run->text, run->sentence));
    TRY(training_try_prompt(run));
    if (!set->eval) TRY(training_find_peak(run));
    TRY(make_model(run));
    TRY(training_load(run));
    run->n_steps = set->n_steps > run->first_step && !set->eval ? set->n_steps : run->first_step;
    run->losses = program_new(run->ctx, run->n_steps - run->first_step + 1, sizeof *run->losses);
    if (!run->losses) return QDR_ERR_MEMORY;
    run->save = (saver){.path = set->save,
                        .keep = (int)set->keep,
                        .background = !set->in_foreground,
                        .talks = run->talks,
                        .stack = run->model.stack,
                        .optimizer = run->optimizer};
    qdr_codecs codecs;
    TRY(qdr_stack_get_codecs(run->model.stack, &codecs)); /* before --codec-after takes them away */
    TRY(begin_codecs(run));
    TRY(open_files(run));
    choice_tell_codecs(run->ctx, &codecs);
    return QDR_OK;
}
