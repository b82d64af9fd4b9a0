/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille plan`: the question, the answer, and its output. */
#ifndef QUADRILLE_SRC_PLAN_PLAN_H
#define QUADRILLE_SRC_PLAN_PLAN_H

#include "common/planning.h"

/* A grid, and the levels on it; not given: those of the search. */
typedef struct why_not_question {
    grid_size grid; /* x = 0: not given */
    int has_levels;
    levels parts;
} why_not_question;

typedef struct plan_options {
    subject asked;
    qdr_search_opts search;
    levels parts;
    codec_choice codec;
    int layout, recompute, dtype; /* dtype: position in compute_dtypes; -1: not given */
    int is_serial;
    int batch_follows; /* no batch was given: it equals the number of ranks */
    int as_json, as_csv, explains, is_runnable;
    why_not_question why_not;
    const char *svg, *out;
    int pick; /* of the plans, from 1, the one that is written; 0: the best */
} plan_options;

/* A plan with a name: its rank, or the name of a known method. */
typedef struct plan_row {
    char name[16];
    int is_known_method;
    int has_enough; /* enough sequences for all its cells */
    planned_grid planned;
} plan_row;

enum { MAX_KNOWN_METHODS = 6 };

/* What a search has found: numbers, and plans, the fastest first; if none fits, the one that needs least. */
typedef struct found_plans {
    qdr_search_result counts;
    planned_grid best[QDR_MAX_BEST];
    planned_grid least_memory;
} found_plans;

typedef struct plan_answer {
    const plan_options *options;
    const qdr_network *network;
    const qdr_machine *machine;
    qdr_model *model;
    found_plans found;
    int n_rows; /* the best plans, then the known methods */
    plan_row rows[QDR_MAX_BEST + MAX_KNOWN_METHODS];
} plan_answer;

/* What a row lacks in memory: bytes over the limit; 0: it fits. */
double plan_lacks_bytes(const plan_answer *answer, const plan_row *row);

/* Changes that would help if nothing fits. */
enum { MAX_HELPS = 8 };
typedef struct plan_help {
    char words[40]; /* "--recompute full" */
    planned_grid planned; /* a plan that fits with the change; without times */
} plan_help;
typedef struct plan_none {
    qdr_fewest_ranks fewest;
    planned_grid least; /* on the fewest */
    int is_sequence; /* only a shorter sequence helps */
    int n_helps;
    plan_help helps[MAX_HELPS];
} plan_none;

/* ---- search.c ---- */

/* A note on the best plan's levels, as of plan_set_levels(). */
void plan_levels_note(const plan_answer *answer, char note[LEVELS_NOTE_BYTES]);

/* Refuses numbers of parts that suit no grid. With --codec auto:, whose search options have no codecs, each plan has
 * those that pay on it. */
int plan_search_codecs(const plan_answer *answer, const qdr_search_opts *opts, found_plans *found, failure *why);
/* The best plans, and the known methods whether they fit or not, as rows: of methods that do not, the variant that
 * needs least. If nothing fits, only the plan with the least memory; of zero bytes if there is none. */
int plan_find(plan_answer *answer, failure *why);

/* ---- none.c ---- */

/* Fails with EXIT_NOTHING_FITS: what is missing, what fits, what would help. Also prints other output that was
 * requested. */
int plan_nothing_fits(plan_answer *answer, failure *why);

/* ---- print.c ---- */

/* Why the grid of --why-not is not the best. */
int plan_print_why_not(FILE *file, plan_answer *answer, failure *why);
void plan_print_table(const plan_answer *answer);
/* Whether the best plan runs here, or why not, in a sentence. */
void plan_print_runs(const plan_answer *answer);
void plan_print_csv(const plan_answer *answer);
/* The answer if nothing fits, as JSON; `sentence` is the same in words. */
void plan_print_none_json(plan_answer *answer, const plan_none *none, const char *sentence);
/* @return EXIT_FAILED: out of memory */
int plan_print_json(plan_answer *answer, failure *why);

/* ---- draw.c ---- */

/* The best ten plans, and one layer of the first, as SVG; for files_write(). */
void plan_draw(FILE *file, const void *answer, failure *why);

#endif
