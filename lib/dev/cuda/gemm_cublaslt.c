/* SPDX-License-Identifier: Apache-2.0 */
/* Products of cuBLASLt. The descriptors for a shape, and the algorithm chosen for it, are created once and kept. */
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/size.h"
#include "dev/cuda/cuda.h"

/* The bit in epilogues that have an auxiliary matrix. */
#define AUXILIARY (CUBLASLT_EPILOGUE_GELU_AUX & ~CUBLASLT_EPILOGUE_GELU)

/* Everything on which the choice of an algorithm depends. */
typedef struct product_key {
    int64_t m, n, k, lda, ldb, ldc;
    int32_t trans_a, trans_b, dtype, c_dtype;
    int32_t align_a, align_b, align_c; /* bytes, at most 16 */
    int32_t epilogue; /* as in cublasLtEpilogue_t */
    int32_t has_beta, n_sms, algorithm;
    int32_t rounding; /* of A plus four times that of B; 0: as stored */
} product_key;
_Static_assert(sizeof(product_key) == 6 * sizeof(int64_t) + 12 * sizeof(int32_t),
               "no gaps: keys are compared as bytes");

struct qdri_cuda_product {
    product_key key;
    cublasLtMatmulDesc_t description;
    cublasLtMatrixLayout_t a, b, c;
    int n_algorithms; /* that work; 0: the product is refused */
    cublasLtMatmulAlgo_t algorithms[QDRI_CUDA_ALGORITHMS]; /* the first is used */
};

static int32_t align_of(const void *data)
{
    const uintptr_t low = (uintptr_t)data & 15u;
    return low ? (int32_t)(low & (~low + 1)) : 16;
}

static product_key key_of(const qdri_cuda_dev *dev, const qdri_gemm *g)
{
    const cublasLtEpilogue_t forward = g->gelu ? CUBLASLT_EPILOGUE_GELU_AUX : CUBLASLT_EPILOGUE_DEFAULT,
                             with_bias = g->gelu ? CUBLASLT_EPILOGUE_GELU_AUX_BIAS : CUBLASLT_EPILOGUE_BIAS;
    return (product_key){.m = g->m,
                         .n = g->n,
                         .k = g->k,
                         .lda = g->lda,
                         .ldb = g->ldb,
                         .ldc = g->ldc,
                         .trans_a = g->trans_a != 0,
                         .trans_b = g->trans_b != 0,
                         .dtype = (int32_t)g->dtype,
                         .c_dtype = (int32_t)g->c_dtype,
                         .align_a = align_of(g->a),
                         .align_b = align_of(g->b),
                         .align_c = align_of(qdri_cuda_result_of(g)),
                         .epilogue = (int32_t)(g->gelu_of ? CUBLASLT_EPILOGUE_DGELU
                                               : g->bias  ? with_bias
                                                          : forward),
                         .has_beta = g->beta != 0,
                         .algorithm = g->algorithm,
                         .n_sms = dev->n_sms_free,
                         .rounding = (int32_t)g->round_a + 4 * (int32_t)g->round_b};
}

static cudaDataType_t type_of(int rounding, qdr_dtype dtype)
{
    if (rounding) return rounding == QDRI_E4M3 ? CUDA_R_8F_E4M3 : CUDA_R_8F_E5M2;
    switch (dtype) {
    case QDR_F64: return CUDA_R_64F;
    case QDR_BF16: return CUDA_R_16BF;
    case QDR_F16: return CUDA_R_16F;
    default: return CUDA_R_32F;
    }
}

static void product_free(qdri_cuda_product *product)
{
    if (product->c) (void)cublasLtMatrixLayoutDestroy(product->c);
    if (product->b) (void)cublasLtMatrixLayoutDestroy(product->b);
    if (product->a) (void)cublasLtMatrixLayoutDestroy(product->a);
    if (product->description) (void)cublasLtMatmulDescDestroy(product->description);
    free(product);
}

static qdr_status set_word(qdri_cuda_dev *dev, cublasLtMatmulDesc_t description,
                           cublasLtMatmulDescAttributes_t attribute, int32_t value)
{
    QDRI_CUBLAS_TRY(dev, cublasLtMatmulDescSetAttribute(description, attribute, &value, sizeof value));
    return QDR_OK;
}

/* cuBLAS is column-major: it sees a row-major matrix as its transpose, and C' = op(B)'·op(A)'. So its first operand is
 * B, its second A. */
static qdr_status describe(qdri_cuda_dev *dev, qdri_cuda_product *p)
{
    const product_key *key = &p->key;
    const qdr_dtype dtype = (qdr_dtype)key->dtype;
    const int is_double = dtype == QDR_F64, is_tf32 = dtype == QDR_F32 && dev->opts.tf32 && !key->rounding;
    const cudaDataType_t a_type = type_of(key->rounding % 4, dtype), b_type = type_of(key->rounding / 4, dtype),
                         c_type = type_of(QDRI_AS_STORED, (qdr_dtype)key->c_dtype);
    const cublasComputeType_t compute_type = is_double ? CUBLAS_COMPUTE_64F
                                             : is_tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32
                                                       : CUBLAS_COMPUTE_32F;
    QDRI_CUBLAS_TRY(dev, cublasLtMatmulDescCreate(&p->description, compute_type, is_double ? CUDA_R_64F : CUDA_R_32F));
    QDR_TRY(set_word(dev, p->description, CUBLASLT_MATMUL_DESC_TRANSA, key->trans_b ? CUBLAS_OP_T : CUBLAS_OP_N));
    QDR_TRY(set_word(dev, p->description, CUBLASLT_MATMUL_DESC_TRANSB, key->trans_a ? CUBLAS_OP_T : CUBLAS_OP_N));
    if (key->n_sms < dev->gpu.n_sms)
        QDR_TRY(set_word(dev, p->description, CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, key->n_sms));
    if (key->epilogue != CUBLASLT_EPILOGUE_DEFAULT)
        QDR_TRY(set_word(dev, p->description, CUBLASLT_MATMUL_DESC_EPILOGUE, key->epilogue));
    if (key->epilogue & AUXILIARY)
        QDRI_CUBLAS_TRY(dev, cublasLtMatmulDescSetAttribute(p->description, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD,
                                                            &key->ldc, sizeof key->ldc));
    QDRI_CUBLAS_TRY(dev, cublasLtMatrixLayoutCreate(&p->b, b_type, (uint64_t)(key->trans_b ? key->k : key->n),
                                                    (uint64_t)(key->trans_b ? key->n : key->k), key->ldb));
    QDRI_CUBLAS_TRY(dev, cublasLtMatrixLayoutCreate(&p->a, a_type, (uint64_t)(key->trans_a ? key->m : key->k),
                                                    (uint64_t)(key->trans_a ? key->k : key->m), key->lda));
    QDRI_CUBLAS_TRY(dev, cublasLtMatrixLayoutCreate(&p->c, c_type, (uint64_t)key->n, (uint64_t)key->m, key->ldc));
    return QDR_OK;
}

/* Sets the addresses that the epilogue reads and writes, and those of the factors' scales; NULL: not used. */
static qdr_status set_pointers(const qdri_cuda_dev *dev, const qdri_cuda_product *p, const void *bias,
                               const void *auxiliary, const void *a_scale, const void *b_scale)
{
    static const cublasLtMatmulDescAttributes_t attributes[] = {
        CUBLASLT_MATMUL_DESC_BIAS_POINTER, CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER,
        CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER};
    const void *const pointers[] = {bias, auxiliary, a_scale, b_scale};
    for (int i = 0; i < 4; i++)
        if (pointers[i])
            QDRI_CUBLAS_TRY(
                dev, cublasLtMatmulDescSetAttribute(p->description, attributes[i], &pointers[i], sizeof pointers[i]));
    return QDR_OK;
}

static qdr_status set_preferences(const qdri_cuda_dev *dev, const product_key *key)
{
    const uint64_t workspace_bytes = QDRI_CUDA_WORKSPACE_BYTES;
    /* Partial sums must not be rounded to the result's type before they are added. cuBLASLt 13.1 rounds their total
     * before it adds a bias: then a sum must be whole. */
    const uint32_t exact = key->epilogue & CUBLASLT_EPILOGUE_BIAS ? CUBLASLT_REDUCTION_SCHEME_NONE
                                                                  : CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    const uint32_t reductions = qdri_is_narrow((qdr_dtype)key->c_dtype) ? exact : CUBLASLT_REDUCTION_SCHEME_MASK;
    const struct {
        cublasLtMatmulPreferenceAttributes_t attribute;
        const void *value;
        size_t bytes;
    } preferences[] = {
        {CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof workspace_bytes},
        {CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &reductions, sizeof reductions},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, &key->align_b, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, &key->align_a, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, &key->align_c, sizeof(uint32_t)},
        {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, &key->align_c, sizeof(uint32_t)},
    };
    for (size_t i = 0; i < sizeof preferences / sizeof *preferences; i++)
        QDRI_CUBLAS_TRY(dev, cublasLtMatmulPreferenceSetAttribute(dev->preference, preferences[i].attribute,
                                                                  preferences[i].value, preferences[i].bytes));
    return QDR_OK;
}

/* Whether the status means that there is no such product. For fused or rounded products, some releases report an
 * invalid request. */
static int is_none(const product_key *key, cublasStatus_t status)
{
    const int is_plain = key->epilogue == CUBLASLT_EPILOGUE_DEFAULT && !key->rounding;
    if (status != CUBLAS_STATUS_INVALID_VALUE || is_plain) return status == CUBLAS_STATUS_NOT_SUPPORTED;
    qdri_log(QDRI_LOG_WARNING,
             "cuda: to cuBLASLt a product of m=%" PRId64 " n=%" PRId64 " k=%" PRId64
             " with epilogue %d and rounding %d is wrong; it is done in another way",
             key->m, key->n, key->k, key->epilogue, key->rounding);
    return 1;
}

/* Always requests the full list, because a shorter list may begin differently. */
static qdr_status list_algorithms(qdri_cuda_dev *dev, qdri_cuda_product *p)
{
    cublasLtMatmulHeuristicResult_t found[QDRI_CUDA_ALGORITHMS];
    int n_found = 0;
    QDR_TRY(set_preferences(dev, &p->key));
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(
        dev->lt, p->description, p->b, p->a, p->c, p->c, dev->preference, QDRI_CUDA_ALGORITHMS, found, &n_found);
    if (is_none(&p->key, status)) return QDR_OK;
    QDR_TRY(qdri_cublas_status(dev, status, "cublasLtMatmulAlgoGetHeuristic"));
    for (int i = 0; i < n_found; i++) /* some may not work */
        if (found[i].state == CUBLAS_STATUS_SUCCESS) p->algorithms[p->n_algorithms++] = found[i].algo;
    return QDR_OK;
}

/* A number that identifies an algorithm, the same in every list that contains it, whatever the epilogue, the shape and
 * the release; FNV-1a. Never 0. */
static int code_of(const cublasLtMatmulAlgo_t *algorithm)
{
    static const cublasLtMatmulAlgoConfigAttributes_t attributes[] = {
        CUBLASLT_ALGO_CONFIG_ID,
        CUBLASLT_ALGO_CONFIG_TILE_ID,
        CUBLASLT_ALGO_CONFIG_STAGES_ID,
        CUBLASLT_ALGO_CONFIG_SPLITK_NUM,
        CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME,
        CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING,
        CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION,
        CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID,
        CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID,
    };
    uint32_t code = 2166136261u;
    for (size_t i = 0; i < sizeof attributes / sizeof *attributes; i++) {
        uint32_t value = 0;
        const int is_short = attributes[i] >= CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID;
        size_t written = 0;
        (void)cublasLtMatmulAlgoConfigGetAttribute(algorithm, attributes[i], &value,
                                                   is_short ? sizeof(uint16_t) : sizeof value, &written);
        for (int byte = 0; byte < 4; byte++) code = (code ^ (value >> 8 * byte & 0xff)) * 16777619u;
    }
    code &= INT32_MAX;
    return code ? (int)code : 1;
}

/* An algorithm that was measured elsewhere may be missing here: then the first one stays. */
static void choose_algorithm(qdri_cuda_product *p)
{
    for (int i = 0; i < p->n_algorithms && p->key.algorithm; i++) {
        if (code_of(&p->algorithms[i]) != p->key.algorithm) continue;
        const cublasLtMatmulAlgo_t chosen = p->algorithms[i];
        memmove(p->algorithms + 1, p->algorithms, (size_t)i * sizeof chosen);
        p->algorithms[0] = chosen;
        return;
    }
}

static qdr_status check_algorithm(const qdri_cuda_dev *dev, const qdri_cuda_product *p)
{
    const product_key *key = &p->key;
    if (p->n_algorithms > 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "cuda: cuBLASLt has no %s product%s of m=%" PRId64 " n=%" PRId64 " k=%" PRId64
                    " with memory aligned to %d, %d and %d bytes on GPU %d; align it to 16",
                    qdr_dtype_name((qdr_dtype)key->dtype), key->rounding ? " in fp8" : "", key->m, key->n, key->k,
                    key->align_a, key->align_b, key->align_c, dev->opts.number);
}

/* The first product whose key is not less than this one; *equal: the keys are equal. */
static int find_product(const qdri_cuda_dev *dev, const product_key *key, int *equal)
{
    int low = 0, high = dev->n_products;
    *equal = 0;
    while (low < high) {
        const int middle = (low + high) / 2;
        const int order = memcmp(&dev->products[middle]->key, key, sizeof *key);
        if (order == 0) *equal = 1;
        if (order < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static qdr_status make_product(qdri_cuda_dev *dev, const product_key *key, int at)
{
    /* Algorithms are chosen for the pointers' alignment, before the pointers are known: cuBLASLt derives it from their
     * values (cublasLt.h, CUBLASLT_MATMUL_DESC_BIAS_POINTER), and treats NULL as any alignment. */
    const void *const aligned = (const void *)(uintptr_t)16;
    const void *bias = key->epilogue & CUBLASLT_EPILOGUE_BIAS ? aligned : NULL;
    const void *auxiliary = key->epilogue & AUXILIARY ? aligned : NULL, *scale = key->rounding ? aligned : NULL;
    qdri_cuda_product *made = NULL;
    qdr_status status = QDRI_NEW(1, "a product", &made);
    if (status != QDR_OK) return status;
    made->key = *key;
    QDR_TRY_OUT(status, describe(dev, made));
    QDR_TRY_OUT(status, set_pointers(dev, made, bias, auxiliary, scale, scale));
    QDR_TRY_OUT(status, list_algorithms(dev, made));
    choose_algorithm(made);
    QDR_TRY_OUT(status, qdri_list_grow((void **)&dev->products, dev->n_products, &dev->product_capacity,
                                       sizeof *dev->products, "a list of products"));
    memmove(dev->products + at + 1, dev->products + at, (size_t)(dev->n_products - at) * sizeof *dev->products);
    dev->products[at] = made;
    dev->n_products++;
    return QDR_OK;
out:
    product_free(made);
    return status;
}

void qdri_cuda_products_free(qdri_cuda_dev *dev)
{
    for (int i = 0; i < dev->n_products; i++) product_free(dev->products[i]);
    free(dev->products);
    if (dev->preference) (void)cublasLtMatmulPreferenceDestroy(dev->preference);
    if (dev->lt) (void)cublasLtDestroy(dev->lt);
}

/* ---- running a product ---- */

static qdr_status find_or_make(qdri_cuda_dev *dev, const qdri_gemm *gemm, qdri_cuda_product **product)
{
    const product_key key = key_of(dev, gemm);
    int found;
    const int at = find_product(dev, &key, &found);
    if (!found) QDR_TRY(make_product(dev, &key, at));
    *product = dev->products[at];
    return check_algorithm(dev, *product);
}

qdr_status qdri_cuda_multiply(qdr_stream *stream, const qdri_gemm *g, const qdri_cuda_scales *scales)
{
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    const float alpha = (float)g->alpha, beta = (float)g->beta;
    const int is_double = g->dtype == QDR_F64;
    void *const result = qdri_cuda_result_of(g);
    qdri_cuda_product *p = NULL;
    void *workspace;
    QDR_TRY(find_or_make(dev, g, &p));
    QDR_TRY(qdri_cuda_find_space(stream, QDRI_SPACE_PRODUCTS, QDRI_CUDA_WORKSPACE_BYTES, &workspace));
    QDR_TRY(
        set_pointers(dev, p, g->bias, qdri_cuda_auxiliary_of(g), scales ? scales->b : NULL, scales ? scales->a : NULL));
    while (p->n_algorithms > 0) {
        const cublasStatus_t error = cublasLtMatmul(
            dev->lt, p->description, is_double ? (const void *)&g->alpha : &alpha, g->b, p->b, g->a, p->a,
            is_double ? (const void *)&g->beta : &beta, result, p->c, result, p->c, &p->algorithms[0], workspace,
            QDRI_CUDA_WORKSPACE_BYTES, qdri_cuda_handle(stream));
        if (error != CUBLAS_STATUS_NOT_SUPPORTED && error != CUBLAS_STATUS_ARCH_MISMATCH &&
            error != CUBLAS_STATUS_INVALID_VALUE)
            return qdri_cublas_status(dev, error, "cublasLtMatmul");
        /* Nothing was enqueued: this algorithm does not run here, although it was listed. */
        p->n_algorithms--;
        memmove(p->algorithms, p->algorithms + 1, (size_t)p->n_algorithms * sizeof *p->algorithms);
    }
    return check_algorithm(dev, p);
}

int qdri_cuda_has_fp8(qdr_stream *stream, const qdri_gemm *gemm)
{
    qdri_cuda_product *product = NULL;
    return find_or_make(qdri_cuda_dev_of(stream), gemm, &product) == QDR_OK;
}

qdr_status qdri_cuda_list_algorithms(qdr_stream *stream, const qdri_gemm *gemm, int most, int algorithms[], int *n)
{
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    qdri_cuda_product *product = NULL;
    QDRI_CUDA_ENTER(dev);
    QDR_TRY(find_or_make(dev, gemm, &product));
    for (*n = 0; *n < most && *n < product->n_algorithms; ++*n) algorithms[*n] = code_of(&product->algorithms[*n]);
    return QDR_OK;
}
