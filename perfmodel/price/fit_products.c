/* SPDX-License-Identifier: Apache-2.0 */
/* Products: secs = launch + 2/(peak·factor)·(m·n·k + half_k·m·n + half_n·m·k + half_m·n·k) is linear in 1/peak and
 * half/peak for given factors, and the factors are then fitted to the residuals. */
#include <float.h>
#include <math.h>

#include "price/fit.h"

enum { ROUNDS = 12, N_MODES = 3, N_TERMS = 4 };
#define MOST_HALF 1e6 /* extents; if larger, the products are too small to show their speed */
#define LEAST_SECS 1e-9 /* of a product, without its launch */

static double term_of(const qdr_sample *s, int term)
{
    const double terms[N_TERMS] = {s->m * s->n * s->k, s->n * s->k, s->m * s->k, s->m * s->n};
    return 2 * terms[term];
}

static int is_of(const qdr_sample *s, qdr_dtype dtype) { return s->kind == QDR_SAMPLE_PRODUCT && s->dtype == dtype; }

static double work_secs(const qdr_sample *s, double launch_secs) { return fmax(s->secs - launch_secs, LEAST_SECS); }

static int make_equations(const qdri_fit *fit, qdr_dtype dtype, double launch_secs, const double *factor)
{
    int n = 0;
    for (int i = 0; i < fit->n_samples; i++) {
        const qdr_sample *s = &fit->samples[i];
        if (!is_of(s, dtype)) continue;
        qdri_equation *e = &fit->equations[n++];
        *e = (qdri_equation){.secs = work_secs(s, launch_secs), .weight = qdri_sample_weight(s)};
        for (int t = 0; t < N_TERMS; t++) e->coefficient[t] = term_of(s, t) / factor[s->mode];
    }
    return n;
}

/* The ratio of predicted to measured times; 1 without samples. */
static double factor_of(const qdri_fit *fit, qdr_dtype dtype, double launch_secs, int mode, const double *unknowns)
{
    int n = 0;
    for (int i = 0; i < fit->n_samples; i++) {
        const qdr_sample *s = &fit->samples[i];
        if (!is_of(s, dtype) || (int)s->mode != mode) continue;
        double secs = 0;
        for (int t = 0; t < N_TERMS; t++) secs += unknowns[t] * term_of(s, t);
        fit->numbers[n++] = secs / work_secs(s, launch_secs);
    }
    return n ? qdri_median(fit->numbers, n) : 1;
}

/* Used if the products are too small for a fit. */
static double best_secs_per_flop(const qdri_fit *fit, qdr_dtype dtype, double launch_secs)
{
    double best = DBL_MAX;
    for (int i = 0; i < fit->n_samples; i++) {
        const qdr_sample *s = &fit->samples[i];
        if (is_of(s, dtype)) best = fmin(best, work_secs(s, launch_secs) / term_of(s, 0));
    }
    return best;
}

void qdri_fit_products(const qdri_fit *fit, qdr_dtype dtype, qdr_machine *machine)
{
    qdr_machine_products *type = dtype == QDR_F64 ? &machine->f64 : dtype == QDR_F32 ? &machine->f32 : &machine->bf16;
    const double launch_secs = machine->software.launch_secs;
    double factor[N_MODES] = {1, 1, 1}, unknowns[N_TERMS];
    int n = 0;
    for (int round = 0; round < ROUNDS; round++) {
        n = make_equations(fit, dtype, launch_secs, factor);
        if (n == 0) return;
        qdri_nnls(fit->equations, n, N_TERMS, unknowns);
        double most = 0;
        for (int mode = 0; mode < N_MODES; mode++) {
            factor[mode] = factor_of(fit, dtype, launch_secs, mode, unknowns);
            most = fmax(most, factor[mode]);
        }
        for (int mode = 0; mode < N_MODES; mode++) factor[mode] /= most > 0 ? most : 1;
        for (int t = 0; t < N_TERMS; t++) unknowns[t] /= most > 0 ? most : 1;
    }
    if (!(unknowns[0] * MOST_HALF > fmax(unknowns[1], fmax(unknowns[2], unknowns[3])))) {
        *unknowns = best_secs_per_flop(fit, dtype, launch_secs);
        unknowns[1] = unknowns[2] = unknowns[3] = 0;
    }
    *type = (qdr_machine_products){.peak_flops = 1 / unknowns[0],
                                   .most = 1,
                                   .half_m = unknowns[1] / unknowns[0],
                                   .half_n = unknowns[2] / unknowns[0],
                                   .half_k = unknowns[3] / unknowns[0],
                                   .factor = {factor[0], factor[1], factor[2]},
                                   .odd_factor = 1};
}
