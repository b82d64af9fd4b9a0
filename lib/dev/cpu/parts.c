/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels on several threads: rows, columns, or heads are shared in parts whose bounds depend on sizes alone. */
#include "dev/cpu/cpu.h"
#include "dev/cpu/kernels/kernels.h"
#include "dev/cpu/pool.h"

/* Rows are divided where vectors end, and columns so that each part reads whole lines of memory. */
enum { ROW_UNIT = 16, COLUMN_UNIT = 128 };

int64_t qdri_cpu_part_elems = 32768;

/* Parts of `each` of n rows or columns, the last one smaller. */
typedef struct shares {
    int64_t n, each, n_parts;
} shares;

static shares share(int64_t n, int64_t work_of_one, int64_t least, int64_t unit)
{
    const int64_t wanted = 1 + (least - 1) / (work_of_one > 0 ? work_of_one : 1);
    const int64_t each = (wanted + unit - 1) / unit * unit;
    return (shares){n, each, n > 0 ? 1 + (n - 1) / each : 0};
}

static int64_t first_of(shares of, int64_t part) { return part * of.each; }
static int64_t n_of(shares of, int64_t part) { return part == of.n_parts - 1 ? of.n - part * of.each : of.each; }

typedef struct parts {
    const qdri_kernel *kernel;
    void (*fn)(const qdri_kernel *part);
    shares rows, cols; /* cols, of attention: key heads, of each part of the rows */
    char *work;
    size_t work_bytes; /* of a thread */
} parts;

static qdr_status run_part(const void *user, int64_t piece, int thread)
{
    const parts *self = user;
    qdri_kernel part = *self->kernel;
    (void)thread;
    if (piece < self->rows.n_parts) {
        qdri_kernel_take_rows(&part, first_of(self->rows, piece), n_of(self->rows, piece));
    } else {
        part.only.first = first_of(self->cols, piece - self->rows.n_parts);
        part.only.n = n_of(self->cols, piece - self->rows.n_parts);
    }
    self->fn(&part);
    return QDR_OK;
}

static qdr_status run_heads(const void *user, int64_t piece, int thread)
{
    const parts *self = user;
    const int64_t row_part = piece / self->cols.n_parts, head_part = piece % self->cols.n_parts;
    qdri_kernel part = *self->kernel;
    qdri_address_space_use();
    if (thread > 0) qdri_onednn_alone();
    qdri_kernel_take_rows(&part, first_of(self->rows, row_part), n_of(self->rows, row_part));
    part.only.first = first_of(self->cols, head_part);
    part.only.n = n_of(self->cols, head_part);
    if (thread > 0) part.u.attention.work = self->work + (size_t)(thread - 1) * self->work_bytes;
    self->fn(&part);
    return QDR_OK;
}

/* Sums over all rows and heads are not divided, those over the rows of a head by heads; without heads or rows sums are
 * cleared. */
static void divide_attention(parts *self)
{
    const qdri_kernel *kernel = self->kernel;
    const int64_t context = kernel->u.attention.context, n_kv_heads = kernel->u.attention.n_kv_heads;
    const int sums = kernel->kind == QDRI_K_ATTENTION_BACKWARD;
    const int64_t of_head = context * context * kernel->u.attention.n_heads / (n_kv_heads > 0 ? n_kv_heads : 1);
    if (kernel->u.attention.n_heads == 0 || kernel->u.attention.n_rows == 0) return;
    if (sums && kernel->u.attention.head_norm) return;
    self->cols = share(n_kv_heads, of_head, qdri_cpu_part_elems, 1);
    self->rows = share(kernel->u.attention.n_rows / context, of_head * n_kv_heads, qdri_cpu_part_elems, 1);
    if (sums && kernel->u.attention.has_sinks) self->rows = (shares){self->rows.n, self->rows.n, self->rows.n > 0};
    self->rows.n *= context;
    self->rows.each *= context;
}

static void divide(parts *self)
{
    const qdri_division division = qdri_kernel_division(self->kernel);
    self->rows = share(division.n_rows, division.row_elems, qdri_cpu_part_elems, ROW_UNIT);
    self->cols = share(division.n_cols, division.col_elems, qdri_cpu_part_elems, COLUMN_UNIT);
}

qdr_status qdri_cpu_run_parts(qdri_cpu_dev *dev, const qdri_kernel *kernel, void (*fn)(const qdri_kernel *part))
{
    parts self = {.kernel = kernel, .fn = fn};
    const int is_attention = qdri_family_of(kernel->kind) == QDRI_OF_ATTENTION;
    if (dev->pool) (is_attention ? divide_attention : divide)(&self);
    const int64_t n_rows = self.rows.n_parts, n_cols = self.cols.n_parts;
    const int64_t n_pieces = is_attention ? n_rows * n_cols : n_rows + n_cols;
    if (n_pieces <= 1 || (is_attention && pthread_mutex_trylock(&dev->work_lock) != 0)) {
        fn(kernel);
        return QDR_OK;
    }
    if (!is_attention) return qdri_pool_run(dev->pool, dev->n_threads, n_pieces, run_part, &self);
    self.work_bytes = qdri_attention_thread_bytes(kernel);
    self.work = dev->work;
    const int64_t n_work = 1 + (int64_t)(dev->work_bytes / self.work_bytes);
    const int n_threads = n_work < dev->n_threads ? (int)n_work : dev->n_threads;
    const qdr_status status = qdri_pool_run(dev->pool, n_threads, n_pieces, run_heads, &self);
    pthread_mutex_unlock(&dev->work_lock);
    return status;
}
