/* SPDX-License-Identifier: Apache-2.0 */
/* Element types; names of channels and of kinds of collectives, and a channel's axis. */
#include <string.h>

#include "core/dtype.h"
#include "quadrille/grid.h"

static const struct {
    const char *name;
    size_t bytes;
} dtypes[] = {
    [QDR_F32] = {"f32", 4}, [QDR_F64] = {"f64", 8}, [QDR_BF16] = {"bf16", 2},
    [QDR_I32] = {"i32", 4}, [QDR_U8] = {"u8", 1},   [QDR_F16] = {"f16", 2},
};
enum { N_DTYPES = sizeof dtypes / sizeof dtypes[0] };

static int known(qdr_dtype dtype) { return (size_t)dtype < N_DTYPES; }

size_t qdr_dtype_bytes(qdr_dtype dtype) { return known(dtype) ? dtypes[dtype].bytes : 0; }

const char *qdr_dtype_name(qdr_dtype dtype) { return known(dtype) ? dtypes[dtype].name : "?"; }

int qdri_float_named(const char *name, qdr_dtype *dtype)
{
    for (int i = 0; i < N_DTYPES; i++) {
        if (!qdri_is_float((qdr_dtype)i) || strcmp(name, dtypes[i].name) != 0) continue;
        *dtype = (qdr_dtype)i;
        return 1;
    }
    return 0;
}

const char *qdr_channel_name(qdr_channel channel)
{
    static const char *const names[QDR_N_CHANNELS] = {"x reduce", "x gather", "y reduce", "y gather", "z gather",
                                                      "z reduce", "d reduce", "d near",   "d far",    "d copies",
                                                      "x stat",   "y stat",   "z stat",   "d stat"};
    return (unsigned)channel < QDR_N_CHANNELS ? names[channel] : "?";
}

qdr_axis qdr_channel_axis(qdr_channel channel)
{
    static const qdr_axis axes[QDR_N_CHANNELS] = {
        [QDR_CHANNEL_X_REDUCE] = QDR_X, [QDR_CHANNEL_X_GATHER] = QDR_X, [QDR_CHANNEL_Y_REDUCE] = QDR_Y,
        [QDR_CHANNEL_Y_GATHER] = QDR_Y, [QDR_CHANNEL_Z_GATHER] = QDR_Z, [QDR_CHANNEL_Z_REDUCE] = QDR_Z,
        [QDR_CHANNEL_D_REDUCE] = QDR_D, [QDR_CHANNEL_D_NEAR] = QDR_D,   [QDR_CHANNEL_D_FAR] = QDR_D,
        [QDR_CHANNEL_D_COPIES] = QDR_D, [QDR_CHANNEL_X_STAT] = QDR_X,   [QDR_CHANNEL_Y_STAT] = QDR_Y,
        [QDR_CHANNEL_Z_STAT] = QDR_Z,   [QDR_CHANNEL_D_STAT] = QDR_D};
    return (unsigned)channel < QDR_N_CHANNELS ? axes[channel] : QDR_X;
}

const char *qdr_coll_kind_name(qdr_coll_kind kind)
{
    static const char *const names[QDR_N_COLL_KINDS] = {"all-gather", "reduce-scatter", "all-reduce",
                                                        "broadcast",  "all-to-all",     "send-recv"};
    return (unsigned)kind < QDR_N_COLL_KINDS ? names[kind] : "?";
}
