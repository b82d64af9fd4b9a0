/* SPDX-License-Identifier: Apache-2.0 */
/* Levels of plans: on the command line and in words. */
#ifndef QUADRILLE_SRC_COMMON_LEVELS_H
#define QUADRILLE_SRC_COMMON_LEVELS_H

#include <quadrille/plan.h>

#include "common/failure.h"

/* Numbers of ranks over which gradients and optimizer state are partitioned; -1: z·d, 0: z; less: a unit's. */
typedef struct levels {
    int gradient, optimizer;
    int is_zero3; /* weights are partitioned over the same ranks: d is 1 */
    int is_any; /* the best of all: the others are 0 */
    const char *words; /* as given; NULL: not given */
} levels;
/* "GP,OP", each a number, "module", "cache", "numa", "package", "node" or "all"; or "none", "zero1", "zero2",
 * "zero3". */
#define LEVELS_WORDS "zero1|zero2|zero3"
#define LEVELS_HELP                                                                                                    \
    "numbers of ranks that gradients (GP) and optimizer state (OP) are split over, such as 8,all, each a number, "     \
    "module, cache, numa, package, node or all; or none (the default), zero1, zero2, zero3"
int take_levels(const char *value, void *parts, failure *why);
/* The same, or "any". */
int take_levels_or_any(const char *value, void *parts, failure *why);
/* The same; `whole` is the option's value, of which these levels are a part. */
int read_levels(const char *option, const char *whole, const char *text, int allows_any, levels *parts, failure *why);
/* Whether one of them is a unit's. */
int levels_have_units(const levels *parts);
/* What they mean for a search: units are the machine's links whose name is the unit's, or the next larger one's; or
 * those that join a node. */
void levels_search(const levels *parts, const qdr_machine *machine, qdr_search_opts *opts);
/* What they mean on the plan's grid. note: NULL, or receives which units do not fit, and what is taken; "": none. */
enum { LEVELS_NOTE_BYTES = 512 };
void plan_set_levels(const levels *parts, const qdr_machine *machine, qdr_plan *plan, char note[LEVELS_NOTE_BYTES]);
/* The numbers of parts of gradients and optimizer state, none of which is 0. */
levels plan_levels(const qdr_plan *plan);
/* "2,8": these two. */
typedef struct levels_text {
    char text[32];
} levels_text;
levels_text levels_in_words(const qdr_plan *plan);
/* Whether either number is not z. */
int plan_has_levels(const qdr_plan *plan);

#endif
