/* SPDX-License-Identifier: Apache-2.0 */
/* Names of channels and of kinds of collectives. */
#include "quadrille/grid.h"

const char *qdr_channel_name(qdr_channel channel)
{
    static const char *const names[QDR_N_CHANNELS] = {
        "x reduce", "x gather", "y reduce", "y gather", "z gather", "z reduce",
        "d reduce", "x stat",   "y stat",   "z stat",   "d stat"};
    return (unsigned)channel < QDR_N_CHANNELS ? names[channel] : "?";
}

const char *qdr_coll_kind_name(qdr_coll_kind kind)
{
    static const char *const names[QDR_N_COLL_KINDS] = {
        "all-gather", "reduce-scatter", "all-reduce", "broadcast", "all-to-all", "send-recv"};
    return (unsigned)kind < QDR_N_COLL_KINDS ? names[kind] : "?";
}
