/* SPDX-License-Identifier: Apache-2.0 */
/* Checked size arithmetic, and host memory whose failed allocation is reported with a message. */
#ifndef QDRI_CORE_SIZE_H
#define QDRI_CORE_SIZE_H

#include "core/status.h"

/* *product = a·b. Both ≥ 0. @retval QDR_ERR_SHAPE it does not fit */
QDR_NODISCARD qdr_status qdri_mul_elems(int64_t a, int64_t b, int64_t *product);
/* *bytes = n_elems · bytes of dtype. @retval QDR_ERR_SHAPE it does not fit, or n_elems < 0 */
QDR_NODISCARD qdr_status qdri_elems_bytes(int64_t n_elems, qdr_dtype dtype, size_t *bytes);
/* *bytes = n_rows · n_cols · bytes of dtype. @retval QDR_ERR_SHAPE it does not fit */
QDR_NODISCARD qdr_status qdri_block_bytes(int64_t n_rows, int64_t n_cols, qdr_dtype dtype, size_t *bytes);
static inline int64_t qdri_least(int64_t a, int64_t b) { return a < b ? a : b; }
static inline int64_t qdri_ceil_div(int64_t a, int64_t b) { return a / b + (a % b > 0); }
static inline int64_t qdri_round_up(int64_t a, int64_t b) { return qdri_ceil_div(a, b) * b; }
/* The greatest; neither is negative, and not both are 0. */
static inline int64_t qdri_common_divisor(int64_t a, int64_t b) { return b ? qdri_common_divisor(b, a % b) : a; }
static inline size_t qdri_align_bytes(size_t bytes, size_t to) { return (bytes + to - 1) / to * to; }

/* Allocates zeroed host memory for n items; free it with free(). `what` names it in the error message. n = 0 gives a
 * valid pointer. */
QDR_NODISCARD qdr_status qdri_calloc(size_t n, size_t bytes_each, const char *what, void **memory);
#define QDRI_NEW(n, what, pointer) qdri_calloc((size_t)(n), sizeof **(pointer), what, (void **)(pointer))
/* The same, not zeroed: for what is large and written before it is read. */
QDR_NODISCARD qdr_status qdri_malloc(size_t n, size_t bytes_each, const char *what, void **memory);
#define QDRI_NEW_UNSET(n, what, pointer) qdri_malloc((size_t)(n), sizeof **(pointer), what, (void **)(pointer))
/* Makes room for one more item, which is not zeroed; the list may move. */
QDR_NODISCARD qdr_status qdri_list_grow(void **items, int n, int *capacity, size_t bytes_each, const char *what);
/* A copy of a string. */
QDR_NODISCARD qdr_status qdri_strdup(const char *text, char **copy);

#endif
