/* SPDX-License-Identifier: Apache-2.0 */
/* A GPT on one process in f64 with plain loops: the oracle for the distributed one. It shares no code with the library.
 *
 * Together with each number it computes the variance of its rounding error (running error analysis: Wilkinson; Higham
 * 2002, section 3.3; with roundings as independent random numbers of mean zero: Higham and Mary, SIAM J. Sci. Comput.
 * 41, 2019). It is of first order in the unit roundoff and holds for any order of the sums, fused or not. Bounds that
 * add absolute values instead are correct but useless here: through two blocks and back they grow to a thousand times
 * the gradient. */
#ifndef TESTS_REFERENCE_GPT_SERIAL_H
#define TESTS_REFERENCE_GPT_SERIAL_H

#include <stdint.h>

typedef struct serial_config {
    int n_layers, hidden, n_heads, context, vocab, n_sequences, tied;
} serial_config;

typedef struct serial_gpt serial_gpt;

/* NULL: no memory. */
serial_gpt *serial_create(const serial_config *config);
void serial_destroy(serial_gpt *gpt);

/* Parameters in the order in which the model uses them: E, P, then per block norm1 (gamma, beta), qkv (W, b), proj,
 * norm2, fc, fc2, then the last norm and the head's W, unless it is tied. */
int serial_n_parameters(const serial_gpt *gpt);
int64_t serial_n_elems(const serial_gpt *gpt, int index);
double *serial_parameter(serial_gpt *gpt, int index);
const double *serial_gradient(const serial_gpt *gpt, int index);
const double *serial_gradient_variance(const serial_gpt *gpt, int index);

/* Mean loss over the rows with a target ≥ 0, and all gradients of it. [n_sequences · context] each. */
double serial_backprop(serial_gpt *gpt, const int32_t *tokens, const int32_t *targets);
/* AdamW with epsilon 1e-8; decay[i]: whether weight decay applies to parameter i. clip_norm 0: none. */
void serial_adamw(serial_gpt *gpt, double lr, double beta1, double beta2, double weight_decay, double clip_norm,
                  const int *decay);

#endif
