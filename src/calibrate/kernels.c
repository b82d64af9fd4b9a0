/* SPDX-License-Identifier: Apache-2.0 */
/* Launches, copies and sums, element-wise kernels, attention. Their bytes and flops are those that the model counts
 * (docs/model.md). */
#include <string.h>

#include "bench/product.h"
#include "calibrate/calibrate.h"

enum { MAX_BUFFERS = 6 };

/* Arguments of a kernel: memory that all kernels share, and extents. */
typedef struct kernel {
    calibration *c;
    void *buffers[MAX_BUFFERS];
    int64_t n_rows, n_cols; /* of norms; for other kernels n_rows·n_cols elements */
    qdr_attention attention;
} kernel;

static int64_t n_elems(const kernel *k) { return k->n_rows * k->n_cols; }

static qdr_status end(void *user)
{
    const kernel *k = user;
    return qdr_stream_synchronize(qdr_context_stream(k->c->alone));
}

static qdr_status call_nothing(void *user)
{
    const kernel *k = user;
    return qdr_add(k->c->alone, 1, QDR_F32, k->buffers[0], k->buffers[1], k->buffers[2], NULL);
}

static qdr_status call_copy(void *user)
{
    const kernel *k = user;
    return qdr_copy(k->c->alone, k->buffers[0], k->buffers[1], (size_t)n_elems(k) * 4, NULL);
}

static qdr_status call_add(void *user)
{
    const kernel *k = user;
    return qdr_add(k->c->alone, n_elems(k), QDR_F32, k->buffers[0], k->buffers[1], k->buffers[2], NULL);
}

static qdr_status call_gelu(void *user)
{
    const kernel *k = user;
    return qdr_gelu_forward(k->c->alone, n_elems(k), QDR_F32, k->buffers[0], k->buffers[2], NULL);
}

static qdr_status call_gelu_backward(void *user)
{
    const kernel *k = user;
    return qdr_gelu_backward(k->c->alone, n_elems(k), QDR_F32, k->buffers[0], k->buffers[1], k->buffers[2], 0, NULL);
}

static qdr_layer_norm norm_of(const kernel *k)
{
    return (qdr_layer_norm){QDR_OPTS_INIT,           .n_rows = k->n_rows, .n_cols = k->n_cols,
                            .n_features = k->n_cols, .axis = QDR_X,       .dtype = QDR_F32};
}

/* Buffer 3 has rows for gamma, beta and their gradients; buffer 4 statistics; buffer 5 scratch space. */
static float *row(const kernel *k, int index) { return (float *)k->buffers[3] + index * k->n_cols; }

static qdr_status call_norm(void *user)
{
    const kernel *k = user;
    const qdr_layer_norm norm = norm_of(k);
    return qdr_layer_norm_forward(k->c->self, &norm, k->buffers[0], row(k, 0), row(k, 1), k->buffers[2], k->buffers[4],
                                  k->buffers[5], NULL);
}

static qdr_status call_norm_backward(void *user)
{
    const kernel *k = user;
    const qdr_layer_norm norm = norm_of(k);
    return qdr_layer_norm_backward(k->c->self, &norm, k->buffers[0], row(k, 0), k->buffers[1], k->buffers[4],
                                   k->buffers[2], 0, row(k, 2), row(k, 3), 0, k->buffers[5], NULL);
}

static qdr_status call_attention(void *user)
{
    const kernel *k = user;
    return qdr_attention_forward(k->c->alone, &k->attention, k->buffers[0], k->buffers[2], k->buffers[4], k->buffers[5],
                                 NULL);
}

static qdr_status call_attention_backward(void *user)
{
    const kernel *k = user;
    return qdr_attention_backward(k->c->alone, &k->attention, k->buffers[0], k->buffers[2], k->buffers[4],
                                  k->buffers[1], k->buffers[3], k->buffers[5], NULL);
}

/* ---- memory ---- */

static void release(kernel *k)
{
    for (int i = 0; i < MAX_BUFFERS; i++) qdr_mem_free(k->c->alone, &k->buffers[i]);
}

/* All buffers get the size of the largest. */
static int allocate(kernel *k, size_t bytes, failure *why)
{
    for (int i = 0; i < MAX_BUFFERS && !why->code; i++)
        if (!fail_status(why, qdr_mem_alloc(k->c->alone, bytes, &k->buffers[i])))
            product_fill(k->buffers[i], (int64_t)(bytes / 4), QDR_F32);
    return fail_together(why, k->c->ctx);
}

/* ---- what is measured ---- */

/* Per element: the number of 4-byte values moved, and flops; number of kernels. */
typedef struct measured_kernel {
    const char *group;
    qdr_status (*call)(void *user);
    double elems, flops;
    qdr_sample_kind kind;
    int n_kernels;
} measured_kernel;

static const measured_kernel kernels[] = {
    {"launch", call_nothing, 0, 0, QDR_SAMPLE_LAUNCH, 1}, /* at one size */
    {"copy", call_copy, 2, 0, QDR_SAMPLE_MEMORY, 1},
    {"add", call_add, 3, 0, QDR_SAMPLE_MEMORY, 1},
    {"gelu", call_gelu, 2, 12, QDR_SAMPLE_KERNEL, 1},
    {"gelu backward", call_gelu_backward, 3, 20, QDR_SAMPLE_KERNEL, 1},
    {"norm", call_norm, 3, 8, QDR_SAMPLE_KERNEL, 1},
    {"norm backward", call_norm_backward, 5, 14, QDR_SAMPLE_KERNEL, 2},
};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

static int measure_kernels(kernel *k, failure *why)
{
    for (int i = k->c->n_samples ? 1 : 0; i < N_KERNELS && !why->code; i++) {
        const measured_kernel *of = &kernels[i];
        const calibrate_work work = {of->call, end, k, of->kind == QDR_SAMPLE_LAUNCH ? 1024 : 64, 0};
        const double n = (double)n_elems(k);
        qdr_sample s = {.kind = of->kind,
                        .group = of->group,
                        .n_kernels = of->n_kernels,
                        .bytes = 4 * of->elems * n,
                        .flops = of->flops * n};
        if (!calibrate_time(k->c, &work, &s.secs, why)) calibrate_add(k->c, &s);
    }
    return why->code;
}

static int measure_attention(kernel *k, failure *why)
{
    const qdr_attention *a = &k->attention;
    const double rows = (double)a->n_rows, width = (double)(a->n_heads * a->head_size);
    const double flops = 4 * rows * ((double)a->context + 1) / 2 * width;
    for (int backward = 0; backward < 2 && !why->code; backward++) {
        const calibrate_work work = {backward ? call_attention_backward : call_attention, end, k, 64, 0};
        qdr_sample s = {.kind = QDR_SAMPLE_ATTENTION,
                        .group = backward ? "attention backward" : "attention",
                        .n_kernels = backward ? 3 : 1,
                        .dtype = QDR_F32,
                        .bytes = rows * width * 16 * (backward ? 2 : 1),
                        .flops = flops * (backward ? 2.5 : 1)};
        if (!calibrate_time(k->c, &work, &s.secs, why)) calibrate_add(k->c, &s);
    }
    return why->code;
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Bytes for state and workspace of norms and attention, plus 3 values per row. */
static size_t state_bytes(kernel *k, failure *why)
{
    size_t stats = 0, work = 0, saved = 0, more = 0;
    const qdr_layer_norm norm = norm_of(k);
    fail_status(why, qdr_layer_norm_sizes(k->c->self, &norm, &stats, &work));
    if (k->attention.version) fail_status(why, qdr_attention_sizes(&k->attention, &saved, &more));
    return larger(larger(stats, work), larger(saved, more));
}

/* All kernels at one size: rows and columns, sequences of `context` rows in heads of 64. */
static int measure_size(calibration *c, int64_t n_rows, int64_t n_cols, int64_t context, failure *why)
{
    kernel k = {.c = c, .n_rows = n_rows, .n_cols = n_cols};
    if (context) k.attention = (qdr_attention){QDR_OPTS_INIT, n_rows, context, n_cols / 64, n_cols / 64, 64, QDR_F32};
    const size_t bytes = larger((size_t)(n_elems(&k) * (context ? 12 : 4)), state_bytes(&k, why));
    if (!fail_together(why, c->ctx) && !allocate(&k, bytes + (size_t)n_cols * 16, why)) {
        if (context)
            measure_attention(&k, why);
        else
            measure_kernels(&k, why);
    }
    release(&k);
    return why->code;
}

/* Rows and columns; context: for attention, 0: for the other kernels. */
typedef struct kernel_size {
    int n_rows, n_cols, context;
} kernel_size;

static int measure_list(calibration *c, const kernel_size *list, int n, failure *why)
{
    for (int i = 0; i < n && !why->code; i++) measure_size(c, list[i].n_rows, list[i].n_cols, list[i].context, why);
    return why->code;
}

int calibrate_kernels(calibration *c, failure *why)
{
    static const kernel_size sizes[] = {{512, 512, 0},   {2048, 512, 0},  {2048, 2048, 0},
                                        {512, 256, 128}, {512, 512, 256}, {1024, 128, 512}};
    static const kernel_size quick_sizes[] = {{64, 256, 0}, {128, 64, 64}};
    calibrate_show(c, "kernels");
    return c->is_quick ? measure_list(c, quick_sizes, 2, why) : measure_list(c, sizes, 6, why);
}
