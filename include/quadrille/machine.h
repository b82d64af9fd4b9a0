/* SPDX-License-Identifier: Apache-2.0 */
/** @file machine.h  What a machine can do, as numbers: the model's constants.
 *
 * A machine is a small JSON file (docs/model.md lists its keys, each with unit and source); the machines that come
 * with Quadrille are found by name. `quadrille calibrate` writes a file from measurements. All functions are local;
 * different machines may be used by different threads. */
#ifndef QUADRILLE_MACHINE_H
#define QUADRILLE_MACHINE_H

#include <stdint.h>
#include <stdio.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QDR_MAX_LINKS 4
#define QDR_MAX_TILES 8
#define QDR_MAX_PROTOCOLS 4
#define QDR_MAX_NAME 64
/** Zeros at the end of each part of a machine, in the place of numbers that later releases add. */
#define QDR_MACHINE_ROOM 4

/** Products of m×k and k×n: flops / (peak · efficiency), or the time to move the operands, whichever is longer, plus a
 * launch. efficiency = most · quantisation / (1 + half_m/m + half_n/n + half_k/k); quantisation: the useful share of
 * whole tiles, in whole waves over the units, for the best tile. */
typedef struct qdr_machine_products {
    double peak_flops; /**< per second, as the vendor states it; 0: the machine does not support this type */
    double most; /**< share of the peak that large products reach, 0 to 1 */
    double half_m, half_n, half_k; /**< the extent in each dimension that alone halves the efficiency */
    double factor[3]; /**< of the efficiency by mode: NN, NT, TN; 1 is neutral */
    double odd_factor; /**< of the efficiency if an extent is odd: loads are not aligned */
    double room[QDR_MACHINE_ROOM];
} qdr_machine_products;

/** A block of the result that one unit computes at a time. No members will be added. */
typedef struct qdr_machine_tile {
    double m, n;
    double efficiency; /**< relative to the best tile */
} qdr_machine_tile;

/** One level of links: pairs in a package, a node, the network. It joins units of the level below (on the first level,
 * single ranks) into units of n_ranks consecutive ranks. */
typedef struct qdr_machine_link {
    char name[QDR_MAX_NAME];
    int n_ranks; /**< of a unit; 0: any number, on the last level */
    double rank_bytes_per_sec; /**< that one rank sends while it receives as much; 0, except on the first level: limited
                                  only by the adapters */
    int n_adapters; /**< of a unit of the level below, each near an equal number of its ranks; not on the first level */
    double adapter_bytes_per_sec; /**< that one of them sends while it receives as much */
    double step_secs; /**< from one rank of a ring to the next */
    double wait_secs; /**< of a collective, for each unit beyond the first: late ranks and contention */
    double wait_secs_per_byte; /**< the same for each byte that the groups of a unit send with it */
    double ring_wait_factor; /**< of wait_secs_per_byte in all-gathers and reduce-scatters, which are rings where
                                all-reduces may be trees; 0: 1 */
    double switch_bytes_per_sec; /**< of a rank into a switch that computes sums (NVLS); 0: there is no such switch */
    double slowdown; /**< while a transfer over this link and work on the processor run, each takes 1 + … times as
                        long, in addition to the machine's slowdowns: 1 if the processor itself moves the bytes */
    double room[QDR_MACHINE_ROOM];
} qdr_machine_link;

/** One of the ways in which a library sends the steps of a ring or tree. */
typedef struct qdr_machine_protocol {
    double step_factor; /**< of the links' step_secs */
    double rate_factor; /**< of their bytes per second */
    double room[QDR_MACHINE_ROOM];
} qdr_machine_protocol;

typedef struct qdr_machine_collectives {
    double start_secs; /**< of each collective, whatever the algorithm */
    double fill_secs; /**< of its pipeline, times a protocol's step_factor */
    int has_tree; /**< all-reduces may run along a double tree of nodes */
    int by_level; /**< 1: instead of rings, level by level: members inside a unit first (or last), then each with its
                     counterparts in other units */
    int n_protocols;
    qdr_machine_protocol protocols[QDR_MAX_PROTOCOLS];
    /* Which way this runtime takes among the ranks of a node, by the bytes of the whole vector; the model does not use
     * these. 0: not measured; the runtime has a default */
    double direct_bytes; /**< from here on, processes read each other's memory instead of copying through a shared
                            buffer: all-gathers, reduce-scatters, broadcasts */
    double direct_all_reduce_bytes; /**< the same for all-reduces */
    double two_round_bytes; /**< through the buffer, an all-reduce between two takes two rounds from here on, in which
                               each adds one half, instead of one, in which both add everything */
    double room[QDR_MACHINE_ROOM];
} qdr_machine_collectives;

/** Length of arrays that have an entry for each qdr_codec_kind, and room for later ones. */
#define QDR_MAX_CODECS 16
/** How fast one rank encodes and decodes messages, by qdr_codec_kind, in bytes of elements; 0: as fast as kernels move
 * what is read and written. */
typedef struct qdr_machine_codecs {
    double encode_bytes_per_sec[QDR_MAX_CODECS], decode_bytes_per_sec[QDR_MAX_CODECS]; /**< decoding adds */
    double rotated_factor, feedback_factor; /**< of the rate of encoding, and, with HADAMARD, of decoding; 0: 0.6 */
    double processor_share; /**< of the processor that codecs take from products meanwhile: 1 on CPUs, 0 on GPUs */
    double room[QDR_MACHINE_ROOM];
} qdr_machine_codecs;

/** The file system that all ranks see, for checkpoints. */
typedef struct qdr_machine_file {
    double rank_bytes_per_sec; /**< that one rank writes alone; 0: not known */
    double all_bytes_per_sec; /**< that all ranks write together; 0: not known */
    double room[QDR_MACHINE_ROOM];
} qdr_machine_file;

/** A state in which some runs of a software on several nodes are slower, and how many are: what caches, allocators and
 * waiting ranks do, which no number of a plan decides. Runs are in one state at most, else in the normal one. */
typedef struct qdr_machine_state {
    int of_pipelines; /**< 1: of runs with pipeline stages; 0: of the others */
    int room_; /**< 0 */
    /** Of the host, of a collective over x or y, for each member of the group, if that is more than in the normal
     * state. */
    double rank_secs;
    double stage_secs; /**< of each neighbour stage and micro-batch */
    /** Of the memory, from which on as many runs are in it as on 64 nodes, also on one node; 0: no share. */
    double memory_share;
    /** Share of the runs on 1, 4, 16 and 64 nodes that are in it; between these in proportion to the logarithm of their
     * number, none on one node unless memory_share says so. */
    double shares[4];
    double room[QDR_MACHINE_ROOM];
} qdr_machine_state;
/** The largest number of states in which a software's runs may be. */
#define QDR_MAX_STATES 4

/** Additional costs of the software on the machine: one for each library, or release of it. */
typedef struct qdr_machine_software {
    double launch_secs; /**< of the device, between two kernels */
    double host_secs; /**< that the host takes to enqueue one */
    double host_power; /**< how host and device overlap: (host^p + device^p)^(1/p), where less than 1 counts
                          as 1; 0: the device never waits for the host */
    double microbatch_secs; /**< of the host, per micro-batch */
    double step_secs; /**< per optimizer step: data, logging, clipping */
    int fused_biases; /**< 1: products add the biases, and norms read their input once */
    double score_bytes; /**< moved per score of unfused attention, forward and backward together */
    double logit_bytes; /**< moved per logit by the loss, forward and backward together */
    double weight_gradient_bytes; /**< moved per weight and micro-batch, in addition to the product */
    double gradient_bytes; /**< of a gradient element when it is communicated; 0: of its type */
    double optimizer_bytes; /**< moved per parameter of a shard by one optimizer step */
    /* Tensor parallelism and pipelines as a framework runs them: */
    double collective_host_secs; /**< of a collective over x or y, in addition to host_secs */
    double collective_rank_secs; /**< the same for each member of a group that spans nodes */
    double staged_rank_secs; /**< the same if pipeline stages span nodes and wait for each other, or if gathered rows do
                                not fit in memory and are gathered again */
    double stall_secs; /**< of each neighbour stage and micro-batch, if memory is nearly full or there are many nodes:
                          blocks are freed and allocated again */
    double stall_memory_share; /**< share of the memory from which that happens; 0: never */
    int stall_nodes; /**< nodes from which that happens; 0: never */
    int gathers_again; /**< 1: gathered rows are never kept for the backward */
    int balanced_stages; /**< 1: when layers are assigned to stages, the head counts by its parameters */
    double saved_ffn; /**< copies of the MLP's inner activation kept in addition to its edges */
    double live_hidden; /**< whole rows of the hidden size that are also alive, if y > 1 */
    double logit_memory_bytes; /**< of each logit while the loss is computed; 0: two elements of its type */
    double bucket_bytes; /**< of gradients that are summed over d in one collective; 0: each weight's alone */
    int returns_after_step; /**< 1: parameters that ranks update in parts are gathered when a step ends, hidden by
                               nothing; 0: during the next forward */
    double send_bytes; /**< of memory for each parameter, to send its gradient, where d > 1 */
    double fixed_bytes; /**< of memory: context, libraries */
    double fragment_share; /**< fragmentation, as a share of the activations, in addition to them; 0: they are one
                              piece, as in a stack of this library */
    double attention_score_bytes; /**< of memory for each score of a layer's local heads, for the backward pass of fused
                                     attention of types of two bytes; at most 2.25 GiB in all */
    double room[QDR_MACHINE_ROOM];
} qdr_machine_software;

typedef struct qdr_machine {
    size_t size; /**< QDR_INIT(qdr_machine) */
    char name[QDR_MAX_NAME];
    char device[QDR_MAX_NAME];
    int is_gpu; /**< 1: each rank has a GPU; 0: cores */
    int ranks_per_node;
    double memory_bytes; /**< of one rank */
    double memory_bytes_per_sec;
    double memory_efficiency; /**< share of memory_bytes_per_sec that element-wise kernels reach */
    double kernel_flops; /**< per second, of element-wise kernels; 0: memory alone limits them */
    int n_units; /**< units that share a product: SMs, compute units; 1 on a CPU */
    double wave_power; /**< of the share of the last wave that is full: 1, or less where the next kernel fills it */
    int n_tiles;
    qdr_machine_tile tiles[QDR_MAX_TILES];
    qdr_machine_products f64, f32, bf16; /**< bf16: of all types of two bytes */
    double attention_efficiency; /**< of fused attention, share of the peak; 0: attention is not fused */
    double processor_slowdown, transfer_slowdown; /**< while both run, each takes 1 + … times as long */
    int n_links;
    qdr_machine_link links[QDR_MAX_LINKS];
    qdr_machine_collectives collectives;
    qdr_machine_codecs codecs;
    qdr_machine_file file;
    qdr_machine_software software;
    int n_states, room_; /**< of the software; room_: 0 */
    qdr_machine_state states[QDR_MAX_STATES];
} qdr_machine;

/** How well a software uses a machine: factors of numbers in the machine's file, which are those of its maker and of
 * programs that measure one thing. */
typedef struct qdr_software_factors {
    double products; /**< of what large products reach (`most`), in all types; at most the peak comes out */
    double attention; /**< of attention_efficiency; 0: attention is not fused */
    double kernels; /**< of memory_efficiency; at most 1 comes out */
    double links; /**< of what ranks, adapters and switches send */
    double room[QDR_MACHINE_ROOM];
} qdr_software_factors;

/** What a framework, or a release of it, does on every machine. */
typedef struct qdr_software {
    size_t size; /**< QDR_INIT(qdr_software) */
    char name[QDR_MAX_NAME];
    qdr_software_factors factors;
    qdr_machine_software costs; /**< of a machine that runs it */
    int n_states, room_; /**< room_: 0 */
    qdr_machine_state states[QDR_MAX_STATES];
} qdr_software;

/** Loads a machine by path or by name. An argument that contains a slash, ends in ".json" or is "-" is a path;
 * everything else is a name from qdr_machine_list(): machines/NAME.json in a folder of QDR_DATA_PATH or of the
 * installed data. "here" is what `quadrille calibrate` left for this host, hosts/HOST.json in the folder quadrille of
 * XDG_DATA_HOME, else of ~/.local/share; without it "laptop". A file may be `based_on` another and then states only the
 * differences; its lists replace the other's.
 *  @param[out] machine  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, an unknown name (the sentence lists the nearest ones), invalid JSON, or a key that
 *                            is missing or out of range (file and key)
 *  @retval QDR_ERR_IO        the file cannot be read
 *  @retval QDR_ERR_MEMORY    out of memory */
QDR_API QDR_NODISCARD qdr_status qdr_machine_load(const char *name_or_path, qdr_machine *machine);
/** The same for a text of `bytes` bytes; `name` is what error sentences call it. */
QDR_API QDR_NODISCARD qdr_status qdr_machine_parse(const char *text, size_t bytes, const char *name,
                                                   qdr_machine *machine);
/** Checks that a machine is complete and every number in its range; error sentences begin with `name`. For machines
 * filled in by hand.
 *  @retval QDR_ERR_ARGUMENT  something is missing or out of range; the sentence names its key in a file */
QDR_API QDR_NODISCARD qdr_status qdr_machine_check(const qdr_machine *machine, const char *name);
/** Changes how many ranks share a node. Links that joined a node join n_ranks ranks then, and wider ones as many nodes
 * as before. Of the links within a node those go that join no more ranks than others inside them, or a number that does
 * not divide n_ranks; with one rank a node all go. Fewer GPUs of a node have as much smaller a part of its adapters,
 * rounded up; ranks of a processor have all.
 *  @retval QDR_ERR_ARGUMENT  NULL, or n_ranks < 1 */
QDR_API QDR_NODISCARD qdr_status qdr_machine_set_ranks_per_node(qdr_machine *machine, int n_ranks);
/** Finds the machine file whose name is `text`, or one of whose aliases `text` equals or begins with; for the names
 * that machines have in published tables.
 *  @param[out] machine  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  there is none, or a file is invalid */
QDR_API QDR_NODISCARD qdr_status qdr_machine_find(const char *text, qdr_machine *machine);
/** Receives one name, valid during the call. */
typedef void (*qdr_name_fn)(const char *name, void *user);
/** Writes a machine as a file that qdr_machine_parse() reads back exactly, number for number. The stream stays open.
 *  @param more  further members of the JSON object, which reading ignores ("\"notes\": {…}"), or NULL
 *  @retval QDR_ERR_ARGUMENT  NULL, or a machine that qdr_machine_check() refuses
 *  @retval QDR_ERR_IO        writing failed */
QDR_API QDR_NODISCARD qdr_status qdr_machine_write(const qdr_machine *machine, const char *more, FILE *file);
/** Calls `each` with the names that qdr_machine_load() knows, in the order of strcmp(). */
QDR_API QDR_NODISCARD qdr_status qdr_machine_list(qdr_name_fn each, void *user);
/** One number by its key in a file, in the file's unit: "memory_GBps", "bf16.most", "links[1].adapter_GBps". Setting
 * does not check the machine as a whole.
 *  @retval QDR_ERR_ARGUMENT  no such key (the sentence has the nearest one), or a value out of its range; nothing
 *                            changed */
QDR_API QDR_NODISCARD qdr_status qdr_machine_get(const qdr_machine *machine, const char *key, double *value);
QDR_API QDR_NODISCARD qdr_status qdr_machine_set(qdr_machine *machine, const char *key, double value);
/** Calls `each` with the keys of all numbers of the machine, in the order of a file. */
QDR_API void qdr_machine_keys(const qdr_machine *machine, qdr_name_fn each, void *user);

/** The same as qdr_machine_load() for a software: a path, or a name in a folder software/ of the data. A file may be
 * `based_on` another. What it leaves out is neutral: factors of 1, costs of 0.
 *  @param[out] software  all zero after an error
 *  @retval               as qdr_machine_load() */
QDR_API QDR_NODISCARD qdr_status qdr_software_load(const char *name_or_path, qdr_software *software);
QDR_API QDR_NODISCARD qdr_status qdr_software_parse(const char *text, size_t bytes, const char *name,
                                                    qdr_software *software);
/** As qdr_machine_find(), by the names and aliases of the files of software. */
QDR_API QDR_NODISCARD qdr_status qdr_software_find(const char *text, qdr_software *software);
QDR_API QDR_NODISCARD qdr_status qdr_software_list(qdr_name_fn each, void *user);
/** Makes a machine one that runs this software: multiplies by its factors, and replaces costs and states.
 *  @retval QDR_ERR_ARGUMENT  NULL, or a factor that is negative, infinite or no number; nothing changed */
QDR_API QDR_NODISCARD qdr_status qdr_machine_set_software(qdr_machine *machine, const qdr_software *software);

#ifdef __cplusplus
}
#endif
#endif
