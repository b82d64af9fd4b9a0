/* SPDX-License-Identifier: Apache-2.0 */
/* A row of a table of collectives as a sample, and the model's time for it. */
#include "predict/coll.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "predict/text.h"

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

enum { MOST_SIZES = 64 };

/* ---- rows ---- */

int coll_columns_find(const csv_table *table, coll_columns *columns, failure *why)
{
    char names[CSV_NAMES_BYTES];
    *columns = (coll_columns){
        .machine = csv_find(table, "machine"),
        .gpu = csv_find(table, "gpu"),
        .collective = csv_find(table, "collective"),
        .nodes = csv_find(table, "nodes"),
        .gpus = csv_find(table, "gpus"),
        .bytes = csv_find(table, "bytes"),
        .time_us = csv_find(table, "time_us"),
        .busbw = csv_find(table, "busbw_GBps"),
        .algo = csv_find(table, "algo"),
        .source = csv_find(table, "source"),
    };
    if (columns->collective >= 0 && columns->gpus >= 0 && (columns->time_us >= 0 || columns->busbw >= 0))
        return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "%.200s: a table of collectives needs the columns collective, gpus, and time_us or busbw_GBps, "
                "separated by commas; there are only %s",
                table->name, csv_names(table, names));
}

/* A number above 0 and at most `most`, or 0 if the cell is empty. */
static double positive(const csv_table *table, int64_t row, int column, double most, measured_coll *coll)
{
    char shown[CSV_SHOWN_BYTES];
    double value = 0;
    const char *cell = csv_cell(table, row, column);
    const int found = csv_number(cell, &value);
    if (found == 0 || (found > 0 && value > 0 && value <= most)) return value;
    row_skip(coll->why_skipped, "line %lld, column '%s': '%s' is not a number above 0 and up to %g",
             (long long)table->lines[row], csv_column(table, column), csv_printable(cell, shown), most);
    return 0;
}

static double whole(const csv_table *table, int64_t row, int column, double most, measured_coll *coll)
{
    const double value = positive(table, row, column, most, coll);
    if (value == floor(value)) return value;
    row_skip(coll->why_skipped, "line %lld, column '%s': %g is not a whole number", (long long)table->lines[row],
             csv_column(table, column), value);
    return 0;
}

/* "all_reduce group 8 strided" and "AllGather" begin with a kind, with or without separators between its words. */
static void read_kind(const char *text, measured_coll *coll)
{
    static const struct {
        const char *letters;
        qdr_coll_kind kind;
    } kinds[] = {{"allreduce", QDR_ALL_REDUCE},
                 {"allgather", QDR_ALL_GATHER},
                 {"reducescatter", QDR_REDUCE_SCATTER},
                 {"sendrecv", QDR_SEND_RECV}};
    char letters[32] = "", shown[CSV_SHOWN_BYTES], words[128] = "";
    for (size_t n = 0; *text && n + 1 < sizeof letters; text++)
        if (isalpha((unsigned char)*text)) letters[n++] = (char)tolower((unsigned char)*text);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strncmp(letters, kinds[i].letters, strlen(kinds[i].letters)) != 0) continue;
        coll->work.coll = kinds[i].kind;
        text_append(words, sizeof words, coll->collective);
        coll->is_group = text_has(words, WORDS("group"));
        coll->is_strided = text_has(words, WORDS("strided"));
        return;
    }
    row_skip(coll->why_skipped, "'%s' is not an all-reduce, all-gather, reduce-scatter or send-recv",
             csv_printable(coll->collective, shown));
}

/* "group 8 strided" must have as many ranks as the row, and say whether it is strided. */
static void check_group(measured_coll *coll)
{
    char text[128] = "", shown[CSV_SHOWN_BYTES];
    text_append(text, sizeof text, coll->collective);
    text_words(text);
    const char *at = strstr(text, "group");
    if (!at) return;
    at += strcspn(at, "0123456789");
    if (!*at) return;
    char *end;
    if (strtol(at, &end, 10) != coll->work.n_ranks)
        row_skip(coll->why_skipped, "'%s', but gpus is %d: a row has the ranks of one group",
                 csv_printable(coll->collective, shown), coll->work.n_ranks);
    end += strcspn(end, "abcdefghijklmnopqrstuvwxyz");
    if (*end && strncmp(end, "consec", 6) != 0 && strncmp(end, "contig", 6) != 0 && strncmp(end, "strided", 7) != 0)
        row_skip(coll->why_skipped, "'%s': after the ranks of a group, write consecutive, contiguous or strided",
                 csv_printable(coll->collective, shown));
}

static void check_nodes(measured_coll *coll)
{
    if (!coll->is_group && coll->n_nodes > 0 && coll->work.n_ranks % coll->n_nodes)
        row_skip(coll->why_skipped, "gpus is %d, which %d nodes cannot share evenly", coll->work.n_ranks,
                 coll->n_nodes);
}

static double assumed_or(assumed_row *fit, assumed_field field, int has_cell, double otherwise)
{
    const assumption *entry = assumed_take(fit, field, has_cell);
    return entry ? entry->numbers[field] : otherwise;
}

static void read_bytes(const csv_table *table, const coll_columns *columns, int64_t row, measured_coll *coll,
                       assumed_row *fit)
{
    const double bytes = positive(table, row, columns->bytes, 1e15, coll);
    const int has_cell = bytes > 0;
    coll->least_bytes = assumed_or(fit, ASSUMED_BYTES, has_cell, bytes);
    coll->work.bytes = assumed_or(fit, ASSUMED_BYTES_MOST, has_cell, coll->least_bytes);
    if (!(coll->least_bytes > 0)) row_skip(coll->why_skipped, "bytes is missing, and nothing is assumed");
    if (coll->work.bytes < coll->least_bytes || coll->work.bytes / coll->least_bytes > ldexp(1, MOST_SIZES))
        row_skip(coll->why_skipped, "bytes_most is assumed as %g, but bytes as %g", coll->work.bytes,
                 coll->least_bytes);
}

double coll_busbw(const measured_coll *coll, double secs)
{
    const qdr_sample *work = &coll->work;
    const double g = work->n_ranks, share = (g - 1) / g;
    const double passes = work->coll == QDR_SEND_RECV ? 1 : work->coll == QDR_ALL_REDUCE ? 2 * share : share;
    return passes * work->bytes / secs;
}

void coll_read(const csv_table *table, const coll_columns *columns, int64_t row, const assumptions *assumed,
               measured_coll *coll, assumed_row *fit)
{
    char algo[32] = "";
    coll->collective = csv_cell(table, row, columns->collective);
    coll->source = csv_cell(table, row, columns->source);
    coll->host = csv_cell(table, row, columns->machine);
    coll->gpu = csv_cell(table, row, columns->gpu);
    snprintf(coll->machine, sizeof coll->machine, "%.60s%s%.60s", coll->host, *coll->host && *coll->gpu ? " " : "",
             coll->gpu);
    coll->work = (qdr_sample){.version = QDR_OPTS_INIT, .kind = QDR_SAMPLE_COLLECTIVE};
    read_kind(coll->collective, coll);
    *fit = assumed_fit(assumed, coll->source, coll->collective);
    read_bytes(table, columns, row, coll, fit);
    coll->work.n_ranks = (int)whole(table, row, columns->gpus, 1e6, coll);
    coll->n_nodes = (int)whole(table, row, columns->nodes, 1e6, coll);
    if (coll->work.n_ranks < 2) row_skip(coll->why_skipped, "gpus is below 2: nothing is sent");
    check_group(coll);
    check_nodes(coll);
    coll->work.alone = (int)assumed_or(fit, ASSUMED_ALONE, 0, !coll->is_group);
    text_append(algo, sizeof algo, csv_cell(table, row, columns->algo));
    coll->is_ring = strcmp(algo, "ring") == 0;
    const double us = positive(table, row, columns->time_us, 1e15, coll),
                 busbw = positive(table, row, columns->busbw, 1e9, coll);
    if (us > 0)
        coll->work.secs = 1e-6 * us;
    else if (busbw > 0)
        coll->work.secs = coll_busbw(coll, 1e9 * busbw);
    else
        row_skip(coll->why_skipped, "nothing was measured: time_us and busbw_GBps are empty");
}

/* ---- the model ---- */

/* Finds the machine by the row's machine and GPU, or by either alone. NULL: skipped (why_skipped), or a failure. */
static const qdr_machine *machine_of(predictor *all, measured_coll *coll, failure *why)
{
    char sentence[sizeof coll->why_skipped];
    const char *why_not = "";
    const qdr_machine *known = predictor_machine(all, coll->machine, &why_not, why);
    snprintf(sentence, sizeof sentence, "%s", why_not); /* which the next call may take away */
    if (!known && !why->code && *coll->host) known = predictor_machine(all, coll->host, &why_not, why);
    if (!known && !why->code && *coll->gpu) known = predictor_machine(all, coll->gpu, &why_not, why);
    if (!known && !why->code) row_skip(coll->why_skipped, "%s", sentence);
    return known;
}

/* Position of the group on the machine. */
static void place(const qdr_machine *machine, measured_coll *coll)
{
    qdr_sample *work = &coll->work;
    const int node = machine->ranks_per_node;
    const int n_nodes = coll->n_nodes > 0 ? coll->n_nodes : (work->n_ranks + node - 1) / node;
    const int64_t n_all = (int64_t)n_nodes * node;
    if (coll->n_nodes > 0 && work->n_ranks > n_all)
        row_skip(coll->why_skipped, "gpus is %d, but %d nodes of %s have %lld", work->n_ranks, n_nodes, machine->name,
                 (long long)n_all);
    work->n_ranks_all = n_all > work->n_ranks ? (int)n_all : work->n_ranks;
    /* Fewer ranks than several nodes have are spread over all of them, unless they form one of many groups. */
    const int spread = coll->is_group ? coll->is_strided : n_nodes > 1;
    work->stride = spread ? work->n_ranks_all / work->n_ranks : 1;
}

static void without_other_ways(qdr_machine *machine)
{
    machine->collectives.has_tree = 0;
    for (int l = 0; l < machine->n_links; l++) machine->links[l].switch_bytes_per_sec = 0;
}

/* The time of the largest size, at the mean bandwidth over all sizes. */
static qdr_status predict_sizes(const qdr_machine *machine, measured_coll *coll)
{
    qdr_sample work = coll->work;
    double rates = 0, n = 0;
    coll->predicted_secs = 0;
    for (work.bytes = coll->least_bytes; work.bytes <= coll->work.bytes; work.bytes *= 2, n++) {
        double secs = 0;
        const qdr_status status = qdr_sample_secs(machine, &work, &secs);
        if (status) return status;
        rates += work.bytes / secs;
    }
    coll->predicted_secs = coll->work.bytes / (rates / n);
    return QDR_OK;
}

int coll_predict(predictor *all, measured_coll *coll, failure *why)
{
    if (coll->why_skipped[0]) return EXIT_OK;
    const qdr_machine *known = machine_of(all, coll, why);
    if (!known) return why->code;
    qdr_machine machine = *known;
    if (coll->is_ring) without_other_ways(&machine);
    place(&machine, coll);
    if (!coll->why_skipped[0] && predict_sizes(&machine, coll) != QDR_OK)
        row_skip(coll->why_skipped, "%.300s", qdr_last_error());
    return EXIT_OK;
}
