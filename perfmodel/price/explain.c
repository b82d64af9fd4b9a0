/* SPDX-License-Identifier: Apache-2.0 */
/* The derivation of a plan's time and memory, as text: rows and columns of a rank, each kind of task with its formula,
 * then the terms of the step's time and of memory. */

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/group.h"
#include "core/operands.h"
#include "core/order.h"
#include "core/sized.h"
#include "price/gemm.h"
#include "price/model.h"

enum { NAME_BYTES = 64 };
#define GIB 1073741824.0

/* A plan with everything from which its result was computed. */
typedef struct explained {
    const qdr_model *model;
    const qdr_plan *plan;
    const qdri_lists *lists;
    qdri_pricing pricing;
    double n_layers; /* of a stage */
    qdr_plan_result result;
    FILE *file;
} explained;

/* "12.3 ms" */
typedef struct secs_text {
    char text[24];
} secs_text;
static secs_text secs_in_words(double secs)
{
    secs_text words;
    const double size = fabs(secs);
    if (size >= 1)
        snprintf(words.text, sizeof words.text, "%.2f s", secs);
    else if (size >= 1e-3)
        snprintf(words.text, sizeof words.text, "%.2f ms", 1e3 * secs);
    else
        snprintf(words.text, sizeof words.text, "%.1f us", 1e6 * secs);
    return words;
}

static void explain_levels(const explained *all)
{
    const qdr_plan *plan = all->plan;
    const qdri_position at = qdri_plan_position(plan);
    const int gradients = plan->z * at.near, state = gradients * at.far;
    if (qdri_has_levels(&at))
        fprintf(all->file, "levels %d,%d (near %d, far %d, copies %d), ", gradients, state, at.near, at.far,
                plan->z * plan->d / state);
}

static void explain_share(const explained *all)
{
    const qdr_network *n = &all->model->network;
    const qdr_plan *plan = all->plan;
    const qdri_sizes *s = &all->pricing.sizes;
    const double *of = s->of, cells = (double)plan->z * plan->d;
    fprintf(all->file, "%s on %s, grid %dx%dx%dx%d, order %s, ", n->name, all->model->machine.name, plan->x, plan->y,
            plan->z, plan->d, plan->order[0] ? plan->order : QDRI_USUAL_ORDER);
    explain_levels(all);
    fprintf(all->file, "%s edges: %s a step\n", plan->layout == QDR_SCATTERED ? "scattered" : "replicated",
            secs_in_words(all->result.secs).text);
    fprintf(all->file,
            "Products in %d panel%s, rows in %d part%s\n"
            "Rows: %" PRId64 " sequences over z*d = %.0f cells are %.0f for each, in %.0f "
            "micro-batch%s of %.0f; rows = %.0f * %.0f tokens = %.0f\n",
            plan->panels, plan->panels == 1 ? "" : "s", plan->batch_parts, plan->batch_parts == 1 ? "" : "s",
            plan->batch, cells, ceil((double)plan->batch / cells), all->result.n_micro,
            all->result.n_micro > 1 ? "es" : "", s->sequences, s->sequences, s->context, of[QDRI_SIZE_ROWS]);
    fprintf(all->file,
            "Columns: H/x = %" PRId64 "/%d = %.0f, heads/y = %" PRId64 "/%d = %.0f of %" PRId64 ", F/y = %" PRId64
            "/%d = %.0f, V/y = %" PRId64 "/%d = %.0f\n",
            n->hidden, plan->x, of[QDRI_SIZE_HIDDEN], n->heads, plan->y, s->heads, n->head_size, n->ffn, plan->y,
            of[QDRI_SIZE_FFN], n->vocab, plan->y, of[QDRI_SIZE_VOCAB]);
}

/* ---- tasks ---- */

typedef enum section { OF_ALL, OF_PRODUCTS, OF_OPERATIONS, OF_COLLECTIVES } section;

/* A list with the part of it that is shown: a middle layer, and what differs in one of another kind, or embedding and
 * head. */
typedef struct shown_list {
    const explained *all;
    const qdri_list *list;
    int of_layer, is_backward;
} shown_list;

/* Positions to which a task attends; 0: it is no attention. */
static int64_t window_of(const qdri_task *task)
{
    return qdri_task_makes_scores(task) ? task->kernel.u.attention.window : 0;
}

static int is_turned(const qdri_task *task)
{
    return qdri_task_makes_scores(task) && task->kernel.u.attention.rotary_columns > 0;
}

static int is_shown(const shown_list *s, int number)
{
    const qdri_lists *lists = s->all->lists;
    const qdri_task *task = &s->list->schedule.tasks[number];
    const int layer = qdri_lists_layer(lists, task);
    if (!s->of_layer || layer < 0) return !s->of_layer && layer < 0;
    return layer == 1 || (qdri_lists_share(lists, layer) > 0 && window_of(task) > 0);
}

/* Whether two tasks do the same on different memory. */
static int are_alike(const qdri_list *list, int i, int j)
{
    const qdri_task *a = &list->schedule.tasks[i], *b = &list->schedule.tasks[j];
    return a->kind == b->kind && a->m == b->m && a->n == b->n && a->k == b->k && a->trans_a == b->trans_a &&
           a->trans_b == b->trans_b && a->coll == b->coll && a->channel == b->channel && a->count == b->count &&
           a->overlap_class == b->overlap_class && window_of(a) == window_of(b) && is_turned(a) == is_turned(b) &&
           fabs(list->prices[i].secs - list->prices[j].secs) < 1e-12;
}

/* What an extent of a layer's product is: rows, or features split over an axis. */
static void explain_product(const shown_list *s, const qdri_task *task, const qdri_task_price *price)
{
    const qdri_layer_shape *shape = &s->all->lists->net.nodes[task->node].layer.shape;
    const double peak = qdri_machine_products(&s->all->model->machine, s->all->plan->dtype)->peak_flops;
    char in[] = "in/x", out[] = "out/x";
    in[3] = QDRI_USUAL_ORDER[shape->in_axis];
    out[4] = QDRI_USUAL_ORDER[shape->out_axis];
    const int turned = task->trans_a ? shape->storage == QDR_IN_OUT : s->is_backward;
    const char *m = "rows", *n = turned ? in : out, *k = turned ? out : in;
    if (task->trans_a) {
        m = turned ? in : out;
        n = turned ? out : in;
        k = "rows";
    }
    fprintf(s->all->file,
            "%s: m = %" PRId64 " (%s), n = %" PRId64 " (%s), k = %" PRId64 " (%s): %.4g GFLOP at %.1f %% of peak",
            qdri_product_mode(task), task->m, m, task->n, n, task->k, k, 1e-9 * task->flops,
            100 * task->flops / (peak * price->price.work_secs));
}

/* It pays on links that are slower than what is saved, over the time that it takes. */
static void explain_codec(FILE *file, const qdri_task *task, const qdri_task_price *price)
{
    char codec[64];
    qdr_codec_text(&task->codec, codec, sizeof codec);
    fprintf(file, "; as %s %.2g of the bytes, %s of encoding and decoding, pays below %.3g GB/s", codec,
            price->bytes_sent / price->bytes_plain, secs_in_words(price->codec_secs).text,
            1e-9 * (price->bytes_plain - price->bytes_sent) / price->codec_secs);
}

static void explain_collective(const explained *all, const qdri_task *task, const qdri_task_price *price)
{
    const int kind = qdri_group_kind_of(task->channel);
    const qdri_ways *ways = &all->pricing.ways[kind];
    const char axis[] = {QDRI_USUAL_ORDER[qdr_channel_axis(task->channel)], '\0'};
    int top = 0; /* the highest level of links that the group uses */
    for (int l = 0; l < all->model->machine.n_links; l++)
        if (ways->full_rate[l] > 0) top = l;
    fprintf(all->file, "over %s, %d ranks on %s", kind < QDR_N_AXES ? axis : qdr_channel_name(task->channel),
            ways->n_ranks, all->model->machine.links[top].name);
    fprintf(all->file, ", %.4g M elements: %s",
            1e-6 * (double)task->count * (qdri_task_counts_part(task) ? ways->n_ranks : 1),
            secs_in_words(price->price.latency_secs).text);
    if (price->price.work_secs > 0)
        fprintf(all->file, ", then %.4g MB at %.4g GB/s", 1e-6 * price->bytes_sent,
                1e-9 * price->bytes_sent / price->price.work_secs);
    if (task->codec.kind != QDR_CODEC_RAW) explain_codec(all->file, task, price);
}

/* In how many layers, if kinds differ. */
static void explain_attention(const explained *all, const qdri_task *task)
{
    const double share = qdri_lists_share(all->lists, qdri_lists_layer(all->lists, task));
    const int64_t window = window_of(task);
    if (window == 0 || all->lists->n_kinds == 1) return;
    fprintf(all->file, "in %.0f layers", all->n_layers * share);
    if (window < task->kernel.u.attention.context) fprintf(all->file, ", to the last %" PRId64 " positions", window);
    if (!is_turned(task) && !all->model->network.positions) fprintf(all->file, ", without rotary positions");
}

/* The task and all later ones like it, once: their number and the nodes that they belong to, "norm1+norm2". */
static void explain_alike(const shown_list *s, int number)
{
    const qdri_task *task = &s->list->schedule.tasks[number];
    const qdri_task_price *price = &s->list->prices[number];
    char names[NAME_BYTES] = "";
    int n_times = 0;
    for (int i = 0; i < number; i++)
        if (is_shown(s, i) && are_alike(s->list, i, number)) return;
    for (int i = number; i < s->list->schedule.n_tasks; i++) {
        const char *name = s->list->schedule.tasks[i].name;
        const size_t used = strlen(names);
        if (!is_shown(s, i) || !are_alike(s->list, number, i)) continue;
        n_times++;
        if (name && !strstr(names, name)) snprintf(names + used, NAME_BYTES - used, "%s%s", used ? "+" : "", name);
    }
    fprintf(s->all->file, "  %-8s %-19s %-19s %2d * %8s  ", s->is_backward ? "backward" : "forward",
            qdri_task_name(task), names, n_times, secs_in_words(price->secs).text);
    if (task->kind == QDRI_TASK_PRODUCT) explain_product(s, task, price);
    if (task->kind == QDRI_TASK_COLLECTIVE) explain_collective(s->all, task, price);
    explain_attention(s->all, task);
    fputc('\n', s->all->file);
}

static void explain_lists(const explained *all, int of_layer, section which)
{
    const qdri_list_kind kinds[] = {qdri_has_returns(all->lists) ? QDRI_LIST_FORWARD_FIRST : QDRI_LIST_FORWARD,
                                    qdri_last_list(all->lists)};
    for (int k = 0; k < 2; k++) {
        const shown_list shown = {all, &all->lists->of[kinds[k]], of_layer, k};
        for (int i = 0; i < shown.list->schedule.n_tasks; i++) {
            const qdri_task_kind kind = shown.list->schedule.tasks[i].kind;
            const section in = kind == QDRI_TASK_PRODUCT      ? OF_PRODUCTS
                               : kind == QDRI_TASK_COLLECTIVE ? OF_COLLECTIVES
                                                              : OF_OPERATIONS;
            if ((which == OF_ALL || which == in) && is_shown(&shown, i) && shown.list->prices[i].secs > 0)
                explain_alike(&shown, i);
        }
    }
}

static void explain_tasks(const explained *all)
{
    const qdr_machine *machine = &all->model->machine;
    const double peak = qdri_machine_products(machine, all->plan->dtype)->peak_flops;
    fprintf(all->file,
            "\nProducts of a layer: 2*m*n*k flops / (peak * efficiency), peak %.4g TFLOP/s, or "
            "their bytes at %.4g GB/s, and %s to launch\n",
            1e-12 * peak, 1e-9 * machine->memory_bytes_per_sec * machine->memory_efficiency,
            secs_in_words(machine->software.launch_secs).text);
    explain_lists(all, 1, OF_PRODUCTS);
    fputs("\nOther work of a layer on the processor: bytes moved / memory rate, and launches\n", all->file);
    explain_lists(all, 1, OF_OPERATIONS);
    int n_wide = 0;
    for (int axis = 0; axis < QDR_N_AXES; axis++) n_wide += all->pricing.ways[axis].n_ranks > 1;
    if (n_wide) {
        fprintf(all->file, "\nCollectives of a layer, alone: latency, then what each rank sends in all / its rate%s\n",
                qdri_has_returns(all->lists) ? "; gathers over d, and sums over far and copies, once a step" : "");
        explain_lists(all, 1, OF_COLLECTIVES);
    }
    fputs("\nEmbedding, last norm, head and loss\n", all->file);
    explain_lists(all, 0, OF_ALL);
}

/* ---- time ---- */

/* For an average layer in one list, or for embedding and head. */
static double term_in_list(const explained *all, qdri_list_kind kind, qdr_time_term term)
{
    const qdri_list *list = &all->lists->of[kind];
    double secs = 0;
    for (int i = 0; i < list->schedule.n_tasks; i++) {
        const qdri_task *task = &list->schedule.tasks[i];
        const int layer = qdri_lists_layer(all->lists, task);
        const int computes = task->stream == QDRI_STREAM_OF_COMPUTE && task->kind != QDRI_TASK_COLLECTIVE;
        if (computes && qdri_task_term(all->lists, task) == term)
            secs += qdri_lists_share(all->lists, layer) * list->prices[i].secs;
    }
    return secs;
}

static void explain_work(const explained *all, qdr_time_term term)
{
    const double n = all->result.n_micro, forward = term_in_list(all, QDRI_LIST_FORWARD, term);
    double backward = term_in_list(all, qdri_last_list(all->lists), term); /* which sums over d */
    if (n > 1) backward = ((n - 1) * term_in_list(all, QDRI_LIST_BACKWARD_BEFORE, term) + backward) / n;
    if (term != QDR_TIME_ENDS) fprintf(all->file, "%.0f layers * ", all->n_layers);
    fprintf(all->file, "%.0f micro-batch%s * (%s forward + %s backward)", n, n > 1 ? "es" : "",
            secs_in_words(forward).text, secs_in_words(backward).text);
}

/* What is repeated, and what activations are kept. */
static const char *const recompute_words[][2] = {
    [QDR_RECOMPUTE_NONE] = {"nothing", "all that backward needs"},
    [QDR_RECOMPUTE_ATTENTION] = {"attention's forward again", "all but scores"},
    [QDR_RECOMPUTE_FULL] = {"what each layer's backward reads, made from its input again", "their inputs"},
    [QDR_RECOMPUTE_OPERATIONS] = {"norms and activation functions again", "all that backward needs but their results"},
    [QDR_RECOMPUTE_LAYERS] = {"each layer's forward again, with what it waits for",
                              "their inputs, and one layer whole"}};

static void explain_term(const explained *all, qdr_time_term term)
{
    const int axis = (int)term - (int)QDR_TIME_X; /* if it is one */
    switch (term) {
    case QDR_TIME_PRODUCTS:
    case QDR_TIME_ATTENTION:
    case QDR_TIME_KERNELS:
    case QDR_TIME_ENDS: explain_work(all, term); break;
    case QDR_TIME_X:
    case QDR_TIME_Y:
    case QDR_TIME_Z:
    case QDR_TIME_D:
        fprintf(all->file, "waiting for collectives over %c: they take %s, of which %s is hidden",
                QDRI_USUAL_ORDER[axis], secs_in_words(all->result.busy[axis]).text,
                secs_in_words(fmax(0, all->result.busy[axis] - all->result.time[term])).text);
        break;
    case QDR_TIME_RECOMPUTE: fputs(recompute_words[all->plan->recompute][0], all->file); break;
    case QDR_TIME_OPTIMIZER: fputs("the shards' state read and written once", all->file); break;
    case QDR_TIME_BUBBLE: fputs("stages waiting for one another", all->file); break;
    case QDR_TIME_HOST: fputs("the host enqueuing kernels", all->file); break;
    case QDR_N_TIME_TERMS: break;
    }
}

static void explain_time(const explained *all)
{
    const qdr_plan_result *result = &all->result;
    fputs("\nTime of a step\n", all->file);
    for (int term = 0; term < QDR_N_TIME_TERMS; term++) {
        if (!(fabs(result->time[term]) > 0)) continue;
        fprintf(all->file, "  %-11s %10s %5.1f %%  ", qdr_time_term_name((qdr_time_term)term),
                secs_in_words(result->time[term]).text, 100 * result->time[term] / result->secs);
        explain_term(all, (qdr_time_term)term);
        fputc('\n', all->file);
    }
    fprintf(all->file, "  %-11s %10s          %.4g TFLOP a rank: %.1f %% of peak, %.0f tokens/s\n", "sum",
            secs_in_words(result->secs).text,
            1e-12 * result->flops / ((double)all->plan->x * all->plan->y * all->plan->z * all->plan->d),
            100 * result->peak_share, result->tokens_per_sec);
}

/* ---- memory ---- */

/* parts: of the matrices; each: bytes of an element, if they are more than z. */
static void explain_state(const explained *all, const char *what, int parts, double each, double bytes)
{
    const int z = all->plan->z;
    const double all_elems = all->result.memory[QDR_MEMORY_PARAMETERS] / all->pricing.sizes.elem_bytes;
    const double n_elems = parts > z ? bytes / each : all_elems;
    fprintf(all->file, "%.4g M elements * %.4g bytes%s", 1e-6 * n_elems, n_elems > 0 ? bytes / n_elems : 0, what);
    if (parts > z) fprintf(all->file, ", matrices over %d ranks in place of z = %d", parts, z);
}

static void explain_memory_term(const explained *all, qdr_memory_term term)
{
    const qdr_plan *plan = all->plan;
    const qdr_machine_software *software = &all->model->machine.software;
    const double bytes = all->result.memory[term], gradient_bytes = all->pricing.sizes.gradient_bytes;
    const qdri_position grid = qdri_plan_position(plan);
    const int gradients = plan->z * grid.near;
    switch (term) {
    case QDR_MEMORY_PARAMETERS: explain_state(all, " (the network's / (x*y*z), with padding)", 0, 0, bytes); break;
    case QDR_MEMORY_GRADIENTS: explain_state(all, "", gradients, gradient_bytes, bytes); break;
    case QDR_MEMORY_FEEDBACK:
        fputs("four bytes for each element of a sum whose codec keeps what it loses", all->file);
        break;
    case QDR_MEMORY_OPTIMIZER:
        explain_state(all, "", gradients * grid.far, qdri_state_bytes(plan->dtype), bytes);
        break;
    case QDR_MEMORY_ACTIVATIONS:
        fprintf(all->file, "of one micro-batch, %.0f layers: %s", all->n_layers, recompute_words[plan->recompute][1]);
        break;
    case QDR_MEMORY_GATHERED: fputs("two whole weights, and their gradients", all->file); break;
    case QDR_MEMORY_WORKSPACE: fputs("gradients of activations that live at once; logits and theirs", all->file); break;
    case QDR_MEMORY_RESERVE:
        fprintf(all->file, "%.4g GiB of libraries + %.3g of activations for fragments%s", software->fixed_bytes / GIB,
                software->fragment_share,
                software->attention_score_bytes > 0 ? " + gradients of scores of one layer" : "");
        break;
    case QDR_MEMORY_DEVICE: {
        const int64_t n = plan->threads ? plan->threads : 1;
        const int converts = qdri_cpu_converts(plan->dtype, 1);
        if (converts) fprintf(all->file, "%" PRId64 " * panels that convert f16", n);
        if (n > 1) fprintf(all->file, "%s%" PRId64 " * attention of one head", converts ? " + " : "", n - 1);
        break;
    }
    case QDR_N_MEMORY_TERMS: break;
    }
}

static void explain_memory(const explained *all)
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

/* The times only where the machine's file system is known. */
static qdr_status explain_checkpoint(const explained *all)
{
    const qdr_machine_file *rates = &all->model->machine.file;
    qdr_plan_checkpoint saved = {QDR_INIT(qdr_plan_checkpoint)};
    QDR_TRY(qdr_model_checkpoint(all->model, all->plan, &saved));
    fprintf(all->file,
            "\nCheckpoint\n  %-11s %8.2f GiB  parameters and two moments, %.0f bytes each\n"
            "  %-11s %8.2f GiB  written by each rank; saving in the background copies it to host memory first\n",
            "file", saved.bytes / GIB, all->pricing.sizes.gradient_bytes, "rank", saved.rank_bytes / GIB);
    if (!(saved.secs > 0)) return QDR_OK;
    fprintf(all->file, "  %-11s %12s  ", "save", secs_in_words(saved.secs).text);
    const int are_both = rates->all_bytes_per_sec > 0 && rates->rank_bytes_per_sec > 0;
    if (are_both) fputs("the longer of ", all->file);
    if (rates->all_bytes_per_sec > 0) fprintf(all->file, "file / %.4g GB/s of all", 1e-9 * rates->all_bytes_per_sec);
    if (are_both) fputs(" and ", all->file);
    if (rates->rank_bytes_per_sec > 0) fprintf(all->file, "rank / %.4g GB/s of one", 1e-9 * rates->rank_bytes_per_sec);
    fputc('\n', all->file);
    return QDR_OK;
}

qdr_status qdr_model_explain(qdr_model *model, const qdr_plan *plan, FILE *file)
{
    qdr_plan chosen;
    explained all = {.model = model, .plan = &chosen, .file = file};
    qdri_stages stages;
    if (!model || !file) return QDR_FAIL(QDR_ERR_ARGUMENT, "explain: the model or the file is NULL");
    QDR_TRY(QDRI_TAKE(qdr_plan, plan, &chosen));
    QDR_TRY(qdri_model_choose(model, &chosen, INFINITY, &all.result));
    QDR_TRY(qdri_model_price(model, &chosen, &all.pricing, &stages, &all.result));
    all.lists = &model->lists;
    all.n_layers = stages.first;
    for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) qdri_list_price(all.lists, &all.pricing, (qdri_list_kind)kind);
    explain_share(&all);
    explain_tasks(&all);
    explain_time(&all);
    explain_memory(&all);
    return explain_checkpoint(&all);
}
