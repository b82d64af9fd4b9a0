/* SPDX-License-Identifier: Apache-2.0 */
/* Parameters: which part of each this rank stores, where it lies, and the query of one. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/size.h"
#include "linear/internal.h"

/* Wire parts of a flat block are aligned to 16 bytes. */
enum { SHARD_ALIGN_BYTES = 16 };

static const qdr_block one_row[QDR_MAX_BLOCKS] = {{1, 1}};

static int64_t shard_elems(const qdr_stack *stack, int64_t elems, int n_parts)
{
    const int64_t align = SHARD_ALIGN_BYTES / (int64_t)qdr_dtype_bytes(stack->opts.dtype);
    return qdri_round_up(qdri_ceil_div(elems, n_parts), align);
}

static void find_shard(const qdr_stack *stack, qdri_parameter *p)
{
    const int64_t elems = p->n_rows * p->n_cols;
    p->shard_elems = shard_elems(stack, elems, p->flat_over_z ? stack->place.size[QDR_Z] : 1);
    p->shard_begin = p->flat_over_z ? p->shard_elems * stack->place.coordinate[QDR_Z] : 0;
    p->n_elems = elems - p->shard_begin;
    if (p->n_elems > p->shard_elems) p->n_elems = p->shard_elems;
    if (p->n_elems < 0) p->n_elems = 0;
    if (!p->flat_over_z) p->shard_elems = elems;
}

/* Copies exist on the axes that split nothing: which of them counts, and which of them is the first
 * of all. */
static void find_copies(const qdr_stack *stack, const qdri_parameter_desc *desc, qdri_parameter *p)
{
    const int *at = stack->place.coordinate;
    p->counted = 1;
    for (int axis = QDR_X; axis <= QDR_Z; axis++) {
        const int split = desc->row_split == 1 + axis || desc->col_split == 1 + axis ||
                          (axis == QDR_Z && desc->flat_over_z);
        if (!split && at[axis] > 0) p->counted = 0;
    }
    p->first_copy = at[QDR_D] == 0 && (desc->flat_over_z || at[QDR_Z] == 0);
    if (desc->extra_sum && at[desc->extra_sum - 1] > 0) p->first_copy = 0;
}

static qdr_status join_name(const char *owner, const char *what, char **name)
{
    const size_t bytes = strlen(owner) + strlen(what) + 2;
    QDR_TRY(qdri_calloc(bytes, 1, "a name", (void **)name));
    snprintf(*name, bytes, "%s.%s", owner, what);
    return QDR_OK;
}

qdr_status qdri_parameter_add(qdr_stack *stack, const qdri_parameter_desc *desc, int *index)
{
    qdri_parameter p = {.flat_over_z = desc->flat_over_z,
                        .extra_sum = desc->extra_sum,
                        .decay = desc->flat_over_z,
                        .storage = QDR_OUT_IN,
                        .data = QDRI_NO_REF,
                        .gradient = QDRI_NO_REF};
    memcpy(p.rows, desc->rows ? desc->rows : one_row, sizeof p.rows);
    memcpy(p.cols, desc->cols, sizeof p.cols);
    p.row_parts = desc->row_split ? stack->place.size[desc->row_split - 1] : 1;
    p.row_part = desc->row_split ? stack->place.coordinate[desc->row_split - 1] : 0;
    p.col_parts = desc->col_split ? stack->place.size[desc->col_split - 1] : 1;
    p.col_part = desc->col_split ? stack->place.coordinate[desc->col_split - 1] : 0;
    p.n_rows = qdri_blocks_part(p.rows, p.row_parts, p.row_part);
    p.n_cols = qdri_blocks_part(p.cols, p.col_parts, p.col_part);
    size_t bytes = 0;
    QDR_TRY(qdri_mul_elems(qdri_blocks_width(p.rows), qdri_blocks_width(p.cols), &p.n_global));
    QDR_TRY(qdri_elems_bytes(p.n_global, QDR_F64, &bytes));
    find_shard(stack, &p);
    find_copies(stack, desc, &p);
    QDR_TRY(qdri_list_grow((void **)&stack->parameters, stack->n_parameters,
                           &stack->parameter_capacity, sizeof p, "a parameter of the stack"));
    QDR_TRY(join_name(desc->owner, desc->what, &p.name));
    stack->parameters[stack->n_parameters] = p;
    *index = stack->n_parameters++;
    return QDR_OK;
}

/* Part 0 of a split is the largest. */
size_t qdri_largest_gathered_bytes(const qdr_stack *stack)
{
    const int gz = stack->place.size[QDR_Z];
    int64_t most = 0;
    for (int i = 0; i < stack->n_parameters; i++) {
        const qdri_parameter *p = &stack->parameters[i];
        const int64_t elems = qdri_blocks_part(p->rows, p->row_parts, 0) *
                              qdri_blocks_part(p->cols, p->col_parts, 0);
        const int64_t gathered = p->flat_over_z ? gz * shard_elems(stack, elems, gz) : 0;
        if (gathered > most) most = gathered;
    }
    return (size_t)most * qdr_dtype_bytes(stack->opts.dtype);
}

void qdri_parameters_free(qdr_stack *stack)
{
    for (int i = 0; i < stack->n_parameters; i++) free(stack->parameters[i].name);
    free(stack->parameters);
}

/* The gradients of small parameters lie one behind the other, by class, so that one collective sums
 * a class, and one all. */
void qdri_parameters_place(qdr_stack *stack)
{
    const size_t grad_bytes = qdr_dtype_bytes(stack->grad_dtype);
    for (int i = 0; i < stack->n_parameters; i++) {
        qdri_parameter *p = &stack->parameters[i];
        const size_t elems = (size_t)p->shard_elems;
        p->data = qdri_buffers_add(&stack->buffers, QDRI_PARAMETERS,
                                   elems * qdr_dtype_bytes(stack->opts.dtype));
        if (p->flat_over_z)
            p->gradient = qdri_buffers_add(&stack->buffers, QDRI_GRADIENTS, elems * grad_bytes);
    }
    for (int class = 0; class < 3; class ++) {
        stack->small_begin[class] = stack->n_small;
        for (int i = 0; i < stack->n_parameters; i++) {
            qdri_parameter *p = &stack->parameters[i];
            if (p->flat_over_z || p->extra_sum != class) continue;
            p->gradient.offset = (size_t)stack->n_small * grad_bytes;
            p->gradient.bytes = (size_t)p->n_elems * grad_bytes;
            stack->n_small += p->n_elems;
        }
        stack->small_end[class] = stack->n_small;
    }
    stack->small_gradients = qdri_buffers_add(&stack->buffers, QDRI_GRADIENTS,
                                              (size_t)stack->n_small * grad_bytes);
    for (int i = 0; i < stack->n_parameters; i++)
        if (!stack->parameters[i].flat_over_z)
            stack->parameters[i].gradient.buffer = stack->small_gradients.buffer;
}

int qdr_stack_n_parameters(const qdr_stack *stack) { return stack ? stack->n_parameters : 0; }

qdr_status qdr_stack_parameter(const qdr_stack *stack, int index, qdr_parameter *parameter)
{
    if (!stack || !parameter)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "parameter: the stack or the place for the result is NULL");
    *parameter = (qdr_parameter){0};
    if (index < 0 || index >= stack->n_parameters)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "parameter: there is no number %d; the stack has %d",
                        index, stack->n_parameters);
    const qdri_parameter *p = &stack->parameters[index];
    *parameter = (qdr_parameter){.name = p->name,
                                 .data = qdri_stack_pointer(stack, p->data),
                                 .gradient = qdri_stack_pointer(stack, p->gradient),
                                 .n_elems = p->n_elems,
                                 .n_global = p->n_global,
                                 .decay = p->decay,
                                 .counted = p->counted,
                                 .deferred = p->deferred,
                                 .storage = p->storage};
    return QDR_OK;
}
