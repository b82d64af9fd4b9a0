/* SPDX-License-Identifier: Apache-2.0 */
/* Launches, copies and sums, element-wise kernels, attention. Their bytes and flops are those that the model counts
 * (docs/model.md). */
#include <string.h>

#include "bench/product.h"
#include "calibrate/calibrate.h"
#include "common/memory.h"

/* ---- products of a layer on one rank ---- */

/* Y = X·Wᵀ is NT if W is stored as [out, in] and NN if it is stored as [in, out]; dW = dYᵀ·X is TN. */
typedef struct shape {
    int m, n, k;
} shape;

static const shape shapes[] = {
    {64, 64, 64},     {256, 256, 256},  {512, 512, 512},  {1024, 1024, 1024}, {64, 512, 512},
    {128, 1024, 512}, {512, 64, 512},   {512, 512, 64},   {1024, 128, 1024},  {1024, 1024, 128},
    {2048, 256, 512}, {2048, 512, 128}, {256, 2048, 512}, {4096, 64, 512},    {64, 1024, 2048},
};
static const shape quick_shapes[] = {{64, 64, 64}, {256, 256, 256}, {256, 64, 128}, {128, 256, 64}, {64, 128, 512}};
static const shape other_shapes[] = {
    {128, 128, 128}, {512, 512, 512}, {1024, 256, 512}, {256, 1024, 128}, {512, 128, 1024}};
/* Of GPUs: those of layers, in two bytes, and fewer of the wider types. */
static const shape gpu_shapes[] = {{4096, 4096, 4096}, {8192, 8192, 8192},  {8192, 4096, 4096}, {4096, 12288, 4096},
                                   {4096, 4096, 1024}, {4096, 1024, 4096},  {1024, 4096, 4096}, {16384, 2048, 2048},
                                   {2048, 2048, 2048}, {4096, 16384, 4096}, {8192, 512, 4096},  {512, 4096, 4096},
                                   {4096, 4096, 256},  {1024, 1024, 1024}};
static const shape other_gpu_shapes[] = {
    {4096, 4096, 4096}, {2048, 2048, 2048}, {4096, 1024, 4096}, {1024, 4096, 4096}, {4096, 4096, 1024}};
#define N_OF(list) ((int)(sizeof(list) / sizeof *(list)))

static qdr_status call_forward(void *user)
{
    const product *p = user;
    return qdr_linear_forward(p->layer, p->x, p->y, 0, NULL);
}

static qdr_status call_gradient(void *user)
{
    const product *p = user;
    return qdr_linear_backward(p->layer, p->dy, p->x, NULL, QDR_NO_DX | QDR_DEFER_SYNC, NULL);
}

static const char *const group_names[3][3] = {
    {"product NN f32", "product NT f32", "product TN f32"},
    {"product NN f64", "product NT f64", "product TN f64"},
    {"product NN bf16", "product NT bf16", "product TN bf16"},
};

/* Products of ranks joined by NCCL leave room for it on their GPU, those of a rank alone do not; so the layer is one of
 * all ranks, each of which has its own rows and, since gradients are never summed, sends nothing. */
static qdr_context *context_of(const calibration *c) { return c->is_on_gpu ? c->ctx : c->alone; }

static int measure(calibration *c, product *p, qdr_sample *s, failure *why)
{
    const int type = s->dtype == QDR_F32 ? 0 : s->dtype == QDR_F64 ? 1 : 2;
    const calibrate_work work = {s->mode == QDR_MODE_TN ? call_gradient : call_forward, context_of(c), p, 256, 0};
    s->kind = QDR_SAMPLE_PRODUCT;
    s->group = group_names[type][s->mode];
    if (!calibrate_time(c, &work, &s->secs, why)) calibrate_add(c, s);
    return why->code;
}

/* One layer with one storage of W. */
static int measure_stored(calibration *c, const shape *of, qdr_dtype dtype, qdr_storage storage, failure *why)
{
    const int n_ranks = qdr_context_size(context_of(c));
    const product_desc desc = {
        .m = (int64_t)of->m * n_ranks, .n = of->n, .k = of->k, .dtype = dtype, .n_panels = 1, .storage = storage};
    product p = {0};
    qdr_sample forward = {
        .dtype = dtype, .mode = storage == QDR_IN_OUT ? QDR_MODE_NN : QDR_MODE_NT, .m = of->m, .n = of->n, .k = of->k};
    qdr_sample gradient = {.dtype = dtype, .mode = QDR_MODE_TN, .m = of->n, .n = of->k, .k = of->m};
    fail_status(why, product_create(context_of(c), (grid_size){1, 1, 1, n_ranks}, &desc, &p));
    if (!fail_together(why, c->ctx) && !measure(c, &p, &forward, why) && storage == QDR_OUT_IN)
        measure(c, &p, &gradient, why);
    product_destroy(&p);
    return why->code;
}

static int measure_shapes(calibration *c, const shape *list, int n, qdr_dtype dtype, failure *why)
{
    for (int i = 0; i < n && !why->code; i++)
        if (!measure_stored(c, &list[i], dtype, QDR_OUT_IN, why)) measure_stored(c, &list[i], dtype, QDR_IN_OUT, why);
    return why->code;
}

#define LIST(list) list, N_OF(list)

/* Types of which nothing is known must be measured, however quickly. */
static int measure_quickly(calibration *c, failure *why)
{
    static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16};
    for (int i = 0; i < 3 && !why->code; i++)
        if (c->is_on_gpu || types[i] == QDR_F32 || types[i] == c->run.dtype)
            measure_shapes(c, LIST(quick_shapes), types[i], why);
    return why->code;
}

int calibrate_products(calibration *c, failure *why)
{
    calibrate_show(c, "products");
    if (c->is_quick) return measure_quickly(c, why);
    if (c->is_on_gpu) {
        if (measure_shapes(c, LIST(other_gpu_shapes), QDR_F32, why) ||
            measure_shapes(c, LIST(other_gpu_shapes), QDR_F64, why))
            return why->code;
        return measure_shapes(c, LIST(gpu_shapes), QDR_BF16, why);
    }
    if (measure_shapes(c, LIST(shapes), QDR_F32, why) || measure_shapes(c, LIST(other_shapes), QDR_F64, why))
        return why->code;
    return measure_shapes(c, LIST(other_shapes), QDR_BF16, why);
}

/* ---- kernels ---- */

enum { MAX_BUFFERS = 6 };

enum { LAUNCH, COPY, ADD, GELU, GELU_BACKWARD, NORM, NORM_BACKWARD, ATTENTION, ATTENTION_BACKWARD };

/* A kernel and its arguments: memory that all kernels share, and extents. For norms, buffer 3 has rows for gamma, beta
 * and their gradients, buffer 4 statistics, and buffer 5 scratch space. */
typedef struct kernel {
    calibration *c;
    int name;
    void *buffers[MAX_BUFFERS];
    int64_t n_elems;
    qdr_dtype dtype;
    qdr_layer_norm norm;
    qdr_attention attention;
} kernel;

static qdr_status call(void *user)
{
    const kernel *k = user;
    void *const *b = k->buffers;
    qdr_context *ctx = k->c->alone;
    const int64_t n = k->n_elems;
    float *rows = b[3];
    switch (k->name) {
    case LAUNCH: return qdr_add(ctx, 1, QDR_F32, b[0], b[1], b[2], NULL);
    case COPY: return qdr_copy(ctx, b[0], b[1], (size_t)n * qdr_dtype_bytes(k->dtype), NULL);
    case ADD: return qdr_add(ctx, n, QDR_F32, b[0], b[1], b[2], NULL);
    case GELU: return qdr_gelu_forward(ctx, n, QDR_F32, b[0], b[2], NULL);
    case GELU_BACKWARD: return qdr_gelu_backward(ctx, n, QDR_F32, b[0], b[1], b[2], 0, NULL);
    case NORM:
        return qdr_layer_norm_forward(k->c->self, &k->norm, b[0], rows, rows + k->norm.n_cols, b[2], b[4], b[5], NULL);
    case NORM_BACKWARD:
        return qdr_layer_norm_backward(k->c->self, &k->norm, b[0], rows, b[1], b[4], b[2], 0, rows + 2 * k->norm.n_cols,
                                       rows + 3 * k->norm.n_cols, 0, b[5], NULL);
    case ATTENTION: return qdr_attention_forward(ctx, &k->attention, b[0], b[2], b[4], b[5], NULL);
    default: return qdr_attention_backward(ctx, &k->attention, b[0], b[2], b[4], b[1], b[3], b[5], NULL);
    }
}

/* Per element: the number of values moved, and flops, those of attention for each row that it reads; number of
 * kernels. */
typedef struct measured_kernel {
    const char *group;
    int name;
    double elems, flops;
    qdr_sample_kind kind;
    int n_kernels;
} measured_kernel;

static const measured_kernel kernels[] = {
    {"launch", LAUNCH, 0, 0, QDR_SAMPLE_LAUNCH, 1}, /* at one size */
    {"copy", COPY, 2, 0, QDR_SAMPLE_MEMORY, 1},
    {"add", ADD, 3, 0, QDR_SAMPLE_MEMORY, 1},
    {"gelu", GELU, 2, 12, QDR_SAMPLE_KERNEL, 1},
    {"gelu backward", GELU_BACKWARD, 3, 20, QDR_SAMPLE_KERNEL, 1},
    {"norm", NORM, 3, 8, QDR_SAMPLE_KERNEL, 1},
    {"norm backward", NORM_BACKWARD, 5, 14, QDR_SAMPLE_KERNEL, 2},
    {"attention", ATTENTION, 4, 4, QDR_SAMPLE_ATTENTION, 1},
    {"attention backward", ATTENTION_BACKWARD, 8, 10, QDR_SAMPLE_ATTENTION, 3},
};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Rows and columns; context: for attention, 0: for the other kernels. */
typedef struct kernel_size {
    int n_rows, n_cols, context, head_size;
} kernel_size;

/* All kernels at one size; attention in sequences of `context` rows. */
static int measure_size(calibration *c, const kernel_size *size, failure *why)
{
    const int64_t n_rows = size->n_rows, n_cols = size->n_cols, context = size->context;
    /* A GPU's attention is fast in two bytes only. */
    const qdr_dtype dtype = context && c->is_on_gpu ? QDR_BF16 : QDR_F32;
    kernel k = {.c = c,
                .n_elems = n_rows * n_cols,
                .dtype = dtype,
                .norm = {QDR_OPTS_INIT, .n_rows = n_rows, .n_cols = n_cols, .n_features = n_cols, .axis = QDR_X,
                         .dtype = QDR_F32}};
    const int64_t n_heads = context ? n_cols / size->head_size : 0;
    if (context)
        k.attention = (qdr_attention){QDR_OPTS_INIT, n_rows, context, n_heads, n_heads, size->head_size, dtype};
    /* All buffers get the size of the largest, also of state and workspace of norms and attention. */
    size_t stats = 0, scratch = 0, saved = 0, more = 0;
    fail_status(why, qdr_layer_norm_sizes(c->self, &k.norm, &stats, &scratch));
    if (context) fail_status(why, qdr_attention_sizes(&k.attention, &saved, &more));
    const size_t state = larger(larger(stats, scratch), larger(saved, more));
    const size_t largest = larger((size_t)(k.n_elems * (context ? 12 : 4)), state);
    const size_t bytes = largest + (size_t)n_cols * 16, each = qdr_dtype_bytes(dtype);
    if (!fail_together(why, c->ctx)) {
        for (int i = 0; i < MAX_BUFFERS && !why->code; i++)
            if (!fail_status(why, qdr_mem_alloc(c->alone, bytes, &k.buffers[i])))
                fail_status(why, memory_fill(c->alone, k.buffers[i], (int64_t)(bytes / each), dtype));
        fail_together(why, c->ctx);
    }
    const double n = (double)k.n_elems, n_read = context ? ((double)context + 1) / 2 : 1;
    for (int i = c->n_samples ? 1 : 0; i < N_KERNELS && !why->code; i++) {
        const measured_kernel *of = &kernels[i];
        const calibrate_work work = {call, c->alone, &k, of->kind == QDR_SAMPLE_LAUNCH ? 1024 : 64, 0};
        if ((of->kind == QDR_SAMPLE_ATTENTION) != (context > 0)) continue;
        if (of->kind == QDR_SAMPLE_LAUNCH && c->is_on_gpu) continue; /* launches.c */
        k.name = of->name;
        qdr_sample s = {.kind = of->kind,
                        .group = of->group,
                        .n_kernels = of->n_kernels,
                        .dtype = dtype,
                        .bytes = (double)each * of->elems * n,
                        .flops = of->flops * n * n_read};
        if (!calibrate_time(c, &work, &s.secs, why)) calibrate_add(c, &s);
    }
    for (int i = 0; i < MAX_BUFFERS; i++) qdr_mem_free(c->alone, &k.buffers[i]);
    return why->code;
}

int calibrate_kernels(calibration *c, failure *why)
{
    static const kernel_size sizes[] = {{512, 512, 0, 0},    {2048, 512, 0, 0},   {2048, 2048, 0, 0},
                                        {512, 256, 128, 64}, {512, 512, 256, 64}, {1024, 128, 512, 64}};
    static const kernel_size gpu_sizes[] = {{8192, 4096, 0, 0},      {16384, 4096, 0, 0},     {8192, 8192, 0, 0},
                                            {8192, 4096, 1024, 128}, {8192, 4096, 2048, 128}, {8192, 4096, 4096, 128}};
    static const kernel_size quick_sizes[] = {{64, 256, 0, 0}, {128, 64, 64, 64}};
    const kernel_size *list = c->is_quick ? quick_sizes : c->is_on_gpu ? gpu_sizes : sizes;
    calibrate_show(c, "kernels");
    for (int i = 0; i < (c->is_quick ? 2 : 6) && !why->code; i++) measure_size(c, &list[i], why);
    return why->code;
}
