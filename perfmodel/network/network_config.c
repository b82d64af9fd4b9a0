/* SPDX-License-Identifier: Apache-2.0 */
/* Networks by name, by path and from text: from the config.json of a model. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/input.h"
#include "core/log.h"
#include "core/sized.h"
#include "files/data.h"
#include "network/keys.h"
#include "network/sizes.h"
#include "network/types.h"
#include "schedule/network.h"

/* Those of gpt2 have names of their own, and the usual ones as aliases. */
static const char *const usual_keys[QDRI_N_TYPE_SIZES] = {"num_hidden_layers",       "hidden_size",
                                                          "num_attention_heads",     "vocab_size",
                                                          "max_position_embeddings", "intermediate_size"};
static const char *const gpt2_keys[QDRI_N_TYPE_SIZES] = {"n_layer",    "n_embd",      "n_head",
                                                         "vocab_size", "n_positions", "n_inner"};

/* ---- the kind of network ---- */

static int is_mixture(const char *type)
{
    static const char *const mixtures[] = {"mixtral", "dbrx",   "jamba",   "deepseek_v2",
                                           "arctic",  "llama4", "gpt_oss", "deepseek_v3"};
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++)
        if (strcmp(type, mixtures[i]) == 0) return 1;
    return strstr(type, "moe") != NULL;
}

/* *found is NULL if the type is not known. */
static qdr_status type_of(const qdri_json_node *root, const qdri_type **found, const char **name)
{
    const qdri_json_node node = qdri_json_get(root, "model_type");
    *found = NULL;
    *name = NULL;
    if (!qdri_json_has(node)) return QDR_OK;
    QDR_TRY(qdri_json_string(node, 0, name));
    *found = qdri_find_type(*name);
    return QDR_OK;
}

/* Finds the object that describes the network of texts: the file itself, or the one that it nests. */
static qdr_status find_type(const qdri_json_node *root, qdri_json_node *text, const qdri_type **found)
{
    const qdri_json_node node = qdri_json_get(root, "model_type"), nested = qdri_json_get(root, "text_config");
    const char *type, *inner;
    *text = *root;
    QDR_TRY(type_of(root, found, &type));
    if (*found) return QDR_OK;
    if (qdri_json_kind_of(nested) == QDRI_JSON_OBJECT) QDR_TRY(type_of(&nested, found, &inner));
    if (*found) return qdri_json_object(nested, text);
    if (!type && qdri_json_has(qdri_json_get(root, "n_layers")) && qdri_json_has(qdri_json_get(root, "dim")))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is missing, since this is the params.json of Meta's own format; use the config.json of the "
                        "same model from Hugging Face",
                        qdri_json_where(node).text);
    if (!type)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is missing; known are %s", qdri_json_where(node).text, qdri_known_types);
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s is %s%s; known are %s", qdri_json_where(node).text,
                    qdri_json_shown(node).text,
                    is_mixture(type) ? ", a mixture of experts; only dense networks are known" : "", qdri_known_types);
}

/* Whether a file is of the type itself; it is not if it nests that. */
static int is_same_type(const qdri_json_node *root, const qdri_type *type)
{
    const qdri_type *outer;
    const char *name;
    return type_of(root, &outer, &name) == QDR_OK && outer == type;
}

/* The outer class says whether the head is tied, and has a default of its own, which is known of gemma3's. */
static qdr_status check_outer_tie(const qdri_json_node *root)
{
    const qdri_json_node node = qdri_json_get(root, "tie_word_embeddings"), outer = qdri_json_get(root, "model_type");
    const char *name = NULL;
    if (qdri_is_given(node)) return QDR_OK;
    if (qdri_json_kind_of(outer) == QDRI_JSON_STRING) QDR_TRY(qdri_json_string(outer, 0, &name));
    if (name && strcmp(name, "gemma3") == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s is missing, and the default of what nests the text model is not known; add true if the head is "
                    "the embedding, else false",
                    qdri_json_where(node).text);
}

/* The same layers under another head, or none: parameters and products would be counted that are not there. nests: the
 * class is of a file that nests the text model. */
static qdr_status refuse_other_heads(const qdri_json_node *root, int nests)
{
    const qdri_json_node node = qdri_json_get(root, "architectures");
    qdri_json_node list;
    size_t n = 0;
    if (qdri_json_has(node)) QDR_TRY(qdri_json_list(node, &list, &n));
    for (size_t i = 0; i < n; i++) {
        const qdri_json_node item = qdri_json_at(&list, i);
        const char *class;
        QDR_TRY(qdri_json_string(item, 0, &class));
        if (qdri_has_ending(class, "ForCausalLM") || qdri_has_ending(class, "LMHeadModel")) continue;
        if (nests && qdri_has_ending(class, "ForConditionalGeneration")) continue;
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s is %s, which has another head than one over the vocabulary, or none; only networks "
                        "such as LlamaForCausalLM are known: name that class to plan it instead",
                        qdri_json_where(item).text, qdri_json_shown(item).text);
    }
    return QDR_OK;
}

/* Whether a key says something else than that there is no such thing. */
static qdr_status says_something(qdri_json_node node, int *says)
{
    double number = 1;
    int flag = 1;
    if (qdri_json_kind_of(node) == QDRI_JSON_FLAG) QDR_TRY(qdri_json_flag(node, &flag));
    if (qdri_json_kind_of(node) == QDRI_JSON_NUMBER) QDR_TRY(qdri_json_number(node, -INFINITY, INFINITY, &number));
    *says = qdri_json_has(node) && flag && number != 0 &&
            (qdri_json_kind_of(node) != QDRI_JSON_OBJECT || qdri_json_next_key(&node, NULL));
    return QDR_OK;
}

/* Keys that make it another network than the other keys describe. */
static qdr_status refuse_changes(const qdri_json_node *root)
{
    static const struct {
        const char *key, *why;
    } refused[] = {
        {"num_local_experts", "a mixture of experts; only dense networks are known"},
        {"num_experts", "a mixture of experts; only dense networks are known"},
        {"n_routed_experts", "a mixture of experts; only dense networks are known"},
        {"moe_num_experts", "a mixture of experts; only dense networks are known"},
        {"add_cross_attention", "only attention of a sequence to itself is known"},
        {"use_bidirectional_attention", "only attention to earlier positions is known"},
        {"attention_chunk_size", "only attention to all earlier positions or to a window is known"},
        {"alibi", "only rotary and learned positions are known"},
        {"clip_qkv", "queries and keys that are clipped are not known"},
        {"q_lora_rank", "only attention with keys and values of their own, not latent ones, is known"},
        {"kv_lora_rank", "only attention with keys and values of their own, not latent ones, is known"},
        {"is_encoder_decoder", "only networks without an encoder are known"},
        {"multi_query", "the class of this model_type has no such key"},
        {"rotary_dim", "the class of this model_type has no such key"},
        {"scale_attn_by_inverse_layer_idx", "only scores that all layers scale alike are known"},
        {"quantization_config", "only weights that are not quantized are known"},
        {"pruned_heads", "only networks whose layers have equally many heads are known"},
    };
    const qdri_json_node causal = qdri_json_get(root, "is_causal");
    int is_causal;
    QDR_TRY(qdri_json_flag_or(causal, 1, &is_causal));
    if (!is_causal)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s is false: only attention to earlier positions is known",
                        qdri_json_where(causal).text);
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        const qdri_json_node node = qdri_json_get(root, refused[i].key);
        int says;
        QDR_TRY(says_something(node, &says));
        if (says)
            return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s is %s: %s", qdri_json_where(node).text, qdri_json_shown(node).text,
                            refused[i].why);
    }
    return QDR_OK;
}

/* Names the rates of dropout in a line of the log. */
static qdr_status log_dropout(const qdri_json_node *root, const qdri_type *type, const qdr_network *net)
{
    static const char *const keys[] = {"attn_pdrop",     "embd_pdrop",       "resid_pdrop",      "attention_dropout",
                                       "hidden_dropout", "residual_dropout", "embedding_dropout"};
    enum { N_OF_GPT2 = 3 };
    char line[256] = "";
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const size_t used = strlen(line);
        double rate;
        QDR_TRY(
            qdri_json_number_or(qdri_json_get(root, keys[i]), 0, 1, type->is_gpt2 && i < N_OF_GPT2 ? 0.1 : 0, &rate));
        if (rate > 0) snprintf(line + used, sizeof line - used, "%s%s %g", used ? ", " : "", keys[i], rate);
    }
    if (*line) qdri_log(QDRI_LOG_INFO, "network: %s has %s; dropout is not applied", net->name, line);
    return QDR_OK;
}

/* Files of a type that became known later name code beside them, which transformers only runs if it is told to. */
static void log_own_code(const qdri_json_node *root, const qdr_network *net)
{
    static const char *const classes[] = {"AutoModelForCausalLM", "AutoModel"};
    const qdri_json_node code = qdri_json_get(root, "auto_map");
    for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
        if (qdri_json_has(qdri_json_get(&code, classes[i])))
            qdri_log(QDRI_LOG_INFO, "network: %s names code of its own (auto_map.%s); the class of %s is taken instead",
                     net->name, classes[i], net->architecture);
}

/* ---- its sizes ---- */

static qdri_json_node size_node(const qdri_json_node *root, const qdri_type *type, int size)
{
    const qdri_json_node usual = qdri_json_get(root, usual_keys[size]);
    if (!type->is_gpt2) return usual;
    return qdri_json_has(usual) && size != QDRI_FFN ? usual : qdri_json_get(root, gpt2_keys[size]);
}

/* A size of gpt2 has two names, which must not say different things. */
static qdr_status check_names(const qdri_json_node *root, const qdri_type *type, int size)
{
    const qdri_json_node usual = qdri_json_get(root, usual_keys[size]), own = qdri_json_get(root, gpt2_keys[size]);
    int64_t a, b;
    if (!type->is_gpt2 || size == QDRI_FFN || !qdri_json_has(usual) || !qdri_json_has(own)) return QDR_OK;
    QDR_TRY(qdri_json_int(usual, 1, QDRI_NETWORK_MOST, &a));
    QDR_TRY(qdri_json_int(own, 1, QDRI_NETWORK_MOST, &b));
    if (a == b) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %" PRId64 ", but '%s', its other name, is %" PRId64 "; leave one out",
                    qdri_json_where(usual).text, a, gpt2_keys[size], b);
}

/* Of absent keys those of the class; null is none but for the width of gpt2's MLP. */
static qdr_status read_sizes(const qdri_json_node *root, const qdri_type *type, qdr_network *net)
{
    int64_t *const sizes[QDRI_N_TYPE_SIZES] = {&net->layers, &net->hidden,  &net->heads,
                                               &net->vocab,  &net->context, &net->ffn};
    for (int i = 0; i < QDRI_N_TYPE_SIZES; i++) {
        const qdri_json_node node = size_node(root, type, i);
        QDR_TRY(check_names(root, type, i));
        *sizes[i] = type->sizes[i];
        if (qdri_json_has(node) || (qdri_json_kind_of(node) == QDRI_JSON_NULL && type->sizes[i]))
            QDR_TRY(qdri_json_int(node, 1, QDRI_NETWORK_MOST, sizes[i]));
    }
    if (net->ffn == 0) net->ffn = 4 * net->hidden;
    if (type->is_gpt2) net->positions = net->context;
    return QDR_OK;
}

static qdr_status read_head_size(const qdri_json_node *root, const qdri_type *type, qdr_network *net)
{
    const qdri_json_node node = qdri_json_get(root, "head_dim");
    net->head_size = type->head_size ? type->head_size : net->hidden / net->heads;
    if (type->head_size ? qdri_is_given(node) : qdri_json_has(node))
        QDR_TRY(qdri_json_int(node, 1, QDRI_NETWORK_MOST, &net->head_size));
    if (net->head_size == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is %" PRId64 ", more than the %" PRId64 " features of a token; use fewer, or give head_dim",
                        qdri_json_where(size_node(root, type, QDRI_HEADS)).text, net->heads, net->hidden);
    const int divides = net->hidden % net->heads == 0, is_fixed = type->kv_heads < 0; /* gpt2's, and gpt_neox's */
    if (type->divides && !divides && !(is_fixed && qdri_json_has(node)))
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "%s is %" PRId64 ", which does not divide the %" PRId64 " features of a token; %s needs heads of one size",
            qdri_json_where(size_node(root, type, QDRI_HEADS)).text, net->heads, net->hidden, net->architecture);
    if (is_fixed && divides && net->head_size != net->hidden / net->heads)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is %" PRId64 ", but heads of %s have hidden / heads = %" PRId64 " columns; leave it out",
                        qdri_json_where(node).text, net->head_size, net->architecture, net->hidden / net->heads);
    return QDR_OK;
}

static qdr_status read_kv_heads(const qdri_json_node *root, const qdri_type *type, qdr_network *net)
{
    const qdri_json_node node = qdri_json_get(root, "num_key_value_heads");
    const int is_absent = !qdri_is_given(node);
    net->kv_heads = net->heads;
    if (type->kv_heads < 0) return QDR_OK;
    if (is_absent && type->kv_heads)
        net->kv_heads = type->kv_heads;
    else
        QDR_TRY(qdri_json_int_or(node, 1, QDRI_NETWORK_MOST, net->heads, &net->kv_heads));
    if (net->heads % net->kv_heads == 0) return QDR_OK;
    if (net->kv_heads < net->heads)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is %s%" PRId64 ", which does not divide the %" PRId64
                        " heads; each key head serves equally many",
                        qdri_json_where(node).text, is_absent ? "missing, and means " : "", net->kv_heads, net->heads);
    if (is_absent)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is missing, and the %" PRId64 " of %s are more than the %" PRId64 " heads; give it",
                        qdri_json_where(node).text, net->kv_heads, net->architecture, net->heads);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %" PRId64 "; at most the %" PRId64 " heads are needed",
                    qdri_json_where(node).text, net->kv_heads, net->heads);
}

/* ---- its options ---- */

static qdr_status read_flag(const qdri_json_node *root, const char *key, int otherwise, int *flag)
{
    const qdri_json_node node = qdri_json_get(root, key);
    *flag = otherwise;
    return qdri_is_given(node) ? qdri_json_flag(node, flag) : QDR_OK;
}

static qdr_status read_activation(const qdri_json_node *root, const qdri_type *type, qdr_network *net)
{
    const qdri_json_node node = qdri_json_get(root, type->activation_key ? type->activation_key : "hidden_act");
    const char *name = type->activation;
    int word;
    if (qdri_is_given(node)) {
        QDR_TRY(qdri_json_word(node, qdri_activation_names, QDRI_N_ACTIVATION_NAMES, &word));
        name = qdri_activation_names[word];
    }
    /* Old files of Gemma mean the tanh form. */
    if (strcmp(net->architecture, "gemma") == 0 && strcmp(name, "gelu") == 0) name = "gelu_pytorch_tanh";
    snprintf(net->activation, sizeof net->activation, "%s", name);
    return QDR_OK;
}

/* Numbers that some classes multiply by, or limit to. */
static qdr_status read_factors(const qdri_json_node *root, qdr_network *net)
{
    enum { ITSELF, INVERSE, INVERSE_ROOT };
    static const struct {
        const char *architecture, *key;
        double otherwise; /* 0: none */
        size_t at;
        int how, takes_null;
    } factors[] = {
        {"granite", "embedding_multiplier", 1, offsetof(qdr_network, embedding_factor), ITSELF, 0},
        {"granite", "residual_multiplier", 1, offsetof(qdr_network, branch_factor), ITSELF, 0},
        {"granite", "attention_multiplier", 1, offsetof(qdr_network, attention_scale), ITSELF, 0},
        {"granite", "logits_scaling", 1, offsetof(qdr_network, logits_factor), INVERSE, 0},
        {"cohere2", "logit_scale", 0.0625, offsetof(qdr_network, logits_factor), ITSELF, 0},
        {"gemma2", "query_pre_attn_scalar", 256, offsetof(qdr_network, attention_scale), INVERSE_ROOT, 0},
        {"gemma2", "attn_logit_softcapping", 50, offsetof(qdr_network, attention_cap), ITSELF, 1},
        {"gemma2", "final_logit_softcapping", 30, offsetof(qdr_network, logits_cap), ITSELF, 1},
        {"gemma3_text", "query_pre_attn_scalar", 256, offsetof(qdr_network, attention_scale), INVERSE_ROOT, 0},
        {"gemma3_text", "final_logit_softcapping", 0, offsetof(qdr_network, logits_cap), ITSELF, 1},
    };
    int scales = 1;
    for (size_t i = 0; i < sizeof factors / sizeof *factors; i++) {
        if (strcmp(net->architecture, factors[i].architecture) != 0) continue;
        const qdri_json_node node = qdri_json_get(root, factors[i].key);
        double value = factors[i].takes_null && qdri_is_given(node) ? 0 : factors[i].otherwise;
        if (factors[i].takes_null ? qdri_json_has(node) : qdri_is_given(node)) {
            QDR_TRY(qdri_json_number(node, 0, INFINITY, &value));
            if (value == 0)
                return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is 0; a positive number is needed", qdri_json_where(node).text);
        }
        if (value > 0 && factors[i].how != ITSELF) value = 1 / (factors[i].how == INVERSE ? value : sqrt(value));
        *(double *)(void *)((char *)net + factors[i].at) = value;
    }
    net->round_embedding_factor = strncmp(net->architecture, "gemma", 5) == 0;
    if (net->round_embedding_factor) net->embedding_factor = sqrt((double)net->hidden);
    if (strcmp(net->architecture, "gpt2") == 0) QDR_TRY(read_flag(root, "scale_attn_weights", 1, &scales));
    if (!scales) net->attention_scale = 1;
    return QDR_OK;
}

/* ties: the object that says whether the head is tied, which is the outer one of a file that nests. */
static qdr_status read_choices(const qdri_json_node *root, const qdri_json_node *ties, const qdri_type *type,
                               qdr_network *net)
{
    int *const biases[] = {&net->qkv_bias, &net->out_bias, &net->mlp_bias};
    const double epsilon = type->epsilon > 0 ? type->epsilon : net->norm == QDR_NORM_RMS ? 1e-6 : 1e-5;
    const qdri_json_node node = qdri_json_get(root, type->epsilon_key ? type->epsilon_key : "rms_norm_eps");
    for (int i = 0; i < 3; i++)
        if (type->bias_keys[i]) QDR_TRY(read_flag(root, type->bias_keys[i], *biases[i], biases[i]));
    QDR_TRY(read_activation(root, type, net));
    net->norm_epsilon = epsilon;
    if (qdri_is_given(node)) QDR_TRY(qdri_json_number(node, 0, INFINITY, &net->norm_epsilon));
    if (net->norm_epsilon == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is 0; a positive number is needed", qdri_json_where(node).text);
    QDR_TRY(read_flag(ties, "tie_word_embeddings", net->tied, &net->tied));
    if (strcmp(net->architecture, "gpt_neox") == 0)
        QDR_TRY(read_flag(root, "use_parallel_residual", 1, &net->parallel_residual));
    return read_factors(root, net);
}

/* What qdr_network_text() has written. */
static qdr_status read_text(const qdri_json_node *root, const char *name, qdr_network *network)
{
    const qdri_json_node own_name = qdri_json_get(root, "name");
    const char *text = name;
    qdr_network net = {QDR_INIT(qdr_network)};
    if (qdri_is_given(own_name)) QDR_TRY(qdri_json_string(own_name, sizeof net.name, &text));
    qdri_json_printable(text, net.name, sizeof net.name);
    QDR_TRY(qdri_network_take(*root, "name", &net));
    QDRI_GIVE(qdr_network, network, &net);
    return QDR_OK;
}

static qdr_status read_network(const qdri_json *document, const char *name, qdr_network *network)
{
    qdri_json_node file, root;
    const qdri_type *type = NULL;
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    QDR_TRY(qdri_json_root(document, &file));
    if (qdri_json_has(qdri_json_get(&file, "architecture"))) return read_text(&file, name, network);
    QDR_TRY(find_type(&file, &root, &type));
    QDR_TRY(refuse_changes(&file));
    QDR_TRY(refuse_changes(&root));
    const int nests = !is_same_type(&file, type);
    QDR_TRY(refuse_other_heads(&root, 0));
    if (nests) QDR_TRY(refuse_other_heads(&file, 1));
    if (nests) QDR_TRY(check_outer_tie(&file));
    qdr_network net = type->shape;
    net.size = sizeof net;
    snprintf(net.name, sizeof net.name, "%s", name);
    QDR_TRY(read_sizes(&root, type, &net));
    QDR_TRY(read_head_size(&root, type, &net));
    QDR_TRY(read_kv_heads(&root, type, &net));
    QDR_TRY(qdri_read_rotary(&root, type, &net));
    QDR_TRY(qdri_read_layers(&root, type, &net));
    QDR_TRY(read_choices(&root, &file, type, &net));
    QDR_TRY(log_dropout(&root, type, &net));
    log_own_code(&file, &net);
    QDR_TRY(qdr_network_params(&net, &counts)); /* checks that they can be counted */
    QDRI_GIVE(qdr_network, network, &net);
    return QDR_OK;
}

/* ---- public functions ---- */

static const char kind[] = "models";

/* The network's name: a for a.json; x for x/config.json. */
static void name_of(const char *path, char *name, size_t bytes)
{
    const char *begin = strrchr(path, '/'), *end = path + strlen(path);
    begin = begin ? begin + 1 : path;
    if (begin > path + 1 && strcmp(begin, "config.json") == 0) {
        end = begin - 1;
        while (end > path && end[-1] == '/') end--;
        for (begin = end; begin > path && begin[-1] != '/'; begin--) continue;
    } else if (end - begin > 5 && strcmp(end - 5, ".json") == 0) {
        end -= 5;
    }
    snprintf(name, bytes, "%.*s", (int)(end - begin), begin);
}

qdr_status qdr_network_load(const char *name_or_path, qdr_network *network)
{
    char path[QDRI_DATA_PATH_BYTES], name[sizeof network->name];
    qdri_json *document;
    QDR_TRY(QDRI_CLEAR(qdr_network, network));
    if (!name_or_path) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the name is NULL");
    QDR_TRY(qdri_data_resolve("network", "model", kind, name_or_path, NULL, path));
    QDR_TRY(qdri_json_load(path, &document));
    name_of(strcmp(path, "-") == 0 ? "standard input" : path, name, sizeof name);
    const qdr_status status = read_network(document, name, network);
    qdri_json_free(&document);
    return status;
}

qdr_status qdr_network_parse(const char *text, size_t bytes, const char *name, qdr_network *network)
{
    qdri_json *document;
    QDR_TRY(QDRI_CLEAR(qdr_network, network));
    if (!text || !name) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the text or its name is NULL");
    QDR_TRY(qdri_json_parse(text, bytes, name, &document));
    const qdr_status status = read_network(document, name, network);
    qdri_json_free(&document);
    return status;
}

qdr_status qdr_network_list(qdr_network_name_fn each, void *user)
{
    qdri_data_names names;
    if (!each) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the function to call is NULL");
    QDR_TRY(qdri_data_list(kind, &names));
    for (int i = 0; i < names.n; i++) each(names.names[i], user);
    qdri_data_names_free(&names);
    return QDR_OK;
}
