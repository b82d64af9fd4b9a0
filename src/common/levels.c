/* SPDX-License-Identifier: Apache-2.0 */
/* Levels of plans. */
#include "common/levels.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A number of ranks or "all", ending at `end`. 0: neither. */
static int read_parts(const char *text, const char *end)
{
    char *stop;
    if (end - text == 3 && strncmp(text, "all", 3) == 0) return -1;
    if (*text < '0' || *text > '9') return 0;
    errno = 0;
    const long number = strtol(text, &stop, 10);
    return stop == end && !errno && number <= QDR_MAX_SEARCH_RANKS ? (int)number : 0;
}

int read_levels(const char *option, const char *whole, const char *text, int allows_any, levels *parts, failure *why)
{
    static const struct {
        const char *word;
        levels parts;
    } words[] = {{"none", {0, 0, 0, 0}},
                 {"zero1", {0, -1, 0, 0}},
                 {"zero2", {-1, -1, 0, 0}},
                 {"zero3", {0, 0, 1, 0}},
                 {"any", {0, 0, 0, 1}}};
    for (int i = 0; i < 4 + allows_any; i++) {
        *parts = words[i].parts;
        if (strcmp(text, words[i].word) == 0) return EXIT_OK;
    }
    const char *comma = strchr(text, ',');
    *parts = (levels){0, 0, 0, 0};
    if (comma) {
        parts->gradient = read_parts(text, comma);
        parts->optimizer = read_parts(comma + 1, text + strlen(text));
    }
    if (parts->gradient && parts->optimizer) return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "--%s '%s': levels are the numbers of ranks over which gradients and optimizer state are "
                "partitioned, GP,OP, each a number or all, such as 8,all; or none, zero1, zero2, zero3%s",
                option, whole, allows_any ? ", any" : "");
}

int take_levels(const char *value, void *to, failure *why) { return read_levels("levels", value, value, 0, to, why); }

int take_levels_or_any(const char *value, void *to, failure *why)
{
    return read_levels("levels", value, value, 1, to, why);
}

void plan_set_levels(const levels *parts, qdr_plan *plan)
{
    const int all = plan->z * plan->d;
    plan->gradient_parts = parts->gradient < 0 ? all : parts->gradient;
    plan->optimizer_parts = parts->optimizer < 0 ? all : parts->optimizer;
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
