/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of a context (qdr_mem_alloc()), which the host cannot read or write if the context is on a GPU. All functions
 * return when their work is complete. */
#ifndef QUADRILLE_SRC_COMMON_MEMORY_H
#define QUADRILLE_SRC_COMMON_MEMORY_H

#include <quadrille/context.h>
#include <quadrille/types.h>

/* Copies between memory of the context and of the host, or within either. */
qdr_status memory_copy(qdr_context *ctx, void *dst, const void *src, size_t bytes);
/* Sets every byte. */
qdr_status memory_set(qdr_context *ctx, void *there, int byte, size_t bytes);
/* Fills n elements like element_fill(). */
qdr_status memory_fill(qdr_context *ctx, void *there, int64_t n_elems, qdr_dtype dtype);

#endif
