/* SPDX-License-Identifier: Apache-2.0 */
/** @file coll.h  Collectives along one axis of a grid: the members are the ranks that differ only in that coordinate,
 * and member j is the one whose coordinate is j.
 *
 *  All are collective over these members and stream-ordered on `stream` (NULL: the context's): they return when they
 * are queued. Buffers are device memory (on CPUs any), belong to the caller, and like arrays of counts neither change
 * nor go before the stream has run the call. Counts are elements of `dtype`, ≥ 0; where a buffer's count is 0 it may be
 * NULL. Buffers that overlap are refused but where a function says so. A group of one copies. Members call the same
 * functions in the same order, along one axis from one stream at a time; statistics of a stack and qdr_adamw_norm()
 * count among them, on the context's stream.
 *
 *  Errors that a member alone can see (below) queue nothing and are only that member's: the others wait for its call
 * until it makes a right one, or destroys the grid (then QDR_ERR_PEER). Calls that do not fit each other (another kind,
 * type, operation, size or root) are an asynchronous error of the members (qdr_context_status()), QDR_ERR_ARGUMENT or
 * QDR_ERR_SHAPE, where they are threads of one process, and except for all-to-all and send-recv where they are MPI
 * ranks of one node; elsewhere what happens is MPI's.
 *  @retval QDR_ERR_ARGUMENT  NULL, no such axis, operation or member; a buffer whose address is no multiple of an
 *                            element's bytes; buffers that overlap; on a GPU a buffer of the host or of another GPU
 *  @retval QDR_ERR_SHAPE     a count is negative or too large, or n_elems is not the caller's count
 *  @retval QDR_ERR_DTYPE     an unknown type, or U8 in a reduction
 *  Not thread-safe per grid. */
#ifndef QUADRILLE_COLL_H
#define QUADRILLE_COLL_H

#include "grid.h"

#ifdef __cplusplus
extern "C" {
#endif

/** All-reduce, in place. All members hold the same bits afterwards (added in rank order, where they lie on several
 * nodes first those of a node; bf16 and f16 in fp32). n_elems is the same on all members. */
QDR_API QDR_NODISCARD qdr_status qdr_all_reduce(qdr_grid *grid, qdr_axis axis, qdr_reduce op, void *data,
                                                int64_t n_elems, qdr_dtype dtype, qdr_stream *stream);

/** Each member gets the parts of all, one behind the other in the order of members.
 *  @param send     this member's part, n_elems; NULL: it already lies in its place in recv
 *  @param recv     Σ counts elements
 *  @param n_elems  of this member's part
 *  @param counts   elements of each member's part, equal on all members; NULL: n_elems each */
QDR_API QDR_NODISCARD qdr_status qdr_all_gather(qdr_grid *grid, qdr_axis axis, const void *send, void *recv,
                                                int64_t n_elems, const int64_t *counts, qdr_dtype dtype,
                                                qdr_stream *stream);

/** Reduces everyone's `send` and leaves each member with one part of the result (added as for qdr_all_reduce()).
 *  @param send     Σ counts elements, the parts of members 0, 1, … one behind the other
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

/** Each member sends a part of its own to each: part j of `send` becomes part i of member j's `recv`, where i is this
 * member.
 *  @param send, recv                parts one behind the other, Σ of their counts
 *  @param send_counts, recv_counts  elements that go to, and come from, each member; both NULL: n_elems each, the same
 *                                   on all members */
QDR_API QDR_NODISCARD qdr_status qdr_all_to_all(qdr_grid *grid, qdr_axis axis, const void *send,
                                                const int64_t *send_counts, void *recv, const int64_t *recv_counts,
                                                int64_t n_elems, qdr_dtype dtype, qdr_stream *stream);

/** Sends n_send elements to member `to`, and receives n_recv from member `from`; -1: none. All members call it, each
 * `to` with a `from` that fits: shifts, halos, swaps. */
QDR_API QDR_NODISCARD qdr_status qdr_send_recv(qdr_grid *grid, qdr_axis axis, int to, const void *send, int64_t n_send,
                                               int from, void *recv, int64_t n_recv, qdr_dtype dtype,
                                               qdr_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
