/* SPDX-License-Identifier: Apache-2.0 */
/* The groups of ranks that share weights, gradients and optimizer state, and which links they cross. */
#include <string.h>

#include "topo/topo.h"

static const struct {
    const char *name, *use, *when;
} levels_of[TOPO_N_LEVELS] = {
    [TOPO_LEVEL_Z] = {"z", "weights gathered in each pass, gradients summed in each micro-batch", "in each pass"},
    [TOPO_LEVEL_NEAR] = {"d near", "gradients summed in each micro-batch, weights returned once a step",
                         "in each micro-batch"},
    [TOPO_LEVEL_FAR] = {"d far", "gradients summed and weights returned once a step", "once a step"},
    [TOPO_LEVEL_COPIES] = {"d copies", "gradients summed once a step", "once a step"},
};

const char *topo_level_name(int level) { return levels_of[level].name; }
const char *topo_level_use(int level) { return levels_of[level].use; }

void topo_levels_text(const topo_levels *l, char *text, size_t capacity)
{
    snprintf(text, capacity, "levels %d,%d: weights in %d part%s, gradients in %d, optimizer state in %d",
             l->gradient_parts, l->optimizer_parts, l->maps[TOPO_LEVEL_Z].n_ranks,
             PLURAL(l->maps[TOPO_LEVEL_Z].n_ranks), l->gradient_parts, l->optimizer_parts);
}

/* ---- what the parts mean on this grid ---- */

int topo_cut(const qdr_topo *topo, const levels *asked, topo_layout *layout, failure *why)
{
    const int sizes[QDR_N_AXES] = {layout->size.x, layout->size.y, layout->size.z, layout->size.d};
    qdr_topo_levels found = {QDR_INIT(qdr_topo_levels)};
    if (asked->is_zero3 && layout->size.d > 1)
        return fail(why, EXIT_USAGE, "topo: --levels zero3 has d = 1, but --grid says d = %d", layout->size.d);
    const char *words = asked->is_zero3 ? "none" : asked->words;
    if (fail_status(why, qdr_topo_levels_read(topo, sizes, layout->order, layout->places, words, &found)))
        return why->code;
    layout->levels.gradient_parts = found.gradient_parts;
    layout->levels.optimizer_parts = found.optimizer_parts;
    snprintf(layout->levels.note, sizeof layout->levels.note, "%s", found.note);
    return EXIT_OK;
}

/* ---- links ---- */

/* The product of the axes that are faster than d. */
static int stride_of_d(grid_size size, const char *order)
{
    const int sizes[QDR_N_AXES] = {size.x, size.y, size.z, size.d};
    int stride = 1;
    for (; *order != 'd'; order++) stride *= sizes[strchr("xyzd", *order) - "xyzd"];
    return stride;
}

/* A level of d is an axis of another grid of the same ranks, whose axes are d's levels and what is faster or slower
 * than d. */
static qdr_status map_levels(const qdr_topo *topo, const topo_layout *layout, const char *order, const topo_levels *cut,
                             qdr_topo_axis maps[TOPO_N_LEVELS])
{
    const grid_size size = layout->size;
    const int near = cut->gradient_parts / size.z, far = cut->optimizer_parts / cut->gradient_parts;
    const int copies = size.z * size.d / cut->optimizer_parts, faster = stride_of_d(size, order);
    const int slower = layout->n_ranks / faster / size.d;
    const int sizes[3][QDR_N_AXES] = {{size.x, size.y, size.z, size.d},
                                      {faster, near, far, copies * slower},
                                      {faster * near * far, copies, slower, 1}};
    const struct {
        int grid;
        qdr_axis axis;
    } places[TOPO_N_LEVELS] = {[TOPO_LEVEL_Z] = {0, QDR_Z},
                               [TOPO_LEVEL_NEAR] = {1, QDR_Y},
                               [TOPO_LEVEL_FAR] = {1, QDR_Z},
                               [TOPO_LEVEL_COPIES] = {2, QDR_Y}};
    for (int i = 0; i < TOPO_N_LEVELS; i++) {
        const int grid = places[i].grid;
        maps[i].size = sizeof maps[i];
        TRY(qdr_topo_map(topo, sizes[grid], grid ? NULL : order, layout->places, places[i].axis, &maps[i]));
    }
    return QDR_OK;
}

/* ---- levels whose links are slower than those of farther ones ---- */

/* The nearest such level, and of the farther ones that with the fastest links. @return 0: there is none */
static int find_inversion(const qdr_topo_axis maps[TOPO_N_LEVELS], int *slow, int *fast)
{
    for (*slow = 0; *slow < TOPO_N_LEVELS; ++*slow) {
        int best = -1;
        for (int i = *slow + 1; i < TOPO_N_LEVELS; i++)
            if (maps[i].n_ranks > 1 && (best < 0 || maps[i].link < maps[best].link)) best = i;
        *fast = best;
        if (best >= 0 && maps[*slow].n_ranks > 1 && maps[*slow].link > maps[best].link) return 1;
    }
    return 0;
}

/* Whether an order of the axes has no such level. */
static qdr_status try_order(const qdr_topo *topo, const topo_layout *layout, const char *order, int *is_good)
{
    qdr_topo_axis maps[TOPO_N_LEVELS];
    int slow, fast;
    const qdr_status status = map_levels(topo, layout, order, &layout->levels, maps);
    *is_good = status == QDR_OK && !find_inversion(maps, &slow, &fast);
    return status;
}

/* The order in which z and d have changed places, or else the first that is good. "": none is. */
static qdr_status find_order(const qdr_topo *topo, const topo_layout *layout, char order[5])
{
    int is_good = 0;
    memcpy(order, layout->order, 5);
    char *const z = strchr(order, 'z'), *const d = strchr(order, 'd');
    *z = 'd';
    *d = 'z';
    qdr_status status = try_order(topo, layout, order, &is_good);
    for (int i = 0; i < 4 * 4 * 4 * 4 && status == QDR_OK && !is_good; i++) {
        const int axes[] = {i / 64, i / 16 % 4, i / 4 % 4, i % 4};
        int used = 0;
        for (int j = 0; j < 4; j++) {
            order[j] = "xyzd"[axes[j]];
            used |= 1 << axes[j];
        }
        if (used == 15) status = try_order(topo, layout, order, &is_good);
    }
    if (!is_good) order[0] = '\0';
    return status;
}

int topo_map_levels(const qdr_topo *topo, topo_layout *layout, failure *why)
{
    topo_levels *l = &layout->levels;
    char order[5];
    int slow, fast;
    if (fail_status(why, map_levels(topo, layout, layout->order, l, l->maps))) return why->code;
    if (!find_inversion(l->maps, &slow, &fast)) return EXIT_OK;
    if (fail_status(why, find_order(topo, layout, order))) return why->code;
    snprintf(l->warning, sizeof l->warning, "%s, used %s, has slower links (%s) than %s, used %s (%s)",
             levels_of[slow].name, levels_of[slow].when, qdr_link_name(l->maps[slow].link), levels_of[fast].name,
             levels_of[fast].when, qdr_link_name(l->maps[fast].link));
    if (*order)
        snprintf(l->remedy, sizeof l->remedy, "use --order %s, in which no level has slower links than a farther one",
                 order);
    else
        snprintf(l->remedy, sizeof l->remedy,
                 "no order of this grid avoids it; place consecutive ranks on the nearest cores or GPUs");
    return EXIT_OK;
}
