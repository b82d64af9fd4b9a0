/* SPDX-License-Identifier: Apache-2.0 */
/* The extents that occur in the tasks of a transformer's lists, for one network and plan: those of the rank with the
 * largest; and the number of layers in each stage of a pipeline. */
#ifndef QDRI_PERFMODEL_NETWORK_SIZES_H
#define QDRI_PERFMODEL_NETWORK_SIZES_H

#include "core/layout.h"
#include "quadrille/plan.h"

/* The largest allowed size of any kind: products of two fit in 63 bits. */
#define QDRI_NETWORK_MOST INT32_MAX

/* Rows first, then columns, then elements of shards. */
typedef enum qdri_size {
    QDRI_SIZE_ROWS, /* of a (z, d) cell in one forward pass */
    QDRI_SIZE_ROWS_X, /* scattered over x; these three are ROWS in a replicated layout */
    QDRI_SIZE_ROWS_Y,
    QDRI_SIZE_SEQUENCES_X, /* the same in whole sequences, or all if these are too few: attention */
    QDRI_SIZE_HIDDEN, /* columns: H/x */
    QDRI_SIZE_QUERIES, /* heads·head_size/y */
    QDRI_SIZE_QKV,
    QDRI_SIZE_UP, /* for the first product of the MLP: F/y, twice that if gated */
    QDRI_SIZE_FFN,
    QDRI_SIZE_VOCAB, /* V/y */
    QDRI_SIZE_SHARD_QKV, /* elements per member of z */
    QDRI_SIZE_SHARD_PROJ,
    QDRI_SIZE_SHARD_UP,
    QDRI_SIZE_SHARD_DOWN,
    QDRI_SIZE_SHARD_VOCAB,
    QDRI_N_SIZES
} qdri_size;

typedef struct qdri_sizes {
    double of[QDRI_N_SIZES];
    double sequences; /* of a forward pass, in a cell */
    double heads; /* on this rank */
    double context; /* tokens of a sequence */
    double elem_bytes, gradient_bytes;
    double attention_saved, attention_work; /* bytes that it keeps, and works with */
    double rotation_bytes; /* of cosines and sines */
    double device_bytes; /* that a CPU keeps for the type and the plan's threads */
} qdri_sizes;

typedef struct qdri_stages {
    int n; /* 1: no pipeline */
    double first, middle, last; /* layers; for the middle stages, the largest number */
} qdri_stages;

/* Layers are distributed equally, or so that the head counts in proportion to its parameters. */
qdri_stages qdri_stages_make(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan);
/* Number of nodes used by the whole job. */
double qdri_job_nodes(const qdr_machine *machine, const qdr_plan *plan);
/* Whether stages on different nodes wait for one another. */
int qdri_is_staged(const qdr_machine *machine, const qdr_plan *plan);

/* The first rank of a checked plan's grid, with its levels. */
qdri_position qdri_plan_position(const qdr_plan *plan);
/* Whether a checked plan partitions gradients or optimizer state over more ranks than z. */
int qdri_plan_has_levels(const qdr_plan *plan);

/* The average number of positions that the tokens of a sequence attend to, at most `window` each. */
double qdri_mean_seen(double sequence, double window);

void qdri_sizes_make(const qdr_network *network, const qdr_plan *plan, qdri_sizes *sizes);

#endif
