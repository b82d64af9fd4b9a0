/* SPDX-License-Identifier: Apache-2.0 */
/* How a run was split and what it recomputed, in the words of its authors: "FSDP+compile", "ZeRO stage 3; activation
 * checkpointing", "HSDP 4x8", "micro_batch_size=4". All texts must be normalised by text_words(). */
#ifndef QUADRILLE_SRC_PREDICT_WAYS_H
#define QUADRILLE_SRC_PREDICT_WAYS_H

#include <stddef.h>

/* The ZeRO stage (FSDP is stage 3); -1: not stated. */
int ways_zero(const char *text);
/* 1 if weights are sharded inside groups, and the groups hold copies; the sizes are 0 if not stated. */
int ways_hybrid(const char *text, int *replicas, int *shards);
/* A qdr_recompute; -1: not stated. */
int ways_recompute(const char *text);
/* Sequences per micro-batch, steps of gradient accumulation, and chunks of a pipeline stage: 1 if the text states a
 * number. */
int ways_micro_batch(const char *text, double *size);
int ways_steps(const char *text, double *steps);
int ways_interleave(const char *text, double *parts);
/* Context parallelism and expert parallelism: 1 if the text states a number of ranks. */
int ways_context(const char *text, double *ranks);
int ways_experts(const char *text, double *ranks);
/* 1: activations are split between tensor-parallel ranks. */
int ways_sequence(const char *text);

/* The next word that none of the above recognises and that is not known to be irrelevant. @return where to continue the
 * search, or NULL: there is none */
const char *ways_unknown(const char *text, char *word, size_t bytes);

#endif
