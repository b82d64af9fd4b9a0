/* SPDX-License-Identifier: Apache-2.0 */
/* Loading files that this test writes byte by byte: each element follows from its number in the whole tensor.
 *
 *   test_checkpoint_load --local P          rows that are shorter, and longer, than what is read at once
 *   test_checkpoint_load --large --local 2  a sparse file with tensors of 2 and 5 GiB; exits with 77 where there is no
 *                                           room for it */
#include <errno.h>
#include <inttypes.h>
#include <quadrille/checkpoint.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "dist.h"

static char path[64]; /* local ranks are threads */

/* ---- a network of one layer ---- */

static qdr_stack *layer_create(qdr_grid *grid, int64_t n_out, int64_t n_in, qdr_dtype dtype, qdr_storage storage)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{n_in, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc layer = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{n_in, 1}}, .out = {{n_out, 1}},
                                   .storage = storage};
    qdr_edge x, y;
    qdr_linear *made;
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 12, .dtype = dtype, .panels = 1, .batch_parts = 1});
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 0, &x));
    DIST_OK(qdr_stack_add_linear(stack, &layer, x, &y, &made));
    DIST_OK(qdr_stack_build(stack));
    return stack;
}

/* ---- files ---- */

/* Returns where the elements begin. */
static int64_t begin_file(FILE *file, const char *header)
{
    const uint64_t n = strlen(header);
    for (int i = 0; i < 8; i++) DIST_CHECK(fputc((int)(n >> 8 * i & 255), file) != EOF, "%s", path);
    DIST_CHECK(fputs(header, file) >= 0, "%s", path);
    return (int64_t)n + 8;
}

/* ---- rows ---- */

typedef struct size {
    int64_t n_out, n_in; /* rows and columns */
} size;

static double value_of(int64_t number)
{
    uint64_t mixed = (uint64_t)number;
    return (double)(dist_random(&mixed) >> 40); /* exact in F32 */
}

static void write_rows(const size *all)
{
    const int64_t n = all->n_out * all->n_in;
    char header[160];
    snprintf(header, sizeof header,
             "{\"layer.weight\":{\"dtype\":\"F32\",\"shape\":[%" PRId64 ",%" PRId64 "],\"data_offsets\":[0,%" PRId64
             "]}}",
             all->n_out, all->n_in, 4 * n);
    FILE *file = fopen(path, "wb");
    DIST_CHECK(file, "%s", path);
    (void)begin_file(file, header);
    for (int64_t i = 0; i < n; i++) {
        const float value = (float)value_of(i);
        DIST_CHECK(fwrite(&value, sizeof value, 1, file) == 1, "%s", path);
    }
    DIST_CHECK(fclose(file) == 0, "%s", path);
}

static void check_shard(const qdr_stack *stack, int64_t n_cols, double (*wanted)(int64_t number))
{
    qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS];
    int n_runs;
    const qdr_parameter p = dist_parameter(stack, 0);
    DIST_OK(qdr_stack_parameter_runs(stack, 0, runs, &n_runs));
    for (const qdr_parameter_run *run = runs; run < runs + n_runs; run++)
        for (int64_t i = 0; i < run->n_rows; i++)
            for (int64_t j = 0; j < run->n_cols; j++) {
                const double is = dist_get(p.data, qdr_stack_dtype(stack),
                                           run->offset + i * run->row_step + j * run->col_step);
                const double want = wanted((run->row + i) * n_cols + run->col + j);
                DIST_CHECK(is == want, "[%" PRId64 ",%" PRId64 "] is %g, not %g", run->row + i, run->col + j, is, want);
            }
}

/* The file that the stack saves; its checksum is that of its bytes. */
static void check_saved(qdr_stack *stack, const size *all, int rank)
{
    char saved[80];
    qdr_safetensors *file;
    snprintf(saved, sizeof saved, "%s.saved", path);
    DIST_OK(qdr_checkpoint_save(stack, NULL, saved, NULL, NULL));
    if (rank) return;
    double *row = malloc((size_t)all->n_in * sizeof *row);
    DIST_CHECK(row, "no memory");
    DIST_OK(qdr_safetensors_open(saved, &file));
    DIST_OK(qdr_safetensors_verify(file, 0));
    for (int64_t i = 0; i < all->n_out; i++) {
        DIST_OK(qdr_safetensors_read(file, 0, i * all->n_in, all->n_in, QDR_F64, row));
        for (int64_t j = 0; j < all->n_in; j++) {
            const double want = value_of(i * all->n_in + j);
            DIST_CHECK(row[j] == want, "saved [%" PRId64 ",%" PRId64 "] is %g, not %g", i, j, row[j], want);
        }
    }
    DIST_OK(qdr_safetensors_close(&file));
    free(row);
    DIST_CHECK(unlink(saved) == 0, "%s", saved);
}

/* Columns are split over x, rows over y. F64 is filled piece by piece; QDR_IN_OUT is transposed. */
static void check_rows(qdr_context *ctx, const size *all)
{
    const int n = qdr_context_size(ctx), rank = qdr_context_rank(ctx);
    const qdr_grid_opts shapes[] = {
        {.x = n, .y = 1, .z = 1, .d = 1}, {.x = 1, .y = n, .z = 1, .d = 1}, {.x = 1, .y = 1, .z = n, .d = 1}};
    if (rank == 0) {
        snprintf(path, sizeof path, "/tmp/quadrille_load_XXXXXX");
        DIST_CHECK(close(mkstemp(path)) == 0, "no file in /tmp");
        write_rows(all);
    }
    DIST_OK(qdr_barrier(ctx));
    for (int i = 0; i < 3 * 4; i++) {
        qdr_grid *grid = dist_grid(ctx, shapes[i / 4]);
        qdr_stack *stack = layer_create(grid, all->n_out, all->n_in, i % 2 ? QDR_F64 : QDR_F32,
                                        i / 2 % 2 ? QDR_IN_OUT : QDR_OUT_IN);
        DIST_OK(qdr_checkpoint_load(stack, NULL, path, NULL));
        DIST_OK(qdr_stack_refresh(stack));
        dist_synchronize(ctx);
        check_shard(stack, all->n_in, value_of);
        check_saved(stack, all, rank);
        qdr_stack_destroy(&stack);
        qdr_grid_destroy(&grid);
    }
    DIST_OK(qdr_barrier(ctx));
    if (rank == 0) DIST_CHECK(unlink(path) == 0, "%s", path);
}

/* Halves and thirds of rows have less than 4 KiB; 256 KiB from the beginning of a row end within another one. */
DIST_TEST(rows_are_short) { check_rows(ctx, &(size){701, 990}); }

/* A row, and half of one, has more than the 2 MiB that are transposed at once. */
DIST_TEST(rows_are_long) { check_rows(ctx, &(size){3, 1100003}); }

/* ---- optimizers ---- */

/* The weight and its two moments, each of more elements than are converted at once on a rank. */
enum { WIDE_ROWS = 1700, WIDE_COLS = 1000, WIDE = WIDE_ROWS * WIDE_COLS, N_KINDS = 3 };

static float wide_value(int kind, int64_t i) { return (float)value_of(kind * (int64_t)WIDE + i); }

/* The nearest number of BF16, as bits. */
static uint16_t rounded(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static void write_wide(void)
{
    static const char *const names[N_KINDS] = {"layer.weight", "optimizer.m.layer.weight", "optimizer.v.layer.weight"};
    char header[1024];
    int n = snprintf(header, sizeof header,
                     "{\"__metadata__\":{\"optimizer\":\"{\\\"name\\\":\\\"adamw\\\",\\\"steps_begun\\\":5,"
                     "\\\"steps_taken\\\":3}\"}");
    for (int kind = 0; kind < N_KINDS; kind++)
        n += snprintf(header + n, sizeof header - (size_t)n,
                      ",\"%s\":{\"dtype\":\"F32\",\"shape\":[%d,%d],\"data_offsets\":[%d,%d]}", names[kind], WIDE_ROWS,
                      WIDE_COLS, 4 * WIDE * kind, 4 * WIDE * (kind + 1));
    snprintf(header + n, sizeof header - (size_t)n, "}");
    FILE *file = fopen(path, "wb");
    DIST_CHECK(file, "%s", path);
    (void)begin_file(file, header);
    for (int64_t i = 0; i < (int64_t)N_KINDS * WIDE; i++) {
        const float value = wide_value(0, i);
        DIST_CHECK(fwrite(&value, sizeof value, 1, file) == 1, "%s", path);
    }
    DIST_CHECK(fclose(file) == 0, "%s", path);
}

/* Each number that was loaded is saved again. */
static void check_wide_saved(qdr_stack *stack, qdr_adamw *optimizer, int background, int rank)
{
    const qdr_checkpoint_opts opts = {QDR_INIT(qdr_checkpoint_opts), .background = background};
    char saved[80];
    qdr_safetensors *file;
    qdr_checkpoint *pending;
    snprintf(saved, sizeof saved, "%s.saved", path);
    DIST_OK(qdr_checkpoint_save(stack, optimizer, saved, &opts, &pending));
    DIST_OK(qdr_checkpoint_finish(&pending));
    if (rank) return;
    float *values = malloc(WIDE * sizeof *values);
    DIST_CHECK(values, "no memory");
    DIST_OK(qdr_safetensors_open(saved, &file));
    DIST_CHECK(qdr_safetensors_count(file) == N_KINDS, "%d tensors", qdr_safetensors_count(file));
    for (int kind = 0; kind < N_KINDS; kind++) {
        DIST_OK(qdr_safetensors_verify(file, kind));
        DIST_OK(qdr_safetensors_read(file, kind, 0, WIDE, QDR_F32, values));
        for (int64_t i = 0; i < WIDE; i++)
            DIST_CHECK(values[i] == wide_value(kind, i), "%s: %" PRId64 " is %g, not %g",
                       qdr_safetensors_tensor(file, kind)->name, i, values[i], wide_value(kind, i));
    }
    DIST_OK(qdr_safetensors_close(&file));
    free(values);
    DIST_CHECK(unlink(saved) == 0, "%s", saved);
}

static double wide_parameter(int64_t number)
{
    const uint16_t bits = rounded(wide_value(0, number));
    return dist_get(&bits, QDR_BF16, 0);
}

/* Masters, beside the parameters that are rounded from them. */
DIST_TEST(masters_are_long)
{
    const int n = qdr_context_size(ctx), rank = qdr_context_rank(ctx);
    const qdr_grid_opts shapes[] = {{.x = n, .y = 1, .z = 1, .d = 1}, {.x = 1, .y = 1, .z = 1, .d = n}};
    if (rank == 0) {
        snprintf(path, sizeof path, "/tmp/quadrille_load_XXXXXX");
        DIST_CHECK(close(mkstemp(path)) == 0, "no file in /tmp");
        write_wide();
    }
    DIST_OK(qdr_barrier(ctx));
    for (int i = 0; i < 4; i++) {
        qdr_grid *grid = dist_grid(ctx, shapes[i / 2]);
        qdr_stack *stack = layer_create(grid, WIDE_ROWS, WIDE_COLS, QDR_BF16, i % 2 ? QDR_IN_OUT : QDR_OUT_IN);
        qdr_adamw *optimizer;
        qdr_checkpoint_loaded loaded = {QDR_INIT(qdr_checkpoint_loaded)};
        DIST_OK(qdr_adamw_create(stack, NULL, &optimizer));
        for (int all = 0; all < 2; all++) {
            DIST_OK(qdr_checkpoint_load(stack, all ? optimizer : NULL, path, &loaded));
            DIST_CHECK(loaded.n_tensors == (all ? 3 : 1) && loaded.n_ignored == (all ? 0 : 2) && loaded.n_steps == 3 &&
                           loaded.has_optimizer && !loaded.note,
                       "%d tensors, %d ignored, %" PRId64 " steps, optimizer %d", loaded.n_tensors, loaded.n_ignored,
                       loaded.n_steps, loaded.has_optimizer);
            dist_synchronize(ctx);
            check_shard(stack, WIDE_COLS, wide_parameter);
        }
        for (int background = 0; background < 2; background++) check_wide_saved(stack, optimizer, background, rank);
        qdr_adamw_destroy(&optimizer);
        qdr_stack_destroy(&stack);
        qdr_grid_destroy(&grid);
    }
    DIST_OK(qdr_barrier(ctx));
    if (rank == 0) DIST_CHECK(unlink(path) == 0, "%s", path);
}

/* ---- large tensors ---- */

enum { COLS = 1000, ROWS = 268500, N_POINTS = 40 };
static const int64_t large = (int64_t)ROWS * COLS, other_bytes = (int64_t)5 << 30;

/* The elements that are not 0: at both ends, on both sides of 2 GiB, and anywhere. */
static int64_t point(int i)
{
    if (i < 8) return i;
    if (i < 16) return large - 16 + i;
    if (i < 24) return ((int64_t)1 << 28) - 20 + i;
    uint64_t mixed = (uint64_t)i;
    return 8 + (int64_t)(dist_random(&mixed) % ((1 << 28) - 20));
}

static double value_at_point(int i) { return 1 + i; } /* exact in BF16 */

/* Returns 0, or says why there is no such file. */
static int write_large(void)
{
    char header[256];
    struct stat info;
    snprintf(header, sizeof header,
             "{\"other\":{\"dtype\":\"U8\",\"shape\":[%" PRId64 "],\"data_offsets\":[0,%" PRId64 "]},"
             "\"layer.weight\":{\"dtype\":\"F64\",\"shape\":[%d,%d],\"data_offsets\":[%" PRId64 ",%" PRId64 "]}}",
             other_bytes, other_bytes, ROWS, COLS, other_bytes, other_bytes + 8 * large);
    FILE *file = fopen(path, "wb");
    DIST_CHECK(file, "%s", path);
    const int64_t at = begin_file(file, header);
    const int is_long = fflush(file) == 0 && ftruncate(fileno(file), (off_t)(at + other_bytes + 8 * large)) == 0;
    if (!is_long) printf("skipped: %s cannot have 7 GiB: %s\n", path, strerror(errno));
    const int last = 77;
    for (int i = 0; is_long && i < N_POINTS; i++) {
        const double value = value_at_point(i);
        DIST_CHECK(pwrite(fileno(file), &value, sizeof value, (off_t)(at + other_bytes + 8 * point(i))) == 8 &&
                       pwrite(fileno(file), &last, 1, (off_t)(at + other_bytes - 1)) == 1,
                   "%s", path);
    }
    const int is_sparse = is_long && fstat(fileno(file), &info) == 0 && info.st_blocks < 1 << 16;
    if (is_long && !is_sparse) printf("skipped: %s takes its whole length of the disk\n", path);
    fclose(file);
    return is_sparse;
}

/* A rank's half of each row has 4,000 bytes in the file. */
static void check_large_shard(const qdr_stack *stack)
{
    qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS];
    int n_runs;
    int64_t n_set = 0, n_found = 0;
    const qdr_parameter p = dist_parameter(stack, 0);
    DIST_OK(qdr_stack_parameter_runs(stack, 0, runs, &n_runs));
    for (int64_t i = 0; i < p.n_elems; i++) n_set += ((const uint16_t *)p.data)[i] != 0;
    for (int i = 0; i < N_POINTS; i++)
        for (const qdr_parameter_run *run = runs; run < runs + n_runs; run++) {
            const int64_t row = point(i) / COLS - run->row, col = point(i) % COLS - run->col;
            if (row < 0 || row >= run->n_rows || col < 0 || col >= run->n_cols) continue;
            const double is = dist_get(p.data, QDR_BF16, run->offset + row * run->row_step + col * run->col_step);
            DIST_CHECK(is == value_at_point(i), "element %" PRId64 " is %g, not %g", point(i), is, value_at_point(i));
            n_found++;
        }
    DIST_CHECK(n_set == n_found, "%" PRId64 " elements are not 0, not %" PRId64, n_set, n_found);
}

static void check_reading(void)
{
    qdr_safetensors *file;
    double values[8];
    unsigned char bytes[2];
    DIST_OK(qdr_safetensors_open(path, &file));
    const int layer = qdr_safetensors_find(file, "layer.weight"), other = qdr_safetensors_find(file, "other");
    for (int i = 0; i < 3; i++) {
        DIST_OK(qdr_safetensors_read(file, layer, point(8 * i), 8, QDR_F64, values));
        for (int j = 0; j < 8; j++) DIST_CHECK(values[j] == value_at_point(8 * i + j), "%d: %g", 8 * i + j, values[j]);
    }
    DIST_OK(qdr_safetensors_read(file, other, other_bytes - 2, 2, QDR_U8, bytes));
    DIST_CHECK(bytes[0] == 0 && bytes[1] == 77, "%d %d", bytes[0], bytes[1]);
    DIST_OK(qdr_safetensors_close(&file));
}

DIST_TEST_APART(tensors_are_large)
{
    qdr_checkpoint_loaded loaded = {QDR_INIT(qdr_checkpoint_loaded)};
    if (qdr_context_rank(ctx) == 0) check_reading();
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = qdr_context_size(ctx), .y = 1, .z = 1, .d = 1});
    qdr_stack *stack = layer_create(grid, ROWS, COLS, QDR_BF16, QDR_OUT_IN);
    DIST_OK(qdr_checkpoint_load(stack, NULL, path, &loaded));
    DIST_CHECK(loaded.n_tensors == 1 && loaded.n_ignored == 1, "%d tensors, %d ignored", loaded.n_tensors,
               loaded.n_ignored);
    qdr_checkpoint_loaded_free(&loaded);
    dist_synchronize(ctx);
    check_large_shard(stack);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}

static int has_memory(double gib)
{
    char line[128];
    long long kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && kib == 0 && fgets(line, sizeof line, file)) (void)!sscanf(line, "MemAvailable: %lld", &kib);
    if (file) fclose(file);
    if ((double)kib < gib * (1 << 20))
        printf("skipped: %.1f GiB of memory are free, not %g\n", (double)kib / (1 << 20), gib);
    return (double)kib >= gib * (1 << 20);
}

/* In /dev/shm, where holes take no memory when they are read, or in /tmp. */
static int run_large(int argc, char **argv)
{
    int code = 77;
    (void)signal(SIGXFSZ, SIG_IGN);
    if (!has_memory(4)) return code;
    snprintf(path, sizeof path, "/dev/shm/quadrille_load_XXXXXX");
    int number = mkstemp(path);
    if (number < 0) {
        snprintf(path, sizeof path, "/tmp/quadrille_load_XXXXXX");
        number = mkstemp(path);
    }
    DIST_CHECK(number >= 0 && close(number) == 0, "no file in /dev/shm and /tmp");
    if (write_large()) code = dist_main(argc, argv, "tensors_are_large");
    (void)unlink(path);
    return code;
}

int main(int argc, char **argv)
{
    if (argc < 2 || strcmp(argv[1], "--large") != 0) return dist_main(argc, argv, NULL);
    argv[1] = argv[0];
    return run_large(argc - 1, argv + 1);
}
