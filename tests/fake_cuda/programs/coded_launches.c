/* SPDX-License-Identifier: Apache-2.0 */
/* The kernels and transfers of coded collectives, of less and of more than one of the library's own chunks.
 *
 *   coded_launches CODEC RANKS */
#include <stdio.h>
#include <stdlib.h>

#include "core/coded.h"
#include "quadrille/quadrille.h"
#include "served.h"

enum { MOST_ELEMS = QDRI_CODED_GPU_CHUNK_BYTES / 4 + 8192, FEW_ELEMS = 8192 };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status tried = (call);                                                                               \
        if (tried < 0) return tried;                                                                                   \
    } while (0)

typedef struct words {
    const char *codec;
    int n_ranks;
} words;

typedef struct rank {
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_codec codec;
    int n_ranks;
    int64_t n; /* elements of all */
    float *data, *part;
} rank;

static qdr_status reduce_scatter(const rank *self)
{
    return qdr_reduce_scatter_coded(self->grid, QDR_X, QDR_SUM, self->data, self->part, self->n / self->n_ranks, NULL,
                                    QDR_F32, NULL, &self->codec, NULL);
}

static qdr_status all_gather(const rank *self)
{
    return qdr_all_gather_coded(self->grid, QDR_X, self->part, self->data, self->n / self->n_ranks, NULL, QDR_F32, NULL,
                                &self->codec, NULL);
}

static qdr_status all_reduce(const rank *self)
{
    return qdr_all_reduce_coded(self->grid, QDR_X, QDR_SUM, self->data, self->n, QDR_F32, NULL, &self->codec, NULL);
}

static int64_t launches(void) { return counted("kernel") + counted("launch"); }

/* The count is of all ranks, so they all do the same between two barriers. */
static qdr_status check(const rank *self, qdr_coll_kind kind, qdr_status (*call)(const rank *self))
{
    const qdri_coded_coll coll = {&self->codec, kind, QDR_F32, self->n, 1, 0};
    const int64_t n = qdri_coded_launches(&coll, self->n_ranks, QDRI_CODED_GPU_CHUNK_BYTES);
    TRY(qdr_barrier(self->ctx));
    const int64_t before = launches();
    TRY(qdr_barrier(self->ctx));
    TRY(call(self));
    TRY(qdr_stream_synchronize(qdr_context_stream(self->ctx)));
    TRY(qdr_barrier(self->ctx));
    const int64_t found = launches() - before;
    TRY(qdr_barrier(self->ctx));
    if (found == n * self->n_ranks) return QDR_OK;
    fprintf(stderr, "%s of %lld elements: %lld launches of %d ranks, not %lld of each\n", qdr_coll_kind_name(kind),
            (long long)self->n, (long long)found, self->n_ranks, (long long)n);
    return QDR_ERR_STATE;
}

static qdr_status run(rank *self)
{
    static float zeros[MOST_ELEMS];
    const int64_t most = self->codec.flags ? FEW_ELEMS : MOST_ELEMS; /* rotations take long here */
    void *memory = NULL;
    TRY(qdr_grid_create(
        self->ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = self->n_ranks, .y = 1, .z = 1, .d = 1}, &self->grid));
    TRY(qdr_mem_alloc(self->ctx, 2 * sizeof zeros, &memory));
    self->data = memory;
    self->part = self->data + MOST_ELEMS;
    TRY(qdr_copy(self->ctx, self->data, zeros, sizeof zeros, NULL));
    for (self->n = FEW_ELEMS; self->n <= most; self->n += MOST_ELEMS - FEW_ELEMS) {
        TRY(check(self, QDR_REDUCE_SCATTER, reduce_scatter));
        TRY(check(self, QDR_ALL_GATHER, all_gather));
        TRY(check(self, QDR_ALL_REDUCE, all_reduce));
    }
    return QDR_OK;
}

static int run_rank(qdr_context *ctx, void *user)
{
    const words *told = user;
    rank self = {.ctx = ctx, .n_ranks = told->n_ranks};
    qdr_status status = qdr_codec_parse(told->codec, &self.codec);
    if (status == QDR_OK) status = run(&self);
    if (status != QDR_OK) fprintf(stderr, "%s: %s\n", qdr_status_name(status), qdr_last_error());
    void *memory = self.data;
    qdr_mem_free(ctx, &memory);
    qdr_grid_destroy(&self.grid);
    return status != QDR_OK;
}

int main(int argc, char **argv)
{
    int exit_code = 1;
    if (argc != 3) return 2;
    words told = {argv[1], atoi(argv[2])};
    if (qdr_launch(told.n_ranks, NULL, run_rank, &told, &exit_code) != QDR_OK)
        fprintf(stderr, "%s\n", qdr_last_error());
    return exit_code;
}
