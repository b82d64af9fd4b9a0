/* SPDX-License-Identifier: Apache-2.0 */
/* Values of parameters by global index: initial values, loading and gathering. Only runs of a shard are held in
 * memory. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/block.h"
#include "core/size.h"
#include "dev/cpu/narrow.h"
#include "files/shuffle.h"
#include "linear/describe.h"

/* Normal with mean 0 and deviation 1, by Box and Muller 1958. */
static double normal_at(uint64_t seed, int64_t index)
{
    const uint64_t a = qdri_mix(seed ^ qdri_mix(2 * (uint64_t)index)),
                   b = qdri_mix(seed ^ qdri_mix(2 * (uint64_t)index + 1));
    const double u = ((double)(a >> 11) + 0.5) * 0x1p-53, v = (double)(b >> 11) * 0x1p-53;
    return sqrt(-2.0 * log(u)) * cos(6.283185307179586 * v);
}

static void store(void *data, qdr_dtype dtype, int64_t i, double value)
{
    if (dtype == QDR_F64) ((double *)data)[i] = value;
    if (dtype == QDR_F32) ((float *)data)[i] = (float)value;
    if (qdri_is_narrow(dtype)) ((uint16_t *)data)[i] = qdri_narrow_round(dtype, (float)value);
}

/* Of normal numbers, or of a constant. */
typedef struct draw {
    qdr_dtype dtype;
    uint64_t seed;
    double value; /* the deviation, or the constant */
} draw;

static qdr_status check_writes(const qdr_stack *stack, const char *who)
{
    QDR_TRY(qdri_stack_ready(stack, who));
    QDR_TRY(qdri_stack_owns(stack, who));
    return qdri_context_check_runs(qdr_grid_context(stack->grid), who);
}

/* Generates values on the host and copies them to the device. All ranks do. */
static qdr_status write_shard(qdr_stack *stack, int index, void (*make)(const qdri_parameter *, void *, void *),
                              void *user)
{
    const qdri_parameter *p = &stack->net.parameters[index];
    const size_t bytes = (size_t)p->shard_elems * qdr_dtype_bytes(stack->net.opts.dtype);
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    void *host = NULL;
    QDR_TRY(qdri_calloc(bytes, 1, "a shard of a parameter on the host", &host));
    if (host) make(p, host, user);
    qdr_status status = qdri_copy(stream, qdri_stack_pointer(stack, p->data), host, bytes);
    if (status == QDR_OK) status = qdri_stream_synchronize(stream);
    free(host);
    return status;
}

static void make_normal(const qdri_parameter *p, void *host, void *user)
{
    const draw *d = user;
    const int64_t width = qdri_blocks_width(p->cols);
    qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS];
    const int n = qdri_parameter_runs(p, runs);
    for (const qdr_parameter_run *run = runs; run < runs + n; run++)
        for (int64_t i = 0; i < run->n_rows; i++)
            for (int64_t j = 0; j < run->n_cols; j++)
                store(host, d->dtype, run->offset + i * run->row_step + j * run->col_step,
                      d->value * normal_at(d->seed, (run->row + i) * width + run->col + j));
}

/* Each parameter has its own numbers: its name is part of the seed, so that they do not depend on the order of
 * layers. */
static qdr_status fill_normal(qdr_stack *stack, int index, uint64_t seed, double stddev)
{
    for (const char *name = qdri_parameter_of(stack, index)->name; *name; name++)
        seed = qdri_mix(seed ^ (uint64_t)(unsigned char)*name);
    draw d = {.dtype = stack->net.opts.dtype, .seed = seed, .value = stddev};
    return write_shard(stack, index, make_normal, &d);
}

static void make_constant(const qdri_parameter *p, void *host, void *user)
{
    const draw *d = user;
    for (int64_t i = 0; i < p->n_elems; i++) store(host, d->dtype, i, d->value);
}

static qdr_status fill_constant(qdr_stack *stack, int index, double value)
{
    draw d = {.dtype = stack->net.opts.dtype, .value = value};
    return write_shard(stack, index, make_constant, &d);
}

/* A copy between a shard and the whole parameter, both on the host. */
typedef struct transfer {
    const char *from;
    char *to, *host;
    int is_to_whole; /* `to` is the whole parameter; else `from` is */
    size_t elem_bytes;
} transfer;

/* A row of a run, whose elements may be strided on one side. */
static void copy_row(char *to, size_t to_step, const char *from, size_t from_step, int64_t n, size_t elem_bytes)
{
    if (to_step == 1 && from_step == 1) {
        memcpy(to, from, (size_t)n * elem_bytes);
        return;
    }
    for (int64_t i = 0; i < n; i++, to += to_step * elem_bytes, from += from_step * elem_bytes)
        memcpy(to, from, elem_bytes);
}

static void copy_runs(const qdri_parameter *p, const qdr_parameter_run *runs, int n, const transfer *t)
{
    const int64_t width = qdri_blocks_width(p->cols);
    for (int r = 0; r < n; r++)
        for (int64_t i = 0; i < runs[r].n_rows; i++) {
            const size_t local = (size_t)(runs[r].offset + i * runs[r].row_step) * t->elem_bytes;
            const size_t global = (size_t)((runs[r].row + i) * width + runs[r].col) * t->elem_bytes;
            const size_t step = (size_t)runs[r].col_step;
            if (t->is_to_whole)
                copy_row(t->to + global, 1, t->host + local, step, runs[r].n_cols, t->elem_bytes);
            else
                copy_row(t->host + local, step, t->from + global, 1, runs[r].n_cols, t->elem_bytes);
        }
}

static void make_from_full(const qdri_parameter *p, void *host, void *user)
{
    transfer *t = user;
    qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS];
    t->host = host;
    copy_runs(p, runs, qdri_parameter_runs(p, runs), t);
}

/* The whole value is in the caller's host memory, none of it the stack's, whichever of the two is written. NULL: it is
 * not wanted. */
static qdr_status check_full(const qdr_stack *stack, int index, qdr_dtype dtype, const void *full, const char *who)
{
#define READ(constant, name) QDRI_READ,
    static const qdri_use uses[QDRI_CALLER] = {QDRI_STACK_REGIONS(READ)};
    const size_t bytes = (size_t)stack->net.parameters[index].n_global * qdr_dtype_bytes(dtype);
    const qdri_range whole = {.what = "full", .begin = full, .bytes = full ? bytes : 0, .writes = 1};
    return qdri_stack_check_apart(stack, who, &whole, uses);
}

static qdr_status load(qdr_stack *stack, int index, const void *full)
{
    if (!full)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "load: the full value of %s is NULL; pass its %" PRId64 " elements",
                        qdri_parameter_of(stack, index)->name, stack->net.parameters[index].n_global);
    QDR_TRY(check_full(stack, index, stack->net.opts.dtype, full, "load"));
    transfer t = {.from = full, .elem_bytes = qdr_dtype_bytes(stack->net.opts.dtype)};
    return write_shard(stack, index, make_from_full, &t);
}

/* With QDR_CHECK=1, ranks that hold copies of the same part compare what they load, each from its own full value. */
static qdr_status compare_load(qdr_stack *stack, int index, const void *full, qdr_status mine)
{
    qdri_facts facts = {0};
    qdri_facts_add_int(&facts, "qdr_stack_load_parameter", "index", index);
    if (mine == QDR_OK) {
        const size_t bytes = (size_t)stack->net.parameters[index].n_global * qdr_dtype_bytes(stack->net.opts.dtype);
        qdri_facts_add_int(&facts, qdri_parameter_of(stack, index)->name, "a full value of digest",
                           (int64_t)qdri_digest_of(full, bytes));
    }
    const qdr_status agreed = qdri_context_compare_call(qdr_grid_context(stack->grid), mine, &facts, "loading",
                                                        QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    return agreed;
}

/* Ranks that do not compare their calls cannot know of each other's errors. Then the parameter counts as written even
 * on a rank where that failed, or the ranks would disagree on what is stale. */
qdr_status qdr_stack_load_parameter(qdr_stack *stack, int index, const void *full)
{
    qdr_status status = check_writes(stack, "load");
    if (status == QDR_OK) status = qdri_parameter_check(stack, index);
    int is_written = status == QDR_OK;
    if (is_written) status = load(stack, index, full);
    if (stack && qdri_context_is_checked(qdr_grid_context(stack->grid))) {
        status = compare_load(stack, index, full, status);
        is_written = status == QDR_OK;
    }
    if (is_written) qdri_parameter_set_whole(stack, index);
    return status;
}

static qdr_status gather(qdr_stack *stack, const qdri_parameter *p, int which, char *host, void *device, void *full)
{
    const qdr_dtype dtype = which ? stack->net.grad_dtype : stack->net.opts.dtype;
    const size_t each = qdr_dtype_bytes(dtype), whole = (size_t)p->n_global * each;
    const size_t part = (size_t)qdri_parameter_updates(p) * each;
    const size_t begin = (size_t)(p->state_begin - (which ? p->gradient_begin : 0)) * each;
    const int over_d = p->returns;
    const char *shard = qdri_stack_pointer(stack, which ? p->gradient : p->data);
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    qdr_parameter_run runs[QDR_MAX_PARAMETER_RUNS];
    if (part) QDR_TRY(qdri_copy(stream, host + whole, shard + begin, part));
    QDR_TRY(qdri_stream_synchronize(stream));
    transfer t = {.to = host, .host = host + whole, .is_to_whole = 1, .elem_bytes = each};
    if (p->counted && (!over_d || p->copy == 0)) copy_runs(p, runs, qdri_parameter_state_runs(p, runs), &t);
    QDR_TRY(qdri_copy(stream, device, host, whole));
    /* Every element is zero except on the one rank that counts it, so that sums gather it exactly. What this rank
     * updates is right even if other parts of its shard are stale. */
    for (int axis = QDR_X; axis <= (over_d ? QDR_D : QDR_Z); axis++)
        QDR_TRY(qdr_all_reduce(stack->grid, (qdr_axis)axis, QDR_SUM, device, p->n_global, dtype, stream));
    QDR_TRY(qdri_stream_synchronize(stream));
    if (!full) return QDR_OK;
    QDR_TRY(qdri_copy(stream, full, device, whole));
    return qdri_stream_synchronize(stream);
}

static qdr_status check_gather(const qdr_stack *stack, int index, int which)
{
    QDR_TRY(qdri_stack_ready(stack, "parameter"));
    QDR_TRY(qdri_parameter_check(stack, index));
    if (which != 0 && which != 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "gather: which = %d; use QDR_PARAMETER_VALUE (0) or QDR_PARAMETER_GRADIENT (1)", which);
    if (which == 1) QDR_TRY(qdri_stack_owns(stack, "gather a gradient"));
    return qdri_context_check_runs(qdr_grid_context(stack->grid), "gather");
}

/* Allocates memory for it, once all ranks request the same. */
static qdr_status begin_gather(qdr_stack *stack, int index, int which, const void *full, void **host, void **device)
{
    qdr_context *ctx = qdr_grid_context(stack->grid);
    qdri_facts facts = {0};
    qdr_status status = check_gather(stack, index, which);
    const qdr_dtype dtype = which ? stack->net.grad_dtype : stack->net.opts.dtype;
    if (status == QDR_OK) status = check_full(stack, index, dtype, full, "gather");
    if (status == QDR_OK) {
        const size_t whole = (size_t)stack->net.parameters[index].n_global * sizeof(double);
        status = qdri_calloc(2 * whole, 1, "a gathered parameter", host);
        if (status == QDR_OK) status = qdri_mem_alloc(qdri_context_dev(ctx), whole, device);
        qdri_facts_add_int(&facts, "qdr_stack_gather_parameter", "index", index);
        qdri_facts_add_int(&facts, "qdr_stack_gather_parameter", "which", which);
        if (which) qdri_describe_backward(&facts, stack);
    }
    status = qdri_context_agree_same(ctx, status, &facts, "gather", QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    if (status != QDR_OK || !which || !qdri_parameter_of(stack, index)->deferred) return status;
    return QDR_FAIL(QDR_ERR_STATE,
                    "gather: the gradient of %s lacks sums that QDR_DEFER_SYNC left out; call the last backward of a "
                    "step without it",
                    qdri_parameter_of(stack, index)->name);
}

qdr_status qdr_stack_gather_parameter(qdr_stack *stack, int index, qdr_parameter_data which, void *full)
{
    if (!stack) return qdri_stack_ready(stack, "parameter");
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    void *host = NULL, *device = NULL;
    qdr_status status = begin_gather(stack, index, (int)which, full, &host, &device);
    if (status == QDR_OK && host) status = gather(stack, &stack->net.parameters[index], (int)which, host, device, full);
    qdri_mem_free(dev, &device);
    free(host);
    return status;
}

static qdr_status init_layer(qdr_stack *stack, const qdr_linear *layer, uint64_t seed, double stddev)
{
    const qdri_layer *l = qdri_linear_layer(layer);
    QDR_TRY(fill_normal(stack, l->weight, seed, stddev));
    if (l->bias < 0) return QDR_OK;
    const int positions = stack->net.nodes[layer->node].kind == QDRI_NODE_EMBEDDING;
    return positions ? fill_normal(stack, l->bias, seed, stddev) : fill_constant(stack, l->bias, 0.0);
}

/* layer NULL: the whole stack. */
static qdr_status init(qdr_stack *stack, const qdr_linear *layer, uint64_t seed, double stddev)
{
    QDR_TRY(check_writes(stack, "initial values"));
    if (!(stddev >= 0) || !isfinite(stddev))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "initial values: a standard deviation of %g; use 0 or more, such as 0.02",
                        stddev);
    if (layer) return init_layer(stack, layer, seed, stddev);
    for (int i = 0; i < stack->net.n_nodes; i++) {
        const qdri_node *node = &stack->net.nodes[i];
        if (qdri_node_is_layer(node) && !node->layer.shares_first)
            QDR_TRY(init_layer(stack, stack->attached[i].layer, seed, stddev));
        for (int j = 0; j < node->n_parameters; j++)
            QDR_TRY(fill_constant(stack, node->parameter + j, stack->net.parameters[node->parameter + j].initial));
    }
    return QDR_OK;
}

/* Copies and parts of a parameter are consistent only if all ranks use the same seed. */
static qdr_status init_together(qdr_stack *stack, const qdr_linear *layer, uint64_t seed, double stddev)
{
    const char *who = layer ? "qdr_linear_init" : "qdr_stack_init";
    char text[32];
    qdri_facts facts = {0};
    snprintf(text, sizeof text, "%" PRIu64, seed);
    qdri_facts_add(&facts, who, "layer", layer ? qdri_linear_name(layer) : "all");
    qdri_facts_add(&facts, who, "seed", text);
    qdri_facts_add_real(&facts, who, "stddev", stddev);
    const qdr_status status = qdri_context_agree_same(qdr_grid_context(stack->grid), init(stack, layer, seed, stddev),
                                                      &facts, "initial values", QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    /* If it failed, perhaps on one rank only, what was stale stays so on all. */
    if (status == QDR_OK) qdri_stack_set_returned(stack, layer ? layer->node : -1);
    return status;
}

qdr_status qdr_stack_init(qdr_stack *stack, uint64_t seed, double stddev)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "initial values: the stack is NULL");
    return init_together(stack, NULL, seed, stddev);
}

qdr_status qdr_linear_init(qdr_linear *layer, uint64_t seed, double stddev)
{
    if (!layer) return QDR_FAIL(QDR_ERR_ARGUMENT, "initial values: the layer is NULL");
    return init_together(layer->stack, layer, seed, stddev);
}
