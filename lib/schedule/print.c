/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules as text. */
#include <inttypes.h>

#include "core/operands.h"
#include "schedule/schedule.h"

const char *qdri_task_name(const qdri_task *task)
{
    switch (task->kind) {
    case QDRI_TASK_PRODUCT: return "product";
    case QDRI_TASK_COLLECTIVE: return qdr_coll_kind_name(task->coll);
    case QDRI_TASK_KERNEL: return qdri_kernel_name(task->kernel.kind);
    case QDRI_TASK_CALLER_FORWARD: return "forward";
    default: return "backward";
    }
}

const char *qdri_product_mode(const qdri_task *task)
{
    static const char *const modes[] = {"NN", "NT", "TN", "TT", "NN fp8", "NT fp8", "TN fp8", "TT fp8"};
    return modes[4 * (task->round_a != 0) + 2 * (task->trans_a != 0) + (task->trans_b != 0)];
}

static void print_refs(const char *label, const qdri_ref *refs, int n, FILE *file)
{
    fprintf(file, " %s", label);
    for (int i = 0; i < n; i++)
        if (refs[i].buffer >= 0) fprintf(file, " #%d", refs[i].buffer);
}

static void print_sending(const qdri_task *task, FILE *file)
{
    char codec[64];
    fprintf(file, " sends=%" PRId64 "B", task->bytes_sent);
    if (task->codec.kind == QDR_CODEC_RAW) return;
    qdr_codec_text(&task->codec, codec, sizeof codec);
    fprintf(file, " as %s", codec);
}

void qdri_schedule_print(const qdri_schedule *schedule, FILE *file)
{
    for (int number = 0; number < schedule->n_tasks; number++) {
        const qdri_task *task = &schedule->tasks[number];
        const int row = qdri_task_row(task);
        fprintf(file, "%4d %-9s %-14s %-16s", number,
                row == QDRI_STREAM_OF_COMPUTE ? "compute" : qdr_channel_name((qdr_channel)(row - 1)),
                qdri_task_name(task), task->name);
        if (task->kind == QDRI_TASK_PRODUCT)
            fprintf(file, " %s m=%" PRId64 " n=%" PRId64 " k=%" PRId64 " flops=%.0f", qdri_product_mode(task), task->m,
                    task->n, task->k, task->flops);
        else if (task->kind == QDRI_TASK_COLLECTIVE)
            print_sending(task, file);
        else if (task->m || task->n)
            fprintf(file, " rows=%" PRId64 " cols=%" PRId64, task->m, task->n);
        if (task->accumulate) fputs(" accumulate", file);
        print_refs("reads", task->reads, task->n_reads, file);
        print_refs("writes", task->writes, task->n_writes, file);
        if (task->n_waits) fputs(" waits", file);
        for (int i = 0; i < task->n_waits; i++) fprintf(file, " %d", task->waits[i]);
        fputc('\n', file);
    }
}
