/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille mem`: the memory of a rank, term by term, and the parameters of a model. Starts no ranks. */
#include <string.h>

#include "common/command.h"
#include "common/json.h"
#include "common/planning.h"

typedef struct mem_options {
    subject asked;
    int n_ranks;
    int as_json;
    const char *order;
    grid_size grid;
    levels parts;
    codec_choice codec;
    char levels_note[LEVELS_NOTE_BYTES];
    qdr_plan plan;
} mem_options;

#define AT(member) .at = offsetof(mem_options, member)

static const option_spec specs[] = {
    {"ranks", 'n', "P", "number of ranks, 1 to 1048576; default: the grid's, or 1", OPTION_INT, AT(n_ranks), 1,
     QDR_MAX_SEARCH_RANKS},
    {"grid", 0, "GRID", "GXxGYxGZxGD; default 1x1x1xP", OPTION_GRID, AT(grid), .max = QDR_MAX_SEARCH_RANKS},
    {"batch", 0, "B", "sequences per step, over all ranks; default: one per rank", OPTION_COUNT, AT(plan.batch), 1,
     1 << 30},
    {"micro-batch", 0, "N", "sequences per forward pass in each group of ranks with the same z and d; default: all",
     OPTION_COUNT, AT(plan.micro_batch), 1, 1 << 30},
    {"seq", 0, "S", "tokens per sequence; default: the model's context", OPTION_COUNT, AT(plan.sequence), 1, 1 << 30},
    {"dtype", 0, "TYPE", "f32, f64, bf16 (default) or f16", OPTION_DTYPE, AT(plan.dtype), .words = DTYPE_WORDS},
    {"order", 0, "ORDER", "axis order, fastest first, such as xyzd (default); it affects the memory of codecs",
     OPTION_ORDER, AT(order)},
    {"layout", 0, "LAYOUT", "replicated (default) or scattered", OPTION_CHOICE, AT(plan.layout), .words = LAYOUT_WORDS},
    {"recompute", 0, "WHAT", "what backward makes again: none (default), operations or full", OPTION_OTHER,
     AT(plan.recompute), .take = take_recompute, .words = RECOMPUTE_WORDS},
    {"panels", 0, "N", "row panels of a layer's products; default: the best for --machine, else 1", OPTION_INT,
     AT(plan.panels), 1, 4096},
    {"batch-parts", 0, "N", "parts of each rank's rows; default: the best for --machine, else 1", OPTION_INT,
     AT(plan.batch_parts), 1, 16},
    {"levels", 0, "GP,OP", LEVELS_HELP, OPTION_OTHER, AT(parts), .take = take_levels, .words = LEVELS_WORDS},
    {"codec", 0, "CODECS", CODEC_HELP "; needs --machine, which says how many ranks share a node", OPTION_OTHER,
     AT(codec), .take = take_codecs},
    {"threads", 0, "N", THREADS_HELP, OPTION_COUNT, AT(plan.threads), 1, MOST_THREADS},
    {"machine", 0, "M", "include this machine's reserve and attention, and say whether it fits", OPTION_TEXT,
     AT(asked.machine)},
    {"software", 0, "SOFTWARE", SOFTWARE_HELP "; needs --machine", OPTION_TEXT, AT(asked.software)},
    {"mem", 0, "BYTES", "memory per rank of the machine, such as 80G", OPTION_OTHER, AT(asked.memory_bytes),
     .take = take_memory},
    {"ranks-per-node", 0, "N", "ranks per node of the machine", OPTION_COUNT, AT(asked.ranks_per_node), 1, 1 << 20},
    {"set", 0, "KEY=NUMBER", "override another constant of the machine; can be repeated", OPTION_OTHER, AT(asked),
     .take = subject_set},
    {"json", 0, NULL, "print one JSON object", OPTION_FLAG, AT(as_json)},
    OPTIONS_END,
};

/* The grid and everything derived from it. */
static int make_plan(mem_options *options, failure *why)
{
    qdr_plan *plan = &options->plan;
    const int zero3 = options->parts.is_zero3;
    const int n_ranks = options->n_ranks ? options->n_ranks : 1;
    if (!options->grid.x) options->grid = zero3 ? (grid_size){1, 1, n_ranks, 1} : (grid_size){1, 1, 1, n_ranks};
    const int n_grid = grid_ranks(options->grid);
    if (options->n_ranks && n_grid != options->n_ranks)
        return fail(why, EXIT_USAGE, "mem: --grid %s has %d ranks, but -n is %d; leave one of them out",
                    grid_words(options->grid).text, n_grid, options->n_ranks);
    if (zero3 && options->grid.d > 1)
        return fail(why, EXIT_USAGE, "mem: --levels zero3 has d = 1, but --grid says d = %d", options->grid.d);
    plan->x = options->grid.x;
    plan->y = options->grid.y;
    plan->z = options->grid.z;
    plan->d = options->grid.d;
    if (plan->batch == 0) plan->batch = n_grid;
    if (options->codec.is_given && !options->asked.machine)
        return fail(why, EXIT_USAGE, "mem: --codec needs --machine, between whose nodes messages are coded");
    if (!options->asked.machine && (options->asked.memory_bytes > 0 || options->asked.ranks_per_node > 0 ||
                                    options->asked.n_settings > 0 || options->asked.software))
        return fail(why, EXIT_USAGE,
                    "mem: --mem, --ranks-per-node, --software and --set need --machine, which they change");
    if (!options->asked.machine) { /* by whose speed they would be chosen; a stack without one has one of each, too */
        if (plan->panels == 0) plan->panels = 1;
        if (plan->batch_parts == 0) plan->batch_parts = 1;
    }
    plan->codecs = options->codec.codecs;
    if (options->order) snprintf(plan->order, sizeof plan->order, "%s", options->order);
    return EXIT_OK;
}

static int set_levels(mem_options *options, const qdr_machine *machine, failure *why)
{
    if (levels_have_units(&options->parts) && !options->asked.machine)
        return fail(why, EXIT_USAGE,
                    "mem: --levels with units needs --machine, whose units are meant; see quadrille "
                    "list machines");
    plan_set_levels(&options->parts, machine, &options->plan, options->levels_note);
    return EXIT_OK;
}

/* CPUs, no reserve and fused attention: the minimum of any machine. Its speed does not matter. */
static const char any_machine[] =
    "{\"name\": \"any machine\", \"ranks_per_node\": 1, \"memory_GiB\": 1e9, \"memory_GBps\": 1, "
    "\"attention_efficiency\": 1, \"bf16\": {\"peak_TFLOPS\": 1}, \"f32\": {\"peak_TFLOPS\": 1}, \"f64\": "
    "{\"peak_TFLOPS\": 1}, \"links\": [{\"name\": \"any\", \"ranks\": 0, \"rank_GBps\": 1}]}";

typedef struct part {
    const char *name;
    int64_t n;
} part;
enum { N_PARTS = 5 };

typedef struct mem_answer {
    const mem_options *options;
    qdr_network network;
    qdr_machine machine;
    qdr_network_counts counts;
    part parts[N_PARTS]; /* of the parameters */
    qdr_plan_result result;
    qdr_plan_checkpoint checkpoint;
} mem_answer;

static void print_checkpoint(const mem_answer *answer)
{
    const qdr_plan_checkpoint *saved = &answer->checkpoint;
    printf("\n%-12s %22s %10s\n", "checkpoint", "bytes", "GiB");
    printf("%-12s %22.0f %10.2f\n", "file", saved->bytes, saved->bytes / GIB);
    printf("%-12s %22.0f %10.2f  written by each rank; saving in the background copies it to host memory first\n",
           "rank", saved->rank_bytes, saved->rank_bytes / GIB);
    if (saved->secs > 0) printf("Saving one takes %s on %s.\n", time_in_words(saved->secs).text, answer->machine.name);
}

/* A blank line precedes the first. */
static void print_note(const char *sentence, void *has_any)
{
    if (!*(int *)has_any) putchar('\n');
    *(int *)has_any = 1;
    note_print(sentence, NULL);
}

static void tell_notes(const mem_answer *answer, note_fn each, void *user)
{
    const mem_options *options = answer->options;
    plan_notes(&answer->network, &options->plan, options->plan.micro_batch, each, user);
    if (*options->levels_note) each(options->levels_note, user);
    plan_codecs_note(&options->codec, &answer->machine, grid_ranks(options->grid), each, user);
}

static void print_table(const mem_answer *answer)
{
    const qdr_plan *plan = &answer->options->plan;
    const qdr_plan_result *result = &answer->result;
    int has_notes = 0;
    printf("# %s on grid %s, levels %s: %lld sequence%s of %lld tokens a step, %s, %s, recompute %s, "
           "panels %d, batch parts %d, threads %lld\n",
           answer->network.name, grid_in_words(plan).text, levels_in_words(plan).text, (long long)plan->batch,
           PLURAL(plan->batch), (long long)plan_sequence(&answer->network, plan), qdr_dtype_name(plan->dtype),
           layout_word(plan->layout), recompute_word(plan->recompute), result->panels, result->batch_parts,
           (long long)plan->threads);
    printf("%-12s %22s\n", "params", "of the whole model");
    for (int i = 0; i < N_PARTS; i++) printf("%-12s %22lld\n", answer->parts[i].name, (long long)answer->parts[i].n);
    printf("%-12s %22lld\n\n", "sum", (long long)answer->counts.total);
    printf("%-12s %22s %10s\n", "memory", "bytes of a rank", "GiB");
    for (int i = 0; i < QDR_N_MEMORY_TERMS; i++)
        printf("%-12s %22.0f %10.2f\n", qdr_memory_term_name((qdr_memory_term)i), result->memory[i],
               result->memory[i] / GIB);
    printf("%-12s %22.0f %10.2f\n", "sum", result->memory_bytes, result->memory_bytes / GIB);
    if (answer->options->asked.machine)
        printf("%s has %.4g GiB a rank: %.4g GiB %s.\n", answer->machine.name, answer->machine.memory_bytes / GIB,
               (answer->machine.memory_bytes >= result->memory_bytes ? 1 : -1) *
                   (answer->machine.memory_bytes - result->memory_bytes) / GIB,
               answer->machine.memory_bytes >= result->memory_bytes ? "are left" : "are missing");
    print_checkpoint(answer);
    plan_padding(&answer->network, plan, print_note, &has_notes);
    tell_notes(answer, print_note, &has_notes);
}

static json_t *json_of_answer(const mem_answer *answer)
{
    const qdr_plan *plan = &answer->options->plan;
    const levels parts = plan_levels(plan);
    json_t *params = json_object(), *memory = json_object(), *padding = json_array(), *notes = json_array();
    for (int i = 0; i < N_PARTS; i++)
        json_object_set_new(params, answer->parts[i].name, json_integer(answer->parts[i].n));
    for (int i = 0; i < QDR_N_MEMORY_TERMS; i++)
        json_object_set_new(memory, qdr_memory_term_name((qdr_memory_term)i),
                            json_integer((json_int_t)answer->result.memory[i]));
    plan_padding(&answer->network, plan, note_append, padding);
    tell_notes(answer, note_append, notes);
    json_t *object = json_pack(
        "{s:s, s:I, s:o, s:i, s:s, s:I, s:I, s:I, s:s, s:s, s:s, s:i, s:i, s:I, s:i, s:i, s:o, s:I, s:o, s:o}", "model",
        answer->network.name, "params", (json_int_t)answer->counts.total, "params_by_part", params, "ranks",
        grid_ranks(answer->options->grid), "grid", grid_in_words(plan).text, "batch", (json_int_t)plan->batch,
        "micro_batch", (json_int_t)plan->micro_batch, "sequence", (json_int_t)plan_sequence(&answer->network, plan),
        "dtype", qdr_dtype_name(plan->dtype), "layout", layout_word(plan->layout), "recompute",
        recompute_word(plan->recompute), "panels", answer->result.panels, "batch_parts", answer->result.batch_parts,
        "threads", (json_int_t)plan->threads, "gradient_parts", parts.gradient, "optimizer_parts", parts.optimizer,
        "memory", memory, "memory_bytes", (json_int_t)answer->result.memory_bytes, "padding", padding, "notes", notes);
    json_object_set_new(object, "checkpoint", checkpoint_json(&answer->checkpoint));
    if (answer->options->asked.machine) {
        json_object_set_new(object, "machine", json_string(answer->machine.name));
        json_object_set_new(object, "headroom_bytes",
                            json_integer((json_int_t)(answer->machine.memory_bytes - answer->result.memory_bytes)));
    }
    return object;
}

static int make_answer(mem_options *options, failure *why)
{
    mem_answer answer = {.options = options,
                         .machine = {QDR_INIT(qdr_machine)},
                         .counts = {QDR_INIT(qdr_network_counts)},
                         .result = {QDR_INIT(qdr_plan_result)},
                         .checkpoint = {QDR_INIT(qdr_plan_checkpoint)}};
    qdr_model *model = NULL;
    if (subject_network(&options->asked, "mem", &answer.network, why) || make_plan(options, why) ||
        (options->asked.machine ? subject_machine(&options->asked, "mem", &answer.machine, why)
                                : fail_status(why, qdr_machine_parse(any_machine, sizeof any_machine - 1, "any machine",
                                                                     &answer.machine))) ||
        set_levels(options, &answer.machine, why) ||
        fail_status(why, qdr_network_params(&answer.network, &answer.counts)) ||
        fail_status(why, qdr_model_create(&answer.machine, &answer.network, &model)))
        return why->code;
    const qdr_network_counts *c = &answer.counts;
    const int64_t layers = answer.network.layers;
    const part parts[N_PARTS] = {{"embedding", c->embedding + c->positions},
                                 {"attention", layers * c->attention},
                                 {"mlp", layers * c->mlp},
                                 {"norms", layers * c->norms + c->final_norm},
                                 {"head", c->head}};
    memcpy(answer.parts, parts, sizeof parts);
    if (!fail_status(why, qdr_model_predict(model, &options->plan, &answer.result)) &&
        !fail_status(why, qdr_model_checkpoint(model, &options->plan, &answer.checkpoint))) {
        if (options->as_json)
            write_json(json_of_answer(&answer), JSON_INDENT(2), "mem", why);
        else
            print_table(&answer);
    }
    qdr_model_destroy(&model);
    return why->code;
}

static int run(int argc, char **argv)
{
    mem_options options = {.plan = {QDR_INIT(qdr_plan), .dtype = QDR_BF16, .threads = 1}};
    failure why = {0};
    if (!options_read(argc, argv, specs, &options, &options.asked.network, &why)) make_answer(&options, &why);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command command_mem = {
    .name = "mem",
    .summary = "print a model's parameter counts and break down the memory of one rank",
    .usage = "quadrille mem MODEL [OPTION]...",
    .text = "Prints the memory that one rank needs to train the model: parameters, gradients, optimizer state,\n"
            "what codecs with feedback keep, activations, gathered weights, workspace, reserve, and what a CPU\n"
            "keeps for f16 and for threads (device). MODEL is a name (see quadrille list models), a Hugging Face\n"
            "config.json, or - for standard input. Without options: one rank of one thread, one sequence of the\n"
            "model's context, no particular machine (CPUs, fused attention, no memory reserved for drivers and\n"
            "libraries). Starts no ranks and no MPI.",
    .options = specs,
    .examples = "  quadrille mem gpt2\n"
                "  quadrille mem llama-2-70b --grid 1x8x8x1 --batch 64 --recompute full --json\n"
                "  quadrille mem gpt3-175b -n 64 --levels zero3 --machine dgx-a100\n",
    .is_local = 1,
    .run = run,
};
