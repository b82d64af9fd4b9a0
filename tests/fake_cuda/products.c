/* SPDX-License-Identifier: Apache-2.0 */
/* cublasLtMatmul: the memory that a product reads and writes, and enqueuing it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lt.h"

enum { ACCESSES_MOST = 9 };

typedef struct access_list {
    fake_access all[ACCESSES_MOST];
    int n;
} access_list;

static void add(access_list *list, fake_access_kind kind, const void *begin, size_t row_bytes, size_t stride_bytes,
                int64_t n_rows)
{
    if (begin) list->all[list->n++] = (fake_access){kind, begin, row_bytes, stride_bytes, n_rows};
}

static void add_matrix(access_list *list, fake_access_kind kind, const void *data, const fake_layout *layout)
{
    const size_t bytes = (size_t)fake_type_bytes(layout->type);
    add(list, kind, data, layout->rows * bytes, (size_t)layout->ld * bytes, (int64_t)layout->cols);
}

static access_list accesses_of(const fake_product *p)
{
    const unsigned epilogue = p->desc.epilogue;
    access_list list = {.n = 0};
    fake_layout aux = p->d;
    aux.ld = p->desc.aux_ld;
    add_matrix(&list, FAKE_READ, p->a_data, &p->a);
    add_matrix(&list, FAKE_READ, p->b_data, &p->b);
    if (p->beta != 0) add_matrix(&list, FAKE_READ, p->c_data, &p->c);
    add_matrix(&list, FAKE_WRITE, p->d_data, &p->d);
    if (epilogue & CUBLASLT_EPILOGUE_BIAS)
        add(&list, FAKE_READ, p->desc.bias, p->d.rows * (size_t)fake_type_bytes(p->d.type), 0, 1);
    if (epilogue & FAKE_EPILOGUE_AUX)
        add_matrix(&list, epilogue & CUBLASLT_EPILOGUE_GELU ? FAKE_WRITE : FAKE_READ, p->desc.aux, &aux);
    add(&list, FAKE_READ, p->desc.a_scale, sizeof(float), 0, 1);
    add(&list, FAKE_READ, p->desc.b_scale, sizeof(float), 0, 1);
    if (p->workspace_bytes) add(&list, FAKE_SCRATCH, p->workspace, p->workspace_bytes, 0, 1);
    return list;
}

/* ---- checks ---- */

static int is_aligned(const void *data, unsigned bytes) { return (uintptr_t)data % bytes == 0; }

static cublasStatus_t check_algo(const fake_product *p, const fake_algo *algo, size_t workspace_bytes)
{
    if (algo->magic != FAKE_ALGO_MAGIC || algo->n_splits < 1) return CUBLAS_STATUS_INVALID_VALUE;
    if (algo->workspace_bytes > workspace_bytes || !is_aligned(p->workspace, 256)) return CUBLAS_STATUS_INVALID_VALUE;
    if (!is_aligned(p->a_data, algo->align[0]) || !is_aligned(p->b_data, algo->align[1]) ||
        (p->beta != 0 && !is_aligned(p->c_data, algo->align[2])) || !is_aligned(p->d_data, algo->align[3]))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if ((p->desc.epilogue & CUBLASLT_EPILOGUE_BIAS) && !is_aligned(p->desc.bias, algo->align_bias))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    if (algo->is_scaled != (p->desc.a_scale && p->desc.b_scale)) return CUBLAS_STATUS_NOT_SUPPORTED;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check_pointers(const fake_product *p)
{
    const unsigned epilogue = p->desc.epilogue;
    if (!p->a_data || !p->b_data || !p->d_data || (p->beta != 0 && !p->c_data)) return CUBLAS_STATUS_INVALID_VALUE;
    if ((epilogue & CUBLASLT_EPILOGUE_BIAS) && !p->desc.bias) return CUBLAS_STATUS_INVALID_VALUE;
    if ((epilogue & FAKE_EPILOGUE_AUX) && !p->desc.aux) return CUBLAS_STATUS_INVALID_VALUE;
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t check(const fake_product *p, const fake_algo *algo, size_t workspace_bytes)
{
    cublasStatus_t status = fake_check_product(p);
    if (status == CUBLAS_STATUS_SUCCESS) status = check_pointers(p);
    if (status == CUBLAS_STATUS_SUCCESS && algo) status = check_algo(p, algo, workspace_bytes);
    return status;
}

/* ---- the call ---- */

/* All that cublasLt is told it may use has to be there, whatever the algorithm takes of it. */
static cudaError_t check_workspace(fake_stream *stream, const fake_product *p, size_t bytes)
{
    const fake_access all = {FAKE_SCRATCH, p->workspace, bytes, 0, 1};
    const fake_use_list uses = {.name = "a product's workspace", .accesses = &all, .n = 1};
    return p->workspace ? fake_check_places(stream, &uses) : cudaSuccess;
}

static void count(const fake_stream *stream, const fake_product *p)
{
    fake_count("product");
    if (stream->priority == FAKE_GREATEST_PRIORITY) fake_count("urgent product");
    if (p->desc.sm_target) fake_count("confined product");
    fake_count_most("SMs", p->desc.sm_target);
}

static cublasStatus_t enqueue(fake_stream *stream, int device, const fake_product *p, size_t workspace_bytes)
{
    const access_list list = accesses_of(p);
    const fake_use_list uses = {.name = "a product", .accesses = list.all, .n = list.n};
    cudaError_t error = stream ? fake_capture_check(stream) : cudaErrorInvalidResourceHandle;
    if (error == cudaSuccess) error = fake_check_current(stream->device, "a product");
    if (error == cudaSuccess && device != stream->device) {
        fake_report(FAKE_WRONG_DEVICE, "a handle of GPU %d is used on stream %d of GPU %d", device, stream->number,
                    stream->device);
        error = cudaErrorInvalidResourceHandle;
    }
    if (error == cudaSuccess) error = check_workspace(stream, p, workspace_bytes);
    if (error == cudaSuccess) error = fake_submit_use(stream, &uses);
    if (error == cudaSuccess) fake_submit(stream, fake_run_product, p, sizeof *p);
    if (error == cudaSuccess) count(stream, p);
    return error == cudaSuccess ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_EXECUTION_FAILED;
}

/* Algorithms that were offered and do not run: FAKE_CUDA_REFUSED, as tiles, "20,22"; "fused,20,22": not with an
 * epilogue. */
static int is_refused(const fake_product *p, const fake_algo *algo)
{
    const char *tiles = getenv("FAKE_CUDA_REFUSED");
    char number[16];
    snprintf(number, sizeof number, "%u", (unsigned)algo->tile);
    if (!tiles || (strstr(tiles, "fused") && p->desc.epilogue == CUBLASLT_EPILOGUE_DEFAULT)) return 0;
    return strstr(tiles, number) != NULL;
}

static void count_tile(const fake_algo *algo)
{
    static const char *const names[FAKE_TILES] = {"tile 20", "tile 21", "tile 22", "tile 23"};
    const uint32_t i = algo->tile - FAKE_FIRST_TILE;
    if (i < FAKE_TILES) fake_count(names[i]);
}

static double factor(const void *number, int type) { return fake_load(number, 0, type); }

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a,
                              cublasLtMatrixLayout_t a_layout, const void *b, cublasLtMatrixLayout_t b_layout,
                              const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *chosen, void *workspace,
                              size_t workspace_bytes, cudaStream_t stream)
{
    const int device = fake_handle_device(handle);
    if (device < 0) return CUBLAS_STATUS_NOT_INITIALIZED;
    if (!fake_find_desc(desc) || !fake_find_layout(a_layout) || !fake_find_layout(b_layout) ||
        !fake_find_layout(c_layout) || !fake_find_layout(d_layout))
        return CUBLAS_STATUS_INVALID_VALUE;
    const fake_algo *algo = (const fake_algo *)(const void *)chosen;
    fake_product p = {.desc = *fake_find_desc(desc),
                      .a = *fake_find_layout(a_layout),
                      .b = *fake_find_layout(b_layout),
                      .c = *fake_find_layout(c_layout),
                      .d = *fake_find_layout(d_layout),
                      .a_data = a,
                      .b_data = b,
                      .c_data = c,
                      .d_data = d,
                      .workspace = workspace,
                      .workspace_bytes = algo ? algo->workspace_bytes : 0,
                      .n_splits = algo ? algo->n_splits : 1,
                      .reduction = algo ? algo->reduction : 0};
    p.alpha = factor(alpha, p.desc.scale_type);
    p.beta = factor(beta, p.desc.scale_type);
    const cublasStatus_t status = check(&p, algo, workspace_bytes);
    if (status != CUBLAS_STATUS_SUCCESS) return status;
    if (algo && is_refused(&p, algo)) return CUBLAS_STATUS_NOT_SUPPORTED;
    if (fake_take_failure("product")) return CUBLAS_STATUS_EXECUTION_FAILED;
    if (algo) count_tile(algo);
    fake_lock();
    const cublasStatus_t done = enqueue(fake_find_stream(stream, "a product"), device, &p, workspace_bytes);
    fake_unlock();
    return done;
}
