/* SPDX-License-Identifier: Apache-2.0 */
/* How a run was split and what it kept, in the words of those who ran it: "FSDP+compile", "ZeRO stage 3; activation
 * checkpointing", "HSDP 4x8", "micro_batch_size=4". All texts are as text_words() leaves them. */
#ifndef QUADRILLE_SRC_PREDICT_WAYS_H
#define QUADRILLE_SRC_PREDICT_WAYS_H

#include <stddef.h>

/* The ZeRO stage, FSDP being stage 3; -1: the text says nothing. */
int ways_zero(const char *text);
/* 1 where weights are split inside groups whose members hold copies of other groups'; the sizes are 0 where they are
 * not said. */
int ways_hybrid(const char *text, int *replicas, int *shards);
/* A qdr_recompute; -1: the text says nothing. */
int ways_recompute(const char *text);
/* Numbers of sequences, of steps that a gradient is gathered over, and of parts of a pipeline's stage: 1 where the text
 * has one. */
int ways_micro_batch(const char *text, double *size);
int ways_steps(const char *text, double *steps);
int ways_interleave(const char *text, double *parts);
/* Ways that split sequences, or experts: 1 where the text has a number of ranks. */
int ways_context(const char *text, double *ranks);
int ways_experts(const char *text, double *ranks);
/* 1: activations are split between tensor-parallel ranks. */
int ways_sequence(const char *text);

/* The next word that none of the above knows, and that is not known to change nothing. @return where to look for more,
 * or NULL: there is none */
const char *ways_unknown(const char *text, char *word, size_t bytes);

#endif
