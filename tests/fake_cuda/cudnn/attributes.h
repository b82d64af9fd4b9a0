/* SPDX-License-Identifier: Apache-2.0 */
/* The attributes of each kind of descriptor: kind, name, type of value, minimum and maximum number of values. */
#define HAS(kind, name, type, least, most)                                                                             \
    {                                                                                                                  \
        QDRI_CUDNN_##kind, QDRI_CUDNN_##name, QDRI_CUDNN_OF_##type, least, most                                        \
    }

static const struct {
    int kind, name, type;
    int64_t least, most; /* least = 0: it may be absent */
} attributes[] = {
    HAS(TENSOR, TENSOR_TYPE, DATA_TYPE, 1, 1),
    HAS(TENSOR, TENSOR_DIMS, I64, 4, 4),
    HAS(TENSOR, TENSOR_STRIDES, I64, 4, 4),
    HAS(TENSOR, TENSOR_ID, I64, 1, 1),
    HAS(TENSOR, TENSOR_ALIGNMENT, I64, 1, 1),
    HAS(TENSOR, TENSOR_VIRTUAL, BOOL, 0, 1),
    HAS(TENSOR, TENSOR_BY_VALUE, BOOL, 0, 1),
    HAS(POINTWISE, POINTWISE_MODE, MODE, 1, 1),
    HAS(POINTWISE, POINTWISE_TYPE, DATA_TYPE, 1, 1),
    HAS(POINTWISE, POINTWISE_AXIS, I64, 0, 1),
    HAS(OP_POINTWISE, OP_POINTWISE_DESC, DESCRIPTOR, 1, 1),
    HAS(OP_POINTWISE, OP_POINTWISE_X, DESCRIPTOR, 1, 1),
    HAS(OP_POINTWISE, OP_POINTWISE_B, DESCRIPTOR, 0, 1),
    HAS(OP_POINTWISE, OP_POINTWISE_T, DESCRIPTOR, 0, 1),
    HAS(OP_POINTWISE, OP_POINTWISE_Y, DESCRIPTOR, 1, 1),
    HAS(MATMUL, MATMUL_TYPE, DATA_TYPE, 1, 1),
    HAS(OP_MATMUL, OP_MATMUL_A, DESCRIPTOR, 1, 1),
    HAS(OP_MATMUL, OP_MATMUL_B, DESCRIPTOR, 1, 1),
    HAS(OP_MATMUL, OP_MATMUL_C, DESCRIPTOR, 1, 1),
    HAS(OP_MATMUL, OP_MATMUL_DESC, DESCRIPTOR, 1, 1),
    HAS(REDUCTION, REDUCTION_OPERATOR, REDUCTION, 1, 1),
    HAS(REDUCTION, REDUCTION_TYPE, DATA_TYPE, 1, 1),
    HAS(OP_REDUCTION, OP_REDUCTION_X, DESCRIPTOR, 1, 1),
    HAS(OP_REDUCTION, OP_REDUCTION_Y, DESCRIPTOR, 1, 1),
    HAS(OP_REDUCTION, OP_REDUCTION_DESC, DESCRIPTOR, 1, 1),
    HAS(OP_RESHAPE, OP_RESHAPE_X, DESCRIPTOR, 1, 1),
    HAS(OP_RESHAPE, OP_RESHAPE_Y, DESCRIPTOR, 1, 1),
    HAS(GRAPH, GRAPH_HANDLE, HANDLE, 1, 1),
    HAS(GRAPH, GRAPH_OPS, DESCRIPTOR, 1, OPS_MOST),
    HAS(HEURISTIC, HEURISTIC_GRAPH, DESCRIPTOR, 1, 1),
    HAS(HEURISTIC, HEURISTIC_MODE, HEURISTIC, 1, 1),
    HAS(PLAN, PLAN_CONFIG, DESCRIPTOR, 1, 1),
    HAS(PLAN, PLAN_HANDLE, HANDLE, 1, 1),
    HAS(PACK, PACK_IDS, I64, 1, QDRI_CUDNN_N_IDS),
    HAS(PACK, PACK_POINTERS, POINTER, 1, QDRI_CUDNN_N_IDS),
    HAS(PACK, PACK_WORKSPACE, POINTER, 1, 1),
};
#undef HAS
