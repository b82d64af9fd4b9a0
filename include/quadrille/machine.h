/* SPDX-License-Identifier: Apache-2.0 */
/** @file machine.h  What a machine can do, as numbers: the model's constants.
 *
 *  A machine is a small JSON file (docs/model.md lists its keys, each with unit and source); those
 * that come with Quadrille are found by name. `quadrille calibrate` writes one from measurements.
 * All functions are local; different machines may be used by different threads. */
#ifndef QUADRILLE_MACHINE_H
#define QUADRILLE_MACHINE_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QDR_MAX_LINKS 4
#define QDR_MAX_TILES 8
#define QDR_MAX_PROTOCOLS 4
#define QDR_MAX_NAME 64

/** Products of m×k and k×n: flops / (peak · efficiency), or the time to move the operands,
 * whichever is longer, and a launch. efficiency = most · quantisation / (1 + half_m/m + half_n/n +
 * half_k/k); quantisation: the share of whole tiles, in whole waves over the units, that is wanted,
 * of the best tile. */
typedef struct qdr_machine_products {
    double peak_flops; /**< per second, as the vendor has it; 0: the machine cannot do this type */
    double most; /**< share of the peak that large products reach, 0 to 1 */
    double half_m, half_n, half_k; /**< extents at which, alone, half of that is reached */
    double factor[3]; /**< of the efficiency by mode: NN, NT, TN; 1 is neutral */
} qdr_machine_products;

/** A block of the result that one unit computes at a time. */
typedef struct qdr_machine_tile {
    double m, n;
    double efficiency; /**< beside the best tile */
} qdr_machine_tile;

/** One level of links: pairs in a package, a node, the network. It joins units of the level below
 * (single ranks, on the first level) to units of n_ranks consecutive ranks. */
typedef struct qdr_machine_link {
    char name[QDR_MAX_NAME];
    int n_ranks; /**< of a unit; 0: any number, on the last level */
    double rank_bytes_per_sec; /**< that one rank sends while it receives as much; 0, not on the
                                  first level: no limit but the adapters' */
    int n_adapters; /**< of a unit of the level below, each near as many of its ranks; not on the
                       first level */
    double adapter_bytes_per_sec; /**< that one of them sends while it receives as much */
    double step_secs; /**< from one rank of a ring to the next */
    double wait_secs; /**< of a collective, for each unit beyond the first: who comes late, who is
                         in the way */
    double switch_bytes_per_sec; /**< of a rank into a switch that adds up (NVLS); 0: there is none
                                  */
} qdr_machine_link;

/** One of the ways in which a library sends the steps of a ring or tree. */
typedef struct qdr_machine_protocol {
    double step_factor; /**< of the links' step_secs */
    double rate_factor; /**< of their bytes per second */
} qdr_machine_protocol;

typedef struct qdr_machine_collectives {
    double start_secs; /**< of each */
    int has_tree; /**< all-reduces may run along a double tree of nodes */
    int n_protocols;
    qdr_machine_protocol protocols[QDR_MAX_PROTOCOLS];
} qdr_machine_collectives;

/** What a program on the machine costs besides: one for each library or year of it. */
typedef struct qdr_machine_software {
    double launch_secs; /**< between two kernels on the device */
    double host_secs; /**< that the host takes to enqueue one */
    double microbatch_secs; /**< of the host, per micro-batch */
    double step_secs; /**< per optimizer step: data, logging, clipping */
    double fixed_bytes; /**< of memory: context, libraries, fragments */
    double fragment_share; /**< of the activations, on top */
} qdr_machine_software;

typedef struct qdr_machine {
    char name[QDR_MAX_NAME];
    char device[QDR_MAX_NAME];
    int ranks_per_node;
    double memory_bytes; /**< of one rank */
    double memory_bytes_per_sec;
    double memory_efficiency; /**< share of it that element-wise kernels reach */
    int n_units; /**< that share a product: SMs, compute units; 1 on a CPU */
    int n_tiles;
    qdr_machine_tile tiles[QDR_MAX_TILES];
    qdr_machine_products f64, f32, bf16;
    double attention_efficiency; /**< of fused attention, share of the peak; 0: there is none */
    double processor_slowdown, transfer_slowdown; /**< while both run, each takes 1 + … times as
                                                     long */
    int n_links;
    qdr_machine_link links[QDR_MAX_LINKS];
    qdr_machine_collectives collectives;
    qdr_machine_software software;
} qdr_machine;

#ifdef __cplusplus
}
#endif
#endif
