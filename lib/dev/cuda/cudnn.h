/* SPDX-License-Identifier: Apache-2.0 */
/* cuDNN's attention, if the library is found at run time: it is never linked, and its headers are not needed. The
 * constants and signatures here are those of its backend API, which are stable in cuDNN 9 (tests/fake_cuda/cudnn
 * compares them with its headers if they are installed). */
#ifndef QDRI_DEV_CUDA_CUDNN_H
#define QDRI_DEV_CUDA_CUDNN_H

#include <cuda_runtime_api.h>

#include "core/dtype.h"
#include "core/status.h"

enum { QDRI_CUDNN_SUCCESS = 0, QDRI_CUDNN_NO_HOST_MEMORY = 4003, QDRI_CUDNN_NO_DEVICE_MEMORY = 4004 };

/* Whether cuDNN's status says that memory was short: the same may work later. */
static inline int qdri_cudnn_is_short(int status)
{
    return status == QDRI_CUDNN_NO_HOST_MEMORY || status == QDRI_CUDNN_NO_DEVICE_MEMORY;
}

typedef enum qdri_cudnn_type {
    QDRI_CUDNN_F32 = 0,
    QDRI_CUDNN_F16 = 2,
    QDRI_CUDNN_I32 = 4,
    QDRI_CUDNN_BF16 = 9,
    QDRI_CUDNN_BOOL = 11
} qdri_cudnn_type; /* of data */

typedef enum qdri_cudnn_kind {
    QDRI_CUDNN_POINTWISE = 0,
    QDRI_CUDNN_ENGINE = 2,
    QDRI_CUDNN_CONFIG = 3,
    QDRI_CUDNN_HEURISTIC = 4,
    QDRI_CUDNN_PLAN = 5,
    QDRI_CUDNN_OP_POINTWISE = 13,
    QDRI_CUDNN_GRAPH = 15,
    QDRI_CUDNN_PACK = 16,
    QDRI_CUDNN_TENSOR = 17,
    QDRI_CUDNN_MATMUL = 18,
    QDRI_CUDNN_OP_MATMUL = 19,
    QDRI_CUDNN_REDUCTION = 21,
    QDRI_CUDNN_OP_REDUCTION = 22,
    QDRI_CUDNN_OP_RESHAPE = 31,
    QDRI_CUDNN_DEVICE = 38
} qdri_cudnn_kind; /* of descriptors */

typedef enum qdri_cudnn_value {
    QDRI_CUDNN_OF_HANDLE = 0,
    QDRI_CUDNN_OF_DATA_TYPE = 1,
    QDRI_CUDNN_OF_BOOL = 2,
    QDRI_CUDNN_OF_I64 = 3,
    QDRI_CUDNN_OF_POINTER = 6,
    QDRI_CUDNN_OF_HEURISTIC = 8,
    QDRI_CUDNN_OF_NOTE = 11,
    QDRI_CUDNN_OF_MODE = 14,
    QDRI_CUDNN_OF_DESCRIPTOR = 15,
    QDRI_CUDNN_OF_REDUCTION = 18,
    QDRI_CUDNN_OF_CHAR = 24
} qdri_cudnn_value; /* types of attributes */

typedef enum qdri_cudnn_name {
    QDRI_CUDNN_POINTWISE_MODE = 0,
    QDRI_CUDNN_POINTWISE_TYPE = 1,
    QDRI_CUDNN_POINTWISE_AXIS = 9,
    QDRI_CUDNN_HEURISTIC_MODE = 200,
    QDRI_CUDNN_HEURISTIC_GRAPH = 201,
    QDRI_CUDNN_HEURISTIC_RESULTS = 202,
    QDRI_CUDNN_HEURISTIC_DEVICE = 204,
    QDRI_CUDNN_CONFIG_ENGINE = 300,
    QDRI_CUDNN_PLAN_HANDLE = 400,
    QDRI_CUDNN_PLAN_CONFIG = 401,
    QDRI_CUDNN_PLAN_WORKSPACE = 402,
    QDRI_CUDNN_PLAN_DEVICE = 407,
    QDRI_CUDNN_OP_POINTWISE_DESC = 750,
    QDRI_CUDNN_OP_POINTWISE_X = 751,
    QDRI_CUDNN_OP_POINTWISE_B = 752,
    QDRI_CUDNN_OP_POINTWISE_Y = 753,
    QDRI_CUDNN_OP_POINTWISE_T = 758,
    QDRI_CUDNN_GRAPH_HANDLE = 800,
    QDRI_CUDNN_GRAPH_OPS = 801,
    QDRI_CUDNN_TENSOR_ALIGNMENT = 900,
    QDRI_CUDNN_TENSOR_TYPE = 901,
    QDRI_CUDNN_TENSOR_DIMS = 902,
    QDRI_CUDNN_TENSOR_STRIDES = 903,
    QDRI_CUDNN_TENSOR_ID = 906,
    QDRI_CUDNN_TENSOR_VIRTUAL = 907,
    QDRI_CUDNN_TENSOR_BY_VALUE = 908,
    QDRI_CUDNN_PACK_IDS = 1000,
    QDRI_CUDNN_PACK_POINTERS = 1001,
    QDRI_CUDNN_PACK_WORKSPACE = 1003,
    QDRI_CUDNN_ENGINE_NOTES = 1303,
    QDRI_CUDNN_MATMUL_TYPE = 1500,
    QDRI_CUDNN_OP_MATMUL_A = 1520,
    QDRI_CUDNN_OP_MATMUL_B = 1521,
    QDRI_CUDNN_OP_MATMUL_C = 1522,
    QDRI_CUDNN_OP_MATMUL_DESC = 1523,
    QDRI_CUDNN_REDUCTION_OPERATOR = 1600,
    QDRI_CUDNN_REDUCTION_TYPE = 1601,
    QDRI_CUDNN_OP_REDUCTION_X = 1610,
    QDRI_CUDNN_OP_REDUCTION_Y = 1611,
    QDRI_CUDNN_OP_REDUCTION_DESC = 1612,
    QDRI_CUDNN_OP_RESHAPE_X = 2200,
    QDRI_CUDNN_OP_RESHAPE_Y = 2201,
    QDRI_CUDNN_DEVICE_JSON = 2702
} qdri_cudnn_name; /* of attributes */

typedef enum qdri_cudnn_mode {
    QDRI_CUDNN_ADD = 0,
    QDRI_CUDNN_MUL = 1,
    QDRI_CUDNN_DIV = 6,
    QDRI_CUDNN_SUB = 9,
    QDRI_CUDNN_EXP = 13,
    QDRI_CUDNN_LOG = 15,
    QDRI_CUDNN_GREATER_EQUAL = 303,
    QDRI_CUDNN_INDEX = 501,
    QDRI_CUDNN_SELECT = 601
} qdri_cudnn_mode; /* of pointwise operations */

enum { QDRI_CUDNN_SUM = 0, QDRI_CUDNN_LARGEST = 3 }; /* reductions */
enum { QDRI_CUDNN_NOTE_NONDETERMINISTIC = 4, QDRI_CUDNN_N_NOTES = 10 };
enum { QDRI_CUDNN_HEURISTIC_A = 3 };

typedef void *qdri_cudnn_desc;

/* The functions of the library that are called. */
typedef struct qdri_cudnn {
    size_t version; /* 91900: 9.19.0 */
    size_t (*get_version)(void);
    int (*create)(void **handle);
    int (*destroy)(void *handle);
    int (*set_stream)(void *handle, cudaStream_t stream);
    const char *(*error_string)(int status);
    int (*desc_create)(int kind, qdri_cudnn_desc *desc);
    int (*desc_destroy)(qdri_cudnn_desc desc);
    int (*desc_set)(qdri_cudnn_desc desc, int name, int type, int64_t n, const void *values);
    int (*desc_get)(qdri_cudnn_desc desc, int name, int type, int64_t n, int64_t *n_got, void *values);
    int (*desc_finalize)(qdri_cudnn_desc desc);
    int (*execute)(void *handle, qdri_cudnn_desc plan, qdri_cudnn_desc pack);
} qdri_cudnn;

/* The oldest supported version: before it, the backward pass needed whole tiles of 128 keys. */
#define QDRI_CUDNN_LEAST 91600

/* Opens the library, once per process: QDR_CUDNN, or libcudnn.so.9 on the loader's search path, next to the plugin, or
 * in the PyTorch package. Any thread.
 * @retval QDR_ERR_UNSUPPORTED  it is not there, or too old; the message says where it was searched for */
QDR_NODISCARD qdr_status qdri_cudnn_open(const qdri_cudnn **api);

/* ---- attention as graphs (cudnn_graph.c) ---- */

/* Tensors in memory, and numbers passed by value, with which a plan is run. */
typedef enum qdri_cudnn_id {
    QDRI_CUDNN_Q = 1,
    QDRI_CUDNN_K,
    QDRI_CUDNN_V,
    QDRI_CUDNN_O,
    QDRI_CUDNN_STATS, /* log Σexp of a row's scaled scores, f32 [sequence, head, row] */
    QDRI_CUDNN_DO,
    QDRI_CUDNN_DELTAS, /* Σ dO·O of a row, in the same layout as the statistics */
    QDRI_CUDNN_DQ,
    QDRI_CUDNN_DK,
    QDRI_CUDNN_DV,
    QDRI_CUDNN_SCALE, /* by value, f32 */
    QDRI_CUDNN_HIDDEN, /* by value, f32: the score of masked elements */
    QDRI_CUDNN_ONE, /* by value, f32 */
    QDRI_CUDNN_N_IDS
} qdri_cudnn_id;

typedef struct qdri_cudnn_shape {
    int64_t n_rows, context, n_heads, n_kv_heads, head_size;
    int64_t row_heads, row_kv_heads; /* of the arrays' rows; more than n_heads only for a single sequence, since the
                                      * statistics have no gaps */
    qdr_dtype dtype; /* BF16 or F16 */
} qdri_cudnn_shape;

typedef struct qdri_cudnn_plan {
    qdri_cudnn_desc plan;
    int64_t workspace_bytes;
} qdri_cudnn_plan;

/* The target GPU: that of a handle or, without one, a description to compile for ahead of time. */
typedef struct qdri_cudnn_target {
    void *handle;
    qdri_cudnn_desc device;
} qdri_cudnn_target;

/* Creates a deterministic plan for a forward or a backward pass that needs at most this much workspace.
 * @retval QDR_ERR_SHAPE        cuDNN has only plans that need more
 * @retval QDR_ERR_MEMORY       there was too little memory to make one; there may be enough later
 * @retval QDR_ERR_UNSUPPORTED  cuDNN has none; the message contains cuDNN's reason */
QDR_NODISCARD qdr_status qdri_cudnn_plan_make(const qdri_cudnn *api, qdri_cudnn_target target,
                                              const qdri_cudnn_shape *shape, int is_backward, int64_t workspace_most,
                                              qdri_cudnn_plan *plan);
void qdri_cudnn_plan_free(const qdri_cudnn *api, qdri_cudnn_plan *plan);

#endif
