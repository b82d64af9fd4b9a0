/* SPDX-License-Identifier: Apache-2.0 */
/* Which storage each W gets: according to a file of earlier choices, or by timing the products. Rank 0 reads and writes
 * the file; all ranks have its choices, and so make the same ones. */
#include <errno.h>
#include <quadrille_private/output.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/environment.h"
#include "core/input.h"
#include "core/size.h"
#include "linear/tune.h"
#include "topo/topo.h"

enum { MOST_BYTES = 1 << 26 };
#define LEAST_FLOPS 1e7 /* of one product: below this, the overhead of calls and timers is too large */

/* ---- the file ---- */

const char *qdri_tune_path(void)
{
    const char *path = qdri_environment_text(QDRI_VARIABLE_TUNE);
    return path && strcasecmp(path, "off") != 0 ? path : NULL;
}

qdr_status qdri_tune_load(const char *path, char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    if (access(path, F_OK) != 0 && errno == ENOENT) return QDR_OK;
    if (qdr_input_read_text(path, MOST_BYTES, text, bytes) == QDR_OK) return QDR_OK;
    char why[QDRI_ERROR_BYTES];
    snprintf(why, sizeof why, "%s", qdr_last_error());
    return QDR_FAIL(QDR_ERR_IO, "tune: %s; set QDR_TUNE to another file", why);
}

qdr_status qdri_tune_store(const char *path, const qdri_tune_table *table)
{
    qdr_output *output;
    QDR_TRY(qdr_output_open("QDR_TUNE", path, QDR_OUTPUT_REPLACE, &output));
    (void)qdri_tune_write(table, qdr_output_file(output)); /* the commit reports errors */
    return qdr_output_commit(&output);
}

/* ---- choosing ---- */

/* What rank 0 sends to the others, as bytes. */
typedef struct told {
    qdri_tune_key key; /* machine etc., without sizes */
    size_t text_bytes;
} told;

typedef struct tuning {
    qdr_stack *stack;
    qdr_context *ctx;
    const char *path; /* on rank 0 */
    told told;
    char *text;
    qdri_tune_table table;
    int n_stored; /* the first choices in the table come from the file */
} tuning;

/* The layer of a node, if its storage is to be chosen. */
static qdr_linear *open_layer(const qdr_stack *stack, int node)
{
    const qdri_node *n = &stack->net.nodes[node];
    if (n->kind != QDRI_NODE_LINEAR || stack->net.parameters[n->layer.weight].storage != QDR_STORAGE_AUTO) return NULL;
    return stack->attached[node].layer;
}

/* The keys of choices only describe products of operands as stored. */
static int is_timed(const qdr_linear *layer) { return !qdri_linear_layer(layer)->shape.rounds; }

qdr_status qdri_tune_machine(const qdr_context *ctx, char name[QDRI_TUNE_MACHINE_BYTES])
{
    char model[QDRI_TUNE_MACHINE_BYTES / 2];
    QDR_TRY(qdri_topo_cpu_model(model, sizeof model));
    snprintf(name, QDRI_TUNE_MACHINE_BYTES, "%s, %.100s", model, qdri_dev_products(qdri_context_dev(ctx)));
    for (char *c = name; *c; c++)
        if (*c < ' ' || *c > '~') *c = '?';
    return QDR_OK;
}

static qdr_status ask_rank_0(tuning *t)
{
    if (qdr_context_rank(t->ctx) != 0) return QDR_OK;
    t->told.key.n_threads = qdr_context_threads(t->ctx);
    QDR_TRY(qdri_tune_machine(t->ctx, t->told.key.machine));
    return qdri_tune_load(t->path, &t->text, &t->told.text_bytes);
}

/* Reads the choices in the file; all ranks get them. */
static qdr_status read_choices(tuning *t)
{
    const int is_root = qdr_context_rank(t->ctx) == 0;
    QDR_TRY(qdr_agree(t->ctx, ask_rank_0(t)));
    QDR_TRY(qdr_broadcast(t->ctx, 0, &t->told, sizeof t->told));
    qdr_status status = QDR_OK;
    if (!is_root) status = qdri_calloc(t->told.text_bytes, 1, "a file of choices", (void **)&t->text);
    QDR_TRY(qdr_agree(t->ctx, status));
    if (t->told.text_bytes) QDR_TRY(qdr_broadcast(t->ctx, 0, t->text, t->told.text_bytes));
    status = qdri_tune_read(t->text, t->told.text_bytes, is_root ? t->path : "", &t->table);
    t->n_stored = t->table.n;
    return qdr_agree(t->ctx, status);
}

static qdri_tune_key key_of(const tuning *t, const qdr_linear *layer)
{
    qdri_tune_key key = t->told.key;
    key.dtype = t->stack->net.opts.dtype;
    qdri_layer_largest(&t->stack->net, qdri_linear_layer(layer), &key.m, &key.n, &key.k);
    return key;
}

static qdr_status choose(tuning *t)
{
    QDR_TRY(read_choices(t));
    /* Measures the choices that the table lacks, if the products are large enough. */
    for (int i = 0; i < t->stack->net.n_nodes; i++) {
        const qdr_linear *layer = open_layer(t->stack, i);
        if (!layer || !is_timed(layer)) continue;
        qdri_tune_choice choice = {.key = key_of(t, layer)};
        const double flops = 2.0 * (double)choice.key.m * (double)choice.key.n * (double)choice.key.k;
        if (flops < LEAST_FLOPS || qdri_tune_find(&t->table, &choice.key)) continue;
        /* Storage as [in, out] must win twice: on a busy machine one win may be chance. */
        for (int j = 0; j < 2 && (j == 0 || choice.storage != QDR_OUT_IN); j++) {
            QDR_TRY(qdri_tune_measure(t->stack, &choice));
            qdri_tune_choose(&choice);
        }
        QDR_TRY(qdr_agree(t->ctx, qdri_tune_add(&t->table, &choice)));
    }
    if (t->table.n == t->n_stored) return QDR_OK;
    return qdr_agree(t->ctx, qdr_context_rank(t->ctx) == 0 ? qdri_tune_store(t->path, &t->table) : QDR_OK);
}

qdr_status qdri_stack_choose_storage(qdr_stack *stack)
{
    qdr_context *ctx = qdr_grid_context(stack->grid);
    tuning t = {.stack = stack, .ctx = ctx};
    qdr_status status = QDR_OK;
    int n_open = 0;
    for (int i = 0; i < stack->net.n_nodes; i++) n_open += open_layer(stack, i) != NULL;
    if (!n_open) return QDR_OK;
    if (qdr_context_rank(ctx) == 0) t.path = qdri_tune_path();
    int is_asked = t.path != NULL;
    QDR_TRY(qdr_broadcast(ctx, 0, &is_asked, sizeof is_asked));
    if (is_asked) status = choose(&t);
    for (int i = 0; i < stack->net.n_nodes && status == QDR_OK; i++) {
        qdr_linear *layer = open_layer(stack, i);
        if (!layer) continue;
        const qdri_tune_key key = key_of(&t, layer);
        const qdri_tune_choice *choice = is_timed(layer) ? qdri_tune_find(&t.table, &key) : NULL;
        if (!choice) {
            qdri_layer_set_storage(layer, QDR_OUT_IN, QDR_STORAGE_FIXED);
            continue;
        }
        memcpy(layer->storage_secs, choice->secs, sizeof layer->storage_secs);
        qdri_net_set_algorithms(&stack->net, layer->node, choice->algorithms[choice->storage == QDR_IN_OUT]);
        qdri_layer_set_storage(layer, choice->storage,
                               choice - t.table.choices < t.n_stored ? QDR_STORAGE_STORED : QDR_STORAGE_MEASURED);
    }
    free(t.text);
    qdri_tune_free(&t.table);
    return status;
}
