/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for activations without a source: generated on the host, copied to the device. */
#ifndef EXAMPLES_NUMBERS_H
#define EXAMPLES_NUMBERS_H

#include <quadrille/quadrille.h>

/* Fills n elements of the context's device memory with numbers in [-1, 1) that depend only on their position. Blocking.
 * Not collective: QDR_ERR_MEMORY may occur on a single rank. */
qdr_status numbers_fill(qdr_context *ctx, void *data, int64_t n, qdr_dtype dtype);

#endif
