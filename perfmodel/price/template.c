/* SPDX-License-Identifier: Apache-2.0 */
/* Builds templates. Their networks have extents that all differ from one another, so that the value of each extent of a
 * task identifies it; and the extents are in the usual order of size, because which slot of memory is used for what,
 * and therefore a few waits, depends on which is larger. */
#include "price/template.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"

/* The number of ranks on each axis that is wide. */
static const int wide_size[QDR_N_AXES] = {2, 3, 2, 2};

enum { CONTEXT = 26, SEQUENCES = 5 };

static unsigned char flag(int on) { return on ? 1 : 0; }

qdri_structure qdri_structure_of(const qdr_network *n, const qdr_plan *plan)
{
    const int scattered = plan->layout == QDR_SCATTERED && (plan->x > 1 || plan->y > 1);
    qdri_structure s;
    qdri_sizes sizes;
    memset(&s, 0, sizeof s); /* padding, too: structures are compared as bytes */
    qdri_sizes_make(n, plan, 1, &sizes);
    s.wide[QDR_X] = plan->x > 1;
    s.wide[QDR_Y] = plan->y > 1;
    s.wide[QDR_Z] = plan->z > 1;
    s.wide[QDR_D] = plan->d > 1;
    s.scattered = flag(scattered);
    s.few_sequences = flag(scattered && plan->x > 1 && sizes.sequences < plan->x);
    s.few_key_heads = flag(n->kv_heads < plan->y);
    s.gated = flag(n->gated);
    s.tied = flag(n->tied);
    s.positions = flag(n->positions > 0);
    s.parallel = flag(n->parallel_residual);
    s.qkv_bias = flag(n->qkv_bias);
    s.out_bias = flag(n->out_bias);
    s.mlp_bias = flag(n->mlp_bias);
    s.overlap = (unsigned char)(plan->overlap ? plan->overlap & QDR_OVERLAP_ALL : QDR_OVERLAP_ALL);
    return s;
}

/* A network and a plan with the structure. */
static void make_example(const qdri_structure *s, qdr_network *n, qdr_plan *plan)
{
    *n = (qdr_network){.version = QDR_OPTS_INIT,
                       .layers = QDRI_TEMPLATE_LAYERS,
                       .hidden = (int64_t)wide_size[QDR_X] * 101,
                       .heads = 6,
                       .kv_heads = s->few_key_heads ? 1 : 6,
                       .head_size = 37,
                       .ffn = (int64_t)wide_size[QDR_Y] * 277,
                       .vocab = (int64_t)wide_size[QDR_Y] * 1009,
                       .context = CONTEXT,
                       .positions = s->positions ? CONTEXT : 0,
                       .gated = s->gated,
                       .tied = s->tied,
                       .parallel_residual = s->parallel,
                       .qkv_bias = s->qkv_bias,
                       .out_bias = s->out_bias,
                       .mlp_bias = s->mlp_bias,
                       .norms_per_layer = 2};
    *plan = (qdr_plan){.version = QDR_OPTS_INIT,
                       .x = s->wide[QDR_X] ? wide_size[QDR_X] : 1,
                       .y = s->wide[QDR_Y] ? wide_size[QDR_Y] : 1,
                       .z = s->wide[QDR_Z] ? wide_size[QDR_Z] : 1,
                       .d = s->wide[QDR_D] ? wide_size[QDR_D] : 1,
                       .layout = s->scattered ? QDR_SCATTERED : QDR_REPLICATED,
                       .dtype = QDR_F32,
                       .overlap = s->overlap};
    plan->batch = (int64_t)(s->few_sequences ? 1 : SEQUENCES) * plan->z * plan->d;
}

/* ---- identifying extents by value ---- */

static const qdri_size row_sizes[] = {QDRI_SIZE_ROWS, QDRI_SIZE_ROWS_X, QDRI_SIZE_ROWS_Y, QDRI_SIZE_SEQUENCES_X};
static const qdri_size column_sizes[] = {QDRI_SIZE_HIDDEN, QDRI_SIZE_QUERIES, QDRI_SIZE_QKV,
                                         QDRI_SIZE_UP,     QDRI_SIZE_FFN,     QDRI_SIZE_VOCAB};
static const qdri_size element_sizes[] = {QDRI_SIZE_SHARD_QKV,  QDRI_SIZE_SHARD_PROJ,  QDRI_SIZE_SHARD_UP,
                                          QDRI_SIZE_SHARD_DOWN, QDRI_SIZE_SHARD_VOCAB, QDRI_SIZE_SMALL,
                                          QDRI_SIZE_SMALL_X,    QDRI_SIZE_SMALL_Y};
#define N_OF(list) ((int)(sizeof(list) / sizeof *(list)))

/* QDRI_N_SIZES: not found. */
static qdri_size find(const qdri_sizes *sizes, const qdri_size *list, int n, double value)
{
    for (int i = 0; i < n; i++)
        if (sizes->of[list[i]] == value) return list[i];
    return QDRI_N_SIZES;
}

static qdri_size find_any(const qdri_sizes *sizes, double value)
{
    if (value == 1) return QDRI_SIZE_ONE;
    qdri_size size = find(sizes, column_sizes, N_OF(column_sizes), value);
    if (size == QDRI_N_SIZES) size = find(sizes, row_sizes, N_OF(row_sizes), value);
    if (size == QDRI_N_SIZES) size = find(sizes, element_sizes, N_OF(element_sizes), value);
    return size;
}

/* Identifies a number of elements: of a shard, or rows times columns. */
static int find_count(const qdri_sizes *sizes, double value, qdri_role *role)
{
    role->m = QDRI_SIZE_ONE;
    role->n = find(sizes, element_sizes, N_OF(element_sizes), value);
    for (int i = 0; role->n == QDRI_N_SIZES && i < N_OF(row_sizes); i++) {
        role->m = row_sizes[i];
        role->n = find(sizes, column_sizes, N_OF(column_sizes), value / sizes->of[row_sizes[i]]);
    }
    return role->n != QDRI_N_SIZES;
}

static int set_extents(const qdri_task *task, const qdri_sizes *sizes, qdri_role *role)
{
    role->m = role->n = role->k = QDRI_SIZE_ONE;
    if (task->kind == QDRI_TASK_COLLECTIVE) return find_count(sizes, (double)task->count, role);
    role->m = find_any(sizes, (double)task->m);
    if (task->kind == QDRI_TASK_FORWARD || task->kind == QDRI_TASK_BACKWARD)
        return role->m != QDRI_N_SIZES; /* its columns follow from its kind */
    role->n = find_any(sizes, (double)task->n);
    if (task->kind == QDRI_TASK_PRODUCT) role->k = find_any(sizes, (double)task->k);
    return role->m != QDRI_N_SIZES && role->n != QDRI_N_SIZES && role->k != QDRI_N_SIZES;
}

/* ---- roles ---- */

typedef struct making {
    qdri_template *made;
    const qdri_net *net;
    const int *layer_of;
    qdri_sizes sizes;
} making;

/* The sums of all small gradients belong to no node; they end a backward list, as the embedding does. */
static int layer_of_task(const making *m, const qdri_task *task)
{
    return task->node < 0 ? QDRI_LAYER_FIRST : m->layer_of[task->node];
}

static qdri_whose whose_of(const making *m, const qdri_task *task)
{
    const int layer = layer_of_task(m, task);
    return layer == QDRI_LAYER_FIRST ? QDRI_OF_FIRST : layer == QDRI_LAYER_LAST ? QDRI_OF_LAST : QDRI_OF_LAYER;
}

static int is_gradient(const qdri_task *task)
{
    return task->overlap_class == QDRI_CLASS_GRADIENTS || (task->kind == QDRI_TASK_PRODUCT && task->trans_a) ||
           task->kind == QDRI_TASK_EMBED_SUM;
}

static qdr_status make_role(const making *m, const qdri_task *task, qdri_role *role)
{
    static const qdri_node none = {.name = ""};
    const qdri_node *node = task->node < 0 ? &none : &m->net->nodes[task->node];
    memset(role, 0, sizeof *role);
    role->kind = task->kind;
    role->whose = whose_of(m, task);
    role->accumulate = task->accumulate != 0;
    role->is_gradient = is_gradient(task);
    role->on_processor = task->stream == QDRI_STREAM_OF_COMPUTE && task->kind != QDRI_TASK_COLLECTIVE;
    if (task->kind == QDRI_TASK_FORWARD || task->kind == QDRI_TASK_BACKWARD) {
        role->node_kind = node->kind;
        role->is_gate = node->kind == QDRI_NODE_USER && strcmp(node->name, "gate") == 0;
        role->gathers_keys = node->kind == QDRI_NODE_ATTENTION && node->u.attention.keys.gathered;
    } else if (task->kind == QDRI_TASK_PRODUCT) {
        role->trans_a = task->trans_a;
        role->trans_b = task->trans_b;
    } else if (task->kind == QDRI_TASK_COLLECTIVE) {
        role->coll = task->coll;
        role->channel = task->channel;
        role->overlap_class = task->overlap_class;
        role->per_member = qdri_task_counts_part(task);
    }
    if (set_extents(task, &m->sizes, role)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE,
                    "model: task %s of %s with extents %" PRId64 ", %" PRId64 ", %" PRId64 " (count %" PRId64
                    ") is not known to the template",
                    qdri_task_name(task), task->name, task->m, task->n, task->k, task->count);
}

static qdr_status find_role(making *m, const qdri_task *task, int *index)
{
    qdri_role role;
    QDR_TRY(make_role(m, task, &role));
    for (int i = 0; i < m->made->n_roles; i++) {
        *index = i;
        if (memcmp(&m->made->roles[i], &role, sizeof role) == 0) return QDR_OK;
    }
    if (m->made->n_roles == QDRI_MAX_ROLES)
        return QDR_FAIL(QDR_ERR_STATE, "model: more than %d kinds of tasks in a template", QDRI_MAX_ROLES);
    *index = m->made->n_roles++;
    m->made->roles[*index] = role;
    return QDR_OK;
}

/* Adds a task to the data about its list. */
static void count_task(const making *m, const qdri_task *task, int number, int role, qdri_template_list *list)
{
    const int layer = layer_of_task(m, task), computes = task->stream == QDRI_STREAM_OF_COMPUTE;
    if (layer >= 0) {
        list->last_of_layer[layer][task->stream] = number;
        list->n_in_layer[role] += layer == 1;
    } else if (layer == QDRI_LAYER_FIRST) {
        if (computes) list->last_of_first = number;
        list->n_in_first[role]++;
    } else {
        if (computes) list->last_of_last = number;
        list->n_in_last[role]++;
    }
}

static qdr_status make_list(making *m, qdri_template_list *list)
{
    const int n = list->schedule.n_tasks;
    QDR_TRY(QDRI_NEW(n, "a template", &list->next));
    QDR_TRY(QDRI_NEW(n, "a template", &list->role));
    qdri_sim_list_make(&list->schedule, list->next, &list->sim);
    memset(list->last_of_layer, -1, sizeof list->last_of_layer);
    list->last_of_first = list->last_of_last = -1;
    for (int i = 0; i < n; i++) {
        const qdri_task *task = &list->schedule.tasks[i];
        QDR_TRY(find_role(m, task, &list->role[i]));
        count_task(m, task, i, list->role[i], list);
    }
    return QDR_OK;
}

static qdr_status make_lists(making *m, qdri_net *net)
{
    qdri_template_list *lists = m->made->lists;
    qdri_net_lists all = {.single = {0}};
    const qdr_status status = qdri_net_build(net, &all);
    qdri_net_lists_free(&all);
    QDR_TRY(status);
    QDR_TRY(qdri_net_forward(net, &lists[QDRI_LIST_FORWARD].schedule));
    QDR_TRY(qdri_net_backward(net, QDRI_GRADIENT_OVERWRITE, 0, &lists[QDRI_LIST_BACKWARD_ONLY].schedule));
    QDR_TRY(qdri_net_backward(net, QDRI_GRADIENT_ADD_TO_PARTIAL, 1, &lists[QDRI_LIST_BACKWARD_BEFORE].schedule));
    QDR_TRY(qdri_net_backward(net, QDRI_GRADIENT_ADD_TO_PARTIAL, 0, &lists[QDRI_LIST_BACKWARD_LAST].schedule));
    for (int i = 0; i < QDRI_N_LIST_KINDS; i++) QDR_TRY(make_list(m, &lists[i]));
    return QDR_OK;
}

static qdr_status fill(const qdri_structure *structure, qdri_net *net, qdri_template *made)
{
    int layer_of[QDRI_NODES_OF(QDRI_TEMPLATE_LAYERS)];
    making m = {.made = made, .net = net, .layer_of = layer_of};
    qdr_network network;
    qdr_plan plan;
    make_example(structure, &network, &plan);
    qdri_sizes_make(&network, &plan, QDRI_TEMPLATE_LAYERS, &m.sizes);
    const qdri_place place = {.size = {plan.x, plan.y, plan.z, plan.d}};
    const qdr_stack_opts opts = {.version = QDR_OPTS_INIT,
                                 .n_rows = plan.batch * CONTEXT,
                                 .row_unit = CONTEXT,
                                 .dtype = plan.dtype,
                                 .overlap = plan.overlap ? plan.overlap : QDR_OVERLAP_NONE,
                                 .panels = 1};
    QDR_TRY(qdri_describe(net, &network, &place, &opts, CONTEXT, plan.layout, QDRI_TEMPLATE_LAYERS, layer_of));
    return make_lists(&m, net);
}

qdr_status qdri_template_make(const qdri_structure *structure, qdri_template **result)
{
    qdri_net net;
    *result = NULL;
    memset(&net, 0, sizeof net);
    QDR_TRY(QDRI_NEW(1, "a template", result));
    (*result)->structure = *structure;
    const qdr_status status = fill(structure, &net, *result);
    qdri_net_free(&net);
    if (status == QDR_OK) return QDR_OK;
    qdri_template_free(*result);
    *result = NULL;
    return status;
}

void qdri_template_free(qdri_template *made)
{
    if (!made) return;
    for (int i = 0; i < QDRI_N_LIST_KINDS; i++) {
        qdri_schedule_free(&made->lists[i].schedule);
        free(made->lists[i].next);
        free(made->lists[i].role);
    }
    free(made);
}
