/* SPDX-License-Identifier: Apache-2.0 */
/* Fits a machine's constants to samples, in the order in which they depend on one another. */
#include "price/fit.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

#include "core/dtype.h"
#include "core/size.h"
#include "machine/machine_table.h"

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double qdri_sample_weight(const qdr_sample *s) { return (s->alone ? 0.1 : 1) * pow(s->secs, 0.25); }

double qdri_median(double *numbers, int n)
{
    qsort(numbers, (size_t)n, sizeof *numbers, by_value);
    return n % 2 ? numbers[n / 2] : (numbers[n / 2 - 1] + numbers[n / 2]) / 2;
}

/* The median of `value` over the samples of a kind; 0: there are none. */
typedef double (*value_fn)(const qdr_machine *machine, const qdr_sample *sample);

static double median_of(const qdri_fit *fit, const qdr_machine *machine, qdr_sample_kind kind, value_fn value)
{
    int n = 0;
    for (int i = 0; i < fit->n_samples; i++)
        if (fit->samples[i].kind == kind) fit->numbers[n++] = value(machine, &fit->samples[i]);
    return n ? qdri_median(fit->numbers, n) : 0;
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
    return fmin(1, flops_of(machine, s) / type->peak_flops);
}

/* Sets *constant to the one of the values suggested by single samples of the kind that has the smallest sum of
 * errors. */
static void choose(const qdri_fit *fit, qdr_machine *machine, qdr_sample_kind kind, value_fn value, double *constant)
{
    double best = *constant, least = DBL_MAX;
    for (int i = 0; i < fit->n_samples; i++) {
        if (fit->samples[i].kind != kind) continue;
        double sum = 0;
        const double tried = value(machine, &fit->samples[i]);
        *constant = tried;
        for (int j = 0; j < fit->n_samples; j++)
            if (fit->samples[j].kind == kind)
                sum += fabs(log(qdri_sample_secs(machine, &fit->samples[j]) / fit->samples[j].secs));
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

static int n_of(const qdri_fit *fit, qdr_sample_kind kind)
{
    int n = 0;
    for (int i = 0; i < fit->n_samples; i++) n += fit->samples[i].kind == kind;
    return n;
}

static qdr_status fit_all(const qdri_fit *fit, qdr_machine *machine)
{
    static const qdr_dtype types[] = {QDR_F64, QDR_F32, QDR_BF16};
    if (n_of(fit, QDR_SAMPLE_LAUNCH))
        machine->software.launch_secs = median_of(fit, machine, QDR_SAMPLE_LAUNCH, launch_of);
    if (n_of(fit, QDR_SAMPLE_MEMORY)) {
        machine->memory_efficiency = 1;
        machine->memory_bytes_per_sec = median_of(fit, machine, QDR_SAMPLE_MEMORY, memory_rate_of);
    }
    if (n_of(fit, QDR_SAMPLE_KERNEL)) choose(fit, machine, QDR_SAMPLE_KERNEL, flops_of, &machine->kernel_flops);
    for (int i = 0; i < 3; i++) qdri_fit_products(fit, types[i], machine);
    if (n_of(fit, QDR_SAMPLE_ATTENTION))
        choose(fit, machine, QDR_SAMPLE_ATTENTION, efficiency_of, &machine->attention_efficiency);
    qdri_fit_collectives(fit, machine);
    if (n_of(fit, QDR_SAMPLE_TOGETHER)) {
        machine->processor_slowdown = median_of(fit, machine, QDR_SAMPLE_TOGETHER, processor_slowdown_of);
        machine->transfer_slowdown = median_of(fit, machine, QDR_SAMPLE_TOGETHER, transfer_slowdown_of);
    }
    return qdr_machine_check(machine, machine->name);
}

qdr_status qdr_machine_fit(qdr_machine *machine, const qdr_sample *samples, int n_samples)
{
    qdri_fit fit = {.samples = samples, .n_samples = n_samples};
    QDR_TRY(qdr_machine_check(machine, machine ? machine->name : "machine"));
    if (!samples || n_samples < 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "fit: %d samples; at least one is needed", n_samples);
    for (int i = 0; i < n_samples; i++) QDR_TRY(qdri_sample_check(&samples[i]));
    qdr_machine fitted = *machine;
    QDR_TRY(QDRI_NEW(n_samples, "a fit", &fit.equations));
    qdr_status status = QDRI_NEW(n_samples, "a fit", &fit.numbers);
    if (status == QDR_OK) status = fit_all(&fit, &fitted);
    free(fit.numbers);
    free(fit.equations);
    if (status == QDR_OK) *machine = fitted;
    return status;
}
