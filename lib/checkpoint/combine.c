/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums and counts of all ranks, combined axis by axis. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/save.h"
#include "core/size.h"
#include "quadrille/coll.h"

/* One rank's words: its shares, then two of the count. */
static void add_words(uint32_t *sum, const uint32_t *words, int n)
{
    int64_t a, b;
    memcpy(&a, sum + n, sizeof a);
    memcpy(&b, words + n, sizeof b);
    a += b;
    for (int i = 0; i < n; i++) sum[i] ^= words[i];
    memcpy(sum + n, &a, sizeof a);
}

/* gathered: of all members of the axis; device: as much, or the same memory where that is the device's, too. */
static qdr_status combine_axis(qdr_grid *grid, qdr_axis axis, uint32_t *mine, int n, uint32_t *gathered, void *device)
{
    const int n_words = n + 2, size = qdr_grid_size(grid, axis), self = qdr_grid_coordinate(grid, axis);
    const size_t bytes = (size_t)n_words * sizeof *mine;
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(grid));
    if (size == 1) return QDR_OK;
    QDR_TRY(qdri_copy(stream, (char *)device + (size_t)self * bytes, mine, bytes));
    QDR_TRY(qdr_all_gather(grid, axis, NULL, device, n_words, NULL, QDR_I32, stream));
    if (device != gathered) QDR_TRY(qdri_copy(stream, gathered, device, (size_t)size * bytes));
    QDR_TRY(qdri_stream_synchronize(stream));
    for (int i = 0; i < size; i++)
        if (i != self) add_words(mine, gathered + (size_t)i * (size_t)n_words, n);
    return QDR_OK;
}

qdr_status qdri_combine(qdr_grid *grid, uint32_t *shares, int n, int64_t *bytes)
{
    const qdr_context *ctx = qdr_grid_context(grid);
    uint32_t *words = NULL;
    void *device = NULL;
    const int on_host = qdri_dev_runs_work(qdri_context_dev(ctx));
    int most = 1;
    for (int axis = QDR_X; axis < QDR_N_AXES; axis++)
        if (qdr_grid_size(grid, (qdr_axis)axis) > most) most = qdr_grid_size(grid, (qdr_axis)axis);
    const size_t n_words = (size_t)n + 2;
    qdr_status status = qdri_calloc(n_words * ((size_t)most + 1), sizeof *words, "checksums of all ranks",
                                    (void **)&words);
    if (status == QDR_OK && !on_host)
        status = qdri_mem_alloc(qdri_context_dev(ctx), n_words * (size_t)most * sizeof *words, &device);
    status = qdri_comm_agree(qdri_context_world(ctx), status);
    if (status == QDR_OK) {
        memcpy(words, shares, (size_t)n * sizeof *words);
        memcpy(words + n, bytes, sizeof *bytes);
    }
    for (int axis = QDR_X; axis < QDR_N_AXES && status == QDR_OK; axis++)
        status = combine_axis(grid, (qdr_axis)axis, words, n, words + n_words, on_host ? words + n_words : device);
    if (status == QDR_OK) {
        memcpy(shares, words, (size_t)n * sizeof *words);
        memcpy(bytes, words + n, sizeof *bytes);
    }
    qdri_mem_free(qdri_context_dev(ctx), &device);
    free(words);
    return status;
}
