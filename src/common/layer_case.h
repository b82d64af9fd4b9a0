/* SPDX-License-Identifier: Apache-2.0 */
/* One linear layer that is run on a grid and compared with the serial reference, for `quadrille verify` and for
 * tests. */
#ifndef QUADRILLE_SRC_COMMON_LAYER_CASE_H
#define QUADRILLE_SRC_COMMON_LAYER_CASE_H

#include <quadrille/linear.h>

#include "common/failure.h"
#include "common/options.h"

typedef struct layer_case {
    uint64_t seed; /* for all values */
    int64_t m;
    qdr_block in[QDR_MAX_BLOCKS], out[QDR_MAX_BLOCKS];
    int64_t row_unit, in_unit, out_unit; /* of rows over d and z; of scattered rows of the two edges */
    qdr_dtype dtype;
    qdr_layout in_layout, out_layout;
    int transposed, bias, drop_gathered;
    qdr_storage storage; /* of W; none: the library chooses */
    int is_exact; /* values -1, 0, 1: the result must be exact */
    int n_calls; /* forward and backward passes; gradients of parameters accumulate over them */
    int defer; /* 1: synchronised in the last call only; 0: in each call */
    int accumulate; /* y and dx are added to the old values */
    int overlap, panels; /* as in qdr_stack_opts */
    const qdr_codecs *codecs; /* of messages, which have known bounds; F64 has none. NULL: QDR_CODEC, unknown here */
    int only_run; /* nothing is compared: for tests of something else */
} layer_case;

/* Draws all of a case except dtype and layouts: shapes (uneven, and smaller than their axis), units, flags. */
void layer_case_draw(uint64_t seed, layer_case *drawn);
/* Makes M, K, N, or both K and N, smaller than the axes that split them on a grid of this size, so that some ranks own
 * nothing. layouts and transposed must be set. Returns 0 if nothing splits the extent. */
typedef enum layer_small { SMALL_M, SMALL_K, SMALL_N, SMALL_W, N_SMALL } layer_small;
int layer_case_shrink(layer_case *drawn, layer_small what, grid_size size);
int64_t layer_case_k(const layer_case *the_case);
int64_t layer_case_n(const layer_case *the_case);
/* Describes the case in one line of text. */
void layer_case_text(const layer_case *the_case, char *text, size_t capacity);

enum { RESULT_Y, RESULT_DX, RESULT_DW, RESULT_DB, N_RESULTS };
/* The largest errors on this rank as fractions of their bounds (> 1: wrong), and a checksum of all bits of its
 * results. */
typedef struct layer_errors {
    double share[N_RESULTS];
    uint64_t bits;
} layer_errors;
/* The largest of them. */
double layer_errors_worst(const layer_errors *errors);

/* Called when the stack has been built and filled, and after each forward and backward pass (with idle streams). */
typedef enum layer_stage { STAGE_BUILT, STAGE_FORWARD, STAGE_BACKWARD } layer_stage;
typedef void (*layer_watch)(layer_stage stage, qdr_grid *grid, qdr_stack *stack, void *user);

/* Runs the case on the grid and compares this rank's parts of y and dx, and (on rank 0) all of dw and db. Outputs that
 * are to be overwritten contain NaN before. Collective; a failure is the same on all ranks. watch may be NULL. */
int layer_case_run(qdr_grid *grid, const layer_case *the_case, layer_watch watch, void *user, layer_errors *errors,
                   failure *why);

/* Builds a stack of one layer and its input "x". edges: in and out. Collective, with the same result on all ranks;
 * destroy the stack in any case. */
qdr_status layer_build(qdr_grid *grid, const qdr_stack_opts *opts, const qdr_edge_desc *input,
                       const qdr_linear_desc *desc, qdr_stack **stack, qdr_edge edges[2], qdr_linear **layer);

/* All grids of n ranks: writes up to `capacity` of them, returns their total number. */
int list_grids(int n_ranks, grid_size *sizes, int capacity);

#endif
