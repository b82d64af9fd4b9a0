/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille calibrate --for`: the kernels, shapes and collectives of a network's own lists. */
#include <math.h>
#include <quadrille/report.h>
#include <stdio.h>
#include <string.h>

#include "calibrate/calibrate.h"
#include "common/planning.h"

/* A grid that was asked for is run even if all layers would not fit: only one is. */
static int choose(network_run *run, const qdr_machine *machine, int n_ranks, failure *why)
{
    const qdr_search_opts opts = {QDR_INIT(qdr_search_opts),
                                  .n_ranks = n_ranks,
                                  .ranks = {run->grid.x, run->grid.y, run->grid.z, run->grid.d},
                                  .recomputes = 1 << QDR_RECOMPUTE_NONE,
                                  .batch = run->batch,
                                  .sequence = run->sequence,
                                  .dtype = run->dtype,
                                  .memory_bytes = run->grid.x ? 1e18 : 0,
                                  .n_best = 1};
    qdr_search_result result = {QDR_INIT(qdr_search_result)};
    qdr_model *model = NULL;
    qdr_status status = qdr_model_create(machine, &run->network, &model);
    run->chosen.plan.size = sizeof run->chosen.plan;
    run->chosen.result.size = sizeof run->chosen.result;
    if (status >= 0) status = qdr_model_search(model, &opts, &result);
    if (status >= 0 && result.n_best > 0) status = qdr_model_best(model, 0, &run->chosen.plan, &run->chosen.result);
    qdr_model_destroy(&model);
    if (fail_status(why, status)) return why->code;
    if (result.n_candidates == 0)
        return fail(why, EXIT_USAGE,
                    "calibrate: a batch of %lld is too small: each of the z*d cells of a grid needs a sequence; raise "
                    "--batch, or name another grid with --grid",
                    (long long)opts.batch);
    if (result.n_best == 0)
        return fail(why, EXIT_NOTHING_FITS,
                    "calibrate: %s does not fit into %.3g GiB a rank on any grid of %d; name the grid whose layers are "
                    "to be measured with --grid, or lower --batch or --seq",
                    run->network.name, machine->memory_bytes / GIB, n_ranks);
    return EXIT_OK;
}

/* ---- the run ---- */

static int64_t sequence_of(const network_run *run) { return plan_sequence(&run->network, &run->chosen.plan); }
static int64_t sequences_of(const network_run *run)
{
    const qdr_plan *plan = &run->chosen.plan;
    return plan->micro_batch ? plan->micro_batch * plan->z * plan->d : plan->batch;
}

static qdr_status make(calibration *c)
{
    network_run *run = &c->run;
    const qdr_plan *plan = &run->chosen.plan;
    const grid_size size = {plan->x, plan->y, plan->z, plan->d};
    const transformer_desc desc = {.network = &run->network,
                                   .has_ends = 1,
                                   .n_layers = 1,
                                   .n_sequences = sequences_of(run),
                                   .sequence = sequence_of(run),
                                   .dtype = plan->dtype,
                                   .layout = plan->layout,
                                   .n_panels = run->chosen.result.panels,
                                   .n_batch_parts = run->chosen.result.batch_parts,
                                   .overlap = QDR_OVERLAP_NONE};
    qdr_status status = grid_make(c->ctx, size, *plan->order ? plan->order : NULL, &run->made_grid);
    if (status >= 0) status = transformer_create(run->made_grid, &desc, &run->made);
    if (status >= 0) status = qdr_stack_measure(run->made.stack);
    return qdr_agree(c->ctx, status);
}

/* One step more than is kept: the first is not. */
static qdr_status run_steps(calibration *c)
{
    const network_run *run = &c->run;
    const double n_tokens = (double)sequences_of(run) * (double)sequence_of(run);
    const int n_steps = c->is_quick ? 4 : 16;
    for (int i = 0; i < n_steps; i++) {
        TRY(qdr_stack_forward(run->made.stack));
        TRY(qdr_stack_backward(run->made.stack, 0, 1 / n_tokens));
        TRY(qdr_stream_synchronize(qdr_context_stream(c->ctx)));
        calibrate_show(c, c->stage);
    }
    return QDR_OK;
}

/* The name with which all samples of the group are kept. NULL: there are too many groups. */
static const char *keep_group(calibration *c, const char *name)
{
    char text[sizeof c->run_groups[0]];
    snprintf(text, sizeof text, "network: %s", name);
    for (int i = 0; i < MAX_GROUPS; i++) {
        char *kept = c->run_groups[i];
        if (!*kept) memcpy(kept, text, sizeof text);
        if (strcmp(kept, text) == 0) return kept;
    }
    return NULL;
}

static void add_sample(const qdr_sample *sample, void *user)
{
    calibration *c = user;
    qdr_sample own = *sample;
    own.group = keep_group(c, sample->group);
    if (own.group) calibrate_add(c, &own);
}

/* Kernels take as long as on the slowest rank; collectives as long as on the fastest, the last one to come, which
 * waited for nobody. If a rank without rows has fewer samples, rank 0's times stay as they are. */
static qdr_status fold_times(calibration *c, int first)
{
    double counts[] = {c->n_samples, -c->n_samples}, secs[MAX_SAMPLES];
    const int n = c->n_samples - first;
    qdr_status status = bench_all_ranks(c->ctx, FOLD_MAX, counts, 2);
    if (status < 0 || counts[0] + counts[1] != 0) return status;
    qdr_sample *samples = c->samples + first;
    for (int i = 0; i < n; i++) secs[i] = samples[i].kind == QDR_SAMPLE_COLLECTIVE ? -samples[i].secs : samples[i].secs;
    status = bench_all_ranks(c->ctx, FOLD_MAX, secs, n);
    for (int i = 0; i < n && status >= 0; i++) samples[i].secs = fabs(secs[i]);
    return status;
}

int calibrate_network(calibration *c, const qdr_machine *machine, failure *why)
{
    network_run *run = &c->run;
    calibrate_show(c, "the network's tasks");
    if (qdr_context_rank(c->ctx) == 0) choose(run, machine, qdr_context_size(c->ctx), why);
    if (fail_together(why, c->ctx) || fail_status(why, qdr_broadcast(c->ctx, 0, &run->network, sizeof run->network)) ||
        fail_status(why, qdr_broadcast(c->ctx, 0, &run->chosen, sizeof run->chosen)) || fail_status(why, make(c)) ||
        fail_status(why, run_steps(c)))
        return why->code;
    const int first = c->n_samples;
    fail_status(why, qdr_stack_samples(run->made.stack, add_sample, c));
    return fail_together(why, c->ctx) ? why->code : fail_status(why, fold_times(c, first));
}

int calibrate_network_print(const calibration *c, const qdr_machine *machine, failure *why)
{
    const network_run *run = &c->run;
    const qdr_plan *plan = &run->chosen.plan;
    printf("\n# a layer of %s, with embedding, head and loss, %s, on grid %s, order %s, %s, %lld sequence%s of %lld "
           "tokens, %d panel%s,\n# %d part%s of the batch, without overlap, on rank 0:\n",
           run->network.name, qdr_dtype_name(plan->dtype), grid_in_words(plan).text,
           *plan->order ? plan->order : "xyzd", layout_word(plan->layout), (long long)sequences_of(run),
           PLURAL(sequences_of(run)), (long long)sequence_of(run), run->chosen.result.panels,
           PLURAL(run->chosen.result.panels), run->chosen.result.batch_parts, PLURAL(run->chosen.result.batch_parts));
    return fail_status(why, qdr_stack_report(run->made.stack, machine, stdout));
}

void calibrate_network_end(calibration *c)
{
    qdr_stack_destroy(&c->run.made.stack);
    qdr_grid_destroy(&c->run.made_grid);
}
