/* SPDX-License-Identifier: Apache-2.0 */
/* A linear layer on one thread in float64, with which the grid's results are compared, and the allowed errors. The
 * bounds are derived in docs/numerics.md. */
#ifndef QUADRILLE_SRC_COMMON_REFERENCE_H
#define QUADRILLE_SRC_COMMON_REFERENCE_H

#include <quadrille/types.h>

/* Reads one element of memory as double, and writes it, rounded to nearest, ties to even. F32, F64, BF16 and F16. */
double element_read(qdr_dtype dtype, const void *memory, int64_t index);
void element_write(qdr_dtype dtype, void *memory, int64_t index, double value);
/* Fills n elements with numbers of ordinary magnitude, so that products meet no subnormal ones. */
void element_fill(void *memory, int64_t n_elems, qdr_dtype dtype);

/* The finaliser of splitmix64 (Steele, Lea, Flood 2014): a bijection that mixes all bits. */
uint64_t mix_bits(uint64_t bits);
/* A number drawn from (seed, stream, index): uniform in [-1, 1), or one of -1, 0, 1 if is_exact, rounded to dtype. */
double draw_value(uint64_t seed, int stream, int64_t index, int is_exact, qdr_dtype dtype);
/* A whole number in [0, n), from (seed, stream). */
int64_t draw_below(uint64_t seed, int stream, int64_t n);

/* A result and, for each element, the sum of the absolute values of all its terms, and by how much these may change if
 * their factors do. */
typedef struct reference_sums {
    double *value, *magnitude, *change;
} reference_sums;

typedef struct reference {
    int64_t m, k, n;
    double *x, *w, *b, *dy; /* [m,k], [n,k], [n], [m,n] */
    double x_change, w_change, dy_change; /* by how much an element of these may have changed on its way */
    reference_sums y, dx, dw, db;
} reference;

/* Zeroed arrays; 0, or -1 if out of memory (then nothing is allocated). */
int reference_create(int64_t m, int64_t k, int64_t n, reference *made);
void reference_destroy(reference *old);
/* y += x·wᵀ + b, dx += dy·w, dw += dyᵀ·x, db += Σ rows of dy, the magnitudes and the changes. The old values of the
 * results count as one more term each, whose magnitude the caller must add. */
void reference_run(reference *problem);

/* What the error bound depends on. */
typedef struct error_shape {
    qdr_dtype dtype;
    int64_t n_terms; /* of the whole sum, over all ranks and calls, including bias and old value */
    int n_members; /* ranks whose partial sums were added */
    int n_roundings; /* of intermediate results in BF16 or F16; 0 for results in fp32 */
} error_shape;
/* |computed - reference| ≤ factor · magnitude + least. All zero: no error allowed, as for sums of whole numbers. */
typedef struct error_bound {
    double factor, least;
} error_bound;
error_bound error_bound_of(error_shape shape);
/* The error as a fraction of its bound: at most 1 if the result is right; infinite for a NaN, or for any error where
 * none is allowed. */
double error_share(double computed, double value, double magnitude, error_bound bound);

#endif
