/* SPDX-License-Identifier: Apache-2.0 */
/* Predicted and measured times, by kind of task. */
#include "quadrille/report.h"

#include <stdlib.h>
#include <string.h>

#include "core/environment.h"
#include "core/log.h"
#include "core/size.h"
#include "core/sized.h"
#include "linear/internal.h"
#include "quadrille/auto.h"
#include "schedule/net_price.h"

enum { MAX_KINDS = 96, LABEL_BYTES = 32 };

typedef struct kind_row {
    char label[LABEL_BYTES];
    double n_tasks, predicted, measured; /* for one forward and one backward pass */
} kind_row;

typedef struct report {
    const qdr_stack *stack;
    const qdr_machine *machine;
    kind_row rows[MAX_KINDS];
    int n_rows;
    double predicted[2], measured[2]; /* of forward and backward as a whole */
    int least_runs;
} report;

qdr_status qdr_stack_measure(qdr_stack *stack)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "measure: the stack is NULL");
    return stack->measures ? QDR_OK : qdri_measures_create(&stack->lists, &stack->measures);
}

/* ---- kinds ---- */

/* "z", "d far", "x stat": gathers and sums over one axis differ by their kind already. */
static const char *ranks_of(qdr_channel channel)
{
    static const char *const axes[] = {"x", "y", "z", "d"};
    return channel > QDR_CHANNEL_D_REDUCE ? qdr_channel_name(channel) : axes[qdr_channel_axis(channel)];
}

static void label_of(const qdri_task *task, char label[LABEL_BYTES])
{
    const char *second = "";
    if (task->kind == QDRI_TASK_PRODUCT) second = qdri_product_mode(task);
    if (task->kind == QDRI_TASK_COLLECTIVE) second = ranks_of(task->channel);
    const int n = snprintf(label, LABEL_BYTES, "%s%s%s", qdri_task_name(task), *second ? " " : "", second);
    qdr_codec codec = task->codec;
    if (codec.kind == QDR_CODEC_RAW || n + 1 >= LABEL_BYTES) return;
    codec.flags = 0;
    label[n] = ' ';
    qdr_codec_text(&codec, label + n + 1, LABEL_BYTES - (size_t)n - 1);
}

/* ---- lists ---- */

static qdr_status add_list(report *r, const qdri_measured_list *list, double weight, int direction)
{
    const qdri_schedule *schedule = list->schedule;
    double *secs = NULL, end_secs = 0;
    QDR_TRY(QDRI_NEW(schedule->n_tasks, "a report", &secs));
    const qdr_status status = qdri_net_price(&r->stack->net, qdri_grid_order(r->stack->grid), r->machine, schedule,
                                             secs, &end_secs);
    for (int i = 0; status == QDR_OK && i < schedule->n_tasks; i++) {
        char label[LABEL_BYTES];
        label_of(&schedule->tasks[i], label);
        int at = 0;
        while (at < r->n_rows && strcmp(r->rows[at].label, label) != 0) at++;
        if (at == MAX_KINDS) at = MAX_KINDS - 1; /* too many kinds */
        if (at == r->n_rows) memcpy(r->rows[r->n_rows++].label, label, sizeof label);
        kind_row *row = &r->rows[at];
        row->n_tasks += weight;
        row->predicted += weight * secs[i];
        row->measured += weight * qdri_measured_task(list, i);
    }
    free(secs);
    r->predicted[direction] += weight * end_secs;
    r->measured[direction] += weight * qdri_measured_whole(list);
    return status;
}

static qdr_status nothing_measured(void)
{
    return QDR_FAIL(
        QDR_ERR_STATE,
        "report: no schedule of the stack ran twice since measuring began; run it more often, without a graph");
}

static qdr_status add_lists(report *r)
{
    const qdri_measures *measures = r->stack->measures;
    double n_passes[2] = {0}; /* forward and backward */
    r->least_runs = QDRI_KEPT_RUNS;
    for (int i = 0; i < QDRI_N_LISTS; i++) {
        const int n = qdri_measured_runs(&measures->lists[i]);
        if (n && n < r->least_runs) r->least_runs = n;
        if (n) n_passes[i >= QDRI_N_FORWARDS] += (double)measures->lists[i].n_runs;
    }
    for (int i = 0; i < QDRI_N_LISTS; i++) {
        const qdri_measured_list *list = &measures->lists[i];
        const int direction = i >= QDRI_N_FORWARDS;
        if (qdri_measured_runs(list)) QDR_TRY(add_list(r, list, (double)list->n_runs / n_passes[direction], direction));
    }
    return r->n_rows ? QDR_OK : nothing_measured();
}

/* ---- the table ---- */

static int slowest_first(const void *a, const void *b)
{
    const kind_row *x = a, *y = b;
    return (x->measured < y->measured) - (x->measured > y->measured);
}

static void print_times(FILE *file, double predicted, double measured)
{
    fprintf(file, " %14.4f %14.4f", 1e3 * predicted, 1e3 * measured);
    if (predicted > 0)
        fprintf(file, " %9.2f\n", measured / predicted);
    else
        fprintf(file, " %9s\n", "-");
}

static void print(const report *r, FILE *file)
{
    const qdr_context *ctx = qdr_grid_context(r->stack->grid);
    const int *size = r->stack->net.position.size;
    fprintf(file,
            "predicted for %s and measured on rank %d of %d, grid %dx%dx%dx%d: medians of %d run%s or more, without "
            "the first\n",
            r->machine->name, qdr_context_rank(ctx), qdr_context_size(ctx), size[QDR_X], size[QDR_Y], size[QDR_Z],
            size[QDR_D], r->least_runs, r->least_runs == 1 ? "" : "s");
    fprintf(file, "%-30s %7s %14s %14s %9s\n", "kind of task", "count", "predicted ms", "measured ms", "ratio");
    for (int i = 0; i < r->n_rows; i++) {
        const kind_row *row = &r->rows[i];
        fprintf(file, "%-30s %7.4g", row->label, row->n_tasks);
        print_times(file, row->predicted, row->measured);
    }
    fprintf(file, "%-38s %14s %14s %9s\n%-38s", "tasks together", "simulated ms", "measured ms", "ratio", "forward");
    print_times(file, r->predicted[0], r->measured[0]);
    fprintf(file, "%-38s", "backward");
    print_times(file, r->predicted[1], r->measured[1]);
    fprintf(file, "%-38s", "both");
    print_times(file, r->predicted[0] + r->predicted[1], r->measured[0] + r->measured[1]);
}

static qdr_status check_measured(const qdr_stack *stack)
{
    if (stack->measures) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE, "report: the stack is not measured; call qdr_stack_measure() before it runs");
}

qdr_status qdr_stack_report(qdr_stack *stack, const qdr_machine *machine, FILE *file)
{
    qdr_machine here;
    if (!stack || !file) return QDR_FAIL(QDR_ERR_ARGUMENT, "report: the stack or the file is NULL");
    QDR_TRY(check_measured(stack));
    QDR_TRY(machine ? QDRI_TAKE(qdr_machine, machine, &here)
                    : qdri_context_machine(qdr_grid_context(stack->grid), &here));
    QDR_TRY(qdri_stack_drain(stack));
    report *r = NULL;
    QDR_TRY(QDRI_NEW(1, "a report", &r));
    r->stack = stack;
    r->machine = &here;
    const qdr_status status = add_lists(r);
    if (status == QDR_OK) {
        qsort(r->rows, (size_t)r->n_rows, sizeof *r->rows, slowest_first);
        print(r, file);
    }
    free(r);
    return status;
}

/* ---- samples ---- */

qdr_status qdr_stack_samples(qdr_stack *stack, qdr_sample_fn each, void *user)
{
    int n_lists = 0;
    if (!stack || !each) return QDR_FAIL(QDR_ERR_ARGUMENT, "report: the stack or the function is NULL");
    QDR_TRY(check_measured(stack));
    QDR_TRY(qdri_stack_drain(stack));
    for (int l = 0; l < QDRI_N_LISTS; l++) {
        const qdri_measured_list *list = &stack->measures->lists[l];
        if (!qdri_measured_runs(list)) continue;
        n_lists++;
        for (int i = 0; i < list->schedule->n_tasks; i++) {
            const qdri_task *task = &list->schedule->tasks[i];
            char label[LABEL_BYTES];
            qdr_sample sample;
            if (!qdri_net_sample(&stack->net, qdri_grid_order(stack->grid), task, &sample)) continue;
            label_of(task, label);
            sample.group = label;
            sample.secs = qdri_measured_task(list, i);
            if (sample.secs > 0) each(&sample, user);
        }
    }
    return n_lists ? QDR_OK : nothing_measured();
}

/* ---- QDR_REPORT ---- */

qdr_status qdri_report_begin(qdr_stack *stack)
{
    int wanted = 0;
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_REPORT, &wanted));
    if (!wanted || qdr_context_rank(qdr_grid_context(stack->grid)) != 0) return QDR_OK;
    stack->reports = 1;
    return qdr_stack_measure(stack);
}

void qdri_report_end(qdr_stack *stack)
{
    qdri_kept_error kept;
    if (!stack->reports) return;
    qdri_keep_last_error(&kept);
    if (qdr_stack_report(stack, NULL, stderr) != QDR_OK)
        qdri_log(QDRI_LOG_WARNING, "report: nothing is reported: %s", qdr_last_error());
    qdri_restore_last_error(&kept); /* the caller may still need it */
}
