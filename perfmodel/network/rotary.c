/* SPDX-License-Identifier: Apache-2.0 */
/* Reading the parameters of rotary positions. */
#include <math.h>
#include <string.h>

#include "network/sizes.h"
#include "network/types.h"

static qdr_status read_factors(const qdri_json_node *scaling, const char *key, const qdr_rotary *rotary,
                               double *factors)
{
    const qdri_json_node node = qdri_json_get(scaling, key);
    qdri_json_node list;
    size_t n;
    QDR_TRY(qdri_json_list(node, &list, &n));
    if ((int64_t)n != (rotary->columns + 1) / 2 || n > QDR_ROTARY_MOST_FACTORS)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s has %zu factors for %" PRId64 " pairs; one for each is needed, at most %d",
                        qdri_json_where(node).text, n, (rotary->columns + 1) / 2, QDR_ROTARY_MOST_FACTORS);
    for (size_t i = 0; i < n; i++) {
        QDR_TRY(qdri_json_number(qdri_json_at(&list, i), 0, INFINITY, &factors[i]));
        if (factors[i] == 0)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is 0; frequencies are divided by it",
                            qdri_json_where(qdri_json_at(&list, i)).text);
    }
    return QDR_OK;
}

/* One set for layers with windows, and one for the others. */
static int has_sets(const qdri_type *type) { return type->local_theta > 0; }

/* More than 0; `otherwise` if it is absent or null. */
static qdr_status read_positive(const qdri_json_node *object, const char *key, double otherwise, double *value)
{
    const qdri_json_node node = qdri_json_get(object, key);
    QDR_TRY(qdri_json_number_or(node, 0, INFINITY, otherwise, value));
    if (*value > 0 || !qdri_json_has(node)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is 0; a positive number is needed", qdri_json_where(node).text);
}

/* Positions before scaling: of the file itself first, but of a class with sets for kinds of layers those of the set. A
 * class that knows the key itself never looks into the set. */
static qdr_status read_original(const qdri_json_node *root, const qdri_json_node *scaling, const qdri_type *type,
                                int64_t context, int64_t *original)
{
    static const char key[] = "original_max_position_embeddings";
    const qdri_json_node outer = qdri_json_get(root, key), inner = qdri_json_get(scaling, key);
    const int is_outer = type->original || (qdri_json_has(outer) && !has_sets(type));
    if (type->original && qdri_is_given(outer)) return qdri_json_int(outer, 1, QDRI_NETWORK_MOST, original);
    return qdri_json_int_or(is_outer ? outer : inner, 1, QDRI_NETWORK_MOST, type->original ? type->original : context,
                            original);
}

static double yarn_magnitude(double factor, double mscale) { return factor <= 1 ? 1 : 0.1 * mscale * log(factor) + 1; }

static qdr_status read_yarn(const qdri_json_node *scaling, double *magnitude, int is_nested, qdr_rotary *rotary)
{
    double mscale, mscale_all;
    int truncates;
    QDR_TRY(read_positive(scaling, "beta_fast", 32, &rotary->high));
    QDR_TRY(read_positive(scaling, "beta_slow", 1, &rotary->low));
    QDR_TRY(qdri_json_number_or(qdri_json_get(scaling, "mscale"), 0, INFINITY, 0, &mscale));
    QDR_TRY(qdri_json_number_or(qdri_json_get(scaling, "mscale_all_dim"), 0, INFINITY, 0, &mscale_all));
    QDR_TRY(qdri_json_flag_or(qdri_json_get(scaling, "truncate"), 1, &truncates));
    rotary->exact_bounds = !truncates && !is_nested; /* the class looks for this key outside */
    const int has_both = mscale > 0 && mscale_all > 0;
    const double both = has_both ? yarn_magnitude(rotary->factor, mscale_all) : 1;
    *magnitude = yarn_magnitude(rotary->factor, has_both ? mscale : 1) / both;
    return QDR_OK;
}

static qdr_status read_longrope(const qdri_json_node *scaling, double *magnitude, qdr_rotary *rotary)
{
    const double original = (double)rotary->original;
    QDR_TRY(read_factors(scaling, "short_factor", rotary, rotary->short_factors));
    QDR_TRY(read_factors(scaling, "long_factor", rotary, rotary->long_factors));
    *magnitude = rotary->factor <= 1 ? 1 : sqrt(1 + log(rotary->factor) / log(original));
    return QDR_OK;
}

static qdr_status read_llama3(const qdri_json_node *scaling, qdr_rotary *rotary)
{
    const qdri_json_node high = qdri_json_get(scaling, "high_freq_factor");
    QDR_TRY(qdri_json_number(qdri_json_get(scaling, "low_freq_factor"), 0, INFINITY, &rotary->low));
    QDR_TRY(qdri_json_number(high, 0, INFINITY, &rotary->high));
    if (rotary->high > rotary->low) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %g, but low_freq_factor %g; it must be larger", qdri_json_where(high).text,
                    rotary->high, rotary->low);
}

static qdr_status read_kind(const qdri_json_node *scaling, const qdri_type *type, qdr_rotary_kind *kind)
{
    static const char *const words[] = {"default", "linear", "dynamic", "llama3", "yarn", "longrope", "su"};
    const qdri_json_node given = qdri_json_get(scaling, "rope_type");
    const qdri_json_node node = qdri_json_has(given) ? given : qdri_json_get(scaling, "type");
    const int is_phi3 = strcmp(type->shape.architecture, "phi3") == 0;
    int word = 0;
    if (has_sets(type) && qdri_json_has(node) && !qdri_json_has(given))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s: the class of %s knows this key as rope_type only; write that",
                        qdri_json_where(node).text, type->shape.architecture);
    if (qdri_json_has(node)) QDR_TRY(qdri_json_word(node, words, is_phi3 ? 7 : 6, &word));
    if (is_phi3 && word >= QDR_ROTARY_YARN) word = QDR_ROTARY_LONGROPE; /* older names of it */
    *kind = (qdr_rotary_kind)word;
    return QDR_OK;
}

/* The columns of a head that are turned. */
static qdr_status read_columns(const qdri_json_node *root, const qdri_json_node *scaling, const qdri_type *type,
                               const qdr_network *net, qdr_rotary *rotary)
{
    const qdri_json_node own = qdri_json_get(scaling, "partial_rotary_factor");
    const char *key = type->share_key ? type->share_key : "partial_rotary_factor";
    const qdri_json_node node = qdri_json_has(own) ? own : qdri_json_get(root, key);
    double share;
    QDR_TRY(qdri_json_number_or(node, 0, 1, type->share > 0 ? type->share : 1, &share));
    if (!type->share_key && share < 1)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s is %g, but networks of type %s turn all columns of a head",
                        qdri_json_where(node).text, share, net->architecture);
    rotary->columns = (int64_t)((double)net->head_size * share);
    if (rotary->columns % 2 == 0 || rotary->columns < net->head_size) {
        if (rotary->columns > 0) return QDR_OK;
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is %g, with which none of the %" PRId64 " columns of a head is turned; use a larger share",
                        qdri_json_where(node).text, share, net->head_size);
    }
    const qdri_json_node size = qdri_json_get(root, "head_dim");
    if (qdri_json_has(size))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %" PRId64 "; rotary positions turn pairs: an even number is needed",
                        qdri_json_where(size).text, net->head_size);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s is %" PRId64 ", with which a head has %" PRId64 " of the %" PRId64
                    " features; rotary positions turn pairs: an even number is needed",
                    qdri_json_where(qdri_json_get(root, "num_attention_heads")).text, net->heads, net->head_size,
                    net->hidden);
}

/* One set, from the object that describes it, which may be absent. */
static qdr_status read_set(const qdri_json_node *root, const qdri_json_node *scaling, const qdri_type *type,
                           const qdr_network *net, double theta, qdr_rotary *rotary)
{
    double magnitude = 1;
    QDR_TRY(read_kind(scaling, type, &rotary->kind));
    QDR_TRY(read_positive(scaling, "rope_theta", theta, &rotary->theta));
    QDR_TRY(read_columns(root, scaling, type, net, rotary));
    if (rotary->kind == QDR_ROTARY_DEFAULT) return QDR_OK;
    if (rotary->kind == QDR_ROTARY_DYNAMIC && rotary->columns == 2)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: dynamic rotary positions of a single pair; at least two are needed",
                        qdri_json_where(*scaling).text);
    if (rotary->kind == QDR_ROTARY_YARN && rotary->theta == 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the base of yarn's rotary positions is 1; it must be another",
                        qdri_json_where(*scaling).text);
    if (rotary->kind == QDR_ROTARY_DYNAMIC)
        rotary->original = net->context;
    else if (rotary->kind != QDR_ROTARY_LINEAR)
        QDR_TRY(read_original(root, scaling, type, net->context, &rotary->original));
    const qdri_json_node factor = qdri_json_get(scaling, "factor");
    const int follows = rotary->kind == QDR_ROTARY_YARN || rotary->kind == QDR_ROTARY_LONGROPE;
    if (follows && !qdri_json_has(factor))
        rotary->factor = (double)net->context / (double)rotary->original;
    else
        QDR_TRY(qdri_json_number(factor, follows ? 0 : 1, INFINITY, &rotary->factor));
    if (rotary->kind == QDR_ROTARY_LLAMA3) QDR_TRY(read_llama3(scaling, rotary));
    if (rotary->kind == QDR_ROTARY_YARN) QDR_TRY(read_yarn(scaling, &magnitude, has_sets(type), rotary));
    if (rotary->kind == QDR_ROTARY_LONGROPE) QDR_TRY(read_longrope(scaling, &magnitude, rotary));
    return follows ? read_positive(scaling, "attention_factor", magnitude, &rotary->magnitude) : QDR_OK;
}

/* Of the classes' two dialects rope_scaling is asked first, as they do, unless there is nothing in it. */
static int says_anything(qdri_json_node node)
{
    const int is_object = qdri_json_kind_of(node) == QDRI_JSON_OBJECT;
    return qdri_json_has(node) && (!is_object || qdri_json_next_key(&node, NULL) != NULL);
}

qdr_status qdri_read_rotary(const qdri_json_node *root, const qdri_type *type, qdr_network *net)
{
    const qdri_json_node old = qdri_json_get(root, "rope_scaling"), both = qdri_json_get(root, "rope_parameters");
    const qdri_json_node one = says_anything(old) ? old : both, inner = qdri_json_get(&both, "full_attention"),
                         local = qdri_json_get(&both, "sliding_attention");
    const int are_given = qdri_json_has(inner) || qdri_json_has(local);
    const double usual = type->theta > 0 ? type->theta : 1e4;
    qdri_json_node object;
    double theta, local_theta = type->local_theta;
    if (net->positions) return QDR_OK;
    if (qdri_json_has(one)) QDR_TRY(qdri_json_object(one, &object));
    QDR_TRY(read_positive(root, type->theta_key ? type->theta_key : "rope_theta", usual, &theta));
    if (are_given && !has_sets(type))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s has sets for kinds of layers, but networks of type %s have one",
                        qdri_json_where(both).text, net->architecture);
    if (!has_sets(type)) return read_set(root, &one, type, net, theta, &net->rotary);
    if (says_anything(both) && !are_given)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s has neither \"full_attention\" nor \"sliding_attention\"; networks of "
                        "type %s have a set for each",
                        qdri_json_where(both).text, net->architecture);
    if (type->local_theta_key) QDR_TRY(read_positive(root, type->local_theta_key, type->local_theta, &local_theta));
    QDR_TRY(read_positive(&inner, "rope_theta", theta, &theta));
    QDR_TRY(read_set(root, says_anything(old) ? &old : &inner, type, net, theta, &net->rotary));
    return read_set(root, &local, type, net, local_theta, &net->local_rotary);
}
