/* SPDX-License-Identifier: Apache-2.0 */
/* Names of channels and of kinds of collectives, and a channel's axis. */
#include "quadrille/grid.h"

const char *qdr_channel_name(qdr_channel channel)
{
    static const char *const names[QDR_N_CHANNELS] = {"x reduce", "x gather", "y reduce", "y gather",
                                                      "z gather", "z reduce", "d reduce", "x stat",
                                                      "y stat",   "z stat",   "d stat"};
    return (unsigned)channel < QDR_N_CHANNELS ? names[channel] : "?";
}

qdr_axis qdr_channel_axis(qdr_channel channel)
{
    static const qdr_axis axes[QDR_N_CHANNELS] = {
        [QDR_CHANNEL_X_REDUCE] = QDR_X, [QDR_CHANNEL_X_GATHER] = QDR_X, [QDR_CHANNEL_Y_REDUCE] = QDR_Y,
        [QDR_CHANNEL_Y_GATHER] = QDR_Y, [QDR_CHANNEL_Z_GATHER] = QDR_Z, [QDR_CHANNEL_Z_REDUCE] = QDR_Z,
        [QDR_CHANNEL_D_REDUCE] = QDR_D, [QDR_CHANNEL_X_STAT] = QDR_X,   [QDR_CHANNEL_Y_STAT] = QDR_Y,
        [QDR_CHANNEL_Z_STAT] = QDR_Z,   [QDR_CHANNEL_D_STAT] = QDR_D};
    return (unsigned)channel < QDR_N_CHANNELS ? axes[channel] : QDR_X;
}

const char *qdr_coll_kind_name(qdr_coll_kind kind)
{
    static const char *const names[QDR_N_COLL_KINDS] = {"all-gather", "reduce-scatter", "all-reduce",
                                                        "broadcast",  "all-to-all",     "send-recv"};
    return (unsigned)kind < QDR_N_COLL_KINDS ? names[kind] : "?";
}
