/* SPDX-License-Identifier: Apache-2.0 */
/* The stack's own data for its nodes, in addition to the net's: names, handles of layers, the caller's functions. They
 * are created before the net adds the node, and dropped if the net refuses it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "linear/internal.h"

#define LONGEST_PARAMETER "positions"

/* Space for the name, and for those of its parameters. */
static size_t names_bytes(const char *name)
{
    return (1 + QDRI_MOST_NODE_PARAMETERS) * (strlen(name) + 1) + QDRI_MOST_NODE_PARAMETERS * sizeof LONGEST_PARAMETER;
}

static void drop(qdri_attached *attached)
{
    free(attached->name);
    free(attached->layer);
    *attached = (qdri_attached){0};
}

qdr_status qdri_attach_begin(qdr_stack *stack, const char *name, int is_layer, const char **kept)
{
    const size_t bytes = strlen(name) + 1;
    const int number = stack->net.n_nodes;
    QDR_TRY(qdri_list_grow((void **)&stack->attached, number, &stack->attached_capacity, sizeof *stack->attached,
                           "a node of the stack"));
    qdri_attached *attached = &stack->attached[number];
    *attached = (qdri_attached){0};
    QDR_TRY(qdri_calloc(names_bytes(name), 1, "a name", (void **)&attached->name));
    memcpy(attached->name, name, bytes);
    *kept = attached->name;
    if (!is_layer) return QDR_OK;
    const qdr_status status = QDRI_NEW(1, "a layer", &attached->layer);
    if (status != QDR_OK) drop(attached);
    return status;
}

qdr_status qdri_attach_end(qdr_stack *stack, qdr_status status, qdr_edge *edge)
{
    const int number = stack->net.n_nodes - (status == QDR_OK);
    qdri_attached *attached = &stack->attached[number];
    if (status != QDR_OK) {
        drop(attached);
        *edge = -1;
        return status;
    }
    /* The names of its parameters follow its own. */
    const char *end = attached->name + names_bytes(attached->name);
    char *at = attached->name + strlen(attached->name) + 1;
    for (int i = stack->net.n_parameters - 1; i >= 0 && stack->net.parameters[i].node == number; i--) {
        const qdri_parameter *p = &stack->net.parameters[i];
        attached->parameters[p->slot].name = at;
        at += 1 + snprintf(at, (size_t)(end - at), "%s.%s", attached->name, p->what);
    }
    if (attached->layer) *attached->layer = (qdr_linear){.stack = stack, .node = number};
    return QDR_OK;
}

void qdri_attached_free(qdr_stack *stack)
{
    for (int i = 0; i < stack->net.n_nodes; i++) drop(&stack->attached[i]);
    for (int i = 0; i < stack->n_input_names; i++) free(stack->input_names[i]);
    free(stack->attached);
    free(stack->input_names);
}
