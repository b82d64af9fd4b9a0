/* SPDX-License-Identifier: Apache-2.0 */
/* Levels of plans: on the command line and in words. */
#ifndef QUADRILLE_SRC_COMMON_LEVELS_H
#define QUADRILLE_SRC_COMMON_LEVELS_H

#include <quadrille/plan.h>

#include "common/failure.h"

/* Numbers of ranks over which gradients and optimizer state are partitioned; -1: z·d, 0: z; less: as many as share a
 * unit, or, after levels_find_links(), QDR_PARTS_OF_LINK(). */
typedef struct levels {
    int gradient, optimizer;
    int is_zero3; /* weights are partitioned over the same ranks: d is 1 */
    int is_any; /* the best of all: the others are 0 */
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
/* Makes units of these the machine's links: those whose name is the unit's, or the next larger one's; those that join a
 * node. */
void levels_find_links(const qdr_machine *machine, levels *parts);
/* What they mean on the plan's grid. machine: as for levels_find_links(), before. */
void plan_set_levels(const levels *parts, const qdr_machine *machine, qdr_plan *plan);
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
