/* SPDX-License-Identifier: Apache-2.0 */
/* Networks by name, by path and from text: from the config.json of a model. The defaults of absent keys, and which
 * tensors have biases, are those of the configuration classes of transformers (GPT2Config, GPTNeoXConfig, LlamaConfig,
 * MistralConfig, Qwen2Config). */
#include <stdio.h>
#include <string.h>

#include "core/json.h"
#include "core/sized.h"
#include "files/data.h"
#include "network/sizes.h"

#define KNOWN "gpt2, gpt_neox, llama, mistral and qwen2"

/* The sizes that have a key. */
enum { LAYERS, HIDDEN, HEADS, VOCAB, CONTEXT, FFN, N_SIZES };

/* The keys of sizes, those used instead, if present, and the activation's. */
typedef struct family_keys {
    const char *sizes[N_SIZES], *alias[N_SIZES], *activation;
} family_keys;

static const family_keys usual = {.sizes = {"num_hidden_layers", "hidden_size", "num_attention_heads", "vocab_size",
                                            "max_position_embeddings", "intermediate_size"},
                                  .activation = "hidden_act"};
static const family_keys of_gpt2 = {
    .sizes = {"n_layer", "n_embd", "n_head", "vocab_size", "n_positions", "n_inner"},
    .alias = {"num_hidden_layers", "hidden_size", "num_attention_heads", NULL, "max_position_embeddings", NULL},
    .activation = "activation_function"};

typedef struct family {
    qdr_network shape; /* properties without a key */
    const family_keys *keys;
    int64_t sizes[N_SIZES]; /* defaults: layers, hidden, heads, vocab, context, ffn */
    int64_t kv_heads; /* default if the key is absent; 0: same as heads; -1: there is no such key */
    const char *activation; /* default */
    const char *attention_bias, *mlp_bias; /* keys that determine biases; NULL: fixed */
    int64_t window; /* default if the key is absent; 0: there is no such key */
    int some_windows; /* 1: windows depend on use_sliding_window and max_window_layers */
} family;

static const family families[] = {
    {.shape = {.architecture = "gpt2",
               .qkv_bias = 1,
               .out_bias = 1,
               .mlp_bias = 1,
               .norm = QDR_NORM_LAYER,
               .tied = 1,
               .positions = 1},
     .keys = &of_gpt2,
     .sizes = {12, 768, 12, 50257, 1024, 0},
     .kv_heads = -1,
     .activation = "gelu_new"},
    {.shape = {.architecture = "gpt_neox",
               .qkv_bias = 1,
               .out_bias = 1,
               .mlp_bias = 1,
               .norm = QDR_NORM_LAYER,
               .parallel_residual = 1},
     .keys = &usual,
     .sizes = {44, 6144, 64, 50432, 2048, 24576},
     .kv_heads = -1,
     .activation = "gelu",
     .attention_bias = "attention_bias"},
    {.shape = {.architecture = "llama", .gated = 1, .norm = QDR_NORM_RMS},
     .keys = &usual,
     .sizes = {32, 4096, 32, 32000, 2048, 11008},
     .activation = "silu",
     .attention_bias = "attention_bias",
     .mlp_bias = "mlp_bias"},
    {.shape = {.architecture = "mistral", .gated = 1, .norm = QDR_NORM_RMS},
     .keys = &usual,
     .sizes = {32, 4096, 32, 32000, 131072, 14336},
     .kv_heads = 8,
     .activation = "silu",
     .window = 4096},
    {.shape = {.architecture = "qwen2", .gated = 1, .norm = QDR_NORM_RMS, .qkv_bias = 1},
     .keys = &usual,
     .sizes = {32, 4096, 32, 151936, 32768, 22016},
     .kv_heads = 32,
     .activation = "silu",
     .window = 4096,
     .some_windows = 1},
};

/* ---- the kind of network ---- */

static qdr_status refuse_experts(const qdri_json_node *root)
{
    static const char *const keys[] = {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const qdri_json_node node = qdri_json_get(root, keys[i]);
        int64_t n;
        QDR_TRY(qdri_json_int_or(node, 0, QDRI_NETWORK_MOST, 0, &n));
        if (n > 0)
            return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                            "%s is %" PRId64 ": a mixture of experts; only dense networks are known",
                            qdri_json_where(node).text, n);
    }
    return QDR_OK;
}

static qdr_status find_family(const qdri_json_node *root, const family **found)
{
    const qdri_json_node node = qdri_json_get(root, "model_type");
    static const char *const mixtures[] = {"mixtral", "dbrx",   "jamba",   "deepseek_v2",
                                           "arctic",  "llama4", "gpt_oss", "deepseek_v3"};
    const char *type;
    char shown[40];
    if (!qdri_json_has(node) && qdri_json_has(qdri_json_get(root, "n_layers")) &&
        qdri_json_has(qdri_json_get(root, "dim")))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is missing, since this is the params.json of Meta's own format; use the config.json of the "
                        "same model from Hugging Face",
                        qdri_json_where(node).text);
    if (!qdri_json_has(node))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is missing; known are " KNOWN, qdri_json_where(node).text);
    QDR_TRY(qdri_json_string(node, 0, &type));
    for (size_t i = 0; i < sizeof families / sizeof *families; i++)
        if (strcmp(type, families[i].shape.architecture) == 0) {
            *found = &families[i];
            return refuse_experts(root);
        }
    qdri_json_printable(type, shown, sizeof shown);
    int is_mixture = strstr(type, "moe") != NULL;
    for (size_t i = 0; i < sizeof mixtures / sizeof *mixtures; i++) is_mixture |= strcmp(type, mixtures[i]) == 0;
    if (is_mixture)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s is \"%s\", a mixture of experts; only dense networks are known: " KNOWN,
                        qdri_json_where(node).text, shown);
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s is \"%s\"; known are " KNOWN, qdri_json_where(node).text, shown);
}

static int ends_in(const char *text, const char *ending)
{
    const size_t n = strlen(text), bytes = strlen(ending);
    return n >= bytes && strcmp(text + n - bytes, ending) == 0;
}

/* The same layers under another head, or none: parameters and products would be counted that are not there. */
static qdr_status refuse_other_heads(const qdri_json_node *root)
{
    const qdri_json_node node = qdri_json_get(root, "architectures");
    qdri_json_node list;
    size_t n = 0;
    if (qdri_json_has(node)) QDR_TRY(qdri_json_list(node, &list, &n));
    for (size_t i = 0; i < n; i++) {
        const qdri_json_node item = qdri_json_at(&list, i);
        const char *class;
        char shown[64];
        QDR_TRY(qdri_json_string(item, 0, &class));
        if (ends_in(class, "ForCausalLM") || ends_in(class, "LMHeadModel")) continue;
        qdri_json_printable(class, shown, sizeof shown);
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s is \"%s\", which has another head than one over the vocabulary, or none; only networks "
                        "such as LlamaForCausalLM are known: name that class to plan it instead",
                        qdri_json_where(item).text, shown);
    }
    return QDR_OK;
}

/* Keys with which the class's sizes are not those of the other keys. */
static qdr_status refuse_changes(const qdri_json_node *root, const char *activation)
{
    const qdri_json_node code = qdri_json_get(root, "auto_map"), own = qdri_json_get(&code, "AutoModelForCausalLM");
    const qdri_json_node pruned = qdri_json_get(root, "pruned_heads"),
                         crossed = qdri_json_get(root, "add_cross_attention");
    int is_crossed;
    QDR_TRY(qdri_json_flag_or(crossed, 0, &is_crossed));
    if (is_crossed)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s is true; only attention of a sequence to itself is known",
                        qdri_json_where(crossed).text);
    if (qdri_json_has(own))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s names code of the model's own, whose sizes are not known; leave the key out if the network "
                        "is as its model_type says",
                        qdri_json_where(own).text);
    if (qdri_json_kind_of(pruned) == QDRI_JSON_OBJECT && qdri_json_next_key(&pruned, NULL))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s lists heads; only networks whose layers are alike are known",
                        qdri_json_where(pruned).text);
    if (strcmp(activation, "prelu") == 0 || strcmp(activation, "xielu") == 0)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s: the activation %s has parameters; only those without are known",
                        qdri_json_where(*root).text, activation);
    return QDR_OK;
}

/* ---- its sizes ---- */

static qdri_json_node size_node(const qdri_json_node *root, const family_keys *keys, int size)
{
    const qdri_json_node alias = qdri_json_get(root, keys->alias[size] ? keys->alias[size] : keys->sizes[size]);
    return qdri_json_has(alias) ? alias : qdri_json_get(root, keys->sizes[size]);
}

/* Of absent keys those of the class; null is none but for the width of gpt2's MLP. */
static qdr_status read_sizes(const qdri_json_node *root, const family *f, qdr_network *net)
{
    int64_t *const sizes[N_SIZES] = {&net->layers, &net->hidden, &net->heads, &net->vocab, &net->context, &net->ffn};
    for (int i = 0; i < N_SIZES; i++) {
        const qdri_json_node node = size_node(root, f->keys, i);
        *sizes[i] = f->sizes[i];
        if (qdri_json_has(node) || (qdri_json_kind_of(node) == QDRI_JSON_NULL && f->sizes[i]))
            QDR_TRY(qdri_json_int(node, 1, QDRI_NETWORK_MOST, sizes[i]));
    }
    if (net->ffn == 0) net->ffn = 4 * net->hidden; /* gpt2 */
    if (net->positions) net->positions = net->context; /* gpt2 */
    return QDR_OK;
}

/* Rotary positions turn pairs of features: of all of a head, or of the share that gpt_neox names. */
static qdr_status check_rotation(const qdri_json_node *root, const family *f, const qdr_network *net)
{
    double share = 1;
    if (net->positions || net->head_size % 2 == 0) return QDR_OK;
    if (f->kv_heads < 0) QDR_TRY(qdri_json_number_or(qdri_json_get(root, "rotary_pct"), 0, 1, 0.25, &share));
    if ((double)net->head_size * share < (double)net->head_size) return QDR_OK;
    const qdri_json_node node = qdri_json_get(root, "head_dim");
    if (qdri_json_has(node))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %" PRId64 "; rotary positions turn pairs: an even number is needed",
                        qdri_json_where(node).text, net->head_size);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s is %" PRId64 ", with which a head has %" PRId64 " of the %" PRId64
                    " features; rotary positions turn pairs: an even number is needed",
                    qdri_json_where(size_node(root, f->keys, HEADS)).text, net->heads, net->head_size, net->hidden);
}

static qdr_status read_head_size(const qdri_json_node *root, const family *f, qdr_network *net)
{
    const qdri_json_node node = qdri_json_get(root, "head_dim");
    const int divides = f->kv_heads < 0; /* the classes of gpt2 and gpt_neox divide the hidden columns into heads */
    QDR_TRY(qdri_json_int_or(node, 1, QDRI_NETWORK_MOST, net->hidden / net->heads, &net->head_size));
    if (net->head_size == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is %" PRId64 ", more than the %" PRId64 " features of a token; use fewer, or give head_dim",
                        qdri_json_where(size_node(root, f->keys, HEADS)).text, net->heads, net->hidden);
    if (!divides || qdri_json_has(node) || net->heads * net->head_size == net->hidden) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s is %" PRId64 ", which does not divide the %" PRId64
                    " features of a token; %s needs heads of one size",
                    qdri_json_where(size_node(root, f->keys, HEADS)).text, net->heads, net->hidden, net->architecture);
}

static qdr_status read_kv_heads(const qdri_json_node *root, const family *f, qdr_network *net)
{
    const qdri_json_node node = qdri_json_get(root, "num_key_value_heads");
    const int is_absent = qdri_json_kind_of(node) == QDRI_JSON_ABSENT;
    net->kv_heads = net->heads;
    if (f->kv_heads < 0) return QDR_OK;
    if (is_absent && f->kv_heads)
        net->kv_heads = f->kv_heads;
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

/* The number of layers of the list "layer_types" that have a window; -1: there is no list. */
static qdr_status count_windows(const qdri_json_node *root, const qdr_network *net, int64_t *n_windows)
{
    const qdri_json_node node = qdri_json_get(root, "layer_types");
    static const char *const words[] = {"full_attention", "sliding_attention"};
    qdri_json_node list;
    size_t n;
    *n_windows = -1;
    if (!qdri_json_has(node)) return QDR_OK;
    QDR_TRY(qdri_json_list(node, &list, &n));
    if ((int64_t)n != net->layers)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has %zu words for %" PRId64 " layers; one for each is needed",
                        qdri_json_where(node).text, n, net->layers);
    *n_windows = 0;
    for (size_t i = 0; i < n; i++) {
        int has_window;
        QDR_TRY(qdri_json_word(qdri_json_at(&list, i), words, 2, &has_window));
        *n_windows += has_window;
    }
    return QDR_OK;
}

static qdr_status read_windows(const qdri_json_node *root, const family *f, qdr_network *net)
{
    int some = f->window > 0;
    int64_t first = 0, n_listed;
    const qdri_json_node node = qdri_json_get(root, "sliding_window");
    const int is_absent = qdri_json_kind_of(node) == QDRI_JSON_ABSENT;
    QDR_TRY(count_windows(root, net, &n_listed));
    if (f->some_windows) {
        QDR_TRY(qdri_json_flag_or(qdri_json_get(root, "use_sliding_window"), 0, &some));
        QDR_TRY(qdri_json_int_or(qdri_json_get(root, "max_window_layers"), 0, QDRI_NETWORK_MOST, 28, &first));
    }
    if (some) QDR_TRY(qdri_json_int_or(node, 1, QDRI_NETWORK_MOST, is_absent ? f->window : 0, &net->window));
    net->window_layers = net->window && first < net->layers ? net->layers - first : 0;
    if (f->some_windows && net->window && n_listed >= 0) net->window_layers = n_listed;
    if (net->window_layers == 0) net->window = 0;
    if (n_listed < 0 || n_listed == net->window_layers) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s has %" PRId64 " times \"sliding_attention\", but %s has windows in %" PRId64
                    " layers by its other keys; leave the list out, or correct it",
                    qdri_json_where(qdri_json_get(root, "layer_types")).text, n_listed, net->architecture,
                    net->window_layers);
}

/* ---- its options ---- */

/* A default stands for a key that is absent; the classes refuse null. */
static qdr_status read_flag(const qdri_json_node *root, const char *key, int *flag)
{
    const qdri_json_node node = qdri_json_get(root, key);
    return qdri_json_kind_of(node) == QDRI_JSON_ABSENT ? QDR_OK : qdri_json_flag(node, flag);
}

static qdr_status read_choices(const qdri_json_node *root, const family *f, qdr_network *net)
{
    const char *activation;
    if (f->attention_bias) {
        QDR_TRY(read_flag(root, f->attention_bias, &net->qkv_bias));
        net->out_bias = net->qkv_bias;
    }
    if (f->mlp_bias) QDR_TRY(read_flag(root, f->mlp_bias, &net->mlp_bias));
    QDR_TRY(qdri_json_string_or(qdri_json_get(root, f->keys->activation), sizeof net->activation, f->activation,
                                &activation));
    snprintf(net->activation, sizeof net->activation, "%s", activation);
    QDR_TRY(read_flag(root, "tie_word_embeddings", &net->tied));
    if (net->parallel_residual) QDR_TRY(read_flag(root, "use_parallel_residual", &net->parallel_residual));
    return refuse_changes(root, activation);
}

static qdr_status read_network(const qdri_json *document, const char *name, qdr_network *network)
{
    qdri_json_node root;
    const family *f = NULL;
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    QDR_TRY(qdri_json_root(document, &root));
    QDR_TRY(find_family(&root, &f));
    QDR_TRY(refuse_other_heads(&root));
    qdr_network net = f->shape;
    net.size = sizeof net;
    net.norms_per_layer = 2;
    snprintf(net.name, sizeof net.name, "%s", name);
    QDR_TRY(read_sizes(&root, f, &net));
    QDR_TRY(read_head_size(&root, f, &net));
    QDR_TRY(read_kv_heads(&root, f, &net));
    QDR_TRY(check_rotation(&root, f, &net));
    QDR_TRY(read_windows(&root, f, &net));
    QDR_TRY(read_choices(&root, f, &net));
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
