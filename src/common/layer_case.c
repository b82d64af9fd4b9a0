/* SPDX-License-Identifier: Apache-2.0 */
/* Draws random linear layers, describes them as text, lists grids. */
#include "common/layer_case.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/coded.h"
#include "common/memory.h"
#include "common/reference.h"

/* One to three blocks in units of 1 to 4; small enough that some are smaller than their axis. */
static void draw_blocks(uint64_t seed, int stream, qdr_block blocks[QDR_MAX_BLOCKS])
{
    const int64_t n_blocks = 1 + draw_below(seed, stream, 3);
    const int64_t most_units = 1 + draw_below(seed, stream + 1, 9);
    for (int i = 0; i < n_blocks; i++) {
        const int64_t unit = 1 + draw_below(seed, stream + 2 + i, 4);
        const int64_t n_units = 1 + draw_below(seed, stream + 6 + i, most_units);
        blocks[i] = (qdr_block){.width = unit * n_units, .unit = unit};
    }
}

void layer_case_draw(uint64_t seed, layer_case *drawn)
{
    static const int64_t row_units[] = {1, 1, 1, 2, 3, 4, 6};
    *drawn = (layer_case){.seed = seed, .n_calls = 1, .overlap = QDR_OVERLAP_ALL};
    draw_blocks(seed, 100, drawn->in);
    draw_blocks(seed, 200, drawn->out);
    drawn->row_unit = row_units[draw_below(seed, 1, 7)];
    drawn->m = drawn->row_unit * draw_below(seed, 2, draw_below(seed, 3, 3) ? 40 / drawn->row_unit : 4);
    drawn->in_unit = drawn->row_unit % 2 == 0 && draw_below(seed, 4, 2) ? 2 : 1;
    drawn->out_unit = drawn->row_unit > 1 && draw_below(seed, 5, 2) ? drawn->row_unit : 1;
    drawn->transposed = (int)draw_below(seed, 6, 2);
    drawn->bias = (int)draw_below(seed, 7, 2);
    drawn->drop_gathered = (int)draw_below(seed, 8, 2);
    drawn->is_exact = (int)draw_below(seed, 9, 2);
    drawn->n_calls = 1 + (int)draw_below(seed, 10, 3) / 2 * 2;
    drawn->defer = (int)draw_below(seed, 12, 2);
    drawn->accumulate = (int)draw_below(seed, 11, 2);
    drawn->storage = draw_below(seed, 15, 2) ? QDR_IN_OUT : QDR_OUT_IN;
    drawn->panels = draw_below(seed, 13, 2) ? 2 + (int)draw_below(seed, 14, 5) : 1;
}

/* Makes a single block with fewer features than ranks: 1 to n_ranks - 1. */
static void shrink_blocks(uint64_t seed, int stream, int n_ranks, qdr_block blocks[QDR_MAX_BLOCKS])
{
    memset(blocks, 0, QDR_MAX_BLOCKS * sizeof *blocks);
    blocks[0] = (qdr_block){.width = 1 + draw_below(seed, stream, n_ranks - 1), .unit = 1};
}

int layer_case_shrink(layer_case *drawn, layer_small what, grid_size size)
{
    const int g_in = drawn->transposed ? size.y : size.x;
    const int g_out = drawn->transposed ? size.x : size.y;
    if (what == SMALL_M) {
        /* Rows are split over d and z, then over the axis on which an edge is scattered. */
        int g_scatter = 1;
        if (drawn->in_layout == QDR_SCATTERED) g_scatter = g_out;
        if (drawn->out_layout == QDR_SCATTERED && g_in > g_scatter) g_scatter = g_in;
        const int n_parts = size.z * size.d * g_scatter;
        if (n_parts == 1) return 0;
        drawn->m = 1 + draw_below(drawn->seed, 302, n_parts - 1);
        drawn->row_unit = drawn->in_unit = drawn->out_unit = 1;
        return 1;
    }
    if (what == SMALL_K && g_in > 1) shrink_blocks(drawn->seed, 300, g_in, drawn->in);
    if (what == SMALL_N && g_out > 1) shrink_blocks(drawn->seed, 301, g_out, drawn->out);
    if (what == SMALL_K) return g_in > 1;
    if (what == SMALL_N) return g_out > 1;
    shrink_blocks(drawn->seed, 300, 2, drawn->in); /* a single number, stored flat over z */
    shrink_blocks(drawn->seed, 301, 2, drawn->out);
    return size.x * size.y * size.z > 1;
}

static int64_t total_width(const qdr_block blocks[QDR_MAX_BLOCKS])
{
    int64_t width = 0;
    for (int i = 0; i < QDR_MAX_BLOCKS && blocks[i].width; i++) width += blocks[i].width;
    return width;
}

int64_t layer_case_k(const layer_case *the_case) { return total_width(the_case->in); }

int64_t layer_case_n(const layer_case *the_case) { return total_width(the_case->out); }

/* "6/2+9/3" */
static void blocks_text(const qdr_block blocks[QDR_MAX_BLOCKS], char *text, size_t capacity)
{
    size_t n_chars = 0;
    for (int i = 0; i < QDR_MAX_BLOCKS && blocks[i].width && n_chars < capacity; i++)
        n_chars += (size_t)snprintf(text + n_chars, capacity - n_chars, "%s%lld/%lld", i ? "+" : "",
                                    (long long)blocks[i].width, (long long)blocks[i].unit);
}

void layer_case_text(const layer_case *the_case, char *text, size_t capacity)
{
    char in[96], out[96];
    blocks_text(the_case->in, in, sizeof in);
    blocks_text(the_case->out, out, sizeof out);
    snprintf(text, capacity,
             "%s %s>%s %s M=%lld/%lld in=%s out=%s units %lld,%lld%s%s%s%s%s%s calls=%d overlap=%d panels=%d seed=%llu",
             qdr_dtype_name(the_case->dtype), the_case->in_layout ? "S" : "R", the_case->out_layout ? "S" : "R",
             the_case->transposed ? "transposed" : "normal", (long long)the_case->m, (long long)the_case->row_unit, in,
             out, (long long)the_case->in_unit, (long long)the_case->out_unit,
             the_case->storage == QDR_IN_OUT ? " in-out" : "", the_case->bias ? " bias" : "",
             the_case->drop_gathered ? " drop" : "", the_case->is_exact ? " exact" : "",
             the_case->accumulate ? " accumulate" : "", the_case->defer ? " defer" : "", the_case->n_calls,
             the_case->overlap, the_case->panels, (unsigned long long)the_case->seed);
}

double layer_errors_worst(const layer_errors *errors)
{
    double worst = 0;
    for (int i = 0; i < N_RESULTS; i++)
        if (errors->share[i] > worst) worst = errors->share[i];
    return worst;
}

int list_grids(int n_ranks, grid_size *sizes, int capacity)
{
    int n_sizes = 0;
    for (int x = 1; x <= n_ranks; x++)
        for (int y = 1; n_ranks % x == 0 && y <= n_ranks / x; y++)
            for (int z = 1; n_ranks / x % y == 0 && z <= n_ranks / x / y; z++) {
                if (n_ranks / x / y % z) continue;
                if (n_sizes < capacity) sizes[n_sizes] = (grid_size){x, y, z, n_ranks / x / y / z};
                n_sizes++;
            }
    return n_sizes;
}

/* Streams of random numbers, one for each matrix; x and dy have one for each call. */
enum { STREAM_W = 1, STREAM_B, STREAM_OLD_Y, STREAM_OLD_DX, STREAM_X = 16, STREAM_DY = 512 };

/* The state of one run on this rank. */
typedef struct layer_run {
    qdr_grid *grid;
    qdr_context *ctx;
    const layer_case *the_case;
    reference reference;
    qdr_stack *stack;
    qdr_linear *layer;
    qdr_owned in, out; /* this rank's parts of the two edges */
    int in_is_scattered, out_is_scattered; /* not where a cell has too few rows */
    void *x, *y, *dy, *dx; /* of the context */
    void *here; /* of the host: a part, or a full parameter */
    double most_x, most_w, most_dy; /* the largest elements, with what messages have changed */
    double all_dw; /* the sum of the largest |dy·x| of each row so far */
    layer_errors *errors;
    layer_watch watch;
    void *user;
} layer_run;

static void fill_values(const layer_run *run, int stream, double *values, int64_t n_elems)
{
    const layer_case *the_case = run->the_case;
    for (int64_t i = 0; i < n_elems; i++)
        values[i] = draw_value(the_case->seed, stream, i, the_case->is_exact, the_case->dtype);
}

qdr_status layer_build(qdr_grid *grid, const qdr_stack_opts *opts, const qdr_edge_desc *input,
                       const qdr_linear_desc *desc, qdr_stack **stack, qdr_edge edges[2], qdr_linear **layer)
{
    TRY(qdr_stack_create(grid, opts, stack));
    qdr_status status = qdr_stack_add_input(*stack, "x", input, 1, &edges[0]);
    if (status == QDR_OK) status = qdr_stack_add_linear(*stack, desc, edges[0], &edges[1], layer);
    TRY(qdr_agree(qdr_grid_context(grid), status)); /* adding is local */
    return qdr_stack_build(*stack);
}

static const qdr_codecs *codecs_of(const layer_case *the_case)
{
    return the_case->dtype == QDR_F64 ? NULL : the_case->codecs;
}

static qdr_status build(layer_run *run)
{
    const layer_case *c = run->the_case;
    qdr_edge edges[2];
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = c->m,        .row_unit = c->row_unit,
                                 .dtype = c->dtype,        .overlap = c->overlap, .panels = c->panels ? c->panels : 1,
                                 .batch_parts = 1,         .codecs = codecs_of(c)};
    qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .col_axis = c->transposed ? QDR_Y : QDR_X, .layout = c->in_layout,
                           .scatter_unit = c->in_unit};
    qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),
                            .name = "layer",
                            .bias = c->bias,
                            .transposed = c->transposed,
                            .out_layout = c->out_layout,
                            .out_row_unit = c->out_unit,
                            .drop_gathered = c->drop_gathered,
                            .storage = c->storage};
    memcpy(input.cols, c->in, sizeof input.cols);
    memcpy(desc.in, c->in, sizeof desc.in);
    memcpy(desc.out, c->out, sizeof desc.out);
    return layer_build(run->grid, &opts, &input, &desc, &run->stack, edges, &run->layer);
}

static qdr_status find_part(layer_run *run, qdr_status (*matrix_of)(const qdr_linear *, qdr_matrix *), qdr_owned *owned,
                            int *is_scattered)
{
    qdr_matrix matrix = {QDR_INIT(qdr_matrix)};
    TRY(matrix_of(run->layer, &matrix));
    *is_scattered = matrix.scatter_rows;
    *owned = (qdr_owned){QDR_INIT(qdr_owned)};
    return qdr_matrix_owned(run->grid, &matrix, qdr_context_rank(run->ctx), owned);
}

static size_t part_bytes(const layer_run *run, const qdr_owned *part)
{
    return (size_t)(part->n_rows * part->n_cols) * qdr_dtype_bytes(run->the_case->dtype);
}

/* Draws a full parameter and loads it into the layer. */
static qdr_status load(layer_run *run, int index, int stream, double *values, int64_t n_elems)
{
    fill_values(run, stream, values, n_elems);
    for (int64_t i = 0; i < n_elems; i++) element_write(run->the_case->dtype, run->here, i, values[i]);
    return qdr_stack_load_parameter(run->stack, index, run->here);
}

static qdr_dtype gradient_dtype(const layer_run *run) { return run->the_case->dtype == QDR_F64 ? QDR_F64 : QDR_F32; }

/* All bits set is a NaN in each type. */
static qdr_status fill_nan(const layer_run *run, qdr_dtype dtype, void *there, int64_t n_elems)
{
    return memory_set(run->ctx, there, 0xff, (size_t)n_elems * qdr_dtype_bytes(dtype));
}

/* Copies the rows and columns of a part from a full matrix of n_cols columns. */
static qdr_status copy_part(const layer_run *run, const qdr_owned *part, int64_t n_cols, const double *full,
                            void *there)
{
    int64_t local = 0;
    for (int64_t row = part->rows.begin; row < part->rows.end; row++)
        for (int i = 0; i < part->n_ranges; i++)
            for (int64_t col = part->cols[i].begin; col < part->cols[i].end; col++)
                element_write(run->the_case->dtype, run->here, local++, full[row * n_cols + col]);
    return memory_copy(run->ctx, there, run->here, part_bytes(run, part));
}

static void note_error(layer_run *run, int result, double share, double computed)
{
    double *worst = &run->errors->share[result];
    if (share > *worst) *worst = share;
    uint64_t bits;
    memcpy(&bits, &computed, sizeof bits);
    run->errors->bits = (run->errors->bits ^ bits) * 0x100000001b3u; /* FNV-1a, one word at a time */
}

/* The old values, and what messages have changed, are terms, too. */
static double share_of(const reference_sums *sums, int64_t at, double computed, error_bound bound)
{
    const double change = sums->change[at];
    bound.least += change;
    return error_share(computed, sums->value[at], sums->magnitude[at] + change, bound);
}

static qdr_status check_part(layer_run *run, const qdr_owned *part, int64_t n_cols, const reference_sums *sums,
                             const void *there, error_bound bound, int result)
{
    int64_t local = 0;
    TRY(memory_copy(run->ctx, run->here, there, part_bytes(run, part)));
    for (int64_t row = part->rows.begin; row < part->rows.end; row++)
        for (int i = 0; i < part->n_ranges; i++)
            for (int64_t col = part->cols[i].begin; col < part->cols[i].end; col++) {
                const int64_t at = row * n_cols + col;
                const double computed = element_read(run->the_case->dtype, run->here, local++);
                note_error(run, result, share_of(sums, at, computed, bound), computed);
            }
    return QDR_OK;
}

/* Initial contents of y or dx before a call: numbers to add to, or NaN. */
static qdr_status start_output(layer_run *run, const qdr_owned *part, int64_t n_cols, int stream, reference_sums *sums,
                               void *there)
{
    const int64_t n_elems = run->reference.m * n_cols;
    memset(sums->value, 0, (size_t)n_elems * sizeof *sums->value);
    memset(sums->change, 0, (size_t)n_elems * sizeof *sums->change);
    if (run->the_case->accumulate) fill_values(run, stream, sums->value, n_elems);
    for (int64_t i = 0; i < n_elems; i++) sums->magnitude[i] = sums->value[i] < 0 ? -sums->value[i] : sums->value[i];
    if (run->the_case->accumulate) return copy_part(run, part, n_cols, sums->value, there);
    return fill_nan(run, run->the_case->dtype, there, part->n_rows * part->n_cols);
}

/* Returns 1 if some, but not all, members of the axis share a node. Then the members of a node are added first, and the
 * sum is rounded. */
static int adds_by_node(const qdr_grid *grid, qdr_axis axis)
{
    const qdr_context *ctx = qdr_grid_context(grid);
    const int size = qdr_grid_size(grid, axis);
    int n_same = 0;
    for (int i = 0; i < size * size; i++)
        n_same += qdr_context_node(ctx, qdr_grid_neighbour(grid, axis, i / size)) ==
                  qdr_context_node(ctx, qdr_grid_neighbour(grid, axis, i % size));
    return n_same > size && n_same < size * size;
}

/* ---- what messages of codecs may change ---- */

static qdr_axis in_axis(const layer_case *c) { return c->transposed ? QDR_Y : QDR_X; }

static qdr_axis out_axis(const layer_case *c) { return c->transposed ? QDR_X : QDR_Y; }

/* NULL: these messages are not coded. */
static const qdr_codec *codec_of(const layer_run *run, qdr_axis axis, qdr_traffic_class class)
{
    const qdr_codecs *codecs = codecs_of(run->the_case);
    return codecs && qdr_grid_size(run->grid, axis) > 1 ? &codecs->of[axis][class] : NULL;
}

static double largest(const double *values, int64_t n)
{
    double most = 0;
    for (int64_t i = 0; i < n; i++) most = fmax(most, fabs(values[i]));
    return most;
}

/* W is gathered over z; rows of x and dy, if they are scattered, over the axis that does not split their columns. */
static void find_changes(layer_run *run)
{
    const layer_case *c = run->the_case;
    reference *ref = &run->reference;
    const qdr_codec *w = codec_of(run, QDR_Z, QDR_TRAFFIC_WEIGHT);
    const qdr_codec *x = codec_of(run, out_axis(c), QDR_TRAFFIC_ACTIVATION);
    const qdr_codec *dy = codec_of(run, in_axis(c), QDR_TRAFFIC_ACTIVATION_GRADIENT);
    run->most_w = largest(ref->w, ref->n * ref->k);
    run->most_x = largest(ref->x, ref->m * ref->k);
    run->most_dy = largest(ref->dy, ref->m * ref->n);
    ref->w_change = gather_change(w, c->dtype, run->most_w);
    ref->x_change = gather_change(run->in_is_scattered ? x : NULL, c->dtype, run->most_x);
    ref->dy_change = gather_change(run->out_is_scattered ? dy : NULL, c->dtype, run->most_dy);
    run->most_w += ref->w_change;
    run->most_x += ref->x_change;
    run->most_dy += ref->dy_change;
    run->all_dw += (double)ref->m * run->most_x * run->most_dy;
}

/* The largest sums of absolute terms. */
typedef struct sums_peak {
    double magnitude, change; /* with changes; of these alone */
} sums_peak;

static sums_peak peak_of(const reference_sums *sums, int64_t n)
{
    sums_peak peak = {0};
    for (int64_t i = 0; i < n; i++) {
        peak.magnitude = fmax(peak.magnitude, sums->magnitude[i] + sums->change[i]);
        peak.change = fmax(peak.change, sums->change[i]);
    }
    return peak;
}

/* A bound with what the messages of sums change, which later roundings change in turn. */
static error_bound with_change(const layer_run *run, error_bound bound, double change, sums_peak peak)
{
    if (run->the_case->is_exact && change == 0 && peak.change == 0) return (error_bound){0};
    bound.least += (1 + bound.factor) * change;
    return bound;
}

/* The bound for y (is_forward) or dx. Roundings to bf16 or f16: each member's partial sum if there are several, the sum
 * of each node if it is added first, the final sum, twice if it is decoded, and one each for the bias and the old
 * value. */
static error_bound activation_bound(const layer_run *run, int is_forward)
{
    const layer_case *c = run->the_case;
    const reference *ref = &run->reference;
    const qdr_axis axis = is_forward ? in_axis(c) : out_axis(c);
    const int n_members = qdr_grid_size(run->grid, axis);
    const int64_t length = is_forward ? ref->k : ref->n;
    coded_sum sum = {
        .codec = codec_of(run, axis, is_forward ? QDR_TRAFFIC_ACTIVATION : QDR_TRAFFIC_ACTIVATION_GRADIENT),
        .dtype = c->dtype,
        .n_members = n_members,
        .is_all = !(is_forward ? run->out_is_scattered : run->in_is_scattered)};
    const int n_sums = (n_members > 1) + adds_by_node(run->grid, axis) + 1 + codec_is_lossy(sum.codec, c->dtype);
    const int n_more = (is_forward && c->bias) + c->accumulate;
    const error_bound bound = error_bound_of((error_shape){c->dtype, length + n_more, n_members, n_sums + n_more});
    const sums_peak peak = is_forward ? peak_of(&ref->y, ref->m * ref->n) : peak_of(&ref->dx, ref->m * ref->k);
    const double terms = (double)length * (is_forward ? run->most_x : run->most_dy) * run->most_w;
    const double change = sum_change(&sum, (1 + bound.factor) * fmin(n_members * peak.magnitude, terms),
                                     (1 + bound.factor) * peak.magnitude);
    return with_change(run, bound, change, peak);
}

/* What messages may change in dW: its sums over z, over those of d that store other parts of it, over those that have
 * the state of other parts, and over copies. What earlier sums have changed is in the messages of later ones: in the
 * new value, in the old one and, with feedback, in what is sent later. */
static double gradient_change(const layer_run *run, error_bound bound, sums_peak peak)
{
    const layer_case *c = run->the_case;
    const int z = qdr_grid_size(run->grid, QDR_Z), all = z * qdr_grid_size(run->grid, QDR_D);
    const int parts = qdr_grid_parts(run->grid, QDR_LEVEL_GRADIENTS);
    const int state = qdr_grid_parts(run->grid, QDR_LEVEL_OPTIMIZER);
    const int n_members[] = {z, parts / z, state / parts, all / state};
    enum { N_SUMS = sizeof n_members / sizeof *n_members };
    coded_sum sums[N_SUMS];
    double change = 0;
    for (int i = 0; i < N_SUMS; i++)
        sums[i] = (coded_sum){.codec = codec_of(run, i ? QDR_D : QDR_Z, QDR_TRAFFIC_GRADIENT),
                              .dtype = gradient_dtype(run),
                              .n_members = n_members[i],
                              .is_all = i == N_SUMS - 1,
                              .n_elems = run->reference.n * run->reference.k};
    for (int call = c->defer ? c->n_calls - 1 : 0; call < c->n_calls; call++)
        for (int i = 0, n_versions = all; i < N_SUMS; n_versions /= n_members[i++]) {
            const double versions = (1 + bound.factor) * fmin(n_versions * peak.magnitude, run->all_dw);
            change += sum_change(&sums[i], versions + 3 * change, (1 + bound.factor) * peak.magnitude + change);
        }
    return change;
}

/* Waits for a pass and reports it to `watch`. */
static qdr_status finish(layer_run *run, layer_stage stage)
{
    TRY(qdr_stream_synchronize(qdr_context_stream(run->ctx)));
    if (run->watch) run->watch(stage, run->grid, run->stack, run->user);
    return QDR_OK;
}

/* One forward and backward pass, and the same on one thread. */
static qdr_status pass(layer_run *run, int call)
{
    const layer_case *c = run->the_case;
    const int forward = c->accumulate ? QDR_Y_ACCUMULATE : 0;
    const int backward = (c->accumulate ? QDR_DX_ACCUMULATE : 0) | (call ? QDR_ACCUMULATE : 0) |
                         (c->defer && call + 1 < c->n_calls ? QDR_DEFER_SYNC : 0);
    reference *ref = &run->reference;
    fill_values(run, STREAM_X + call, ref->x, ref->m * ref->k);
    fill_values(run, STREAM_DY + call, ref->dy, ref->m * ref->n);
    find_changes(run);
    TRY(copy_part(run, &run->in, ref->k, ref->x, run->x));
    TRY(copy_part(run, &run->out, ref->n, ref->dy, run->dy));
    TRY(start_output(run, &run->out, ref->n, STREAM_OLD_Y, &ref->y, run->y));
    TRY(start_output(run, &run->in, ref->k, STREAM_OLD_DX, &ref->dx, run->dx));
    TRY(qdr_linear_forward(run->layer, run->x, run->y, forward, NULL));
    TRY(finish(run, STAGE_FORWARD));
    TRY(qdr_linear_backward(run->layer, run->dy, run->x, run->dx, backward, NULL));
    if (!c->only_run) reference_run(ref);
    TRY(finish(run, STAGE_BACKWARD));
    if (c->only_run) return QDR_OK;
    TRY(check_part(run, &run->out, ref->n, &ref->y, run->y, activation_bound(run, 1), RESULT_Y));
    return check_part(run, &run->in, ref->k, &ref->dx, run->dx, activation_bound(run, 0), RESULT_DX);
}

/* Gathers a gradient and compares it, on rank 0. */
static qdr_status check_gradient(layer_run *run, int index, const reference_sums *sums, int64_t n_elems, int result)
{
    const int is_root = qdr_context_rank(run->ctx) == 0;
    TRY(qdr_stack_gather_parameter(run->stack, index, 1, is_root ? run->here : NULL));
    if (!is_root) return QDR_OK;
    /* Sums over all rows of all calls, in fp32 or wider. */
    const layer_case *c = run->the_case;
    const error_shape shape = {c->dtype, (c->m + 1) * c->n_calls, qdr_context_size(run->ctx), 0};
    const sums_peak peak = peak_of(sums, n_elems);
    error_bound bound = error_bound_of(shape);
    bound = with_change(run, bound, result == RESULT_DW ? gradient_change(run, bound, peak) : 0, peak);
    for (int64_t i = 0; i < n_elems; i++) {
        const double computed = element_read(gradient_dtype(run), run->here, i);
        note_error(run, result, share_of(sums, i, computed, bound), computed);
    }
    return QDR_OK;
}

static qdr_status run_calls(layer_run *run)
{
    const reference *ref = &run->reference;
    const int weight = qdr_linear_weight_index(run->layer);
    for (int i = 0; i < qdr_stack_n_parameters(run->stack); i++) {
        qdr_parameter parameter = {QDR_INIT(qdr_parameter)};
        TRY(qdr_stack_parameter(run->stack, i, &parameter));
        TRY(fill_nan(run, gradient_dtype(run), parameter.gradient, parameter.n_gradient));
    }
    for (int call = 0; call < run->the_case->n_calls; call++) TRY(pass(run, call));
    if (run->the_case->only_run) return QDR_OK;
    TRY(check_gradient(run, weight, &ref->dw, ref->n * ref->k, RESULT_DW));
    if (run->the_case->bias) TRY(check_gradient(run, weight + 1, &ref->db, ref->n, RESULT_DB));
    return QDR_OK;
}

/* Allocates what this rank needs, and agrees that all ranks could. */
static int prepare(layer_run *run, failure *why)
{
    const layer_case *c = run->the_case;
    reference *ref = &run->reference;
    const int64_t k = layer_case_k(c), n = layer_case_n(c), edge = c->m * (k > n ? k : n);
    /* No part is larger, no type wider.
     * NOLINTNEXTLINE(clang-analyzer-optin.portability.UnixAPI): extents are at least 1 */
    run->here = malloc((size_t)(edge > n * k ? edge : n * k) * sizeof(double));
    if (reference_create(c->m, k, n, ref) != 0 || !run->here)
        fail_memory(why, "out of memory for the reference of a layer of %lld rows", (long long)c->m);
    if (fail_together(why, run->ctx)) return why->code;
    if (fail_status(why, build(run))) return why->code;
    qdr_status status = find_part(run, qdr_linear_in_matrix, &run->in, &run->in_is_scattered);
    if (status == QDR_OK) status = find_part(run, qdr_linear_out_matrix, &run->out, &run->out_is_scattered);
    const size_t in = part_bytes(run, &run->in), out = part_bytes(run, &run->out);
    if (status == QDR_OK) status = qdr_mem_alloc(run->ctx, in, &run->x);
    if (status == QDR_OK) status = qdr_mem_alloc(run->ctx, in, &run->dx);
    if (status == QDR_OK) status = qdr_mem_alloc(run->ctx, out, &run->y);
    if (status == QDR_OK) status = qdr_mem_alloc(run->ctx, out, &run->dy);
    const int weight = qdr_linear_weight_index(run->layer);
    if (status == QDR_OK) status = load(run, weight, STREAM_W, ref->w, ref->n * ref->k);
    if (status == QDR_OK && c->bias) status = load(run, weight + 1, STREAM_B, ref->b, ref->n);
    fail_status(why, status);
    return fail_together(why, run->ctx);
}

int layer_case_run(qdr_grid *grid, const layer_case *the_case, layer_watch watch, void *user, layer_errors *errors,
                   failure *why)
{
    layer_run run = {.grid = grid,
                     .ctx = qdr_grid_context(grid),
                     .the_case = the_case,
                     .errors = errors,
                     .watch = watch,
                     .user = user};
    *errors = (layer_errors){.bits = 0xcbf29ce484222325u};
    if (prepare(&run, why) == EXIT_OK) {
        if (watch) watch(STAGE_BUILT, grid, run.stack, user);
        fail_status(why, run_calls(&run));
        fail_together(why, run.ctx);
    }
    qdr_stack_destroy(&run.stack);
    void **const memory[] = {&run.x, &run.y, &run.dy, &run.dx};
    for (size_t i = 0; i < sizeof memory / sizeof *memory; i++) qdr_mem_free(run.ctx, memory[i]);
    free(run.here);
    reference_destroy(&run.reference);
    return why->code;
}
