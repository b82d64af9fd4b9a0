/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/contents.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/internal.h"
#include "core/block.h"
#include "core/facts.h"
#include "core/json.h"
#include "core/size.h"

/* In the order of the file. */
typedef enum saved_kind { SAVED_PARAMETER, SAVED_M, SAVED_V } saved_kind;
static const char *const prefixes[] = {[SAVED_PARAMETER] = "", "optimizer.m.", "optimizer.v."};
enum { MOST_PREFIX_BYTES = 16 };

const qdri_parameter *qdri_contents_parameter(const qdri_contents *contents, int tensor)
{
    return &contents->stack->net.parameters[contents->saved[tensor].parameter];
}

/* The elements of its shard that this rank writes: of a matrix, as many of those that it updates as each of the ranks
 * that update the same; a small parameter is written by one rank. */
static void find_share(const qdri_parameter *p, qdri_saved *saved)
{
    const int64_t n = qdri_parameter_updates(p);
    int64_t begin = 0, end = 0;
    if (p->counted && p->flat_over_z) qdri_split(n, 1, p->n_copies, p->copy, &begin, &end);
    if (p->counted && !p->flat_over_z && p->copy == 0) end = n;
    saved->begin = p->state_begin + begin;
    saved->n = end - begin;
}

/* Vectors have one dimension. */
static void set_shape(const qdri_parameter *p, qdr_tensor *tensor)
{
    const int64_t n_rows = qdri_blocks_width(p->rows), n_cols = qdri_blocks_width(p->cols);
    tensor->n_dims = p->is_vector ? 1 : 2;
    tensor->shape[0] = p->is_vector ? n_cols : n_rows;
    tensor->shape[1] = p->is_vector ? 0 : n_cols;
}

/* The memory of element `begin` of an array that has the elements from `first` on. */
static void *at(void *array, int64_t first, int64_t begin, qdr_dtype dtype)
{
    return array ? (char *)array + (size_t)(begin - first) * qdr_dtype_bytes(dtype) : NULL;
}

static void add(qdri_contents *contents, saved_kind kind, int index, const qdri_adamw_state *state, char **name)
{
    const qdr_stack *stack = contents->stack;
    const qdri_parameter *p = &stack->net.parameters[index];
    const qdr_dtype own = stack->net.opts.dtype, sum = qdri_sum_type(own);
    qdr_tensor *tensor = &contents->tensors[contents->n];
    qdri_saved *saved = &contents->saved[contents->n++];
    *tensor = (qdr_tensor){.name = *name, .dtype = (int)contents->dtype, .has_crc = 1};
    *name += sprintf(*name, "%s%s", prefixes[kind], qdri_parameter_of(stack, index)->name) + 1;
    set_shape(p, tensor);
    *saved = (qdri_saved){.parameter = index, .dtype = kind == SAVED_PARAMETER ? own : sum};
    find_share(p, saved);
    if (kind == SAVED_PARAMETER) {
        saved->values = at(qdri_stack_pointer(stack, p->data), 0, saved->begin, own);
        saved->master = at(state->master, p->state_begin, saved->begin, sum);
    } else {
        saved->values = at(kind == SAVED_M ? state->m : state->v, p->state_begin, saved->begin, sum);
    }
    contents->own_bytes += saved->n * (int64_t)qdr_dtype_bytes(contents->dtype);
}

static qdr_status make(const qdr_stack *stack, const qdr_adamw *optimizer, qdri_adamw_state *states,
                       qdri_contents *contents)
{
    const int n_kinds = optimizer ? SAVED_V + 1 : 1, n_parameters = stack->net.n_parameters;
    size_t n_bytes = 1;
    for (int i = 0; i < n_parameters; i++) n_bytes += strlen(qdri_parameter_of(stack, i)->name) + MOST_PREFIX_BYTES;
    QDR_TRY(QDRI_NEW(n_kinds * n_parameters, "the tensors of a checkpoint", &contents->tensors));
    QDR_TRY(QDRI_NEW(n_kinds * n_parameters, "the tensors of a checkpoint", &contents->saved));
    QDR_TRY(QDRI_NEW((size_t)n_kinds * n_bytes, "the names of tensors", &contents->names));
    if (optimizer) qdri_adamw_get_states(optimizer, states);
    char *name = contents->names;
    for (int kind = 0; kind < n_kinds; kind++)
        for (int i = 0; i < n_parameters; i++) add(contents, (saved_kind)kind, i, &states[i], &name);
    return qdri_tensors_place("checkpoint", contents->tensors, contents->n);
}

qdr_status qdri_contents_make(const qdr_stack *stack, const qdr_adamw *optimizer, qdri_contents *contents)
{
    const qdr_dtype own = stack->net.opts.dtype;
    *contents = (qdri_contents){.stack = stack, .dtype = optimizer ? qdri_sum_type(own) : own};
    if (optimizer && qdri_adamw_stack(optimizer) != stack)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: the optimizer is that of another stack; pass this stack's");
    qdri_adamw_state *states = NULL; /* zeros without an optimizer */
    qdr_status status = QDRI_NEW(stack->net.n_parameters, "the optimizer's arrays", &states);
    if (status == QDR_OK) status = make(stack, optimizer, states, contents);
    free(states);
    if (status != QDR_OK) qdri_contents_free(contents);
    return status;
}

void qdri_contents_free(qdri_contents *contents)
{
    free(contents->tensors);
    free(contents->saved);
    free(contents->names);
    *contents = (qdri_contents){0};
}

/* ---- the optimizer's description ---- */

qdr_status qdri_optimizer_print(const qdr_adamw *optimizer, char text[QDRI_OPTIMIZER_TEXT_BYTES])
{
    const qdr_adamw_opts *opts = qdri_adamw_options(optimizer);
    const struct {
        const char *name;
        double value;
    } numbers[] = {{"beta1", opts->beta1},         {"beta2", opts->beta2},
                   {"epsilon", opts->epsilon},     {"weight_decay", opts->weight_decay},
                   {"clip_norm", opts->clip_norm}, {"grad_scale", opts->grad_scale}};
    int64_t n_begun, n_steps;
    QDR_TRY(qdri_adamw_get_steps(optimizer, &n_begun, &n_steps));
    int length = sprintf(text, "{\"name\":\"adamw\"");
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        char number[QDRI_REAL_BYTES];
        qdri_real_text(numbers[i].value, 15, number); /* 1000 is not 1e+03 */
        for (char *digit = number; *digit; digit++)
            if (*digit == ',') *digit = '.'; /* a program may have set another locale */
        length += sprintf(text + length, ",\"%s\":%s", numbers[i].name, number);
    }
    sprintf(text + length, ",\"steps_begun\":%" PRId64 ",\"steps_taken\":%" PRId64 "}", n_begun, n_steps);
    return QDR_OK;
}

static qdr_status read_steps(const qdri_json *document, int64_t *n_begun, int64_t *n_steps)
{
    const int64_t most = (int64_t)1 << 53; /* which a double can count */
    qdri_json_node root;
    QDR_TRY(qdri_json_root(document, &root));
    QDR_TRY(qdri_json_int(qdri_json_get(&root, "steps_begun"), 0, most, n_begun));
    return qdri_json_int(qdri_json_get(&root, "steps_taken"), 0, *n_begun, n_steps);
}

qdr_status qdri_optimizer_read(const char *text, const char *path, int64_t *n_begun, int64_t *n_steps)
{
    qdri_json *document = NULL;
    char name[256];
    snprintf(name, sizeof name, "%s, the metadata's \"optimizer\"", qdri_shown(path).text);
    *n_begun = *n_steps = 0;
    qdr_status status = qdri_json_parse(text, strlen(text), name, &document);
    if (status == QDR_OK) status = read_steps(document, n_begun, n_steps);
    qdri_json_free(&document);
    return status;
}
