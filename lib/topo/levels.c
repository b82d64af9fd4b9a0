/* SPDX-License-Identifier: Apache-2.0 */
/* Levels in words: how many ranks share a part of a machine. Pure functions. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/group.h"
#include "core/order.h"
#include "core/sized.h"
#include "topo/machine.h"

/* From the smallest. */
typedef enum machine_unit {
    UNIT_MODULE,
    UNIT_CACHE,
    UNIT_NUMA,
    UNIT_PACKAGE,
    UNIT_NODE,
    UNIT_ALL,
    N_UNITS
} machine_unit;
static const char *const unit_words[N_UNITS] = {"module", "cache", "numa", "package", "node", "all"};

/* ---- words ---- */

typedef struct word {
    int n; /* a number of parts, at most INT_MAX; -1: z; 0: a unit's */
    machine_unit unit;
} word;

static int read_word(const char *text, size_t n_bytes, word *read)
{
    char *end;
    for (int i = 0; i < N_UNITS; i++) {
        *read = (word){.unit = (machine_unit)i};
        if (strlen(unit_words[i]) == n_bytes && memcmp(text, unit_words[i], n_bytes) == 0) return 1;
    }
    if (*text < '1' || *text > '9') return 0;
    errno = 0;
    const long long number = strtoll(text, &end, 10);
    read->n = errno || number > INT_MAX ? INT_MAX : (int)number;
    return end == text + n_bytes;
}

/* n_ranks: z*d. */
static qdr_status read_words(const char *words, int n_ranks, word read[2])
{
    static const struct {
        const char *text;
        word words[2];
    } methods[] = {{"none", {{.n = -1}, {.n = -1}}},
                   {"zero1", {{.n = -1}, {.unit = UNIT_ALL}}},
                   {"zero2", {{.unit = UNIT_ALL}, {.unit = UNIT_ALL}}}};
    for (int i = 0; i < 3; i++) {
        memcpy(read, methods[i].words, sizeof methods[i].words);
        if (strcmp(words, methods[i].text) == 0) return QDR_OK;
    }
    const char *comma = strchr(words, ',');
    if (!comma || !read_word(words, (size_t)(comma - words), &read[0]) ||
        !read_word(comma + 1, strlen(comma + 1), &read[1]))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "levels: '%.100s' is not known; give parts of gradients and of optimizer state, such as 8,all, "
                        "each a number, module, cache, numa, package, node or all; or none, zero1 or zero2",
                        words);
    if (read[0].n < INT_MAX && read[1].n < INT_MAX) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "levels: '%.100s' are more parts than z*d = %d; use a number that divides it",
                    words, n_ranks);
}

/* ---- units ---- */

typedef struct level_walk {
    const qdr_topo *topo;
    const qdr_topo_place *places;
    int z, d, n_ranks;
    int strides[QDR_N_AXES];
} level_walk;

/* Modules have no numbers: that of their first GPU. */
static int module_of(const qdr_topo *topo, int gpu)
{
    if (!topo || gpu < 0 || gpu >= topo->n_gpus || !*topo->lists->gpus[gpu].module) return -1;
    int first = 0;
    while (strcmp(topo->lists->gpus[first].module, topo->lists->gpus[gpu].module) != 0) first++;
    return first;
}

static int number_of(const level_walk *walk, int rank, machine_unit unit)
{
    const qdr_topo_place *place = &walk->places[rank];
    switch (unit) {
    case UNIT_MODULE: return module_of(walk->topo, place->gpu);
    case UNIT_CACHE: return place->gpu < 0 ? place->cache : -1;
    case UNIT_NUMA: return place->numa;
    case UNIT_PACKAGE: return place->package;
    default: return 0;
    }
}

static int share(const level_walk *walk, int a, int b, machine_unit unit)
{
    return walk->places[a].node == walk->places[b].node && number_of(walk, a, unit) == number_of(walk, b, unit);
}

/* How many ranks that follow one another in (z, d) share a unit. 0: of some rank it is not known; -1: unequally
 * many. */
static int count_sharing(const level_walk *walk, machine_unit unit)
{
    int n = 0;
    for (int rank = 0; rank < walk->n_ranks; rank++)
        if (number_of(walk, rank, unit) < 0) return 0;
    for (int first = 0; first < walk->n_ranks; first++) {
        if (first / walk->strides[QDR_Z] % walk->z || first / walk->strides[QDR_D] % walk->d) continue;
        int n_run = 0, last = first;
        for (int cell = 0; cell < walk->z * walk->d; cell++) {
            const int rank = first + cell % walk->z * walk->strides[QDR_Z] + cell / walk->z * walk->strides[QDR_D];
            if (!share(walk, last, rank, unit)) {
                if (n && n != n_run) return -1;
                n = n_run;
                n_run = 0;
            }
            last = rank;
            n_run++;
        }
        if (n && n != n_run) return -1;
        n = n_run;
    }
    return n;
}

/* The parts that a word means, multiples of `inner` if they are a unit's; a note, if that is not the word's own. */
static int find_parts(const level_walk *walk, const word *asked, int inner, const char *what, qdr_topo_levels *levels)
{
    const int all = walk->z * walk->d;
    int parts = 0, n_first = 0;
    machine_unit taken = asked->unit;
    if (asked->n) return asked->n > 0 ? asked->n : walk->z;
    for (; taken < UNIT_ALL; taken++) {
        parts = count_sharing(walk, taken);
        if (taken == asked->unit) n_first = parts;
        if (parts > 0 && parts % inner == 0 && all % parts == 0) break;
    }
    if (taken == UNIT_ALL) parts = all;
    if (taken == asked->unit) return parts;
    char why[128];
    if (n_first > 0)
        snprintf(why, sizeof why, "%d in each, no multiple of %d that divides z*d = %d", n_first, inner, all);
    else
        snprintf(why, sizeof why, n_first < 0 ? "unequally many ranks" : "unknown which ranks share one");
    const size_t used = strlen(levels->note);
    snprintf(levels->note + used, sizeof levels->note - used, "%s'%s' does not fit %s (%s): '%s' is taken, %d part%s",
             used ? "; " : "", unit_words[asked->unit], what, why, unit_words[taken], parts, parts == 1 ? "" : "s");
    return parts;
}

qdr_status qdr_topo_levels_read(const qdr_topo *topo, const int sizes[QDR_N_AXES], const char *order,
                                const qdr_topo_place *places, const char *words, qdr_topo_levels *levels)
{
    level_walk walk = {.topo = topo, .places = places};
    qdr_topo_levels made = {0};
    qdri_levels nested;
    word read[2];
    QDR_TRY(QDRI_CLEAR(qdr_topo_levels, levels));
    if (!words) return QDR_FAIL(QDR_ERR_ARGUMENT, "levels: the words are NULL; pass some, such as 8,all");
    QDR_TRY(qdri_topo_check_grid(sizes, order, places, &walk.n_ranks));
    QDR_TRY(read_words(words, sizes[QDR_Z] * sizes[QDR_D], read));
    if (!order) order = QDRI_USUAL_ORDER;
    for (int i = 0, stride = 1; i < QDR_N_AXES; stride *= sizes[qdri_axis_of(order[i++])])
        walk.strides[qdri_axis_of(order[i])] = stride;
    walk.z = sizes[QDR_Z];
    walk.d = sizes[QDR_D];
    made.gradient_parts = find_parts(&walk, &read[0], walk.z, "gradients", &made);
    made.optimizer_parts = find_parts(&walk, &read[1], made.gradient_parts, "optimizer state", &made);
    QDR_TRY(qdri_levels_read("levels", walk.z, walk.d, made.gradient_parts, made.optimizer_parts, &nested));
    QDRI_GIVE(qdr_topo_levels, levels, &made);
    return QDR_OK;
}
