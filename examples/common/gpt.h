/* SPDX-License-Identifier: Apache-2.0 */
/* A transformer as a Quadrille stack: creating it, initialising its weights, filling it with tokens,
 * reading its logits. */
#ifndef EXAMPLES_GPT_H
#define EXAMPLES_GPT_H

#include <quadrille/quadrille.h>

typedef struct gpt_config {
    qdr_network network;
    int64_t context; /* tokens of a sequence */
    int64_t n_sequences; /* per forward pass, over all ranks */
    qdr_layout layout;
    qdr_dtype dtype;
    qdr_product_type products; /* 0: as stored */
    int overlap; /* sum of QDR_OVERLAP_…; 0: all */
    int panels; /* row panels of products; 0: chosen by cost */
    int batch_parts; /* parts of the sequences, one after the other; 0: chosen by cost */
    const qdr_codecs *codecs; /* of messages between nodes; NULL: QDR_CODEC */
    qdr_recompute recompute;
    int recompute_every;
    int documents; /* 1: rows do not see other documents */
} gpt_config;

typedef struct gpt {
    gpt_config config;
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_edge tokens, first_keys, logits, targets;
    qdr_owned token_rows, key_rows, logits_part; /* of this rank */
} gpt;

/* The GPT-2 that has these layers, hidden, heads, vocab, context and tied; ffn 0: 4·hidden; norm_epsilon 0: 1e-5. */
qdr_network gpt_network(qdr_network sizes);
/* Describes and builds the model. Collective, agrees. After a failure the model can only be destroyed. */
qdr_status gpt_create(qdr_grid *grid, const gpt_config *config, gpt *model);
void gpt_destroy(gpt *model);
/* Initial weights from the seed: normally distributed with `stddev`; in products that add to the residual stream, with
 * stddev / sqrt(2·layers). */
qdr_status gpt_init(gpt *model, uint64_t seed, double stddev);
/* Copies the rows that this rank owns, from a sequence of `rows` on; they must stay as they are until the stream has
 * run. first_keys: of a model of documents. */
qdr_status gpt_fill_rows(gpt *model, const qdr_token_rows *rows, int64_t sequence);
/* The logits of global row `row` after a forward pass, as the loss takes them, on every rank. Collective, blocking. */
qdr_status gpt_logits_row(gpt *model, int64_t row, float *logits);
/* Number of parameters of the whole model. */
int64_t gpt_n_parameters(const gpt *model);

#endif
