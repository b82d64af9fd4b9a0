/* SPDX-License-Identifier: Apache-2.0 */
/* Maps: which tensors of another program are which of ours. See docs/checkpoint.md. */
#include <ctype.h>
#include <quadrille_private/data.h>
#include <quadrille_private/input.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/convert.h"
#include "common/files.h"

#define BLOCK "{i}"
enum { BLOCK_BYTES = sizeof BLOCK - 1, MAX_MAP_BYTES = 1 << 20 };

/* ---- patterns ---- */

int ckpt_has_block(const char *pattern) { return strstr(pattern, BLOCK) != NULL; }

char *ckpt_expand(const char *pattern, int64_t block)
{
    const char *hole = strstr(pattern, BLOCK);
    const int before = hole ? (int)(hole - pattern) : (int)strlen(pattern);
    const size_t bytes = strlen(pattern) + 24;
    char *name = malloc(bytes);
    if (name && hole) snprintf(name, bytes, "%.*s%lld%s", before, pattern, (long long)block, hole + BLOCK_BYTES);
    if (name && !hole) snprintf(name, bytes, "%s", pattern);
    return name;
}

/* ---- files ---- */

const char *ckpt_map_of(const char *model_type)
{
    static const char *const maps[] = {"cohere2", "gemma2", "glm4", "gpt2",      "gpt_neox",
                                       "llama",   "olmo2",  "phi3", "starcoder2"};
    static const char *const others[][2] = {{"gemma", "llama"},   {"gemma3_text", "gemma2"}, {"granite", "llama"},
                                            {"mistral", "llama"}, {"olmo3", "olmo2"},        {"qwen2", "llama"},
                                            {"qwen3", "llama"},   {"smollm3", "llama"}};
    for (size_t i = 0; i < sizeof maps / sizeof *maps; i++)
        if (strcmp(maps[i], model_type) == 0) return maps[i];
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strcmp(others[i][0], model_type) == 0) return others[i][1];
    return NULL;
}

int ckpt_read_json(const char *path, size_t max_bytes, json_t **document, failure *why)
{
    char *text;
    size_t n_bytes;
    if (fail_loading(why, qdr_input_read_text(path, max_bytes, &text, &n_bytes))) return why->code;
    fail_loading(why, qdr_json_read(text, n_bytes, path, document));
    free(text);
    return why->code;
}

/* ---- rules ---- */

typedef struct reading {
    char path[200]; /* as messages show it */
    ckpt_map *map;
    failure *why;
} reading;

static int fail_map(const reading *r, const char *what, const char *about)
{
    return fail(r->why, EXIT_USAGE, "%s: %s%s%s", r->path, what, *about ? ": " : "", ckpt_show(about).text);
}

/* Refuses a member of an object that is not one of these. */
static int check_keys(const reading *r, json_t *object, const char *const *known, int n_known)
{
    const char *key;
    json_t *value;
    json_object_foreach(object, key, value)
    {
        char meant[SUGGESTION_BYTES];
        int is_known = 0;
        for (int i = 0; i < n_known; i++) is_known |= strcmp(key, known[i]) == 0;
        if (is_known) continue;
        suggest(key, known, n_known, meant, sizeof meant);
        return fail(r->why, EXIT_USAGE, "%s: unknown key '%s'%s; see quadrille ckpt convert --help", r->path,
                    ckpt_show(key).text, meant);
    }
    return EXIT_OK;
}

/* A name with at most one {i}, not empty. */
static int take_name(const reading *r, json_t *value, const char *what, const char **name)
{
    const char *text = json_string_value(value);
    *name = text ? text : "";
    if (!**name) return fail_map(r, "a name, a text that is not empty, is needed", what);
    const char *hole = strstr(*name, BLOCK);
    if (hole && strstr(hole + 1, BLOCK)) return fail_map(r, "a name has " BLOCK " twice; once is enough", *name);
    if (hole && hole > *name && isdigit((unsigned char)hole[-1]))
        return fail_map(r, "a digit stands before " BLOCK ", whose number it would be part of", *name);
    if (strlen(*name) >= CKPT_PATTERN_BYTES) return fail_map(r, "a name is too long", *name);
    return EXIT_OK;
}

static int take_flag(const reading *r, json_t *object, const char *key, int *flag)
{
    json_t *value = json_object_get(object, key);
    if (value && !json_is_boolean(value)) return fail_map(r, "true or false is needed", key);
    *flag = json_is_true(value);
    return EXIT_OK;
}

static int take_by_head(const reading *r, json_t *object, ckpt_rule *rule)
{
    const json_t *value = json_object_get(object, "by_head");
    rule->by_head = (int)json_integer_value(value);
    if (value && (json_integer_value(value) < 2 || json_integer_value(value) > CKPT_PARTS))
        return fail(r->why, EXIT_USAGE, "%s: the rule of %s: 'by_head' is a whole number from 2 to %d", r->path,
                    ckpt_show(rule->ours).text, CKPT_PARTS);
    if (value && (rule->n_theirs > 1 || rule->is_transposed))
        return fail_map(r, "'by_head' needs a rule with one name of theirs, not transposed", rule->ours);
    r->map->needs_heads |= rule->by_head;
    return EXIT_OK;
}

static int take_theirs(const reading *r, json_t *list, ckpt_rule *rule)
{
    const size_t n = json_array_size(list);
    if (n < 1 || n > CKPT_PARTS)
        return fail(r->why, EXIT_USAGE, "%s: the rule of %s: 'theirs' is a list of 1 to %d names", r->path,
                    ckpt_show(rule->ours).text, CKPT_PARTS);
    for (; rule->n_theirs < (int)n; rule->n_theirs++) {
        const char **name = &rule->theirs[rule->n_theirs];
        if (take_name(r, json_array_get(list, (size_t)rule->n_theirs), "theirs", name)) return r->why->code;
        if (ckpt_has_block(*name) != ckpt_has_block(rule->ours))
            return fail(r->why, EXIT_USAGE,
                        "%s: %s and %s are one tensor, but only one of the names has " BLOCK "; give both the block's "
                        "number, or neither",
                        r->path, ckpt_show(rule->ours).text, ckpt_show(*name).text);
    }
    return EXIT_OK;
}

static int take_rule(const reading *r, json_t *object, ckpt_rule *rule)
{
    static const char *const keys[] = {"ours", "theirs", "transpose", "by_head", "optional", "first", "tied"};
    json_t *first = json_object_get(object, "first"), *tied = json_object_get(object, "tied");
    if (!json_is_object(object)) return fail_map(r, "a rule is an object with 'ours' and 'theirs'", "");
    if (check_keys(r, object, keys, sizeof keys / sizeof *keys) ||
        take_name(r, json_object_get(object, "ours"), "ours", &rule->ours) ||
        take_theirs(r, json_object_get(object, "theirs"), rule) ||
        take_flag(r, object, "transpose", &rule->is_transposed) || take_by_head(r, object, rule) ||
        take_flag(r, object, "optional", &rule->is_optional) || (first && take_name(r, first, "first", &rule->first)) ||
        (tied && take_name(r, tied, "tied", &rule->tied)))
        return r->why->code;
    if (rule->tied && rule->n_theirs > 1) return fail_map(r, "'tied' needs a rule with one name of theirs", rule->ours);
    if (rule->first && rule->n_theirs < 2)
        return fail_map(r, "'first' needs a rule with several names of theirs", rule->ours);
    return EXIT_OK;
}

static int take_ignored(const reading *r, json_t *list)
{
    if (list && !json_is_array(list)) return fail_map(r, "'ignore' is a list of names", "");
    r->map->ignored = calloc(json_array_size(list) + 1, sizeof *r->map->ignored);
    if (!r->map->ignored) return fail_memory(r->why, "%s: out of memory", r->path);
    for (; r->map->n_ignored < (int)json_array_size(list); r->map->n_ignored++)
        if (take_name(r, json_array_get(list, (size_t)r->map->n_ignored), "ignore",
                      &r->map->ignored[r->map->n_ignored]))
            return r->why->code;
    return EXIT_OK;
}

static int by_text(const void *a, const void *b) { return strcmp(*(const char *const *)a, *(const char *const *)b); }

/* Refuses names that occur twice on one side. */
static int check_unique(const reading *r, int is_ours)
{
    const ckpt_map *map = r->map;
    const char **names = calloc((size_t)map->n_rules * CKPT_PARTS + (size_t)map->n_ignored + 1, sizeof *names);
    size_t n = 0;
    if (!names) return fail_memory(r->why, "%s: out of memory", r->path);
    for (int i = 0; i < map->n_rules; i++) {
        const ckpt_rule *rule = &map->rules[i];
        if (is_ours) names[n++] = rule->ours;
        for (int part = 0; !is_ours && part < rule->n_theirs; part++) names[n++] = rule->theirs[part];
    }
    for (int i = 0; !is_ours && i < map->n_ignored; i++) names[n++] = map->ignored[i];
    qsort(names, n, sizeof *names, by_text);
    for (size_t i = 1; i < n && !r->why->code; i++)
        if (strcmp(names[i - 1], names[i]) == 0) fail_map(r, "a name occurs twice; leave out one of them", names[i]);
    free(names);
    return r->why->code;
}

/* A rule in the place of that for the same tensor; without names of theirs it only takes that away. A new one comes
 * behind those of blocks if it is one of them, else at the end. Returns 0, or -1: out of memory. */
static int put_rule(json_t *rules, json_t *own)
{
    const char *ours = json_string_value(json_object_get(own, "ours"));
    const json_t *theirs = json_object_get(own, "theirs");
    size_t end = 0;
    for (size_t i = 0; ours && i < json_array_size(rules); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(rules, i), "ours"));
        if (name && strcmp(name, ours) == 0)
            return json_array_size(theirs) ? json_array_set(rules, i, own) : json_array_remove(rules, i);
        if (name && ckpt_has_block(name)) end = i + 1;
    }
    return ours && ckpt_has_block(ours) ? json_array_insert(rules, end, own) : json_array_append(rules, own);
}

static int find_map(const char *option, const char *name_or_path, char path[FILES_PATH_BYTES], failure *why)
{
    const char *usual = ckpt_map_of(name_or_path);
    if (qdr_data_find("checkpoints", usual ? usual : name_or_path, path, FILES_PATH_BYTES) == QDR_OK) return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "%s '%s': there is no such map; use a model_type, such as gpt2, llama or qwen3, or a file NAME.json",
                option, ckpt_show(name_or_path).text);
}

/* What a map does not say itself it has from its base. */
static int take_base(const reading *r, json_t *root)
{
    json_t *name = json_object_get(root, "base"), *own = json_object_get(root, "rules"), *base = NULL;
    char path[FILES_PATH_BYTES], what[sizeof r->path + 8];
    int has_failed = 0;
    if (!name) return EXIT_OK;
    if (!json_is_string(name)) return fail_map(r, "'base' is the name of a map", "");
    snprintf(what, sizeof what, "%s: base", r->path);
    if (find_map(what, json_string_value(name), path, r->why) || ckpt_read_json(path, MAX_MAP_BYTES, &base, r->why))
        return r->why->code;
    json_t *rules = json_object_get(base, "rules");
    if (!json_is_array(rules) || json_object_get(base, "base"))
        fail_map(r, "the base is no map with all its rules", json_string_value(name));
    for (size_t i = 0; i < json_array_size(own); i++) has_failed |= put_rule(rules, json_array_get(own, i));
    has_failed |= json_object_set(root, "rules", rules) | json_object_update_missing(root, base);
    json_decref(base);
    return r->why->code || !has_failed ? r->why->code : fail_memory(r->why, "%s: out of memory", r->path);
}

static int take_map(const reading *r, json_t *root)
{
    static const char *const keys[] = {"source", "base", "prefix", "ignore", "rules"};
    ckpt_map *map = r->map;
    if (!json_is_object(root)) return fail_map(r, "a map is an object with 'rules'", "");
    if (check_keys(r, root, keys, sizeof keys / sizeof *keys)) return r->why->code;
    if (!json_array_size(json_object_get(root, "rules")))
        return fail_map(r, "'rules', a list of rules, is missing", "");
    if (take_base(r, root)) return r->why->code;
    json_t *rules = json_object_get(root, "rules"), *prefix = json_object_get(root, "prefix");
    if (prefix && !json_is_string(prefix)) return fail_map(r, "'prefix' is a text", "");
    map->prefix = prefix ? json_string_value(prefix) : "";
    map->rules = calloc(json_array_size(rules), sizeof *map->rules);
    if (!map->rules) return fail_memory(r->why, "%s: out of memory", r->path);
    for (; map->n_rules < (int)json_array_size(rules); map->n_rules++)
        if (take_rule(r, json_array_get(rules, (size_t)map->n_rules), &map->rules[map->n_rules])) return r->why->code;
    return take_ignored(r, json_object_get(root, "ignore")) || check_unique(r, 0) || check_unique(r, 1);
}

/* ---- public functions ---- */

int ckpt_map_read(const char *option, const char *name_or_path, ckpt_map *map, failure *why)
{
    char path[FILES_PATH_BYTES];
    reading r = {.map = map, .why = why};
    *map = (ckpt_map){.prefix = ""};
    if (find_map(option, name_or_path, path, why)) return why->code;
    snprintf(r.path, sizeof r.path, "%s", ckpt_show(path).text);
    if (!ckpt_read_json(path, MAX_MAP_BYTES, &map->document, why)) take_map(&r, map->document);
    return why->code;
}

void ckpt_map_free(ckpt_map *map)
{
    json_decref(map->document);
    free(map->rules);
    free(map->ignored);
    *map = (ckpt_map){.prefix = ""};
}
