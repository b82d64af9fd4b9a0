/* SPDX-License-Identifier: Apache-2.0 */
/* The facts about a stack that ranks compare: each description as given, with defaults filled in, and the arguments of
 * calls. A new member of a public description belongs here, or in the list of exceptions in tests/dist/test_same.c. */
#ifndef QDRI_LINEAR_DESCRIBE_H
#define QDRI_LINEAR_DESCRIBE_H

#include "linear/internal.h"

/* The last part of the error messages. */
#define QDRI_SAME_STACK "describe the same stack on every rank"
#define QDRI_SAME_CALL "pass the same on every rank"

/* codecs NULL: none are given. */
void qdri_describe_codecs(qdri_facts *facts, const char *who, const qdr_codecs *codecs);
/* The grid and the options. */
void qdri_describe_opts(qdri_facts *facts, const qdr_grid *grid, const qdr_stack_opts *opts);

/* The next entry of the stack, after the net has added it. name: as stored by the net. */
void qdri_describe_input(qdr_stack *stack, const char *name, const qdr_edge_desc *desc, int with_gradient);
void qdri_describe_tokens(qdr_stack *stack, const char *name);
void qdri_describe_linear(qdr_stack *stack, const qdr_linear_desc *desc, qdr_edge in);
void qdri_describe_embedding(qdr_stack *stack, const qdr_embedding_desc *desc, qdr_edge tokens);
void qdri_describe_tied_head(qdr_stack *stack, const char *name, int table, qdr_layout out_layout, qdr_edge in);
void qdri_describe_norm(qdr_stack *stack, const char *name, double epsilon, qdr_edge in);
void qdri_describe_attention(qdr_stack *stack, const char *name, int64_t head_size, int64_t context, qdr_edge in);
/* An operation without options, of a kind such as "gelu". */
void qdri_describe_operation(qdr_stack *stack, const char *kind, const char *name, int n_in, const qdr_edge *in);
void qdri_describe_op(qdr_stack *stack, const qdr_op_desc *desc);

/* The arguments of the last backward pass, or of those of single layers, and which gradients lack sums, for calls that
 * read the gradients: they refuse gradients that lack sums only when ranks have agreed on this, and so all or none
 * do. */
void qdri_describe_backward(qdri_facts *facts, const qdr_stack *stack);

#endif
