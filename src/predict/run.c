/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a table of runs: its network and plan, what was measured, and what the model says. */
#include <math.h>
#include <stdio.h>

#include "common/levels.h"
#include "predict/predict.h"

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { SOURCE, MACHINE, MODEL, STEP_SECS, MEMORY_GIB, SKIP, PREDICTED_SECS, PREDICTED_MEMORY_GIB, WHY_SKIPPED };
enum { GPUS = WHY_SKIPPED + 1, TP, PP, DP, CP, EP, ZERO, SHARDS, INTERLEAVE, LAYOUT, OVERLAP, RECOMPUTE, DTYPE };
enum { BATCH = DTYPE + 1, MICRO_BATCH, SEQUENCE, LAYERS, HIDDEN, HEADS, VOCAB };
enum { KV_HEADS = VOCAB + 1, HEAD_SIZE, FFN, GATED, TIED, LEARNED_POSITIONS, BIASES, NORM, SOFTWARE, LEVELS };
enum { DATE = LEVELS + 1, URL, NOTE, EXPECTED_SECS, STATE, N_COLUMNS };

/* Ranges are those of the model; larger numbers are mistakes. */
static const column_spec columns[N_COLUMNS + 1] = {
    [SOURCE] = {.name = "source"},
    [MACHINE] = {.name = "machine"},
    [SOFTWARE] = {.name = "software"},
    [MODEL] = {.name = "model"},
    [GPUS] = {.name = "gpus", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [TP] = {.name = "tp", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [PP] = {.name = "pp", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [DP] = {.name = "dp", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [CP] = {.name = "cp", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [EP] = {.name = "ep", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [DTYPE] = {.name = "dtype", .kind = CELL_WORD, .words = WORDS("bf16", "f16", "f32", "f64", "fp8")},
    [LAYERS] = {.name = "layers", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [HIDDEN] = {.name = "hidden", .kind = CELL_WHOLE, .least = 1, .most = 1e9},
    [HEADS] = {.name = "heads", .kind = CELL_WHOLE, .least = 1, .most = 1e9},
    [KV_HEADS] = {.name = "kv_heads", .kind = CELL_WHOLE, .least = 1, .most = 1e9},
    [HEAD_SIZE] = {.name = "head_size", .kind = CELL_WHOLE, .least = 1, .most = 1e9},
    [FFN] = {.name = "ffn", .kind = CELL_WHOLE, .least = 1, .most = 1e9},
    [VOCAB] = {.name = "vocab", .kind = CELL_WHOLE, .least = 1, .most = 1e9},
    [GATED] = {.name = "gated", .kind = CELL_WHOLE, .least = 0, .most = 1},
    [TIED] = {.name = "tied", .kind = CELL_WHOLE, .least = 0, .most = 1},
    [LEARNED_POSITIONS] = {.name = "learned_positions", .kind = CELL_WHOLE, .least = 0, .most = 1},
    [BIASES] = {.name = "biases", .kind = CELL_WHOLE, .least = 0, .most = 1},
    [NORM] = {.name = "norm", .kind = CELL_WORD, .words = WORDS("layer", "rms")},
    [SEQUENCE] = {.name = "sequence", .kind = CELL_WHOLE, .least = 1, .most = 1e9},
    [BATCH] = {.name = "batch", .kind = CELL_WHOLE, .least = 1, .most = 1e9},
    [MICRO_BATCH] = {.name = "micro_batch", .kind = CELL_WHOLE, .least = 1, .most = 1e9},
    [ZERO] = {.name = "zero", .kind = CELL_WHOLE, .least = 0, .most = 3},
    [SHARDS] = {.name = "shards", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [INTERLEAVE] = {.name = "interleave", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [RECOMPUTE] = {.name = "recompute",
                   .kind = CELL_WORD,
                   .words = WORDS("none", "attention", "full", "operations", "segments")},
    [LAYOUT] = {.name = "layout", .kind = CELL_WORD, .words = WORDS("replicated", "scattered")},
    /* In the order of the flags' sums. */
    [OVERLAP] = {.name = "overlap",
                 .kind = CELL_WORD,
                 .words = WORDS("default", "weights", "rows", "weights+rows", "gradients", "weights+gradients",
                                "rows+gradients", "all", "none")},
    [STEP_SECS] = {.name = "step_secs", .kind = CELL_REAL, .least = 0, .most = 1e9},
    [MEMORY_GIB] = {.name = "memory_gib", .kind = CELL_REAL, .least = 0, .most = 1e9},
    [SKIP] = {.name = "skip"},
    [LEVELS] = {.name = "levels"},
    [DATE] = {.name = "date"},
    [URL] = {.name = "url"},
    [NOTE] = {.name = "note"},
    [PREDICTED_SECS] = {.name = "predicted_secs", .kind = CELL_RESULT},
    [PREDICTED_MEMORY_GIB] = {.name = "predicted_memory_gib", .kind = CELL_RESULT},
    [EXPECTED_SECS] = {.name = "expected_secs", .kind = CELL_RESULT},
    [STATE] = {.name = "state", .kind = CELL_RESULT},
    [WHY_SKIPPED] = {.name = "why_skipped", .kind = CELL_RESULT},
};

/* State while a row is read. */
typedef struct reader {
    const table *t;
    int64_t row;
    measured *run;
    qdr_network network;
    qdr_plan plan;
    failure *why;
} reader;

static double number(const reader *r, int column, double otherwise)
{
    return table_number(r->t, r->row, column, otherwise);
}

static int64_t whole(const reader *r, int column, int64_t otherwise)
{
    return (int64_t)number(r, column, (double)otherwise);
}

/* ---- the network ---- */

static int set_shape(reader *r)
{
    static const int needed[] = {LAYERS, HIDDEN, HEADS, VOCAB, SEQUENCE, -1};
    if (table_need(r->t, r->row, needed, "fill it in, or name a known model and leave layers, hidden and heads empty",
                   r->why))
        return r->why->code;
    r->network = planning_network("GPT", whole(r, LAYERS, 0), whole(r, HIDDEN, 0), whole(r, HEADS, 0),
                                  whole(r, SEQUENCE, 0));
    r->network.tied = 1;
    return EXIT_OK;
}

static int set_network(reader *r)
{
    const table *t = r->t;
    if (table_has(t, r->row, LAYERS) || table_has(t, r->row, HIDDEN) || table_has(t, r->row, HEADS)) {
        if (set_shape(r)) return r->why->code;
    } else if (qdr_network_load(table_text(t, r->row, MODEL), &r->network) != QDR_OK) {
        return table_fail(t, r->row, MODEL, r->why, "%s; or fill in layers, hidden, heads, vocab and sequence",
                          qdr_last_error());
    }
    /* What the row says of the network besides its layers, hidden size and heads. */
    qdr_network *network = &r->network;
    network->kv_heads = whole(r, KV_HEADS, network->kv_heads);
    network->head_size = whole(r, HEAD_SIZE, network->head_size);
    network->ffn = whole(r, FFN, network->ffn);
    network->vocab = whole(r, VOCAB, network->vocab);
    network->gated = (int)whole(r, GATED, network->gated);
    network->tied = (int)whole(r, TIED, network->tied);
    network->norm = whole(r, NORM, network->norm == QDR_NORM_RMS) ? QDR_NORM_RMS : QDR_NORM_LAYER;
    network->qkv_bias = (int)whole(r, BIASES, network->qkv_bias);
    network->out_bias = (int)whole(r, BIASES, network->out_bias);
    network->mlp_bias = (int)whole(r, BIASES, network->mlp_bias);
    const int is_learned = (int)whole(r, LEARNED_POSITIONS, network->positions > 0);
    network->positions = !is_learned ? 0 : network->positions ? network->positions : network->context;
    if (!*network->activation)
        snprintf(network->activation, sizeof network->activation, "%s", network->gated ? "silu" : "gelu");
    /* Ranks that share a sequence have a part of it each. */
    const int64_t parts = whole(r, CP, 1), sequence = whole(r, SEQUENCE, r->network.context);
    if (sequence % parts)
        return table_fail(t, r->row, CP, r->why, "%lld does not divide sequences of %lld tokens; correct it",
                          (long long)parts, (long long)sequence);
    r->plan.sequence = sequence / parts;
    r->plan.batch *= parts;
    r->plan.context_parts = parts > 1 ? parts : 0;
    return EXIT_OK;
}

static int set_plan(reader *r)
{
    static const qdr_dtype dtypes[] = {QDR_BF16, QDR_F16, QDR_F32, QDR_F64};
    static const qdr_recompute recomputes[] = {QDR_RECOMPUTE_NONE, QDR_RECOMPUTE_ATTENTION, QDR_RECOMPUTE_LAYERS,
                                               QDR_RECOMPUTE_OPERATIONS, QDR_RECOMPUTE_FULL};
    r->plan = (qdr_plan){QDR_INIT(qdr_plan),
                         .panels = 1, /* no framework of the tables has them */
                         .batch_parts = 1,
                         .x = 1,
                         .order = "yxzd",
                         .layout = whole(r, TP, 1) > 1 ? (qdr_layout)whole(r, LAYOUT, 0) : QDR_REPLICATED,
                         .recompute = recomputes[whole(r, RECOMPUTE, 0)],
                         .dtype = dtypes[whole(r, DTYPE, 0)],
                         .batch = whole(r, BATCH, 0),
                         .micro_batch = whole(r, MICRO_BATCH, 1),
                         .overlap = (int)whole(r, OVERLAP, 0),
                         .interleave = (int)whole(r, INTERLEAVE, 1)};
    const int64_t gpus = whole(r, GPUS, 1), tp = whole(r, TP, 1), pp = whole(r, PP, 1);
    const int64_t cp = whole(r, CP, 1), others = tp * pp * cp;
    const int64_t own_dp = whole(r, DP, gpus / others > 0 ? gpus / others : 1), dp = own_dp * cp;
    r->plan.y = (int)tp;
    r->plan.pipeline = (int)pp;
    if (tp * pp * dp != gpus)
        return table_fail(r->t, r->row, GPUS, r->why,
                          "%lld is not tp * pp * cp * dp = %lld * %lld * %lld * %lld; correct it", (long long)gpus,
                          (long long)tp, (long long)pp, (long long)cp, (long long)own_dp);
    /* Weights are split over z, and the groups of shards are d. */
    const int64_t zero = whole(r, ZERO, 0), shards = whole(r, SHARDS, dp);
    if (zero != 3 && table_has(r->t, r->row, SHARDS))
        return table_fail(r->t, r->row, SHARDS, r->why, "weights have shards with zero 3 only; leave it empty");
    if (dp % shards)
        return table_fail(r->t, r->row, SHARDS, r->why, "%lld does not divide cp * dp = %lld; correct one of them",
                          (long long)shards, (long long)dp);
    r->plan.z = zero == 3 ? (int)shards : 1;
    r->plan.d = (int)dp / r->plan.z;
    if ((zero == 1 || zero == 2) && dp > 1) r->plan.optimizer_parts = (int)dp;
    if (zero == 2 && dp > 1) r->plan.gradient_parts = (int)dp;
    return EXIT_OK;
}

/* Parts of gradients and optimizer state, of which stages of ZeRO are the usual ones. */
static int set_levels(reader *r, const qdr_machine *machine)
{
    const char *text = table_text(r->t, r->row, LEVELS);
    failure unused = {0};
    levels parts;
    char note[LEVELS_NOTE_BYTES];
    if (!*text) return EXIT_OK;
    if (read_levels("levels", text, text, 0, &parts, &unused) || parts.is_zero3)
        return table_fail(r->t, r->row, LEVELS, r->why,
                          "it is neither GP,OP, each a number of ranks, module, cache, numa, package, node or all, nor "
                          "none, zero1 or zero2; correct it (column zero has 3, where weights are split)");
    if (r->plan.optimizer_parts)
        return table_fail(r->t, r->row, LEVELS, r->why, "column zero says something else; leave one of them empty");
    plan_set_levels(&parts, machine, &r->plan, note);
    return EXIT_OK;
}

/* ---- rows ---- */

static int read_row(reader *r)
{
    r->run->title = table_text(r->t, r->row, SOURCE);
    r->run->part = "";
    /* Skips what the model cannot represent, besides what the table says. */
    const char *reason = table_text(r->t, r->row, SKIP);
    if (*reason) skip(r->run, "%s", reason);
    if (whole(r, DTYPE, 0) == 4) skip(r->run, "FP8: the model prices products of bf16");
    if (whole(r, EP, 1) > 1) skip(r->run, "expert parallelism: the model has no experts");
    if (r->run->why_skipped[0]) return EXIT_OK;
    static const int needed[] = {GPUS, BATCH, STEP_SECS, -1};
    if (table_need(r->t, r->row, needed, "fill it in, or say in column 'skip' why not", r->why)) return r->why->code;
    if (set_plan(r) || set_network(r)) return r->why->code;
    r->run->secs = number(r, STEP_SECS, 0);
    r->run->memory_bytes = GIB * number(r, MEMORY_GIB, 0);
    snprintf(r->run->group, sizeof r->run->group, "%.80s %lld %lld %lld %lld %lld", table_text(r->t, r->row, MODEL),
             (long long)whole(r, GPUS, 1), (long long)r->network.layers, (long long)r->network.hidden,
             (long long)whole(r, BATCH, 0), (long long)whole(r, SEQUENCE, r->network.context));
    return EXIT_OK;
}

/* The state that is nearest to the measured time, by ratio. */
static void set_state(const qdr_plan_result *result, measured *run)
{
    run->expected_secs = result->secs;
    for (int i = 1; i < result->n_states; i++)
        if (fabs(log(result->state_secs[i] / run->secs)) < fabs(log(result->state_secs[run->state] / run->secs)))
            run->state = i;
    run->predicted_secs = result->state_secs[run->state];
    run->state_share = result->state_shares[run->state];
}

static int predict_run(const table *t, int64_t row, predictor *all, measured *run, failure *why)
{
    reader r = {.t = t, .row = row, .run = run, .network = {QDR_INIT(qdr_network)}, .why = why};
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    qdr_model *model;
    if (read_row(&r) || run->why_skipped[0]) return why->code;
    const qdr_machine *machine = predictor_machine(all, t, row, (machine_columns){MACHINE, SOFTWARE}, why);
    if (!machine || set_levels(&r, machine)) return why->code;
    /* Skips runs that swap, hang or are broken. */
    static const double least = 0.005;
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    if (qdr_network_params(&r.network, &counts) == QDR_OK) {
        const double tokens = (double)r.plan.batch * (double)r.plan.sequence;
        const double rate = 6 * (double)counts.total * tokens / (number(&r, GPUS, 1) * run->secs);
        if (rate / machine->bf16.peak_flops < least) skip(run, "utilisation below %.1f %%: a broken run", 100 * least);
    }
    if (run->why_skipped[0]) return EXIT_OK;
    if (predictor_model(all, &r.network, &model) != QDR_OK || qdr_model_predict(model, &r.plan, &result) != QDR_OK) {
        skip(run, "%.300s", qdr_last_error());
        return EXIT_OK;
    }
    set_state(&result, run);
    run->predicted_bytes = result.memory_bytes;
    run->machine_bytes = machine->memory_bytes;
    return EXIT_OK;
}

const table_kind kind_runs = {
    .columns = columns, .predict = predict_run, .rows = "runs", .list = "sources", .title = "source"};
