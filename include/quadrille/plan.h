/* SPDX-License-Identifier: Apache-2.0 */
/** @file plan.h  How a network is distributed over ranks, and what the model predicts for it: the time of a step, term
 * by term, and the memory of a rank.
 *
 * Part of libquadrille_perf: arithmetic, no ranks, no clock. The time is the simulated end of the task lists that the
 * runtime executes, on streams, with collectives that share links; formulas and sources: docs/model.md. All functions
 * are local, and thread-safe on different models. */
#ifndef QUADRILLE_PLAN_H
#define QUADRILLE_PLAN_H

#include <stdio.h>

#include "machine.h"
#include "network.h"
#include "stack.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One way to run one optimizer step. */
typedef struct qdr_plan {
    size_t size; /**< QDR_INIT(qdr_plan) */
    int x, y, z, d; /**< the grid */
    char order[8]; /**< fastest axis first; "": "xyzd" */
    qdr_layout layout; /**< of the edges between layers */
    qdr_recompute recompute;
    qdr_dtype dtype; /**< of weights and activations */
    int64_t batch; /**< sequences of a step, over all ranks; rounded up if not divisible by the number of cells */
    int64_t micro_batch; /**< sequences of one forward, in each (z, d) cell; 0: all of them */
    int64_t sequence; /**< tokens of a sequence; 0: the network's context */
    int overlap; /**< sum of QDR_OVERLAP_…; 0: all */
    int panels; /**< row panels of a layer's products, as in qdr_stack_opts; 0: the best of 1, 2, 4, 8 and 16 */
    int batch_parts; /**< parts of the rows of a micro-batch, as in qdr_stack_opts; 0: the best of 1 and 2 */
    /** Ranks over which gradients and optimizer state are partitioned: multiples of z up to z·d that nest; 0: z, and
     * gradient_parts. If gradients have more than z parts, they are reduce-scattered over the nearest ranks of d in
     * each micro-batch, and over the other ranks in the last one, too. */
    int gradient_parts, optimizer_parts;
    qdr_codecs codecs; /**< of what crosses nodes, as in qdr_stack_opts; all zero: none */
    int pipeline; /**< stages of consecutive layers, outside the grid: p ranks in all are x·y·z·d·pipeline; 0: 1 */
    int interleave; /**< parts of a stage that run alternately; 0: 1 */
    int64_t threads; /**< of a rank that computes on the CPU, 1 to 65536; 0: 1. Only memory depends on them
                        (QDR_MEMORY_DEVICE): a machine's rates are those of all its threads */
    /** Each sequence is one of so many parts of a longer one (context parallelism, as other software has it): attention
     * sees the others' keys and values, which pass around rings of that many ranks, the next ones after y; 0: 1. */
    int64_t context_parts;
} qdr_plan;

/** Where the time of a step goes: first what the processor does, then what it waits for. */
typedef enum qdr_time_term {
    QDR_TIME_PRODUCTS = 0, /**< of layers, forward and backward */
    QDR_TIME_ATTENTION, /**< scores, softmax, values */
    QDR_TIME_KERNELS, /**< norms, activations, residuals, biases, additions; launches */
    QDR_TIME_RECOMPUTE, /**< what the backward repeats of the layers' forward */
    QDR_TIME_ENDS, /**< embedding, last norm, head, loss */
    QDR_TIME_OPTIMIZER,
    QDR_TIME_X, /**< waiting for collectives over x, … */
    QDR_TIME_Y,
    QDR_TIME_Z,
    QDR_TIME_D,
    QDR_TIME_BUBBLE, /**< waiting for other stages of the pipeline */
    QDR_TIME_HOST, /**< waiting for the host, which enqueues */
    QDR_N_TIME_TERMS
} qdr_time_term;

/** Where memory goes, on the rank and the stage that need most. */
typedef enum qdr_memory_term {
    QDR_MEMORY_PARAMETERS = 0,
    QDR_MEMORY_GRADIENTS,
    QDR_MEMORY_FEEDBACK, /**< what codecs of sums of gradients have lost */
    QDR_MEMORY_OPTIMIZER,
    QDR_MEMORY_ACTIVATIONS, /**< kept from forward to backward */
    QDR_MEMORY_GATHERED, /**< whole weights and their gradients while they are communicated */
    QDR_MEMORY_WORKSPACE, /**< gradients of activations, logits, partial sums */
    QDR_MEMORY_RESERVE, /**< context, libraries, fragments */
    /** What a CPU keeps for products of F16 and for attention on a rank's threads, as qdr_stack_sizes.device; 0 on a
     * machine whose is_gpu is 1, where the reserve has it. Files without is_gpu, and `quadrille mem` without a machine,
     * mean CPUs. Products of BF16 are taken to need none; on a CPU without instructions for them, which files do not
     * state, they need as much as those of F16. */
    QDR_MEMORY_DEVICE,
    QDR_N_MEMORY_TERMS
} qdr_memory_term;

/** Lengths of arrays that have an entry for each term, and room for later ones. */
#define QDR_MAX_TIME_TERMS 32
#define QDR_MAX_MEMORY_TERMS 32

typedef struct qdr_plan_result {
    size_t size; /**< QDR_INIT(qdr_plan_result) */
    double secs; /**< of a step; the sum of time[] */
    double time[QDR_MAX_TIME_TERMS]; /**< by qdr_time_term */
    double busy[QDR_N_AXES]; /**< secs that transfers over an axis took, of which busy - time[] of that axis were
                                hidden */
    double flops; /**< of the products of a step over all ranks, without recomputing */
    double peak_share; /**< flops / (secs · peak of all ranks) */
    double tokens_per_sec;
    double n_micro; /**< forwards of a step in each cell */
    int panels, batch_parts; /**< the plan's, or those that were chosen */
    double memory_bytes; /**< the sum of memory[] */
    double memory[QDR_MAX_MEMORY_TERMS]; /**< by qdr_memory_term */
    /** The states in which the machine's software may run this plan, first the normal one: secs, time and busy are
     * means over them by their shares, which add up to 1. */
    int n_states, room_; /**< room_: 0 */
    double state_secs[QDR_MAX_STATES + 1], state_shares[QDR_MAX_STATES + 1];
} qdr_plan_result;

/** A machine and a network, with cached results. */
typedef struct qdr_model qdr_model;

/** Copies both. @retval QDR_ERR_ARGUMENT, QDR_ERR_SHAPE  NULL, or one of them is wrong
 *  @retval QDR_ERR_MEMORY */
QDR_API QDR_NODISCARD qdr_status qdr_model_create(const qdr_machine *machine, const qdr_network *network,
                                                  qdr_model **model);
/** Frees the model and sets *model to NULL. NULL is allowed. */
QDR_API void qdr_model_destroy(qdr_model **model);
/** Predicts the time of a step and the memory of a rank.
 *  @param[out] result  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, an axis < 1, an order that is not a permutation of xyzd, parts that do not nest,
 *                            more stages than layers, threads out of 0 to 65536
 *  @retval QDR_ERR_SHAPE     batch < 1, a micro-batch < 0 or a sequence < 0
 *  @retval QDR_ERR_DTYPE     not F32, F64, BF16 or F16, or a type that the machine does not support
 *  @retval QDR_ERR_MEMORY    of this process */
QDR_API QDR_NODISCARD qdr_status qdr_model_predict(qdr_model *model, const qdr_plan *plan, qdr_plan_result *result);
/** A checkpoint of parameters and AdamW's moments, in bytes of elements: its header is not counted. */
typedef struct qdr_plan_checkpoint {
    size_t size; /**< QDR_INIT(qdr_plan_checkpoint) */
    double bytes; /**< of the file: three elements of F32 (F64 for F64) for each parameter of qdr_network_params(), with
                     as many learned positions as the plan's sequences have tokens */
    double rank_bytes; /**< of the rank that writes most, and copies most in the background: an equal part of each
                          matrix, and whole small parameters, which one rank writes */
    double secs; /**< of a save: bytes or rank_bytes over the machine's rate, whichever takes longer; 0: it has none */
} qdr_plan_checkpoint;
/** The checkpoint of a plan. qdr_checkpoint_size() states the exact sizes of a stack.
 *  @param[out] checkpoint  all zero after an error
 *  @retval as qdr_model_predict() */
QDR_API QDR_NODISCARD qdr_status qdr_model_checkpoint(const qdr_model *model, const qdr_plan *plan,
                                                      qdr_plan_checkpoint *checkpoint);
/** Predicts the time of one forward, the first after a step, and one backward of n_layers layers without embedding and
 * head: the simulated end of the same lists that a stack of these layers runs, on the rank that has most. For
 * comparison with a measured stack. Of the plan only grid, order, levels, layout, type, overlap, panels, parts, batch
 * (all sequences at once) and sequence are used.
 *  @param[out] forward_secs, backward_secs  0 after an error
 *  @retval QDR_ERR_ARGUMENT  also n_layers out of 1 to 1024
 *  @retval others            as qdr_model_predict() */
QDR_API QDR_NODISCARD qdr_status qdr_model_layers_time(const qdr_model *model, const qdr_plan *plan, int n_layers,
                                                       double *forward_secs, double *backward_secs);
/** "products", "attention", …; "parameters", … */
QDR_API const char *qdr_time_term_name(qdr_time_term term);
QDR_API const char *qdr_memory_term_name(qdr_memory_term term);

/** Called for each grid during a search, with the share of the grids for which bounds were computed (1: all) and the
 * number of plans simulated. */
typedef void (*qdr_search_progress_fn)(double bounded_share, int64_t n_simulated, void *user);

/** What to search: all grids of n_ranks, with every axis order, layout, recomputation and micro-batch that is not fixed
 * here. */
typedef struct qdr_search_opts {
    size_t size; /**< QDR_INIT(qdr_search_opts) */
    int n_ranks; /**< 1 to QDR_MAX_SEARCH_RANKS */
    int ranks[QDR_N_AXES]; /**< of an axis; 0: any */
    const char *order; /**< NULL: all */
    int layouts; /**< sum of 1 << QDR_REPLICATED, 1 << QDR_SCATTERED; 0: both */
    int recomputes; /**< sum of 1 << QDR_RECOMPUTE_NONE, _OPERATIONS, _FULL; 0: all three. Where a plan fits, those that
                       only repeat more are left out, unless there are codecs */
    int64_t micro_batch; /**< 0: powers of two up to a cell's sequences, and all of them */
    int64_t batch, sequence; /**< as in qdr_plan; batch 0: one sequence a rank */
    qdr_dtype dtype;
    double memory_bytes; /**< of a rank; 0: the machine's */
    int gradient_parts, optimizer_parts; /**< as in qdr_plan, on grids on which they nest; -1: z·d; QDR_PARTS_OF_LINK():
                                            those of qdr_plan_parts_of_link() for each grid and order, of the first
                                            level from this one on that has a multiple of z, or of gradient_parts */
    /** 1: these are searched, too, and must be 0 here. On each grid all pairs of nesting numbers are tried that are z,
     * z·d, or fill a level of the machine's links: z·k for the largest k such that any k neighbours on d that begin at
     * a multiple of k share a unit of that level, where z and d are the fastest axes, or the slowest. With u ranks a
     * unit, k is the greatest common divisor of d and u/z, or of d and u/(x·y·z), where these are whole. */
    int any_levels;
    int overlap, panels, batch_parts; /**< as in qdr_plan */
    /** Of all plans; NULL: none. Bounds then leave transfers out, so that more is simulated. */
    const qdr_codecs *codecs;
    int n_best; /**< answers wanted, 1 to QDR_MAX_BEST; 0: 10 */
    int exhaustive; /**< 1: simulate all that fit, to check the bounds */
    qdr_search_progress_fn progress; /**< NULL: none */
    void *progress_user;
    int64_t threads; /**< as in qdr_plan; 0: 1, but for qdr_plan_auto() those of rank 0 */
} qdr_search_opts;

/** As many parts as fill a level of the machine's links. */
#define QDR_PARTS_OF_LINK(level) (-2 - (level))
#define QDR_MAX_SEARCH_RANKS 1048576
#define QDR_MAX_BEST 64

typedef struct qdr_search_result {
    size_t size; /**< QDR_INIT(qdr_search_result) */
    int n_best; /**< of so many grids qdr_model_best() has the fastest plan */
    int64_t n_candidates; /**< all possible plans */
    /** At most so many fit in memory: a plan counts that was not simulated if a lower bound of its memory fits. */
    int64_t n_fitting;
    int64_t n_bounded, n_simulated; /**< closed-form lower bounds computed; plans simulated */
    int64_t n_grids; /**< of all possible plans */
} qdr_search_result;

/** Finds the fastest plans that fit in memory, by what qdr_model_predict() says of them; n_best = 0 if none does. A
 * plan is simulated only if a closed-form lower bound of its time is less than the times found so far: the answer is
 * the same as if all were simulated. Panels and parts that are not fixed are 1 meanwhile, and are then chosen for the
 * best plans: of each of the best grids, of which more are kept than are wanted, and of the 32 best grids with a layout
 * and partitions. Another plan may gain more.
 *  @retval QDR_ERR_ARGUMENT  NULL, n_ranks out of range, fixed sizes whose product does not divide n_ranks, an order
 *                            that is not a permutation of xyzd
 *  @param[out] result  all zero after an error
 *  @retval others            as qdr_model_predict() */
QDR_API QDR_NODISCARD qdr_status qdr_model_search(qdr_model *model, const qdr_search_opts *opts,
                                                  qdr_search_result *result);
/** The fastest plan of one of the fastest grids that the last qdr_model_search() of this model found.
 *  @param index  0: of the fastest, up to n_best - 1
 *  @param[out] plan, result  all zero after an error; NULL: not wanted
 *  @retval QDR_ERR_ARGUMENT  NULL, or there is no such grid */
QDR_API QDR_NODISCARD qdr_status qdr_model_best(const qdr_model *model, int index, qdr_plan *plan,
                                                qdr_plan_result *result);
/** The plan of opts->n_ranks that needs least memory, fitting or not; grids to which the given parts of gradients and
 * optimizer state do not apply are skipped. Its times are 0. All plans are bounded in closed form; the task lists of
 * those with the lowest bounds say what they need.
 *  @param[out] plan, result  all zero if there is no plan, and after an error; result may be NULL
 *  @retval as qdr_model_search() */
QDR_API QDR_NODISCARD qdr_status qdr_model_least_memory(qdr_model *model, const qdr_search_opts *opts, qdr_plan *plan,
                                                        qdr_plan_result *result);

typedef struct qdr_fewest_ranks {
    size_t size; /**< QDR_INIT(qdr_fewest_ranks) */
    int n_ranks; /**< the fewest found for which a plan fits; 0: none */
    int tried_to; /**< all numbers from opts->n_ranks + 1 to this one were tried. If it is at least n_ranks - 1, n_ranks
                     is the minimum */
} qdr_fewest_ranks;

/** The fewest ranks above opts->n_ranks and up to `most` for which a plan fits, by memory alone. A batch of 0 means one
 * sequence for each rank. Gives up after about a million plans; tried_to states how far it got.
 *  @param[out] fewest        all zero after an error
 *  @param[out] plan, result  the plan of n_ranks that needs least, without times; NULL: not wanted
 *  @retval QDR_ERR_ARGUMENT  NULL, or most out of 1 to QDR_MAX_SEARCH_RANKS
 *  @retval others            as qdr_model_search() */
QDR_API QDR_NODISCARD qdr_status qdr_model_fewest_ranks(qdr_model *model, const qdr_search_opts *opts, int most,
                                                        qdr_fewest_ranks *fewest, qdr_plan *plan,
                                                        qdr_plan_result *result);
/** How many ranks that follow one another in (z, d) share a unit of links[level], by the plan's grid and order alone: a
 * multiple of z. The last level joins all ranks: z·d. Pure.
 * @return 0: units hold unequally many, or not all of z; NULL, no such level, or the plan's grid or order is wrong */
QDR_API int qdr_plan_parts_of_link(const qdr_plan *plan, const qdr_machine *machine, int level);
/** The closed-form lower bound of a plan's time. */
QDR_API QDR_NODISCARD qdr_status qdr_model_bound(qdr_model *model, const qdr_plan *plan, double *secs);

/** Replaces the plan's codecs by the offered ones that make its step shorter, one axis and class of traffic
 * after the other; none are kept where nothing pays, or where their memory does not fit.
 *  @param memory_bytes  of a rank; 0: the machine's
 *  @param[out] result  the plan's prediction with them; undefined after an error, after which the plan is unchanged
 *  @retval QDR_ERR_ARGUMENT  NULL, or codecs that qdr_codecs_parse() would refuse
 *  @retval others            as qdr_model_predict() */
QDR_API QDR_NODISCARD qdr_status qdr_model_choose_codecs(qdr_model *model, const qdr_codecs *offered,
                                                         double memory_bytes, qdr_plan *plan, qdr_plan_result *result);

/* ---- what can be run ---- */

/** The first thing for which this version's runtime does not run a plan. */
typedef struct qdr_obstacle {
    size_t size; /**< QDR_INIT(qdr_obstacle) */
    char what[16]; /**< in short: "pipeline", "activation"; "": there is none */
    char why[176]; /**< as a sentence without a beginning, with the remedy */
} qdr_obstacle;
/** Whether a stack of the library's own layers and operations runs a plan of a network: qdr_plan_check() refuses the
 * others. The model prices more than can be run. Pure, local, thread-safe.
 *  @param network   NULL: any that can be run
 *  @param plan      NULL: any that can be run
 *  @param[out] obstacle  NULL: not wanted
 *  @return 1: it does */
QDR_API int qdr_plan_runs(const qdr_network *network, const qdr_plan *plan, qdr_obstacle *obstacle);

/* ---- what a plan is made of ---- */

/** Prints, as text, where a plan's time and memory come from: the rows and columns of a rank, each product, operation
 * and collective of a layer with the numbers of its formula, the totals of the step, and the terms of memory. Formulas:
 * docs/model.md.
 *  @retval QDR_ERR_ARGUMENT  NULL
 *  @retval others            as qdr_model_predict(); nothing was printed */
QDR_API QDR_NODISCARD qdr_status qdr_model_explain(qdr_model *model, const qdr_plan *plan, FILE *file);

/** No passes will be added. */
typedef enum qdr_timeline_pass {
    QDR_PASS_FORWARD = 0, /**< with levels: of the first micro-batch, which returns updated parameters */
    QDR_PASS_RECOMPUTE, /**< what is made again: of other software a pass of its own, else a part of the backward */
    QDR_PASS_BACKWARD, /**< of the last micro-batch, which sums gradients over d */
    QDR_N_PASSES
} qdr_timeline_pass;

/** One task, the library's, while a layer in the middle of the network runs. */
typedef struct qdr_timeline_span {
    qdr_timeline_pass pass;
    int channel; /**< a qdr_channel; -1: the processor */
    int is_product; /**< of matrices, on the processor */
    const char *name; /**< of the layer or operation, "qkv"; valid forever */
    const char *kind; /**< "product", "all-reduce", …; valid forever */
    double begin_secs, end_secs; /**< from the start of the pass through this layer (of the backward, if the time of
                                    QDR_PASS_RECOMPUTE is 0); clipped to its start and end */
} qdr_timeline_span;
typedef void (*qdr_timeline_fn)(const qdr_timeline_span *span, void *user);
/** Passes all simulated tasks to `each`, of the layer itself and of other layers meanwhile (gathering ahead, pending
 * sums). QDR_RECOMPUTE_ATTENTION and _LAYERS are shown as the model prices them, as an additional pass.
 *  @param[out] secs  the time of each pass for the layer; all 0 after an error
 *  @retval QDR_ERR_ARGUMENT  NULL
 *  @retval others            as qdr_model_predict() */
QDR_API QDR_NODISCARD qdr_status qdr_model_timeline(qdr_model *model, const qdr_plan *plan, qdr_timeline_fn each,
                                                    void *user, double secs[QDR_N_PASSES]);

/* ---- files of plans ---- */

/** A plan and what it was made for: `quadrille plan -o` writes it, and programs run it. */
typedef struct qdr_stored_plan {
    size_t size; /**< QDR_INIT(qdr_stored_plan) */
    qdr_network *network; /**< the caller's: with its name and all sizes */
    qdr_plan *plan; /**< the caller's */
    char machine[QDR_MAX_NAME]; /**< its name; "": not stated */
    double secs, memory_bytes; /**< as predicted; 0: not stated */
} qdr_stored_plan;

/** Writes a JSON object with the keys
 *
 *    quadrille_plan          3: the version of this format
 *    network, machine        names
 *    sizes                   an object with all other members of qdr_network: numbers, texts, true or false, and
 *                            "layer" or "rms" for the norm
 *    ranks                   of the grid, times the stages of a pipeline
 *    grid                    [x, y, z, d]
 *    order                   "xyzd"
 *    layout                  "replicated" or "scattered"
 *    recompute               "none", "operations" or "full"; of other software "attention" or "layers"
 *    dtype                   "f32", "f64", "bf16" or "f16"
 *    batch, micro_batch, sequence, gradient_parts, optimizer_parts, panels, batch_parts   as in qdr_plan
 *    overlap, pipeline, interleave, threads                                               where they are not 0
 *    codecs                  as qdr_codecs_parse() reads them, if there are any
 *    predicted_secs, predicted_memory_bytes
 *
 * to a new file, or in place of an existing plan.
 *  @retval QDR_ERR_ARGUMENT  NULL; nothing can be written under this name; or the file exists and is not a plan: it
 *                            is left as it is
 *  @retval others            as qdr_network_params()
 *  @retval QDR_ERR_IO        it could not be written completely; an older plan is left as it is */
QDR_API QDR_NODISCARD qdr_status qdr_plan_store(const qdr_stored_plan *stored, const char *path);
/** Reads such a file; "-" is standard input. The keys quadrille_plan, sizes with all of its keys, grid and batch are
 * required, the others have the defaults of qdr_plan, except that dtype defaults to "bf16". Other keys are refused, and
 * so are formats 1 and 2, which did not have all of the sizes.
 *  @param[in,out] stored  network and plan: where to write them, NULL: not wanted. All but these two is zero after an
 *                         error
 *  @retval QDR_ERR_ARGUMENT  NULL, invalid JSON, not a plan, or a value of the wrong type or out of range (file
 *                            and key)
 *  @retval QDR_ERR_IO        it cannot be read */
QDR_API QDR_NODISCARD qdr_status qdr_plan_load(const char *path, qdr_stored_plan *stored);

#ifdef __cplusplus
}
#endif
#endif
