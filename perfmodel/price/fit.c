/* SPDX-License-Identifier: Apache-2.0 */
/* Fits a machine's constants to samples, in the order in which they depend on one another. */
#include "price/fit.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "core/dtype.h"
#include "core/size.h"
#include "core/sized.h"
#include "machine/machine_table.h"
#include "price/price.h"

enum { PRODUCT_ROUNDS = 12, N_MODES = 3, N_TERMS = 4, COLLECTIVE_ROUNDS = 10 };
#define MOST_HALF 1e6 /* extents; if larger, the products are too small to show their speed */
#define LEAST_SECS 1e-9 /* of a product, without its launch */
#define STEP 1e-4 /* relative increment of a constant for the derivative */

/* Room for one equation per sample, and for the same number of values. */
typedef struct fit {
    const qdr_sample *samples;
    int n_samples;
    qdri_equation *equations;
    double *numbers;
} fit;

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The weight of its relative error: a compromise between counting samples and counting seconds, of which long samples
 * have most. A step runs all groups at once; a sample of one group alone only serves to show what groups share. */
static double weight_of(const qdr_sample *s) { return (s->alone ? 0.1 : 1) * pow(s->secs, 0.25); }

/* The median of n > 0 numbers, which are sorted. */
static double median(double *numbers, int n)
{
    qsort(numbers, (size_t)n, sizeof *numbers, by_value);
    return n % 2 ? numbers[n / 2] : (numbers[n / 2 - 1] + numbers[n / 2]) / 2;
}

typedef double (*value_fn)(const qdr_machine *machine, const qdr_sample *sample);

/* Sets *constant to the median of `value` over the samples of a kind; 0: there are none, and it does not change. */
static int set_median(const fit *all, const qdr_machine *machine, qdr_sample_kind kind, value_fn value,
                      double *constant)
{
    int n = 0;
    for (int i = 0; i < all->n_samples; i++)
        if (all->samples[i].kind == kind) all->numbers[n++] = value(machine, &all->samples[i]);
    if (n) *constant = median(all->numbers, n);
    return n > 0;
}

static double launch_of(const qdr_machine *machine, const qdr_sample *s)
{
    (void)machine;
    return s->secs / s->n_kernels;
}

/* The time that remains for a kernel's work. */
static double work_secs(const qdr_machine *machine, const qdr_sample *s)
{
    return fmax(s->secs - s->n_kernels * machine->software.launch_secs, 1e-3 * s->secs);
}

static double memory_rate_of(const qdr_machine *machine, const qdr_sample *s)
{
    return s->bytes / work_secs(machine, s);
}

static double flops_of(const qdr_machine *machine, const qdr_sample *s) { return s->flops / work_secs(machine, s); }

static double efficiency_of(const qdr_machine *machine, const qdr_sample *s)
{
    const qdr_machine_products *type = s->dtype == QDR_F64                                        ? &machine->f64
                                       : qdri_is_narrow(s->dtype) && machine->bf16.peak_flops > 0 ? &machine->bf16
                                                                                                  : &machine->f32;
    const double turn_secs = qdri_kernel_secs(machine, s->turn_bytes, s->turn_flops);
    const double secs = fmax(work_secs(machine, s) - turn_secs, 1e-3 * s->secs);
    return fmin(1, s->flops / secs / type->peak_flops);
}

/* Sets *constant to the one of the values suggested by single samples of the kind that has the smallest sum of errors;
 * without samples it does not change. */
static void choose(const fit *all, qdr_machine *machine, qdr_sample_kind kind, value_fn value, double *constant)
{
    double best = *constant, least = DBL_MAX;
    for (int i = 0; i < all->n_samples; i++) {
        if (all->samples[i].kind != kind) continue;
        double sum = 0;
        const double tried = value(machine, &all->samples[i]);
        *constant = tried;
        for (int j = 0; j < all->n_samples; j++)
            if (all->samples[j].kind == kind)
                sum += fabs(log(qdri_sample_secs(machine, &all->samples[j]) / all->samples[j].secs));
        if (!(sum < least)) continue;
        least = sum;
        best = tried;
    }
    *constant = best;
}

/* The slowdown of work that took `beside` with something else running and takes `done` alone: on a busy machine hardly
 * any of it may have been done, so that no rate can be derived. */
static double slowdown_of(double beside, double done)
{
    return done > 0 ? fmin(QDRI_MOST_SLOWDOWN, fmax(0, beside / done - 1)) : 0;
}

static double processor_slowdown_of(const qdr_machine *machine, const qdr_sample *s)
{
    (void)machine;
    const double beside = fmin(s->secs, s->coll_end_secs); /* the time during which both ran */
    return slowdown_of(beside, s->product_secs - (s->secs - beside));
}

static double transfer_slowdown_of(const qdr_machine *machine, const qdr_sample *s)
{
    (void)machine;
    const double beside = fmin(s->secs, s->coll_end_secs);
    return slowdown_of(beside, s->coll_secs - (s->coll_end_secs - beside));
}

/* ---- products ----
 *
 * secs = launch + 2/(peak·factor)·(m·n·k + half_k·m·n + half_n·m·k + half_m·n·k) is linear in 1/peak and half/peak for
 * given factors, and the factors are then fitted to the residuals. */

static double term_of(const qdr_sample *s, int term)
{
    const double terms[N_TERMS] = {s->m * s->n * s->k, s->n * s->k, s->m * s->k, s->m * s->n};
    return 2 * terms[term];
}

static int is_of(const qdr_sample *s, qdr_dtype dtype) { return s->kind == QDR_SAMPLE_PRODUCT && s->dtype == dtype; }

static double product_work_secs(const qdr_sample *s, double launch_secs)
{
    return fmax(s->secs - launch_secs, LEAST_SECS);
}

static int product_equations(const fit *all, qdr_dtype dtype, double launch_secs, const double *factor)
{
    int n = 0;
    for (int i = 0; i < all->n_samples; i++) {
        const qdr_sample *s = &all->samples[i];
        if (!is_of(s, dtype)) continue;
        qdri_equation *e = &all->equations[n++];
        *e = (qdri_equation){.secs = product_work_secs(s, launch_secs), .weight = weight_of(s)};
        for (int t = 0; t < N_TERMS; t++) e->coefficient[t] = term_of(s, t) / factor[s->mode];
    }
    return n;
}

/* The ratio of predicted to measured times; 1 without samples. */
static double factor_of(const fit *all, qdr_dtype dtype, double launch_secs, int mode, const double *unknowns)
{
    int n = 0;
    for (int i = 0; i < all->n_samples; i++) {
        const qdr_sample *s = &all->samples[i];
        if (!is_of(s, dtype) || (int)s->mode != mode) continue;
        double secs = 0;
        for (int t = 0; t < N_TERMS; t++) secs += unknowns[t] * term_of(s, t);
        all->numbers[n++] = secs / product_work_secs(s, launch_secs);
    }
    return n ? median(all->numbers, n) : 1;
}

/* Peak, halves and factors of one type; unchanged if no sample has the type. */
static void fit_products(const fit *all, qdr_dtype dtype, qdr_machine *machine)
{
    qdr_machine_products *type = dtype == QDR_F64 ? &machine->f64 : dtype == QDR_F32 ? &machine->f32 : &machine->bf16;
    const double launch_secs = machine->software.launch_secs;
    double factor[N_MODES] = {1, 1, 1}, unknowns[N_TERMS];
    int n = 0;
    for (int round = 0; round < PRODUCT_ROUNDS; round++) {
        n = product_equations(all, dtype, launch_secs, factor);
        if (n == 0) return;
        qdri_nnls(all->equations, n, N_TERMS, unknowns);
        double most = 0;
        for (int mode = 0; mode < N_MODES; mode++) {
            factor[mode] = factor_of(all, dtype, launch_secs, mode, unknowns);
            most = fmax(most, factor[mode]);
        }
        for (int mode = 0; mode < N_MODES; mode++) factor[mode] /= most > 0 ? most : 1;
        for (int t = 0; t < N_TERMS; t++) unknowns[t] /= most > 0 ? most : 1;
    }
    if (!(unknowns[0] * MOST_HALF > fmax(unknowns[1], fmax(unknowns[2], unknowns[3])))) {
        /* The products are too small for a fit: the best of them counts. */
        unknowns[0] = DBL_MAX;
        for (int i = 0; i < all->n_samples; i++) {
            const qdr_sample *s = &all->samples[i];
            if (!is_of(s, dtype)) continue;
            unknowns[0] = fmin(unknowns[0], product_work_secs(s, launch_secs) / term_of(s, 0));
        }
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

/* ---- collectives ----
 *
 * As long as the same way, and the same level, is the slowest, their times are sums of products of a constant (or of
 * 1 / a rate) and a number that depends on kind, bytes and group. So the coefficients are the derivatives of the
 * formulas in collective.c with respect to the constants, and are computed again for each solution. */

/* One constant of the links: seconds, or the inverse of bytes per second. */
typedef struct constant {
    double *place;
    int is_rate;
    double least; /* the smallest value that still has an effect */
} constant;

static void set(const constant *c, double value) { *c->place = c->is_rate ? 1 / value : value; }

/* Steps, starts and rates of the collectives. */
static void fit_collectives(const fit *all, qdr_machine *machine)
{
    constant list[QDRI_MAX_UNKNOWNS];
    double unknowns[QDRI_MAX_UNKNOWNS];
    int n = 0;
    list[n++] = (constant){&machine->collectives.start_secs, 0, 1e-9};
    for (int l = 0; l < machine->n_links && n + 2 <= QDRI_MAX_UNKNOWNS; l++) {
        qdr_machine_link *link = &machine->links[l];
        list[n++] = (constant){&link->step_secs, 0, 1e-9};
        list[n++] = (constant){l ? &link->adapter_bytes_per_sec : &link->rank_bytes_per_sec, 1, 1e-15};
    }
    for (int l = 1; l < machine->n_links && n < QDRI_MAX_UNKNOWNS; l++)
        list[n++] = (constant){&machine->links[l].wait_secs, 0, 1e-9};
    for (int round = 0; round < COLLECTIVE_ROUNDS; round++) {
        int n_equations = 0;
        for (int i = 0; i < all->n_samples; i++) {
            const qdr_sample *s = &all->samples[i];
            if (s->kind != QDR_SAMPLE_COLLECTIVE) continue;
            qdri_equation *e = &all->equations[n_equations++];
            *e = (qdri_equation){.secs = s->secs, .weight = weight_of(s)};
            for (int j = 0; j < n; j++) {
                const double kept = *list[j].place, value = list[j].is_rate ? 1 / kept : kept,
                             step = fmax(value * STEP, list[j].least);
                const double before = qdri_sample_secs(machine, s);
                set(&list[j], value + step);
                e->coefficient[j] = fmax(0, (qdri_sample_secs(machine, s) - before) / step);
                *list[j].place = kept;
            }
        }
        if (n_equations == 0) return;
        qdri_nnls(all->equations, n_equations, n, unknowns);
        for (int i = 0; i < n; i++) /* a rate that no sample depends on does not change */
            if (!list[i].is_rate || unknowns[i] > 0) set(&list[i], unknowns[i]);
    }
}

/* ---- the whole machine ---- */

static qdr_status fit_all(const fit *all, qdr_machine *machine)
{
    static const qdr_dtype types[] = {QDR_F64, QDR_F32, QDR_BF16};
    set_median(all, machine, QDR_SAMPLE_LAUNCH, launch_of, &machine->software.launch_secs);
    if (set_median(all, machine, QDR_SAMPLE_MEMORY, memory_rate_of, &machine->memory_bytes_per_sec))
        machine->memory_efficiency = 1;
    choose(all, machine, QDR_SAMPLE_KERNEL, flops_of, &machine->kernel_flops);
    for (int i = 0; i < 3; i++) fit_products(all, types[i], machine);
    choose(all, machine, QDR_SAMPLE_ATTENTION, efficiency_of, &machine->attention_efficiency);
    fit_collectives(all, machine);
    set_median(all, machine, QDR_SAMPLE_TOGETHER, processor_slowdown_of, &machine->processor_slowdown);
    set_median(all, machine, QDR_SAMPLE_TOGETHER, transfer_slowdown_of, &machine->transfer_slowdown);
    return qdr_machine_check(machine, machine->name);
}

qdr_status qdr_machine_fit(qdr_machine *machine, const qdr_sample *samples, int n_samples)
{
    qdr_machine fitted;
    qdr_sample *own = NULL;
    fit all = {.n_samples = n_samples};
    QDR_TRY(QDRI_TAKE(qdr_machine, machine, &fitted));
    QDR_TRY(qdr_machine_check(&fitted, fitted.name));
    if (!samples || n_samples < 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "fit: %d samples; at least one is needed", n_samples);
    QDR_TRY(QDRI_NEW(n_samples, "a fit", &own));
    qdr_status status = QDRI_NEW(n_samples, "a fit", &all.equations);
    if (status == QDR_OK) status = QDRI_NEW(n_samples, "a fit", &all.numbers);
    for (int i = 0; i < n_samples && status == QDR_OK; i++) {
        status = QDRI_TAKE(qdr_sample, qdri_sized_item(samples, i), &own[i]);
        if (status == QDR_OK) status = qdri_sample_check(&own[i]);
    }
    all.samples = own;
    if (status == QDR_OK) status = fit_all(&all, &fitted);
    if (status == QDR_OK) QDRI_GIVE(qdr_machine, machine, &fitted);
    free(all.numbers);
    free(all.equations);
    free(own);
    return status;
}
