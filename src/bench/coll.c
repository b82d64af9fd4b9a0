/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench coll`: collectives along the axes of grids, in the terms of nccl-tests, with a check of their
 * results. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "bench/coll.h"
#include "common/ranks.h"

#define MAX_BYTES ((int64_t)1 << 40)
enum { ANY_AXIS = -1, ANY_KIND = QDR_N_COLL_KINDS };
enum { STREAM_CALLS = 10 }; /* of a GPU, in a row */

typedef struct coll_options {
    bench_options shared;
    int64_t min_bytes, max_bytes, factor;
    int kind, axis; /* ANY_…: all kinds; all axes that split the grid */
    int caller_memory;
    const char *codec_text;
    qdr_codec codec; /* RAW: none */
} coll_options;

#define AT(member) .at = offsetof(coll_options, member)
/* In the order of qdr_coll_kind; then ANY_KIND. */
#define KIND_WORDS "all-gather|reduce-scatter|all-reduce|broadcast|all-to-all|send-recv|all"

static const option_spec specs[] = {
    {"kind", 0, "KIND", "all-reduce (default), all-gather, reduce-scatter, broadcast, all-to-all, send-recv or all",
     OPTION_CHOICE, AT(kind), .words = KIND_WORDS},
    {"axis", 0, "AXIS", "x, y, z or d; default: each axis with more than one rank", OPTION_CHOICE, AT(axis),
     .words = "x|y|z|d"},
    {"min-bytes", 'b', "BYTES", "first size, such as 8 or 64K; default 1K", OPTION_BYTES, AT(min_bytes),
     .max = MAX_BYTES},
    {"max-bytes", 'e', "BYTES", "last size; default 16M", OPTION_BYTES, AT(max_bytes), .max = MAX_BYTES},
    {"factor", 'f', "N", "factor from each size to the next; default 4", OPTION_COUNT, AT(factor), 2, 1 << 20},
    {"memory", 0, "WHOSE", "buffers from library (default, qdr_mem_alloc) or caller (malloc)", OPTION_CHOICE,
     AT(caller_memory), .words = "library|caller"},
    {"codec", 0, "CODEC", "of sums and gathers, such as int8 or int4/128+hadamard+feedback; default raw", OPTION_TEXT,
     AT(codec_text)},
    BENCH_SPECS,
};

static int check_options(void *user, failure *why)
{
    coll_options *options = user;
    if (fail_status(why, qdr_codec_parse(options->codec_text, &options->codec))) return why->code;
    if (options->min_bytes <= options->max_bytes) return EXIT_OK;
    return fail(why, EXIT_USAGE, "bench coll: --min-bytes %lld is more than --max-bytes %lld",
                (long long)options->min_bytes, (long long)options->max_bytes);
}

/* ---- rows ---- */

static const char *memory_text(const coll_options *options) { return options->caller_memory ? "caller" : "library"; }

static void write_title(const void *user, int n_ranks, char *title, size_t capacity)
{
    const coll_options *options = user;
    snprintf(
        title, capacity,
        "# collectives along an axis, all its groups at once, %d rank%s, memory of the %s\n"
        "# size: the whole vector, or what one member sends in all; times of the slowest rank; algbw: size / median\n"
        "# busbw: algbw x what a member must send or receive of the size; ratio: bytes without a codec / bytes sent\n"
        "# always in place: all-reduces, broadcasts; never: all-to-alls, send-recvs, coded gathers, scatters\n"
        "# coding: mean over all calls, on rank 0; wrong: elements, over all ranks; with a codec, beyond its bound\n",
        n_ranks, PLURAL(n_ranks), memory_text(options));
}

/* A case, out of place and in place; where the collective has only one of them, that one. */
enum { USUAL, IN_PLACE, N_PLACES };

typedef struct place_result {
    bench_times times;
    double algbw, busbw, n_wrong;
} place_result;

static place_result result_of(const coll_case *the_case, const bench_samples *samples, int place, double n_wrong)
{
    place_result result = {.times = bench_times_of(samples, place), .n_wrong = n_wrong};
    const double bytes = (double)the_case->n * (double)qdr_dtype_bytes(the_case->dtype), secs = result.times.median;
    result.algbw = the_case->size > 1 && secs > 0 ? 1e-9 * bytes / secs : NAN; /* a single rank moves no data */
    result.busbw = result.algbw * coll_bus_factor(the_case->kind, the_case->size);
    return result;
}

static void print_case(bench_run *run, const coll_options *options, const char *grid, const coll_case *the_case,
                       const bench_samples *samples, const double n_wrong[N_PLACES])
{
    static const char *const axes[QDR_N_AXES] = {"x", "y", "z", "d"};
    static const place_result none = {{NAN, NAN, NAN}, NAN, NAN, NAN};
    const qdr_coll_kind kind = the_case->kind;
    const int is_in_place = kind == QDR_ALL_REDUCE || kind == QDR_BROADCAST;
    const place_result usual = result_of(the_case, samples, USUAL, n_wrong[USUAL]);
    const place_result in_place = coll_case_has_both(the_case)
                                      ? result_of(the_case, samples, IN_PLACE, n_wrong[IN_PLACE])
                                  : is_in_place ? usual
                                                : none;
    const qdr_channel channel = (qdr_channel)(QDR_CHANNEL_X_STAT + (int)the_case->axis);
    qdr_traffic sent = {QDR_INIT(qdr_traffic)};
    const int is_known = qdr_grid_traffic(the_case->grid, channel, kind, &sent) == QDR_OK && sent.bytes_sent > 0;
    const double ratio = is_known ? (double)sent.bytes_plain / (double)sent.bytes_sent : NAN;
    char codec[64];
    qdr_codec_text(&options->codec, codec, sizeof codec);
    const bench_cell cells[] = {
        BENCH_SETTING("ranks", BENCH_WHOLE(qdr_context_size(run->ctx))),
        BENCH_SETTING("memory", BENCH_TEXT(memory_text(options))),
        {"grid", "grid", "", 12, BENCH_TEXT(grid)},
        {"axis", "axis", "", 4, BENCH_TEXT(axes[the_case->axis])},
        {"members", "members", "", 7, BENCH_WHOLE(the_case->size)},
        {"kind", "kind", "", 14, BENCH_TEXT(qdr_coll_kind_name(kind))},
        {"size_bytes", "size", "(B)", 11, BENCH_WHOLE((double)the_case->n * (double)qdr_dtype_bytes(the_case->dtype))},
        {"count", "count", "(elements)", 10, BENCH_WHOLE(the_case->n)},
        {"type", "type", "", 5, BENCH_TEXT(qdr_dtype_name(the_case->dtype))},
        {"redop", "redop", "", 5, BENCH_TEXT(kind == QDR_ALL_REDUCE || kind == QDR_REDUCE_SCATTER ? "sum" : "none")},
        {"root", "root", "", 4, BENCH_WHOLE(kind == QDR_BROADCAST ? 0 : -1)},
        {"codec", "codec", "", 14, BENCH_TEXT(the_case->codec && kind <= QDR_ALL_REDUCE ? codec : "raw")},
        {"ratio", "ratio", "", 6, BENCH_REAL(ratio, 1, 2)},
        BENCH_TIMES("", "(us)", 1e6, usual.times),
        {"algbw_gbps", "algbw", "(GB/s)", 8, BENCH_REAL(usual.algbw, 1, 3)},
        {"busbw_gbps", "busbw", "(GB/s)", 8, BENCH_REAL(usual.busbw, 1, 3)},
        {"codec_secs", "coding", "(us)", 9,
         BENCH_REAL(sent.codec_secs > 0 ? sent.codec_secs / (double)sent.n_calls : NAN, 1e6, 3)},
        {"wrong", "wrong", "", 7, BENCH_WHOLE(usual.n_wrong)},
        {"in_place_median_secs", "in place", "(us)", 10, BENCH_REAL(in_place.times.median, 1e6, 3)},
        {"in_place_algbw_gbps", "algbw", "(GB/s)", 8, BENCH_REAL(in_place.algbw, 1, 3)},
        {"in_place_busbw_gbps", "busbw", "(GB/s)", 8, BENCH_REAL(in_place.busbw, 1, 3)},
        {"in_place_wrong", "wrong", "", 7, BENCH_WHOLE(in_place.n_wrong)},
        {"samples", "samples", "", 8, BENCH_WHOLE(samples->n)},
    };
    BENCH_ROW(run, cells);
}

/* ---- one grid ---- */

static qdr_status enqueue(void *user, int series) { return coll_case_start(user, NULL, series); }

static qdr_status renew(void *user, int series)
{
    (void)series;
    return coll_case_renew(user);
}

static int run_size(bench_run *run, const coll_options *options, const char *grid, coll_case *the_case, failure *why)
{
    const int n_places = coll_case_has_both(the_case) ? N_PLACES : 1;
    bench_subject subject = {.call = coll_case_call, .before = renew, .user = the_case};
    bench_samples samples = {0};
    double n_wrong[N_PLACES] = {0};
    if (is_on_gpu(run->ctx)) {
        const int most = coll_case_most_calls(the_case) - 1; /* one is not timed */
        subject.call = enqueue;
        subject.stream = qdr_context_stream(run->ctx);
        subject.n_calls = most < 1 ? 1 : most < STREAM_CALLS ? most : STREAM_CALLS;
    }
    qdr_grid_reset_traffic(the_case->grid);
    if (!fail_status(why, qdr_agree(run->ctx, coll_case_clear(the_case))))
        bench_measure(run->ctx, &options->shared, &subject, n_places, 0, &samples, why);
    for (int place = 0; place < n_places && !why->code; place++) {
        qdr_status status = place == USUAL ? coll_case_check_timed(the_case) : QDR_OK;
        if (status >= 0) status = coll_case_check(the_case, place);
        n_wrong[place] = (double)the_case->n_wrong;
        the_case->n_wrong = 0;
        fail_status(why, status < 0 ? status : bench_all_ranks(run->ctx, FOLD_SUM, &n_wrong[place], 1));
        run->n_wrong += (int64_t)n_wrong[place];
    }
    if (!why->code) print_case(run, options, grid, the_case, &samples, n_wrong);
    bench_free(&samples);
    return why->code;
}

static int run_axis(bench_run *run, const coll_options *options, grid_size size, qdr_grid *grid, qdr_axis axis,
                    failure *why)
{
    coll_case the_case = {.grid = grid, .axis = axis, .dtype = options->shared.dtype};
    if (options->codec.kind != QDR_CODEC_RAW) the_case.codec = &options->codec;
    const int64_t elem_bytes = (int64_t)qdr_dtype_bytes(the_case.dtype);
    const int64_t most = options->max_bytes < elem_bytes ? 1 : options->max_bytes / elem_bytes;
    coll_case_create(&the_case, most, options->caller_memory, why);
    for (int kind = 0; kind < QDR_N_COLL_KINDS && !why->code; kind++) {
        if (options->kind != ANY_KIND && options->kind != kind) continue;
        the_case.kind = (qdr_coll_kind)kind;
        /* Each size is at least one element, and none is repeated. */
        int64_t n_before = 0;
        for (int64_t bytes = options->min_bytes; bytes <= options->max_bytes && !why->code; bytes *= options->factor) {
            const int64_t n = bytes < elem_bytes ? 1 : bytes / elem_bytes;
            if (n == n_before) continue;
            n_before = n;
            coll_case_size(&the_case, n);
            run_size(run, options, grid_words(size).text, &the_case, why);
        }
    }
    coll_case_destroy(&the_case);
    return why->code;
}

static int run_grid(bench_run *run, const void *user, grid_size size, failure *why)
{
    const coll_options *options = user;
    qdr_grid *grid = NULL;
    if (options->caller_memory && is_on_gpu(run->ctx))
        return fail(why, EXIT_USAGE,
                    "bench coll: --memory caller is the host's, which GPUs cannot use; leave it out, or use "
                    "--device cpu");
    if (fail_status(why, grid_make(run->ctx, size, NULL, &grid))) return why->code;
    for (int axis = 0; axis < QDR_N_AXES && !why->code; axis++) {
        /* Without --axis, the axes that split the grid; for a grid of one rank, d. */
        const int is_default = qdr_grid_size(grid, (qdr_axis)axis) > 1 || (axis == QDR_D && grid_ranks(size) == 1);
        if (options->axis == ANY_AXIS ? is_default : options->axis == axis)
            run_axis(run, options, size, grid, (qdr_axis)axis, why);
    }
    qdr_grid_destroy(&grid);
    return why->code;
}

static const bench_kind kind = {
    .command = &command_bench_coll,
    .check = check_options,
    .write_title = write_title,
    .run_grid = run_grid,
};

static int run(int argc, char **argv)
{
    coll_options options = {.shared = {.n_iterations = 20, .n_warmup = 5},
                            .min_bytes = 1 << 10,
                            .max_bytes = 16 << 20,
                            .factor = 4,
                            .kind = QDR_ALL_REDUCE,
                            .axis = ANY_AXIS,
                            .codec_text = "raw"};
    return bench_main(&kind, &options.shared, argc, argv);
}

const command command_bench_coll = {
    .name = "bench coll",
    .summary = "collectives along an axis: time, bandwidth, correctness",
    .text = "Times collectives along the axes of a grid, in all groups of an axis at once, and compares the\n"
            "results on every rank with the exact ones. Sizes and bandwidths are defined as in nccl-tests: algbw\n"
            "is size / time; busbw is algbw times 2(n-1)/n for all-reduce, (n-1)/n for all-gather, reduce-scatter\n"
            "and all-to-all, 1 for broadcast and send-recv. The first times are those out of place, unless a\n"
            "collective is always in place. On GPUs, the GPU's clock tells the time of 10 calls in a row. Exits\n"
            "with 4 if an element is wrong.",
    .options = specs,
    .examples = "  quadrille bench coll --local 4 --kind all --axis x --grid 4x1x1x1\n"
                "  mpiexec.mpich -n 4 quadrille bench coll --axis d --grid 1x1x1x4 --codec int8 -b 16M -e 16M\n"
                "  mpiexec.mpich -n 4 quadrille bench coll --grid all -b 8 -e 64M -f 2 --csv\n"
                "  quadrille bench coll --local 8 --device cuda -b 1M -e 1G -f 2\n",
    .run = run,
};
