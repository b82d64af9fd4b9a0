/* SPDX-License-Identifier: Apache-2.0 */
/* Checked products of sizes; host memory. */
#include "core/size.h"

#include <stdlib.h>
#include <string.h>

qdr_status qdri_mul_elems(int64_t a, int64_t b, int64_t *product)
{
    *product = 0;
    if (a < 0 || b < 0 || (b > 0 && a > INT64_MAX / b))
        return QDR_FAIL(QDR_ERR_SHAPE,
                        "size: %" PRId64 " times %" PRId64 " elements do not fit in 63 bits; check the shape", a, b);
    *product = a * b;
    return QDR_OK;
}

qdr_status qdri_elems_bytes(int64_t n_elems, qdr_dtype dtype, size_t *bytes)
{
    const size_t each = qdr_dtype_bytes(dtype);
    *bytes = 0;
    if (each == 0)
        return QDR_FAIL(QDR_ERR_DTYPE, "size: %d is not an element type; use f32, f64, bf16, f16, i32 or u8",
                        (int)dtype);
    /* Half of the address space, so that offsets and some padding fit as well. */
    if (n_elems < 0 || (uint64_t)n_elems > (uint64_t)(SIZE_MAX / 2) / each)
        return QDR_FAIL(QDR_ERR_SHAPE, "size: %" PRId64 " elements of %s do not fit in memory; check the shape",
                        n_elems, qdr_dtype_name(dtype));
    *bytes = (size_t)n_elems * each;
    return QDR_OK;
}

qdr_status qdri_block_bytes(int64_t n_rows, int64_t n_cols, qdr_dtype dtype, size_t *bytes)
{
    int64_t n_elems = 0;
    *bytes = 0;
    QDR_TRY(qdri_mul_elems(n_rows, n_cols, &n_elems));
    return qdri_elems_bytes(n_elems, dtype, bytes);
}

static qdr_status check_memory(const void *memory, size_t n, size_t bytes_each, const char *what)
{
    if (memory) return QDR_OK;
    return QDR_FAIL(
        QDR_ERR_MEMORY,
        "out of memory: could not allocate %zu × %zu bytes for %s; use fewer ranks per node or smaller sizes", n,
        bytes_each, what);
}

qdr_status qdri_calloc(size_t n, size_t bytes_each, const char *what, void **memory)
{
    *memory = calloc(n ? n : 1, bytes_each ? bytes_each : 1);
    return check_memory(*memory, n, bytes_each, what);
}

qdr_status qdri_malloc(size_t n, size_t bytes_each, const char *what, void **memory)
{
    const size_t bytes = n && bytes_each ? n * bytes_each : 1;
    *memory = n && bytes_each > SIZE_MAX / n ? NULL : malloc(bytes);
    return check_memory(*memory, n, bytes_each, what);
}

qdr_status qdri_list_grow(void **items, int n, int *capacity, size_t bytes_each, const char *what)
{
    if (n < *capacity) return QDR_OK;
    const int larger = *capacity ? 2 * *capacity : 16;
    void *memory = realloc(*items, (size_t)larger * bytes_each);
    QDR_TRY(check_memory(memory, (size_t)larger, bytes_each, what));
    *items = memory;
    *capacity = larger;
    return QDR_OK;
}

qdr_status qdri_strdup(const char *text, char **copy)
{
    const size_t bytes = strlen(text) + 1;
    QDR_TRY(qdri_calloc(bytes, 1, "a string", (void **)copy));
    memcpy(*copy, text, bytes);
    return QDR_OK;
}
