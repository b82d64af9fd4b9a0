/* SPDX-License-Identifier: Apache-2.0 */
/* Causal attention as graphs of cuDNN operations, in the form for which its fused kernels are matched (as written by
 * NVIDIA's cudnn-frontend, from which the names of the steps are taken). Heads are [sequence, head, row, column] with
 * the strides of this library's rows; nothing is copied. */
#include <stdio.h>
#include <string.h>

#include "dev/cuda/cudnn.h"

enum { DESCS_MOST = 128, OPS_MOST = 32, CONFIGS_MOST = 16 };

/* The state while a graph and its plan are built. After a failure nothing more is done. */
typedef struct builder {
    const qdri_cudnn *api;
    const qdri_cudnn_shape *shape;
    qdri_cudnn_target target;
    int status; /* the first of cuDNN's that is not success */
    qdri_cudnn_desc descs[DESCS_MOST], ops[OPS_MOST];
    int n_descs, n_ops, next_id;
} builder;

typedef struct tensor {
    qdri_cudnn_desc desc;
    qdri_cudnn_type type;
    int64_t dims[4], strides[4];
} tensor;

enum { TOO_MANY = -1 };

static qdri_cudnn_desc make(builder *b, qdri_cudnn_kind kind)
{
    qdri_cudnn_desc desc = NULL;
    if (b->status == QDRI_CUDNN_SUCCESS && b->n_descs == DESCS_MOST) b->status = TOO_MANY;
    if (b->status == QDRI_CUDNN_SUCCESS) b->status = b->api->desc_create((int)kind, &desc);
    if (b->status == QDRI_CUDNN_SUCCESS) b->descs[b->n_descs++] = desc;
    return desc;
}

static void set(builder *b, qdri_cudnn_desc desc, qdri_cudnn_name name, qdri_cudnn_value type, int64_t n,
                const void *values)
{
    if (b->status == QDRI_CUDNN_SUCCESS) b->status = b->api->desc_set(desc, (int)name, (int)type, n, values);
}

static void set_desc(builder *b, qdri_cudnn_desc desc, qdri_cudnn_name name, qdri_cudnn_desc value)
{
    set(b, desc, name, QDRI_CUDNN_OF_DESCRIPTOR, 1, &value);
}

/* Data types, modes and the like are C enums in cuDNN. */
static void set_enum(builder *b, qdri_cudnn_desc desc, qdri_cudnn_name name, qdri_cudnn_value type, int value)
{
    set(b, desc, name, type, 1, &value);
}

/* Sets the target GPU, by its handle or its description; 0: not by that attribute. */
static void aim(builder *b, qdri_cudnn_desc desc, qdri_cudnn_name by_handle, qdri_cudnn_name by_device)
{
    void *const handle = b->target.handle;
    if (handle && by_handle) set(b, desc, by_handle, QDRI_CUDNN_OF_HANDLE, 1, &handle);
    if (!handle && by_device) set_desc(b, desc, by_device, b->target.device);
}

static void finish(builder *b, qdri_cudnn_desc desc)
{
    if (b->status == QDRI_CUDNN_SUCCESS) b->status = b->api->desc_finalize(desc);
}

typedef struct operand {
    qdri_cudnn_name name;
    qdri_cudnn_desc desc; /* NULL: not given */
} operand;

static void add_op(builder *b, qdri_cudnn_kind kind, int n, const operand operands[])
{
    const qdri_cudnn_desc op = make(b, kind);
    for (int i = 0; i < n; i++)
        if (operands[i].desc) set_desc(b, op, operands[i].name, operands[i].desc);
    finish(b, op);
    if (b->status == QDRI_CUDNN_SUCCESS && b->n_ops == OPS_MOST) b->status = TOO_MANY;
    if (b->status == QDRI_CUDNN_SUCCESS) b->ops[b->n_ops++] = op;
}

static void free_descs(builder *b)
{
    while (b->n_descs > 0) (void)b->api->desc_destroy(b->descs[--b->n_descs]);
}

typedef enum place { IN_MEMORY, IN_BETWEEN, BY_VALUE } place;

static void describe_tensor(builder *b, tensor *t, int64_t id, place where)
{
    const int64_t alignment = where == IN_MEMORY && t->type != QDRI_CUDNN_F32 ? 16 : 4;
    const int is_virtual = where == IN_BETWEEN, is_value = where == BY_VALUE;
    const unsigned char flags[2] = {(unsigned char)is_virtual, (unsigned char)is_value};
    t->desc = make(b, QDRI_CUDNN_TENSOR);
    set_enum(b, t->desc, QDRI_CUDNN_TENSOR_TYPE, QDRI_CUDNN_OF_DATA_TYPE, (int)t->type);
    set(b, t->desc, QDRI_CUDNN_TENSOR_DIMS, QDRI_CUDNN_OF_I64, 4, t->dims);
    set(b, t->desc, QDRI_CUDNN_TENSOR_STRIDES, QDRI_CUDNN_OF_I64, 4, t->strides);
    set(b, t->desc, QDRI_CUDNN_TENSOR_ID, QDRI_CUDNN_OF_I64, 1, &id);
    set(b, t->desc, QDRI_CUDNN_TENSOR_ALIGNMENT, QDRI_CUDNN_OF_I64, 1, &alignment);
    set(b, t->desc, QDRI_CUDNN_TENSOR_VIRTUAL, QDRI_CUDNN_OF_BOOL, 1, &flags[0]);
    set(b, t->desc, QDRI_CUDNN_TENSOR_BY_VALUE, QDRI_CUDNN_OF_BOOL, 1, &flags[1]);
    finish(b, t->desc);
}

static int64_t n_sequences(const builder *b) { return b->shape->n_rows / b->shape->context; }

/* Dense, [n_sequences, heads, rows, cols]. */
static tensor dense(builder *b, qdri_cudnn_type type, int64_t heads, int64_t rows, int64_t cols, int64_t id,
                    place where)
{
    tensor t = {.type = type,
                .dims = {n_sequences(b), heads, rows, cols},
                .strides = {heads * rows * cols, rows * cols, cols, 1}};
    describe_tensor(b, &t, id, where);
    return t;
}

static tensor between(builder *b, qdri_cudnn_type type, int64_t heads, int64_t rows, int64_t cols)
{
    return dense(b, type, heads, rows, cols, b->next_id++, IN_BETWEEN);
}

static tensor scores(builder *b, qdri_cudnn_type type)
{
    return between(b, type, b->shape->n_heads, b->shape->context, b->shape->context);
}

static tensor row_numbers(builder *b) { return between(b, QDRI_CUDNN_F32, b->shape->n_heads, b->shape->context, 1); }

static tensor number(builder *b, qdri_cudnn_id id)
{
    tensor t = {.type = QDRI_CUDNN_F32, .dims = {1, 1, 1, 1}, .strides = {1, 1, 1, 1}};
    describe_tensor(b, &t, id, BY_VALUE);
    return t;
}

static qdri_cudnn_type data_type(const builder *b)
{
    return b->shape->dtype == QDR_F16 ? QDRI_CUDNN_F16 : QDRI_CUDNN_BF16;
}

/* Heads in rows of `width` columns; is_turned: [.., column, row]. */
static tensor heads(builder *b, qdri_cudnn_id id, int64_t n_heads, int64_t width, int is_turned)
{
    const qdri_cudnn_shape *s = b->shape;
    tensor t = {.type = data_type(b),
                .dims = {n_sequences(b), n_heads, s->context, s->head_size},
                .strides = {s->context * width, s->head_size, width, 1}};
    if (is_turned) {
        t.dims[2] = s->head_size, t.dims[3] = s->context;
        t.strides[2] = 1, t.strides[3] = width;
    }
    describe_tensor(b, &t, id, IN_MEMORY);
    return t;
}

static int64_t in_width(const builder *b)
{
    return (b->shape->row_heads + 2 * b->shape->row_kv_heads) * b->shape->head_size;
}

static int64_t out_width(const builder *b) { return b->shape->row_heads * b->shape->head_size; }

/* ---- operations ---- */

static void pointwise(builder *b, qdri_cudnn_mode mode, qdri_cudnn_type type, int64_t axis, qdri_cudnn_desc x,
                      qdri_cudnn_desc with, qdri_cudnn_desc condition, qdri_cudnn_desc y)
{
    const qdri_cudnn_desc what = make(b, QDRI_CUDNN_POINTWISE);
    set_enum(b, what, QDRI_CUDNN_POINTWISE_MODE, QDRI_CUDNN_OF_MODE, (int)mode);
    set_enum(b, what, QDRI_CUDNN_POINTWISE_TYPE, QDRI_CUDNN_OF_DATA_TYPE, (int)type);
    if (mode == QDRI_CUDNN_INDEX) set(b, what, QDRI_CUDNN_POINTWISE_AXIS, QDRI_CUDNN_OF_I64, 1, &axis);
    finish(b, what);
    const operand operands[] = {{QDRI_CUDNN_OP_POINTWISE_DESC, what},
                                {QDRI_CUDNN_OP_POINTWISE_X, x},
                                {QDRI_CUDNN_OP_POINTWISE_B, with},
                                {QDRI_CUDNN_OP_POINTWISE_T, condition},
                                {QDRI_CUDNN_OP_POINTWISE_Y, y}};
    add_op(b, QDRI_CUDNN_OP_POINTWISE, 5, operands);
}

static void map2(builder *b, qdri_cudnn_mode mode, tensor x, tensor with, tensor y)
{
    pointwise(b, mode, QDRI_CUDNN_F32, 0, x.desc, with.desc, NULL, y.desc);
}

static void map1(builder *b, qdri_cudnn_mode mode, tensor x, tensor y)
{
    pointwise(b, mode, QDRI_CUDNN_F32, 0, x.desc, NULL, NULL, y.desc);
}

static tensor map_scores(builder *b, qdri_cudnn_mode mode, tensor x, tensor with)
{
    const tensor y = scores(b, QDRI_CUDNN_F32);
    map2(b, mode, x, with, y);
    return y;
}

static void matmul(builder *b, tensor x, tensor y, tensor result)
{
    const qdri_cudnn_desc what = make(b, QDRI_CUDNN_MATMUL);
    set_enum(b, what, QDRI_CUDNN_MATMUL_TYPE, QDRI_CUDNN_OF_DATA_TYPE, QDRI_CUDNN_F32);
    finish(b, what);
    const operand operands[] = {{QDRI_CUDNN_OP_MATMUL_A, x.desc},
                                {QDRI_CUDNN_OP_MATMUL_B, y.desc},
                                {QDRI_CUDNN_OP_MATMUL_C, result.desc},
                                {QDRI_CUDNN_OP_MATMUL_DESC, what}};
    add_op(b, QDRI_CUDNN_OP_MATMUL, 4, operands);
}

static void reduce(builder *b, int operator, tensor x, tensor y)
{
    const qdri_cudnn_desc what = make(b, QDRI_CUDNN_REDUCTION);
    set_enum(b, what, QDRI_CUDNN_REDUCTION_OPERATOR, QDRI_CUDNN_OF_REDUCTION, operator);
    set_enum(b, what, QDRI_CUDNN_REDUCTION_TYPE, QDRI_CUDNN_OF_DATA_TYPE, QDRI_CUDNN_F32);
    finish(b, what);
    const operand operands[] = {
        {QDRI_CUDNN_OP_REDUCTION_X, x.desc}, {QDRI_CUDNN_OP_REDUCTION_Y, y.desc}, {QDRI_CUDNN_OP_REDUCTION_DESC, what}};
    add_op(b, QDRI_CUDNN_OP_REDUCTION, 3, operands);
}

/* x with its last two dimensions swapped, as numbers of this type. */
static tensor turned(builder *b, tensor x, qdri_cudnn_type type)
{
    tensor y = x;
    y.type = type;
    y.dims[2] = x.dims[3], y.dims[3] = x.dims[2];
    y.strides[2] = x.strides[3], y.strides[3] = x.strides[2];
    describe_tensor(b, &y, b->next_id++, IN_BETWEEN);
    const operand operands[] = {{QDRI_CUDNN_OP_RESHAPE_X, x.desc}, {QDRI_CUDNN_OP_RESHAPE_Y, y.desc}};
    add_op(b, QDRI_CUDNN_OP_RESHAPE, 2, operands);
    return y;
}

/* Masks everything above the diagonal: row >= column ? x : -Inf. */
static tensor masked(builder *b, tensor x)
{
    const tensor row = scores(b, QDRI_CUDNN_I32), col = scores(b, QDRI_CUDNN_I32), seen = scores(b, QDRI_CUDNN_BOOL),
                 y = scores(b, QDRI_CUDNN_F32), hidden = number(b, QDRI_CUDNN_HIDDEN);
    pointwise(b, QDRI_CUDNN_INDEX, QDRI_CUDNN_I32, 2, x.desc, NULL, NULL, row.desc);
    pointwise(b, QDRI_CUDNN_INDEX, QDRI_CUDNN_I32, 3, x.desc, NULL, NULL, col.desc);
    pointwise(b, QDRI_CUDNN_GREATER_EQUAL, QDRI_CUDNN_BOOL, 0, row.desc, col.desc, NULL, seen.desc);
    pointwise(b, QDRI_CUDNN_SELECT, QDRI_CUDNN_F32, 0, x.desc, hidden.desc, seen.desc, y.desc);
    return y;
}

/* ---- the two graphs ---- */

/* S = softmax(mask(scale·Q·Kᵀ)), stats = max + log Σ, O = S·V. */
static void build_forward(builder *b)
{
    const qdri_cudnn_shape *s = b->shape;
    const tensor q = heads(b, QDRI_CUDNN_Q, s->n_heads, in_width(b), 0),
                 k = heads(b, QDRI_CUDNN_K, s->n_kv_heads, in_width(b), 1),
                 v = heads(b, QDRI_CUDNN_V, s->n_kv_heads, in_width(b), 0),
                 o = heads(b, QDRI_CUDNN_O, s->n_heads, out_width(b), 0),
                 stats = dense(b, QDRI_CUDNN_F32, s->n_heads, s->context, 1, QDRI_CUDNN_STATS, IN_MEMORY),
                 scale = number(b, QDRI_CUDNN_SCALE);
    const tensor products = scores(b, QDRI_CUDNN_F32), top = row_numbers(b), sum = row_numbers(b),
                 log_sum = row_numbers(b), powers = scores(b, QDRI_CUDNN_F32), weights = scores(b, data_type(b));
    matmul(b, q, k, products);
    const tensor seen = masked(b, map_scores(b, QDRI_CUDNN_MUL, products, scale));
    reduce(b, QDRI_CUDNN_LARGEST, seen, top);
    map1(b, QDRI_CUDNN_EXP, map_scores(b, QDRI_CUDNN_SUB, seen, top), powers);
    reduce(b, QDRI_CUDNN_SUM, powers, sum);
    map1(b, QDRI_CUDNN_LOG, sum, log_sum);
    map2(b, QDRI_CUDNN_ADD, top, log_sum, stats);
    map2(b, QDRI_CUDNN_DIV, powers, sum, weights);
    matmul(b, weights, v, o);
}

/* result = turned·x, added over the query heads of a key head. */
static void matmul_heads(builder *b, tensor turned_scores, tensor x, tensor result)
{
    const qdri_cudnn_shape *s = b->shape;
    if (s->n_heads == s->n_kv_heads) {
        matmul(b, turned_scores, x, result);
        return;
    }
    const tensor each = between(b, data_type(b), s->n_heads, s->context, s->head_size);
    matmul(b, turned_scores, x, each);
    reduce(b, QDRI_CUDNN_SUM, each, result);
}

/* deltas = Σ dO·O of each row, P = exp(mask(scale·Q·Kᵀ - stats)), dV = Pᵀ·dO, dS = scale·P·(dO·Vᵀ - deltas),
 * dK = dSᵀ·Q, dQ = dS·K. dS is stored in the workspace between the last two: the alternative, in which many blocks add
 * to dQ, has no fixed order. */
static void build_backward(builder *b)
{
    const qdri_cudnn_shape *s = b->shape;
    const tensor q = heads(b, QDRI_CUDNN_Q, s->n_heads, in_width(b), 0),
                 k = heads(b, QDRI_CUDNN_K, s->n_kv_heads, in_width(b), 1),
                 v = heads(b, QDRI_CUDNN_V, s->n_kv_heads, in_width(b), 1),
                 o = heads(b, QDRI_CUDNN_O, s->n_heads, out_width(b), 0),
                 dy = heads(b, QDRI_CUDNN_DO, s->n_heads, out_width(b), 0),
                 dq = heads(b, QDRI_CUDNN_DQ, s->n_heads, in_width(b), 0),
                 dk = heads(b, QDRI_CUDNN_DK, s->n_kv_heads, in_width(b), 0),
                 dv = heads(b, QDRI_CUDNN_DV, s->n_kv_heads, in_width(b), 0),
                 stats = dense(b, QDRI_CUDNN_F32, s->n_heads, s->context, 1, QDRI_CUDNN_STATS, IN_MEMORY),
                 scale = number(b, QDRI_CUDNN_SCALE);
    const tensor all = between(b, QDRI_CUDNN_F32, s->n_heads, s->context, s->head_size), sums = row_numbers(b),
                 deltas = dense(b, QDRI_CUDNN_F32, s->n_heads, s->context, 1, QDRI_CUDNN_DELTAS, IN_MEMORY);
    map2(b, QDRI_CUDNN_MUL, dy, o, all);
    reduce(b, QDRI_CUDNN_SUM, all, sums);
    map2(b, QDRI_CUDNN_MUL, sums, number(b, QDRI_CUDNN_ONE), deltas);
    const tensor products = scores(b, QDRI_CUDNN_F32), weights = scores(b, QDRI_CUDNN_F32),
                 slopes = scores(b, QDRI_CUDNN_F32);
    matmul(b, q, k, products);
    const tensor scaled = map_scores(b, QDRI_CUDNN_MUL, products, scale);
    map1(b, QDRI_CUDNN_EXP, masked(b, map_scores(b, QDRI_CUDNN_SUB, scaled, stats)), weights);
    matmul_heads(b, turned(b, weights, data_type(b)), dy, dv);
    matmul(b, dy, v, slopes);
    const tensor centred = map_scores(b, QDRI_CUDNN_SUB, slopes, deltas);
    const tensor weighted = map_scores(b, QDRI_CUDNN_MUL, centred, weights);
    const tensor ds = map_scores(b, QDRI_CUDNN_MUL, weighted, scale);
    matmul_heads(b, turned(b, ds, data_type(b)), q, dk);
    matmul(b, ds, turned(b, k, data_type(b)), dq);
}

/* 1: the same input gives the same bits, according to cuDNN's notes. */
static int is_deterministic(builder *b, qdri_cudnn_desc config)
{
    int notes[QDRI_CUDNN_N_NOTES] = {0};
    int64_t n = 0;
    qdri_cudnn_desc engine = make(b, QDRI_CUDNN_ENGINE);
    int status = b->status;
    if (status == QDRI_CUDNN_SUCCESS)
        status = b->api->desc_get(config, QDRI_CUDNN_CONFIG_ENGINE, QDRI_CUDNN_OF_DESCRIPTOR, 1, &n, &engine);
    if (status == QDRI_CUDNN_SUCCESS)
        status = b->api->desc_get(engine, QDRI_CUDNN_ENGINE_NOTES, QDRI_CUDNN_OF_NOTE, QDRI_CUDNN_N_NOTES, &n, notes);
    if (qdri_cudnn_is_short(status)) b->status = status;
    if (status != QDRI_CUDNN_SUCCESS) return 0;
    for (int64_t i = 0; i < n && i < QDRI_CUDNN_N_NOTES; i++)
        if (notes[i] == QDRI_CUDNN_NOTE_NONDETERMINISTIC) return 0;
    return 1;
}

/* Returns a status of cuDNN's. */
static int try_config(const builder *b, qdri_cudnn_desc config, qdri_cudnn_plan *plan)
{
    builder one = {.api = b->api, .target = b->target};
    int64_t n = 0;
    const qdri_cudnn_desc made = make(&one, QDRI_CUDNN_PLAN);
    set_desc(&one, made, QDRI_CUDNN_PLAN_CONFIG, config);
    aim(&one, made, QDRI_CUDNN_PLAN_HANDLE, QDRI_CUDNN_PLAN_DEVICE);
    finish(&one, made);
    if (one.status == QDRI_CUDNN_SUCCESS)
        one.status = b->api->desc_get(made, QDRI_CUDNN_PLAN_WORKSPACE, QDRI_CUDNN_OF_I64, 1, &n,
                                      &plan->workspace_bytes);
    if (one.status == QDRI_CUDNN_SUCCESS)
        plan->plan = made;
    else
        free_descs(&one);
    return one.status;
}

static const char too_large[] = "it takes too much workspace";

/* Chooses the first of cuDNN's proposals that is acceptable; the best come first, so one for which memory is short is
 * not passed over. @return why there is none, or NULL */
static const char *choose(builder *b, qdri_cudnn_desc graph, int64_t workspace_most, qdri_cudnn_plan *plan)
{
    qdri_cudnn_desc configs[CONFIGS_MOST];
    const char *why = "it proposes none";
    int64_t n = 0;
    const qdri_cudnn_desc heuristic = make(b, QDRI_CUDNN_HEURISTIC);
    set_desc(b, heuristic, QDRI_CUDNN_HEURISTIC_GRAPH, graph);
    set_enum(b, heuristic, QDRI_CUDNN_HEURISTIC_MODE, QDRI_CUDNN_OF_HEURISTIC, QDRI_CUDNN_HEURISTIC_A);
    aim(b, heuristic, 0, QDRI_CUDNN_HEURISTIC_DEVICE);
    finish(b, heuristic);
    for (int i = 0; i < CONFIGS_MOST; i++) configs[i] = make(b, QDRI_CUDNN_CONFIG);
    if (b->status == QDRI_CUDNN_SUCCESS)
        b->status = b->api->desc_get(heuristic, QDRI_CUDNN_HEURISTIC_RESULTS, QDRI_CUDNN_OF_DESCRIPTOR, CONFIGS_MOST,
                                     &n, configs);
    for (int64_t i = 0; b->status == QDRI_CUDNN_SUCCESS && i < n && i < CONFIGS_MOST; i++) {
        why = "none of its kernels is deterministic";
        if (!is_deterministic(b, configs[i])) continue;
        const int status = try_config(b, configs[i], plan);
        if (status == QDRI_CUDNN_SUCCESS && plan->workspace_bytes <= workspace_most) return NULL;
        why = status == QDRI_CUDNN_SUCCESS ? too_large : b->api->error_string(status);
        if (qdri_cudnn_is_short(status)) b->status = status;
        qdri_cudnn_plan_free(b->api, plan);
    }
    return b->status == QDRI_CUDNN_SUCCESS ? why : b->api->error_string(b->status);
}

qdr_status qdri_cudnn_plan_make(const qdri_cudnn *api, qdri_cudnn_target target, const qdri_cudnn_shape *shape,
                                int is_backward, int64_t workspace_most, qdri_cudnn_plan *plan)
{
    builder b = {.api = api, .shape = shape, .target = target, .next_id = QDRI_CUDNN_N_IDS};
    *plan = (qdri_cudnn_plan){0};
    if (is_backward)
        build_backward(&b);
    else
        build_forward(&b);
    const qdri_cudnn_desc graph = make(&b, QDRI_CUDNN_GRAPH);
    aim(&b, graph, QDRI_CUDNN_GRAPH_HANDLE, 0);
    set(&b, graph, QDRI_CUDNN_GRAPH_OPS, QDRI_CUDNN_OF_DESCRIPTOR, b.n_ops, b.ops);
    finish(&b, graph);
    const char *why = choose(&b, graph, workspace_most, plan);
    free_descs(&b);
    if (!why) return QDR_OK;
    char words[320];
    snprintf(words, sizeof words,
             "cuDNN %zu has no %s attention of %" PRId64 " rows in contexts of %" PRId64 ", %" PRId64
             " heads over %" PRId64 " key heads of size %" PRId64 " in %s: %.120s",
             api->version, is_backward ? "backward" : "forward", shape->n_rows, shape->context, shape->n_heads,
             shape->n_kv_heads, shape->head_size, qdr_dtype_name(shape->dtype), why);
    if (qdri_cudnn_is_short(b.status)) return QDR_FAIL(QDR_ERR_MEMORY, "%s", words);
    return why == too_large ? QDR_FAIL(QDR_ERR_SHAPE, "%s", words) : QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s", words);
}

void qdri_cudnn_plan_free(const qdri_cudnn *api, qdri_cudnn_plan *plan)
{
    if (plan->plan) (void)api->desc_destroy(plan->plan);
    *plan = (qdri_cudnn_plan){0};
}
