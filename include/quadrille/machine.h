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

/** One level of links: pairs of a package, a node, the network. Groups of `n_ranks` consecutive
 * ranks are joined by it, and by none before it. */
typedef struct qdr_machine_link {
    char name[QDR_MAX_NAME];
    int n_ranks; /**< 0: any number; the last level */
    double rank_bytes_per_sec; /**< that one rank sends, and receives at the same time */
    double node_bytes_per_sec; /**< that all ranks of one group of the level below send together; 0:
                                  no limit but their own */
    double latency_secs; /**< of one message from rank to rank */
    double start_secs; /**< of a collective, before the first message */
    double half_bytes; /**< message of a step at which half of the rate is reached */
    double reduce_factor; /**< > 1: sums are made in the switch, and an all-reduce is so many times
                             as fast as a ring; 0 or 1: they are not */
} qdr_machine_link;

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
    qdr_machine_software software;
} qdr_machine;

#ifdef __cplusplus
}
#endif
#endif
