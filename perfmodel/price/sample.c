/* SPDX-License-Identifier: Apache-2.0 */
/* The model's time for what was measured: the formulas that price tasks. */
#include <math.h>

#include "core/sized.h"
#include "core/status.h"
#include "price/collective.h"
#include "price/fit.h"
#include "price/gemm.h"
#include "price/price.h"

static double product_secs(const qdr_machine *machine, const qdr_sample *s)
{
    const qdri_product product = {.m = s->m,
                                  .n = s->n,
                                  .k = s->k,
                                  .n_products = 1,
                                  .dtype = s->dtype,
                                  .mode = (qdri_mode)s->mode,
                                  .out_bytes = (double)qdr_dtype_bytes(s->dtype)};
    return machine->software.launch_secs + qdri_product_secs(machine, &product);
}

static double coll_secs(const qdr_machine *machine, const qdr_sample *s)
{
    qdri_group group = qdri_group_make(machine, s->n_ranks, s->stride, s->n_ranks_all);
    for (int l = 0; s->alone && l < QDR_MAX_LINKS; l++) group.n_sharing[l] = 1;
    const qdri_ways ways = qdri_ways_make(machine, &group);
    return qdri_coll_secs(&ways, s->coll, s->bytes);
}

/* The end of the product: it is slowed down while the collective runs, and slows the collective down meanwhile. */
static double together_secs(const qdr_machine *machine, const qdr_sample *s)
{
    const double processor = 1 + machine->processor_slowdown, transfer = 1 + machine->transfer_slowdown;
    const double beside = s->coll_secs * transfer; /* if the product lasts that long */
    if (s->product_secs * processor <= beside) return s->product_secs * processor;
    return beside + s->product_secs - beside / processor;
}

static double attention_secs(const qdr_machine *machine, const qdr_sample *s)
{
    const double turns = qdri_kernel_secs(machine, s->turn_bytes, s->turn_flops);
    const double moves = qdri_kernel_secs(machine, s->bytes, 0);
    if (!(machine->attention_efficiency > 0)) return turns + moves;
    const double peak = qdri_machine_products(machine, s->dtype)->peak_flops;
    return turns + fmax(moves, s->flops / (peak * machine->attention_efficiency));
}

double qdri_sample_secs(const qdr_machine *machine, const qdr_sample *s)
{
    const double launches = s->n_kernels * machine->software.launch_secs;
    switch (s->kind) {
    case QDR_SAMPLE_LAUNCH: return launches;
    case QDR_SAMPLE_MEMORY: return launches + qdri_kernel_secs(machine, s->bytes, 0);
    case QDR_SAMPLE_KERNEL: return launches + qdri_kernel_secs(machine, s->bytes, s->flops);
    case QDR_SAMPLE_PRODUCT: return product_secs(machine, s);
    case QDR_SAMPLE_ATTENTION: return launches + attention_secs(machine, s);
    case QDR_SAMPLE_COLLECTIVE: return coll_secs(machine, s);
    case QDR_SAMPLE_TOGETHER: return together_secs(machine, s);
    case QDR_N_SAMPLE_KINDS: break;
    }
    return 0;
}

qdr_status qdri_sample_check(const qdr_sample *s)
{
    if (s->kind < 0 || s->kind >= QDR_N_SAMPLE_KINDS || !(s->secs > 0) || !isfinite(s->secs))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "sample: kind %d took %g s; a known kind and a time above 0 are needed",
                        (int)s->kind, s->secs);
    if (s->kind == QDR_SAMPLE_PRODUCT && (s->mode < QDR_MODE_NN || s->mode > QDR_MODE_TN))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "sample: product of mode %d; use NN, NT or TN", (int)s->mode);
    if (s->kind == QDR_SAMPLE_TOGETHER && !(s->product_secs > 0 && s->coll_secs > 0))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "sample: product and collective take %g and %g s alone; times above 0 are needed",
                        s->product_secs, s->coll_secs);
    if (s->kind != QDR_SAMPLE_COLLECTIVE) return QDR_OK;
    QDR_TRY(qdri_check_switch("sample", "alone", s->alone));
    const int is_known = s->coll == QDR_ALL_GATHER || s->coll == QDR_REDUCE_SCATTER || s->coll == QDR_ALL_REDUCE ||
                         s->coll == QDR_SEND_RECV;
    if (is_known && s->n_ranks > 1 && s->stride > 0 && (int64_t)(s->n_ranks - 1) * s->stride < s->n_ranks_all)
        return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "sample: %s in a group of %d, %d apart, among %d ranks; the model knows "
                    "all-gather, reduce-scatter, all-reduce and send-recv of groups that fit",
                    qdr_coll_kind_name(s->coll), s->n_ranks, s->stride, s->n_ranks_all);
}

qdr_status qdr_sample_secs(const qdr_machine *machine, const qdr_sample *sample, double *secs)
{
    qdr_machine its_machine;
    qdr_sample work;
    if (!secs) return QDR_FAIL(QDR_ERR_ARGUMENT, "sample: the time pointer is NULL");
    *secs = 0;
    QDR_TRY(QDRI_TAKE(qdr_machine, machine, &its_machine));
    QDR_TRY(QDRI_TAKE(qdr_sample, sample, &work));
    QDR_TRY(qdr_machine_check(&its_machine, its_machine.name));
    QDR_TRY(qdri_sample_check(&work));
    *secs = qdri_sample_secs(&its_machine, &work);
    return QDR_OK;
}
