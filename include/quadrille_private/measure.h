/* SPDX-License-Identifier: Apache-2.0 */
/** @file measure.h  What a program tells of a run while it goes on: waits, and the rate of products.
 *
 * Private (private.h). Part of libquadrille. */
#ifndef QUADRILLE_PRIVATE_MEASURE_H
#define QUADRILLE_PRIVATE_MEASURE_H

#include "../quadrille/context.h"
#include "private.h"

/** Seconds that this rank's compute streams have waited so far for its other streams, which run collectives: what these
 * take beyond what products hide, and how late other ranks are. Collectives of statistics are not among them: they run
 * on the compute stream itself (qdr_traffic). Local; any thread, also while streams run.
 *  @return 0 on a GPU, whose streams are not stopped for timing, and for NULL */
QDR_PRIVATE_API double qdr_measure_waits(const qdr_context *ctx);

/** Measures how fast this rank computes products of square matrices of the type, of a size with which ranks have
 * some milliseconds' work: from when all ranks begin some to when all have computed them; the median of a few rounds.
 * The memory is freed again, but counts in the peak (qdr_mem_reset_peak()). Collective over the context, blocking;
 * ranks agree.
 *  @param[out] flops_per_sec  this rank's; 0 after an error
 *  @retval QDR_ERR_ARGUMENT  NULL
 *  @retval QDR_ERR_DTYPE     no type of products
 *  @retval QDR_ERR_MEMORY    too little for three matrices
 *  @retval others            the context's status */
QDR_PRIVATE_API QDR_NODISCARD qdr_status qdr_measure_products(qdr_context *ctx, qdr_dtype dtype, double *flops_per_sec);

#endif
