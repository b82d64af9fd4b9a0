/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a table of collectives as a sample, and the model's time for it. */
#include <quadrille/calibrate.h>

#include "predict/predict.h"

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { SOURCE, MACHINE, COLLECTIVE, GPUS, NODES, STRIDED, ALONE, ALGORITHM, BYTES, BYTES_MOST, SECS, SKIP };
enum { PREDICTED_SECS = SKIP + 1, WHY_SKIPPED, N_COLUMNS };

static const qdr_coll_kind kinds[] = {QDR_ALL_GATHER, QDR_REDUCE_SCATTER, QDR_ALL_REDUCE, QDR_SEND_RECV};
static const column_spec columns[N_COLUMNS + 1] = {
    [SOURCE] = {.name = "source"},
    [MACHINE] = {.name = "machine"},
    [COLLECTIVE] = {.name = "collective",
                    .kind = CELL_WORD,
                    .words = WORDS("all-gather", "reduce-scatter", "all-reduce", "send-recv")},
    [GPUS] = {.name = "gpus", .kind = CELL_WHOLE, .least = 2, .most = 1e6},
    [NODES] = {.name = "nodes", .kind = CELL_WHOLE, .least = 1, .most = 1e6},
    [STRIDED] = {.name = "strided", .kind = CELL_WHOLE, .least = 0, .most = 1},
    [ALONE] = {.name = "alone", .kind = CELL_WHOLE, .least = 0, .most = 1},
    [ALGORITHM] = {.name = "algorithm", .kind = CELL_WORD, .words = WORDS("any", "ring")},
    [BYTES] = {.name = "bytes", .kind = CELL_REAL, .least = 0, .most = 1e15},
    [BYTES_MOST] = {.name = "bytes_most", .kind = CELL_REAL, .least = 0, .most = 1e15},
    [SECS] = {.name = "secs", .kind = CELL_REAL, .least = 0, .most = 1e9},
    [SKIP] = {.name = "skip"},
    [PREDICTED_SECS] = {.name = "predicted_secs", .kind = CELL_RESULT},
    [WHY_SKIPPED] = {.name = "why_skipped", .kind = CELL_RESULT},
};

/* Groups of fewer GPUs than their nodes have are spread over all nodes, unless the row says otherwise. */
static int set_place(const table *t, int64_t row, const qdr_machine *machine, qdr_sample *work, failure *why)
{
    const int node = machine->ranks_per_node, gpus = work->n_ranks > 0 ? work->n_ranks : 1;
    const int least = (gpus + node - 1) / node, nodes = (int)table_number(t, row, NODES, least);
    const int64_t n_all = (int64_t)nodes * node;
    if (gpus > n_all)
        return table_fail(t, row, GPUS, why, "%d are more than the %lld that %d nodes of %s have; correct one", gpus,
                          (long long)n_all, nodes, machine->name);
    if (table_has(t, row, NODES) && gpus % nodes && !table_has(t, row, STRIDED))
        return table_fail(t, row, GPUS, why, "%d nodes cannot share %d evenly; correct one, or say if it is strided",
                          nodes, gpus);
    work->n_ranks_all = (int)n_all;
    work->stride = table_number(t, row, STRIDED, nodes > 1) > 0 ? work->n_ranks_all / gpus : 1;
    return EXIT_OK;
}

/* The time of the largest size, at the mean bandwidth over sizes that double up to it. */
static qdr_status predict_sizes(const qdr_machine *machine, qdr_sample work, double least, double *predicted)
{
    const double most = work.bytes;
    double rates = 0, n = 0;
    for (work.bytes = least; work.bytes <= most; work.bytes *= 2, n++) {
        double secs = 0;
        TRY(qdr_sample_secs(machine, &work, &secs));
        rates += work.bytes / secs;
    }
    *predicted = most / (rates / n);
    return QDR_OK;
}

static int read_row(const table *t, int64_t row, measured *coll, qdr_sample *work, failure *why)
{
    static const int needed[] = {COLLECTIVE, GPUS, BYTES, SECS, -1};
    const char *reason = table_text(t, row, SKIP);
    coll->title = table_text(t, row, MACHINE);
    coll->part = table_text(t, row, COLLECTIVE);
    if (*reason) skip(coll, "%s", reason);
    if (*reason) return EXIT_OK;
    if (table_need(t, row, needed, "fill it in, or say in column 'skip' why not", why)) return why->code;
    const double least = table_number(t, row, BYTES, 0);
    coll->secs = table_number(t, row, SECS, 0);
    *work = (qdr_sample){QDR_INIT(qdr_sample),
                         .kind = QDR_SAMPLE_COLLECTIVE,
                         .secs = coll->secs,
                         .coll = kinds[(int)table_number(t, row, COLLECTIVE, 0)],
                         .n_ranks = (int)table_number(t, row, GPUS, 0),
                         .bytes = table_number(t, row, BYTES_MOST, least),
                         .alone = (int)table_number(t, row, ALONE, 1)};
    return work->bytes < least ? table_fail(t, row, BYTES_MOST, why, "%.15g is less than bytes = %.15g; correct one",
                                            work->bytes, least)
                               : EXIT_OK;
}

static int predict_collective(const table *t, int64_t row, predictor *all, measured *coll, failure *why)
{
    qdr_sample work = {QDR_INIT(qdr_sample)};
    if (read_row(t, row, coll, &work, why) || coll->why_skipped[0]) return why->code;
    const qdr_machine *known = predictor_machine(all, t, row, (machine_columns){MACHINE, -1}, why);
    if (!known) return why->code;
    qdr_machine machine = *known;
    if (table_number(t, row, ALGORITHM, 0) > 0) {
        machine.collectives.has_tree = 0;
        for (int l = 0; l < machine.n_links; l++) machine.links[l].switch_bytes_per_sec = 0;
    }
    if (set_place(t, row, &machine, &work, why)) return why->code;
    coll->state_share = 1;
    if (predict_sizes(&machine, work, table_number(t, row, BYTES, 0), &coll->predicted_secs) != QDR_OK)
        skip(coll, "%.300s", qdr_last_error());
    return EXIT_OK;
}

const table_kind kind_collectives = {.columns = columns,
                                     .predict = predict_collective,
                                     .rows = "collectives",
                                     .list = "groups",
                                     .title = "machine",
                                     .part = "collective"};
