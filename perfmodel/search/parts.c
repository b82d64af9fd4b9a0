/* SPDX-License-Identifier: Apache-2.0 */
/* The partitions of gradients and optimizer state that a search tries. */
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

int qdri_search_parts(const qdr_machine *machine, const qdr_search_opts *opts, const int size[QDR_N_AXES],
                      qdri_parts pairs[QDRI_MOST_PAIRS])
{
    const int z = size[QDR_Z], most = z * size[QDR_D];
    int n = 0;
    pairs[0] = (qdri_parts){.gradient = opts->gradient_parts < 0 ? most : opts->gradient_parts,
                            .optimizer = opts->optimizer_parts < 0 ? most : opts->optimizer_parts};
    if (!opts->any_levels) return 1;
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
