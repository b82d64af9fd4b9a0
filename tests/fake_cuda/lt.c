/* SPDX-License-Identifier: Apache-2.0 */
/* Handles and descriptors of cublasLt. */
#include <stddef.h>
#include <string.h>

#include "lt.h"

#define HANDLE_MAGIC 0x66616b6568616e64u
#define DESC_MAGIC 0x66616b6564657363u
#define LAYOUT_MAGIC 0x66616b656c61796fu
#define PREFERENCE_MAGIC 0x66616b6570726566u
#define DEAD_MAGIC 0x66616b6564656164u

/* What was created; it stays when destroyed, so that a second time is found. */
typedef struct created {
    struct created *next;
    int device, is_destroyed;
    _Alignas(16) uint64_t data[32];
} created;

static created *all_created;

int64_t fake_leaked_handles(void)
{
    int64_t n = 0;
    for (const created *c = all_created; c; c = c->next) n += !c->is_destroyed;
    return n;
}

static created *create(uint64_t magic)
{
    if (fake_take_failure("create")) return NULL;
    created *made = fake_new(sizeof *made);
    made->data[0] = magic;
    made->device = fake_current_device();
    fake_lock();
    made->next = all_created;
    all_created = made;
    fake_unlock();
    return made;
}

static created *created_of(const void *data) { return (created *)((uintptr_t)data - offsetof(created, data)); }

static cublasStatus_t destroy(void *data, uint64_t magic, const char *name)
{
    uint64_t *found = data;
    cublasStatus_t status = CUBLAS_STATUS_SUCCESS;
    if (!found) return CUBLAS_STATUS_INVALID_VALUE;
    fake_lock();
    if (*found == magic) {
        created_of(data)->is_destroyed = 1;
        *found = DEAD_MAGIC;
    } else {
        fake_report(*found == DEAD_MAGIC ? FAKE_DOUBLE_FREE : FAKE_DESTROYED, "\"%s\" of %p", name, data);
        status = CUBLAS_STATUS_INVALID_VALUE;
    }
    fake_unlock();
    return status;
}

static const void *find(const void *handle, uint64_t magic, const char *what)
{
    const uint64_t *data = handle;
    if (data && *data == magic) return handle;
    fake_report(FAKE_DESTROYED, "%s %p of cublasLt is none any more", what, handle);
    return NULL;
}

const fake_desc *fake_find_desc(const void *handle) { return find(handle, DESC_MAGIC, "the description"); }

const fake_layout *fake_find_layout(const void *handle) { return find(handle, LAYOUT_MAGIC, "the layout"); }

int fake_handle_device(const void *handle)
{
    const void *data = find(handle, HANDLE_MAGIC, "the handle");
    return data ? created_of(data)->device : -1;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *handle)
{
    if (fake_ready() != cudaSuccess) return CUBLAS_STATUS_NOT_INITIALIZED;
    created *made = create(HANDLE_MAGIC);
    if (!made) return CUBLAS_STATUS_ALLOC_FAILED;
    *handle = (cublasLtHandle_t)made->data;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) { return destroy(handle, HANDLE_MAGIC, "cublasLtDestroy"); }

size_t cublasLtGetVersion(void) { return CUBLAS_VERSION; }

#define STATUS_NAME(status)                                                                                            \
    case status: return #status;

const char *cublasLtGetStatusName(cublasStatus_t status)
{
    switch (status) {
        STATUS_NAME(CUBLAS_STATUS_SUCCESS)
        STATUS_NAME(CUBLAS_STATUS_NOT_INITIALIZED)
        STATUS_NAME(CUBLAS_STATUS_ALLOC_FAILED)
        STATUS_NAME(CUBLAS_STATUS_INVALID_VALUE)
        STATUS_NAME(CUBLAS_STATUS_ARCH_MISMATCH)
        STATUS_NAME(CUBLAS_STATUS_MAPPING_ERROR)
        STATUS_NAME(CUBLAS_STATUS_EXECUTION_FAILED)
        STATUS_NAME(CUBLAS_STATUS_INTERNAL_ERROR)
        STATUS_NAME(CUBLAS_STATUS_NOT_SUPPORTED)
        STATUS_NAME(CUBLAS_STATUS_LICENSE_ERROR)
    }
    return "CUBLAS_STATUS_UNKNOWN";
}

/* ---- attributes: where they lie ---- */

typedef struct attribute {
    int name;
    size_t offset, bytes;
} attribute;

#define AT(name, type, member)                                                                                         \
    {                                                                                                                  \
        name, offsetof(type, member), sizeof(((type *)0)->member)                                                      \
    }

static cublasStatus_t move(const attribute *table, size_t n, int name, void *description, const void *from, void *to,
                           size_t bytes)
{
    for (size_t i = 0; i < n; i++) {
        if (table[i].name != name) continue;
        if (bytes != table[i].bytes) return CUBLAS_STATUS_INVALID_VALUE;
        if (from) memcpy((char *)description + table[i].offset, from, bytes);
        if (to) memcpy(to, (const char *)description + table[i].offset, bytes);
        return CUBLAS_STATUS_SUCCESS;
    }
    return CUBLAS_STATUS_NOT_SUPPORTED;
}

#define COUNT(table) (sizeof(table) / sizeof *(table))

/* ---- products ---- */

static const attribute desc_attributes[] = {
    AT(CUBLASLT_MATMUL_DESC_TRANSA, fake_desc, trans_a),
    AT(CUBLASLT_MATMUL_DESC_TRANSB, fake_desc, trans_b),
    AT(CUBLASLT_MATMUL_DESC_EPILOGUE, fake_desc, epilogue),
    AT(CUBLASLT_MATMUL_DESC_BIAS_POINTER, fake_desc, bias),
    AT(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_POINTER, fake_desc, aux),
    AT(CUBLASLT_MATMUL_DESC_EPILOGUE_AUX_LD, fake_desc, aux_ld),
    AT(CUBLASLT_MATMUL_DESC_SM_COUNT_TARGET, fake_desc, sm_target),
    AT(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, fake_desc, a_scale),
    AT(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, fake_desc, b_scale),
};

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *desc, cublasComputeType_t compute,
                                        cudaDataType_t scale_type)
{
    created *made = create(DESC_MAGIC);
    if (!made) return CUBLAS_STATUS_ALLOC_FAILED;
    *desc = (cublasLtMatmulDesc_t)(void *)made->data;
    *(fake_desc *)(void *)made->data = (fake_desc){.magic = DESC_MAGIC,
                                                   .compute = (int32_t)compute,
                                                   .scale_type = (int32_t)scale_type,
                                                   .epilogue = CUBLASLT_EPILOGUE_DEFAULT};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    return destroy(desc, DESC_MAGIC, "cublasLtMatmulDescDestroy");
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t name,
                                              const void *from, size_t bytes)
{
    if (!fake_find_desc(desc) || !from) return CUBLAS_STATUS_INVALID_VALUE;
    return move(desc_attributes, COUNT(desc_attributes), (int)name, desc, from, NULL, bytes);
}

/* ---- layouts ---- */

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *layout, cudaDataType type, uint64_t rows,
                                          uint64_t cols, int64_t ld)
{
    created *made = create(LAYOUT_MAGIC);
    if (!made) return CUBLAS_STATUS_ALLOC_FAILED;
    *layout = (cublasLtMatrixLayout_t)(void *)made->data;
    *(fake_layout *)(void *)made->data = (fake_layout){
        .magic = LAYOUT_MAGIC, .type = (int32_t)type, .rows = rows, .cols = cols, .ld = ld};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    return destroy(layout, LAYOUT_MAGIC, "cublasLtMatrixLayoutDestroy");
}

/* ---- preferences ---- */

static const attribute preference_attributes[] = {
    AT(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, fake_preference, workspace_bytes),
    AT(CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, fake_preference, reduction_mask),
    AT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, fake_preference, align[0]),
    AT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, fake_preference, align[1]),
    AT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, fake_preference, align[2]),
    AT(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, fake_preference, align[3]),
};

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *preference)
{
    created *made = create(PREFERENCE_MAGIC);
    if (!made) return CUBLAS_STATUS_ALLOC_FAILED;
    *preference = (cublasLtMatmulPreference_t)(void *)made->data;
    *(fake_preference *)(void *)made->data = (fake_preference){
        .magic = PREFERENCE_MAGIC, .reduction_mask = UINT32_MAX, .align = {256, 256, 256, 256}};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    return destroy(preference, PREFERENCE_MAGIC, "cublasLtMatmulPreferenceDestroy");
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t name, const void *from,
                                                    size_t bytes)
{
    if (!find(preference, PREFERENCE_MAGIC, "the preference") || !from) return CUBLAS_STATUS_INVALID_VALUE;
    return move(preference_attributes, COUNT(preference_attributes), (int)name, preference, from, NULL, bytes);
}

/* ---- algorithms ---- */

static const attribute algo_attributes[] = {
    AT(CUBLASLT_ALGO_CONFIG_ID, fake_algo, id),
    AT(CUBLASLT_ALGO_CONFIG_TILE_ID, fake_algo, tile),
    AT(CUBLASLT_ALGO_CONFIG_SPLITK_NUM, fake_algo, n_splits),
    AT(CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, fake_algo, reduction),
    AT(CUBLASLT_ALGO_CONFIG_CTA_SWIZZLING, fake_algo, swizzling),
    AT(CUBLASLT_ALGO_CONFIG_CUSTOM_OPTION, fake_algo, custom),
    AT(CUBLASLT_ALGO_CONFIG_STAGES_ID, fake_algo, stages),
    AT(CUBLASLT_ALGO_CONFIG_INNER_SHAPE_ID, fake_algo, inner_shape),
    AT(CUBLASLT_ALGO_CONFIG_CLUSTER_SHAPE_ID, fake_algo, cluster_shape),
};

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo,
                                                    cublasLtMatmulAlgoConfigAttributes_t name, void *to, size_t bytes,
                                                    size_t *written)
{
    cublasLtMatmulAlgo_t copy = *algo;
    if (written) *written = bytes;
    return move(algo_attributes, COUNT(algo_attributes), (int)name, &copy, NULL, to, bytes);
}
