/* SPDX-License-Identifier: Apache-2.0 */
/* Moves elements between a rank's memory, in the order in which its shard is stored, and the places that they have in
 * a file, where the parameter is whole and row-major. */
#ifndef QDRI_CHECKPOINT_ROWS_H
#define QDRI_CHECKPOINT_ROWS_H

#include "linear/internal.h"
#include "schedule/net.h"

/* Writes bytes to this place of the tensor, or reads them from it, and continues *crc, the usual CRC-32, with them. */
typedef qdr_status (*qdri_row_fn)(void *user, int64_t at, void *bytes, size_t n_bytes, uint32_t *crc);

/* Rows of transposed shards, and rows that ranks exchange, pass through this much memory. */
enum { QDRI_BAND_BYTES = 2 << 20 };

typedef struct qdri_rows {
    const qdri_parameter *parameter;
    size_t elem_bytes;
    int is_reading;
    void *band; /* QDRI_BAND_BYTES; may be NULL unless the storage is transposed or rows are exchanged */
    qdri_row_fn move;
    void *user;
    qdr_grid *grid; /* NULL: this rank moves its own elements */
    qdr_axis axis; /* of the grid, that splits the columns */
    qdr_status status; /* what `move` failed with; then it is called no more */
    uint32_t share; /* of the tensor's checksum: of all that was moved */
} qdri_rows;

/* Whether ranks can exchange rows of this parameter, over which axis: where its columns are split evenly, each of the
 * members moves some whole rows, in long runs, instead of its short piece of all rows, and the members exchange their
 * pieces. The same on all members. */
int qdri_rows_exchange(const qdr_stack *stack, const qdri_parameter *parameter, qdr_axis *axis);

/* Moves the elements [begin, begin + n) of the shard, which are at `values`, with as few calls of `move` as the places
 * allow. With a grid, collective over the axis, and `values` is memory of a device that runs work on the host: all
 * members go on until the end, whatever rows->status says on one of them. Fails only if they cannot exchange. */
QDR_NODISCARD qdr_status qdri_rows_move(qdri_rows *rows, int64_t begin, int64_t n, void *values);

#endif
