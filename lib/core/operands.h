/* SPDX-License-Identifier: Apache-2.0 */
/* What each kernel reads and writes. From this table follow how a task's operands become the pointers of a kernel, and
 * which of them must be there. Pure. */
#ifndef QDRI_CORE_OPERANDS_H
#define QDRI_CORE_OPERANDS_H

#include <stddef.h>

#include "core/dtype.h"
#include "core/kernels.h"

typedef enum qdri_operand_use {
    QDRI_OPERAND_READ,
    QDRI_OPERAND_WRITTEN,
    QDRI_OPERAND_SUMMED, /* written, or added to if `accumulate` */
    QDRI_OPERAND_UPDATED /* read and written */
} qdri_operand_use;

typedef enum qdri_operand_type {
    QDRI_OPERAND_T,
    QDRI_OPERAND_A,
    QDRI_OPERAND_DTYPE2,
    QDRI_OPERAND_I32,
    QDRI_OPERAND_F64,
    QDRI_OPERAND_BYTE
} qdri_operand_type;

/* How many elements an operand has: `times` as many as … */
typedef enum qdri_operand_extent {
    QDRI_PER_ELEMENT, /* … rows × columns; of attention: of its queries */
    QDRI_PER_INPUT, /* … rows × columns of all blocks of the input */
    QDRI_PER_QKV, /* … rows × columns of queries, keys and values */
    QDRI_PER_ROW,
    QDRI_PER_COLUMN,
    QDRI_PER_HEAD, /* … rows × heads */
    QDRI_PER_PART, /* … rows of all parts */
    QDRI_PER_WORK, /* … bytes of an attention's workspace */
    QDRI_PER_ROTATION, /* … rows of a sequence × columns that are turned */
    QDRI_PER_GAMMA, /* … columns of a head, if heads are normed */
    QDRI_PER_SINK, /* … heads, if they have sinks */
    QDRI_PER_TABLE, /* … rows of a table (of words, of positions) × columns */
    QDRI_PER_CALL
} qdri_operand_extent;

typedef struct qdri_operand {
    const char *name;
    size_t member; /* offset of its pointer in qdri_kernel */
    qdri_operand_use use;
    qdri_operand_type type;
    qdri_operand_extent extent;
    int times;
    int is_optional; /* may be NULL */
} qdri_operand;

/* Those of a kernel, everything that is only read before the rest. @return their number; 0: of kernels whose messages
 * or sources are counted in the description (REDUCE, TO_KEYS, FROM_KEYS, and codecs) */
int qdri_kernel_operands(qdri_kernel_kind kind, const qdri_operand **operands);
/* How many it has to have, for this description: what is read for each column, or of a table, is not without rows. */
int64_t qdri_operand_elems(const qdri_kernel *kernel, const qdri_operand *operand);
void *qdri_operand_pointer(const qdri_kernel *kernel, const qdri_operand *operand);
/* Sets the pointers, in the order of the table; what is missing at the end, or NULL, is not there. */
void qdri_kernel_bind(qdri_kernel *kernel, void *const *reads, int n_reads, void *const *writes, int n_writes);

/* How a kernel is divided: by rows, and by columns if it sums over rows. Parts have no element of a result in common,
 * and each is computed as by the whole kernel. */
typedef struct qdri_division {
    int64_t n_rows, row_elems; /* n_rows 0: not by rows; row_elems: one row's share of the work */
    int64_t n_cols, col_elems; /* the same */
} qdri_division;
qdri_division qdri_kernel_division(const qdri_kernel *kernel);
/* Limits a kernel that is divided by rows, or attention's to whole sequences, to n rows from `first` on. */
void qdri_kernel_take_rows(qdri_kernel *kernel, int64_t first, int64_t n);

/* Whether queries and keys are changed before they meet. */
static inline int qdri_attention_turns(const qdri_kernel *kernel)
{
    return kernel->u.attention.rotary_columns > 0 || kernel->u.attention.head_norm;
}
/* Workspace of an attention kernel, in either direction, on any device. A GPU's begins with a sum for each row and
 * head, padded; turned queries and keys follow. */
static inline size_t qdri_attention_sums_bytes(const qdri_kernel *kernel)
{
    const size_t n = (size_t)kernel->u.attention.n_heads * (size_t)kernel->u.attention.n_rows;
    return (n * (kernel->dtype == QDR_F64 ? sizeof(double) : sizeof(float)) + 63) / 64 * 64;
}
size_t qdri_attention_work_bytes(const qdri_kernel *kernel);
/* What each other thread of a CPU needs of it, whatever the rows. */
size_t qdri_attention_thread_bytes(const qdri_kernel *kernel);

/* ---- what a CPU of n_threads keeps beside operands ---- */

/* Products that are converted work on blocks of at most this many rows, columns and steps; panels of A, B and C in fp32
 * for each thread. */
#define QDRI_PANEL_EDGE 512
#define QDRI_PANELS_BYTES ((size_t)3 * QDRI_PANEL_EDGE * QDRI_PANEL_EDGE * sizeof(float))

/* Whether it converts products of a type as they are stored; has_bf16: it has instructions for BF16. */
static inline int qdri_cpu_converts(qdr_dtype dtype, int has_bf16)
{
    return qdri_is_narrow(dtype) && !(dtype == QDR_BF16 && has_bf16);
}
static inline size_t qdri_cpu_panels_bytes(int n_threads) { return QDRI_PANELS_BYTES * (size_t)n_threads; }
/* For attention: the kernel's own workspace is that of the thread that runs it. */
static inline size_t qdri_cpu_attention_bytes(const qdri_kernel *kernel, int n_threads)
{
    return (size_t)(n_threads - 1) * qdri_attention_thread_bytes(kernel);
}

/* The kernel's name. */
const char *qdri_kernel_name(qdri_kernel_kind kind);

#endif
