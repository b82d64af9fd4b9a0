/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a table of runs as a network, a plan and measured values. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "predict/predict.h"
#include "predict/text.h"
#include "predict/ways.h"

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* State while a row is read. */
typedef struct row_reader {
    const csv_table *table;
    const run_columns *columns;
    int64_t row;
    assumed_row fit;
    const assumptions *assumed;
    measured_run *run;
    int lacks_shape; /* and no entry supplies it */
    char way[1024]; /* other_parallelism, normalised by text_words() */
    char text[4096]; /* that, notes and machine */
} row_reader;

void row_skip(char why_skipped[SKIPPED_BYTES], const char *format, ...)
{
    va_list arguments;
    if (why_skipped[0]) return;
    va_start(arguments, format);
    vsnprintf(why_skipped, SKIPPED_BYTES, format, arguments);
    va_end(arguments);
}

int run_columns_find(const csv_table *table, run_columns *columns, failure *why)
{
    char names[CSV_NAMES_BYTES];
    struct {
        const char *name;
        int *place, is_needed;
    } all[] = {
        {"source", &columns->source, 0},
        {"machine", &columns->machine, 0},
        {"n_gpus", &columns->n_gpus, 1},
        {"model", &columns->model, 0},
        {"params", &columns->params, 0},
        {"layers", &columns->layers, 0},
        {"hidden", &columns->hidden, 0},
        {"heads", &columns->heads, 0},
        {"seq", &columns->seq, 0},
        {"vocab", &columns->vocab, 0},
        {"batch", &columns->batch, 1},
        {"tp", &columns->tp, 0},
        {"pp", &columns->pp, 0},
        {"dp", &columns->dp, 0},
        {"notes", &columns->notes, 0},
        {"other_parallelism", &columns->other, 0},
        {"tflops_per_gpu", &columns->tflops, 0},
        {"pct_peak", &columns->pct_peak, 0},
        {"iter_time_s", &columns->iter_time, 0},
    };
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        *all[i].place = csv_find(table, all[i].name);
        if (all[i].is_needed && *all[i].place < 0)
            return fail(why, EXIT_USAGE,
                        "%.200s: there is no column '%s', only %s; the first line must name n_gpus, "
                        "batch and iter_time_s, tflops_per_gpu, pct_peak or notes, with commas "
                        "between them",
                        table->name, all[i].name, csv_names(table, names));
    }
    if (columns->iter_time >= 0 || columns->tflops >= 0 || columns->pct_peak >= 0 || columns->notes >= 0)
        return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "%.200s: nothing was measured; a column iter_time_s, tflops_per_gpu, pct_peak or notes is needed, but "
                "there are only %s (separated by commas)",
                table->name, csv_names(table, names));
}

/* ---- cells ---- */

/* A nonnegative number, or 0 if the cell is empty. */
static double cell_number(row_reader *r, int column)
{
    char shown[CSV_SHOWN_BYTES];
    double value = 0;
    const char *cell = csv_cell(r->table, r->row, column);
    if (csv_number(cell, &value) >= 0 && value >= 0) return value;
    row_skip(r->run->why_skipped, "line %lld, column '%s': '%s' is not a number", (long long)r->table->lines[r->row],
             csv_column(r->table, column), csv_printable(cell, shown));
    return 0;
}

/* The same for whole numbers. */
static int64_t cell_integer(row_reader *r, int column)
{
    const double value = cell_number(r, column);
    if (value <= 1e15 && value == floor(value)) return (int64_t)value;
    row_skip(r->run->why_skipped, "line %lld, column '%s': %g is not a whole number",
             (long long)r->table->lines[r->row], csv_column(r->table, column), value);
    return 0;
}

/* A whole number of the row, or the assumed one; `otherwise` if there is neither. */
static int64_t value_of(row_reader *r, int column, assumed_field field, int64_t otherwise)
{
    const int64_t value = cell_integer(r, column);
    const assumption *entry = assumed_take(&r->fit, field, value > 0);
    if (entry) return (int64_t)entry->numbers[field];
    return value > 0 ? value : otherwise;
}

static int assumed_or(row_reader *r, assumed_field field, int otherwise)
{
    const assumption *entry = assumed_take(&r->fit, field, 0);
    return entry ? (int)entry->numbers[field] : otherwise;
}

static int64_t needed(row_reader *r, int column, assumed_field field)
{
    const int64_t value = value_of(r, column, field, 0);
    if (value < 1)
        row_skip(r->run->why_skipped,
                 "%s is missing, and there is no assumption for it; fill column '%s', name a known model in 'model', "
                 "or give it in a file of --assume",
                 assumed_name(field), assumed_name(field));
    return value;
}

/* ---- the network ---- */

static void set_shape(row_reader *r, qdr_network *network)
{
    const run_columns *c = r->columns;
    network->layers = needed(r, c->layers, ASSUMED_LAYERS);
    network->hidden = needed(r, c->hidden, ASSUMED_HIDDEN);
    network->heads = needed(r, c->heads, ASSUMED_HEADS);
    network->vocab = needed(r, c->vocab, ASSUMED_VOCAB);
    if (network->heads < 1) return;
    network->kv_heads = value_of(r, -1, ASSUMED_KV_HEADS, network->heads);
    network->head_size = value_of(r, -1, ASSUMED_HEAD_SIZE, network->hidden / network->heads);
    network->ffn = value_of(r, -1, ASSUMED_FFN, 4 * network->hidden);
}

/* A GPT, unless an entry says otherwise. */
static void set_kind(row_reader *r, qdr_network *network)
{
    network->gated = assumed_or(r, ASSUMED_GATED, 0);
    network->tied = assumed_or(r, ASSUMED_TIED, 1);
    network->positions = assumed_or(r, ASSUMED_POSITIONS, 1) ? network->context : 0;
    network->norm = assumed_or(r, ASSUMED_NORM, 0) ? QDR_NORM_RMS : QDR_NORM_LAYER;
    network->qkv_bias = network->out_bias = network->mlp_bias = assumed_or(r, ASSUMED_BIASES, 1);
    network->norms_per_layer = 2;
    snprintf(network->activation, sizeof network->activation, "%s", network->gated ? "silu" : "gelu");
}

/* A value of the row, or an assumption (without marking it as used); 0: neither. */
static int64_t known_value(row_reader *r, int column, assumed_field field)
{
    const assumed_row fit = r->fit;
    const int64_t value = value_of(r, column, field, 0);
    r->fit = fit;
    return value;
}

/* The known model with the row's name, if part of the shape is missing and the rest agrees. */
static assumption *model_of_name(row_reader *r, int lacks_sequence)
{
    qdr_status status;
    const run_columns *c = r->columns;
    const int64_t layers = known_value(r, c->layers, ASSUMED_LAYERS),
                  hidden = known_value(r, c->hidden, ASSUMED_HIDDEN), heads = known_value(r, c->heads, ASSUMED_HEADS),
                  vocab = known_value(r, c->vocab, ASSUMED_VOCAB);
    r->lacks_shape = layers < 1 || hidden < 1 || heads < 1 || vocab < 1;
    if (!r->lacks_shape && !lacks_sequence) return NULL;
    assumption *model = assumed_model(r->assumed, r->run->model, &status);
    if (status != QDR_OK) row_skip(r->run->why_skipped, "%.300s", qdr_last_error());
    if (!model || (layers && layers != model->network.layers) || (hidden && hidden != model->network.hidden) ||
        (heads && heads != model->network.heads))
        return NULL;
    return model;
}

/* The known model's network, except for what the row or an entry states. */
static void set_named(row_reader *r, assumption *model)
{
    qdr_network *network = &r->run->network;
    *network = model->network;
    network->vocab = value_of(r, r->columns->vocab, ASSUMED_VOCAB, network->vocab);
    network->kv_heads = value_of(r, -1, ASSUMED_KV_HEADS, network->kv_heads);
    network->head_size = value_of(r, -1, ASSUMED_HEAD_SIZE, network->head_size);
    network->ffn = value_of(r, -1, ASSUMED_FFN, network->ffn);
    network->gated = assumed_or(r, ASSUMED_GATED, network->gated);
    network->tied = assumed_or(r, ASSUMED_TIED, network->tied);
    network->norm = assumed_or(r, ASSUMED_NORM, (int)network->norm) ? QDR_NORM_RMS : QDR_NORM_LAYER;
    if (!assumed_or(r, ASSUMED_POSITIONS, network->positions > 0))
        network->positions = 0;
    else if (!network->positions)
        network->positions = network->context;
    const assumption *biases = assumed_take(&r->fit, ASSUMED_BIASES, 0);
    if (biases) network->qkv_bias = network->out_bias = network->mlp_bias = (int)biases->numbers[ASSUMED_BIASES];
    assumed_use(&r->fit, model, ASSUMED_NETWORK);
}

static void set_sequence(row_reader *r, const assumption *named, assumption *model)
{
    qdr_plan *plan = &r->run->plan;
    plan->sequence = value_of(r, r->columns->seq, ASSUMED_SEQUENCE, named ? named->network.context : 0);
    if (plan->sequence > 0) return;
    plan->sequence = model ? model->network.context : 0;
    if (model)
        assumed_use(&r->fit, model, ASSUMED_SEQUENCE);
    else
        row_skip(r->run->why_skipped, "seq is missing, and there is no assumption for it; fill column 'seq', name a "
                                      "known model in 'model', or give 'sequence' in a file of --assume");
}

static void set_network(row_reader *r)
{
    measured_run *run = r->run;
    const run_columns *c = r->columns;
    const int has_shape = *csv_cell(r->table, r->row, c->layers) && *csv_cell(r->table, r->row, c->hidden);
    const assumption *named = assumed_take(&r->fit, ASSUMED_NETWORK, has_shape);
    const int lacks_sequence = known_value(r, c->seq, ASSUMED_SEQUENCE) < 1;
    assumption *model = named ? NULL : model_of_name(r, lacks_sequence);
    memset(&run->network, 0, sizeof run->network);
    if (named) run->network = named->network;
    if (model && r->lacks_shape) set_named(r, model);
    set_sequence(r, named, model);
    if (run->network.version) return;
    run->network.version = QDR_OPTS_INIT;
    run->network.context = run->plan.sequence;
    set_shape(r, &run->network);
    set_kind(r, &run->network);
    snprintf(run->network.name, sizeof run->network.name, "GPT");
}

/* ---- the plan ---- */

/* A number of ranks: 1 if the table has no such column. */
static int ranks_of(row_reader *r, int column)
{
    if (column < 0) return 1;
    const int64_t value = cell_integer(r, column);
    if (value < 1 || value > INT32_MAX)
        row_skip(r->run->why_skipped, "%s is missing: the parallelism of the run is unknown",
                 csv_column(r->table, column));
    return value < 1 || value > INT32_MAX ? 1 : (int)value;
}

/* Replicas: from their column, or derived from tp and pp. */
static int replicas_of(row_reader *r, double n_gpus, int tp, int pp)
{
    const double left = n_gpus / ((double)tp * pp);
    const int64_t dp = cell_integer(r, r->columns->dp);
    if ((dp && (double)dp != left) || left != floor(left) || left < 1 || left > INT32_MAX)
        row_skip(r->run->why_skipped, "n_gpus is %.0f, which is not tp · pp · dp = %d · %d · %s", n_gpus, tp, pp,
                 dp ? csv_cell(r->table, r->row, r->columns->dp) : "dp");
    return left >= 1 && left <= INT32_MAX ? (int)left : 1;
}

/* Shards of weights, and copies of all shards: from the row's words, or inside nodes, depending on the machine. */
static void set_shards(row_reader *r, int replicas)
{
    int copies = 0, shards = 0;
    qdr_plan *plan = &r->run->plan;
    plan->z = replicas;
    if (!ways_hybrid(r->way, &copies, &shards)) return;
    r->run->shards_in_node = shards == 0;
    if (!shards) return;
    if (replicas % shards || (copies && replicas / shards != copies))
        row_skip(r->run->why_skipped, "HSDP: %d shards and %d copies of them are not dp = %d", shards,
                 copies ? copies : 1, replicas);
    plan->z = shards;
    plan->d = replicas / shards;
}

static int zero_stage(row_reader *r)
{
    const int stage = ways_zero(r->way);
    return stage >= 0 ? stage : assumed_or(r, ASSUMED_ZERO, 0);
}

static void set_grid(row_reader *r)
{
    measured_run *run = r->run;
    qdr_plan *plan = &run->plan;
    run->n_gpus = cell_number(r, r->columns->n_gpus);
    if (run->n_gpus < 1) row_skip(run->why_skipped, "n_gpus is missing");
    const int tp = ranks_of(r, r->columns->tp), pp = ranks_of(r, r->columns->pp);
    const int dp = replicas_of(r, run->n_gpus, tp, pp);
    const int stage = zero_stage(r);
    *plan = (qdr_plan){.version = QDR_OPTS_INIT,
                       .panels = 1, /* no framework of the tables has them */
                       .batch_parts = 1,
                       .x = 1,
                       .y = tp,
                       .z = 1,
                       .d = stage == 3 ? 1 : dp,
                       .order = "yxzd",
                       .dtype = QDR_BF16,
                       .pipeline = pp};
    if (stage == 3) set_shards(r, dp);
    if ((stage == 1 || stage == 2) && dp > 1) plan->optimizer_parts = dp;
    if (stage == 2 && dp > 1) plan->gradient_parts = dp;
}

static qdr_recompute recompute_of(row_reader *r)
{
    const int said = ways_recompute(r->text);
    const assumption *entry = assumed_take(&r->fit, ASSUMED_RECOMPUTE, said >= 0);
    if (entry) return (qdr_recompute)entry->numbers[ASSUMED_RECOMPUTE];
    return said >= 0 ? (qdr_recompute)said : QDR_RECOMPUTE_NONE;
}

/* A number in the notes as a number of sequences; 0: implausibly large. */
static int64_t sequences(double number) { return number <= 1e9 ? (int64_t)number : 0; }

static void set_micro_batch(row_reader *r)
{
    qdr_plan *plan = &r->run->plan;
    const double cells = (double)plan->z * plan->d;
    double size = 0, steps = 0;
    if (ways_micro_batch(r->text, &size) ||
        (ways_steps(r->text, &steps) && (size = ceil((double)plan->batch / (cells * steps))) > 0))
        plan->micro_batch = sequences(size);
    else if (!text_number_after(r->text, WORDS("local batch"), &size))
        plan->micro_batch = assumed_or(r, ASSUMED_MICRO_BATCH, 1);
}

static void set_batch(row_reader *r)
{
    qdr_plan *plan = &r->run->plan;
    double local = 0;
    plan->batch = cell_integer(r, r->columns->batch);
    if (plan->batch < 1 && text_number_after(r->text, WORDS("local batch"), &local))
        plan->batch = sequences(local) * plan->z * plan->d;
    if (plan->batch < 1)
        row_skip(r->run->why_skipped, "batch is missing");
    else
        set_micro_batch(r);
}

static void set_ways(row_reader *r)
{
    qdr_plan *plan = &r->run->plan;
    double parts = 0;
    plan->recompute = recompute_of(r);
    plan->overlap = assumed_or(r, ASSUMED_OVERLAP, 0);
    if (ways_interleave(r->way, &parts))
        plan->interleave = (int)parts;
    else
        plan->interleave = assumed_or(r, ASSUMED_INTERLEAVE, 1);
    if (plan->y == 1) return;
    plan->layout = ways_sequence(r->way) ? QDR_SCATTERED : (qdr_layout)assumed_or(r, ASSUMED_LAYOUT, QDR_REPLICATED);
}

/* ---- what was measured ---- */

double run_flops(const measured_run *run)
{
    qdr_network_flops flops;
    if (qdr_network_flops_per_token(&run->network, run->plan.sequence, &flops) != QDR_OK) return 0;
    const double again = run->flops_recomputed ? 4 : 3;
    return (double)run->plan.batch * (double)run->plan.sequence *
           (again * (flops.linear + flops.attention) + 3 * flops.head);
}

/* From "39.3k tokens/s", "1007 tokens/s/GPU", "4378 tokens/s (per GPU)"; 0: none. */
static double secs_of_rate(const row_reader *r)
{
    const measured_run *run = r->run;
    double rate = 0;
    const char *behind = text_number_before(r->text, "tokens/s", &rate);
    if (!behind) behind = text_number_before(r->text, "tok/s", &rate);
    if (!behind || !(rate > 0)) return 0;
    const int is_each = strncmp(behind, "/gpu", 4) == 0 || strncmp(behind, " (per gpu", 9) == 0 ||
                        strncmp(behind, " per gpu", 8) == 0;
    return (double)run->plan.batch * (double)run->plan.sequence / (rate * (is_each ? run->n_gpus : 1));
}

static void set_time(row_reader *r)
{
    measured_run *run = r->run;
    run->params = cell_number(r, r->columns->params);
    run->tflops = cell_number(r, r->columns->tflops);
    run->flops_recomputed = text_has(r->text, WORDS("flops formula", "incl. recompute")) ||
                            assumed_or(r, ASSUMED_FLOPS_RECOMPUTED, 0);
    run->secs = cell_number(r, r->columns->iter_time);
    if (!(run->secs > 0)) run->secs = secs_of_rate(r);
    if (!(run->secs > 0) && run->tflops > 0) run->secs = run_flops(run) / (run->tflops * 1e12 * run->n_gpus);
    if (run->secs > 0) return;
    run->peak_share = cell_number(r, r->columns->pct_peak) / 100;
    if (run->peak_share > 1)
        row_skip(run->why_skipped, "pct_peak is %g: more than the whole peak", 100 * run->peak_share);
    if (!(run->peak_share > 0))
        row_skip(run->why_skipped, "no time, rate of tokens, TFLOP/s or share of the peak was measured");
}

/* "mem 35.0 GB", "82.4 GiB": what frameworks call GB are 2^30 bytes. */
static void set_memory(row_reader *r)
{
    double size = 0;
    const char *unit = text_number_after(r->text, WORDS("mem", "memory"), &size);
    if (unit) unit += strspn(unit, " ");
    const int given = unit ? strncmp(unit, "gib", 3) == 0 || strncmp(unit, "gb", 2) == 0
                           : text_number_before(r->text, "gib", &size) != NULL;
    if (given) r->run->memory_bytes = size * 0x1p30;
}

/* ---- rows ---- */

static void check_possible(row_reader *r)
{
    double ways = 0;
    const assumption *skipped = assumed_take(&r->fit, ASSUMED_SKIP, 0);
    if (skipped) row_skip(r->run->why_skipped, "%.300s", skipped->skip);
    if (text_has(r->text, WORDS("fp8", "float8")))
        row_skip(r->run->why_skipped, "FP8: the model prices products of bf16");
    if (ways_context(r->way, &ways) && ways > 1)
        row_skip(r->run->why_skipped, "context parallelism: the model does not split sequences");
    if (ways_experts(r->way, &ways) && ways > 1)
        row_skip(r->run->why_skipped, "expert parallelism: the model has no experts");
}

static void set_names(row_reader *r)
{
    measured_run *run = r->run;
    const char *source = csv_cell(r->table, r->row, r->columns->source);
    run->model = csv_cell(r->table, r->row, r->columns->model);
    r->fit = assumed_fit(r->assumed, source, run->model);
    run->source = assumed_title(&r->fit, source);
    run->machine = csv_cell(r->table, r->row, r->columns->machine);
    const assumption *machine = assumed_take(&r->fit, ASSUMED_MACHINE, *run->machine != '\0');
    if (machine) run->machine = machine->machine;
    text_append(r->way, sizeof r->way, csv_cell(r->table, r->row, r->columns->other));
    text_words(r->way);
    text_append(r->text, sizeof r->text, r->way);
    text_append(r->text, sizeof r->text, "; ");
    text_append(r->text, sizeof r->text, csv_cell(r->table, r->row, r->columns->machine));
    text_append(r->text, sizeof r->text, "; ");
    text_append(r->text, sizeof r->text, csv_cell(r->table, r->row, r->columns->notes));
    text_words(r->text);
}

void run_read(const csv_table *table, const run_columns *columns, int64_t row, const assumptions *assumed,
              measured_run *run, assumed_row *fit)
{
    row_reader r = {.table = table, .columns = columns, .row = row, .assumed = assumed, .run = run};
    *run = (measured_run){.secs = 0};
    *fit = (assumed_row){.n = 0};
    set_names(&r);
    check_possible(&r);
    if (run->why_skipped[0]) return;
    set_grid(&r);
    set_network(&r);
    set_batch(&r);
    set_ways(&r);
    set_time(&r);
    set_memory(&r);
    *fit = r.fit;
}
