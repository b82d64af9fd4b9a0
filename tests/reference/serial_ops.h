/* SPDX-License-Identifier: Apache-2.0 */
/* Activations and attention in f64. Every array is a pair of values and variances of their rounding errors; weights are
 * exact. Shapes as in the comments of serial_ops.c, row-major.
 *
 * The variances are found by running error analysis (Wilkinson; Higham 2002, section 3.3), with roundings as
 * independent random numbers of mean zero (Higham and Mary, SIAM J. Sci. Comput. 41, 2019), to first order in the unit
 * roundoff and for any order of the sums. */
#ifndef TESTS_REFERENCE_SERIAL_OPS_H
#define TESTS_REFERENCE_SERIAL_OPS_H

#include <stdint.h>

#include "quadrille/stack.h"

typedef struct array {
    double *v, *e;
} array;

/* Zeros after `size`: as in GPT. qkv: [rows, (heads + 2·key_heads)·size] */
typedef struct attention_shape {
    int rows, heads, key_heads, context, size;
    int window;
    double scale, cap;
    int rotary_columns, interleaved;
    const double *frequencies;
    double magnitude;
    const double *sinks; /* of heads; scores have a column more */
    const double *gammas; /* of queries and of keys: factors of the norms of heads; NULL: none */
    double epsilon;
} attention_shape;

/* y = function(x) · up, and its gradients; up.v NULL: 1. dx may be dy. */
void serial_activation(qdr_activation_function function, int64_t n, array x, array up, array y);
void serial_activation_backward(qdr_activation_function function, int64_t n, array x, array up, array dy, array dx,
                                array dup);
void serial_attention(const attention_shape *a, array qkv, array scores, array y);
void serial_attention_backward(const attention_shape *a, array qkv, array scores, array dy, array d_qkv, array d_sinks,
                               array room);
void serial_turn(const attention_shape *a, int back, array qkv);
void serial_head_norm(const attention_shape *a, array qkv, array normed);
void serial_head_norm_backward(const attention_shape *a, array qkv, array d_qkv, array d_gammas);

#endif
