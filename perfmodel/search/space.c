/* SPDX-License-Identifier: Apache-2.0 */
/* What a search looks through: its options, and the grids and orders that they allow. */
#include <stdio.h>
#include <string.h>

#include "core/order.h"
#include "search/search.h"

/* ---- options ---- */

/* all: the sum of the flags. */
static qdr_status check_flags(const char *option, int value, int all)
{
    if (value >= 0 && value <= all) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "search: %s is %d; use a sum of flags from 1 to %d, or 0 for all", option, value,
                    all);
}

qdr_status qdri_search_check(const qdr_search_opts *opts)
{
    if (opts->n_ranks < 1 || opts->n_ranks > QDR_MAX_SEARCH_RANKS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "search: %d ranks; use 1 to %d", opts->n_ranks, QDR_MAX_SEARCH_RANKS);
    if (opts->order && !qdri_is_order(opts->order))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "search: order '%.16s' must be a permutation of xyzd", opts->order);
    if (opts->panels < 0 || opts->batch_parts < 0 || opts->batch_parts > QDRI_MAX_BATCH_PARTS)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "search: %d panels and %d parts of the batch; use 1 or more panels and 1 to "
                        "%d parts, or 0 to have them chosen",
                        opts->panels, opts->batch_parts, QDRI_MAX_BATCH_PARTS);
    if (opts->n_best < 0 || opts->n_best > QDR_MAX_BEST || opts->batch < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "search: %d best plans of a batch of %" PRId64 "; use 1 to %d, and a batch ≥ 1", opts->n_best,
                        opts->batch, QDR_MAX_BEST);
    QDR_TRY(qdri_threads_check("search", opts->threads));
    QDR_TRY(qdri_check_switch("search", "any_levels", opts->any_levels));
    QDR_TRY(qdri_check_switch("search", "exhaustive", opts->exhaustive));
    QDR_TRY(check_flags("layouts", opts->layouts, 1 << QDR_REPLICATED | 1 << QDR_SCATTERED));
    if (opts->recomputes & ~QDRI_RECOMPUTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "search: recomputes is %d; use a sum of 1 << QDR_RECOMPUTE_NONE, 1 << QDR_RECOMPUTE_OPERATIONS "
                        "and 1 << QDR_RECOMPUTE_FULL, or 0 for all",
                        opts->recomputes);
    QDR_TRY(check_flags("overlap", opts->overlap, QDR_OVERLAP_ALL | QDR_OVERLAP_NONE));
    if (opts->any_levels && (opts->gradient_parts || opts->optimizer_parts))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "search: any levels, but gradients in %d parts and optimizer state in %d; leave both 0",
                        opts->gradient_parts, opts->optimizer_parts);
    int64_t product = 1;
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        if (opts->ranks[axis] < 0 || opts->ranks[axis] > opts->n_ranks)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "search: %c = %d; use 1 to %d, or 0 for any", QDRI_USUAL_ORDER[axis],
                            opts->ranks[axis], opts->n_ranks);
        if (opts->ranks[axis]) product *= opts->ranks[axis];
        if (opts->n_ranks % product)
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "search: the product of the fixed axes, %" PRId64
                            ", does not divide %d ranks; fix axes whose "
                            "product divides %d, or plan for %" PRId64 " ranks",
                            product, opts->n_ranks, opts->n_ranks, product * ((opts->n_ranks + product - 1) / product));
    }
    return QDR_OK;
}

void qdri_search_defaults(qdr_search_opts *opts)
{
    if (opts->batch == 0) opts->batch = opts->n_ranks;
    if (opts->layouts == 0) opts->layouts = 3;
    if (opts->recomputes == 0) opts->recomputes = QDRI_RECOMPUTES;
}

qdr_plan qdri_search_plan(const qdr_search_opts *opts, const int size[QDR_N_AXES], int64_t micro_batch)
{
    static const qdr_codecs none = {.size = 0};
    qdr_plan plan = {QDR_INIT(qdr_plan),
                     .x = size[QDR_X],
                     .y = size[QDR_Y],
                     .z = size[QDR_Z],
                     .d = size[QDR_D],
                     .dtype = opts->dtype,
                     .batch = opts->batch,
                     .micro_batch = micro_batch,
                     .sequence = opts->sequence,
                     .overlap = opts->overlap,
                     .codecs = opts->codecs ? *opts->codecs : none};
    plan.threads = opts->threads;
    if (opts->order) memcpy(plan.order, opts->order, 5);
    return plan;
}

/* ---- grids ---- */

int qdri_search_sizes(int n, int fixed, int sizes[QDRI_MAX_DIVISORS])
{
    int n_small = 0;
    sizes[0] = fixed;
    if (fixed) return n % fixed == 0;
    for (int i = 1; (int64_t)i * i <= n; i++)
        if (n % i == 0) sizes[n_small++] = i;
    int n_found = n_small;
    for (int i = n_small - 1; i >= 0; i--)
        if (n / sizes[i] != sizes[i]) sizes[n_found++] = n / sizes[i];
    return n_found;
}

void qdri_search_grids(int n_ranks, const int fixed[QDR_N_AXES], qdri_grid_fn each, void *user)
{
    int x[QDRI_MAX_DIVISORS], y[QDRI_MAX_DIVISORS], z[QDRI_MAX_DIVISORS];
    const int n_x = qdri_search_sizes(n_ranks, fixed[QDR_X], x);
    for (int i = 0; i < n_x; i++) {
        const int n_y = qdri_search_sizes(n_ranks / x[i], fixed[QDR_Y], y);
        for (int j = 0; j < n_y; j++) {
            const int cells = n_ranks / x[i] / y[j];
            const int n_z = qdri_search_sizes(cells, fixed[QDR_Z], z);
            for (int k = 0; k < n_z; k++)
                if (!fixed[QDR_D] || cells / z[k] == fixed[QDR_D])
                    each((int[QDR_N_AXES]){x[i], y[j], z[k], cells / z[k]}, user);
        }
    }
}

/* ---- orders ---- */

int qdri_search_orders(const qdr_search_opts *opts, char orders[QDRI_N_ORDERS][8])
{
    static const char names[] = QDRI_USUAL_ORDER;
    int n = 0;
    if (opts->order) {
        snprintf(orders[0], sizeof orders[0], "%s", opts->order);
        return 1;
    }
    for (int code = 0; code < 256; code++) {
        char order[8] = {names[code & 3], names[code >> 2 & 3], names[code >> 4 & 3], names[code >> 6 & 3]};
        if (qdri_is_order(order)) memcpy(orders[n++], order, sizeof order);
    }
    return n;
}
