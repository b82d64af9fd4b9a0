/* SPDX-License-Identifier: Apache-2.0 */
/** @file grid.h  The 4D grid of ranks: coordinates, groups, traffic counters.
 *
 * A grid has gx·gy·gz·gd = p ranks, any integers ≥ 1. The order names the axes from the fastest: with "xyzd"
 * consecutive ranks have the same y, z and d and differ in x.
 *
 * Levels: W is stored in z parts, and copied over d. Its gradient and the optimizer's state may be stored in more
 * parts: gradient_parts G and optimizer_parts S, where each of z, G, S, z·d divides the next. They cut d, the fastest
 * first, into near = G/z, far = S/G and copies = z·d/S: the rank at d = i + near·(j + far·c) has part i of near of its
 * shard's gradient, and the state of part j of far of that. With z = 1, S = d is ZeRO-1 and G = S = d is ZeRO-2;
 * z = G = S is FSDP where d = 1, and HSDP where d > 1. */
#ifndef QUADRILLE_GRID_H
#define QUADRILLE_GRID_H

#include "context.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct qdr_grid_opts {
    size_t size; /**< QDR_INIT(qdr_grid_opts) */
    int x, y, z, d; /**< ranks along each axis, ≥ 1; their product is the context's size */
    const char *order; /**< fastest axis first, a permutation of "xyzd"; NULL: "xyzd" */
    int gradient_parts, optimizer_parts; /**< of matrices: multiples of z that divide z·d and nest; 0: z, and as many as
                                            gradient_parts */
} qdr_grid_opts;

/** Makes the grid and its communicators (one per axis and direction of use, and per level of d). Collective, blocking;
 *  ranks agree.
 *  @retval QDR_ERR_ARGUMENT  an axis is < 1, the product is not p, the order is not a permutation of xyzd, or the parts
 *                            do not nest; or ranks ask for different grids
 *  @retval QDR_ERR_MEMORY, QDR_ERR_MPI  nothing was made */
QDR_API QDR_NODISCARD qdr_status qdr_grid_create(qdr_context *ctx, const qdr_grid_opts *opts, qdr_grid **grid);
/** Waits for the work on the library's streams, destroys the grid and sets *grid to NULL. If its collectives were
 * enqueued on streams of the caller's, the caller must synchronize those first. NULL is allowed. Collective. May be
 * called before or after its context and its stacks are destroyed: the stacks keep it, and it keeps the context (see
 * qdr_context_destroy()). */
QDR_API void qdr_grid_destroy(qdr_grid **grid);

/* Queries are local. For a NULL grid or an invalid axis they give NULL, a size of 0, and ranks and coordinates of
 * -1. */
QDR_API qdr_context *qdr_grid_context(const qdr_grid *grid);
QDR_API int qdr_grid_size(const qdr_grid *grid, qdr_axis axis); /**< gx, gy, gz or gd */
QDR_API int qdr_grid_coordinate(const qdr_grid *grid, qdr_axis axis); /**< of the calling rank */
/** The rank at coordinates {x, y, z, d}; -1 if they lie outside the grid. */
QDR_API int qdr_grid_rank_at(const qdr_grid *grid, const int coordinates[QDR_N_AXES]);
/** The coordinates of `rank`. Local. @retval QDR_ERR_ARGUMENT no such rank */
QDR_API QDR_NODISCARD qdr_status qdr_grid_coordinates_of(const qdr_grid *grid, int rank, int coordinates[QDR_N_AXES]);
/** The rank `step` places further along `axis`, cyclically. Local. */
QDR_API int qdr_grid_neighbour(const qdr_grid *grid, qdr_axis axis, int step);
/** Draws the grid as text: one plane of x (columns) and y (rows) per z and d. Returns the length of the whole text
 * without its terminating null; writes at most `capacity` bytes, always null-terminated. Local. */
QDR_API size_t qdr_grid_picture(const qdr_grid *grid, char *text, size_t capacity);

/** What is stored in parts: of a matrix, its values, its gradient and the optimizer's state. */
typedef enum qdr_level { QDR_LEVEL_WEIGHTS = 0, QDR_LEVEL_GRADIENTS, QDR_LEVEL_OPTIMIZER, QDR_N_LEVELS } qdr_level;
/** The number of parts: z, gradient_parts, optimizer_parts. 0 for a NULL grid or an unknown level. Local. */
QDR_API int qdr_grid_parts(const qdr_grid *grid, qdr_level level);
/** Which of them this rank has; parts of one level lie inside the parts of the level before, in this order. -1 for a
 * NULL grid or an unknown level. Local. */
QDR_API int qdr_grid_part(const qdr_grid *grid, qdr_level level);

/** The communicators of a grid: one per axis and direction of use, so that none waits for another's traffic. */
typedef enum qdr_channel {
    QDR_CHANNEL_X_REDUCE = 0, /**< sums of Y of normal layers and of dX of transposed ones */
    QDR_CHANNEL_X_GATHER, /**< scattered rows gathered over x */
    QDR_CHANNEL_Y_REDUCE,
    QDR_CHANNEL_Y_GATHER,
    QDR_CHANNEL_Z_GATHER, /**< weights */
    QDR_CHANNEL_Z_REDUCE, /**< gradients of weights */
    QDR_CHANNEL_D_REDUCE, /**< gradients, over data-parallel copies; with levels only of small parameters */
    QDR_CHANNEL_D_NEAR, /**< with levels, both directions: gradients of weights in each backward, parameters back */
    QDR_CHANNEL_D_FAR, /**< with levels, once per step: gradients out, parameters back */
    QDR_CHANNEL_D_COPIES, /**< gradients, over the copies of one part of the optimizer's state */
    QDR_CHANNEL_X_STAT, /**< statistics: norms, cross-entropy, gradient norm, and coll.h */
    QDR_CHANNEL_Y_STAT,
    QDR_CHANNEL_Z_STAT,
    QDR_CHANNEL_D_STAT,
    QDR_N_CHANNELS
} qdr_channel;

/** Kinds of collectives. */
typedef enum qdr_coll_kind {
    QDR_ALL_GATHER = 0,
    QDR_REDUCE_SCATTER,
    QDR_ALL_REDUCE,
    QDR_BROADCAST,
    QDR_ALL_TO_ALL,
    QDR_SEND_RECV,
    QDR_N_COLL_KINDS
} qdr_coll_kind;

/** Lengths of arrays that have an entry for each channel, or each kind of collective, and room for later ones. */
#define QDR_MAX_CHANNELS 32
#define QDR_MAX_COLL_KINDS 16

/** What one kind of collective on one channel has done on this rank since the last reset. */
typedef struct qdr_traffic {
    size_t size; /**< QDR_INIT(qdr_traffic) */
    int64_t n_calls; /**< finished collectives, except in groups of one rank */
    int64_t bytes_sent; /**< payload this rank sent to other ranks, counted where it is copied or sent */
    int64_t bytes_off_node; /**< of these, to ranks on other nodes */
    int64_t bytes_plain; /**< what bytes_sent would be without codecs, see codec.h */
    double secs; /**< from when the stream had finished all earlier work until the collective ended; overlapping
                    collectives both count. 0 on GPUs, whose streams are not stopped for timing; use QDR_TRACE there */
    double codec_secs; /**< of encoding and decoding, part of which overlaps with sending; 0 on GPUs */
} qdr_traffic;
/** The number of ranks that communicate over a channel, along its axis or a level of d; 1: nothing is sent. 0
 * for a NULL grid or an unknown channel. Local. */
QDR_API int qdr_grid_channel_size(const qdr_grid *grid, qdr_channel channel);
/** Local; call it when the streams are idle.
 *  @param[out] traffic  zeros after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, or no such channel or kind */
QDR_API QDR_NODISCARD qdr_status qdr_grid_traffic(const qdr_grid *grid, qdr_channel channel, qdr_coll_kind kind,
                                                  qdr_traffic *traffic);
QDR_API void qdr_grid_reset_traffic(qdr_grid *grid);
QDR_API const char *qdr_channel_name(qdr_channel channel); /**< "x reduce", "d near", … */
QDR_API qdr_axis qdr_channel_axis(qdr_channel channel); /**< along which it runs */
QDR_API const char *qdr_coll_kind_name(qdr_coll_kind kind); /**< "all-gather", … */

#ifdef __cplusplus
}
#endif
#endif
