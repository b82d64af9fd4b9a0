/* SPDX-License-Identifier: Apache-2.0 */
/* The partitions of gradients and optimizer state that a search tries. */
#include "core/group.h"
#include "core/order.h"
#include "core/size.h"
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

/* ---- as many as fill one level ---- */

/* The largest number of ranks of d that share a unit, with all of z, if the axes have this order; none if no number
 * does. */
static void insert_sharing(divisors *all, int unit, const int size[QDR_N_AXES], const char *order)
{
    int64_t stride[QDR_N_AXES], n = 1;
    for (int i = 0; i < QDR_N_AXES; n *= size[qdri_axis_of(order[i++])]) stride[qdri_axis_of(order[i])] = n;
    const int z = size[QDR_Z], d = size[QDR_D], n_before = all->n;
    const int shares_z = z == 1 || unit % (stride[QDR_Z] * z) == 0; /* one rank of d, with all of z */
    if (unit >= n || (shares_z && z > 1 && stride[QDR_Z] > stride[QDR_D])) /* all of d lies in between */
        insert(all, d);
    else if (shares_z)
        insert_filling(all, unit, stride[QDR_D], d);
    if (shares_z && all->n == n_before) insert(all, 1);
}

/* order NULL: for both orders that qdr_search_opts promises. */
static divisors sharing(const qdr_machine *machine, int level, const int size[QDR_N_AXES], const char *order)
{
    divisors all = {.n = 0};
    for (; level < machine->n_links - 1 && !all.n; level++) {
        insert_sharing(&all, machine->links[level].n_ranks, size, order ? order : QDRI_USUAL_ORDER);
        if (!order) insert_sharing(&all, machine->links[level].n_ranks, size, "zdxy");
    }
    if (!all.n) insert(&all, size[QDR_D]);
    return all;
}

int qdr_plan_parts_of_link(const qdr_plan *plan, const qdr_machine *machine, int level)
{
    if (!plan || !machine || level < 0 || level >= machine->n_links) return 0;
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    const char *order = plan->order[0] ? plan->order : QDRI_USUAL_ORDER;
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        if (size[axis] < 1) return 0;
    return qdri_is_order(order) ? plan->z * sharing(machine, level, size, order).of[0] : 0;
}

/* ---- all ---- */

/* The numbers of parts that an option may mean on a grid: at most two. */
static int numbers_of(const qdr_machine *machine, int parts, int from_level, const int size[QDR_N_AXES],
                      const char *order, int numbers[2])
{
    const int z = size[QDR_Z];
    numbers[0] = parts == -1 ? z * size[QDR_D] : parts;
    if (parts >= -1) return 1;
    const divisors all = sharing(machine, from_level, size, order);
    for (int i = 0; i < all.n; i++) numbers[i] = z * all.of[i];
    return all.n;
}

static int level_of(int parts) { return parts < -1 ? QDR_PARTS_OF_LINK(parts) : 0; }

/* The pairs of the options' own numbers that nest. Optimizer state of a level that gradients already fill more than is
 * that of a larger level. */
static int given_parts(const qdr_machine *machine, const qdr_search_opts *opts, const int size[QDR_N_AXES],
                       qdri_parts pairs[QDRI_MOST_PAIRS])
{
    const int z = size[QDR_Z], d = size[QDR_D];
    int gradients[2], state[2], n = 0;
    const int n_gradients = numbers_of(machine, opts->gradient_parts, level_of(opts->gradient_parts), size, opts->order,
                                       gradients);
    for (int i = 0; i < n_gradients; i++) {
        const int before = n;
        int level = level_of(opts->optimizer_parts);
        do {
            const int n_state = numbers_of(machine, opts->optimizer_parts, level, size, opts->order, state);
            for (int j = 0; j < n_state; j++)
                if (qdri_levels_nest(z, d, gradients[i], state[j])) pairs[n++] = (qdri_parts){gradients[i], state[j]};
        } while (n == before && opts->optimizer_parts < -1 && ++level < machine->n_links);
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
