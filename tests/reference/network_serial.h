/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer of any qdr_network in f64 on one process: the oracle for the distributed one. It shares no code with the
 * library but the frequencies of rotary positions.
 *
 * The forward pass is written down value by value; each value notes from which others it was computed, and with which
 * slopes, and gradients follow by going back over these notes. So no backward pass can be wrong in the same way twice.
 *
 * How far another computation may be off is found by perturbing this one: with noise each sum and function, and each
 * value that is stored, is off by a random share of a roundoff, going forward and back (Monte Carlo arithmetic: Parker
 * 1997). What comes out varies as much as the results of an arithmetic with such a roundoff differ, in any order of the
 * sums: conditions, depth and numbers of roundings are those of the very network. */
#ifndef TESTS_REFERENCE_NETWORK_SERIAL_H
#define TESTS_REFERENCE_NETWORK_SERIAL_H

#include <stdint.h>

#include "quadrille/network.h"

/* By the names that a stack gives its parameters, "block0.qkv.weight", and as large; to be filled by the caller. */
typedef struct serial_tensor {
    char name[48];
    int64_t n;
    double *value, *gradient;
    int64_t first; /* where it is among all parameters */
} serial_tensor;

/* Roundoffs of what is computed, and of what is stored between operations; 0: exact, but for f64's own. */
typedef struct serial_noise {
    double computed, stored;
    uint64_t seed;
} serial_noise;

typedef struct serial_network {
    qdr_network network;
    int context, sinks; /* sinks: a further score of each head, a parameter */
    int n_tensors;
    serial_tensor *tensors;
    struct tape *tape;
} serial_network;

/* Without memory it ends the process, as do all. */
serial_network serial_network_make(const qdr_network *network, int context, int sinks);
void serial_network_free(serial_network *net);
/* NULL: there is none. */
serial_tensor *serial_network_tensor(const serial_network *net, const char *name);
/* The sum of the losses of all rows with targets >= 0; adds the gradients of scale times that sum. Tokens < 0 embed as
 * zeros. */
double serial_network_backprop(serial_network *net, int n_sequences, const int32_t *tokens, const int32_t *targets,
                               double scale, serial_noise noise);
void serial_network_clear_gradients(serial_network *net);

#endif
