/* SPDX-License-Identifier: Apache-2.0 */
/* Attention by cuDNN: one handle per device, plans by shape. A shape has the plans of both passes, or none. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/size.h"
#include "dev/cuda/cuda.h"
#include "dev/cuda/cudnn.h"

enum { SHAPES_MOST = 32 }; /* further shapes use the library's own kernels */

/* The workspace that a plan may need. A deterministic backward pass keeps two bytes for each element of the scores. */
#define WORKSPACE_MOST ((int64_t)2 << 30)

typedef struct shape_plans {
    qdri_cudnn_shape shape;
    int is_own; /* 1: cuDNN does not compute this shape */
    qdri_cudnn_plan forward, backward;
    float scale, hidden, one;
} shape_plans;

struct qdri_cuda_attention {
    const qdri_cudnn *api; /* NULL: cuDNN is not used */
    void *handle;
    int is_full; /* that there are too many shapes has been logged */
    int n_shapes;
    shape_plans shapes[SHAPES_MOST];
};

static qdr_status cudnn_status(const qdri_cuda_dev *dev, int status, const char *call)
{
    if (status == QDRI_CUDNN_SUCCESS) return QDR_OK;
    return QDR_FAIL(QDR_ERR_DEVICE, "cuDNN: %s on GPU %d failed: %s; use QDR_ATTENTION=own", call, dev->opts.number,
                    dev->attention->api->error_string(status));
}

static void say_own(const char *why)
{
    qdri_log(QDRI_LOG_WARNING, "attention: the library's own kernels compute it: %s", why);
}

/* Tries only once. A missing cuDNN is not an error. */
static qdr_status open_cudnn(qdri_cuda_dev *dev)
{
    const qdri_gpu *gpu = &dev->gpu;
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
    if (status == QDR_OK)
        status = cudnn_status(dev, dev->attention->api->create(&dev->attention->handle), "cudnnCreate");
    if (status == QDR_OK) return QDR_OK;
    say_own(qdr_last_error());
    dev->attention->api = NULL;
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
    if (self->api && self->handle) (void)self->api->destroy(self->handle);
    free(self);
    dev->attention = NULL;
}

/* NULL: the list is full. */
static shape_plans *find_plans(struct qdri_cuda_attention *self, const qdri_cudnn_shape *shape)
{
    const qdri_cudnn_target target = {.handle = self->handle};
    for (int i = 0; i < self->n_shapes; i++) {
        const qdri_cudnn_shape *has = &self->shapes[i].shape;
        if (has->n_rows == shape->n_rows && has->context == shape->context && has->n_heads == shape->n_heads &&
            has->n_kv_heads == shape->n_kv_heads && has->head_size == shape->head_size && has->dtype == shape->dtype)
            return &self->shapes[i];
    }
    if (self->n_shapes == SHAPES_MOST) {
        if (!self->is_full) say_own("cuDNN has plans for 32 shapes already");
        self->is_full = 1;
        return NULL;
    }
    shape_plans *made = &self->shapes[self->n_shapes++];
    *made = (shape_plans){
        .shape = *shape, .scale = (float)(1 / sqrt((double)shape->head_size)), .hidden = -INFINITY, .one = 1};
    qdr_status status = qdri_cudnn_plan_make(self->api, target, shape, 0, WORKSPACE_MOST, &made->forward);
    if (status == QDR_OK) status = qdri_cudnn_plan_make(self->api, target, shape, 1, WORKSPACE_MOST, &made->backward);
    if (status == QDR_OK) return made;
    say_own(qdr_last_error());
    made->is_own = 1;
    return made;
}

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

static bindings bind_all(const qdri_kernel *kernel, const shape_plans *plans)
{
    const int is_backward = kernel->kind == QDRI_K_ATTENTION_BACKWARD;
    const int64_t heads = kernel->u.attention.n_heads, kv = kernel->u.attention.n_kv_heads;
    const size_t head_bytes = (size_t)kernel->u.attention.head_size * qdr_dtype_bytes(kernel->dtype);
    const size_t k = (size_t)heads * head_bytes, v = (size_t)(heads + kv) * head_bytes; /* in a row of qkv */
    const char *qkv = kernel->u.attention.qkv, *dqkv = kernel->u.attention.out;
    bindings b = {.n = 0};
    bind(&b, QDRI_CUDNN_Q, qkv);
    bind(&b, QDRI_CUDNN_K, qkv + k);
    bind(&b, QDRI_CUDNN_V, qkv + v);
    bind(&b, QDRI_CUDNN_O, is_backward ? kernel->u.attention.y : kernel->u.attention.out);
    bind(&b, QDRI_CUDNN_STATS, kernel->u.attention.saved);
    bind(&b, QDRI_CUDNN_SCALE, &plans->scale);
    bind(&b, QDRI_CUDNN_HIDDEN, &plans->hidden);
    if (!is_backward) return b;
    bind(&b, QDRI_CUDNN_DO, kernel->u.attention.dy);
    bind(&b, QDRI_CUDNN_DELTAS, kernel->u.attention.work);
    bind(&b, QDRI_CUDNN_ONE, &plans->one);
    bind(&b, QDRI_CUDNN_DQ, dqkv);
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

qdr_status qdri_cuda_attention_cudnn(qdr_stream *stream, const qdri_kernel *kernel, int *is_done)
{
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    const int64_t n_rows = kernel->u.attention.n_rows, n_heads = kernel->u.attention.n_heads;
    const int64_t head_size = kernel->u.attention.head_size;
    const uintptr_t all = (uintptr_t)kernel->u.attention.qkv | (uintptr_t)kernel->u.attention.out |
                          (uintptr_t)kernel->u.attention.y | (uintptr_t)kernel->u.attention.dy;
    void *workspace = NULL;
    *is_done = 0;
    if (!qdri_is_narrow(kernel->dtype) || n_rows == 0 || n_heads == 0 || head_size % 8 != 0 || all % 16 != 0)
        return QDR_OK;
    QDR_TRY(open_cudnn(dev));
    if (!dev->attention->api) return QDR_OK;
    const qdri_cudnn_shape shape = {
        n_rows, kernel->u.attention.context, n_heads, kernel->u.attention.n_kv_heads, head_size, kernel->dtype};
    shape_plans *plans = find_plans(dev->attention, &shape);
    if (!plans || plans->is_own) return QDR_OK;
    const int64_t forward = plans->forward.workspace_bytes, backward = plans->backward.workspace_bytes;
    const size_t bytes = (size_t)(forward > backward ? forward : backward);
    if (qdri_cuda_find_space(stream, QDRI_SPACE_ATTENTION, bytes, &workspace) != QDR_OK) {
        say_own(qdr_last_error()); /* from now on */
        plans->is_own = 1; /* the plans are kept: recorded work may use them */
        return QDR_OK;
    }
    const bindings b = bind_all(kernel, plans);
    *is_done = 1;
    return execute(stream, kernel->kind == QDRI_K_ATTENTION_BACKWARD ? &plans->backward : &plans->forward, &b,
                   workspace);
}
