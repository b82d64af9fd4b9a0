/* SPDX-License-Identifier: Apache-2.0 */
/* The contents of a `quadrille topo` report, gathered before any of it is written as text, JSON or SVG. */
#ifndef QUADRILLE_SRC_TOPO_TOPO_H
#define QUADRILLE_SRC_TOPO_TOPO_H

#include <quadrille/topo.h>
#include <stdio.h>

#include "common/planning.h"

/* What one rank reports about itself. Sent as raw bytes. */
typedef struct topo_rank {
    char host[64], cpus[128], product[96];
    qdr_topo_place place; /* nodes are numbered in the order of their lowest ranks */
    int n_packages, n_numas, n_cores, n_gpus, n_nics; /* of its machine */
} topo_rank;

/* The groups over which weights, gradients and optimizer state are split, and those with copies of the same, from the
 * nearest ranks to the farthest. */
enum { TOPO_LEVEL_Z, TOPO_LEVEL_NEAR, TOPO_LEVEL_FAR, TOPO_LEVEL_COPIES, TOPO_N_LEVELS };
typedef struct topo_levels {
    int gradient_parts, optimizer_parts; /* 0: no levels were given */
    qdr_topo_axis maps[TOPO_N_LEVELS];
    char note[512]; /* which words another one replaces; "": none */
    char warning[200], remedy[160]; /* "": no level has slower links than a farther one */
} topo_levels;

/* A grid placed on nodes like the machine. */
typedef struct topo_layout {
    grid_size size; /* x = 0: no grid was given */
    const char *order;
    int n_ranks, n_nodes, n_on_node; /* n_on_node: the largest number on one node */
    int on_gpus;
    int is_live; /* places are those of the running ranks */
    qdr_topo_place *places;
    qdr_topo_axis axes[QDR_N_AXES];
    topo_levels levels;
} topo_layout;

typedef struct topo_report {
    const qdr_topo *topo; /* of rank 0 */
    topo_rank *ranks; /* NULL: no ranks were listed */
    int n_ranks;
    topo_layout layout;
} topo_report;

/* ranks.c: gathers the data of all ranks of the context on all ranks; freed by the caller. Collective. */
int topo_gather(qdr_context *ctx, const qdr_topo *topo, topo_rank **ranks, failure *why);
/* Computes the layout's places and axes from its size, order, n_on_node (0: the number of GPUs, or of cores) and
 * on_gpus. */
int topo_lay(const qdr_topo *topo, const topo_rank *ranks, int n_ranks, topo_layout *layout, failure *why);

/* levels.c: what the levels asked for mean on the layout's grid and places. Refuses those that do not nest. */
int topo_cut(const qdr_topo *topo, const levels *asked, topo_layout *layout, failure *why);
/* Computes which links the layout's levels cross, once its places are known, and warns. */
int topo_map_levels(const qdr_topo *topo, topo_layout *layout, failure *why);
/* "levels 4,8: weights in 2 parts, gradients in 4, optimizer state in 8" */
void topo_levels_text(const topo_levels *l, char *text, size_t capacity);
/* "z", "d near"; "gradients summed and weights returned once a step" */
const char *topo_level_name(int level);
const char *topo_level_use(int level);

/* Each writes a whole report. */
void topo_print(const topo_report *report);
int topo_print_json(const topo_report *report, failure *why);
void topo_draw(FILE *file, const void *report, failure *why);

/* "125.9 GiB", "512 KiB"; "?" for 0. */
void topo_bytes_text(int64_t bytes, char text[24]);
/* "40" (GB/s), "100?" if assumed, "-" if unknown. */
void topo_rate_text(double rate, int is_assumed, char text[24]);
/* "2 packages, 4 NUMA nodes of 503 GiB in all, …" */
void topo_counts_text(const qdr_topo *topo, char *text, size_t capacity);
/* "caches: L1 64 x 32 KiB of 1 core; …"; "" if none is known. */
void topo_caches_text(const qdr_topo *topo, char *text, size_t capacity);
/* A cell of the matrix of GPUs: "NV 40", "XM 100?", "node". */
void topo_pair_text(const qdr_topo *topo, int a, int b, char text[24]);
/* The link between two GPUs. */
qdr_link topo_pair(const qdr_topo *topo, int a, int b, double *rate, int *is_assumed);
/* "grid 2x2x2x1, order xyzd: 8 ranks on 2 nodes, 4 on each, one for each of its GPUs" */
void topo_layout_text(const topo_layout *layout, char *text, size_t capacity);
/* 1: some rates of GPU links are constants of hwloc, which the output must mention. */
int topo_has_assumed(const qdr_topo *topo);
#define TOPO_ASSUMED "? after a rate: hwloc writes 100 GB/s for every XGMI link, whatever it is"
/* 1: some GPUs are connected through switches, but share none. */
int topo_has_apart(const qdr_topo *topo);
#define TOPO_APART_1 "SW without a rate: no switch in common;"
#define TOPO_APART_2 "links between switches are not reported"

#endif
