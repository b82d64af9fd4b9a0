/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench codec`: what codecs cost, save and lose on this machine. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench.h"
#include "common/memory.h"
#include "common/npy.h"
#include "common/reference.h"

#define MAX_BYTES ((int64_t)1 << 34)
enum { USUAL_BYTES = 64 << 20, CACHED_BYTES = 256 << 10, BATCH_BYTES = 8 << 20, MOST_TIMES = 1000 };

typedef struct codec_options {
    bench_options shared;
    const char *codec, *data;
    int64_t bytes;
    npy_array array;
} codec_options;

#define AT(member) .at = offsetof(codec_options, member)

static const option_spec specs[] = {
    {"codec", 0, "CODEC", "such as int8, int8/64, int4/128+hadamard, int8+feedback, bf16; default all", OPTION_TEXT,
     AT(codec)},
    {"data", 0, "DATA", "gauss (default), outliers (one element in 100 a hundred times as large) or a FILE.npy",
     OPTION_TEXT, AT(data)},
    {"size", 0, "BYTES", "of the elements, such as 64M; default 256K, which caches hold, and 64M", OPTION_BYTES,
     AT(bytes), .max = MAX_BYTES},
    {"dtype", 0, "TYPE", "f32 (default), bf16 or f16", BENCH_DTYPE},
    OPTIONS_DEVICE(bench_options, device),
    {"iterations", 0, "N", "measured iterations; default 10", BENCH_COUNT(n_iterations, 1, 1000000)},
    {"warmup", 0, "N", "warm-up iterations; default 2", BENCH_COUNT(n_warmup, 0, 1000000)},
    {"csv", 0, NULL, "print comma-separated values", BENCH_AT(OPTION_VALUE, format), FORMAT_CSV},
    {"json", 0, NULL, "print one JSON object", BENCH_AT(OPTION_VALUE, format), FORMAT_JSON},
    OPTIONS_END,
};

static const char *const all_codecs[] = {
    "bf16",     "int16", "int8",  "int4", "int8+feedback", "int4+hadamard", "int4+hadamard+feedback", "int8+stochastic",
    "lossless", "zfp:8", "zfp:16"};
enum { N_ALL_CODECS = sizeof all_codecs / sizeof *all_codecs };

static int is_file(const char *data) { return strcmp(data, "gauss") != 0 && strcmp(data, "outliers") != 0; }

static int64_t n_elems_of(const npy_array *array)
{
    return array->shape[0] * (array->n_dims > 1 ? array->shape[1] : 1);
}

/* Errors are those of finite elements. */
static int check_array(const codec_options *options, failure *why)
{
    const npy_array *array = &options->array;
    const int64_t n = n_elems_of(array);
    if (n == 0) return fail(why, EXIT_USAGE, "bench codec: --data %s holds no elements", options->data);
    for (int64_t i = 0; i < n; i++)
        if (!isfinite(element_read(array->dtype, array->data, i)))
            return fail(why, EXIT_USAGE, "bench codec: element %lld of --data %s is not finite; replace it",
                        (long long)i, options->data);
    return EXIT_OK;
}

static int check_options(void *user, failure *why)
{
    codec_options *options = user;
    qdr_codec codec;
    if (strcmp(options->codec, "all") != 0 && fail_status(why, qdr_codec_parse(options->codec, &codec)))
        return why->code;
    if (options->shared.dtype == QDR_F64)
        return fail(why, EXIT_USAGE, "bench codec: f64 is never coded; use --dtype f32, bf16 or f16");
    if (is_file(options->data) && options->bytes)
        return fail(why, EXIT_USAGE, "bench codec: --data %s has a size of its own; leave --size out", options->data);
    if (is_file(options->data) && !npy_open(options->data, &options->array, why)) check_array(options, why);
    return why->code;
}

/* ---- rows ---- */

static void write_title(const void *user, int n_ranks, char *title, size_t capacity)
{
    const codec_options *options = user;
    (void)n_ranks;
    snprintf(
        title, capacity,
        "# codecs on one core or GPU, %s elements of %s; GB/s of the elements, medians; decode+: decodes and adds\n"
        "# pays: the rate of a link (GB/s) below which the message, encoded and decoded, is there first\n"
        "# error: of all elements, relative; largest: of one, as a share of its bound; bias: mean error in\n"
        "# standard deviations of a mean\n",
        options->data, qdr_dtype_name(options->shared.dtype));
}

/* ---- one codec ---- */

enum { MEMCPY, ENCODE, DECODE_ADD, N_CALLS };

typedef struct codec_case {
    qdr_context *ctx;
    qdr_codec codec;
    qdr_dtype dtype;
    int64_t n, n_times; /* elements; how often each call is repeated, so that starting it costs little */
    void *x, *y, *wire;
    float *feedback; /* NULL: none */
    int64_t wire_bytes;
    uint64_t seed;
} codec_case;

static qdr_status call(void *user, int series)
{
    codec_case *c = user;
    const size_t bytes = (size_t)c->n * qdr_dtype_bytes(c->dtype);
    qdr_status status = QDR_OK;
    for (int64_t i = 0; status >= 0 && i < c->n_times; i++) {
        if (series == MEMCPY) status = qdr_copy(c->ctx, c->y, c->x, bytes, NULL);
        if (series == ENCODE)
            status = qdr_codec_encode(c->ctx, &c->codec, c->dtype, c->x, c->n, c->feedback, c->seed++, c->wire,
                                      &c->wire_bytes, NULL);
        if (series == DECODE_ADD)
            status = qdr_codec_decode(c->ctx, &c->codec, c->dtype, c->wire, c->wire_bytes, c->n, 1, c->y, NULL);
    }
    return status >= 0 ? qdr_stream_synchronize(qdr_context_stream(c->ctx)) : status;
}

static double next_uniform(uint64_t *seed)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return ((double)(*seed >> 11) + 0.5) * 0x1p-53;
}

static double next_normal(uint64_t *seed)
{
    const double radius = sqrt(-2 * log(next_uniform(seed)));
    return radius * cos(6.283185307179586 * next_uniform(seed));
}

/* The elements in fp32 as they are on the device: narrow ones are rounded. */
static void round_to(qdr_dtype dtype, const float *wide, void *narrow, int64_t n)
{
    if (dtype == QDR_F32) memcpy(narrow, wide, (size_t)n * sizeof *wide);
    if (dtype == QDR_BF16) qdr_bf16_from_f32(narrow, wide, n);
    if (dtype == QDR_F16) qdr_f16_from_f32(narrow, wide, n);
}

static void widen(qdr_dtype dtype, const void *narrow, float *wide, int64_t n)
{
    if (dtype == QDR_F32)
        memcpy(wide, narrow, (size_t)n * sizeof *wide);
    else if (dtype == QDR_BF16)
        qdr_f32_from_bf16(wide, narrow, n);
    else
        qdr_f32_from_f16(wide, narrow, n);
}

static void draw(const codec_options *options, float *x, int64_t n)
{
    const npy_array *array = &options->array;
    const int has_outliers = strcmp(options->data, "outliers") == 0;
    uint64_t seed = 1;
    for (int64_t i = 0; i < n; i++) {
        double value = array->data ? element_read(array->dtype, array->data, i) : next_normal(&seed);
        if (has_outliers && next_uniform(&seed) < 0.01) value *= 100;
        x[i] = (float)value;
    }
}

static void release(codec_case *c)
{
    qdr_mem_free(c->ctx, &c->x);
    qdr_mem_free(c->ctx, &c->y);
    qdr_mem_free(c->ctx, &c->wire);
    void *feedback = c->feedback;
    qdr_mem_free(c->ctx, &feedback);
}

static qdr_status prepare(codec_case *c, const float *x)
{
    const size_t bytes = (size_t)c->n * qdr_dtype_bytes(c->dtype);
    const size_t feedback_bytes = c->codec.flags & QDR_CODEC_FEEDBACK ? (size_t)c->n * sizeof *c->feedback : 0;
    void *feedback = NULL, *narrow = malloc(bytes + 1);
    qdr_status status = narrow ? QDR_OK : QDR_ERR_MEMORY;
    if (status >= 0) status = qdr_mem_alloc(c->ctx, bytes, &c->x);
    if (status >= 0) status = qdr_mem_alloc(c->ctx, bytes, &c->y);
    if (status >= 0) status = qdr_mem_alloc(c->ctx, (size_t)qdr_codec_bytes(&c->codec, c->dtype, c->n), &c->wire);
    if (status >= 0 && feedback_bytes) status = qdr_mem_alloc(c->ctx, feedback_bytes, &feedback);
    c->feedback = feedback;
    if (status >= 0 && feedback) status = memory_set(c->ctx, feedback, 0, feedback_bytes);
    if (status >= 0) {
        round_to(c->dtype, x, narrow, c->n);
        status = memory_copy(c->ctx, c->x, narrow, bytes);
    }
    free(narrow);
    return status;
}

/* ---- errors ---- */

/* A block with a rotated element that is as large decodes to NaN (quadrille/codec.h). */
#define LEAST_ROTATED_NAN 0x1p123

typedef struct errors {
    double relative, bound_share, bias;
} errors;

/* max |x| of the block of element i; of a rotated one its length, which no rotated element exceeds. */
static double block_size(const codec_case *c, const float *x, int64_t first, int64_t n)
{
    double largest = 0, squares = 0;
    for (int64_t i = first; i < first + n; i++) {
        largest = fmax(largest, fabs((double)x[i]));
        squares += (double)x[i] * (double)x[i];
    }
    return c->codec.flags & QDR_CODEC_HADAMARD ? sqrt(squares) : largest;
}

/* Of a decoded element up to this size, to a narrow type. */
static double rounding_of(qdr_dtype dtype, double size)
{
    if (dtype == QDR_BF16) return 0x1p-8 * size;
    return dtype == QDR_F16 ? 0x1p-11 * size + 0x1p-25 : 0;
}

/* NaN, as of a finite element that decodes to NaN, is larger than any number. */
static double largest(double a, double b) { return a > b || isnan(a) ? a : b; }

static errors errors_of(const codec_case *c, const float *x, const float *y)
{
    const int64_t block = c->codec.block ? c->codec.block : 128;
    double squares = 0, error_squares = 0, sum = 0;
    errors found = {.bound_share = qdr_codec_bound(&c->codec, 1) < 0 ? NAN : 0};
    for (int64_t first = 0; first < c->n; first += block) {
        const int64_t n = c->n - first < block ? c->n - first : block;
        const double size = block_size(c, x, first, n), bound = qdr_codec_bound(&c->codec, size);
        const double most = bound + rounding_of(c->dtype, size + bound);
        if ((c->codec.flags & QDR_CODEC_HADAMARD) && size >= LEAST_ROTATED_NAN) continue;
        for (int64_t i = first; i < first + n; i++) {
            const double error = (double)y[i] - (double)x[i];
            squares += (double)x[i] * (double)x[i];
            error_squares += error * error;
            sum += error;
            if (bound >= 0 && error != 0) found.bound_share = largest(found.bound_share, fabs(error) / most);
        }
    }
    found.relative = squares > 0 ? sqrt(error_squares / squares) : 0;
    found.bias = error_squares > 0 ? sum / sqrt(error_squares) : 0;
    return found;
}

/* One message, decoded. */
static qdr_status find_errors(codec_case *c, const float *x, errors *found)
{
    const size_t bytes = (size_t)c->n * qdr_dtype_bytes(c->dtype);
    void *narrow = malloc(2 * bytes + 1);
    float *wide = malloc(2 * (size_t)c->n * sizeof *wide + 1);
    qdr_codec alone = c->codec;
    alone.flags &= ~QDR_CODEC_FEEDBACK;
    qdr_status status = narrow && wide ? QDR_OK : QDR_ERR_MEMORY;
    if (status >= 0)
        status = qdr_codec_encode(c->ctx, &alone, c->dtype, c->x, c->n, NULL, 1, c->wire, &c->wire_bytes, NULL);
    if (status >= 0) status = qdr_stream_synchronize(qdr_context_stream(c->ctx)); /* now the bytes are known */
    if (status >= 0) status = qdr_codec_decode(c->ctx, &alone, c->dtype, c->wire, c->wire_bytes, c->n, 0, c->y, NULL);
    if (status >= 0) status = memory_copy(c->ctx, narrow, c->y, bytes);
    if (status >= 0) {
        widen(c->dtype, narrow, wide, c->n);
        round_to(c->dtype, x, narrow, c->n);
        widen(c->dtype, narrow, wide + c->n, c->n);
        *found = errors_of(c, wide + c->n, wide);
    }
    free(narrow);
    free(wide);
    return status;
}

static void print_case(bench_run *run, const codec_options *options, const codec_case *c, const bench_samples *samples,
                       const errors *found)
{
    char text[64];
    const double bytes = (double)c->n * (double)qdr_dtype_bytes(c->dtype), batch = bytes * (double)c->n_times;
    const double encode = bench_times_of(samples, ENCODE).median, decode = bench_times_of(samples, DECODE_ADD).median;
    qdr_codec_text(&c->codec, text, sizeof text);
    const bench_cell cells[] = {
        BENCH_SETTING("data", BENCH_TEXT(options->data)),
        BENCH_SETTING("type", BENCH_TEXT(qdr_dtype_name(c->dtype))),
        {"codec", "codec", "", 26, BENCH_TEXT(text)},
        {"size_bytes", "size", "(B)", 11, BENCH_WHOLE(bytes)},
        {"wire_bytes", "message", "(B)", 11, BENCH_WHOLE(c->wire_bytes)},
        {"ratio", "ratio", "", 6, BENCH_REAL(bytes / (double)c->wire_bytes, 1, 2)},
        {"memcpy_gbps", "memcpy", "(GB/s)", 7, BENCH_REAL(1e-9 * batch / bench_times_of(samples, MEMCPY).median, 1, 1)},
        {"encode_gbps", "encode", "(GB/s)", 7, BENCH_REAL(1e-9 * batch / encode, 1, 1)},
        {"encode_ratio", "of", "memcpy", 7, BENCH_REAL(bench_ratio(samples, MEMCPY, ENCODE), 1, 2)},
        {"decode_add_gbps", "decode+", "(GB/s)", 7, BENCH_REAL(1e-9 * batch / decode, 1, 1)},
        {"decode_add_ratio", "of", "memcpy", 7, BENCH_REAL(bench_ratio(samples, MEMCPY, DECODE_ADD), 1, 2)},
        {"pays_below_gbps", "pays", "below", 7, BENCH_REAL(1e-9 * batch / (encode + decode), 1, 2)},
        {"relative_error", "error", "(L2)", 10, BENCH_REAL(found->relative, 1, 7)},
        {"bound_share", "largest", "of bound", 8, BENCH_REAL(found->bound_share, 1, 3)},
        {"bias", "bias", "(sigma)", 8, BENCH_REAL(found->bias, 1, 2)},
        {"samples", "samples", "", 8, BENCH_WHOLE(samples->n)},
    };
    BENCH_ROW(run, cells);
    if (qdr_codec_bound(&c->codec, 1) >= 0 && !(found->bound_share <= 1)) run->n_wrong++;
}

static int run_case(bench_run *run, const codec_options *options, const float *x, codec_case *c, failure *why)
{
    const bench_subject subject = {.call = call, .user = c};
    bench_samples samples = {0};
    errors found = {0};
    if (!fail_status(why, prepare(c, x)) && !fail_status(why, find_errors(c, x, &found)) &&
        !bench_measure(run->ctx, &options->shared, &subject, N_CALLS, 0, &samples, why))
        print_case(run, options, c, &samples, &found);
    bench_free(&samples);
    release(c);
    return why->code;
}

/* Whether this library and device have the codec, and it shortens the type: of all codecs, others are left out. */
static int is_usable(qdr_context *ctx, const qdr_codec *codec, qdr_dtype dtype)
{
    int64_t bytes;
    qdr_codec plain = *codec;
    plain.flags &= ~QDR_CODEC_FEEDBACK;
    const int64_t most = qdr_codec_bytes(codec, dtype, 1024), whole = 1024 * (int64_t)qdr_dtype_bytes(dtype);
    return (codec->kind == QDR_CODEC_LOSSLESS ? most > whole : most < whole) && /* at most; as it is: equal */
           qdr_codec_encode(ctx, &plain, dtype, NULL, 0, NULL, 0, NULL, &bytes, NULL) >= 0;
}

static int run_size(bench_run *run, const codec_options *options, int64_t n, failure *why)
{
    const qdr_dtype dtype = options->shared.dtype;
    const int64_t n_times = 1 + BATCH_BYTES / (n * (int64_t)qdr_dtype_bytes(dtype));
    const int is_all = strcmp(options->codec, "all") == 0;
    float *x = malloc((size_t)n * sizeof *x);
    if (!x)
        return fail(why, EXIT_NOTHING_FITS, "bench codec: no memory for %lld elements; use a smaller --size",
                    (long long)n);
    draw(options, x, n);
    for (int i = 0; i < (is_all ? N_ALL_CODECS : 1) && !why->code; i++) {
        codec_case c = {
            .ctx = run->ctx, .dtype = dtype, .n = n, .n_times = n_times < MOST_TIMES ? n_times : MOST_TIMES};
        if (fail_status(why, qdr_codec_parse(is_all ? all_codecs[i] : options->codec, &c.codec))) break;
        if (!is_all || is_usable(run->ctx, &c.codec, dtype)) run_case(run, options, x, &c, why);
    }
    free(x);
    return why->code;
}

static int run_grid(bench_run *run, const void *user, grid_size size, failure *why)
{
    const codec_options *options = user;
    const int64_t each = (int64_t)qdr_dtype_bytes(options->shared.dtype);
    (void)size;
    if (options->array.data) return run_size(run, options, n_elems_of(&options->array), why);
    if (options->bytes) return run_size(run, options, options->bytes < each ? 1 : options->bytes / each, why);
    return run_size(run, options, CACHED_BYTES / each, why) || run_size(run, options, USUAL_BYTES / each, why);
}

static const bench_kind kind = {
    .command = &command_bench_codec,
    .check = check_options,
    .write_title = write_title,
    .run_grid = run_grid,
};

static int run(int argc, char **argv)
{
    codec_options options = {
        .shared = {.n_iterations = 10, .n_warmup = 2, .n_local = 1}, .codec = "all", .data = "gauss"};
    const int code = bench_main(&kind, &options.shared, argc, argv);
    npy_close(&options.array);
    return code;
}

const command command_bench_codec = {
    .name = "bench codec",
    .summary = "codecs of messages: size, speed, errors",
    .text = "Encodes and decodes elements on one core or GPU, alternating with copies of the same elements, and\n"
            "prints how much shorter messages become, how fast coding is, on which links it pays, and how far\n"
            "elements are off. Exits with 4 if an error exceeds its bound (docs/numerics.md).",
    .options = specs,
    .examples = "  quadrille bench codec\n"
                "  quadrille bench codec --codec int4/128+hadamard --data outliers --size 16M\n"
                "  quadrille bench codec --codec int8/64 --data gradient.npy --json\n",
    .run = run,
};
