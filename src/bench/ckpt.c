/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille bench ckpt`: checkpoints of transformer layers, alternating with plain writing, reading and copying of as
 * many bytes. */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <quadrille/checkpoint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench.h"
#include "common/planning.h"
#include "common/transformer.h"

enum { CONTEXT = 8, PATH_BYTES = 4096 };

typedef struct ckpt_options {
    bench_options shared;
    int64_t hidden, n_heads, n_layers;
    const char *levels; /* NULL: none */
    const char *file;
} ckpt_options;

#define AT(member) .at = offsetof(ckpt_options, member)

static const option_spec specs[] = {
    {"hidden", 0, "N", "hidden size; the MLP is four times as wide; default 1024", OPTION_COUNT, AT(hidden), 1,
     1 << 20},
    {"heads", 0, "N", "attention heads; must divide --hidden; default 8", OPTION_COUNT, AT(n_heads), 1, 1 << 16},
    {"layers", 0, "N", "number of transformer layers; default 1", OPTION_COUNT, AT(n_layers), 1, 1024},
    {"levels", 0, "GP,OP", BENCH_LEVELS_HELP, OPTION_TEXT, AT(levels)},
    {"file", 0, "FILE", "write there, and to FILE.plain: neither may exist, both are removed; default ./bench.ckpt",
     OPTION_TEXT, AT(file)},
    BENCH_SPECS,
};

static int check_options(void *user, failure *why)
{
    const ckpt_options *options = user;
    if (strlen(options->file) > PATH_BYTES - 16)
        return fail(why, EXIT_USAGE, "bench ckpt: the name of --file is too long");
    if (options->hidden % options->n_heads == 0) return EXIT_OK;
    return fail(why, EXIT_USAGE, "bench ckpt: %lld heads do not divide --hidden %lld; use a multiple of --heads",
                (long long)options->n_heads, (long long)options->hidden);
}

static void write_title(const void *user, int n_ranks, char *title, size_t capacity)
{
    const ckpt_options *options = user;
    snprintf(title, capacity,
             "# a checkpoint of %lld transformer layer%s, hidden %lld, and AdamW, %s, %d rank%s; times of the slowest\n"
             "# rank, all: plain writing of one, and of all; their rates are rank_GBps and all_GBps of machine files\n"
             "# limit: of save and background (until it is finished): all; of held (until the caller goes on): memcpy\n"
             "# to fresh memory; of load: plain reading; alternating. share: median of limit / time\n",
             (long long)options->n_layers, PLURAL(options->n_layers), (long long)options->hidden,
             qdr_dtype_name(options->shared.dtype), n_ranks, PLURAL(n_ranks));
}

/* ---- plain files ----
 *
 * Written and read by many ranks, in pieces of 1 MiB. All return 0, or an errno value. */

enum { PIECE_BYTES = 1 << 20 };

/* A file that does not exist yet, with room for that many bytes on the disk. */
static int file_make(const char *path, int64_t n_bytes)
{
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) return errno;
    int error = posix_fallocate(descriptor, 0, n_bytes);
    if (!error && fsync(descriptor) != 0) error = errno;
    if (close(descriptor) != 0 && !error) error = errno;
    return error;
}

static int file_open(const char *path, int *descriptor)
{
    *descriptor = open(path, O_RDWR | O_CLOEXEC);
    return *descriptor < 0 ? errno : 0;
}

static size_t piece_of(int64_t left) { return left < PIECE_BYTES ? (size_t)left : PIECE_BYTES; }

/* Waits for the disk. */
static int file_write(int descriptor, const char *from, int64_t at, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        const ssize_t written = pwrite(descriptor, from + done, piece_of(n - done), at + done);
        if (written < 0 && errno != EINTR) return errno;
        if (written > 0) done += written;
    }
    return fdatasync(descriptor) != 0 ? errno : 0;
}

static int file_read(int descriptor, char *to, int64_t at, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        const ssize_t found = pread(descriptor, to + done, piece_of(n - done), at + done);
        if (found < 0 && errno != EINTR) return errno;
        if (found == 0) return EIO; /* it is shorter */
        if (found > 0) done += found;
    }
    return 0;
}

/* ---- what is measured ---- */

/* In this order. MAKE and REMOVE are not shown: they make the file of plain writing, and remove that of the last save,
 * which would take its time while it is replaced. */
typedef enum ckpt_series { MAKE, RANK, ALL, SAVE, REMOVE, MEMCPY, HELD, FINISH, READ, LOAD, N_SERIES } ckpt_series;
enum { BACKGROUND = N_SERIES }; /* HELD and FINISH */

typedef struct ckpt_bench {
    qdr_context *ctx;
    qdr_grid *grid;
    grid_size size;
    transformer model;
    qdr_adamw *optimizer;
    qdr_checkpoint *pending;
    const char *path;
    char plain_path[PATH_BYTES];
    int plain, error; /* descriptor; errno of plain writing and reading */
    int64_t file_bytes, begin, n; /* of the file; this rank's equal share of it */
    size_t copy_bytes; /* that are copied in the background */
    char *memory, *copy; /* as large as the share and the copy; a copy of it, in fresh memory */
} ckpt_bench;

static int is_root(const ckpt_bench *bench) { return qdr_context_rank(bench->ctx) == 0; }

/* On all ranks; what happened is told at the end. */
static qdr_status agree(ckpt_bench *bench, int error)
{
    if (error) bench->error = error;
    return qdr_agree(bench->ctx, error ? QDR_ERR_IO : QDR_OK);
}

/* A new file each time: blocks that were written before are faster. RANK writes behind what ALL does. */
static qdr_status make_plain(ckpt_bench *bench)
{
    if (bench->plain >= 0) close(bench->plain);
    bench->plain = -1;
    if (is_root(bench)) (void)unlink(bench->plain_path);
    qdr_status status = agree(bench, is_root(bench) ? file_make(bench->plain_path, bench->file_bytes + bench->n) : 0);
    return status < 0 ? status : agree(bench, file_open(bench->plain_path, &bench->plain));
}

static void remove_saved(const ckpt_bench *bench)
{
    if (is_root(bench)) (void)unlink(bench->path);
}

static qdr_status copy(ckpt_bench *bench)
{
    bench->copy = malloc(bench->copy_bytes + 1);
    if (!bench->copy) return QDR_ERR_MEMORY;
    memcpy(bench->copy, bench->memory, bench->copy_bytes);
    return QDR_OK;
}

/* Like the library, from the file of the last save, which is opened each time. */
static qdr_status read_plain(ckpt_bench *bench)
{
    int descriptor;
    int error = file_open(bench->path, &descriptor);
    if (!error) error = file_read(descriptor, bench->memory, bench->begin, bench->n);
    if (descriptor >= 0) close(descriptor);
    return agree(bench, error);
}

static qdr_status save(ckpt_bench *bench, int background)
{
    const qdr_checkpoint_opts opts = {QDR_INIT(qdr_checkpoint_opts), .background = background};
    return qdr_checkpoint_save(bench->model.stack, bench->optimizer, bench->path, &opts, &bench->pending);
}

static qdr_status call(void *user, int series)
{
    ckpt_bench *bench = user;
    switch ((ckpt_series)series) {
    case MAKE: remove_saved(bench); return make_plain(bench);
    case RANK:
        return agree(bench, is_root(bench) ? file_write(bench->plain, bench->memory, bench->file_bytes, bench->n) : 0);
    case ALL: return agree(bench, file_write(bench->plain, bench->memory, bench->begin, bench->n));
    case SAVE: return save(bench, 0);
    case REMOVE: remove_saved(bench); return QDR_OK;
    case MEMCPY: return copy(bench);
    case HELD: return save(bench, 1);
    case FINISH: return qdr_checkpoint_finish(&bench->pending);
    case READ: return read_plain(bench);
    case LOAD: return qdr_checkpoint_load(bench->model.stack, bench->optimizer, bench->path, NULL);
    case N_SERIES: break;
    }
    return QDR_OK;
}

/* Memory is not fresh a second time. */
static void after(void *user, int series, int64_t iteration)
{
    ckpt_bench *bench = user;
    (void)series;
    (void)iteration;
    free(bench->copy);
    bench->copy = NULL;
}

/* ---- one grid ---- */

/* One step, so that moments are no zeros. */
static qdr_status step(ckpt_bench *bench)
{
    qdr_stack *stack = bench->model.stack;
    TRY(qdr_stack_forward(stack));
    TRY(qdr_stream_synchronize(qdr_context_stream(bench->ctx)));
    TRY(transformer_fill_gradient(&bench->model));
    TRY(qdr_stack_backward(stack, 0, 1));
    return qdr_adamw_step(bench->optimizer, 1e-3);
}

static qdr_status prepare(ckpt_bench *bench, const ckpt_options *options)
{
    qdr_network network = planning_network("layers", options->n_layers, options->hidden, options->n_heads, CONTEXT);
    network.vocab = 1;
    const transformer_desc desc = {
        .network = &network,
        .n_layers = options->n_layers,
        .n_sequences = (int64_t)bench->size.z * bench->size.d,
        .sequence = CONTEXT,
        .dtype = options->shared.dtype,
        .n_panels = 1,
        .n_batch_parts = 1,
    };
    TRY(transformer_create(bench->grid, &desc, &bench->model));
    TRY(qdr_adamw_create(bench->model.stack, NULL, &bench->optimizer));
    TRY(step(bench));
    TRY(qdr_checkpoint_size(bench->model.stack, bench->optimizer, 1, &bench->copy_bytes, &bench->file_bytes));
    const int n_ranks = qdr_context_size(bench->ctx), rank = qdr_context_rank(bench->ctx);
    bench->begin = bench->file_bytes / n_ranks * rank;
    bench->n = rank == n_ranks - 1 ? bench->file_bytes - bench->begin : bench->file_bytes / n_ranks;
    const size_t bytes = bench->copy_bytes > (size_t)bench->n ? bench->copy_bytes : (size_t)bench->n;
    bench->memory = malloc(bytes);
    if (bench->memory) memset(bench->memory, 1, bytes);
    return qdr_agree(bench->ctx, bench->memory ? QDR_OK : QDR_ERR_MEMORY);
}

typedef struct ckpt_row {
    const char *name;
    int series, limit; /* limit -1: none */
} ckpt_row;
static const ckpt_row rows[] = {
    {"rank", RANK, -1},  {"all", ALL, -1}, {"save", SAVE, ALL}, {"held", HELD, MEMCPY}, {"background", BACKGROUND, ALL},
    {"load", LOAD, READ}};

static void print_what(bench_run *run, const ckpt_options *options, const ckpt_bench *bench,
                       const bench_samples *samples, const ckpt_row *row, double bytes)
{
    const grid_text shape = grid_words(bench->size);
    const bench_times times = bench_times_of(samples, row->series);
    const double limit = row->limit < 0 ? NAN : bench_times_of(samples, row->limit).median;
    char split[32];
    snprintf(split, sizeof split, "%d,%d", qdr_grid_parts(bench->grid, QDR_LEVEL_GRADIENTS),
             qdr_grid_parts(bench->grid, QDR_LEVEL_OPTIMIZER));
    const bench_cell cells[] = {
        {"grid", "grid", "", 12, BENCH_TEXT(shape.text)},
        {"levels", "levels", "", 9, BENCH_IF(options->levels, BENCH_TEXT(split))},
        {"what", "what", "", 10, BENCH_TEXT(row->name)},
        BENCH_SETTING("hidden", BENCH_WHOLE(options->hidden)),
        BENCH_SETTING("heads", BENCH_WHOLE(options->n_heads)),
        BENCH_SETTING("layers", BENCH_WHOLE(options->n_layers)),
        BENCH_SETTING("dtype", BENCH_TEXT(qdr_dtype_name(options->shared.dtype))),
        BENCH_SETTING("ranks", BENCH_WHOLE(qdr_context_size(run->ctx))),
        {"bytes", "bytes", "", 12, BENCH_WHOLE(bytes)},
        BENCH_TIMES("", "(ms)", 1e3, times),
        {"bytes_per_sec", "rate", "(GB/s)", 8, BENCH_REAL(bytes / times.median, 1e-9, 3)},
        {"limit_median_secs", "limit", "(ms)", 10, BENCH_REAL(limit, 1e3, 3)},
        {"limit_bytes_per_sec", "limit", "(GB/s)", 8, BENCH_REAL(bytes / limit, 1e-9, 3)},
        {"share", "share", "", 6,
         BENCH_REAL(row->limit < 0 ? NAN : bench_ratio(samples, row->limit, row->series), 1, 3)},
        {"samples", "samples", "", 7, BENCH_WHOLE(samples->n)},
    };
    BENCH_ROW(run, cells);
}

/* What a rank failed in says more than that it did. */
static int tell_error(const ckpt_bench *bench, failure *why)
{
    const failure first = *why;
    if (bench->error || why->is_peers) *why = (failure){0};
    if (bench->error)
        fail(why, EXIT_FAILED, "bench ckpt: %.300s could not be written or read (%s)", bench->plain_path,
             strerror(bench->error));
    fail_together(why, bench->ctx);
    if (!why->code) *why = first;
    return why->code;
}

static int measure(bench_run *run, const ckpt_options *options, ckpt_bench *bench, failure *why)
{
    const bench_subject calls = {.call = call, .after = after, .user = bench};
    bench_samples samples = {0};
    double sum[] = {(double)bench->copy_bytes};
    if (bench_measure(run->ctx, &options->shared, &calls, N_SERIES, 1, &samples, why)) tell_error(bench, why);
    if (!why->code) fail_status(why, bench_all_ranks(run->ctx, FOLD_SUM, sum, 1));
    if (!why->code) bench_add(&samples, HELD, FINISH, BACKGROUND);
    for (size_t i = 0; !why->code && i < sizeof rows / sizeof *rows; i++) {
        const double bytes = rows[i].series == RANK ? (double)bench->n : (double)bench->file_bytes;
        print_what(run, options, bench, &samples, &rows[i], rows[i].series == HELD ? sum[0] : bytes);
    }
    bench_free(&samples);
    return why->code;
}

/* Files that exist are not ours. */
static int check_absent(const ckpt_bench *bench, failure *why)
{
    const char *const names[] = {bench->path, bench->plain_path};
    for (int i = 0; i < 2 && is_root(bench); i++)
        if (access(names[i], F_OK) == 0)
            fail(why, EXIT_USAGE, "bench ckpt: %.300s exists, and would be removed; name another --file", names[i]);
    return fail_together(why, bench->ctx);
}

static int run_grid(bench_run *run, const void *user, grid_size size, failure *why)
{
    const ckpt_options *options = user;
    ckpt_bench bench = {.ctx = run->ctx, .size = size, .path = options->file, .plain = -1};
    snprintf(bench.plain_path, sizeof bench.plain_path, "%s.plain", options->file);
    if (check_absent(&bench, why)) return why->code;
    bench_make_grid(run, &options->shared, options->levels, size, &bench.grid, why);
    if (bench.grid && !fail_status(why, prepare(&bench, options))) measure(run, options, &bench, why);
    const qdr_status ended = qdr_checkpoint_finish(&bench.pending); /* after an error between its two parts */
    (void)ended;
    if (bench.plain >= 0) close(bench.plain);
    remove_saved(&bench);
    if (is_root(&bench)) (void)unlink(bench.plain_path);
    free(bench.copy);
    free(bench.memory);
    qdr_adamw_destroy(&bench.optimizer);
    qdr_stack_destroy(&bench.model.stack);
    qdr_grid_destroy(&bench.grid);
    return why->code;
}

static const bench_kind kind = {
    .command = &command_bench_ckpt,
    .check = check_options,
    .write_title = write_title,
    .run_grid = run_grid,
};

static int run(int argc, char **argv)
{
    ckpt_options options = {.shared = {.n_iterations = 7, .n_warmup = 1},
                            .hidden = 1024,
                            .n_heads = 8,
                            .n_layers = 1,
                            .file = "bench.ckpt"};
    return bench_main(&kind, &options.shared, argc, argv);
}

const command command_bench_ckpt = {
    .name = "bench ckpt",
    .summary = "saving and loading checkpoints, and how fast the disk is",
    .text = "Saves and loads a checkpoint of transformer layers with AdamW, alternating with ranks that write,\n"
            "read and copy equal shares of as many bytes: saving that waits, saving in the background (how long\n"
            "the caller waits, and until the file is complete), loading from the page cache. A machine file\n"
            "states the same rates of plain writing, for one rank and for all.",
    .options = specs,
    .examples = "  quadrille bench ckpt --local 4 --grid 1x1x2x2 --hidden 1024 --layers 4\n"
                "  quadrille bench ckpt --local 4 --grid all --levels zero1 --csv\n"
                "  mpiexec.mpich -n 16 quadrille bench ckpt --file /scratch/bench.ckpt --layers 16 --json\n",
    .run = run,
};
