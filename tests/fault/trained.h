/* SPDX-License-Identifier: Apache-2.0 */
/* A small network with AdamW, whose checkpoint has everything that saving distinguishes: split and whole parameters,
 * turned weights, masters, and with two ranks or more levels. */
#ifndef QDR_TEST_TRAINED_H
#define QDR_TEST_TRAINED_H

#include <quadrille/checkpoint.h>

typedef struct trained {
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_adamw *optimizer;
    qdr_edge x, y;
} trained;

/* Weights [width, width], each with a bias, of a type; on ranks split by x and, from four on, by d with levels. Has
 * taken a step. */
trained trained_create(qdr_context *ctx, int n_layers, int64_t width, qdr_dtype dtype);
/* A step on numbers that depend on the seed. */
void trained_step(trained *net, uint64_t seed);
void trained_destroy(trained *net);

enum { TRAINED_FOLDER_BYTES = 64 };
/* Makes a new folder, in memory if possible: thousands of saves would wait for a disk. */
void trained_folder(char folder[TRAINED_FOLDER_BYTES]);

#endif
