/* SPDX-License-Identifier: Apache-2.0 */
/* A GPU codes all messages of a step of a coded collective by one kernel, whatever the codec.
 *
 *   coded_launches CODEC */
#include <stdio.h>
#include <stdlib.h>

#include "quadrille/quadrille.h"
#include "served.h"

enum { RANKS = 4, ELEMS = 4096 };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status tried = (call);                                                                               \
        if (tried < 0) return tried;                                                                                   \
    } while (0)

typedef struct rank {
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_codec codec;
    float *data, *part;
} rank;

static qdr_status reduce_scatter(const rank *self)
{
    return qdr_reduce_scatter_coded(self->grid, QDR_X, QDR_SUM, self->data, self->part, ELEMS / RANKS, NULL, QDR_F32,
                                    NULL, &self->codec, NULL);
}

static qdr_status all_gather(const rank *self)
{
    return qdr_all_gather_coded(self->grid, QDR_X, self->part, self->data, ELEMS / RANKS, NULL, QDR_F32, NULL,
                                &self->codec, NULL);
}

static qdr_status all_reduce(const rank *self)
{
    return qdr_all_reduce_coded(self->grid, QDR_X, QDR_SUM, self->data, ELEMS, QDR_F32, NULL, &self->codec, NULL);
}

/* n: of each rank. The count is of all ranks, so they all do the same between two barriers. */
static qdr_status check(const rank *self, const char *name, qdr_status (*call)(const rank *self), int n)
{
    TRY(qdr_barrier(self->ctx));
    const int64_t before = counted("kernel");
    TRY(qdr_barrier(self->ctx));
    TRY(call(self));
    TRY(qdr_stream_synchronize(qdr_context_stream(self->ctx)));
    TRY(qdr_barrier(self->ctx));
    const int64_t found = counted("kernel") - before;
    TRY(qdr_barrier(self->ctx));
    if (found == (int64_t)n * RANKS) return QDR_OK;
    fprintf(stderr, "%s: %lld kernels of %d ranks, not %d of each\n", name, (long long)found, RANKS, n);
    return QDR_ERR_STATE;
}

static qdr_status run(rank *self)
{
    static const float zeros[ELEMS];
    void *memory = NULL;
    TRY(qdr_grid_create(self->ctx, &(qdr_grid_opts){QDR_OPTS_INIT, .x = RANKS, .y = 1, .z = 1, .d = 1}, &self->grid));
    TRY(qdr_mem_alloc(self->ctx, 2 * sizeof zeros, &memory));
    self->data = memory;
    self->part = self->data + ELEMS;
    TRY(qdr_copy(self->ctx, self->data, zeros, sizeof zeros, NULL));
    TRY(check(self, "reduce-scatter: to encode, to add", reduce_scatter, 2));
    TRY(check(self, "all-gather: to encode, to decode", all_gather, 2));
    return check(self, "all-reduce: to encode, to add and encode, to decode", all_reduce, 3);
}

static int run_rank(qdr_context *ctx, void *codec)
{
    rank self = {.ctx = ctx};
    qdr_status status = qdr_codec_parse(codec, &self.codec);
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
    if (argc != 2) return 2;
    if (qdr_launch(RANKS, NULL, run_rank, argv[1], &exit_code) != QDR_OK) fprintf(stderr, "%s\n", qdr_last_error());
    return exit_code;
}
