/* SPDX-License-Identifier: Apache-2.0 */
/* What ranks compare of a stack: each description as it was given, with its defaults filled in, and what calls on it
 * were given. A new member of a public description belongs here, or among the exceptions of tests/dist/test_same.c. */
#ifndef QDRI_LINEAR_DESCRIBE_H
#define QDRI_LINEAR_DESCRIBE_H

#include "linear/internal.h"

/* The end of the sentences. */
#define QDRI_SAME_STACK "describe the same stack on every rank"
#define QDRI_SAME_CALL "pass the same on every rank"

/* The grid and the options. */
void qdri_describe_opts(qdri_facts *facts, const qdr_grid *grid, const qdr_stack_opts *opts);

/* The next entry of the stack, once the net has it. name: as the net has it. */
void qdri_describe_input(qdr_stack *stack, const char *name, const qdr_edge_desc *desc, int with_gradient);
void qdri_describe_tokens(qdr_stack *stack, const char *name);
void qdri_describe_linear(qdr_stack *stack, const qdr_linear_desc *desc, qdr_edge in);
void qdri_describe_embedding(qdr_stack *stack, const qdr_embedding_desc *desc, qdr_edge tokens);
void qdri_describe_tied_head(qdr_stack *stack, const char *name, int table, qdr_layout out_layout, qdr_edge in);
void qdri_describe_norm(qdr_stack *stack, const char *name, double epsilon, qdr_edge in);
void qdri_describe_attention(qdr_stack *stack, const char *name, int64_t head_size, int64_t context, qdr_edge in);
/* An operation without options: kind "gelu". */
void qdri_describe_operation(qdr_stack *stack, const char *kind, const char *name, int n_in, const qdr_edge *in);
void qdri_describe_op(qdr_stack *stack, const qdr_op_desc *desc);

/* What the last backward was given, for who reads its gradients. */
void qdri_describe_backward(qdri_facts *facts, const qdr_stack *stack);

#endif
