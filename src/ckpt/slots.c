/* SPDX-License-Identifier: Apache-2.0 */
/* Which of a file's names is which tensor of a map. */
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

static int matches(const ckpt_slots *slots, const char *pattern, const char *name, int64_t *block, int *has_prefix)
{
    if (slots->is_ours) return ckpt_matches(pattern, name, block);
    return ckpt_matches_theirs(slots->map, pattern, name, block, has_prefix);
}

/* Where a name belongs. */
typedef struct place {
    int rule, part; /* rule -1: nowhere; -2: it is ignored */
    int64_t block;
} place;

static place find_place(ckpt_slots *slots, const char *name)
{
    const ckpt_map *map = slots->map;
    place at = {.rule = 0};
    for (; at.rule < map->n_rules; at.rule++)
        for (at.part = 0; at.part < n_parts(slots, &map->rules[at.rule]); at.part++) {
            int has_prefix = -1;
            const char *pattern = pattern_of(slots, &map->rules[at.rule], at.part);
            if (!matches(slots, pattern, name, &at.block, &has_prefix)) continue;
            if (has_prefix >= 0) slots->lacks_prefix = !has_prefix;
            return at;
        }
    for (int i = 0; i < map->n_ignored && !slots->is_ours; i++)
        if (ckpt_matches_theirs(map, map->ignored[i], name, &at.block, NULL)) return (place){.rule = -2};
    return (place){.rule = -1};
}

/* ---- refusals ---- */

/* Names the first five. */
static int fail_unknown(const ckpt_slots *slots, const place *places, failure *why)
{
    enum { SHOWN = 5, NAME_COLUMNS = 60 };
    char list[SHOWN * (NAME_COLUMNS + 8)] = "", more[64] = "";
    int n = 0;
    for (int i = 0; i < slots->n_names; i++) {
        const size_t used = strlen(list);
        if (places[i].rule != -1) continue;
        if (n++ < SHOWN)
            snprintf(list + used, sizeof list - used, "%s%.*s", used ? ", " : "", NAME_COLUMNS,
                     ckpt_show(slots->names[i]).text);
    }
    if (n > SHOWN) snprintf(more, sizeof more, " and %d more", n - SHOWN);
    return fail(why, EXIT_USAGE, "%.160s: the map does not know %s%s: add %s to its %s", ckpt_show(slots->path).text,
                list, more, n == 1 ? "this name" : "these names",
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
    if (!slots->at) return fail(why, EXIT_NOTHING_FITS, "ckpt convert: out of memory for %lld names", (long long)n);
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
    if (!places) return fail(why, EXIT_NOTHING_FITS, "ckpt convert: out of memory for %d names", slots->n_names);
    for (int i = 0; i < slots->n_names; i++) {
        places[i] = find_place(slots, slots->names[i]);
        is_unknown |= places[i].rule == -1;
    }
    if (is_unknown) fail_unknown(slots, places, why);
    if (!why->code && !count_blocks(slots, places, why) && !make_table(slots, why) && !fill_table(slots, places, why))
        visit(slots, each, user, why);
    free(places);
    free(slots->at);
    free(slots->offsets);
    slots->at = NULL;
    slots->offsets = NULL;
    return why->code;
}
