/* SPDX-License-Identifier: Apache-2.0 */
/* What is known of all ranks while they train: for how long they waited for one another, how much memory they need; and
 * the peak that speeds are shares of. */
#include <math.h>
#include <quadrille_private/measure.h>

#include "meter.h"
#include "training.h"

qdr_traffic training_traffic(const training *run)
{
    qdr_traffic all = {QDR_INIT(qdr_traffic)};
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
            const int is_of_statistics = channel >= QDR_CHANNEL_X_STAT && channel <= QDR_CHANNEL_D_STAT;
            qdr_traffic one = {QDR_INIT(qdr_traffic)};
            if (qdr_grid_traffic(run->grid, (qdr_channel)channel, (qdr_coll_kind)kind, &one) != QDR_OK) continue;
            all.bytes_sent += one.bytes_sent;
            all.bytes_plain += one.bytes_plain;
            all.codec_secs += one.codec_secs;
            all.secs += is_of_statistics ? one.secs : 0; /* nothing is computed meanwhile */
        }
    all.secs += qdr_measure_waits(run->ctx) + run->text.sent_secs;
    return all;
}

/* Measuring computes about as much. */
#define LEAST_FLOPS 1e10

qdr_status training_find_peak(training *run)
{
    const choice *how = &run->set->how;
    const double n_tokens = (double)(run->set->n_steps - run->first_step) * (double)(how->batch * how->context);
    const int n_ranks = qdr_context_size(run->ctx);
    qdr_network_flops flops = {QDR_INIT(qdr_network_flops)};
    double own, unused;
    TRY(qdr_network_flops_per_token(&run->set->network, how->context, &flops));
    run->token_flops = 3 * (flops.linear + flops.head + flops.attention);
    run->peak_flops = n_ranks * how->peak_flops;
    if (how->machine && !(how->peak_flops > 0))
        return REFUSE(run->sentence, "--machine %.100s states no peak of %s; name another one, or leave out --machine",
                      how->machine, qdr_dtype_name((qdr_dtype)how->dtype));
    if (how->machine) return QDR_OK;
    run->peak_flops = NAN;
    if (n_tokens * run->token_flops < LEAST_FLOPS) return QDR_OK;
    TRY(qdr_measure_products(run->ctx, (qdr_dtype)how->dtype, &own));
    return meter_over_ranks(run->grid, own, &run->peak_flops, &unused);
}

double training_peak_share(const training *run, double tokens_per_s)
{
    return tokens_per_s * run->token_flops / run->peak_flops;
}

qdr_status training_measure(training *run, training_step *step, int is_due)
{
    enum { MOST_STEPS = 100 };
    const int64_t n_done = step->number - run->first_step, rest = n_done / 8;
    const double sum_before = run->waited.sum, secs_before = run->waited.of_secs;
    const int n_ranks = qdr_context_size(run->ctx);
    size_t now, peak;
    double unused;
    /* Products ran at least as fast as a whole step, if not at the start. */
    if (!run->set->how.machine && !isnan(run->peak_flops))
        run->peak_flops = fmax(run->peak_flops, step->tokens_per_s * run->token_flops);
    if (!is_due && n_done < run->waited.next) return QDR_OK;
    run->waited.next = n_done + 1 + (rest < MOST_STEPS ? rest : MOST_STEPS - 1);
    qdr_mem_usage(run->ctx, &now, &peak);
    TRY(meter_over_ranks(run->grid, (double)peak, &unused, &run->memory));
    TRY(meter_over_ranks(run->grid, run->waited.own, &run->waited.sum, &run->waited.most));
    run->waited.of_secs = run->train_secs;
    if (qdr_context_gpu(run->ctx) >= 0) return QDR_OK;
    step->exposed = (run->waited.sum - sum_before) / (n_ranks * (run->train_secs - secs_before));
    run->exposed = run->waited.sum / (n_ranks * run->train_secs);
    return QDR_OK;
}
