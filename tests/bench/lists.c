/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of a GPT on all grids of 8 ranks: the memory that they need, how far it is from the largest sum of values
 * that are in use at the same time, the tasks and their waits, and the time to make all lists. train's network,
 * but for what is given. Usage: lists [hidden [layers]] */
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "network/describe.h"

enum { N_RANKS = 8, CONTEXT = 128, BATCH = 4, N_RUNS = 5 };

static double now_secs(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static qdr_network network_of(int64_t hidden, int64_t layers)
{
    return (qdr_network){QDR_INIT(qdr_network), .layers = layers,        .hidden = hidden,  .heads = 4,
                         .kv_heads = 4,         .head_size = hidden / 4, .ffn = 4 * hidden, .vocab = 256,
                         .context = CONTEXT,    .positions = CONTEXT,    .qkv_bias = 1,     .out_bias = 1,
                         .mlp_bias = 1,         .norms_per_layer = 2};
}

typedef struct totals {
    size_t bytes, excess;
    int n_tasks, n_waits;
    double secs;
} totals;

static void add_list(const qdri_schedule *list, size_t *least, totals *sum)
{
    if (list->least_bytes > *least) *least = list->least_bytes;
    sum->n_tasks += list->n_tasks;
    for (int i = 0; i < list->n_tasks; i++) sum->n_waits += list->tasks[i].n_waits;
}

static qdr_status measure(const qdr_network *network, const qdri_position *position, qdr_layout layout, totals *all)
{
    const int64_t cells = (int64_t)position->size[QDR_Z] * position->size[QDR_D];
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),
                                 .n_rows = (BATCH + cells - 1) / cells * cells * CONTEXT,
                                 .row_unit = CONTEXT,
                                 .dtype = QDR_F32,
                                 .panels = 1,
                                 .batch_parts = 1};
    qdri_net net;
    qdri_net_lists lists = {.n_layers = 0};
    totals sum = {.secs = 1e9};
    size_t least = 0;
    int *layer_of = calloc((size_t)QDRI_NODES_OF(network->layers), sizeof *layer_of);
    memset(&net, 0, sizeof net);
    qdr_status status = layer_of ? QDR_OK : QDR_ERR_MEMORY;
    for (int run = 0; run < N_RUNS && status == QDR_OK; run++) {
        const double start = now_secs();
        status = qdri_describe(&net, network, position, &opts, CONTEXT, layout, (int)network->layers, layer_of);
        if (status == QDR_OK) status = qdri_net_build(&net, &lists);
        if (now_secs() - start < sum.secs) sum.secs = now_secs() - start;
    }
    if (status == QDR_OK) {
        add_list(&lists.forward, &least, &sum);
        for (int i = 0; i < QDRI_N_BACKWARDS; i++) add_list(&lists.backward[i], &least, &sum);
        const size_t workspace = net.buffers.region_bytes[QDRI_WORKSPACE];
        sum.bytes = net.buffers.region_bytes[QDRI_ACTIVATIONS] + workspace;
        sum.excess = least && workspace > least ? workspace - least : 0;
        const int *size = position->size;
        printf("%dx%dx%dx%d %s %11zu bytes, %10zu of workspace, %5.2f %% above the bound, %5d tasks, %5d waits, "
               "%6.2f ms\n",
               size[0], size[1], size[2], size[3], layout == QDR_SCATTERED ? "S" : "R", sum.bytes, workspace,
               least ? 100.0 * (double)sum.excess / (double)least : 0, sum.n_tasks, sum.n_waits, 1e3 * sum.secs);
    }
    all->bytes += sum.bytes;
    all->excess += sum.excess;
    all->n_tasks += sum.n_tasks;
    all->n_waits += sum.n_waits;
    all->secs += sum.secs;
    free(layer_of);
    qdri_net_lists_free(&lists);
    qdri_net_free(&net);
    return status;
}

int main(int argc, char **argv)
{
    const qdr_network network = network_of(argc > 1 ? atoll(argv[1]) : 128, argc > 2 ? atoll(argv[2]) : 4);
    totals all = {.bytes = 0};
    for (int x = 1; x <= N_RANKS; x *= 2)
        for (int y = 1; x * y <= N_RANKS; y *= 2)
            for (int z = 1; x * y * z <= N_RANKS; z *= 2)
                for (int layout = 0; layout < 2; layout++) {
                    const qdri_position position = {.size = {x, y, z, N_RANKS / (x * y * z)}};
                    if (measure(&network, &position, layout ? QDR_SCATTERED : QDR_REPLICATED, &all) == QDR_OK) continue;
                    fprintf(stderr, "lists: %s\n", qdr_last_error());
                    return 1;
                }
    printf("all: %zu bytes, %zu above the bounds, %d tasks, %d waits, %.2f ms\n", all.bytes, all.excess, all.n_tasks,
           all.n_waits, 1e3 * all.secs);
    return 0;
}
