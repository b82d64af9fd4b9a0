/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives. As long as the same way, and the same level, is the slowest, their times are sums of products of a
 * constant (or of 1 / a rate) and a number that depends on kind, bytes and group. So the coefficients are the
 * derivatives of the formulas in collective.c with respect to the constants, and are computed again for each
 * solution. */
#include <math.h>

#include "price/fit.h"

enum { ROUNDS = 10 };
/* A step runs all groups at once; a sample of one group alone only serves to show what groups share. */
#define WEIGHT_ALONE 0.1
#define STEP 1e-4 /* relative increment of a constant for the derivative */

/* One constant of the links: seconds, or the inverse of bytes per second. */
typedef struct constant {
    double *place;
    int is_rate;
    double least; /* the smallest value that still has an effect */
} constant;

static double get(const constant *c) { return c->is_rate ? 1 / *c->place : *c->place; }

static void set(const constant *c, double value) { *c->place = c->is_rate ? 1 / value : value; }

static int list_constants(qdr_machine *machine, constant *list)
{
    int n = 0;
    list[n++] = (constant){&machine->collectives.start_secs, 0, 1e-9};
    for (int l = 0; l < machine->n_links && n + 2 <= QDRI_MAX_UNKNOWNS; l++) {
        qdr_machine_link *link = &machine->links[l];
        list[n++] = (constant){&link->step_secs, 0, 1e-9};
        list[n++] = (constant){l ? &link->adapter_bytes_per_sec : &link->rank_bytes_per_sec, 1, 1e-15};
    }
    for (int l = 1; l < machine->n_links && n < QDRI_MAX_UNKNOWNS; l++)
        list[n++] = (constant){&machine->links[l].wait_secs, 0, 1e-9};
    return n;
}

static void make_equation(qdr_machine *machine, const constant *list, int n, const qdr_sample *s, qdri_equation *e)
{
    *e = (qdri_equation){.secs = s->secs, .weight = qdri_sample_weight(s)};
    for (int i = 0; i < n; i++) {
        const double value = get(&list[i]), step = fmax(value * STEP, list[i].least);
        const double before = qdri_sample_secs(machine, s), kept = *list[i].place;
        set(&list[i], value + step);
        e->coefficient[i] = fmax(0, (qdri_sample_secs(machine, s) - before) / step);
        *list[i].place = kept;
    }
}

void qdri_fit_collectives(const qdri_fit *fit, qdr_machine *machine)
{
    constant list[QDRI_MAX_UNKNOWNS];
    double unknowns[QDRI_MAX_UNKNOWNS];
    const int n = list_constants(machine, list);
    for (int round = 0; round < ROUNDS; round++) {
        int n_equations = 0;
        for (int i = 0; i < fit->n_samples; i++)
            if (fit->samples[i].kind == QDR_SAMPLE_COLLECTIVE)
                make_equation(machine, list, n, &fit->samples[i], &fit->equations[n_equations++]);
        if (n_equations == 0) return;
        qdri_nnls(fit->equations, n_equations, n, unknowns);
        for (int i = 0; i < n; i++) /* a rate that no sample depends on does not change */
            if (!list[i].is_rate || unknowns[i] > 0) set(&list[i], unknowns[i]);
    }
}
