/* SPDX-License-Identifier: Apache-2.0 */
/* The partitions of gradients and optimizer state that a search tries. */
#include <stdio.h>

#include "core/group.h"
#include "core/order.h"
#include "core/size.h"
#include "core/sized.h"
#include "search/search.h"

/* Numbers of ranks of d, in increasing order. */
typedef struct divisors {
    int n, of[QDRI_MOST_DEGREES];
} divisors;

static void insert(divisors *all, int divisor)
{
    int at = 0;
    while (at < all->n && all->of[at] < divisor) at++;
    if (at < all->n && all->of[at] == divisor) return;
    for (int i = all->n++; i > at; i--) all->of[i] = all->of[i - 1];
    all->of[at] = divisor;
}

/* Adds the largest number of neighbours on d that never leave a unit of links, if they are n_ranks apart; none if a
 * unit does not hold a whole number of these. */
static void insert_filling(divisors *all, int unit, int64_t n_ranks, int d)
{
    if (unit > 0 && unit % n_ranks == 0) insert(all, (int)qdri_common_divisor(d, unit / n_ranks));
}

/* The order is not known yet: z and d may be the fastest axes or the slowest. The last level of links joins all ranks:
 * d is among the divisors anyway. */
static divisors filling(const qdr_machine *machine, const int size[QDR_N_AXES])
{
    const int d = size[QDR_D];
    const int64_t z = size[QDR_Z], cell = (int64_t)size[QDR_X] * size[QDR_Y];
    divisors all = {.n = 0};
    insert(&all, 1);
    insert(&all, d);
    for (int l = 0; l < machine->n_links - 1; l++) {
        insert_filling(&all, machine->links[l].n_ranks, z, d);
        insert_filling(&all, machine->links[l].n_ranks, z * cell, d);
    }
    return all;
}

/* ---- as many as share a unit of one level ---- */

/* How many ranks of d share a unit, with all of z, on every grid line alike. 0: units hold unequally many, or not all
 * of z. */
static int64_t sharing(int64_t unit, const int size[QDR_N_AXES], const char *order)
{
    int64_t stride[QDR_N_AXES], n = 1;
    for (int i = 0; i < QDR_N_AXES; n *= size[qdri_axis_of(order[i++])]) stride[qdri_axis_of(order[i])] = n;
    const int64_t z = size[QDR_Z], d = size[QDR_D], in_unit = unit / stride[QDR_D]; /* neighbours on d */
    if (unit >= n) return d;
    if (z > 1 && unit % (stride[QDR_Z] * z)) return 0;
    if (z > 1 && stride[QDR_Z] > stride[QDR_D]) return d; /* all of d lies between two neighbours on z */
    if (unit <= stride[QDR_D] || d == 1) return 1;
    if (unit % stride[QDR_D]) return 0;
    if (in_unit % d == 0) return d;
    return d % in_unit == 0 ? in_unit : 0;
}

static int parts_of_link(const qdr_plan *plan, const qdr_machine *machine, int level)
{
    if (level < 0 || level >= machine->n_links) return 0;
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    const char *order = plan->order[0] ? plan->order : QDRI_USUAL_ORDER;
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        if (size[axis] < 1) return 0;
    if (!qdri_is_order(order)) return 0;
    if (level == machine->n_links - 1) return plan->z * plan->d;
    return plan->z * (int)sharing(machine->links[level].n_ranks, size, order);
}

int qdr_plan_parts_of_link(const qdr_plan *plan, const qdr_machine *machine, int level)
{
    qdr_plan own_plan;
    qdr_machine own_machine;
    if (QDRI_TAKE(qdr_plan, plan, &own_plan) != QDR_OK) return 0;
    if (QDRI_TAKE(qdr_machine, machine, &own_machine) != QDR_OK) return 0;
    return parts_of_link(&own_plan, &own_machine, level);
}

/* ---- all ---- */

/* What an option means on a plan's grid: a level of links that has no multiple of `inner` is replaced by the next. */
static int number_of(const qdr_machine *machine, int parts, int inner, const qdr_plan *plan)
{
    int number = 0;
    if (parts == -1) return plan->z * plan->d;
    if (parts >= 0) return parts;
    for (int level = QDR_PARTS_OF_LINK(parts); level < machine->n_links; level++) {
        number = parts_of_link(plan, machine, level);
        if (number > 0 && number % inner == 0) break;
    }
    return number;
}

int qdri_search_has_words(const qdr_search_opts *opts)
{
    return opts->gradient_parts < -1 || opts->optimizer_parts < -1;
}

qdri_parts qdri_search_given(const qdr_machine *machine, const qdr_search_opts *opts, const int size[QDR_N_AXES],
                             const char *order)
{
    qdr_plan plan = {.x = size[QDR_X], .y = size[QDR_Y], .z = size[QDR_Z], .d = size[QDR_D]};
    snprintf(plan.order, sizeof plan.order, "%s", order);
    qdri_parts parts = {.gradient = number_of(machine, opts->gradient_parts, plan.z, &plan)};
    parts.optimizer = number_of(machine, opts->optimizer_parts, parts.gradient ? parts.gradient : plan.z, &plan);
    return parts;
}

/* Those of all orders, if they depend on it. */
static int given_parts(const qdr_machine *machine, const qdr_search_opts *opts, const int size[QDR_N_AXES],
                       qdri_parts pairs[QDRI_MOST_PAIRS])
{
    char orders[QDRI_N_ORDERS][8];
    int n = 0, n_orders = qdri_search_orders(opts, orders);
    if (!qdri_search_has_words(opts)) n_orders = 1;
    for (int i = 0; i < n_orders; i++) {
        const qdri_parts parts = qdri_search_given(machine, opts, size, orders[i]);
        int is_new = n < QDRI_MOST_PAIRS && qdri_levels_nest(size[QDR_Z], size[QDR_D], parts.gradient, parts.optimizer);
        for (int j = 0; j < n; j++)
            is_new &= pairs[j].gradient != parts.gradient || pairs[j].optimizer != parts.optimizer;
        if (is_new) pairs[n++] = parts;
    }
    return n;
}

int qdri_search_parts(const qdr_machine *machine, const qdr_search_opts *opts, const int size[QDR_N_AXES],
                      qdri_parts pairs[QDRI_MOST_PAIRS])
{
    const int z = size[QDR_Z];
    int n = 0;
    if (!opts->any_levels) return given_parts(machine, opts, size, pairs);
    const divisors all = filling(machine, size);
    for (int i = 0; i < all.n; i++)
        for (int j = i; j < all.n; j++)
            if (all.of[j] % all.of[i] == 0) pairs[n++] = (qdri_parts){z * all.of[i], z * all.of[j]};
    return n;
}

void qdri_search_set_parts(qdri_parts parts, qdr_plan *plan)
{
    plan->gradient_parts = parts.gradient;
    plan->optimizer_parts = parts.optimizer;
}
