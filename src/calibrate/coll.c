/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of several sizes, for contiguous and strided groups, one at a time and all at once; and collectives that
 * overlap with products. */

#include "bench/coll.h"
#include "bench/product.h"
#include "calibrate/calibrate.h"
#include "common/process.h"
#include "common/statistics.h"

static const qdr_coll_kind kinds[] = {QDR_ALL_GATHER, QDR_REDUCE_SCATTER, QDR_ALL_REDUCE};
enum { N_KINDS = 3, MOST_CALLS = 256 };
#define ROUND_SECS 0.1 /* a network lets short bursts through that slow it down later */

/* ---- one group or all groups ---- */

typedef struct group_case {
    coll_case all; /* all groups of the axis */
    int is_member; /* of the group that runs, if one group runs alone */
    int is_enqueued; /* calls do not wait */
} group_case;

static qdr_status call(void *user)
{
    group_case *g = user;
    if (!g->is_member) return QDR_OK;
    return g->is_enqueued ? coll_case_start(&g->all, NULL, 0) : coll_case_call(&g->all, 0);
}

/* In this grid, groups of n_ranks ranks that are `stride` apart are along y. */
static grid_size grid_of(int n_ranks, int stride, int n_all)
{
    return (grid_size){stride, n_ranks, 1, n_all / (n_ranks * stride)};
}

static const char *const group_names[N_KINDS][2] = {
    {"all-gather, all groups", "all-gather, one group"},
    {"reduce-scatter, all groups", "reduce-scatter, one group"},
    {"all-reduce, all groups", "all-reduce, one group"},
};

static int measure_groups(calibration *c, int n_ranks, int stride, failure *why)
{
    static const int64_t sizes[] = {1 << 10, 1 << 13, 1 << 16, 1 << 19, 1 << 22, 1 << 24};
    static const int64_t gpu_sizes[] = {1 << 10, 1 << 13, 1 << 16, 1 << 20, 1 << 24, 1 << 28};
    static const int64_t quick_sizes[] = {1 << 10, 1 << 15, 1 << 18};
    const int n_all = qdr_context_size(c->ctx);
    qdr_grid *grid = NULL;
    if (fail_status(why, grid_make(c->ctx, grid_of(n_ranks, stride, n_all), NULL, &grid))) return why->code;
    group_case g = {.all = {.grid = grid, .axis = QDR_Y, .dtype = QDR_F32}, .is_enqueued = c->is_on_gpu};
    const int64_t *list = c->is_quick ? quick_sizes : c->is_on_gpu ? gpu_sizes : sizes;
    coll_case_create(&g.all, list[c->is_quick ? 2 : 5] / 4, 0, why);
    const calibrate_work work = {call, c->is_on_gpu ? c->ctx : NULL, &g, MOST_CALLS, ROUND_SECS};
    const int n_ways = n_ranks == n_all ? 1 : 2;
    for (int alone = 0; alone < n_ways && !why->code; alone++) {
        const int n_sizes = c->is_quick ? 3 : alone ? 5 : 6; /* the largest size takes seconds */
        for (int kind = 0; kind < N_KINDS && !why->code; kind++) {
            qdr_sample s = {.kind = QDR_SAMPLE_COLLECTIVE,
                            .group = group_names[kind][alone],
                            .coll = kinds[kind],
                            .n_ranks = n_ranks,
                            .stride = stride,
                            .n_ranks_all = n_all,
                            .alone = alone};
            g.all.kind = kinds[kind];
            g.is_member = !alone || (qdr_grid_coordinate(grid, QDR_X) == 0 && qdr_grid_coordinate(grid, QDR_D) == 0);
            for (int i = 0; i < n_sizes && !why->code; i++) {
                coll_case_size(&g.all, list[i] / 4);
                fail_status(why, coll_case_clear(&g.all));
                s.bytes = (double)list[i];
                if (!calibrate_time(c, &work, &s.secs, why)) calibrate_add(c, &s);
            }
        }
    }
    coll_case_destroy(&g.all);
    qdr_grid_destroy(&grid);
    return why->code;
}

/* The next larger group size: at most six sizes between 2 and all ranks that divide the number of ranks. */
static int next_size(int n_ranks, int n_all)
{
    int least = n_ranks + 1;
    while (n_all > 64 && least < n_ranks * 4 && least < n_all) least++;
    while (least < n_all && n_all % least) least++;
    return least;
}

int calibrate_collectives(calibration *c, failure *why)
{
    const int n_all = qdr_context_size(c->ctx), per_node = c->ranks_per_node;
    calibrate_show(c, "collectives");
    for (int n = next_size(1, n_all); n <= n_all && !why->code; n = next_size(n, n_all)) {
        const int apart = n_all / n;
        measure_groups(c, n, 1, why);
        if (per_node > 1 && per_node < apart && apart % per_node == 0 && !why->code)
            measure_groups(c, n, per_node, why);
        if (apart > 1 && !why->code) measure_groups(c, n, apart, why);
    }
    return why->code;
}

/* ---- products and collectives at the same time ---- */

typedef struct beside {
    calibration *c;
    coll_case coll;
    product product;
    qdr_stream *stream; /* of the collective */
    int n_products;
    double ends[2]; /* of the products, of the collective */
} beside;

enum { PRODUCTS, COLLECTIVE, BOTH, N_SERIES };
/* Two ends per series: of the products, and of the collective. */
enum {
    END_OF_PRODUCTS = 2 * PRODUCTS,
    END_OF_COLLECTIVE = 2 * COLLECTIVE + 1,
    END_BESIDE_COLLECTIVE = 2 * BOTH,
    END_BESIDE_PRODUCTS = 2 * BOTH + 1
};
enum { ROUNDS = 7, QUICK_ROUNDS = 3 };

static void stamp(void *user) { *(double *)user = process_secs(); }

/* Median ends of each series over alternating rounds, on the slowest rank. */
static int measure_series(beside *b, double secs[2 * N_SERIES], failure *why)
{
    const int n_rounds = b->c->is_quick ? QUICK_ROUNDS : ROUNDS;
    qdr_stream *stream = qdr_context_stream(b->c->alone); /* of the products */
    double all[2 * N_SERIES * ROUNDS] = {0};
    qdr_status status = QDR_OK;
    for (int i = 0; i < n_rounds && status >= 0; i++)
        for (int series = 0; series < N_SERIES && status >= 0; series++) {
            status = qdr_barrier(b->c->ctx);
            const double began = b->ends[0] = b->ends[1] = process_secs();
            if (status >= 0 && series != PRODUCTS) status = coll_case_start(&b->coll, b->stream, 0);
            if (status >= 0 && series != PRODUCTS) status = qdr_stream_call(b->stream, stamp, &b->ends[1]);
            for (int j = 0; status >= 0 && series != COLLECTIVE && j < b->n_products; j++)
                status = qdr_linear_forward(b->product.layer, b->product.x, b->product.y, 0, NULL);
            if (status >= 0 && series != COLLECTIVE) status = qdr_stream_call(stream, stamp, &b->ends[0]);
            if (status >= 0) status = qdr_stream_synchronize(b->stream);
            if (status >= 0) status = qdr_stream_synchronize(stream);
            for (int which = 0; which < 2; which++) {
                const int at = (2 * series + which) * n_rounds + i;
                all[at] = b->ends[which] - began;
            }
        }
    if (status >= 0) status = bench_all_ranks(b->c->ctx, FOLD_MAX, all, (int64_t)2 * N_SERIES * n_rounds);
    if (fail_status(why, status)) return why->code;
    for (int i = 0; i < 2 * N_SERIES; i++) secs[i] = statistics_median(&all[(ptrdiff_t)i * n_rounds], (size_t)n_rounds);
    return EXIT_OK;
}

static int measure_beside(beside *b, qdr_coll_kind kind, failure *why)
{
    double secs[2 * N_SERIES] = {0};
    b->coll.kind = kind;
    b->n_products = 1;
    if (measure_series(b, secs, why)) return why->code;
    /* about as long as the collective; equal on all ranks, because the times are */
    const double wanted = secs[END_OF_COLLECTIVE] / secs[0];
    b->n_products = wanted < 1 ? 1 : wanted > 1000 ? 1000 : (int)wanted;
    if (measure_series(b, secs, why)) return why->code;
    const qdr_sample s = {.kind = QDR_SAMPLE_TOGETHER,
                          .group = "product overlapping a collective",
                          .coll = kind,
                          .n_ranks = b->coll.size,
                          .bytes = 4 * (double)b->coll.n,
                          .product_secs = secs[END_OF_PRODUCTS],
                          .coll_secs = secs[END_OF_COLLECTIVE],
                          .secs = secs[END_BESIDE_COLLECTIVE],
                          .coll_end_secs = secs[END_BESIDE_PRODUCTS]};
    calibrate_add(b->c, &s);
    return why->code;
}

int calibrate_together(calibration *c, failure *why)
{
    beside b = {.c = c, .coll = {.axis = QDR_Y, .dtype = QDR_F32}};
    const int extent = c->is_quick ? 128 : 384, n_all = qdr_context_size(c->ctx);
    const product_desc desc = {.m = extent, .n = extent, .k = extent, .dtype = QDR_F32, .n_panels = 1};
    const int64_t n_elems = c->is_quick ? 1 << 16 : 1 << 20;
    if (n_all == 1) return EXIT_OK;
    calibrate_show(c, "products overlapping collectives");
    if (!fail_status(why, grid_make(c->ctx, grid_of(n_all, 1, n_all), NULL, &b.coll.grid)) &&
        !coll_case_create(&b.coll, n_elems, 0, why)) {
        coll_case_size(&b.coll, n_elems);
        fail_status(why, coll_case_clear(&b.coll));
        fail_status(why, qdr_stream_create(c->ctx, &b.stream));
        if (!why->code) fail_status(why, product_create(c->alone, (grid_size){1, 1, 1, 1}, &desc, &b.product));
        fail_together(why, c->ctx);
    }
    for (int i = 0; i < N_KINDS && !why->code; i++) measure_beside(&b, kinds[i], why);
    product_destroy(&b.product);
    if (b.stream) qdr_stream_destroy(&b.stream);
    coll_case_destroy(&b.coll);
    qdr_grid_destroy(&b.coll.grid);
    return why->code;
}
