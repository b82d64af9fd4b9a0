/* SPDX-License-Identifier: Apache-2.0 */
/* Levels of plans. */
#include "common/levels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

/* Units of a machine, from the smallest. The number of unit u is UNIT_PARTS(u) until the machine is known. */
static const char *const units[] = {"module", "cache", "numa", "package", "node"};
enum { N_UNITS = sizeof units / sizeof *units };
#define UNIT_PARTS(unit) (-2 - (unit))

/* A number of ranks or a word, ending at `end`. 0: neither. */
static int read_parts(const char *text, const char *end)
{
    char *stop;
    const size_t n_bytes = (size_t)(end - text);
    if (n_bytes == 3 && strncmp(text, "all", 3) == 0) return -1;
    for (int unit = 0; unit < N_UNITS; unit++)
        if (strlen(units[unit]) == n_bytes && strncmp(text, units[unit], n_bytes) == 0) return UNIT_PARTS(unit);
    if (*text < '1' || *text > '9') return 0;
    errno = 0;
    const long number = strtol(text, &stop, 10);
    return stop == end && !errno && number <= QDR_MAX_SEARCH_RANKS ? (int)number : 0;
}

int read_levels(const char *option, const char *whole, const char *text, int allows_any, levels *parts, failure *why)
{
    static const struct {
        const char *word;
        levels parts;
    } words[] = {{"none", {.is_zero3 = 0}},
                 {"zero1", {.optimizer = -1}},
                 {"zero2", {.gradient = -1, .optimizer = -1}},
                 {"zero3", {.is_zero3 = 1}},
                 {"any", {.is_any = 1}}};
    for (int i = 0; i < 4 + allows_any; i++) {
        *parts = words[i].parts;
        parts->words = text;
        if (strcmp(text, words[i].word) == 0) return EXIT_OK;
    }
    const char *comma = strchr(text, ',');
    *parts = (levels){.words = text};
    if (comma) {
        parts->gradient = read_parts(text, comma);
        parts->optimizer = read_parts(comma + 1, text + strlen(text));
    }
    if (parts->gradient && parts->optimizer) return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "--%s '%s': levels are the numbers of ranks over which gradients and optimizer state are "
                "partitioned, GP,OP, each a number, module, cache, numa, package, node or all, such as 8,all; or none, "
                "zero1, zero2, zero3%s",
                option, whole, allows_any ? ", any" : "");
}

int take_levels(const char *value, void *to, failure *why) { return read_levels("levels", value, value, 0, to, why); }

int take_levels_or_any(const char *value, void *to, failure *why)
{
    return read_levels("levels", value, value, 1, to, why);
}

int levels_have_units(const levels *parts) { return parts->gradient < -1 || parts->optimizer < -1; }

/* Whether a link's name has the word, in any case. */
static int is_named(const qdr_machine_link *link, const char *word)
{
    for (const char *at = link->name; *at; at++)
        if (strncasecmp(at, word, strlen(word)) == 0) return 1;
    return 0;
}

static int level_of_unit(const qdr_machine *machine, int unit)
{
    const int last = machine->n_links - 1;
    for (; unit < N_UNITS - 1; unit++)
        for (int level = 0; level < last; level++)
            if (is_named(&machine->links[level], units[unit])) return level;
    int level = 0;
    while (level < last && machine->links[level].n_ranks < machine->ranks_per_node) level++;
    return level;
}

static int is_unit(int number) { return number < -1; }

void levels_search(const levels *parts, const qdr_machine *machine, qdr_search_opts *opts)
{
    const int numbers[] = {parts->gradient, parts->optimizer};
    int *const both[] = {&opts->gradient_parts, &opts->optimizer_parts};
    for (int i = 0; i < 2; i++)
        *both[i] = is_unit(numbers[i]) ? QDR_PARTS_OF_LINK(level_of_unit(machine, UNIT_PARTS(numbers[i]))) : numbers[i];
    opts->any_levels = parts->is_any;
}

static int has_unit(const qdr_machine *machine, int unit)
{
    return unit == N_UNITS - 1 || is_named(&machine->links[level_of_unit(machine, unit)], units[unit]);
}

static void add_note(const qdr_machine *machine, int unit, const char *what, int parts, int taken,
                     char note[LEVELS_NOTE_BYTES])
{
    const size_t used = strlen(note);
    const char *why = has_unit(machine, unit) ? "its ranks are unequally many, or no multiple of those inside"
                                              : "the machine has no links of that name";
    snprintf(note + used, LEVELS_NOTE_BYTES - used, "%s'%s' does not fit %s (%s): %s %s taken, %d part%s",
             used ? "; " : "", units[unit], what, why,
             taken == machine->n_links - 1 ? "all ranks of z and d" : machine->links[taken].name,
             taken == machine->n_links - 1 ? "are" : "is", parts, PLURAL(parts));
}

/* The parts of one number on the plan's grid, multiples of `inner` if they are a unit's. */
static int parts_on(int number, int inner, const char *what, const qdr_machine *machine, const qdr_plan *plan,
                    char note[LEVELS_NOTE_BYTES])
{
    if (number == -1) return plan->z * plan->d;
    if (!is_unit(number)) return number;
    const int unit = UNIT_PARTS(number), first = level_of_unit(machine, unit);
    int level = first, parts = qdr_plan_parts_of_link(plan, machine, level);
    while (level < machine->n_links - 1 && (parts <= 0 || parts % inner))
        parts = qdr_plan_parts_of_link(plan, machine, ++level);
    if (note && (level > first || !has_unit(machine, unit))) add_note(machine, unit, what, parts, level, note);
    return parts;
}

void plan_set_levels(const levels *parts, const qdr_machine *machine, qdr_plan *plan, char note[LEVELS_NOTE_BYTES])
{
    if (note) *note = '\0';
    plan->gradient_parts = parts_on(parts->gradient, plan->z, "gradients", machine, plan, note);
    plan->optimizer_parts = parts_on(parts->optimizer, plan->gradient_parts ? plan->gradient_parts : plan->z,
                                     "optimizer state", machine, plan, note);
}

levels plan_levels(const qdr_plan *plan)
{
    const int gradient = plan->gradient_parts ? plan->gradient_parts : plan->z;
    return (levels){.gradient = gradient, .optimizer = plan->optimizer_parts ? plan->optimizer_parts : gradient};
}

levels_text levels_in_words(const qdr_plan *plan)
{
    const levels parts = plan_levels(plan);
    levels_text words;
    snprintf(words.text, sizeof words.text, "%d,%d", parts.gradient, parts.optimizer);
    return words;
}

int plan_has_levels(const qdr_plan *plan) { return plan_levels(plan).optimizer > plan->z; }
