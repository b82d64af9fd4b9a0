/* SPDX-License-Identifier: Apache-2.0 */
/* Memory, term by term: in closed form what lib/schedule/net.h computes for the same network, except for the workspace
 * of the lists, which is only bounded from below; model.c replaces it by that of the lists themselves. */
#include "price/model.h"

#include <math.h>
#include <string.h>

#include "core/codec.h"
#include "core/dtype.h"
#include "core/group.h"
#include "schedule/buffer.h"

/* Of a buffer. */
static double stored(double n_elems, double elem_bytes)
{
    return ceil(n_elems * elem_bytes / QDRI_BUFFER_ALIGN) * QDRI_BUFFER_ALIGN;
}

/* This library repeats whole layers, of which only the inputs last. */
static int keeps_inputs(const qdri_pricing *p)
{
    return p->plan->recompute == QDR_RECOMPUTE_FULL && qdri_lists_have_workspace(p);
}

/* Norms and activations are made again. */
static int repeats(const qdri_pricing *p) { return p->plan->recompute == QDR_RECOMPUTE_OPERATIONS; }

/* Values of the stream that only last while a forward pass runs: what both halves of a layer add to it, and between
 * parallel halves their first sum; what products gather, who keep the gathered rows; what is made again. */
static int passing_streams(const qdri_pricing *p, const qdr_network *network)
{
    const int is_gathered = p->plan->layout == QDR_SCATTERED && p->plan->y > 1 && !p->gathers_again;
    const int is_after = network->norm_place == QDR_NORM_AFTER; /* products read the stream itself */
    const int n_norms = network->norm_place == QDR_NORM_BEFORE ? qdri_network_norms(network) : 2;
    const int n_inputs = is_after ? is_gathered * (2 - network->parallel_residual)
                                  : (is_gathered || repeats(p)) * n_norms;
    if (!qdri_lists_have_workspace(p)) return 0;
    return 2 + network->parallel_residual + n_inputs;
}

/* Bytes of one layer's edges and of the gathered inputs that products keep. */
static double layer_edges(const qdri_pricing *p, const qdr_network *network)
{
    const double *of = p->sizes.of;
    const qdr_plan *plan = p->plan;
    const int scattered = plan->layout == QDR_SCATTERED;
    const double stream = of[QDRI_SIZE_ROWS_Y], heads = of[QDRI_SIZE_SEQUENCES_X], wide = of[QDRI_SIZE_ROWS_X];
    const double rows = of[QDRI_SIZE_ROWS], hidden = of[QDRI_SIZE_HIDDEN];
    const int n_qkv = network->head_norm == QDR_HEAD_NORM_ALL && !repeats(p) ? 2 : 1;
    const double each = p->sizes.elem_bytes;
    const int passes_ffn = qdri_lists_have_workspace(p) &&
                           (repeats(p) || (scattered && plan->x > 1 && !p->gathers_again));
    double bytes = (4 + qdri_network_norms(network) - passing_streams(p, network)) * stored(stream * hidden, each) +
                   n_qkv * stored(heads * of[QDRI_SIZE_QKV], each) + stored(heads * of[QDRI_SIZE_QUERIES], each) +
                   stored(wide * of[QDRI_SIZE_UP], each) +
                   (1 - passes_ffn + p->machine->software.saved_ffn) * stored(wide * of[QDRI_SIZE_FFN], each);
    if (scattered && plan->y > 1 && !p->gathers_again) bytes += 2 * stored(rows * hidden, each);
    if (scattered && plan->x > 1 && !p->gathers_again)
        bytes += (heads < rows ? stored(rows * of[QDRI_SIZE_QUERIES], each) : 0) +
                 stored(rows * of[QDRI_SIZE_FFN], each);
    return bytes;
}

/* Bytes that operations keep per layer: two numbers per row and layer norm, one per row and RMS norm, and one per row
 * and head; scores if attention is not fused: softmax, mask and the masked result (Korthikanti et al. 2022). */
static double layer_saved(const qdri_pricing *p, const qdr_network *network, int with_scores)
{
    const double *of = p->sizes.of;
    const double stream = of[QDRI_SIZE_ROWS_Y], heads = of[QDRI_SIZE_SEQUENCES_X] * p->sizes.heads;
    const double number = fmax(4, p->sizes.elem_bytes);
    const int unfused = p->machine->software.score_bytes > 0;
    const double scores = unfused && with_scores ? heads * p->sizes.context * (2 * p->sizes.elem_bytes + 1) : 0;
    const double of_heads = network->head_norm == QDR_HEAD_NORM_ALL ? 2 * of[QDRI_SIZE_SEQUENCES_X] : 0;
    return qdri_network_norms(network) * stored((network->norm == QDR_NORM_RMS ? 1 : 2) * stream, number) +
           stored(of_heads, number) + (keeps_inputs(p) ? 0 : stored(p->sizes.attention_saved, 1)) + scores;
}

/* Bytes of the edges of embedding and head. */
static double end_edges(const qdri_pricing *p, int is_first, int is_last)
{
    const double *of = p->sizes.of;
    const int scattered = p->plan->layout == QDR_SCATTERED;
    const double stream = of[QDRI_SIZE_ROWS_Y], wide = of[QDRI_SIZE_ROWS_X];
    const double gathered = scattered && p->plan->y > 1 ? of[QDRI_SIZE_ROWS] : 0, each = p->sizes.elem_bytes;
    const int by_bytes = p->machine->software.logit_memory_bytes > 0;
    const int passes_last = qdri_lists_have_workspace(p) && (gathered > 0 || repeats(p)); /* the last norm */
    return (is_first + (passes_last ? 0 : is_last)) * stored(stream * of[QDRI_SIZE_HIDDEN], each) +
           is_last * (stored(gathered * of[QDRI_SIZE_HIDDEN], each) +
                      (by_bytes ? 0 : stored(wide * of[QDRI_SIZE_VOCAB], each)));
}

/* Tokens and targets, what last norm and loss keep, and the work that operations share, which run one at a time. Norms
 * of the stream keep moments of all ranks of x, those of queries and keys one of each; the loss works with a number for
 * each row, and as many as it keeps. */
static double other_bytes(const qdri_pricing *p, const qdr_network *network, int is_first, int is_last)
{
    const double *of = p->sizes.of, stream = of[QDRI_SIZE_ROWS_Y], wide = of[QDRI_SIZE_ROWS_X];
    const double number = fmax(4, p->sizes.elem_bytes), loss = 2 * wide * number;
    const int is_rms = network->norm == QDR_NORM_RMS;
    const double of_norms = stream * (is_rms ? 1 : 3 * p->plan->x),
                 of_heads = network->head_norm == QDR_HEAD_NORM_ALL ? 2 * of[QDRI_SIZE_SEQUENCES_X] : 0;
    const double in_layer = fmax(fmax(of_norms, of_heads) * number, p->sizes.attention_work);
    const double tokens = is_first * stored(of[QDRI_SIZE_ROWS], sizeof(int32_t)) +
                          is_last * stored(wide, sizeof(int32_t));
    const double sums = fmax(2, p->plan->batch_parts) * 4 * sizeof(double);
    return tokens + is_last * (stored(stream * (is_rms ? 1 : 2), number) + stored(loss, 1) + stored(sums, 1)) +
           stored(fmax(in_layer, is_last * (stored(wide, number) + loss)), 1);
}

/* For one micro-batch: the edges of all layers, or those that recomputation keeps plus one whole layer. */
static double activation_bytes(const qdri_pricing *p, const qdr_network *network, double n_layers, double n_in_flight)
{
    const double edges = layer_edges(p, network), stream = p->sizes.of[QDRI_SIZE_ROWS_Y];
    const double input = stored(stream * p->sizes.of[QDRI_SIZE_HIDDEN], p->sizes.elem_bytes);
    switch (p->plan->recompute) {
    case QDR_RECOMPUTE_FULL:
    case QDR_RECOMPUTE_LAYERS:
        if (keeps_inputs(p))
            return n_layers * (input + layer_saved(p, network, 0)) + layer_saved(p, network, 1) -
                   layer_saved(p, network, 0);
        return n_in_flight * n_layers * input + edges + layer_saved(p, network, 1);
    case QDR_RECOMPUTE_ATTENTION:
        return n_in_flight * n_layers * (edges + layer_saved(p, network, 0)) +
               (layer_saved(p, network, 1) - layer_saved(p, network, 0));
    case QDR_RECOMPUTE_OPERATIONS:
    case QDR_RECOMPUTE_NONE: break;
    }
    return n_in_flight * n_layers * (edges + layer_saved(p, network, 1));
}

static double largest_shard(const qdri_pricing *p)
{
    const double *of = p->sizes.of;
    const double in_layer = fmax(fmax(of[QDRI_SIZE_SHARD_QKV], of[QDRI_SIZE_SHARD_PROJ]),
                                 fmax(of[QDRI_SIZE_SHARD_UP], of[QDRI_SIZE_SHARD_DOWN]));
    return fmax(in_layer, of[QDRI_SIZE_SHARD_VOCAB]);
}

double qdri_added_bytes(const qdri_pricing *p)
{
    const qdri_position grid = qdri_plan_position(p->plan);
    return grid.size[QDR_Z] > 1 && grid.near == 1 ? stored(largest_shard(p), p->sizes.gradient_bytes) : 0;
}

int qdri_lists_have_workspace(const qdri_pricing *p)
{
    const qdr_machine_software *software = &p->machine->software;
    return !(software->logit_memory_bytes > 0) && !(software->live_hidden > 0) && p->plan->pipeline <= 1;
}

/* Of other software: gradients of activations that are alive at the same time, and logits with their gradient. */
static double workspace_bytes(const qdri_pricing *p, int is_last)
{
    const double *of = p->sizes.of, each = p->sizes.elem_bytes, rows = of[QDRI_SIZE_ROWS];
    const double per_logit = p->machine->software.logit_memory_bytes;
    const double live = p->plan->y > 1 ? p->machine->software.live_hidden : 0;
    const double layer = rows * (2 * of[QDRI_SIZE_HIDDEN] + of[QDRI_SIZE_UP] + of[QDRI_SIZE_FFN]);
    const double logits = rows * of[QDRI_SIZE_VOCAB];
    const double head = per_logit > 0 ? logits * per_logit : (logits + 2 * rows * of[QDRI_SIZE_HIDDEN]) * each;
    return fmax(layer * each, is_last * head) + live * rows * of[QDRI_SIZE_HIDDEN] * each;
}

/* Elements of gradients of edges that some task of a layer's backward pass finds alive: that of the residual stream,
 * and what the task reads and writes, gathered and summed where edges are scattered. */
static double layer_elems(const qdri_pricing *p, const qdr_network *network)
{
    const double *of = p->sizes.of, rows = of[QDRI_SIZE_ROWS], hidden = of[QDRI_SIZE_HIDDEN];
    const double over_x = p->plan->layout == QDR_SCATTERED && p->plan->x > 1 ? rows : 0;
    const double over_y = p->plan->layout == QDR_SCATTERED && p->plan->y > 1 ? rows : 0;
    const double stream = of[QDRI_SIZE_ROWS_Y] * hidden, wide = of[QDRI_SIZE_ROWS_X], ffn = of[QDRI_SIZE_FFN];
    const double up = of[QDRI_SIZE_UP], qkv = of[QDRI_SIZE_QKV], heads = of[QDRI_SIZE_SEQUENCES_X];
    double most = (wide + over_x) * ffn + over_y * hidden; /* the second product of the MLP */
    most = fmax(most, (wide + over_x) * up + over_y * hidden + stream); /* the first one */
    if (network->gated) most = fmax(most, wide * (up + ffn));
    most = fmax(most, (heads + (heads < rows ? over_x : 0)) * qkv + over_y * hidden + stream);
    if (network->kv_heads % p->plan->y == 0) /* attention; where key heads are gathered, in several tasks */
        most = fmax(most, heads * (qkv + of[QDRI_SIZE_QUERIES]));
    if (network->head_norm == QDR_HEAD_NORM_ALL) most = fmax(most, heads * 2 * qkv);
    return most + stream;
}

/* The same for the head. */
static double head_elems(const qdri_pricing *p)
{
    const double *of = p->sizes.of, rows = of[QDRI_SIZE_ROWS], hidden = of[QDRI_SIZE_HIDDEN];
    const int scattered = p->plan->layout == QDR_SCATTERED;
    return (of[QDRI_SIZE_ROWS_X] + (scattered && p->plan->x > 1 ? rows : 0)) * of[QDRI_SIZE_VOCAB] +
           (of[QDRI_SIZE_ROWS_Y] + (scattered && p->plan->y > 1 ? rows : 0)) * hidden;
}

/* A lower bound of the lists' workspace. Whole weights take turns in two places, and so do whole gradients: head, qkv
 * and the MLP's first product in one of them, the others in the second, whose gradients are there from the last layer
 * on. */
static void bound_workspace(const qdri_pricing *p, const qdr_network *network, double *gathered, double *rest)
{
    const double *of = p->sizes.of, each = p->sizes.elem_bytes, z = p->plan->z;
    const qdri_position grid = qdri_plan_position(p->plan);
    const double vocab = of[QDRI_SIZE_SHARD_VOCAB];
    const double odd = fmax(vocab, fmax(of[QDRI_SIZE_SHARD_UP], of[QDRI_SIZE_SHARD_QKV]));
    const double even = fmax(of[QDRI_SIZE_SHARD_DOWN], of[QDRI_SIZE_SHARD_PROJ]);
    const double of_gradients = z * grid.near > 1 ? z * p->sizes.gradient_bytes : 0;
    const double weights = z > 1 ? z * (odd + even) * each : 0;
    const double at_head = weights + of_gradients * odd;
    *gathered = at_head + of_gradients * fmax(vocab, even) + (z > 1 ? largest_shard(p) * p->sizes.gradient_bytes : 0);
    const double stream = of[QDRI_SIZE_ROWS_Y] * of[QDRI_SIZE_HIDDEN] * each;
    *rest = fmax(layer_elems(p, network) * each, head_elems(p) * each + at_head - *gathered);
    /* When the backward of a layer begins, all of it is there that lasts otherwise, but what the next one reads. */
    if (keeps_inputs(p)) *rest = fmax(*rest, layer_edges(p, network) + stored(p->sizes.attention_saved, 1) - stream);
}

double qdri_state_bytes(qdr_dtype dtype) { return dtype == QDR_F64 ? 16 : qdri_is_narrow(dtype) ? 12 : 8; }

/* One stage: its number of layers, and which ends it has. */
typedef struct stage {
    double n_layers, n_in_flight;
    int is_first, is_last;
} stage;

/* What a rank keeps of parameters, in bytes: each in a buffer of its own. */
typedef struct kept {
    double parameters, gradients, feedback, state;
    double n_small; /* elements of small parameters, whose gradients are in one buffer */
    double
        n_saved; /* elements that it writes to a checkpoint: of matrices its share, small parameters if it is first */
} kept;

static double state_arrays(const qdri_pricing *p, double n_elems)
{
    return qdri_state_bytes(p->plan->dtype) / p->sizes.gradient_bytes * stored(n_elems, p->sizes.gradient_bytes);
}

/* What codecs of the sums of a matrix's gradient keep. */
static double feedback_bytes(const qdri_pricing *p, double n_shard)
{
    const qdri_position grid = qdri_plan_position(p->plan);
    const int has_levels = qdri_has_levels(&grid);
    double bytes = 0;
    for (int sum = 0; sum < QDRI_N_GRADIENT_SUMS; sum++) {
        if (has_levels && sum == (int)QDRI_SUM_D) continue;
        const qdr_channel channel = qdri_gradient_sum_channel((qdri_gradient_sum)sum);
        const int64_t n = qdri_gradient_sum_elems(&grid, (qdri_gradient_sum)sum, (int64_t)n_shard);
        const qdr_dtype dtype = p->plan->dtype == QDR_F64 ? QDR_F64 : QDR_F32;
        const qdr_codec *codec = qdri_coding_find(&p->coding, channel, QDR_TRAFFIC_GRADIENT, dtype, n);
        if (!codec || !(codec->flags & QDR_CODEC_FEEDBACK)) continue;
        bytes += stored(ceil((double)n / p->coding.groups[channel].per_node), sizeof(float));
    }
    return bytes;
}

/* Matrices of H/x by n_cols, and shards of them. The state has no padding. */
static void add_matrices(const qdri_pricing *p, double times, double n_cols, double n_shard, kept *sum)
{
    const qdri_position grid = qdri_plan_position(p->plan);
    const double n_state = fmin(n_shard / (grid.near * grid.far), p->sizes.of[QDRI_SIZE_HIDDEN] * n_cols);
    sum->parameters += times * stored(n_shard, p->sizes.elem_bytes);
    sum->gradients += times * stored(n_shard / grid.near, p->sizes.gradient_bytes);
    sum->feedback += times * feedback_bytes(p, n_shard);
    sum->state += times * state_arrays(p, n_state);
    sum->n_saved += times * ceil(n_state * grid.near * grid.far / p->plan->d);
}

static void add_small(const qdri_pricing *p, double times, double n_elems, kept *sum)
{
    sum->parameters += times * stored(n_elems, p->sizes.elem_bytes);
    sum->state += times * state_arrays(p, n_elems);
    sum->n_small += times * n_elems;
    sum->n_saved += times * n_elems;
}

/* The numbers of a step precede the state. */
static kept kept_bytes(const qdri_pricing *p, const qdr_network *network, const stage *at)
{
    const double *of = p->sizes.of, hidden = of[QDRI_SIZE_HIDDEN], n = at->n_layers;
    const int n_tables = at->is_first + (at->is_last && !(network->tied && at->is_first));
    const int of_norm = network->norm == QDR_NORM_LAYER && !network->norm_no_beta ? 2 : 1;
    kept sum = {.state = QDRI_STEP_BYTES};
    add_matrices(p, n, of[QDRI_SIZE_QKV], of[QDRI_SIZE_SHARD_QKV], &sum);
    add_matrices(p, n, of[QDRI_SIZE_QUERIES], of[QDRI_SIZE_SHARD_PROJ], &sum);
    add_matrices(p, n, of[QDRI_SIZE_UP], of[QDRI_SIZE_SHARD_UP], &sum);
    add_matrices(p, n, of[QDRI_SIZE_FFN], of[QDRI_SIZE_SHARD_DOWN], &sum);
    add_matrices(p, n_tables, of[QDRI_SIZE_VOCAB], of[QDRI_SIZE_SHARD_VOCAB], &sum);
    add_small(p, (n * qdri_network_norms(network) + 1) * of_norm, hidden, &sum);
    if (network->head_norm == QDR_HEAD_NORM_EACH) add_small(p, n * 2, (double)network->head_size, &sum);
    if (network->head_norm == QDR_HEAD_NORM_ALL) add_small(p, n, (of[QDRI_SIZE_QKV] + of[QDRI_SIZE_QUERIES]) / 2, &sum);
    add_small(p, n * ((network->out_bias != 0) + (network->mlp_bias != 0)), hidden, &sum);
    add_small(p, n * (network->qkv_bias != 0), of[QDRI_SIZE_QKV], &sum);
    add_small(p, n * (network->mlp_bias != 0), of[QDRI_SIZE_UP], &sum);
    add_small(p, network->positions != 0, p->sizes.context * hidden, &sum);
    sum.gradients += stored(sum.n_small, p->sizes.gradient_bytes);
    return sum;
}

/* The scores' gradients of a layer, in pieces of 2.25 GiB at most. */
static double score_bytes(const qdri_pricing *p)
{
    const double rows_of_heads = p->sizes.of[QDRI_SIZE_SEQUENCES_X] * p->sizes.heads;
    const double bytes = p->machine->software.attention_score_bytes * rows_of_heads * p->sizes.context;
    return p->sizes.elem_bytes == 2 ? fmin(bytes, 9.0 * (1 << 28)) : 0;
}

static void stage_memory(const qdri_pricing *p, const qdr_network *network, const stage *at,
                         double m[QDR_N_MEMORY_TERMS])
{
    const qdr_plan *plan = p->plan;
    const qdr_machine_software *software = &p->machine->software;
    const qdri_position grid = qdri_plan_position(plan);
    const kept bytes = kept_bytes(p, network, at);
    m[QDR_MEMORY_PARAMETERS] = bytes.parameters;
    m[QDR_MEMORY_FEEDBACK] = bytes.feedback;
    m[QDR_MEMORY_GRADIENTS] = bytes.gradients +
                              bytes.parameters / p->sizes.elem_bytes * (plan->d > 1 ? software->send_bytes : 0);
    m[QDR_MEMORY_OPTIMIZER] = bytes.state;
    m[QDR_MEMORY_ACTIVATIONS] = activation_bytes(p, network, at->n_layers, at->n_in_flight) +
                                end_edges(p, at->is_first, at->is_last) + p->sizes.rotation_bytes;
    if (qdri_lists_have_workspace(p)) {
        m[QDR_MEMORY_ACTIVATIONS] += other_bytes(p, network, at->is_first, at->is_last);
        bound_workspace(p, network, &m[QDR_MEMORY_GATHERED], &m[QDR_MEMORY_WORKSPACE]);
    } else { /* two weights and gradients of the largest product, as a whole */
        const double shard = largest_shard(p), whole = shard * plan->z;
        m[QDR_MEMORY_GATHERED] = (plan->z > 1 ? 2 * whole * p->sizes.elem_bytes : 0) +
                                 (plan->z * grid.near > 1 ? 2 * whole * p->sizes.gradient_bytes : 0) +
                                 (plan->z > 1 && grid.near > 1 ? shard * p->sizes.gradient_bytes : 0);
        m[QDR_MEMORY_WORKSPACE] = workspace_bytes(p, at->is_last);
    }
    m[QDR_MEMORY_RESERVE] = software->fixed_bytes + software->fragment_share * m[QDR_MEMORY_ACTIVATIONS] +
                            score_bytes(p);
    m[QDR_MEMORY_DEVICE] = p->machine->is_gpu ? 0 : p->sizes.device_bytes;
    for (int t = 0; t < QDR_N_MEMORY_TERMS; t++) m[t] = ceil(m[t]); /* bytes are whole: a limit of their sum suffices */
}

/* A later stage keeps fewer micro-batches until their backward pass; the last stage keeps one. */
void qdri_memory(const qdri_pricing *p, const qdr_network *network, const qdri_stages *stages, double n_micro,
                 qdr_plan_result *result)
{
    const int n = stages->n;
    const stage ends[2] = {{stages->first, fmin(n_micro, n), 1, n == 1}, {stages->last, 1, n == 1, 1}};
    result->memory_bytes = 0;
    for (int i = 0; i < (n > 1 ? 2 : 1); i++) {
        double m[QDR_N_MEMORY_TERMS], sum = 0;
        stage_memory(p, network, &ends[i], m);
        for (int t = 0; t < QDR_N_MEMORY_TERMS; t++) sum += m[t];
        if (sum <= result->memory_bytes) continue;
        result->memory_bytes = sum;
        memcpy(result->memory, m, sizeof m);
    }
}

double qdri_saved_elems(const qdri_pricing *p, const qdr_network *network, const qdri_stages *stages)
{
    const int n = stages->n;
    const stage ends[2] = {{stages->first, 1, 1, n == 1}, {stages->last, 1, n == 1, 1}};
    return fmax(kept_bytes(p, network, &ends[0]).n_saved, kept_bytes(p, network, &ends[n > 1]).n_saved);
}
