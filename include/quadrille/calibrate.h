/* SPDX-License-Identifier: Apache-2.0 */
/** @file calibrate.h  A machine's constants, fitted to measurements made on it.
 *
 * A sample is one piece of work (a product, a kernel, a collective) and the time it took. The model predicts a time for
 * each sample; fitting chooses the constants that minimise the relative errors of these predictions. `quadrille
 * calibrate` measures on CPUs and GPUs; samples of another device are fitted in the same way. Part of
 * libquadrille_perf: arithmetic, no ranks, no clock. All functions are local and thread-safe. */
#ifndef QUADRILLE_CALIBRATE_H
#define QUADRILLE_CALIBRATE_H

#include "coll.h"
#include "machine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum qdr_sample_kind {
    QDR_SAMPLE_LAUNCH = 0, /**< n_kernels without any work */
    QDR_SAMPLE_MEMORY, /**< n_kernels that move `bytes` */
    QDR_SAMPLE_KERNEL, /**< n_kernels that move `bytes` and compute `flops` */
    QDR_SAMPLE_PRODUCT, /**< m×k and k×n, one kernel */
    QDR_SAMPLE_ATTENTION, /**< fused: n_kernels that move `bytes` and compute `flops` */
    QDR_SAMPLE_COLLECTIVE, /**< in groups of n_ranks */
    QDR_SAMPLE_TOGETHER, /**< a product and a collective started at the same time */
    QDR_N_SAMPLE_KINDS
} qdr_sample_kind;

/** How the operands of a product are stored: as multiplied, the second transposed, the first transposed. */
typedef enum qdr_product_mode { QDR_MODE_NN = 0, QDR_MODE_NT, QDR_MODE_TN } qdr_product_mode;

/** A piece of work, and the seconds its slowest rank took. Members that a kind does not need are ignored. */
typedef struct qdr_sample {
    size_t size; /**< QDR_INIT(qdr_sample) */
    qdr_sample_kind kind;
    const char *group; /**< the heading under which samples are reported together: "all-gather"; not owned */
    double secs; /**< > 0; for QDR_SAMPLE_TOGETHER: of the product */
    int n_kernels;
    double bytes, flops; /**< of all kernels; collectives: bytes of the whole vector */
    qdr_dtype dtype; /**< products, attention */
    qdr_product_mode mode;
    double m, n, k;
    qdr_coll_kind coll; /**< all-gather, reduce-scatter, all-reduce, send-recv */
    int n_ranks; /**< members of a group; consecutive members are `stride` ranks apart */
    int stride;
    int n_ranks_all; /**< of the machine as it was measured */
    int alone; /**< 1: one group, 0: all groups of this kind at once */
    double product_secs, coll_secs; /**< QDR_SAMPLE_TOGETHER: of each when it runs alone */
    double coll_end_secs; /**< QDR_SAMPLE_TOGETHER: of the collective */
    double turn_bytes, turn_flops; /**< attention: of passes that norm or rotate queries and keys, besides */
} qdr_sample;

/** The model's time for a sample's work.
 *  @param[out] secs  0 after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, no size, an unknown kind or collective, a group that does not fit */
QDR_API QDR_NODISCARD qdr_status qdr_sample_secs(const qdr_machine *machine, const qdr_sample *sample, double *secs);
/** Sets the constants that the samples determine and leaves the others alone: the caller sets the name, the ranks per
 * node, the memory, and the number, the ranks and the adapters of the links. Errors are relative to the measured time,
 * weighted with its fourth root, and with a tenth if one group ran alone; absolute errors are minimised, not squares,
 * so that a few disturbed samples do no harm. No constant becomes negative.
 *  @param machine  on entry, a machine that passes qdr_machine_check()
 *  @retval QDR_ERR_ARGUMENT  as above; or the fit does not give a valid machine. *machine is unchanged
 *  @retval QDR_ERR_MEMORY    *machine is unchanged */
QDR_API QDR_NODISCARD qdr_status qdr_machine_fit(qdr_machine *machine, const qdr_sample *samples, int n_samples);

#ifdef __cplusplus
}
#endif
#endif
