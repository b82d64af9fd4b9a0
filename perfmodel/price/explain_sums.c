/* SPDX-License-Identifier: Apache-2.0 */
/* The terms of a step's time and of memory, with the numbers from which they are computed. */
#include <math.h>

#include "core/order.h"
#include "price/explain.h"
#include "price/step.h"

#define GIB 1073741824.0

/* ---- time ---- */

/* For one layer in one list, or for embedding and head. */
static double term_in_list(const qdri_explained *all, qdri_list_kind kind, qdr_time_term term)
{
    const qdri_list *list = &all->lists->of[kind];
    double secs = 0;
    for (int i = 0; i < list->schedule.n_tasks; i++) {
        const qdri_task *task = &list->schedule.tasks[i];
        const int layer = qdri_lists_layer(all->lists, task);
        const int computes = task->stream == QDRI_STREAM_OF_COMPUTE && task->kind != QDRI_TASK_COLLECTIVE;
        if (computes && (layer == 1 || layer < 0) && qdri_task_term(all->lists, task) == term)
            secs += list->prices[i].secs;
    }
    return secs;
}

/* The backward pass averaged over the micro-batches; the last one sums over d. */
static double mean_backward(const qdri_explained *all, qdr_time_term term)
{
    const double n = all->result.n_micro, last = term_in_list(all, qdri_last_list(all->lists), term);
    return n <= 1 ? last : ((n - 1) * term_in_list(all, qdri_before_list(&all->pricing), term) + last) / n;
}

static void explain_work(const qdri_explained *all, qdr_time_term term)
{
    if (term != QDR_TIME_ENDS) fprintf(all->file, "%.0f layers * ", all->n_layers);
    fprintf(all->file, "%.0f micro-batch%s * (%s forward + %s backward)", all->result.n_micro,
            all->result.n_micro > 1 ? "es" : "", qdri_secs_in_words(term_in_list(all, QDRI_LIST_FORWARD, term)).text,
            qdri_secs_in_words(mean_backward(all, term)).text);
}

static void explain_waiting(const qdri_explained *all, int axis)
{
    const double busy = all->result.busy[axis], waited = all->result.time[QDR_TIME_X + axis];
    fprintf(all->file, "waiting for collectives over %c: they take %s, of which %s is hidden", QDRI_USUAL_ORDER[axis],
            qdri_secs_in_words(busy).text, qdri_secs_in_words(fmax(0, busy - waited)).text);
}

static void explain_term(const qdri_explained *all, qdr_time_term term)
{
    switch (term) {
    case QDR_TIME_PRODUCTS:
    case QDR_TIME_ATTENTION:
    case QDR_TIME_KERNELS:
    case QDR_TIME_ENDS: explain_work(all, term); break;
    case QDR_TIME_X:
    case QDR_TIME_Y:
    case QDR_TIME_Z:
    case QDR_TIME_D: explain_waiting(all, (int)(term - QDR_TIME_X)); break;
    case QDR_TIME_RECOMPUTE:
        fputs(all->plan->recompute == QDR_RECOMPUTE_FULL ? "each layer's forward again, with what "
                                                           "it waits for"
                                                         : "attention's forward again",
              all->file);
        break;
    case QDR_TIME_OPTIMIZER: fputs("the shards' state read and written once", all->file); break;
    case QDR_TIME_BUBBLE: fputs("stages waiting for one another", all->file); break;
    case QDR_TIME_HOST: fputs("the host enqueuing kernels", all->file); break;
    case QDR_N_TIME_TERMS: break;
    }
}

void qdri_explain_time(const qdri_explained *all)
{
    const qdr_plan_result *result = &all->result;
    fputs("\nTime of a step\n", all->file);
    for (int term = 0; term < QDR_N_TIME_TERMS; term++) {
        if (!(fabs(result->time[term]) > 0)) continue;
        fprintf(all->file, "  %-11s %10s %5.1f %%  ", qdr_time_term_name((qdr_time_term)term),
                qdri_secs_in_words(result->time[term]).text, 100 * result->time[term] / result->secs);
        explain_term(all, (qdr_time_term)term);
        fputc('\n', all->file);
    }
    fprintf(all->file, "  %-11s %10s          %.4g TFLOP a rank: %.1f %% of peak, %.0f tokens/s\n", "sum",
            qdri_secs_in_words(result->secs).text,
            1e-12 * result->flops / ((double)all->plan->x * all->plan->y * all->plan->z * all->plan->d),
            100 * result->peak_share, result->tokens_per_sec);
}

/* ---- memory ---- */

static void explain_state(const qdri_explained *all, const char *what, int parts, double bytes)
{
    const int z = all->plan->z;
    const double n_elems = all->result.memory[QDR_MEMORY_PARAMETERS] / all->pricing.sizes.elem_bytes;
    fprintf(all->file, "%.4g M elements * %.4g bytes%s", 1e-6 * n_elems,
            n_elems > 0 ? bytes / n_elems * (parts > z ? (double)parts / z : 1) : 0, what);
    if (parts > z) fprintf(all->file, ", over %d ranks in place of z = %d", parts, z);
}

static void explain_memory_term(const qdri_explained *all, qdr_memory_term term)
{
    const qdr_plan *plan = all->plan;
    const qdr_machine_software *software = &all->model->machine.software;
    const double bytes = all->result.memory[term];
    switch (term) {
    case QDR_MEMORY_PARAMETERS: explain_state(all, " (the network's / (x*y*z), with padding)", 0, bytes); break;
    case QDR_MEMORY_GRADIENTS: explain_state(all, "", plan->gradient_parts, bytes); break;
    case QDR_MEMORY_OPTIMIZER: explain_state(all, "", plan->optimizer_parts, bytes); break;
    case QDR_MEMORY_ACTIVATIONS:
        fprintf(all->file, "of one micro-batch, %.0f layers: %s", all->n_layers,
                plan->recompute == QDR_RECOMPUTE_FULL        ? "their inputs, and one layer whole"
                : plan->recompute == QDR_RECOMPUTE_ATTENTION ? "all but scores"
                                                             : "all that backward needs");
        break;
    case QDR_MEMORY_GATHERED: fputs("two whole weights of the largest product, and their gradients", all->file); break;
    case QDR_MEMORY_WORKSPACE: fputs("gradients of activations that live at once; logits and theirs", all->file); break;
    case QDR_MEMORY_RESERVE:
        fprintf(all->file, "%.4g GiB of libraries + %.3g of activations for fragments", software->fixed_bytes / GIB,
                software->fragment_share);
        break;
    case QDR_N_MEMORY_TERMS: break;
    }
}

void qdri_explain_memory(const qdri_explained *all)
{
    const double limit = all->model->machine.memory_bytes;
    fputs("\nMemory of a rank\n", all->file);
    for (int term = 0; term < QDR_N_MEMORY_TERMS; term++) {
        if (!(all->result.memory[term] > 0)) continue;
        fprintf(all->file, "  %-11s %8.2f GiB  ", qdr_memory_term_name((qdr_memory_term)term),
                all->result.memory[term] / GIB);
        explain_memory_term(all, (qdr_memory_term)term);
        fputc('\n', all->file);
    }
    fprintf(all->file, "  %-11s %8.2f GiB  of %.4g GiB\n", "sum", all->result.memory_bytes / GIB, limit / GIB);
}
