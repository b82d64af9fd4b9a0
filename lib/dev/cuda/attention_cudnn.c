/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by cuDNN: one handle per device, plans by shape. A shape has the plans of both passes, or none. The
 * workspace of its backward pass is bounded by what is free: where memory is short, that pass runs piece by piece. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/operands.h"
#include "core/size.h"
#include "dev/cuda/cuda.h"
#include "dev/cuda/cudnn.h"

enum { SHAPES_MOST = 32 }; /* further shapes use the library's own kernels */

/* A new shape's workspace is at most this part of the free memory, of which other arrays may still need the rest, and
 * this many bytes: pieces with 2 GiB of scores' gradients keep a GPU busy, and cuDNN needs a little more. */
enum { PARTS_OF_FREE = 8 };
#define WORKSPACE_MOST ((int64_t)9 << 28)

typedef struct shape_plans {
    qdri_cudnn_shape shape;
    qdri_cudnn_shape piece; /* of one run of the backward plan */
    int is_own; /* 1: cuDNN does not compute this shape */
    /* 1: there was too little memory, for plans or even for the smallest piece. The library's own kernels compute both
     * passes until the forward pass with these statistics (NULL: any) comes round: so a step's passes use the same
     * kernels. */
    int is_short;
    const void *short_since;
    qdri_cudnn_plan forward, backward;
    float scale, hidden, one;
} shape_plans;

struct qdri_cuda_attention {
    const qdri_cudnn *api; /* NULL: cuDNN is not used */
    void *handle; /* NULL until there are plans */
    int is_full; /* that there are too many shapes has been logged */
    int n_shapes;
    shape_plans shapes[SHAPES_MOST];
    qdri_cudnn_plan *replaced; /* kept, since recorded work may use them */
    int n_replaced, replaced_capacity;
};

static qdr_status cudnn_status(const qdri_cuda_dev *dev, int status, const char *call)
{
    if (status == QDRI_CUDNN_SUCCESS) return QDR_OK;
    return QDR_FAIL(QDR_ERR_DEVICE, "cuDNN: %s on GPU %d failed: %s; use QDR_ATTENTION=own", call, dev->opts.number,
                    dev->attention->api->error_string(status));
}

/* A warning only if cuDNN was requested. */
static void say_own(const qdri_cuda_dev *dev, const char *why)
{
    qdri_log(dev->opts.attention == QDRI_ATTENTION_CUDNN ? QDRI_LOG_WARNING : QDRI_LOG_INFO,
             "attention: the library's own kernels compute it: %s", why);
}

/* Tries only once. A missing cuDNN is not an error. */
static qdr_status open_cudnn(qdri_cuda_dev *dev)
{
    const qdr_gpu *gpu = &dev->gpu;
    qdr_status status;
    if (dev->attention) return QDR_OK;
    QDR_TRY(QDRI_NEW(1, "plans of attention", &dev->attention));
    if (gpu->major > 9) /* a deterministic backward pass must be requested by an engine's number there */
        status = QDR_FAIL(QDR_ERR_UNSUPPORTED,
                          "cuDNN: on GPU %d, of compute capability %d.%d, its backward pass is not known "
                          "to be deterministic; up to 9.0 it is",
                          gpu->number, gpu->major, gpu->minor);
    else
        status = qdri_cudnn_open(&dev->attention->api);
    if (status != QDR_OK) say_own(dev, qdr_last_error());
    return QDR_OK;
}

void qdri_cuda_attention_free(qdri_cuda_dev *dev)
{
    struct qdri_cuda_attention *self = dev->attention;
    if (!self) return;
    for (int i = 0; i < self->n_shapes; i++) {
        qdri_cudnn_plan_free(self->api, &self->shapes[i].forward);
        qdri_cudnn_plan_free(self->api, &self->shapes[i].backward);
    }
    for (int i = 0; i < self->n_replaced; i++) qdri_cudnn_plan_free(self->api, &self->replaced[i]);
    free(self->replaced);
    if (self->api && self->handle) (void)self->api->destroy(self->handle);
    free(self);
    dev->attention = NULL;
}

/* ---- plans ---- */

static int64_t largest_part(int64_t n)
{
    int64_t divisor = 2;
    while (n % divisor) divisor++;
    return n / divisor;
}

/* The next smaller piece: of fewer sequences or, of a single one, of fewer heads. 0: there is none. */
static int shrink(qdri_cudnn_shape *piece)
{
    const int64_t n_sequences = piece->n_rows / piece->context, heads_per_key = piece->n_heads / piece->n_kv_heads;
    if (n_sequences == 1 && piece->n_kv_heads == 1) return 0;
    if (n_sequences > 1)
        piece->n_rows = largest_part(n_sequences) * piece->context;
    else
        piece->n_kv_heads = largest_part(piece->n_kv_heads);
    piece->n_heads = heads_per_key * piece->n_kv_heads;
    return 1;
}

static int64_t n_pieces(const shape_plans *plans)
{
    return plans->shape.n_rows / plans->piece.n_rows * (plans->shape.n_heads / plans->piece.n_heads);
}

/* Plans the backward pass in the largest pieces, from plans->piece on, for which this much workspace suffices; the
 * smallest ones may need more. */
static qdr_status plan_backward(const struct qdri_cuda_attention *self, int64_t workspace_most, shape_plans *plans)
{
    const qdri_cudnn_target target = {.handle = self->handle};
    for (;;) {
        qdri_cudnn_shape smaller = plans->piece;
        const int64_t most = shrink(&smaller) ? workspace_most : INT64_MAX;
        const qdr_status status = qdri_cudnn_plan_make(self->api, target, &plans->piece, 1, most, &plans->backward);
        if (status != QDR_ERR_SHAPE) return status;
        plans->piece = smaller;
    }
}

static void say_pieces(int level, const shape_plans *plans)
{
    qdri_log(level,
             "attention: cuDNN's backward pass of %" PRId64 " rows in contexts of %" PRId64 " and %" PRId64
             " heads runs in %" PRId64 " pieces, each of which needs %" PRId64
             " bytes of workspace; a different number of pieces may round differently",
             plans->shape.n_rows, plans->shape.context, plans->shape.n_heads, n_pieces(plans),
             plans->backward.workspace_bytes);
}

static qdr_status open_handle(qdri_cuda_dev *dev)
{
    void *made = NULL;
    const int error = dev->attention->api->create(&made);
    const qdr_status status = cudnn_status(dev, error, "cudnnCreate");
    if (status == QDR_OK) dev->attention->handle = made;
    return qdri_cudnn_is_short(error) ? QDR_ERR_MEMORY : status;
}

static qdr_status make_plans(qdri_cuda_dev *dev, shape_plans *plans)
{
    const struct qdri_cuda_attention *self = dev->attention;
    size_t bytes_free = 0, bytes = 0;
    qdri_cuda_free_bytes(&dev->base, &bytes_free, &bytes);
    int64_t most = bytes ? (int64_t)(bytes_free / PARTS_OF_FREE) : WORKSPACE_MOST;
    if (most > WORKSPACE_MOST) most = WORKSPACE_MOST;
    if (!self->handle) QDR_TRY(open_handle(dev));
    const qdri_cudnn_target target = {.handle = self->handle};
    if (!plans->forward.plan)
        QDR_TRY(qdri_cudnn_plan_make(self->api, target, &plans->shape, 0, INT64_MAX, &plans->forward));
    plans->piece = plans->shape;
    QDR_TRY(plan_backward(self, most, plans));
    if (n_pieces(plans) > 1) say_pieces(QDRI_LOG_INFO, plans);
    return QDR_OK;
}

/* Makes the plans of a shape that has none. Only what cuDNN refuses is not tried again. */
static qdr_status need_plans(qdri_cuda_dev *dev, shape_plans *plans)
{
    if (plans->backward.plan) return QDR_OK;
    const qdr_status status = make_plans(dev, plans);
    plans->is_own = status != QDR_OK && status != QDR_ERR_MEMORY;
    if (plans->is_own) say_own(dev, qdr_last_error());
    return status;
}

static int is_same(const qdri_cudnn_shape *a, const qdri_cudnn_shape *b)
{
    return a->n_rows == b->n_rows && a->context == b->context && a->n_heads == b->n_heads &&
           a->n_kv_heads == b->n_kv_heads && a->head_size == b->head_size && a->dtype == b->dtype;
}

static double usual_scale(int64_t head_size) { return 1 / sqrt((double)head_size); }

/* NULL: the list is full. */
static shape_plans *find_or_add(qdri_cuda_dev *dev, const qdri_cudnn_shape *shape)
{
    struct qdri_cuda_attention *self = dev->attention;
    for (int i = 0; i < self->n_shapes; i++)
        if (is_same(&self->shapes[i].shape, shape)) return &self->shapes[i];
    if (self->n_shapes == SHAPES_MOST) {
        if (!self->is_full) say_own(dev, "cuDNN has plans for 32 shapes already");
        self->is_full = 1;
        return NULL;
    }
    shape_plans *made = &self->shapes[self->n_shapes++];
    *made = (shape_plans){
        .shape = *shape, .scale = (float)usual_scale(shape->head_size), .hidden = -INFINITY, .one = 1};
    return made;
}

/* What the records in docs/benchmarks/gpu have measured, in which cuDNN takes half the time. The numbers of heads and
 * of sequences do not matter: each head is computed alone. */
static int is_recorded(const qdr_gpu *gpu, const qdri_cudnn_shape *shape)
{
    return gpu->major == 9 && gpu->minor == 0 && shape->dtype == QDR_BF16 && shape->head_size == 128 &&
           shape->n_kv_heads == shape->n_heads && shape->context == 2048;
}

/* Without what only the library's own kernels have. */
static int is_plain(const qdri_kernel *kernel)
{
    return kernel->u.attention.window == kernel->u.attention.context && !(kernel->u.attention.cap > 0) &&
           !qdri_attention_turns(kernel) && !kernel->u.attention.has_sinks && !kernel->u.attention.first_keys &&
           (float)kernel->u.attention.scale == (float)usual_scale(kernel->u.attention.head_size);
}

/* *plans = NULL: the library's own kernels compute this one. */
static qdr_status find_plans(qdri_cuda_dev *dev, const qdri_kernel *kernel, shape_plans **plans)
{
    const qdri_cudnn_shape shape = {.n_rows = kernel->u.attention.n_rows,
                                    .context = kernel->u.attention.context,
                                    .n_heads = kernel->u.attention.n_heads,
                                    .n_kv_heads = kernel->u.attention.n_kv_heads,
                                    .head_size = kernel->u.attention.head_size,
                                    .row_heads = kernel->u.attention.n_heads,
                                    .row_kv_heads = kernel->u.attention.n_kv_heads,
                                    .dtype = kernel->dtype};
    const uintptr_t all = (uintptr_t)kernel->u.attention.qkv | (uintptr_t)kernel->u.attention.out |
                          (uintptr_t)kernel->u.attention.y | (uintptr_t)kernel->u.attention.dy;
    *plans = NULL;
    if (dev->opts.attention == QDRI_ATTENTION_OWN || !qdri_is_narrow(shape.dtype) || shape.n_rows == 0 ||
        shape.n_heads == 0 || shape.head_size % 8 != 0 || all % 16 != 0 || !is_plain(kernel))
        return QDR_OK;
    if (dev->opts.attention == QDRI_ATTENTION_AUTO && !is_recorded(&dev->gpu, &shape)) return QDR_OK;
    QDR_TRY(open_cudnn(dev));
    if (!dev->attention->api) return QDR_OK;
    *plans = find_or_add(dev, &shape);
    if (*plans && (*plans)->is_own) *plans = NULL;
    return QDR_OK;
}

/* ---- workspace ---- */

static size_t workspace_bytes(const shape_plans *plans)
{
    const int64_t forward = plans->forward.workspace_bytes, backward = plans->backward.workspace_bytes;
    return (size_t)(forward > backward ? forward : backward);
}

size_t qdri_cuda_kernel_bytes(qdr_stream *stream, const qdri_kernel *kernel)
{
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    shape_plans *plans = NULL;
    QDRI_CUDA_VISIT(dev);
    if (visited != cudaSuccess || find_plans(dev, kernel, &plans) != QDR_OK || !plans) return 0;
    return need_plans(dev, plans) == QDR_OK ? workspace_bytes(plans) : 0;
}

/* If there is too little memory, the first pass that needs it makes do with less. */
void qdri_cuda_reserve_kernel(qdr_stream *stream, size_t bytes)
{
    void *space = NULL;
    const qdr_status status = qdri_cuda_find_space(stream, QDRI_SPACE_ATTENTION, bytes, &space);
    (void)status;
}

/* Plans the backward pass in smaller pieces. 0: there are none. */
static int use_smaller_pieces(struct qdri_cuda_attention *self, shape_plans *plans)
{
    const shape_plans before = *plans;
    if (!plans->backward.plan || !shrink(&plans->piece)) return 0;
    qdr_status status = qdri_list_grow((void **)&self->replaced, self->n_replaced, &self->replaced_capacity,
                                       sizeof *self->replaced, "plans of attention");
    if (status == QDR_OK) status = plan_backward(self, before.backward.workspace_bytes - 1, plans);
    if (status != QDR_OK) {
        *plans = before;
        return 0;
    }
    self->replaced[self->n_replaced++] = before.backward;
    say_pieces(QDRI_LOG_WARNING, plans);
    return 1;
}

/* The stream's workspace for both passes of a shape; NULL: the library's own kernels must compute this pass. */
static void *find_workspace(qdr_stream *stream, const qdri_kernel *kernel, shape_plans *plans)
{
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    const int is_backward = kernel->kind == QDRI_K_ATTENTION_BACKWARD;
    const void *statistics = kernel->u.attention.saved;
    void *workspace = NULL;
    qdr_status status;
    if (plans->is_short && (is_backward || (plans->short_since && plans->short_since != statistics))) return NULL;
    do {
        status = need_plans(dev, plans);
        if (plans->is_own) return NULL;
        if (status == QDR_OK)
            status = qdri_cuda_find_space(stream, QDRI_SPACE_ATTENTION, workspace_bytes(plans), &workspace);
    } while (status == QDR_ERR_MEMORY && use_smaller_pieces(dev->attention, plans));
    if (status != QDR_OK) {
        if (!plans->is_short) say_own(dev, qdr_last_error());
        plans->is_short = 1;
        plans->short_since = is_backward ? NULL : statistics;
        return NULL;
    }
    if (plans->is_short) qdri_log(QDRI_LOG_WARNING, "attention: cuDNN has enough memory now, and computes it");
    plans->is_short = 0;
    return workspace;
}

/* ---- running ---- */

typedef struct bindings {
    int64_t ids[QDRI_CUDNN_N_IDS];
    const void *data[QDRI_CUDNN_N_IDS];
    int n;
} bindings;

static void bind(bindings *b, qdri_cudnn_id id, const void *data)
{
    b->ids[b->n] = id;
    b->data[b->n++] = data;
}

/* The tensors of a pass, or of its piece that begins at this row and, if it is not of all heads, at this head. */
static bindings bind_all(const qdri_kernel *kernel, const shape_plans *plans, int64_t row, int64_t head)
{
    const int is_backward = kernel->kind == QDRI_K_ATTENTION_BACKWARD;
    const int64_t heads = plans->shape.n_heads, kv = plans->shape.n_kv_heads, kv_head = head / (heads / kv);
    const size_t head_bytes = (size_t)plans->shape.head_size * qdr_dtype_bytes(kernel->dtype);
    const size_t q = (size_t)(row * (heads + 2 * kv) + head) * head_bytes, /* from the beginning of qkv */
        k = (size_t)(row * (heads + 2 * kv) + heads + kv_head) * head_bytes, v = k + (size_t)kv * head_bytes;
    const size_t o = (size_t)(row * heads + head) * head_bytes;
    const size_t number = (size_t)(row * heads + head * plans->shape.context) * sizeof(float);
    const char *qkv = kernel->u.attention.qkv, *dqkv = kernel->u.attention.out;
    bindings b = {.n = 0};
    bind(&b, QDRI_CUDNN_Q, qkv + q);
    bind(&b, QDRI_CUDNN_K, qkv + k);
    bind(&b, QDRI_CUDNN_V, qkv + v);
    bind(&b, QDRI_CUDNN_O, (const char *)(is_backward ? kernel->u.attention.y : kernel->u.attention.out) + o);
    bind(&b, QDRI_CUDNN_STATS, (const char *)kernel->u.attention.saved + number);
    bind(&b, QDRI_CUDNN_SCALE, &plans->scale);
    bind(&b, QDRI_CUDNN_HIDDEN, &plans->hidden);
    if (!is_backward) return b;
    bind(&b, QDRI_CUDNN_DO, (const char *)kernel->u.attention.dy + o);
    bind(&b, QDRI_CUDNN_DELTAS, (const char *)kernel->u.attention.work + number);
    bind(&b, QDRI_CUDNN_ONE, &plans->one);
    bind(&b, QDRI_CUDNN_DQ, dqkv + q);
    bind(&b, QDRI_CUDNN_DK, dqkv + k);
    bind(&b, QDRI_CUDNN_DV, dqkv + v);
    return b;
}

static qdr_status execute(qdr_stream *stream, const qdri_cudnn_plan *plan, const bindings *b, void *workspace)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    const struct qdri_cuda_attention *self = dev->attention;
    const qdri_cudnn *api = self->api;
    qdri_cudnn_desc pack = NULL;
    QDR_TRY(cudnn_status(dev, api->set_stream(self->handle, qdri_cuda_handle(stream)), "cudnnSetStream"));
    QDR_TRY(cudnn_status(dev, api->desc_create(QDRI_CUDNN_PACK, &pack), "a list of tensors"));
    int error = api->desc_set(pack, QDRI_CUDNN_PACK_IDS, QDRI_CUDNN_OF_I64, b->n, b->ids);
    if (error == QDRI_CUDNN_SUCCESS)
        error = api->desc_set(pack, QDRI_CUDNN_PACK_POINTERS, QDRI_CUDNN_OF_POINTER, b->n, b->data);
    if (error == QDRI_CUDNN_SUCCESS)
        error = api->desc_set(pack, QDRI_CUDNN_PACK_WORKSPACE, QDRI_CUDNN_OF_POINTER, 1, &workspace);
    if (error == QDRI_CUDNN_SUCCESS) error = api->desc_finalize(pack);
    qdr_status status = cudnn_status(dev, error, "a list of tensors");
    if (status == QDR_OK) status = cudnn_status(dev, api->execute(self->handle, plan->plan, pack), "attention");
    (void)api->desc_destroy(pack);
    return status;
}

static qdr_status run_backward(qdr_stream *stream, const qdri_kernel *kernel, const shape_plans *plans, void *workspace)
{
    for (int64_t row = 0; row < plans->shape.n_rows; row += plans->piece.n_rows)
        for (int64_t head = 0; head < plans->shape.n_heads; head += plans->piece.n_heads) {
            const bindings b = bind_all(kernel, plans, row, head);
            QDR_TRY(execute(stream, &plans->backward, &b, workspace));
        }
    return QDR_OK;
}

qdr_status qdri_cuda_attention_cudnn(qdr_stream *stream, const qdri_kernel *kernel, int *is_done)
{
    shape_plans *plans = NULL;
    *is_done = 0;
    QDR_TRY(find_plans(qdri_cuda_dev_of(stream), kernel, &plans));
    void *workspace = plans ? find_workspace(stream, kernel, plans) : NULL;
    if (!workspace) return QDR_OK;
    *is_done = 1;
    if (kernel->kind == QDRI_K_ATTENTION_BACKWARD) return run_backward(stream, kernel, plans, workspace);
    const bindings b = bind_all(kernel, plans, 0, 0);
    return execute(stream, &plans->forward, &b, workspace);
}
