/* SPDX-License-Identifier: Apache-2.0 */
/* The facts about a stack that ranks compare: each description as given, with defaults filled in, and the arguments of
 * calls. A new member of a public description belongs here, or in the list of exceptions in tests/dist/test_same.c. */
#ifndef QDRI_LINEAR_DESCRIBE_H
#define QDRI_LINEAR_DESCRIBE_H

#include "linear/internal.h"
#include "schedule/net_parts.h"

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
void qdri_describe_node(qdr_stack *stack, const qdri_node_desc *desc);

/* The arguments of the last backward pass, or of those of single layers, and which gradients lack sums, for calls that
 * read the gradients: they refuse gradients that lack sums only when ranks have agreed on this, and so all or none
 * do. */
void qdri_describe_backward(qdri_facts *facts, const qdr_stack *stack);

#endif
