/* SPDX-License-Identifier: Apache-2.0 */
/* Reads the data file with values that tables leave out, and finds entries in it. */
#include "predict/assumed.h"

#include <quadrille/data.h>
#include <quadrille/machine.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

enum { MAX_WORDS = 9, PATH_BYTES = 4096 };

/* A key: text, one of several words, or a whole number that is at least `least`. */
typedef struct field_spec {
    const char *name;
    int is_text;
    int least, most; /* range of a number; most 0: no upper limit */
    const char *words[MAX_WORDS]; /* if present, the value is the index of a word */
} field_spec;

static const field_spec specs[N_ASSUMED] = {
    [ASSUMED_LAYERS] = {"layers", .least = 1},
    [ASSUMED_HIDDEN] = {"hidden", .least = 1},
    [ASSUMED_HEADS] = {"heads", .least = 1},
    [ASSUMED_KV_HEADS] = {"kv_heads", .least = 1},
    [ASSUMED_HEAD_SIZE] = {"head_size", .least = 1},
    [ASSUMED_FFN] = {"ffn", .least = 1},
    [ASSUMED_VOCAB] = {"vocab", .least = 1},
    [ASSUMED_SEQUENCE] = {"sequence", .least = 1},
    [ASSUMED_GATED] = {"gated", .most = 1},
    [ASSUMED_TIED] = {"tied", .most = 1},
    [ASSUMED_POSITIONS] = {"learned_positions", .most = 1},
    [ASSUMED_BIASES] = {"biases", .most = 1},
    [ASSUMED_NORM] = {"norm", .words = {"layer", "rms"}},
    [ASSUMED_MICRO_BATCH] = {"micro_batch", .least = 1},
    [ASSUMED_INTERLEAVE] = {"interleave", .least = 1},
    [ASSUMED_ZERO] = {"zero", .most = 3},
    [ASSUMED_RECOMPUTE] = {"recompute", .words = {"none", "attention", "full"}},
    [ASSUMED_LAYOUT] = {"layout", .words = {"replicated", "scattered"}},
    /* Values as in the flags of a plan. */
    [ASSUMED_OVERLAP] = {"overlap", .words = {"default", "weights", "rows", "weights+rows", "gradients",
                                              "weights+gradients", "rows+gradients", "all", "none"}},
    [ASSUMED_FLOPS_RECOMPUTED] = {"flops_recomputed", .most = 1},
    [ASSUMED_BYTES] = {"bytes", .least = 1},
    [ASSUMED_BYTES_MOST] = {"bytes_most", .least = 1},
    [ASSUMED_ALONE] = {"alone", .most = 1},
    [ASSUMED_MACHINE] = {"machine", .is_text = 1},
    [ASSUMED_NETWORK] = {"network", .is_text = 1},
    [ASSUMED_SKIP] = {"skip", .is_text = 1},
};

const char *assumed_name(assumed_field field) { return specs[field].name; }

/* ---- reading ---- */

static int read_word(const field_spec *spec, const char *text, double *number)
{
    for (int i = 0; i < MAX_WORDS && spec->words[i]; i++)
        if (strcmp(spec->words[i], text) == 0) {
            *number = i;
            return 1;
        }
    return 0;
}

static int read_number(const field_spec *spec, const json_t *value, double *number)
{
    if (spec->words[0]) return json_is_string(value) && read_word(spec, json_string_value(value), number);
    if (!json_is_integer(value)) return 0;
    *number = (double)json_integer_value(value);
    return *number >= spec->least && (!spec->most || *number <= spec->most);
}

/* Text keys of an entry that are not fields. */
static const char **text_place(assumption *entry, const char *key)
{
    if (strcmp(key, "source") == 0) return &entry->source;
    if (strcmp(key, "model") == 0) return &entry->model;
    if (strcmp(key, "title") == 0) return &entry->title;
    if (strcmp(key, "reason") == 0) return &entry->reason;
    return NULL;
}

static assumed_field find_field(const char *key)
{
    int field = 0;
    while (field < N_ASSUMED && strcmp(specs[field].name, key) != 0) field++;
    return (assumed_field)field;
}

static int read_text_field(assumption *entry, assumed_field field, const char *text, failure *why)
{
    if (field == ASSUMED_MACHINE) entry->machine = text;
    if (field == ASSUMED_SKIP) entry->skip = text;
    if (field == ASSUMED_NETWORK) return fail_status(why, qdr_network_load(text, &entry->network));
    return EXIT_OK;
}

static int read_key(assumption *entry, const char *key, const json_t *value, const char *where, failure *why)
{
    const char **place = text_place(entry, key);
    const assumed_field field = find_field(key);
    if (strcmp(key, "replaces") == 0 && json_is_boolean(value)) {
        entry->replaces = json_is_true(value);
        return EXIT_OK;
    }
    if (place && json_is_string(value)) {
        *place = json_string_value(value);
        return EXIT_OK;
    }
    if (place || strcmp(key, "replaces") == 0)
        return fail(why, EXIT_USAGE, "%s: key '%s' is %s", where, key,
                    place ? "not a string" : "neither true nor false");
    if (field == N_ASSUMED) return fail(why, EXIT_USAGE, "%s: key '%.60s' is unknown; see quadrille(1)", where, key);
    entry->given |= 1U << field;
    if (specs[field].is_text && json_is_string(value))
        return read_text_field(entry, field, json_string_value(value), why);
    if (!specs[field].is_text && read_number(&specs[field], value, &entry->numbers[field])) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s: key '%s' has an invalid value; see quadrille(1)", where, key);
}

static int read_entry(json_t *object, assumption *entry, const char *where, failure *why)
{
    const char *key;
    json_t *value;
    if (!json_is_object(object)) return fail(why, EXIT_USAGE, "%s: it is not an object", where);
    json_object_foreach(object, key, value) if (read_key(entry, key, value, where, why)) return why->code;
    if (!entry->reason && (entry->skip || !entry->given)) entry->reason = "";
    if (entry->source && entry->reason) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s: it needs a source (the beginning of the sources it applies to) and a reason",
                where);
}

static int read_entries(const char *path, assumptions *all, failure *why)
{
    const json_t *list = json_object_get(all->root, "entries");
    if (!json_is_array(list)) return fail(why, EXIT_USAGE, "%.300s: key 'entries' is not a list of objects", path);
    all->n = json_array_size(list);
    all->entries = calloc(all->n ? all->n : 1, sizeof *all->entries);
    if (!all->entries) return fail(why, EXIT_NOTHING_FITS, "%.300s: out of memory for its entries", path);
    for (size_t i = 0; i < all->n; i++) {
        char where[400];
        snprintf(where, sizeof where, "%.300s: entry %zu", path, i + 1);
        if (read_entry(json_array_get(list, i), &all->entries[i], where, why)) return why->code;
    }
    return EXIT_OK;
}

int assumed_load(const char *name_or_path, assumptions *all, failure *why)
{
    char path[PATH_BYTES];
    json_error_t error;
    *all = (assumptions){.n = 0};
    if (fail_status(why, qdr_data_find("data", name_or_path, path, sizeof path))) return why->code;
    all->root = json_load_file(path, JSON_REJECT_DUPLICATES, &error);
    if (!all->root)
        return fail(why, EXIT_USAGE, "%.300s, line %d: %s; name a JSON file with --assume", path, error.line,
                    error.text);
    if (read_entries(path, all, why) || assumed_load_models(all, why)) assumed_free(all);
    return why->code;
}

void assumed_free(assumptions *all)
{
    json_decref(all->root);
    free(all->entries);
    free(all->models);
    free(all->model_names);
    *all = (assumptions){.n = 0};
}

/* ---- finding ---- */

assumed_row assumed_fit(const assumptions *all, const char *source, const char *model)
{
    assumed_row fit = {.n = 0};
    for (size_t i = 0; i < all->n && fit.n < MAX_FITTING; i++) {
        assumption *entry = &all->entries[i];
        if (strncmp(source, entry->source, strlen(entry->source)) != 0) continue;
        if (entry->model && strcasecmp(entry->model, model) != 0) continue;
        fit.fitting[fit.n++] = entry;
    }
    return fit;
}

const assumption *assumed_take(assumed_row *fit, assumed_field field, int has_cell)
{
    for (int i = 0; i < fit->n; i++) {
        const assumption *entry = fit->fitting[i];
        if (!(entry->given >> field & 1) || (has_cell && !entry->replaces)) continue;
        fit->taken[i] |= 1U << field;
        return entry;
    }
    return NULL;
}

void assumed_note(const assumed_row *fit)
{
    for (int i = 0; i < fit->n; i++) {
        fit->fitting[i]->used |= fit->taken[i];
        fit->fitting[i]->n_rows += fit->taken[i] != 0;
    }
}

const char *assumed_title(const assumed_row *fit, const char *source)
{
    for (int i = 0; i < fit->n; i++)
        if (fit->fitting[i]->title) return fit->fitting[i]->title;
    return source;
}

const char *assumed_place(const assumptions *all, const assumption *entry, char *text, size_t bytes)
{
    const char *title = *entry->source ? "" : "any source";
    size_t longest = 0;
    for (size_t i = 0; i < all->n; i++) {
        const size_t length = strlen(all->entries[i].source);
        if (!all->entries[i].title || length < longest || strncmp(entry->source, all->entries[i].source, length) != 0)
            continue;
        title = all->entries[i].title;
        longest = length;
    }
    snprintf(text, bytes, "%s%s", title, entry->source + longest);
    return text;
}

static void value_text(const assumption *entry, int field, char *text, size_t bytes)
{
    const field_spec *spec = &specs[field];
    if (field == ASSUMED_MACHINE)
        snprintf(text, bytes, " %s", entry->machine);
    else if (field == ASSUMED_NETWORK)
        snprintf(text, bytes, " %s", entry->network.name);
    else if (spec->words[0])
        snprintf(text, bytes, " %s", spec->words[(int)entry->numbers[field]]);
    else
        snprintf(text, bytes, " %.0f", entry->numbers[field]);
}

const char *assumed_text(const assumption *entry, int with_values, char *text, size_t bytes)
{
    size_t used = 0;
    *text = '\0';
    for (int field = 0; field < N_ASSUMED && used < bytes; field++) {
        char value[QDR_MAX_NAME + 2] = "";
        if (!(entry->used >> field & 1)) continue;
        if (with_values) value_text(entry, field, value, sizeof value);
        snprintf(text + used, bytes - used, "%s%s%s", used ? ", " : "", specs[field].name, value);
        used += strlen(text + used);
    }
    return text;
}
