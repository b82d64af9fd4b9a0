/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives that callers run along an axis: they use its statistics communicator. */
#include "quadrille/coll.h"

#include "core/codec.h"
#include "grid/internal.h"

static qdr_status launch(qdr_grid *grid, qdr_axis axis, const qdri_coll *coll, qdr_stream *stream)
{
    const char *name = qdr_coll_kind_name(coll->kind);
    if (!grid) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the grid is NULL", name);
    if ((unsigned)axis >= QDR_N_AXES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: unknown axis %d; use QDR_X … QDR_D", name, (int)axis);
    /* The caller's own count is given twice, which detects a list that is not in the order of members. */
    const int rank = qdr_grid_coordinate(grid, axis);
    if (coll->counts && coll->kind != QDR_ALL_TO_ALL && coll->counts[rank] != coll->count)
        return QDR_FAIL(QDR_ERR_SHAPE, "%s: n_elems is %" PRId64 ", but counts[%d], this member's, is %" PRId64, name,
                        coll->count, rank, coll->counts[rank]);
    QDR_TRY(qdri_context_record_needs(qdr_grid_context(grid), qdri_grid_life(grid)));
    const qdr_channel channel = (qdr_channel)(QDR_CHANNEL_X_STAT + (int)axis);
    qdri_coll labelled = *coll;
    labelled.label = qdri_grid_label(grid, NULL);
    return qdri_comm_launch(qdri_grid_comm(grid, channel), &labelled, qdri_stream_or_default(grid, stream));
}

/* Adds a codec to a collective; the first one along an axis makes its groups. What one member can check by itself comes
 * first: the others wait for it there. */
static qdr_status launch_coded(qdr_grid *grid, qdr_axis axis, qdri_coll coll, qdr_stream *stream,
                               const qdr_codec *codec, float *feedback)
{
    const char *name = qdr_coll_kind_name(coll.kind);
    if (!grid) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the grid is NULL", name);
    if ((unsigned)axis >= QDR_N_AXES) return launch(grid, axis, &coll, stream);
    QDR_TRY(qdri_codec_check(codec, name));
    if (coll.kind != QDR_ALL_GATHER && coll.op != QDR_SUM)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: only sums are coded; use %s without a codec for QDR_MAX and QDR_MIN",
                        name, coll.kind == QDR_ALL_REDUCE ? "qdr_all_reduce()" : "qdr_reduce_scatter()");
    if ((codec->flags & QDR_CODEC_STOCHASTIC) && qdri_context_is_recording(qdr_grid_context(grid)))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s: a recorded step would round with the same random numbers each time; leave +stochastic out",
                        name);
    coll.codec = codec;
    coll.feedback = feedback;
    QDR_TRY(qdri_grid_compress(grid, (qdr_channel)(QDR_CHANNEL_X_STAT + (int)axis)));
    return launch(grid, axis, &coll, stream);
}

qdr_status qdr_all_reduce(qdr_grid *grid, qdr_axis axis, qdr_reduce op, void *data, int64_t n_elems, qdr_dtype dtype,
                          qdr_stream *stream)
{
    const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .dtype = dtype, .op = op, .recv = data, .count = n_elems};
    return launch(grid, axis, &coll, stream);
}

static qdri_coll coll_of(qdr_coll_kind kind, const void *send, void *recv, int64_t count, qdr_dtype dtype)
{
    return (qdri_coll){.kind = kind, .dtype = dtype, .send = send, .recv = recv, .count = count};
}

qdr_status qdr_all_gather(qdr_grid *grid, qdr_axis axis, const void *send, void *recv, int64_t n_elems,
                          const int64_t *counts, qdr_dtype dtype, qdr_stream *stream)
{
    qdri_coll coll = coll_of(QDR_ALL_GATHER, send, recv, n_elems, dtype);
    coll.counts = counts;
    return launch(grid, axis, &coll, stream);
}

qdr_status qdr_reduce_scatter(qdr_grid *grid, qdr_axis axis, qdr_reduce op, const void *send, void *recv,
                              int64_t n_elems, const int64_t *counts, qdr_dtype dtype, qdr_stream *stream)
{
    qdri_coll coll = coll_of(QDR_REDUCE_SCATTER, send, recv, n_elems, dtype);
    coll.op = op;
    coll.counts = counts;
    return launch(grid, axis, &coll, stream);
}

qdr_status qdr_all_reduce_coded(qdr_grid *grid, qdr_axis axis, qdr_reduce op, void *data, int64_t n_elems,
                                qdr_dtype dtype, qdr_stream *stream, const qdr_codec *codec, float *feedback)
{
    const qdri_coll coll = {.kind = QDR_ALL_REDUCE, .dtype = dtype, .op = op, .recv = data, .count = n_elems};
    return launch_coded(grid, axis, coll, stream, codec, feedback);
}

qdr_status qdr_all_gather_coded(qdr_grid *grid, qdr_axis axis, const void *send, void *recv, int64_t n_elems,
                                const int64_t *counts, qdr_dtype dtype, qdr_stream *stream, const qdr_codec *codec,
                                float *feedback)
{
    qdri_coll coll = coll_of(QDR_ALL_GATHER, send, recv, n_elems, dtype);
    coll.counts = counts;
    return launch_coded(grid, axis, coll, stream, codec, feedback);
}

qdr_status qdr_reduce_scatter_coded(qdr_grid *grid, qdr_axis axis, qdr_reduce op, const void *send, void *recv,
                                    int64_t n_elems, const int64_t *counts, qdr_dtype dtype, qdr_stream *stream,
                                    const qdr_codec *codec, float *feedback)
{
    qdri_coll coll = coll_of(QDR_REDUCE_SCATTER, send, recv, n_elems, dtype);
    coll.op = op;
    coll.counts = counts;
    return launch_coded(grid, axis, coll, stream, codec, feedback);
}

qdr_status qdr_grid_broadcast(qdr_grid *grid, qdr_axis axis, int root, void *data, int64_t n_elems, qdr_dtype dtype,
                              qdr_stream *stream)
{
    const qdri_coll coll = {.kind = QDR_BROADCAST, .dtype = dtype, .recv = data, .count = n_elems, .peer = root};
    return launch(grid, axis, &coll, stream);
}

qdr_status qdr_all_to_all(qdr_grid *grid, qdr_axis axis, const void *send, const int64_t *send_counts, void *recv,
                          const int64_t *recv_counts, int64_t n_elems, qdr_dtype dtype, qdr_stream *stream)
{
    qdri_coll coll = coll_of(QDR_ALL_TO_ALL, send, recv, n_elems, dtype);
    coll.counts = send_counts;
    coll.recv_counts = recv_counts;
    if (!send_counts != !recv_counts)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "all-to-all: only %s are given; pass both lists of counts or neither",
                        send_counts ? "send_counts" : "recv_counts");
    return launch(grid, axis, &coll, stream);
}

qdr_status qdr_send_recv(qdr_grid *grid, qdr_axis axis, int to, const void *send, int64_t n_send, int from, void *recv,
                         int64_t n_recv, qdr_dtype dtype, qdr_stream *stream)
{
    qdri_coll coll = coll_of(QDR_SEND_RECV, send, recv, n_send, dtype);
    coll.recv_count = n_recv;
    coll.peer = to;
    coll.peer2 = from;
    return launch(grid, axis, &coll, stream);
}
