/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll.h  Collectives along one axis of a grid: the members are the ranks that differ only in that coordinate,
 * and member j is the one whose coordinate is j.
 *
 * All are collective over these members and stream-ordered on `stream` (NULL: the context's): they return when they are
 * queued, but for those that wait for members to connect or to share a GPU (cuda.h). Buffers are device memory (on CPUs
 * any memory) and belong to the caller. Buffers and arrays of counts may be neither changed nor freed before the stream
 * has run the call. Counts are elements of `dtype`, ≥ 0; a buffer whose count is 0 may be NULL. Buffers that overlap
 * are refused, except where a function allows it. In a group of one, collectives only copy. Members call the same
 * functions in the same order, along one axis from one stream at a time; this includes the statistics of a stack and
 * qdr_adamw_norm(), which run on the context's stream.
 *
 * Errors that one member can detect by itself (below) queue nothing and concern that member only: the others wait
 * until it makes a valid call, or destroys the grid (then QDR_ERR_PEER). Calls that do not match (in kind, type,
 * operation, size or root) are an asynchronous error of the members (qdr_context_status()), QDR_ERR_ARGUMENT or
 * QDR_ERR_SHAPE, if the members are threads of one process that NCCL does not join, or MPI ranks of one node (there
 * except for all-to-all and send-recv); elsewhere MPI or NCCL decides what happens, which may be waiting forever. With
 * QDR_CHECK=1 (context.h) the library compares the calls first, everywhere.
 *  @retval QDR_ERR_ARGUMENT  NULL, no such axis, operation or member; a buffer whose address is not a multiple of an
 *                            element's bytes; buffers that overlap; on a GPU a buffer in host memory or on another GPU
 *  @retval QDR_ERR_SHAPE     a count is negative or too large, or n_elems is not the caller's count
 *  @retval QDR_ERR_DTYPE     an unknown type, or U8 in a reduction
 *
 * Not thread-safe per grid. */
#ifndef QUADRILLE_COLL_H
#define QUADRILLE_COLL_H

#include "codec.h"
#include "grid.h"

#ifdef __cplusplus
extern "C" {
#endif

/** All-reduce, in place. All members hold the same bits afterwards. n_elems is the same on all members.
 *
 * Sums are added in rank order (if the group spans nodes, first within each node), bf16 and f16 in fp32; NCCL chooses
 * its own order, and adds bf16 and f16 in their type (docs/numerics.md). A maximum or minimum is NaN if any member's
 * element is, whatever its sign; of zeros with different signs it may be either. */
QDR_API QDR_NODISCARD qdr_status qdr_all_reduce(qdr_grid *grid, qdr_axis axis, qdr_reduce op, void *data,
                                                int64_t n_elems, qdr_dtype dtype, qdr_stream *stream);

/** Each member gets the parts of all members, concatenated in the order of members.
 *  @param send     this member's part, n_elems; NULL: it is already in its place in recv
 *  @param recv     Σ counts elements
 *  @param n_elems  of this member's part
 *  @param counts   elements of each member's part, equal on all members; NULL: n_elems each */
QDR_API QDR_NODISCARD qdr_status qdr_all_gather(qdr_grid *grid, qdr_axis axis, const void *send, void *recv,
                                                int64_t n_elems, const int64_t *counts, qdr_dtype dtype,
                                                qdr_stream *stream);

/** Reduces the `send` buffers of all members and gives each member one part of the result (see
 * qdr_all_reduce()).
 *  @param send     Σ counts elements, the parts of members 0, 1, … concatenated
 *  @param recv     this member's part, n_elems; may be its place in send
 *  @param n_elems  of this member's part
 *  @param counts   elements of each member's part, equal on all members; NULL: n_elems each */
QDR_API QDR_NODISCARD qdr_status qdr_reduce_scatter(qdr_grid *grid, qdr_axis axis, qdr_reduce op, const void *send,
                                                    void *recv, int64_t n_elems, const int64_t *counts, qdr_dtype dtype,
                                                    qdr_stream *stream);

/** Copies n_elems elements of member `root` to all, in place. (For host memory, over all ranks and blocking:
 * qdr_broadcast().) */
QDR_API QDR_NODISCARD qdr_status qdr_grid_broadcast(qdr_grid *grid, qdr_axis axis, int root, void *data,
                                                    int64_t n_elems, qdr_dtype dtype, qdr_stream *stream);

/** Each member sends a different part to each member: part j of `send` becomes part i of member j's `recv`, where i is
 * this member.
 *  @param send, recv                concatenated parts, Σ of their counts
 *  @param send_counts, recv_counts  elements that go to, and come from, each member; both NULL: n_elems each, the same
 *                                   on all members */
QDR_API QDR_NODISCARD qdr_status qdr_all_to_all(qdr_grid *grid, qdr_axis axis, const void *send,
                                                const int64_t *send_counts, void *recv, const int64_t *recv_counts,
                                                int64_t n_elems, qdr_dtype dtype, qdr_stream *stream);

/** Sends n_send elements to member `to`, and receives n_recv from member `from`; -1: none. All members call it, with a
 * matching `from` for each `to`: shifts, halos, swaps. */
QDR_API QDR_NODISCARD qdr_status qdr_send_recv(qdr_grid *grid, qdr_axis axis, int to, const void *send, int64_t n_send,
                                               int from, void *recv, int64_t n_recv, qdr_dtype dtype,
                                               qdr_stream *stream);

/* ---- with codecs ---- */

/* As the functions above, but elements travel as the messages of a codec (codec.h), for which a slow link takes less
 * time: sums of gradients, say. Versions are added in fp32, and a sum is encoded once more, so that the error does not
 * grow with the number of members: of a sum, at most Σ qdr_codec_bound() of the versions that travel, and that of the
 * sum where it travels, too, and roundings. If the members are on several nodes, as many on each, one after the other,
 * only what goes to another node is coded: members of a node add first, and gather last.
 *
 * The first such call along an axis makes the groups that it needs: it is blocking and collective over the members,
 * like qdr_grid_create().
 *
 *  @param codec     equal on all members, copied. If it does not shorten `dtype`, elements travel as they are
 *  @param feedback  with QDR_CODEC_FEEDBACK, else NULL: as many floats of device memory as `send` (or `data`) has
 *                   elements, apart from the other arrays, zeros at first: what earlier messages of this sum lost,
 *                   added to the next ones. How they are ordered is the library's. Unchanged, and not to be freed,
 *                   while the stream runs the call
 *  @retval QDR_ERR_ARGUMENT     also codec is NULL, or one that qdr_codec_parse() would refuse; feedback without
 *                               QDR_CODEC_FEEDBACK, or the other way; op is not QDR_SUM
 *  @retval QDR_ERR_UNSUPPORTED  this library, device or communication has no such codec or groups; or
 *                               QDR_CODEC_STOCHASTIC in a step that is being recorded, which would repeat its numbers
 *
 * All members must pass the same codec, or none. A difference is detected only if the lengths of their messages differ,
 * and not at the first call, where such members wait for each other. After an error of the stream
 * (qdr_context_status()), destroy the grid before freeing the arrays. */

/** qdr_all_reduce() with a codec. All members hold the same bits afterwards. */
QDR_API QDR_NODISCARD qdr_status qdr_all_reduce_coded(qdr_grid *grid, qdr_axis axis, qdr_reduce op, void *data,
                                                      int64_t n_elems, qdr_dtype dtype, qdr_stream *stream,
                                                      const qdr_codec *codec, float *feedback);
/** qdr_all_gather() with a codec. All members hold the same bits afterwards: in recv, this member's part is what the
 * others have got, too. */
QDR_API QDR_NODISCARD qdr_status qdr_all_gather_coded(qdr_grid *grid, qdr_axis axis, const void *send, void *recv,
                                                      int64_t n_elems, const int64_t *counts, qdr_dtype dtype,
                                                      qdr_stream *stream, const qdr_codec *codec, float *feedback);
/** qdr_reduce_scatter() with a codec. */
QDR_API QDR_NODISCARD qdr_status qdr_reduce_scatter_coded(qdr_grid *grid, qdr_axis axis, qdr_reduce op,
                                                          const void *send, void *recv, int64_t n_elems,
                                                          const int64_t *counts, qdr_dtype dtype, qdr_stream *stream,
                                                          const qdr_codec *codec, float *feedback);

#ifdef __cplusplus
}
#endif
#endif
