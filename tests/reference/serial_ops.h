/* SPDX-License-Identifier: Apache-2.0 */
/* The operations of gpt_serial.c. Every array is a pair of values and variances of their rounding errors; weights are
 * exact. Shapes as in the comments of serial_ops.c, row-major. */
#ifndef TESTS_REFERENCE_SERIAL_OPS_H
#define TESTS_REFERENCE_SERIAL_OPS_H

#include <stdint.h>

#include "quadrille/stack.h"

typedef struct array {
    double *v, *e;
} array;

typedef struct norm_state {
    array mean_free, normed; /* x - mean, and that over sigma */
    array inverse; /* 1/sigma of each row; its e is relative */
} norm_state;

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

void serial_linear(int m, int n, int k, array x, const double *w, const double *b, array y);
void serial_linear_dx(int m, int n, int k, array dy, const double *w, array dx);
void serial_linear_dw(int m, int n, int k, array dy, array x, array dw, array db);
void serial_norm(int rows, int n, const double *gamma, const double *beta, array x, norm_state *s, array y);
void serial_norm_backward(int rows, int n, const double *gamma, const norm_state *s, array dy, array dx, array dgamma,
                          array dbeta);
void serial_add(int64_t n, array a, array b, double factor, array y);
/* y = function(x) · up, and its gradients; up.v NULL: 1. dx may be dy. */
void serial_activation(qdr_activation_function function, int64_t n, array x, array up, array y);
void serial_activation_backward(qdr_activation_function function, int64_t n, array x, array up, array dy, array dx,
                                array dup);
void serial_softmax(int n, double *p, double *e);
void serial_attention(const attention_shape *a, array qkv, array scores, array y);
void serial_attention_backward(const attention_shape *a, array qkv, array scores, array dy, array d_qkv, array d_sinks,
                               array room);
void serial_turn(const attention_shape *a, int back, array qkv);
void serial_head_norm(const attention_shape *a, array qkv, array normed);
void serial_head_norm_backward(const attention_shape *a, array qkv, array d_qkv, array d_gammas);
double serial_cross_entropy(int n, const double *logits, const double *e_logits, int target, double factor, double cap,
                            double valid, double *d, double *ed);
void serial_embed(int rows, int n, int context, const int32_t *tokens, double factor, const double *e, const double *p,
                  array x);
void serial_embed_backward(int rows, int n, int context, const int32_t *tokens, double factor, array dx, array de,
                           array dp);

#endif
