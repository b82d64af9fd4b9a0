/* SPDX-License-Identifier: Apache-2.0 */
/* Faulty collectives: the linker places them between the command and the library, and each corrupts the first element
 * that its member receives. So `quadrille bench coll` must count one wrong element on each rank. */
#include <quadrille/coll.h>

static void spoil(void *recv) { *(unsigned char *)recv ^= 1; }

/* When the collective has run. */
static qdr_status spoil_later(qdr_status launched, qdr_grid *grid, void *recv, int64_t n_elems)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(grid));
    return launched < 0 || n_elems == 0 ? launched : qdr_stream_call(stream, spoil, recv);
}

/* PLANT(name, parameters, arguments, what is received, how much of it) */
#define PLANT(name, parameters, arguments, recv, n_elems)                                                              \
    qdr_status __real_qdr_##name parameters;                                                                           \
    qdr_status __wrap_qdr_##name parameters;                                                                           \
    qdr_status __wrap_qdr_##name parameters { return spoil_later(__real_qdr_##name arguments, grid, recv, n_elems); }

PLANT(all_reduce,
      (qdr_grid * grid, qdr_axis axis, qdr_reduce op, void *data, int64_t n, qdr_dtype dtype, qdr_stream *stream),
      (grid, axis, op, data, n, dtype, stream), data, n)
PLANT(all_gather,
      (qdr_grid * grid, qdr_axis axis, const void *send, void *recv, int64_t n, const int64_t *counts, qdr_dtype dtype,
       qdr_stream *stream),
      (grid, axis, send, recv, n, counts, dtype, stream), recv, 1)
PLANT(reduce_scatter,
      (qdr_grid * grid, qdr_axis axis, qdr_reduce op, const void *send, void *recv, int64_t n, const int64_t *counts,
       qdr_dtype dtype, qdr_stream *stream),
      (grid, axis, op, send, recv, n, counts, dtype, stream), recv, n)
PLANT(grid_broadcast,
      (qdr_grid * grid, qdr_axis axis, int root, void *data, int64_t n, qdr_dtype dtype, qdr_stream *stream),
      (grid, axis, root, data, n, dtype, stream), data, n)
PLANT(all_to_all,
      (qdr_grid * grid, qdr_axis axis, const void *send, const int64_t *out, void *recv, const int64_t *in, int64_t n,
       qdr_dtype dtype, qdr_stream *stream),
      (grid, axis, send, out, recv, in, n, dtype, stream), recv, in[0])
PLANT(send_recv,
      (qdr_grid * grid, qdr_axis axis, int to, const void *send, int64_t n, int from, void *recv, int64_t n_recv,
       qdr_dtype dtype, qdr_stream *stream),
      (grid, axis, to, send, n, from, recv, n_recv, dtype, stream), recv, n_recv)
