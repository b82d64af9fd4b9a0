/* SPDX-License-Identifier: Apache-2.0 */
/* Networks and machines named on the command line, and times and grids in words. */
#include "common/planning.h"

#include <jansson.h>
#include <math.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/codecs_note.h"

/* ---- the network and the machine ---- */

int subject_set(const char *setting, void *to, failure *why)
{
    subject *asked = to;
    if (asked->n_settings == MAX_SETTINGS)
        return fail(why, EXIT_USAGE, "--set: more than %d settings; write a machine file", MAX_SETTINGS);
    asked->settings[asked->n_settings++] = setting;
    return EXIT_OK;
}

int take_memory(const char *value, void *to, failure *why)
{
    double *bytes = to;
    static const char letters[] = "KMGT";
    char *end;
    const double number = strtod(value, &end);
    const char *letter = *end ? strchr(letters, *end) : NULL;
    const int power = letter ? (int)(letter - letters) + 1 : 0;
    *bytes = number * pow(1024, power);
    if (end != value && !*end && *bytes >= 1 && *bytes < 0x1p20)
        return fail(why, EXIT_USAGE, "--mem %s is %s byte%s; is %sG meant?", value, value, *bytes > 1 ? "s" : "",
                    value);
    if (end != value && (!*end || (letter && !end[1])) && *bytes >= 1 && *bytes <= 0x1p60) return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "--mem '%s': a number of bytes is needed, optionally with the suffix K, M, G or T (2^10 to 2^40), such "
                "as 80G or 79.15G",
                value);
}

int subject_network(const subject *asked, const char *command, qdr_network *network, failure *why)
{
    if (!asked->network)
        return fail(why, EXIT_USAGE,
                    "%s: the model is missing: give a name such as gpt2-xl, a config.json, or - for standard input; "
                    "see quadrille %s --help",
                    command, command);
    *network = (qdr_network){QDR_INIT(qdr_network)};
    return fail_loading(why, qdr_network_load(asked->network, network));
}

qdr_network planning_network(const char *name, int64_t layers, int64_t hidden, int64_t heads, int64_t context)
{
    qdr_network network = {
        QDR_INIT(qdr_network), .layers = layers,   .hidden = hidden,
        .heads = heads,        .kv_heads = heads,  .head_size = hidden / heads,
        .ffn = 4 * hidden,     .context = context, .positions = context, /* learned: no rotation in the layers */
        .qkv_bias = 1,         .out_bias = 1,      .mlp_bias = 1,
        .norms_per_layer = 2};
    snprintf(network.name, sizeof network.name, "%s", name);
    return network;
}

typedef struct name_list {
    char text[400];
} name_list;

static void add_name(const char *name, void *user)
{
    name_list *list = user;
    const size_t used = strlen(list->text);
    snprintf(list->text + used, sizeof list->text - used, "%s%s", used ? ", " : "", name);
}

int machine_run(const char *name_or_path, qdr_machine *machine, failure *why)
{
    qdr_software software = {QDR_INIT(qdr_software)};
    if (fail_loading(why, qdr_software_load(name_or_path, &software))) return why->code;
    return fail_status(why, qdr_machine_set_software(machine, &software));
}

int machine_set(const char *setting, const char *command, qdr_machine *machine, failure *why)
{
    char key[128], *end;
    const char *equals = strchr(setting, '=');
    const double value = equals ? strtod(equals + 1, &end) : 0;
    if (!equals || equals == setting || equals - setting >= (int)sizeof key || end == equals + 1 || *end)
        return fail(why, EXIT_USAGE, "%s: --set '%s': KEY=NUMBER is needed, such as links[1].adapter_GBps=25", command,
                    setting);
    snprintf(key, sizeof key, "%.*s", (int)(equals - setting), setting);
    return fail_loading(why, qdr_machine_set(machine, key, value));
}

/* The link that joins nodes; the last one, if none does. */
static int network_level(const qdr_machine *machine)
{
    int l = 0;
    while (l < machine->n_links - 1 && machine->links[l].n_ranks > 0 &&
           machine->links[l].n_ranks <= machine->ranks_per_node)
        l++;
    return l;
}

static int node_adapters(const qdr_machine *machine) { return machine->links[network_level(machine)].n_adapters; }

int subject_machine(subject *asked, const char *command, qdr_machine *machine, failure *why)
{
    if (!asked->machine) {
        name_list list = {""};
        if (qdr_machine_list(add_name, &list) != QDR_OK) list.text[0] = '\0';
        return fail(why, EXIT_USAGE, "%s: --machine is missing; use a machine file or one of %s", command, list.text);
    }
    *machine = (qdr_machine){QDR_INIT(qdr_machine)};
    if (fail_loading(why, qdr_machine_load(asked->machine, machine))) return why->code;
    if (asked->software && machine_run(asked->software, machine, why)) return why->code;
    asked->n_adapters_before = node_adapters(machine);
    if (asked->ranks_per_node && fail_status(why, qdr_machine_set_ranks_per_node(machine, (int)asked->ranks_per_node)))
        return why->code;
    if (asked->memory_bytes > 0) machine->memory_bytes = asked->memory_bytes;
    for (int i = 0; i < asked->n_settings; i++)
        if (machine_set(asked->settings[i], command, machine, why)) return why->code;
    asked->n_adapters = node_adapters(machine);
    return fail_loading(why, qdr_machine_check(machine, machine->name));
}

/* ---- searches ---- */

void planning_begin(planned_grid *planned)
{
    *planned = (planned_grid){{QDR_INIT(qdr_plan)}, {QDR_INIT(qdr_plan_result)}};
}

/* ---- words of the command line ---- */

static int read_codecs(const char *value, int allows_auto, codec_choice *choice, failure *why)
{
    static const char word[] = "auto:";
    choice->is_given = 1;
    choice->is_auto = allows_auto && strncmp(value, word, sizeof word - 1) == 0;
    const qdr_status status = qdr_codecs_parse(value + (choice->is_auto ? sizeof word - 1 : 0), &choice->codecs);
    return status == QDR_OK ? EXIT_OK : fail(why, EXIT_USAGE, "--codec '%s': %s", value, qdr_last_error());
}

int take_codecs(const char *value, void *choice, failure *why) { return read_codecs(value, 0, choice, why); }

int take_codecs_or_auto(const char *value, void *choice, failure *why) { return read_codecs(value, 1, choice, why); }

codecs_text codecs_in_words(const qdr_plan *plan)
{
    codecs_text words;
    qdr_codecs_text(&plan->codecs, words.text, sizeof words.text);
    if (strncmp(words.text, "none", 4) == 0 && words.text[4] != ',') words.text[0] = '\0';
    return words;
}

const qdr_dtype compute_dtypes[N_COMPUTE_DTYPES] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};

/* ---- results ---- */

time_unit time_unit_of(double secs)
{
    static const time_unit units[] = {{"s", 1, 0}, {"ms", 1e-3, 0}, {"us", 1e-6, 0}};
    int i = 0;
    while (i < 2 && secs < units[i].secs) i++;
    time_unit unit = units[i];
    unit.n_digits = secs < 10 * unit.secs ? 3 : secs < 100 * unit.secs ? 2 : 1;
    return unit;
}

time_text time_in_words(double secs)
{
    static const char *const names[] = {"s", "ms", "us"};
    double number = secs;
    time_text words;
    int i = 0;
    for (; i < 2 && fabs(number) < 0.9995; i++) number *= 1e3;
    const int n_digits = fabs(number) < 9.995 ? 2 : fabs(number) < 99.95 ? 1 : 0;
    snprintf(words.text, sizeof words.text, "%.*f %s", n_digits, number, names[i]);
    return words;
}

grid_text grid_in_words(const qdr_plan *plan) { return grid_words((grid_size){plan->x, plan->y, plan->z, plan->d}); }

int64_t plan_sequence(const qdr_network *network, const qdr_plan *plan)
{
    return plan->sequence ? plan->sequence : network->context;
}

void note_print(const char *sentence, void *unused)
{
    (void)unused;
    printf("%s.\n", sentence);
}

json_t *checkpoint_json(const qdr_plan_checkpoint *checkpoint)
{
    json_t *object = json_pack("{s:I, s:I}", "bytes", (json_int_t)checkpoint->bytes, "rank_bytes",
                               (json_int_t)checkpoint->rank_bytes);
    if (checkpoint->secs > 0) json_object_set_new(object, "secs", json_real(checkpoint->secs));
    return object;
}

void note_append(const char *sentence, void *list) { json_array_append_new(list, json_string(sentence)); }

__attribute__((format(printf, 3, 4))) static void say(note_fn each, void *user, const char *format, ...)
{
    char sentence[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    each(sentence, user);
}

static void say_padding(const char *what, int64_t n, int64_t parts, const char *axis, note_fn each, void *user)
{
    const int64_t most = (n + parts - 1) / parts;
    if (n % parts == 0) return;
    say(each, user, "%lld %s over %s = %lld: padded to %lld, of which %.3g %% is idle", (long long)n, what, axis,
        (long long)parts, (long long)(most * parts), 100 * (1 - (double)n / (double)(most * parts)));
}

void plan_padding(const qdr_network *network, const qdr_plan *plan, note_fn each, void *user)
{
    const int y = plan->y;
    const int64_t n_keys = network->kv_heads;
    say_padding("heads", network->heads, y, "y", each, user);
    /* If every rank has queries and some have no key head, as in lib/schedule/key_heads.c. */
    if (n_keys != network->heads && n_keys < y)
        say(each, user,
            "%lld key head%s over y = %d: %lld rank%s and %lld none, and all keys and values are gathered over y",
            (long long)n_keys, PLURAL(n_keys), y, (long long)n_keys, n_keys == 1 ? " has it" : "s have one each",
            (long long)(y - n_keys));
    else if (n_keys != network->heads)
        say_padding("key heads", n_keys, y, "y", each, user);
    say_padding("columns of the MLP", network->ffn, plan->y, "y", each, user);
    say_padding("tokens of the vocabulary", network->vocab, plan->y, "y", each, user);
    say_padding("hidden columns", network->hidden, plan->x, "x", each, user);
    say_padding("sequences of the batch", plan->batch, (int64_t)plan->z * plan->d, "z*d", each, user);
}

void plan_notes(const qdr_network *n, const qdr_plan *plan, int64_t asked_micro_batch, note_fn each, void *user)
{
    const int64_t cells = (int64_t)plan->z * plan->d, all = (plan->batch + cells - 1) / cells;
    const int64_t sequence = plan_sequence(n, plan);
    if (asked_micro_batch > all)
        say(each, user, "--micro-batch %lld: cells have only %lld sequence%s; a forward pass uses %s",
            (long long)asked_micro_batch, (long long)all, PLURAL(all), all == 1 ? "it" : "them all");
    if (n->positions && sequence > n->positions)
        say(each, user, "--seq %lld: %s has %lld learned positions, which are taken to be %lld", (long long)sequence,
            n->name, (long long)n->positions, (long long)sequence);
    /* If heads as large as the hidden columns allow leave some columns over. */
    if (n->hidden % n->heads && n->head_size == n->hidden / n->heads)
        say(each, user, "%lld heads do not divide %lld hidden columns: a head has %lld, and attention %lld",
            (long long)n->heads, (long long)n->hidden, (long long)n->head_size, (long long)(n->heads * n->head_size));
}

/* Ranks of several nodes are priced as if they were on one. */
static int joins_nodes(const qdr_machine *machine, int n_ranks)
{
    return machine->n_links <= 1 && machine->ranks_per_node > 1 && n_ranks > machine->ranks_per_node;
}

void plan_codecs_note(const codec_choice *codec, const qdr_machine *machine, int n_ranks, note_fn each, void *user)
{
    char note[CODECS_NOTE_BYTES];
    codecs_note(&codec->codecs, n_ranks, n_ranks <= machine->ranks_per_node || joins_nodes(machine, n_ranks), note);
    if (*note) each(note, user);
}

void plan_machine_notes(const subject *asked, const qdr_machine *machine, int n_ranks, note_fn each, void *user)
{
    if (asked->ranks_per_node && asked->n_adapters < asked->n_adapters_before)
        say(each, user,
            "%d GPU%s a node ha%s %d of its %d network adapters, those nearby; --set links[%d].adapters=%d gives all",
            machine->ranks_per_node, machine->ranks_per_node > 1 ? "s" : "", machine->ranks_per_node > 1 ? "ve" : "s",
            asked->n_adapters, asked->n_adapters_before, network_level(machine), asked->n_adapters_before);
    if (!joins_nodes(machine, n_ranks)) return;
    say(each, user,
        "machine %s has no link between nodes (its file has one level) and %d ranks per node: %d ranks are priced "
        "as one node of %d",
        machine->name, machine->ranks_per_node, n_ranks, n_ranks);
}
