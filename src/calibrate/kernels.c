/* SPDX-License-Identifier: Apache-2.0 */
/* Launches, copies and sums, element-wise kernels, attention. Their bytes and flops are those that the model counts
 * (docs/model.md). */
#include <quadrille/graph.h>

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

/* ---- kernels, each of a stack that has nothing else ---- */

enum { N_LAUNCHES = 64 };
enum { LAUNCH, COPY, ADD, GELU, GATE, NORM, RMS_NORM, ATTENTION, TURNED };

/* Of how many rows and columns; context: for attention, 0: for the other kernels. */
typedef struct kernel_size {
    int n_rows, n_cols, context, head_size;
} kernel_size;

typedef struct kernel {
    qdr_stack *stack;
    qdr_graph *graph; /* of a GPU's launches, which its host would delay */
    void *from, *to; /* values of its first and last edge */
    size_t bytes;
} kernel;

/* Per element of the input, of attention of the queries: the number of values moved, and flops, those of attention for
 * each row that it reads; number of kernels. */
typedef struct measured_kernel {
    const char *group;
    int name, backward;
    double elems, flops;
    qdr_sample_kind kind;
    int n_kernels;
} measured_kernel;

static const measured_kernel kernels[] = {
    {"launch", LAUNCH, 0, 0, 0, QDR_SAMPLE_LAUNCH, N_LAUNCHES}, /* at one size */
    {"copy", COPY, 0, 2, 0, QDR_SAMPLE_MEMORY, 1},
    {"add", ADD, 0, 3, 0, QDR_SAMPLE_MEMORY, 1},
    {"gelu", GELU, 0, 2, 12, QDR_SAMPLE_KERNEL, 1},
    {"gelu backward", GELU, 1, 3, 20, QDR_SAMPLE_KERNEL, 1},
    {"gate", GATE, 0, 1.5, 4.5, QDR_SAMPLE_KERNEL, 1}, /* SiLU, whose output is half as wide */
    {"gate backward", GATE, 1, 2.5, 9, QDR_SAMPLE_KERNEL, 1},
    {"norm", NORM, 0, 3, 8, QDR_SAMPLE_KERNEL, 1},
    {"norm backward", NORM, 1, 5, 14, QDR_SAMPLE_KERNEL, 2},
    {"RMS norm", RMS_NORM, 0, 3, 5, QDR_SAMPLE_KERNEL, 1},
    {"RMS norm backward", RMS_NORM, 1, 5, 10, QDR_SAMPLE_KERNEL, 2},
    {"attention", ATTENTION, 0, 4, 4, QDR_SAMPLE_ATTENTION, 1},
    {"attention backward", ATTENTION, 1, 8, 10, QDR_SAMPLE_ATTENTION, 3},
    {"turned attention", TURNED, 0, 4, 4, QDR_SAMPLE_ATTENTION, 3}, /* with rotary positions */
    {"turned attention backward", TURNED, 1, 8, 10, QDR_SAMPLE_ATTENTION, 7},
};
enum { N_KERNELS = sizeof kernels / sizeof *kernels };

static int is_attention(const measured_kernel *of) { return of->name == ATTENTION || of->name == TURNED; }

static qdr_status call_copy(void *user)
{
    const kernel *k = user;
    return qdr_copy(qdr_grid_context(qdr_stack_grid(k->stack)), k->from, k->to, k->bytes, NULL);
}

static qdr_status call_stack(void *user)
{
    const kernel *k = user;
    return k->graph ? qdr_graph_launch(k->graph, NULL) : qdr_stack_forward(k->stack);
}

static qdr_status call_stack_backward(void *user) { return qdr_stack_backward(((const kernel *)user)->stack, 0, 1); }

static qdr_status record(kernel *k)
{
    qdr_status status = qdr_graph_begin(qdr_grid_context(qdr_stack_grid(k->stack)));
    if (status >= 0) status = qdr_stack_forward(k->stack);
    return status < 0 ? status : qdr_graph_end(qdr_grid_context(qdr_stack_grid(k->stack)), &k->graph);
}

/* Adds the operation, or several, whose last edge is *edge. */
static qdr_status add_operation(qdr_stack *stack, int name, const kernel_size *size, qdr_edge *edge)
{
    const qdr_edge in = *edge;
    const qdr_norm_desc norm = {QDR_INIT(qdr_norm_desc), .name = "norm",
                                .kind = name == RMS_NORM ? QDR_NORM_RMS : QDR_NORM_LAYER};
    static const double frequencies[QDR_ROTARY_MOST_FACTORS] = {1}; /* values do not matter */
    const qdr_attention_desc attention = {QDR_INIT(qdr_attention_desc),
                                          .name = "attention",
                                          .head_size = size->head_size,
                                          .context = size->context,
                                          .rotary_columns = name == TURNED ? size->head_size : 0,
                                          .frequencies = frequencies};
    const qdr_activation_desc gate = {QDR_INIT(qdr_activation_desc), .name = "gate", .function = QDR_SILU, .gated = 1};
    qdr_status status = QDR_OK;
    switch (name) {
    case GELU: return qdr_stack_add_gelu(stack, "gelu", in, edge);
    case GATE: return qdr_stack_add_activation(stack, &gate, in, edge);
    case NORM:
    case RMS_NORM: return qdr_stack_add_norm(stack, &norm, in, edge);
    case ATTENTION:
    case TURNED: return qdr_stack_add_attention(stack, &attention, in, edge);
    default: break;
    }
    for (int i = 0; i < (name == LAUNCH ? N_LAUNCHES : 1) && status >= 0; i++)
        status = qdr_stack_add_residual(stack, "add", *edge, in, edge);
    return status;
}

static qdr_status fill(qdr_stack *stack, qdr_edge edge, int gradient, qdr_dtype dtype, void **there)
{
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    TRY(qdr_stack_edge_owned(stack, edge, &owned));
    TRY(gradient ? qdr_stack_edge_gradient(stack, edge, there) : qdr_stack_edge_value(stack, edge, there));
    return memory_fill(qdr_grid_context(qdr_stack_grid(stack)), *there, owned.n_rows * owned.n_cols, dtype);
}

static qdr_status make(const calibration *c, const measured_kernel *of, const kernel_size *size, qdr_dtype dtype,
                       kernel *made)
{
    const int is_launch = of->name == LAUNCH;
    const int64_t n_cols = is_launch ? 1 : size->n_cols, n_rows = is_launch ? 1 : size->n_rows;
    const qdr_block heads = {n_cols, size->head_size};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = n_rows, .dtype = dtype,
                                 .row_unit = is_attention(of) ? size->context : 1};
    qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{n_cols, 1}}, .col_axis = QDR_X};
    for (int i = 0; i < 3 && is_attention(of); i++) input.cols[i] = heads;
    for (int i = 0; i < 2 && of->name == GATE; i++) input.cols[i] = (qdr_block){n_cols / 2, 1};
    qdr_edge first = 0, last = 0;
    void *gradient;
    TRY(qdr_stack_create(c->self, &opts, &made->stack));
    TRY(qdr_stack_add_input(made->stack, "input", &input, 1, &first));
    last = first;
    TRY(add_operation(made->stack, of->name, size, &last));
    TRY(qdr_stack_build(made->stack));
    TRY(fill(made->stack, first, 0, dtype, &made->from));
    TRY(fill(made->stack, last, 0, dtype, &made->to));
    TRY(fill(made->stack, last, 1, dtype, &gradient));
    TRY(qdr_stack_forward(made->stack));
    if (is_launch && c->is_on_gpu) TRY(record(made));
    made->bytes = (size_t)(n_rows * n_cols) * qdr_dtype_bytes(dtype);
    return QDR_OK;
}

static int measure_kernel(calibration *c, const measured_kernel *of, const kernel_size *size, failure *why)
{
    /* A GPU's attention is fast in two bytes only. */
    const qdr_dtype dtype = is_attention(of) && c->is_on_gpu ? QDR_BF16 : QDR_F32;
    const double n = (double)size->n_rows * size->n_cols;
    const double n_read = is_attention(of) ? ((double)size->context + 1) / 2 : 1;
    const double n_turned = of->name == TURNED ? 2 * n * (1 + of->backward) : 0; /* elements of queries and keys */
    kernel k = {0};
    const calibrate_work work = {of->name == COPY ? call_copy
                                 : of->backward   ? call_stack_backward
                                                  : call_stack,
                                 c->alone, &k, of->kind == QDR_SAMPLE_LAUNCH ? 1024 / N_LAUNCHES : 64, 0};
    qdr_sample s = {.kind = of->kind,
                    .group = of->group,
                    .n_kernels = of->n_kernels,
                    .dtype = dtype,
                    .bytes = (double)qdr_dtype_bytes(dtype) * of->elems * n,
                    .flops = of->flops * n * n_read,
                    .turn_bytes = (double)qdr_dtype_bytes(dtype) * 2 * n_turned,
                    .turn_flops = 3 * n_turned};
    fail_status(why, make(c, of, size, dtype, &k));
    if (!fail_together(why, c->ctx) && !calibrate_time(c, &work, &s.secs, why)) calibrate_add(c, &s);
    qdr_graph_destroy(&k.graph);
    qdr_stack_destroy(&k.stack);
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
    for (int i = 0; i < (c->is_quick ? 2 : 6); i++)
        for (int j = 0; j < N_KERNELS && !why->code; j++) {
            if (is_attention(&kernels[j]) != (list[i].context > 0)) continue;
            if (kernels[j].name == LAUNCH && i > 0) continue;
            measure_kernel(c, &kernels[j], &list[i], why);
        }
    return why->code;
}
