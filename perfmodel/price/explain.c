/* SPDX-License-Identifier: Apache-2.0 */
/* A plan explained: rows and columns of a rank, then each kind of task with its formula. */
#include "price/explain.h"

#include <math.h>
#include <string.h>

#include "core/order.h"
#include "price/gemm.h"

enum { NAME_BYTES = 64, N_SHOWN_LISTS = 2 };

static const char *const size_names[QDRI_N_SIZES] = {
    [QDRI_SIZE_ONE] = "1",
    [QDRI_SIZE_ROWS] = "rows",
    [QDRI_SIZE_ROWS_X] = "rows/x",
    [QDRI_SIZE_ROWS_Y] = "rows/y",
    [QDRI_SIZE_SEQUENCES_X] = "sequences/x",
    [QDRI_SIZE_POSITIONS] = "positions",
    [QDRI_SIZE_HIDDEN] = "H/x",
    [QDRI_SIZE_QUERIES] = "heads/y",
    [QDRI_SIZE_QKV] = "qkv/y",
    [QDRI_SIZE_UP] = "up/y",
    [QDRI_SIZE_FFN] = "F/y",
    [QDRI_SIZE_VOCAB] = "V/y",
    [QDRI_SIZE_SHARD_QKV] = "W(qkv)/z",
    [QDRI_SIZE_SHARD_PROJ] = "W(proj)/z",
    [QDRI_SIZE_SHARD_UP] = "W(up)/z",
    [QDRI_SIZE_SHARD_DOWN] = "W(down)/z",
    [QDRI_SIZE_SHARD_VOCAB] = "W(head)/z",
};

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

/* What the small gradients belong to, as in set_small() of sizes.c. */
static const char *small_name(const qdr_network *n, int with_biases)
{
    const int has_biases = with_biases && (n->qkv_bias || n->out_bias || n->mlp_bias);
    if (n->positions) return has_biases ? "biases, norms and positions" : "norms and positions";
    return has_biases ? "biases and norms" : "norms";
}

/* The size called up/y is F/y if there are no gates. */
static const char *name_of(const qdri_explained *all, qdri_size size)
{
    if (size == QDRI_SIZE_SMALL) return small_name(&all->model->network, 1);
    if (size == QDRI_SIZE_SMALL_X || size == QDRI_SIZE_SMALL_Y) return small_name(&all->model->network, 0);
    return size_names[size == QDRI_SIZE_UP && !all->model->network.gated ? QDRI_SIZE_FFN : size];
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
            "Rows: %" PRId64 " sequences over z*d = %.0f cells are %.0f for each, in %.0f "
            "micro-batch%s of %.0f; rows = %.0f * %.0f tokens = %.0f\n",
            plan->batch, cells, ceil((double)plan->batch / cells), all->result.n_micro,
            all->result.n_micro > 1 ? "es" : "", s->sequences, s->sequences, s->context, of[QDRI_SIZE_ROWS]);
    fprintf(all->file,
            "Columns: H/x = %" PRId64 "/%d = %.0f, heads/y = %" PRId64 "/%d = %.0f of %" PRId64 ", F/y = %" PRId64
            "/%d = %.0f, V/y = %" PRId64 "/%d = %.0f\n",
            n->hidden, plan->x, of[QDRI_SIZE_HIDDEN], n->heads, plan->y, s->heads, n->head_size, n->ffn, plan->y,
            of[QDRI_SIZE_FFN], n->vocab, plan->y, of[QDRI_SIZE_VOCAB]);
}

/* ---- roles ---- */

/* The nodes with tasks of this role: "norm1+norm2". */
static void names_of(const qdri_template_list *list, int role, char names[NAME_BYTES])
{
    names[0] = '\0';
    for (int i = 0; i < list->sim.n_tasks; i++) {
        const char *name = list->schedule.tasks[i].name;
        if (list->role[i] != role || !name || strstr(names, name)) continue;
        const size_t used = strlen(names);
        snprintf(names + used, NAME_BYTES - used, "%s%s", used ? "+" : "", name);
    }
}

static const qdri_task *task_of(const qdri_template_list *list, int role)
{
    for (int i = 0; i < list->sim.n_tasks; i++)
        if (list->role[i] == role) return &list->schedule.tasks[i];
    return NULL;
}

static void explain_product(const qdri_explained *all, const qdri_role *role, const qdri_role_price *price)
{
    const double *of = all->pricing.sizes.of;
    const double flops = 2 * of[role->m] * of[role->n] * of[role->k];
    const double peak = qdri_machine_products(&all->model->machine, all->plan->dtype)->peak_flops;
    fprintf(all->file,
            "%s: m = %.0f (%s), n = %.0f (%s), k = %.0f (%s): %.4g GFLOP at %.1f %% of "
            "peak",
            role->trans_a   ? "TN"
            : role->trans_b ? "NT"
                            : "NN",
            of[role->m], name_of(all, role->m), of[role->n], name_of(all, role->n), of[role->k], name_of(all, role->k),
            1e-9 * flops, 100 * flops / (peak * price->price.work_secs));
}

/* The highest level of links that a group uses. */
static const char *link_of(const qdri_explained *all, const qdri_ways *ways)
{
    int top = 0;
    for (int l = 0; l < all->model->machine.n_links; l++)
        if (ways->full_rate[l] > 0) top = l;
    return all->model->machine.links[top].name;
}

static void explain_collective(const qdri_explained *all, const qdri_role *role, const qdri_role_price *price)
{
    const qdr_axis axis = qdr_channel_axis(role->channel);
    const qdri_ways *ways = &all->pricing.ways[axis];
    fprintf(all->file, "over %c, %d ranks on %s", QDRI_USUAL_ORDER[axis], ways->n_ranks, link_of(all, ways));
    if (axis == QDR_D && role->is_gradient && all->pricing.d_parts > 1)
        fprintf(all->file, " (reduce-scattered over %d near ones in each micro-batch%s)", all->pricing.d_parts,
                all->pricing.d_far.n_ranks > 1 ? ", over the others in the last" : "");
    fprintf(all->file, role->m == QDRI_SIZE_ONE ? ", %s%s" : ", %s * %s",
            role->m == QDRI_SIZE_ONE ? "" : name_of(all, role->m), name_of(all, role->n));
    fprintf(all->file, ": %s, then %.4g MB at %.4g GB/s", qdri_secs_in_words(price->price.latency_secs).text,
            1e-6 * price->bytes_sent, 1e-9 * price->bytes_sent / price->price.work_secs);
}

static void explain_role(const qdri_explained *all, const qdri_template_list *list, int number, int n_times)
{
    const qdri_role *role = &all->template->roles[number];
    const qdri_role_price *price = &all->roles[number];
    const int is_backward = list != &all->template->lists[QDRI_LIST_FORWARD];
    const qdri_task *task = task_of(list, number);
    const int is_operation = role->kind == QDRI_TASK_FORWARD || role->kind == QDRI_TASK_BACKWARD;
    char names[NAME_BYTES];
    if (!task || !(price->secs > 0)) return;
    const char *what = is_operation ? "operation" : qdri_task_name(task);
    names_of(list, number, names);
    fprintf(all->file, "  %-8s %-14s %-19s %2d * %8s  ", is_backward ? "backward" : "forward", what, names, n_times,
            qdri_secs_in_words(price->secs).text);
    if (role->kind == QDRI_TASK_PRODUCT) explain_product(all, role, price);
    if (role->kind == QDRI_TASK_COLLECTIVE) explain_collective(all, role, price);
    fputc('\n', all->file);
}

/* ---- sections ---- */

/* Kinds of tasks in a section. */
typedef enum section { OF_PRODUCTS, OF_OPERATIONS, OF_COLLECTIVES } section;

static section section_of(const qdri_role *role)
{
    return role->kind == QDRI_TASK_PRODUCT      ? OF_PRODUCTS
           : role->kind == QDRI_TASK_COLLECTIVE ? OF_COLLECTIVES
                                                : OF_OPERATIONS;
}

static void explain_lists(const qdri_explained *all, int of_layer, int which)
{
    const int is_one = all->result.n_micro <= 1;
    const qdri_list_kind kinds[N_SHOWN_LISTS] = {QDRI_LIST_FORWARD,
                                                 is_one ? QDRI_LIST_BACKWARD_ONLY : QDRI_LIST_BACKWARD_LAST};
    for (int i = 0; i < N_SHOWN_LISTS; i++) {
        const qdri_template_list *list = &all->template->lists[kinds[i]];
        for (int r = 0; r < all->template->n_roles; r++) {
            const int n = of_layer ? list->n_in_layer[r] : list->n_in_first[r] + list->n_in_last[r];
            const int is_in = which < 0 || section_of(&all->template->roles[r]) == (section)which;
            if (n > 0 && is_in) explain_role(all, list, r, n);
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
    qdri_explained all = {.model = model, .plan = plan, .file = file};
    if (!model || !plan || !file) return QDR_FAIL(QDR_ERR_ARGUMENT, "explain: the model, the plan or the file is NULL");
    QDR_TRY(qdr_model_predict(model, plan, &all.result));
    QDR_TRY(qdri_model_template(model, plan, &all.template));
    all.n_layers = qdri_model_price(model, plan, &all.pricing, &all.result).first;
    for (int r = 0; r < all.template->n_roles; r++)
        all.roles[r] = qdri_role_price_of(&all.pricing, &all.template->roles[r]);
    explain_share(&all);
    explain_tasks(&all);
    qdri_explain_time(&all);
    qdri_explain_memory(&all);
    return QDR_OK;
}
