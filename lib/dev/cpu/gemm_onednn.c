/* SPDX-License-Identifier: Apache-2.0 */
/* BF16 products through oneDNN, on machines with instructions for them (AVX-512 BF16, AMX). oneDNN has its own cache of
 * primitives, and scratch memory that is not counted as device memory. */
#define _GNU_SOURCE 1 /* RTLD_DEFAULT */
#include "dev/cpu/cpu.h"

#include "config.h"

#if QDRI_HAVE_ONEDNN
#include <oneapi/dnnl/dnnl.h>
#endif

/* On other processors the bits of dnnl_cpu_isa_t mean something else, and its bf16 products are plain C. */
#if QDRI_HAVE_ONEDNN && DNNL_VERSION_MAJOR == 2 && defined(__x86_64__)

#include <dlfcn.h>
#include <string.h>

#define ISA_BF16 dnnl_cpu_isa_avx512_core_bf16

static dnnl_engine_t engine; /* one per process, never freed */

#define DNNL_TRY(expression)                                                                                           \
    do {                                                                                                               \
        const dnnl_status_t try_status_ = (expression);                                                                \
        if (try_status_ != dnnl_success) return try_status_;                                                           \
    } while (0)

static dnnl_status_t describe(dnnl_memory_desc_t *desc, int64_t n_rows, int64_t n_cols, int64_t stride, int trans,
                              qdr_dtype dtype)
{
    const dnnl_dims_t dims = {n_rows, n_cols};
    const dnnl_dims_t strides = {trans ? 1 : stride, trans ? stride : 1};
    return dnnl_memory_desc_init_by_strides(desc, 2, dims, dtype == QDR_BF16 ? dnnl_bf16 : dnnl_f32, strides);
}

/* C = alpha·A·B + beta·C, in the order of oneDNN's attributes: first scale the sum, then add. */
static dnnl_status_t attributes_create(const qdri_gemm *g, dnnl_primitive_attr_t *attributes)
{
    const float alpha = (float)g->alpha;
    dnnl_post_ops_t add = NULL;
    DNNL_TRY(dnnl_primitive_attr_create(attributes));
    if (g->alpha != 1.0) DNNL_TRY(dnnl_primitive_attr_set_output_scales(*attributes, 1, 0, &alpha));
    if (g->beta == 0.0) return dnnl_success;
    dnnl_status_t status = dnnl_post_ops_create(&add);
    if (status == dnnl_success) status = dnnl_post_ops_append_sum(add, (float)g->beta);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(*attributes, add);
    dnnl_post_ops_destroy(add);
    return status;
}

typedef struct product {
    dnnl_memory_desc_t descs[3];
    dnnl_primitive_attr_t attributes;
    dnnl_primitive_desc_t desc;
    dnnl_primitive_t primitive;
    dnnl_stream_t stream;
    dnnl_memory_t memories[3];
} product;

/* The calling thread's last product: parts of one are alike, and to describe it takes as long as a small one. oneDNN's
 * scratch memory is the thread's, too. */
static _Thread_local struct {
    qdri_gemm gemm; /* m = 0: none */
    product product;
} last;

static int is_alike(const qdri_gemm *a, const qdri_gemm *b)
{
    return a->m == b->m && a->n == b->n && a->k == b->k && a->lda == b->lda && a->ldb == b->ldb && a->ldc == b->ldc &&
           a->trans_a == b->trans_a && a->trans_b == b->trans_b && a->alpha == b->alpha && a->beta == b->beta &&
           a->dtype == b->dtype && a->c_dtype == b->c_dtype;
}

/* oneDNN 2.6's kernels for AMX end with an illegal instruction where k is 31 more than a multiple of 32 (63, and many
 * from 1,887 on): its other kernels compute these. */
static int avoids_amx(const qdri_gemm *g) { return g->k % 32 == 31; }

static dnnl_status_t describe_kernel(const qdri_gemm *g, const dnnl_matmul_desc_t *matmul, product *p)
{
    dnnl_primitive_desc_iterator_t kernels;
    DNNL_TRY(dnnl_primitive_desc_iterator_create(&kernels, matmul, p->attributes, engine, NULL));
    dnnl_status_t status = dnnl_success;
    while (status == dnnl_success) {
        const char *name = "";
        p->desc = dnnl_primitive_desc_iterator_fetch(kernels);
        status = dnnl_primitive_desc_query(p->desc, dnnl_query_impl_info_str, 0, &name);
        if (status == dnnl_success && !(avoids_amx(g) && strstr(name, "amx"))) break;
        dnnl_primitive_desc_destroy(p->desc);
        p->desc = NULL;
        if (status == dnnl_success) status = dnnl_primitive_desc_iterator_next(kernels);
    }
    dnnl_primitive_desc_iterator_destroy(kernels);
    return status;
}

static dnnl_status_t product_make(const qdri_gemm *g, product *p)
{
    dnnl_matmul_desc_t matmul;
    DNNL_TRY(describe(&p->descs[0], g->m, g->k, g->lda, g->trans_a, g->dtype));
    DNNL_TRY(describe(&p->descs[1], g->k, g->n, g->ldb, g->trans_b, g->dtype));
    DNNL_TRY(describe(&p->descs[2], g->m, g->n, g->ldc, 0, g->c_dtype));
    DNNL_TRY(attributes_create(g, &p->attributes));
    DNNL_TRY(dnnl_matmul_desc_init(&matmul, &p->descs[0], &p->descs[1], NULL, &p->descs[2]));
    DNNL_TRY(describe_kernel(g, &matmul, p));
    DNNL_TRY(dnnl_primitive_create(&p->primitive, p->desc));
    DNNL_TRY(dnnl_stream_create(&p->stream, engine, dnnl_stream_default_flags));
    for (int i = 0; i < 3; i++) DNNL_TRY(dnnl_memory_create(&p->memories[i], &p->descs[i], engine, DNNL_MEMORY_NONE));
    return dnnl_success;
}

static dnnl_status_t product_run(const qdri_gemm *g, const product *p)
{
    void *data[] = {(void *)(uintptr_t)g->a, (void *)(uintptr_t)g->b, g->c};
    const int names[] = {DNNL_ARG_SRC, DNNL_ARG_WEIGHTS, DNNL_ARG_DST};
    dnnl_exec_arg_t args[3];
    for (int i = 0; i < 3; i++) {
        DNNL_TRY(dnnl_memory_set_data_handle(p->memories[i], data[i]));
        args[i] = (dnnl_exec_arg_t){names[i], p->memories[i]};
    }
    DNNL_TRY(dnnl_primitive_execute(p->primitive, p->stream, 3, args));
    return dnnl_stream_wait(p->stream);
}

static void engine_start(void)
{
    if (dnnl_engine_create(&engine, dnnl_cpu, 0) != dnnl_success) engine = NULL;
}

static int engine_ready(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, engine_start);
    return engine != NULL;
}

int qdri_bf16_native(void) { return engine_ready() && (dnnl_get_effective_cpu_isa() & ISA_BF16) == ISA_BF16; }

/* oneDNN uses OpenMP threads, whose number is a setting of the calling thread. */
void qdri_onednn_alone(void)
{
    static _Thread_local int is_alone;
    void (*set)(int) = NULL;
    if (is_alone) return;
    is_alone = 1;
    void *symbol = dlsym(RTLD_DEFAULT, "omp_set_num_threads");
    memcpy(&set, &symbol, sizeof set);
    if (set) set(1);
}

int qdri_sgemm_onednn(const qdri_gemm *g)
{
    return dnnl_sgemm(g->trans_a ? 'T' : 'N', g->trans_b ? 'T' : 'N', g->m, g->n, g->k, (float)g->alpha, g->a, g->lda,
                      g->b, g->ldb, (float)g->beta, g->c, g->ldc) == dnnl_success;
}

void qdri_onednn_forget(void)
{
    product *p = &last.product;
    for (int i = 0; i < 3; i++) dnnl_memory_destroy(p->memories[i]);
    dnnl_stream_destroy(p->stream);
    dnnl_primitive_destroy(p->primitive);
    dnnl_primitive_desc_destroy(p->desc);
    dnnl_primitive_attr_destroy(p->attributes);
    memset(&last, 0, sizeof last);
}

qdr_status qdri_gemm_onednn(const qdri_gemm *gemm)
{
    dnnl_status_t status = dnnl_success;
    if (!engine_ready()) return QDR_FAIL(QDR_ERR_DEVICE, "product: oneDNN could not be initialised");
    qdri_onednn_alone();
    if (!is_alike(gemm, &last.gemm)) {
        qdri_onednn_forget();
        status = product_make(gemm, &last.product);
        if (status == dnnl_success) last.gemm = *gemm;
    }
    if (status == dnnl_success) status = product_run(gemm, &last.product);
    if (status == dnnl_success) return QDR_OK;
    return QDR_FAIL(QDR_ERR_DEVICE,
                    "product: oneDNN's status %d at %" PRId64 "x%" PRId64 "x%" PRId64
                    " in %s; build with -Donednn=disabled to do without it",
                    (int)status, gemm->m, gemm->n, gemm->k, qdr_dtype_name(gemm->dtype));
}

#else

int qdri_bf16_native(void) { return 0; }

void qdri_onednn_alone(void) {}

void qdri_onednn_forget(void) {}

int qdri_sgemm_onednn(const qdri_gemm *gemm)
{
    (void)gemm;
    return 0;
}

qdr_status qdri_gemm_onednn(const qdri_gemm *gemm)
{
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "product: this build cannot multiply %s through oneDNN 2, which needs x86-64",
                    qdr_dtype_name(gemm->dtype));
}

#endif
