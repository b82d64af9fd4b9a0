/* SPDX-License-Identifier: Apache-2.0 */
/* Tests that run on ranks: threads of one process (--local P), processes started by mpiexec, or ranks connected by
 * callbacks (--boot P; see common/boot.h). The first failed check prints its location and rank, and ends the process,
 * so that no other rank waits for it. */
#ifndef TEST_DIST_H
#define TEST_DIST_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/layout.h"
#include "quadrille/quadrille.h"

typedef void (*dist_test)(qdr_context *ctx, uint64_t seed); /* seed: the same on all ranks */

/* DIST_TEST(name) { ... } is a test of its program; all run in the order of their file, those that are apart only by
 * name. */
#define DIST_TEST(name) DIST_ADD(name, 0)
#define DIST_TEST_APART(name) DIST_ADD(name, 1)
#define DIST_ADD(name, is_apart)                                                                                       \
    static void name(qdr_context *, uint64_t);                                                                         \
    __attribute__((constructor)) static void add_##name(void) { dist_add(__LINE__, #name, name, is_apart); }           \
    static void name(__attribute__((unused)) qdr_context *ctx, __attribute__((unused)) uint64_t seed)
void dist_add(int line, const char *name, dist_test run, int is_apart);

/* Runs all tests, or the one of this name; options --local P, --boot P and --seed N. A program without a main() does
 * just that. Returns main's exit code. */
int dist_main(int argc, char **argv, const char *only);

/* Rounds of a random test: n on local ranks, a third on processes, where making a grid takes long. */
int dist_rounds(int n);

#define DIST_CHECK(condition, ...) ((condition) ? (void)0 : dist_fail(__FILE__, __LINE__, #condition, __VA_ARGS__))
#define DIST_OK(call) dist_status((call), QDR_OK, __FILE__, __LINE__, #call)
/* The call fails with `status`, and its sentence holds `words`. */
#define DIST_FAILS(call, status, words)                                                                                \
    (dist_status((call), (status), __FILE__, __LINE__, #call), dist_sentence((words), __FILE__, __LINE__))
void dist_fail(const char *file, int line, const char *what, const char *format, ...)
    __attribute__((format(printf, 4, 5), noreturn));
void dist_status(qdr_status got, qdr_status want, const char *file, int line, const char *what);
void dist_sentence(const char *words, const char *file, int line);

/* splitmix64. */
uint64_t dist_random(uint64_t *seed);
int64_t dist_below(uint64_t *seed, int64_t n); /* [0, n) */
/* A number that depends on its arguments only: uniform in [-1, 1), a multiple of 2^-6, so exact in every type. */
double dist_value(uint64_t seed, int64_t i, int64_t j);

qdr_grid *dist_grid(qdr_context *ctx, qdr_grid_opts opts); /* sets their size */
/* A grid of all ranks with axes, order and levels at random. */
qdr_grid *dist_random_grid(qdr_context *ctx, uint64_t *seed);
/* The same, with levels unless there is one rank. */
qdr_grid *dist_levels_grid(qdr_context *ctx, uint64_t *seed);
int dist_has_levels(const qdr_grid *grid);
/* Where this rank is, as nets must know it. */
qdri_position dist_position(const qdr_grid *grid);
/* Calls `check` with each grid of all ranks, one after the other; with_levels: with all levels of each. */
void dist_every_grid(qdr_context *ctx, int with_levels, void (*check)(qdr_grid *grid, void *user), void *user);
/* A number of the ranks that differ only in `axis`: equal among them, others in other groups. */
int dist_group(const qdr_grid *grid, qdr_axis axis);
/* Cuts [0, width) into n parts at random; some may be empty. cuts: n + 1 of them. */
void dist_random_cuts(uint64_t *seed, int64_t width, int n, int64_t *cuts);
/* 1 to 3 blocks, each of 1 to most_units units. */
void dist_random_blocks(uint64_t *seed, int64_t most_units, qdr_block blocks[QDR_MAX_BLOCKS]);

/* What cannot fail here; descriptions and options need no size. `layer` may be NULL. */
qdr_stack *dist_stack(qdr_grid *grid, qdr_stack_opts opts);
qdr_edge dist_input(qdr_stack *stack, const char *name, qdr_edge_desc desc, int with_gradient);
qdr_edge dist_linear(qdr_stack *stack, qdr_linear_desc desc, qdr_edge in, qdr_linear **layer);
void *dist_edge_value(const qdr_stack *stack, qdr_edge edge);
void *dist_edge_gradient(const qdr_stack *stack, qdr_edge edge);
qdr_owned dist_edge_owned(const qdr_stack *stack, qdr_edge edge);
qdr_parameter dist_parameter(const qdr_stack *stack, int index);
qdr_traffic dist_traffic(const qdr_grid *grid, qdr_channel channel, qdr_coll_kind kind);

/* Device memory with room for n elements, filled with bytes 0xff: NaN, so that reading what nobody wrote shows. */
void *dist_memory(qdr_context *ctx, int64_t n_elems, qdr_dtype dtype);
void dist_set(void *data, qdr_dtype dtype, int64_t i, double value);
double dist_get(const void *data, qdr_dtype dtype, int64_t i);
/* Gives `data`, a value or gradient of an edge on this rank, dist_value(seed, row, column) of the global rows and
 * columns. */
void dist_fill_edge(const qdr_stack *stack, qdr_edge edge, void *data, uint64_t seed);
/* The same plus `step` times the numbers of `direction`, another seed. */
void dist_fill_edge_along(const qdr_stack *stack, qdr_edge edge, void *data, uint64_t seed, double step,
                          uint64_t direction);
/* The global column of this rank's column `local`. */
int64_t dist_column(const qdr_owned *owned, int64_t local);
/* Where this rank stores an element; -1: nowhere. */
int64_t dist_place(const qdr_owned *owned, int64_t row, int64_t col);
/* Builds a stack that was created with caller_memory. Values, workspace and gradients are NaN, so that reading what no
 * pass wrote shows. @return the memory, to be freed after the stack */
void *dist_build_in_nan(qdr_stack *stack);
/* One forward and backward: the input x and the gradient of y are filled from seeds. Waits. */
void dist_step(qdr_stack *stack, qdr_edge x, uint64_t x_seed, qdr_edge y, uint64_t y_seed, int flags);
/* All gradients of parameters, whole and one after the other, of the stack's type of gradients.
 * @return their number of elements */
int64_t dist_gather_gradients(qdr_stack *stack, void *gradients);
void dist_synchronize(qdr_context *ctx);
/* A number of 52 bits, exact in f64. */
double dist_digest(const void *data, size_t n_bytes);
/* Ranks that differ only in d have the same digest. */
void dist_check_digest(qdr_grid *grid, double digest, const char *when, const char *what);
/* Such ranks have the same bits of each parameter, and none is stale. */
void dist_check_copies(qdr_stack *stack, const char *when);

/* Half the distance between 1 and the next number of a type; twice that for F64, since references in f64 err as
 * much. */
double dist_roundoff(qdr_dtype dtype);
/* Half of F16's smallest step, by which numbers next to 0 may be off; 0 for the other types. */
double dist_least(qdr_dtype dtype);
/* F64 for F64, else F32. */
qdr_dtype dist_sum_type(qdr_dtype dtype);

#endif
