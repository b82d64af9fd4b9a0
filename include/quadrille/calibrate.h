/* SPDX-License-Identifier: Apache-2.0 */
/** @file calibrate.h  A machine's constants from what was measured on it.
 *
 *  A sample is one piece of work and the time that it took: a product, a kernel, a collective. The model has a time for
 * each sample; fitting makes the model's constants those whose times are nearest to the measured ones, as shares of
 * these. `quadrille calibrate` measures on CPUs; samples of another device are fitted alike. Part of libquadrille_perf:
 * arithmetic, no ranks, no clock. All functions are local and thread-safe. */
#ifndef QUADRILLE_CALIBRATE_H
#define QUADRILLE_CALIBRATE_H

#include "coll.h"
#include "machine.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum qdr_sample_kind {
    QDR_SAMPLE_LAUNCH = 0, /**< n_kernels that have nothing to do */
    QDR_SAMPLE_MEMORY, /**< n_kernels that move `bytes` */
    QDR_SAMPLE_KERNEL, /**< n_kernels that move `bytes` and compute `flops` */
    QDR_SAMPLE_PRODUCT, /**< m×k and k×n, one kernel */
    QDR_SAMPLE_ATTENTION, /**< fused: n_kernels that move `bytes` and compute `flops` */
    QDR_SAMPLE_COLLECTIVE, /**< in groups of n_ranks */
    QDR_SAMPLE_TOGETHER, /**< a product and a collective begun at once */
    QDR_N_SAMPLE_KINDS
} qdr_sample_kind;

/** How the operands of a product lie: as they are multiplied, the second turned, the first turned. */
typedef enum qdr_product_mode { QDR_MODE_NN = 0, QDR_MODE_NT, QDR_MODE_TN } qdr_product_mode;

/** Work, and seconds of its slowest rank. What a kind does not name is not looked at. */
typedef struct qdr_sample {
    uint32_t version; /**< QDR_OPTS_INIT */
    qdr_sample_kind kind;
    const char *group; /**< samples that people look at together: "all-gather"; not owned */
    double secs; /**< > 0; together: of the product */
    int n_kernels;
    double bytes, flops; /**< of all kernels; collectives: bytes of the whole vector */
    qdr_dtype dtype; /**< products, attention */
    qdr_product_mode mode;
    double m, n, k;
    qdr_coll_kind coll; /**< all-gather, reduce-scatter, all-reduce, send-recv */
    int n_ranks; /**< of a group, which are `stride` apart */
    int stride;
    int n_ranks_all; /**< of the machine as it was measured */
    int alone; /**< 1: one group, 0: all groups of this kind at once */
    double product_secs, coll_secs; /**< together: of each when it runs alone */
    double coll_end_secs; /**< together: of the collective */
} qdr_sample;

/** The model's time of a sample's work.
 *  @param[out] secs  0 after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, no version, an unknown kind or collective, a group that does not fit */
QDR_API QDR_NODISCARD qdr_status qdr_sample_secs(const qdr_machine *machine, const qdr_sample *sample, double *secs);
/** Sets the constants that the samples say something about; the others stay: name, ranks of a node, memory, the number,
 * the ranks and the adapters of the links are the caller's to know. Errors are shares of the measured time, weighted
 * with the fourth root of it, and a tenth where one group ran alone; they count by their size, not their square, so
 * that a few disturbed samples do no harm. No constant becomes negative.
 *  @param machine  on entry such that qdr_machine_check() is satisfied
 *  @retval QDR_ERR_ARGUMENT  as above; samples whose fit makes no machine. *machine is as it was
 *  @retval QDR_ERR_MEMORY    *machine is as it was */
QDR_API QDR_NODISCARD qdr_status qdr_machine_fit(qdr_machine *machine, const qdr_sample *samples, int n_samples);

#ifdef __cplusplus
}
#endif
#endif
