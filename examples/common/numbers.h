/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers for activations that come from nowhere: made on the host, copied to the device. */
#ifndef EXAMPLES_NUMBERS_H
#define EXAMPLES_NUMBERS_H

#include <quadrille/quadrille.h>

/* Fills n elements of the context's device memory with numbers from [-1, 1) that depend on their place alone. Blocking.
 * Not collective: QDR_ERR_MEMORY may come on one rank only. */
qdr_status numbers_fill(qdr_context *ctx, void *data, int64_t n, qdr_dtype dtype);

#endif
