/* SPDX-License-Identifier: Apache-2.0 */
#include <math.h>
#include <stdio.h>

#include "meter.h"
#include "progress.h"
#include "training.h"

static qdr_status draw_chart(training *run)
{
    const settings *set = run->set;
    char title[192], subtitle[320], count[24];
    const int64_t n_steps = run->n_steps - run->first_step;
    const int p = qdr_context_size(run->ctx);
    snprintf(title, sizeof title, "Loss of %s, %lld layer%s, on a %s grid", set->network.name,
             (long long)set->network.layers, PLURAL(set->network.layers), grid_words(set->how.grid).text);
    snprintf(subtitle, sizeof subtitle, "%s, %s parameters, %d rank%s, %s, %s, %.0f tokens/s", run->text.name,
             progress_count((double)gpt_n_parameters(&run->model), count), p, PLURAL(p),
             layout_word((qdr_layout)set->how.layout), qdr_dtype_name((qdr_dtype)set->how.dtype),
             (double)(n_steps * set->how.batch * set->how.context) / run->train_secs);
    const loss_chart chart = {title, subtitle, run->losses, run->first_step, n_steps, run->points, run->n_points};
    return chart_write(&chart, set->plot, run->sentence) ? QDR_OK : QDR_ERR_IO;
}

/* The memory planned according to the size queries, the peak that was used, and the growth of the process. */
static qdr_status report_memory(training *run, size_t peak)
{
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    size_t optimizer;
    TRY(qdr_stack_get_sizes(run->model.stack, &sizes));
    TRY(qdr_adamw_size(run->model.stack, &optimizer));
    /* Numbers of all ranks are taken together one by one, after --late all at once. */
    const int n_numbers = run->late_secs > 0 ? qdr_context_size(run->ctx) : 1;
    const size_t meter = run->n_steps > run->first_step ? sizeof(double) * (size_t)n_numbers : 0;
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
    const qdr_traffic all = training_traffic(run);
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
                n == 1 ? " was" : "s were", run->loss_scale);
    return QDR_OK;
}

static void report_loss(const training *run)
{
    const int64_t n_steps = run->n_steps - run->first_step;
    const double tokens = (double)(n_steps * run->set->how.batch * run->set->how.context);
    char clock[24], count[24];
    const double loss = run->points[run->n_points - 1].loss;
    if (isnan(loss))
        fprintf(stderr, "no target in the validation's windows, so no loss");
    else
        fprintf(stderr, "validation loss %.4f nats per %s", loss, run->text.info.is_text ? "byte" : "token");
    fprintf(stderr, " after %lld step%s", (long long)run->n_steps, PLURAL(run->n_steps));
    if (n_steps)
        fprintf(stderr, ": %s tokens in %s (%.0f tokens/s), of which %.2g s were waiting for data",
                progress_count(tokens, count), progress_clock(run->train_secs, clock), tokens / run->train_secs,
                run->text.waited_secs);
    fputc('\n', stderr);
}

/* Of the steps of this run. */
static void report_ranks(const training *run)
{
    char text[24];
    if (isnan(run->memory)) return;
    const double tokens = (double)((run->n_steps - run->first_step) * run->set->how.batch * run->set->how.context);
    const double share = training_peak_share(run, tokens / run->train_secs);
    fputs("of all ranks: ", stderr);
    if (!isnan(share)) fprintf(stderr, "%.1f%% of the peak; ", 100 * share);
    if (!isnan(run->exposed))
        fprintf(stderr, "exposed communication %.1f%% of the steps' time on average, at most %.1f%%; ",
                100 * run->exposed, 100 * run->waited.most / run->waited.of_secs);
    fprintf(stderr, "memory at most %s\n", progress_bytes(run->memory, text));
}

qdr_status training_report(training *run, size_t peak)
{
    if (run->talks) report_loss(run);
    if (run->talks) report_ranks(run);
    TRY(report_skipped(run));
    report_codecs(run);
    TRY(report_memory(run, peak));
    const int draws = run->talks && run->set->plot && run->first_step < run->n_steps;
    return qdr_agree(run->ctx, draws ? draw_chart(run) : QDR_OK);
}

static void tell_peak(const training *run)
{
    const choice *how = &run->set->how;
    const int p = qdr_context_size(run->ctx);
    if (run->set->eval || isnan(run->peak_flops)) return;
    fprintf(stderr, "peak: %.4g GFLOP/s, ", 1e-9 * run->peak_flops);
    if (how->machine)
        fprintf(stderr, "that of %d rank%s of %s\n", p, PLURAL(p), how->machine);
    else
        fprintf(stderr, "at which products of %s ran on all ranks at the start\n",
                qdr_dtype_name((qdr_dtype)how->dtype));
}

void training_announce(const training *run)
{
    const settings *set = run->set;
    const int p = qdr_context_size(run->ctx);
    const qdr_network *network = &set->network;
    const int64_t n_tokens = set->how.batch * set->how.context, n_windows = run->text.info.n_evaluation;
    const int is_text = run->text.info.is_text;
    char count[24], size[24], work[96], repeats[32] = "";
    if (set->how.recompute)
        snprintf(repeats, sizeof repeats, ", recompute %s", recompute_word((qdr_recompute)set->how.recompute));
    if (is_text)
        snprintf(size, sizeof size, "%.2f MB", 1e-6 * (double)run->text.info.n_tokens);
    else
        progress_count((double)run->text.info.n_tokens, size);
    if (set->eval)
        snprintf(work, sizeof work, "the loss of %lld window%s of up to %lld token%s", (long long)n_windows,
                 PLURAL(n_windows), (long long)set->how.context, PLURAL(set->how.context));
    else
        snprintf(work, sizeof work, "%lld step%s of %lld token%s", (long long)set->n_steps, PLURAL(set->n_steps),
                 (long long)n_tokens, PLURAL(n_tokens));
    fprintf(stderr, "%d rank%s of %d thread%s as grid %s (%s, %s, overlap %s%s%s); %s: %s, %s\n", p, PLURAL(p),
            qdr_context_threads(run->ctx), PLURAL(qdr_context_threads(run->ctx)), grid_words(set->how.grid).text,
            layout_word((qdr_layout)set->how.layout), qdr_dtype_name((qdr_dtype)set->how.dtype),
            set->how.serial ? "off" : "on", repeats, set->how.recorded ? ", as graphs" : "",
            is_text ? "text" : "tokens", run->text.name, size);
    fprintf(stderr, "%s: %lld layer%s, hidden %lld, %lld head%s, context %lld: %s parameters; %s\n", network->name,
            (long long)network->layers, PLURAL(network->layers), (long long)network->hidden, (long long)network->heads,
            PLURAL(network->heads), (long long)set->how.context,
            progress_count((double)gpt_n_parameters(&run->model), count), work);
    tell_peak(run);
    if (is_text && network->vocab > N_BYTES)
        fprintf(stderr, "its vocabulary of %lld has more than the %d bytes: the other tokens never occur\n",
                (long long)network->vocab, N_BYTES);
}

/* Over how many ranks parameters, gradients and optimizer state are split, and what a rank has of each. */
qdr_status training_announce_levels(const training *run)
{
    const int weights = qdr_grid_parts(run->grid, QDR_LEVEL_WEIGHTS);
    const int gradients = qdr_grid_parts(run->grid, QDR_LEVEL_GRADIENTS);
    const int state = qdr_grid_parts(run->grid, QDR_LEVEL_OPTIMIZER);
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
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
