/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer of any qdr_network in f64 on one process: the oracle for the distributed one. It shares no code with
 * the library but the frequencies of rotary positions.
 *
 * The forward pass is written down value by value. Each value notes from which others it was computed, and its slope in
 * each; gradients follow by going back over these notes, so there is no backward pass that could be wrong.
 *
 * How far another computation may be off is found by perturbing this one. With noise every sum and function, and every
 * value that is stored between operations, is off by a random share of a roundoff, forward and back (Monte Carlo
 * arithmetic: Parker, UCLA 1997). The results then vary as those of an arithmetic with such roundoffs do, in any order
 * of the sums: depth, conditions and numbers of roundings are those of the very network. */
#ifndef TESTS_REFERENCE_NETWORK_SERIAL_H
#define TESTS_REFERENCE_NETWORK_SERIAL_H

#include <stdint.h>

#include "quadrille/network.h"

/* Has the name that a stack gives the parameter, "block0.qkv.weight", and its elements in that order. */
typedef struct serial_tensor {
    char name[48];
    int64_t n, first; /* first: its place among all parameters */
    double *value, *gradient; /* the value is the caller's to fill */
    double off; /* how far gradients may be off, in their norm */
    double *moments[2]; /* of AdamW */
} serial_tensor;

/* Roundoffs of what is computed and of what is stored; 0: none but f64's own. */
typedef struct serial_noise {
    double computed, stored;
    uint64_t seed;
} serial_noise;

typedef struct serial_value {
    double value, gradient, roundoff;
    int64_t first_edge;
} serial_value;

typedef struct serial_edge {
    int64_t from;
    double slope;
} serial_edge;

typedef struct serial_network {
    qdr_network network;
    int context, sinks; /* sinks 1: each head has a further score, a parameter */
    double z_loss; /* the caller's to set, as in qdr_cross_entropy_desc */
    const int32_t *first_keys; /* of all rows, the caller's to set; NULL: none. As in qdr_attention_desc */
    int n_tensors;
    serial_tensor *tensors; /* in the order of their use, which is a stack's */
    double loss_off;
    int n_steps;
    /* of a pass over one sequence; parameters are the first values */
    serial_value *values;
    serial_edge *edges;
    int64_t n_values, n_edges, value_room, edge_room, n_parameters;
    serial_noise noise;
    int is_inside; /* an operation, whose values are not stored */
    int layer; /* -1: outside the layers */
    int first_row; /* of the sequence */
} serial_network;

/* Without memory they end the process. */
serial_network serial_network_make(const qdr_network *network, int context, int sinks);
void serial_network_free(serial_network *net);
/* Of another gradient from the tensor's: the norm of their difference. */
double serial_tensor_distance(const serial_tensor *tensor, const double *gradient);
/* The sum of the losses of all rows with a target >= 0, and the gradients of `scale` times that sum. */
double serial_network_backprop(serial_network *net, int n_sequences, const int32_t *tokens, const int32_t *targets,
                               double scale, serial_noise noise);
/* The same without noise, and how far the sum and the gradients may be off in an arithmetic of this roundoff: 30 times
 * the root mean square of their errors in four passes with noise. Even where a single rounding outweighs all others,
 * one result in 10^5 is further off (Student's distribution). For F64 it is 2^-52, twice the true one, since the oracle
 * errs, too. */
double serial_network_expect(serial_network *net, int n_sequences, const int32_t *tokens, const int32_t *targets,
                             double scale, double roundoff, uint64_t seed);
/* AdamW with epsilon 1e-8; decay[i]: whether weight decay applies to tensor i. clip_norm 0: none. */
void serial_network_adamw(serial_network *net, double rate, double beta1, double beta2, double weight_decay,
                          double clip_norm, const int *decay);

#endif
