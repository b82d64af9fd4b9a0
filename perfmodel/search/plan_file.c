/* SPDX-License-Identifier: Apache-2.0 */
/* Plans as files. */
#include <math.h>
#include <quadrille_private/output.h>
#include <stdio.h>
#include <string.h>

#include "core/codec.h"
#include "core/dtype.h"
#include "core/json.h"
#include "core/order.h"
#include "core/sized.h"
#include "network/keys.h"
#include "network/types.h"
#include "search/search.h"

enum { FORMAT_VERSION = 3 };
static const char format_key[] = "quadrille_plan";

static const char *const layout_words[] = {"replicated", "scattered"};
static const char *const recompute_words[] = {"none", "attention", "full", "operations", "layers"};

/* ---- writing ---- */

static void put_string(FILE *file, const char *key, const char *text)
{
    char printable[QDR_MAX_NAME];
    qdri_json_printable(text, printable, sizeof printable);
    fprintf(file, ",\n  \"%s\": ", key);
    qdri_json_put_quoted(file, printable);
}

static void put_whole(FILE *file, const char *key, int64_t value)
{
    fprintf(file, ",\n  \"%s\": %" PRId64, key, value);
}

static int64_t n_ranks_of(const qdr_plan *plan)
{
    return (int64_t)plan->x * plan->y * plan->z * plan->d * (plan->pipeline ? plan->pipeline : 1);
}

static void put_plan(FILE *file, const qdr_stored_plan *stored)
{
    const qdr_plan *plan = stored->plan;
    fprintf(file, "{\n  \"%s\": %d", format_key, FORMAT_VERSION);
    put_string(file, "network", stored->network->name);
    fputs(",\n  \"sizes\": {", file);
    qdri_network_put(file, stored->network, "\n    ", 1);
    fputs("\n  }", file);
    put_string(file, "machine", stored->machine);
    put_whole(file, "ranks", n_ranks_of(plan));
    fprintf(file, ",\n  \"grid\": [%d, %d, %d, %d]", plan->x, plan->y, plan->z, plan->d);
    put_string(file, "order", plan->order[0] ? plan->order : QDRI_USUAL_ORDER);
    put_string(file, "layout", layout_words[plan->layout == QDR_SCATTERED]);
    put_string(file, "recompute", recompute_words[plan->recompute]);
    put_string(file, "dtype", qdr_dtype_name(plan->dtype));
    put_whole(file, "batch", plan->batch);
    put_whole(file, "micro_batch", plan->micro_batch);
    put_whole(file, "sequence", plan->sequence);
    put_whole(file, "gradient_parts", plan->gradient_parts);
    put_whole(file, "optimizer_parts", plan->optimizer_parts);
    put_whole(file, "panels", plan->panels);
    put_whole(file, "batch_parts", plan->batch_parts);
    if (plan->overlap) put_whole(file, "overlap", plan->overlap);
    if (plan->pipeline) put_whole(file, "pipeline", plan->pipeline);
    if (plan->interleave) put_whole(file, "interleave", plan->interleave);
    if (plan->threads) put_whole(file, "threads", plan->threads);
    if (plan->context_parts) put_whole(file, "context_parts", plan->context_parts);
    if (!qdri_codecs_are_none(&plan->codecs)) {
        char codecs[1024];
        qdr_codecs_text(&plan->codecs, codecs, sizeof codecs);
        fprintf(file, ",\n  \"codecs\": \"%s\"", codecs);
    }
    fprintf(file, ",\n  \"predicted_secs\": %.17g,\n  \"predicted_memory_bytes\": %.17g\n}\n", stored->secs,
            stored->memory_bytes);
}

/* Of regular files, only an older plan is replaced. Reading anything else, such as a FIFO, would wait for its
 * writer. */
static qdr_status check_old(const char *path)
{
    qdri_json *document;
    qdri_json_node root;
    if (!qdr_output_replaces(path)) return QDR_OK;
    int is_plan = qdri_json_load(path, &document) == QDR_OK;
    is_plan = is_plan && qdri_json_root(document, &root) == QDR_OK && qdri_json_has(qdri_json_get(&root, format_key));
    qdri_json_free(&document);
    if (is_plan) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: %.300s exists and is not a plan file; not overwritten: name another file",
                    path);
}

qdr_status qdr_plan_store(const qdr_stored_plan *stored, const char *path)
{
    qdr_stored_plan own;
    qdr_network network;
    qdr_plan plan;
    if (!path) return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: the path is NULL");
    QDR_TRY(QDRI_TAKE(qdr_stored_plan, stored, &own));
    QDR_TRY(QDRI_TAKE(qdr_network, own.network, &network));
    QDR_TRY(QDRI_TAKE(qdr_plan, own.plan, &plan));
    own.network = &network;
    own.plan = &plan;
    if ((unsigned)plan.recompute > QDR_RECOMPUTE_LAYERS || !qdri_is_float(plan.dtype) || plan.x < 1 || plan.y < 1 ||
        plan.z < 1 || plan.d < 1 || plan.batch < 1 || (plan.order[0] && (plan.order[4] || !qdri_is_order(plan.order))))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "plan: grid, order, batch or type is invalid; store a plan that qdr_model_predict() accepts");
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    qdr_output *output;
    QDR_TRY(qdr_network_params(&network, &counts));
    if (*network.architecture && !qdri_find_type(network.architecture))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: the network's architecture is '%.15s'; one of %s is needed, or none",
                        network.architecture, qdri_known_types);
    QDR_TRY(check_old(path));
    QDR_TRY(qdr_output_open("plan", path, QDR_OUTPUT_REPLACE, &output));
    put_plan(qdr_output_file(output), &own);
    return qdr_output_commit(&output);
}

/* ---- reading ---- */

static qdr_status read_int(const qdri_json_node *root, const char *key, int most, int *value)
{
    int64_t wide;
    QDR_TRY(qdri_json_int_or(qdri_json_get(root, key), 0, most, 0, &wide));
    *value = (int)wide;
    return QDR_OK;
}

static qdr_status read_long(const qdri_json_node *root, const char *key, int64_t *value)
{
    return qdri_json_int_or(qdri_json_get(root, key), 0, INT64_MAX, 0, value);
}

/* One of n words; number `otherwise` if absent. */
static qdr_status read_word(const qdri_json_node *root, const char *key, const char *const *words, int n, int otherwise,
                            int *word)
{
    const qdri_json_node node = qdri_json_get(root, key);
    *word = otherwise;
    return qdri_json_has(node) ? qdri_json_word(node, words, n, word) : QDR_OK;
}

static qdr_status read_name(const qdri_json_node *root, const char *key, char *name, size_t bytes)
{
    const char *text;
    QDR_TRY(qdri_json_string_or(qdri_json_get(root, key), bytes, "", &text));
    qdri_json_printable(text, name, bytes);
    return QDR_OK;
}

static int is_root_key(const char *key)
{
    static const char *const known[] = {
        format_key,        "network",          "sizes",     "machine",     "ranks",          "grid",
        "order",           "layout",           "recompute", "dtype",       "batch",          "micro_batch",
        "sequence",        "panels",           "overlap",   "batch_parts", "pipeline",       "gradient_parts",
        "optimizer_parts", "axis_bytes_ratio", "codecs",    "interleave",  "predicted_secs", "predicted_memory_bytes",
        "threads",         "context_parts"};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (strcmp(key, known[i]) == 0) return 1;
    return 0;
}

/* Nothing in the file is passed over. */
static qdr_status check_keys(const qdri_json_node *root)
{
    for (const char *key = NULL; (key = qdri_json_next_key(root, key)) != NULL;) {
        if (!is_root_key(key))
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is none that plans have; leave it out, or plan again",
                            qdri_json_where(qdri_json_get(root, key)).text);
        QDR_TRY(qdri_json_not_null(qdri_json_get(root, key)));
    }
    return QDR_OK;
}

static qdr_status read_network(const qdri_json_node *root, qdr_network *network)
{
    network->size = sizeof *network;
    QDR_TRY(read_name(root, "network", network->name, sizeof network->name));
    const qdri_json_node sizes = qdri_json_get(root, "sizes");
    qdri_json_node object;
    QDR_TRY(qdri_network_take(sizes, NULL, network));
    if (!*network->architecture || qdri_find_type(network->architecture)) return QDR_OK;
    QDR_TRY(qdri_json_object(sizes, &object));
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is \"%s\"; one of %s is needed",
                    qdri_json_where(qdri_json_get(&object, "architecture")).text, network->architecture,
                    qdri_known_types);
}

static qdr_status read_grid(const qdri_json_node *root, qdr_plan *plan)
{
    int *const axes[] = {&plan->x, &plan->y, &plan->z, &plan->d};
    const qdri_json_node node = qdri_json_get(root, "grid");
    qdri_json_node list;
    double n_ranks = 1;
    size_t n;
    QDR_TRY(qdri_json_list(node, &list, &n));
    if (n != QDR_N_AXES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has %zu numbers; a grid is [x, y, z, d]", qdri_json_where(node).text, n);
    for (size_t axis = 0; axis < n; axis++) {
        int64_t size;
        QDR_TRY(qdri_json_int(qdri_json_at(&list, axis), 1, INT32_MAX, &size));
        *axes[axis] = (int)size;
        n_ranks *= (double)size;
    }
    if (n_ranks <= INT32_MAX) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has %.0f ranks; at most 2147483647 are possible", qdri_json_where(node).text,
                    n_ranks);
}

static qdr_status read_codecs(qdri_json_node node, qdr_codecs *codecs)
{
    const char *text;
    char why[QDRI_ERROR_BYTES];
    QDR_TRY(qdri_json_string_or(node, 0, "none", &text));
    const qdr_status status = qdr_codecs_parse(text, codecs);
    if (status == QDR_OK) return QDR_OK;
    snprintf(why, sizeof why, "%s", qdr_last_error());
    return qdri_fail(status, __FILE__, __LINE__, "%s: %.400s", qdri_json_where(node).text, why);
}

static qdr_status read_choices(const qdri_json_node *root, qdr_plan *plan)
{
    const qdri_json_node order = qdri_json_get(root, "order"), codecs = qdri_json_get(root, "codecs"),
                         old = qdri_json_get(root, "axis_bytes_ratio");
    int layout, recompute;
    const char *order_name, *type_name;
    QDR_TRY(qdri_json_string_or(order, 0, QDRI_USUAL_ORDER, &order_name));
    if (!qdri_is_order(order_name))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s must be a permutation of xyzd", qdri_json_where(order).text);
    memcpy(plan->order, order_name, 5);
    QDR_TRY(read_word(root, "layout", layout_words, 2, 0, &layout));
    QDR_TRY(read_word(root, "recompute", recompute_words, 5, 0, &recompute));
    plan->layout = (qdr_layout)layout;
    plan->recompute = (qdr_recompute)recompute;
    const qdri_json_node dtype = qdri_json_get(root, "dtype");
    QDR_TRY(qdri_json_string_or(dtype, 0, qdr_dtype_name(QDR_BF16), &type_name));
    if (!qdri_float_named(type_name, &plan->dtype))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is none of " QDRI_FLOAT_NAMES, qdri_json_where(dtype).text);
    QDR_TRY(qdri_json_int(qdri_json_get(root, "batch"), 1, INT64_MAX, &plan->batch));
    QDR_TRY(read_long(root, "micro_batch", &plan->micro_batch));
    QDR_TRY(read_long(root, "sequence", &plan->sequence));
    QDR_TRY(read_int(root, "gradient_parts", INT32_MAX, &plan->gradient_parts));
    QDR_TRY(read_int(root, "optimizer_parts", INT32_MAX, &plan->optimizer_parts));
    QDR_TRY(read_int(root, "panels", INT32_MAX, &plan->panels));
    QDR_TRY(read_int(root, "batch_parts", INT32_MAX, &plan->batch_parts));
    QDR_TRY(read_int(root, "overlap", QDR_OVERLAP_ALL | QDR_OVERLAP_NONE, &plan->overlap));
    QDR_TRY(read_int(root, "pipeline", INT32_MAX, &plan->pipeline));
    QDR_TRY(read_int(root, "interleave", INT32_MAX, &plan->interleave));
    QDR_TRY(qdri_json_int_or(qdri_json_get(root, "threads"), 1, QDRI_MOST_THREADS, 0, &plan->threads));
    QDR_TRY(qdri_json_int_or(qdri_json_get(root, "context_parts"), 0, QDR_MAX_SEARCH_RANKS, 0, &plan->context_parts));
    if (qdri_json_has(old))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: plans have codecs instead, such as \"codecs\": \"hybrid\"; plan again",
                        qdri_json_where(old).text);
    if (!qdri_json_has(codecs)) return QDR_OK;
    return read_codecs(codecs, &plan->codecs);
}

static qdr_status read_plan(const qdri_json *document, qdr_stored_plan *stored)
{
    qdri_json_node root;
    int64_t format;
    QDR_TRY(qdri_json_root(document, &root));
    const qdri_json_node version = qdri_json_get(&root, format_key);
    QDR_TRY(qdri_json_int(version, 1, FORMAT_VERSION, &format));
    if (format < FORMAT_VERSION)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is %" PRId64 ": such a plan does not have all that describes its network; plan again",
                        qdri_json_where(version).text, format);
    QDR_TRY(check_keys(&root));
    stored->plan->size = sizeof *stored->plan;
    QDR_TRY(read_network(&root, stored->network));
    QDR_TRY(read_name(&root, "machine", stored->machine, sizeof stored->machine));
    QDR_TRY(read_grid(&root, stored->plan));
    QDR_TRY(read_choices(&root, stored->plan));
    const qdri_json_node ranks = qdri_json_get(&root, "ranks");
    const int64_t n_ranks = n_ranks_of(stored->plan);
    int64_t n_read;
    QDR_TRY(qdri_json_int_or(ranks, 1, INT64_MAX, n_ranks, &n_read));
    if (n_read != n_ranks)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %" PRId64 ", but the grid has %" PRId64, qdri_json_where(ranks).text,
                        n_read, n_ranks);
    QDR_TRY(qdri_json_number_or(qdri_json_get(&root, "predicted_secs"), 0, INFINITY, 0, &stored->secs));
    return qdri_json_number_or(qdri_json_get(&root, "predicted_memory_bytes"), 0, INFINITY, 0, &stored->memory_bytes);
}

qdr_status qdr_plan_load(const char *path, qdr_stored_plan *stored)
{
    qdr_network network = {0};
    qdr_plan plan = {0};
    qdr_stored_plan given, own = {.network = &network, .plan = &plan};
    qdri_json *document;
    QDR_TRY(QDRI_TAKE(qdr_stored_plan, stored, &given));
    if (given.network) QDR_TRY(QDRI_CLEAR(qdr_network, given.network));
    if (given.plan) QDR_TRY(QDRI_CLEAR(qdr_plan, given.plan));
    if (!path) return QDR_FAIL(QDR_ERR_ARGUMENT, "plan: the path is NULL");
    qdr_status status = qdri_json_load(path, &document);
    if (status == QDR_OK) status = read_plan(document, &own);
    qdri_json_free(&document);
    if (status != QDR_OK) own = (qdr_stored_plan){.size = 0};
    if (status == QDR_OK && given.network) QDRI_GIVE(qdr_network, given.network, &network);
    if (status == QDR_OK && given.plan) QDRI_GIVE(qdr_plan, given.plan, &plan);
    own.network = given.network;
    own.plan = given.plan;
    QDRI_GIVE(qdr_stored_plan, stored, &own);
    return status;
}
