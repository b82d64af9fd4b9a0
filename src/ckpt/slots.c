/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a file's names is which tensor of a map. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/convert.h"

static int n_parts(const ckpt_slots *slots, const ckpt_rule *rule) { return slots->is_ours ? 1 : rule->n_theirs; }

static const char *pattern_of(const ckpt_slots *slots, const ckpt_rule *rule, int part)
{
    return slots->is_ours ? rule->ours : rule->theirs[part];
}

static int64_t n_blocks(const ckpt_slots *slots, const ckpt_rule *rule)
{
    return ckpt_has_block(rule->ours) ? slots->n_blocks : 1;
}

/* ---- patterns ---- */

/* A text that names may have; of those with the map's prefix there are two. */
typedef struct ckpt_pattern {
    int rule, part; /* rule -2: it is ignored */
    int lacks_prefix; /* -1: there is none */
} ckpt_pattern;

/* The first of equal patterns counts. */
static int add_pattern(ckpt_slots *slots, const char *text, ckpt_pattern pattern, failure *why)
{
    const size_t n = json_object_size(slots->numbers);
    if (json_object_get(slots->numbers, text)) return EXIT_OK;
    slots->patterns[n] = pattern;
    if (json_object_set_new(slots->numbers, text, json_integer((json_int_t)n)))
        fail_memory(why, "ckpt convert: out of memory for the names of a map");
    return why->code;
}

static int add_theirs(ckpt_slots *slots, const char *text, ckpt_pattern pattern, failure *why)
{
    const char *prefix = slots->map->prefix;
    const size_t n = strlen(prefix);
    const int has_prefix = n && strncmp(text, prefix, n) == 0;
    pattern.lacks_prefix = has_prefix ? 0 : -1;
    if (add_pattern(slots, text, pattern, why) || !has_prefix) return why->code;
    pattern.lacks_prefix = 1;
    return add_pattern(slots, text + n, pattern, why);
}

static int list_patterns(ckpt_slots *slots, failure *why)
{
    const ckpt_map *map = slots->map;
    const size_t most = 2 * ((size_t)map->n_rules * CKPT_PARTS + (size_t)map->n_ignored) + 1;
    slots->numbers = json_object();
    slots->patterns = calloc(most, sizeof *slots->patterns);
    if (!slots->numbers || !slots->patterns)
        return fail_memory(why, "ckpt convert: out of memory for the names of a map");
    for (int rule = 0; rule < map->n_rules; rule++)
        for (int part = 0; part < n_parts(slots, &map->rules[rule]) && !why->code; part++) {
            const ckpt_pattern pattern = {.rule = rule, .part = part, .lacks_prefix = -1};
            const char *text = pattern_of(slots, &map->rules[rule], part);
            (slots->is_ours ? add_pattern : add_theirs)(slots, text, pattern, why);
        }
    for (int i = 0; i < map->n_ignored && !slots->is_ours && !why->code; i++)
        add_theirs(slots, map->ignored[i], (ckpt_pattern){.rule = -2}, why);
    return why->code;
}

/* Where a name belongs. */
typedef struct place {
    int rule, part; /* rule -1: nowhere; -2: it is ignored */
    int64_t block;
} place;

/* The number of a pattern; INT_MAX: there is none. */
static int number_of(const ckpt_slots *slots, const char *text)
{
    const json_t *number = json_object_get(slots->numbers, text);
    return number ? (int)json_integer_value(number) : INT_MAX;
}

/* The first pattern that is the name, or the name with {i} for one of its numbers: at most nine digits, without leading
 * zeros. Longer names than a pattern has belong nowhere. */
static place find_place(ckpt_slots *slots, const char *name)
{
    enum { MOST_DIGITS = 9 };
    char text[CKPT_PATTERN_BYTES + MOST_DIGITS];
    place at = {.rule = -1};
    const size_t length = strlen(name);
    int best = ckpt_has_block(name) ? INT_MAX : number_of(slots, name);
    if (length >= sizeof text) return at;
    for (size_t begin = strcspn(name, "0123456789"), n; begin < length;
         begin += n + strcspn(name + begin + n, "0123456789")) {
        n = strspn(name + begin, "0123456789");
        if (n > MOST_DIGITS || (n > 1 && name[begin] == '0')) continue;
        snprintf(text, sizeof text, "%.*s{i}%s", (int)begin, name, name + begin + n);
        const int number = number_of(slots, text);
        if (number >= best) continue;
        best = number;
        at.block = strtoll(name + begin, NULL, 10);
    }
    if (best == INT_MAX) return at;
    const ckpt_pattern *pattern = &slots->patterns[best];
    if (pattern->lacks_prefix >= 0 && pattern->rule >= 0) slots->lacks_prefix = pattern->lacks_prefix;
    at.rule = pattern->rule;
    at.part = pattern->part;
    return at;
}

/* ---- refusals ---- */

static int fail_unknown(const ckpt_slots *slots, const place *places, failure *why)
{
    ckpt_names unknown = {.n = 0};
    for (int i = 0; i < slots->n_names; i++)
        if (places[i].rule == -1) ckpt_names_add(&unknown, slots->names[i]);
    return fail(why, EXIT_USAGE, "%.160s: the map does not know %s: add %s to its %s", ckpt_show(slots->path).text,
                ckpt_names_end(&unknown), unknown.n == 1 ? "this name" : "these names",
                slots->is_ours ? "rules" : "'rules', or to 'ignore' to drop them");
}

static int fail_missing(const ckpt_slots *slots, const ckpt_rule *rule, int part, int64_t block, failure *why)
{
    char *name = ckpt_expand(pattern_of(slots, rule, part), block);
    char *other = ckpt_expand(slots->is_ours ? rule->theirs[0] : rule->ours, block);
    fail(why, EXIT_USAGE, "%s lacks %s, without which there is no %s; use a whole file, or a map that says 'optional'",
         ckpt_show(slots->path).text, ckpt_show(name ? name : "").text, ckpt_show(other ? other : "").text);
    free(name);
    free(other);
    return why->code;
}

/* ---- assigning ---- */

static int make_table(ckpt_slots *slots, failure *why)
{
    int64_t n = 0;
    slots->offsets = calloc((size_t)slots->map->n_rules + 1, sizeof *slots->offsets);
    for (int i = 0; slots->offsets && i < slots->map->n_rules; i++) {
        const ckpt_rule *rule = &slots->map->rules[i];
        slots->offsets[i] = n;
        n += n_blocks(slots, rule) * n_parts(slots, rule);
    }
    slots->at = slots->offsets ? malloc((size_t)(n + 1) * sizeof *slots->at) : NULL;
    if (!slots->at) return fail_memory(why, "ckpt convert: out of memory for %lld names", (long long)n);
    for (int64_t i = 0; i < n; i++) slots->at[i] = -1;
    return EXIT_OK;
}

static int *slot_of(const ckpt_slots *slots, int rule, int64_t block)
{
    return slots->at + slots->offsets[rule] + block * n_parts(slots, &slots->map->rules[rule]);
}

static int fill_table(ckpt_slots *slots, const place *places, failure *why)
{
    for (int i = 0; i < slots->n_names; i++) {
        if (places[i].rule < 0) continue;
        int *slot = slot_of(slots, places[i].rule, places[i].block) + places[i].part;
        if (*slot >= 0)
            return fail(why, EXIT_USAGE, "%s: %s and %s are the same tensor; leave out one of them",
                        ckpt_show(slots->path).text, ckpt_show(slots->names[*slot]).text,
                        ckpt_show(slots->names[i]).text);
        *slot = i;
    }
    return EXIT_OK;
}

/* A number of blocks that is larger than the number of tensors leaves some of them out: the first that lacks any. */
static int count_blocks(ckpt_slots *slots, const place *places, failure *why)
{
    for (int i = 0; i < slots->n_names; i++) {
        const place *at = &places[i];
        if (at->rule < 0 || !ckpt_has_block(slots->map->rules[at->rule].ours)) continue;
        if (at->block >= slots->n_names)
            return fail(why, EXIT_USAGE, "%s has %s, but only %d tensors in all; blocks are counted from 0",
                        ckpt_show(slots->path).text, ckpt_show(slots->names[i]).text, slots->n_names);
        if (at->block >= slots->n_blocks) slots->n_blocks = at->block + 1;
    }
    return EXIT_OK;
}

static int visit_one(const ckpt_slots *slots, int rule_number, int64_t block, ckpt_each each, void *user, failure *why)
{
    const ckpt_rule *rule = &slots->map->rules[rule_number];
    const int *numbers = slot_of(slots, rule_number, block), n = n_parts(slots, rule);
    int n_there = 0, missing = 0;
    for (int part = n; part-- > 0;) {
        n_there += numbers[part] >= 0;
        if (numbers[part] < 0) missing = part;
    }
    if (n_there == n) return each(rule, block, numbers, user, why);
    if (n_there == 0 && rule->is_optional) return EXIT_OK;
    return fail_missing(slots, rule, missing, block, why);
}

/* Rules of blocks that follow each other are visited together, block by block. */
static int visit(const ckpt_slots *slots, ckpt_each each, void *user, failure *why)
{
    const ckpt_map *map = slots->map;
    for (int first = 0, end; first < map->n_rules && !why->code; first = end) {
        const int is_of_block = ckpt_has_block(map->rules[first].ours);
        for (end = first + 1; is_of_block && end < map->n_rules && ckpt_has_block(map->rules[end].ours);) end++;
        for (int64_t block = 0; block < n_blocks(slots, &map->rules[first]); block++)
            for (int rule = first; rule < end; rule++)
                if (visit_one(slots, rule, block, each, user, why)) return why->code;
    }
    return why->code;
}

int ckpt_assign(ckpt_slots *slots, ckpt_each each, void *user, failure *why)
{
    place *places = calloc((size_t)slots->n_names + 1, sizeof *places);
    int is_unknown = 0;
    if (!places) return fail_memory(why, "ckpt convert: out of memory for %d names", slots->n_names);
    if (list_patterns(slots, why)) slots->n_names = 0;
    for (int i = 0; i < slots->n_names; i++) {
        places[i] = find_place(slots, slots->names[i]);
        is_unknown |= places[i].rule == -1;
        if (places[i].rule == -2) ckpt_names_add(&slots->ignored, slots->names[i]);
    }
    if (is_unknown) fail_unknown(slots, places, why);
    if (!why->code && !count_blocks(slots, places, why) && !make_table(slots, why) && !fill_table(slots, places, why))
        visit(slots, each, user, why);
    free(places);
    free(slots->at);
    free(slots->offsets);
    free(slots->patterns);
    json_decref(slots->numbers);
    slots->at = NULL;
    slots->offsets = NULL;
    slots->patterns = NULL;
    slots->numbers = NULL;
    return why->code;
}
