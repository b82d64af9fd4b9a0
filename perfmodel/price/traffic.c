/* SPDX-License-Identifier: Apache-2.0 */
/* Elements sent by collectives, in closed form. */
#include <math.h>

#include "quadrille/perf.h"

double qdr_perf_coll_elems(qdr_coll_kind kind, int n_ranks, double n_elems)
{
    if (n_ranks < 1) return NAN;
    const double share = (double)(n_ranks - 1) / (double)n_ranks;
    switch (kind) {
    case QDR_ALL_GATHER:
    case QDR_REDUCE_SCATTER:
    case QDR_ALL_TO_ALL:
    case QDR_BROADCAST: return share * n_elems;
    case QDR_ALL_REDUCE: return 2 * share * n_elems;
    case QDR_SEND_RECV: return n_ranks > 1 ? n_elems : 0;
    case QDR_N_COLL_KINDS: break;
    }
    return NAN;
}

double qdr_perf_channel_bytes(const qdr_perf_cost *cost, qdr_channel channel)
{
    double bytes = 0;
    for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) bytes += cost->bytes[channel][kind];
    return bytes;
}

void qdr_perf_add(qdr_perf_cost *sum, const qdr_perf_cost *cost)
{
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) sum->bytes[channel][kind] += cost->bytes[channel][kind];
    sum->flops += cost->flops;
}
