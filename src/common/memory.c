/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a context, filled from the host's. */
#include "common/memory.h"

#include <string.h>

#include "common/failure.h"
#include "common/reference.h"

enum { PATTERN_ELEMS = 7 * 512 }; /* whole periods of element_fill() */

qdr_status memory_copy(qdr_context *ctx, void *dst, const void *src, size_t bytes)
{
    TRY(qdr_copy(ctx, dst, src, bytes, NULL));
    return qdr_stream_synchronize(qdr_context_stream(ctx));
}

/* The part that is filled is copied behind itself, so that a few copies fill any size. */
static qdr_status repeat(qdr_context *ctx, char *there, const void *pattern, size_t pattern_bytes, size_t bytes)
{
    size_t done = pattern_bytes < bytes ? pattern_bytes : bytes;
    qdr_status status = memory_copy(ctx, there, pattern, done);
    while (status >= 0 && done < bytes) {
        const size_t more = done < bytes - done ? done : bytes - done;
        status = memory_copy(ctx, there + done, there, more);
        done += more;
    }
    return status;
}

qdr_status memory_set(qdr_context *ctx, void *there, int byte, size_t bytes)
{
    char pattern[4096];
    memset(pattern, byte, sizeof pattern);
    return repeat(ctx, there, pattern, sizeof pattern, bytes);
}

qdr_status memory_fill(qdr_context *ctx, void *there, int64_t n_elems, qdr_dtype dtype)
{
    double pattern[PATTERN_ELEMS]; /* as wide as the widest type */
    const size_t each = qdr_dtype_bytes(dtype);
    element_fill(pattern, PATTERN_ELEMS, dtype);
    return repeat(ctx, there, pattern, PATTERN_ELEMS * each, (size_t)n_elems * each);
}
