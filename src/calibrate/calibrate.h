/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the measurements of `quadrille calibrate`. All ranks measure at the same time, as in training, and all get
 * the same samples. */
#ifndef QUADRILLE_SRC_CALIBRATE_CALIBRATE_H
#define QUADRILLE_SRC_CALIBRATE_CALIBRATE_H

#include <quadrille/calibrate.h>
#include <quadrille/gpu.h>
#include <quadrille/plan.h>

#include "bench/bench.h"
#include "common/transformer.h"

enum { MAX_SAMPLES = 4096, MAX_WORST = 10, MAX_GROUPS = 64 };

/* --for: a network, and how one of its layers is run, with embedding, head and loss. */
typedef struct network_run {
    /* as asked */
    qdr_network network; /* of all ranks from calibrate_network() on, of rank 0 before */
    grid_size grid; /* x = 0: the best */
    int64_t batch, sequence; /* 0: one sequence a rank, the network's context */
    qdr_dtype dtype;
    /* as chosen */
    struct {
        qdr_plan plan;
        qdr_plan_result result;
    } chosen;
    /* as made */
    qdr_grid *made_grid;
    transformer made;
} network_run;

typedef struct calibration {
    qdr_context *ctx;
    qdr_context *alone; /* of this rank only, with the same number of threads */
    qdr_grid *self; /* of alone */
    qdr_machine machine; /* what is known before the fit */
    int is_quick, is_on_gpu;
    int n_nodes, ranks_per_node;
    int begins_links; /* rates of links stand in until collectives have shown them */
    int n_samples;
    qdr_sample samples[MAX_SAMPLES];
    network_run run; /* of --for */
    char run_groups[MAX_GROUPS][48]; /* names of groups of its samples */
    /* progress */
    int shows; /* rank 0's standard error is a terminal */
    const char *stage;
} calibration;

/* ---- samples.c ---- */

/* Seconds of one call, on the slowest rank: the median of several rounds, each with enough calls to take a measurable
 * time (at most n_most; 1: single calls). call() enqueues. Collective, with the same result on all ranks. */
typedef struct calibrate_work {
    qdr_status (*call)(void *user);
    qdr_context *ctx; /* its stream is waited for, and tells the time if it is a GPU's; NULL: each call waits */
    void *user;
    int n_most;
    double round_secs; /* length of a round; 0: suitable for the processor's clock */
} calibrate_work;
int calibrate_time(calibration *c, const calibrate_work *work, double *secs, failure *why);
/* Adds a sample. No communication, but all ranks must add the same one. */
void calibrate_add(calibration *c, const qdr_sample *sample);
void calibrate_show(calibration *c, const char *stage);

/* ---- machine.c ---- */

/* While a collective overlaps a product on a GPU, and how host and GPU overlap: as in dgx-h100, unless --base has
 * others. Collectives of schedules have urgent streams, which the command cannot make. */
#define GPU_PROCESSOR_SLOWDOWN 0.05
#define GPU_TRANSFER_SLOWDOWN 0.1
#define GPU_HOST_POWER 3
/* Sets c->machine: like `base`, if that has links, but for what is known of this machine. name: NULL: that of the
 * file. Collective. */
int calibrate_begin(calibration *c, const qdr_machine *base, const char *name, const char *path, failure *why);
/* One rank shows no rates of links. */
static inline int calibrate_assumes_links(const calibration *c)
{
    return c->begins_links && qdr_context_size(c->ctx) == 1;
}
/* The GPU of rank 0, as it is now. Collective. */
int calibrate_find_gpu(const calibration *c, qdr_gpu *gpu, failure *why);

/* ---- the measurements; collective, with the same result on all ranks ---- */

/* memory.c: sets fixed_bytes and attention_score_bytes of c->machine. To be called before others take memory. */
int calibrate_memory(calibration *c, int ranks_per_process, failure *why);
/* borders.c: sets those of c->machine, and uses them from then on. For several ranks of a node that are processes. */
int calibrate_borders(calibration *c, failure *why);
int calibrate_launches(calibration *c, failure *why); /* of GPUs */
int calibrate_kernels(calibration *c, failure *why); /* memory, kernels, attention; launches of CPUs */
int calibrate_products(calibration *c, failure *why);
int calibrate_codecs(calibration *c, failure *why); /* codecs.c: sets those of c->machine */
int calibrate_collectives(calibration *c, failure *why);
int calibrate_together(calibration *c, failure *why); /* of CPUs */

/* ---- network.c ---- */

/* Runs c->run on the grid that is best on `machine`, which only rank 0 needs to set, without overlap, and adds a sample
 * for each task. The stack stays for calibrate_network_print(). Collective. */
int calibrate_network(calibration *c, const qdr_machine *machine, failure *why);
/* Predicted and measured times by kind of task. On rank 0. */
int calibrate_network_print(const calibration *c, const qdr_machine *machine, failure *why);
/* Collective; does nothing without a network. */
void calibrate_network_end(calibration *c);

/* ---- report.c ---- */

/* Errors of the samples of a group: |model / measured - 1|. */
typedef struct group_error {
    const char *group;
    int n_samples;
    double median, most;
} group_error;
typedef struct calibrate_errors {
    int n_groups;
    group_error groups[MAX_GROUPS];
    int n_worst;
    int worst[MAX_WORST]; /* samples, largest error first */
    double secs[MAX_SAMPLES]; /* predicted by the model */
} calibrate_errors;
int calibrate_compare(const calibration *c, const qdr_machine *machine, calibrate_errors *errors, failure *why);
void calibrate_print(const calibration *c, const qdr_machine *machine, const calibrate_errors *errors,
                     bench_format format);
/* The "calibration" member of the machine file, to be freed. NULL: out of memory. */
char *calibrate_notes(const calibration *c, const calibrate_errors *errors);

#endif
