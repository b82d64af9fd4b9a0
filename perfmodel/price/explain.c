/* SPDX-License-Identifier: Apache-2.0 */
/* A plan explained: rows and columns of a rank, then each kind of task with its formula. */
#include "price/explain.h"

#include <math.h>
#include <string.h>

#include "core/order.h"
#include "price/gemm.h"

enum { NAME_BYTES = 64 };

qdri_secs_text qdri_secs_in_words(double secs)
{
    qdri_secs_text words;
    const double size = fabs(secs);
    if (size >= 1)
        snprintf(words.text, sizeof words.text, "%.2f s", secs);
    else if (size >= 1e-3)
        snprintf(words.text, sizeof words.text, "%.2f ms", 1e3 * secs);
    else
        snprintf(words.text, sizeof words.text, "%.1f us", 1e6 * secs);
    return words;
}

/* ---- the extents of a rank ---- */

static void explain_share(const qdri_explained *all)
{
    const qdr_network *n = &all->model->network;
    const qdr_plan *plan = all->plan;
    const qdri_sizes *s = &all->pricing.sizes;
    const double *of = s->of, cells = (double)plan->z * plan->d;
    fprintf(all->file, "%s on %s, grid %dx%dx%dx%d, order %s, %s edges: %s a step\n", n->name, all->model->machine.name,
            plan->x, plan->y, plan->z, plan->d, plan->order[0] ? plan->order : QDRI_USUAL_ORDER,
            plan->layout == QDR_SCATTERED ? "scattered" : "replicated", qdri_secs_in_words(all->result.secs).text);
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

typedef enum section { OF_PRODUCTS, OF_OPERATIONS, OF_COLLECTIVES } section;

static section section_of(const qdri_task *task)
{
    return task->kind == QDRI_TASK_PRODUCT      ? OF_PRODUCTS
           : task->kind == QDRI_TASK_COLLECTIVE ? OF_COLLECTIVES
                                                : OF_OPERATIONS;
}

/* A list with the part of it that is shown: one of the middle layers, or embedding and head. */
typedef struct shown_list {
    const qdri_explained *all;
    const qdri_list *list;
    int of_layer, is_backward;
} shown_list;

static int is_shown(const shown_list *s, int number)
{
    const int layer = qdri_lists_layer(s->all->lists, &s->list->schedule.tasks[number]);
    return s->of_layer ? layer == 1 : layer < 0;
}

/* Whether two tasks do the same on different memory. */
static int are_alike(const qdri_list *list, int i, int j)
{
    const qdri_task *a = &list->schedule.tasks[i], *b = &list->schedule.tasks[j];
    return a->kind == b->kind && a->m == b->m && a->n == b->n && a->k == b->k && a->trans_a == b->trans_a &&
           a->trans_b == b->trans_b && a->coll == b->coll && a->channel == b->channel && a->count == b->count &&
           a->overlap_class == b->overlap_class && fabs(list->prices[i].secs - list->prices[j].secs) < 1e-12;
}

/* What an extent of a layer's product is: rows, or features split over an axis. */
static void explain_product(const shown_list *s, const qdri_task *task, const qdri_task_price *price)
{
    const qdri_layer_shape *shape = &s->all->lists->net.nodes[task->node].u.layer.shape;
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

/* The highest level of links that a group uses. */
static const char *link_of(const qdri_explained *all, const qdri_ways *ways)
{
    int top = 0;
    for (int l = 0; l < all->model->machine.n_links; l++)
        if (ways->full_rate[l] > 0) top = l;
    return all->model->machine.links[top].name;
}

static void explain_collective(const qdri_explained *all, const qdri_task *task, const qdri_task_price *price)
{
    const qdr_axis axis = qdr_channel_axis(task->channel);
    const qdri_ways *ways = &all->pricing.ways[axis];
    fprintf(all->file, "over %c, %d ranks on %s", QDRI_USUAL_ORDER[axis], ways->n_ranks, link_of(all, ways));
    if (axis == QDR_D && task->overlap_class == QDRI_CLASS_GRADIENTS && all->pricing.d_parts > 1)
        fprintf(all->file, " (reduce-scattered over %d near ones in each micro-batch%s)", all->pricing.d_parts,
                all->pricing.d_far.n_ranks > 1 ? ", over the others in the last" : "");
    fprintf(all->file, ", %.4g M elements: %s",
            1e-6 * (double)task->count * (qdri_task_counts_part(task) ? ways->n_ranks : 1),
            qdri_secs_in_words(price->price.latency_secs).text);
    if (price->price.work_secs > 0)
        fprintf(all->file, ", then %.4g MB at %.4g GB/s", 1e-6 * price->bytes_sent,
                1e-9 * price->bytes_sent / price->price.work_secs);
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
    fprintf(s->all->file, "  %-8s %-14s %-19s %2d * %8s  ", s->is_backward ? "backward" : "forward",
            qdri_task_name(task), names, n_times, qdri_secs_in_words(price->secs).text);
    if (task->kind == QDRI_TASK_PRODUCT) explain_product(s, task, price);
    if (task->kind == QDRI_TASK_COLLECTIVE) explain_collective(s->all, task, price);
    fputc('\n', s->all->file);
}

static void explain_lists(const qdri_explained *all, int of_layer, int which)
{
    const qdri_list_kind kinds[] = {QDRI_LIST_FORWARD, qdri_last_list(all->lists)};
    for (int k = 0; k < 2; k++) {
        const shown_list shown = {all, &all->lists->of[kinds[k]], of_layer, k};
        for (int i = 0; i < shown.list->schedule.n_tasks; i++) {
            const int is_in = which < 0 || section_of(&shown.list->schedule.tasks[i]) == (section)which;
            if (is_in && is_shown(&shown, i) && shown.list->prices[i].secs > 0) explain_alike(&shown, i);
        }
    }
}

static void explain_tasks(const qdri_explained *all)
{
    const qdr_machine *machine = &all->model->machine;
    const double peak = qdri_machine_products(machine, all->plan->dtype)->peak_flops;
    fprintf(all->file,
            "\nProducts of a layer: 2*m*n*k flops / (peak * efficiency), peak %.4g TFLOP/s, or "
            "their bytes at %.4g GB/s, and %s to launch\n",
            1e-12 * peak, 1e-9 * machine->memory_bytes_per_sec * machine->memory_efficiency,
            qdri_secs_in_words(machine->software.launch_secs).text);
    explain_lists(all, 1, OF_PRODUCTS);
    fputs("\nOther work of a layer on the processor: bytes moved / memory rate, and launches; norms "
          "wait for sums over x\n",
          all->file);
    explain_lists(all, 1, OF_OPERATIONS);
    int n_wide = 0;
    for (int axis = 0; axis < QDR_N_AXES; axis++) n_wide += all->pricing.ways[axis].n_ranks > 1;
    if (n_wide) {
        fputs("\nCollectives of a layer, alone: latency, then what each rank sends in all / its "
              "rate\n",
              all->file);
        explain_lists(all, 1, OF_COLLECTIVES);
    }
    fputs("\nEmbedding, last norm, head and loss\n", all->file);
    explain_lists(all, 0, -1);
}

qdr_status qdr_model_explain(qdr_model *model, const qdr_plan *plan, FILE *file)
{
    qdr_plan chosen;
    qdri_explained all = {.model = model, .plan = &chosen, .file = file};
    if (!model || !plan || !file) return QDR_FAIL(QDR_ERR_ARGUMENT, "explain: the model, the plan or the file is NULL");
    chosen = *plan;
    QDR_TRY(qdri_model_choose(model, &chosen, &all.result));
    QDR_TRY(qdri_lists_make(&model->network, &chosen, QDRI_FEW_LAYERS,
                            qdri_stages_make(&model->machine, &model->network, &chosen).first, &model->lists));
    all.lists = &model->lists;
    all.n_layers = qdri_model_price(model, &chosen, &all.pricing, &all.result).first;
    for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) qdri_list_price(all.lists, &all.pricing, (qdri_list_kind)kind);
    explain_share(&all);
    explain_tasks(&all);
    qdri_explain_time(&all);
    qdri_explain_memory(&all);
    return QDR_OK;
}
