/* SPDX-License-Identifier: Apache-2.0 */
/* Networks: exact counts for known models, defaults of the classes, and every refusal. Linked with the model's library
 * only. */
#include "quadrille/network.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/json.h"
#include "files/data.h"
#include "qdr_test.h"

static qdr_network network_of(const char *text)
{
    qdr_network net = {QDR_INIT(qdr_network)};
    CHECK_OK(qdr_network_parse(text, strlen(text), "a.json", &net));
    return net;
}

static int64_t total_of(const qdr_network *net)
{
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    CHECK_OK(qdr_network_params(net, &counts));
    assert_true(counts.layer == counts.attention + counts.mlp + counts.norms);
    assert_true(counts.total ==
                counts.embedding + counts.positions + net->layers * counts.layer + counts.final_norm + counts.head);
    return counts.total;
}

/* ---- the data ---- */

/* What the checkpoints hold. */
static const struct {
    const char *name;
    int64_t n_params;
} known[] = {
    {"gpt2", 124439808},
    {"gpt2-medium", 354823168},
    {"gpt2-large", 774030080},
    {"gpt2-xl", 1557611200},
    {"gpt-neox-20b", 20554567680},
    {"llama-7b", 6738415616},
    {"llama-13b", 13015864320},
    {"llama-30b", 32528943616},
    {"llama-65b", 65285660672},
    {"llama-2-7b", 6738415616},
    {"llama-2-13b", 13015864320},
    {"llama-2-70b", 68976648192},
    {"llama-3-8b", 8030261248},
    {"llama-3-70b", 70553706496},
    {"llama-3.1-8b", 8030261248},
    {"llama-3.1-70b", 70553706496},
    {"llama-3.1-405b", 405853388800},
    {"llama-3.2-1b", 1235814400},
    {"llama-3.2-3b", 3212749824},
    {"mistral-7b", 7241732096},
    {"qwen2-0.5b", 494032768},
    {"qwen2-1.5b", 1543714304},
    {"qwen2-7b", 7615616512},
    {"qwen2-72b", 72706203648},
};

TEST(counts_of_checkpoints)
{
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        qdr_network net = {QDR_INIT(qdr_network)};
        CHECK_OK(qdr_network_load(known[i].name, &net));
        assert_string_equal(net.name, known[i].name);
        if (total_of(&net) == known[i].n_params) continue;
        fail_msg("%s: %lld, not %lld", known[i].name, (long long)total_of(&net), (long long)known[i].n_params);
    }
}

typedef struct listing {
    int n, n_known;
    char last[64];
} listing;

/* A name that ends in a size has about so many parameters. */
static void see_name(const char *name, void *user)
{
    listing *list = user;
    qdr_network net = {QDR_INIT(qdr_network)};
    CHECK_OK(qdr_network_load(name, &net));
    const char *size = strrchr(name, '-');
    const double billions = size ? strtod(size + 1, NULL) : 0;
    if (billions > 0) assert_true(fabs((double)total_of(&net) / 1e9 / billions - 1) < 0.24);
    assert_true(strcmp(name, list->last) > 0); /* in order, each once */
    snprintf(list->last, sizeof list->last, "%s", name);
    list->n++;
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) list->n_known += strcmp(known[i].name, name) == 0;
}

TEST(all_names)
{
    listing list = {0, 0, ""};
    CHECK_OK(qdr_network_list(see_name, &list));
    assert_int_equal(list.n_known, sizeof known / sizeof *known);
    assert_true(list.n >= 38);
    CHECK_FAILS(qdr_network_list(NULL, NULL), QDR_ERR_ARGUMENT, "is NULL");
}

/* "source" says where the numbers are from. */
TEST(all_have_sources)
{
    qdri_data_names names;
    CHECK_OK(qdri_data_list("models", &names));
    for (int i = 0; i < names.n; i++) {
        char path[QDRI_DATA_PATH_BYTES];
        qdri_json *document;
        qdri_json_node root;
        const char *source;
        CHECK_OK(qdri_data_resolve("test", "model", "models", names.names[i], NULL, path));
        CHECK_OK(qdri_json_load(path, &document));
        CHECK_OK(qdri_json_root(document, &root));
        CHECK_OK(qdri_json_string(qdri_json_get(&root, "source"), 0, &source));
        assert_true(strlen(source) >= strlen("model card"));
        qdri_json_free(&document);
    }
    qdri_data_names_free(&names);
}

/* ---- by hand ---- */

/* H 10, 3 heads and 1 key head of 4, F 7, V 11, 5 positions, 2 layers, everything with biases. */
static qdr_network by_hand(void)
{
    return (qdr_network){QDR_INIT(qdr_network), .name = "hand", .layers = 2,   .hidden = 10,  .heads = 3,
                         .kv_heads = 1,         .head_size = 4, .ffn = 7,      .vocab = 11,   .context = 5,
                         .positions = 5,        .qkv_bias = 1,  .out_bias = 1, .mlp_bias = 1, .norm = QDR_NORM_LAYER,
                         .norms_per_layer = 2};
}

TEST(each_part)
{
    qdr_network net = by_hand();
    qdr_network_counts c = {QDR_INIT(qdr_network_counts)};
    CHECK_OK(qdr_network_params(&net, &c));
    assert_int_equal(c.embedding, 110);
    assert_int_equal(c.positions, 50);
    assert_int_equal(c.attention, 10 * (12 + 4 + 4) + 20 + 12 * 10 + 10);
    assert_int_equal(c.mlp, 10 * 7 + 7 + 7 * 10 + 10);
    assert_int_equal(c.norms, 40);
    assert_int_equal(c.layer, 350 + 157 + 40);
    assert_int_equal(c.final_norm, 20);
    assert_int_equal(c.head, 110);
    assert_int_equal(c.total, 110 + 50 + 2 * 547 + 20 + 110);
    net.qkv_bias = net.out_bias = net.mlp_bias = 0;
    net.positions = 0;
    net.gated = net.tied = 1;
    net.norm = QDR_NORM_RMS;
    CHECK_OK(qdr_network_params(&net, &c));
    assert_int_equal(c.attention, 320);
    assert_int_equal(c.mlp, 210);
    assert_int_equal(c.norms, 20);
    assert_int_equal(c.head, 0);
    assert_int_equal(c.total, 110 + 2 * 550 + 10);
    net.mlp_bias = 1;
    CHECK_OK(qdr_network_params(&net, &c));
    assert_int_equal(c.mlp, 210 + 7 + 7 + 10);
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-12 * fabs(b))

TEST(flops)
{
    qdr_network net = by_hand();
    qdr_network_flops f = {QDR_INIT(qdr_network_flops)};
    CHECK_OK(qdr_network_flops_per_token(&net, 5, &f));
    NEAR(f.linear, 2.0 * 2 * (320 + 140));
    NEAR(f.head, 220.0);
    NEAR(f.attention, 2.0 * 4 * 12 * 5);
    NEAR(f.attention_causal, 2.0 * 4 * 12 * 3);
    net.window = 2; /* tokens see 1, 2, 2, 2, 2 positions */
    net.window_layers = 1;
    CHECK_OK(qdr_network_flops_per_token(&net, 5, &f));
    NEAR(f.attention, 4.0 * 12 * (5 + 2));
    NEAR(f.attention_causal, 4.0 * 12 * (3 + 9.0 / 5));
    net.window = 6; /* longer than the sequence */
    CHECK_OK(qdr_network_flops_per_token(&net, 5, &f));
    NEAR(f.attention_causal, 2.0 * 4 * 12 * 3);
    net.gated = 1;
    CHECK_OK(qdr_network_flops_per_token(&net, 1, &f));
    NEAR(f.linear, 2.0 * 2 * (320 + 210));
    CHECK_FAILS(qdr_network_flops_per_token(&net, 0, &f), QDR_ERR_ARGUMENT, "0 tokens; 1 at least");
    assert_true(f.linear == 0);
    /* The formula of arXiv 2104.04473, without recomputation. */
    CHECK_OK(qdr_network_load("gpt3-175b", &net));
    CHECK_OK(qdr_network_flops_per_token(&net, 2048, &f));
    NEAR(3 * (f.linear + f.head + f.attention),
         72.0 * 96 * 12288 * 12288 * (1 + 2048 / (6.0 * 12288) + 50257 / (12.0 * 96 * 12288)));
}

TEST(wrong_sizes)
{
    qdr_network net = by_hand();
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts), .total = 1};
    qdr_network_flops f = {QDR_INIT(qdr_network_flops)};
    CHECK_FAILS(qdr_network_params(NULL, &counts), QDR_ERR_ARGUMENT, "qdr_network: the pointer is NULL");
    assert_int_equal(counts.total, 0);
    CHECK_FAILS(qdr_network_params(&net, NULL), QDR_ERR_ARGUMENT, "qdr_network_counts: the pointer is NULL");
    CHECK_FAILS(qdr_network_flops_per_token(&net, 1, NULL), QDR_ERR_ARGUMENT, "qdr_network_flops: the pointer is NULL");
    net.size = 0;
    CHECK_FAILS(qdr_network_params(&net, &counts), QDR_ERR_ARGUMENT, "size is 0");
    net = by_hand();
    net.layers = 0;
    CHECK_FAILS(qdr_network_params(&net, &counts), QDR_ERR_SHAPE, "network: hand has layers 0; from 1 to 2147483647");
    net = by_hand();
    net.ffn = INT64_MAX;
    CHECK_FAILS(qdr_network_flops_per_token(&net, 1, &f), QDR_ERR_SHAPE, "ffn 9223372036854775807");
    net = by_hand();
    net.kv_heads = 4;
    CHECK_FAILS(qdr_network_params(&net, &counts), QDR_ERR_SHAPE, "4 key heads for 3 heads");
    net = by_hand();
    net.window_layers = 3;
    CHECK_FAILS(qdr_network_params(&net, &counts), QDR_ERR_SHAPE, "3 layers with a window");
    net = by_hand();
    net.heads = net.kv_heads = net.head_size = INT32_MAX;
    CHECK_FAILS(qdr_network_params(&net, &counts), QDR_ERR_SHAPE, "too many for 63 bits");
    net = by_hand();
    net.hidden = net.ffn = net.vocab = net.layers = INT32_MAX;
    CHECK_FAILS(qdr_network_params(&net, &counts), QDR_ERR_SHAPE, "too many for 63 bits");
}

TEST(rotary_positions_that_are_none)
{
    const struct {
        qdr_rotary rotary;
        int64_t head_size;
        const char *says;
    } wrong[] = {
        {{.columns = 10}, 8, "turns rotary.columns 10 of heads of 8; at most 8 can be turned"},
        {{.columns = -2}, 8, "rotary.columns -2"},
        {{.kind = QDR_ROTARY_LONGROPE, .original = 8, .factor = 2}, 300, "columns 300 of heads of 300; at most 256"},
        {{.kind = QDR_ROTARY_DYNAMIC, .factor = 2}, 8, "rotary.original 0, but its kind needs"},
        {{.kind = QDR_ROTARY_LONGROPE, .original = 8, .factor = 2}, 8, "rotary positions that turn pair 0 by inf"},
        {{.kind = QDR_ROTARY_LINEAR}, 8, "turn pair 0 by inf each; check the base, the factors"},
        {{.low = NAN}, 8, "rotary.low nan"},
    };
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        qdr_network net = by_hand();
        const int needs_shape = i < 4;
        net.positions = 0;
        net.head_size = wrong[i].head_size;
        net.rotary = wrong[i].rotary;
        CHECK_FAILS(qdr_network_params(&net, &counts), needs_shape ? QDR_ERR_SHAPE : QDR_ERR_ARGUMENT, wrong[i].says);
        if (i == 1 || i == 6) continue; /* a number that no member has */
        net.positions = net.context; /* then no layer has them */
        CHECK_OK(qdr_network_params(&net, &counts));
    }
}

/* ---- defaults and keys ---- */

static void check_shape(const qdr_network *net, int64_t layers, int64_t hidden, int64_t heads, int64_t kv_heads,
                        int64_t head_size, int64_t ffn, int64_t vocab, int64_t context)
{
    assert_int_equal(net->size, sizeof *net);
    assert_int_equal(net->norms_per_layer, 2);
    assert_int_equal(net->layers, layers);
    assert_int_equal(net->hidden, hidden);
    assert_int_equal(net->heads, heads);
    assert_int_equal(net->kv_heads, kv_heads);
    assert_int_equal(net->head_size, head_size);
    assert_int_equal(net->ffn, ffn);
    assert_int_equal(net->vocab, vocab);
    assert_int_equal(net->context, context);
}

/* Flags as letters, in the order of the struct. */
static void check_choices(const qdr_network *net, const char *choices, const char *activation)
{
    const char made[] = {net->gated ? 'g' : '-',
                         net->qkv_bias ? 'q' : '-',
                         net->out_bias ? 'o' : '-',
                         net->mlp_bias ? 'm' : '-',
                         net->norm == QDR_NORM_LAYER ? 'l' : 'r',
                         net->tied ? 't' : '-',
                         net->parallel_residual ? 'p' : '-',
                         '\0'};
    assert_string_equal(made, choices);
    assert_string_equal(net->activation, activation);
}

TEST(defaults)
{
    qdr_network net = network_of("{\"model_type\": \"gpt2\"}");
    check_shape(&net, 12, 768, 12, 12, 64, 3072, 50257, 1024);
    check_choices(&net, "-qomlt-", "gelu_new");
    assert_int_equal(net.positions, 1024);
    assert_string_equal(net.architecture, "gpt2");
    assert_string_equal(net.name, "a.json");
    net = network_of("{\"model_type\": \"gpt_neox\"}");
    check_shape(&net, 44, 6144, 64, 64, 96, 24576, 50432, 2048);
    check_choices(&net, "-qoml-p", "gelu");
    assert_int_equal(net.positions, 0);
    net = network_of("{\"model_type\": \"llama\"}");
    check_shape(&net, 32, 4096, 32, 32, 128, 11008, 32000, 2048);
    check_choices(&net, "g---r--", "silu");
    net = network_of("{\"model_type\": \"mistral\"}");
    check_shape(&net, 32, 4096, 32, 8, 128, 14336, 32000, 131072);
    check_choices(&net, "g---r--", "silu");
    assert_int_equal(net.window, 4096);
    assert_int_equal(net.window_layers, 32);
    net = network_of("{\"model_type\": \"qwen2\"}");
    check_shape(&net, 32, 4096, 32, 32, 128, 22016, 151936, 32768);
    check_choices(&net, "gq--r--", "silu");
    assert_int_equal(net.window, 0);
}

TEST(keys_of_gpt2)
{
    qdr_network net = network_of("{\"model_type\": \"gpt2\", \"n_layer\": 2, \"n_embd\": 96, "
                                 "\"n_head\": 4, \"n_inner\": 100, \"n_positions\": 32, "
                                 "\"vocab_size\": 7, \"activation_function\": \"relu\", "
                                 "\"tie_word_embeddings\": false, \"unknown\": {\"a\": [1]}}");
    check_shape(&net, 2, 96, 4, 4, 24, 100, 7, 32);
    check_choices(&net, "-qoml--", "relu");
    assert_int_equal(net.positions, 32);
    /* The names of other classes, both at once, and null for a default. */
    net = network_of("{\"model_type\": \"gpt2\", \"num_hidden_layers\": 3, \"hidden_size\": 90, "
                     "\"num_attention_heads\": 5, \"max_position_embeddings\": 33, "
                     "\"n_layer\": 3, \"n_inner\": null}");
    check_shape(&net, 3, 90, 5, 5, 18, 360, 50257, 33);
}

TEST(keys_of_others)
{
    qdr_network net = network_of("{\"model_type\": \"gpt_neox\", \"attention_bias\": false, "
                                 "\"use_parallel_residual\": false, \"hidden_act\": \"relu\", "
                                 "\"tie_word_embeddings\": true, \"intermediate_size\": 5}");
    check_choices(&net, "---mlt-", "relu");
    assert_int_equal(net.ffn, 5);
    net = network_of("{\"model_type\": \"llama\", \"attention_bias\": true, \"mlp_bias\": true, "
                     "\"head_dim\": 64, \"num_key_value_heads\": 4}");
    check_choices(&net, "gqomr--", "silu");
    check_shape(&net, 32, 4096, 32, 4, 64, 11008, 32000, 2048);
    net = network_of("{\"model_type\": \"mistral\", \"num_key_value_heads\": null, "
                     "\"sliding_window\": null, \"attention_bias\": true}");
    assert_int_equal(net.kv_heads, 32); /* null is not absent here */
    assert_int_equal(net.window, 0);
    check_choices(&net, "g---r--", "silu"); /* the class has no such key */
    net = network_of("{\"model_type\": \"qwen2\", \"use_sliding_window\": true, "
                     "\"sliding_window\": 100, \"max_window_layers\": 30}");
    assert_int_equal(net.window, 100);
    assert_int_equal(net.window_layers, 2);
    net = network_of("{\"model_type\": \"qwen2\", \"use_sliding_window\": true, "
                     "\"max_window_layers\": 32}");
    assert_int_equal(net.window, 0);
    assert_int_equal(net.window_layers, 0);
}

/* A size that does not divide is no error of the network, unless the class cannot have it. */
TEST(nothing_needs_to_divide)
{
    const qdr_network net = network_of(
        "{\"model_type\": \"granite\", \"hidden_size\": 101, \"num_attention_heads\": 7, "
        "\"num_key_value_heads\": 1, \"vocab_size\": 13, \"intermediate_size\": 17}");
    check_shape(&net, 32, 101, 7, 1, 14, 17, 13, 2048);
    assert_true(total_of(&net) > 0);
}

/* ---- refusals ---- */

TEST(refusals)
{
    static const struct {
        const char *text;
        qdr_status status;
        const char *says;
    } cases[] = {
        {"{", QDR_ERR_ARGUMENT, "a.json, line 1: "},
        {"{\"model_type\": \"llama\", \"hidden_size\": 37, \"num_attention_heads\": 6, \"head_dim\": 8}",
         QDR_ERR_ARGUMENT, "key 'num_attention_heads' is 6, which does not divide the 37 features"},
        {"{\"model_type\": \"llama\", \"head_dim\": 2147483646}", QDR_ERR_SHAPE,
         "turns rotary.columns 2147483646 of heads of 2147483646; at most 65536 can be turned"},
        {"{\"model_type\": \"gemma2\", \"hidden_size\": 37}", QDR_ERR_ARGUMENT, "which does not divide the 37"},
        {"{\"model_type\": \"gpt2\", \"head_dim\": 32}", QDR_ERR_ARGUMENT,
         "key 'head_dim' is 32, but heads of gpt2 have hidden / heads = 64 columns; leave it out"},
        {"{\"model_type\": \"gpt_neox\", \"head_dim\": 32}", QDR_ERR_ARGUMENT,
         "'head_dim' is 32, but heads of gpt_neox"},
        {"{\"model_type\": \"llama\", \"is_causal\": false}", QDR_ERR_UNSUPPORTED,
         "key 'is_causal' is false: only attention to earlier positions is known"},
        {"{\"model_type\": \"gemma3\", \"quantization_config\": {\"bits\": 4}, \"text_config\": {\"model_type\": "
         "\"gemma3_text\"}}",
         QDR_ERR_UNSUPPORTED, "key 'quantization_config' is an object: only weights"},
        {"{\"model_type\": \"olmo3\", \"rope_scaling\": {\"type\": \"linear\", \"factor\": 2}}", QDR_ERR_UNSUPPORTED,
         "key 'rope_scaling.type': the class of olmo3 knows this key as rope_type only"},
        {"[]", QDR_ERR_ARGUMENT, "a.json holds a list; an object is needed"},
        {"{}", QDR_ERR_ARGUMENT, "a.json: key 'model_type' is missing; known are cohere2, gemma, gemma2"},
        {"{\"model_type\": 3}", QDR_ERR_ARGUMENT, "key 'model_type' is 3; a string is needed"},
        {"{\n\"model_type\": \"bert\"}", QDR_ERR_UNSUPPORTED,
         "a.json: key 'model_type' is \"bert\"; known are cohere2, gemma, "},
        {"{\"model_type\": \"mixtral\"}", QDR_ERR_UNSUPPORTED,
         "key 'model_type' is \"mixtral\", a mixture of experts; only dense networks are known; known are "
         "cohere2,"},
        {"{\"model_type\": \"qwen2_moe\"}", QDR_ERR_UNSUPPORTED, "\"qwen2_moe\", a mixture of experts"},
        {"{\"model_type\": \"llama\",\n\n\"num_local_experts\": 8}", QDR_ERR_UNSUPPORTED,
         "a.json: key 'num_local_experts' is 8: a mixture of experts; only dense networks "
         "are known"},
        {"{\"model_type\": \"llama\", \"n_routed_experts\": \"x\"}", QDR_ERR_UNSUPPORTED,
         "key 'n_routed_experts' is \"x\": a mixture of experts"},
        {"{\"model_type\": \"llama\",\n\"num_hidden_layers\": -3}", QDR_ERR_ARGUMENT,
         "a.json: key 'num_hidden_layers' is -3; a whole number >= 1 is needed"},
        {"{\"model_type\": \"llama\", \"hidden_size\": 2147483648}", QDR_ERR_ARGUMENT,
         "key 'hidden_size' is 2147483648; a whole number from 1 to 2147483647 is needed"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": \"768\"}", QDR_ERR_ARGUMENT,
         "key 'n_embd' is \"768\"; a whole number >= 1 is needed"},
        {"{\"model_type\": \"gpt2\", \"hidden_size\": 0}", QDR_ERR_ARGUMENT, "key 'hidden_size' is 0"},
        {"{\"model_type\": \"gpt2\", \"n_embd\": 600000000}", QDR_ERR_SHAPE,
         "network: a.json has ffn 2400000000; from 1 to 2147483647"},
        {"{\"model_type\": \"gpt2\",\n\"n_head\": 800}", QDR_ERR_ARGUMENT,
         "a.json: key 'n_head' is 800, more than the 768 features of a token; use fewer, "
         "or give head_dim"},
        {"{\"model_type\": \"llama\", \"num_key_value_heads\": 33}", QDR_ERR_ARGUMENT,
         "key 'num_key_value_heads' is 33; at most the 32 heads are needed"},
        {"{\"model_type\": \"llama\",\n\"num_key_value_heads\": 5}", QDR_ERR_ARGUMENT,
         "a.json: key 'num_key_value_heads' is 5, which does not divide the 32 heads; each "
         "key head serves equally many"},
        {"{\"model_type\": \"mistral\", \"num_attention_heads\": 12}", QDR_ERR_ARGUMENT,
         "a.json: key 'num_key_value_heads' is missing, and means 8, which does not divide the 12 "
         "heads"},
        {"{\"model_type\": \"gpt2\", \"n_head\": 7}", QDR_ERR_ARGUMENT,
         "key 'n_head' is 7, which does not divide the 768 features of a token; gpt2 needs heads "
         "of one size"},
        {"{\"model_type\": \"mistral\", \"num_attention_heads\": 4}", QDR_ERR_ARGUMENT,
         "a.json: key 'num_key_value_heads' is missing, and the 8 of mistral are more than the 4 "
         "heads; give it"},
        {"{\"model_type\": \"llama\", \"tie_word_embeddings\": 1}", QDR_ERR_ARGUMENT,
         "key 'tie_word_embeddings' is 1; true or false is needed"},
        {"{\"model_type\": \"llama\", \"mlp_bias\": \"no\"}", QDR_ERR_ARGUMENT, "'mlp_bias'"},
        {"{\"model_type\": \"mistral\", \"sliding_window\": 0}", QDR_ERR_ARGUMENT,
         "key 'sliding_window' is 0; a whole number >= 1 is needed"},
        {"{\"model_type\": \"llama\", \"hidden_act\": \"01234567890123456789012345678901\"}", QDR_ERR_ARGUMENT,
         "one of gelu, gelu_new, "},
        {"{\"model_type\": \"gpt2\", \"add_cross_attention\": true}", QDR_ERR_UNSUPPORTED,
         "key 'add_cross_attention' is true: only attention of a sequence to itself is known"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdr_network net = by_hand();
        CHECK_FAILS(qdr_network_parse(cases[i].text, strlen(cases[i].text), "a.json", &net), cases[i].status,
                    cases[i].says);
        assert_int_equal(net.layers, 0);
    }
    /* No experts are no mixture. */
    (void)network_of("{\"model_type\": \"llama\", \"num_local_experts\": 0}");
}

TEST(null_is_refused)
{
    qdr_network net = {QDR_INIT(qdr_network)};
    CHECK_FAILS(qdr_network_load(NULL, &net), QDR_ERR_ARGUMENT, "the name is NULL");
    CHECK_FAILS(qdr_network_load("gpt2", NULL), QDR_ERR_ARGUMENT, "is NULL");
    CHECK_FAILS(qdr_network_parse(NULL, 0, "a", &net), QDR_ERR_ARGUMENT, "is NULL");
    CHECK_FAILS(qdr_network_parse("", 0, NULL, &net), QDR_ERR_ARGUMENT, "is NULL");
    CHECK_FAILS(qdr_network_parse("", 0, "a", NULL), QDR_ERR_ARGUMENT, "is NULL");
}

/* ---- names and paths ---- */

TEST(unknown_names)
{
    qdr_network net = {QDR_INIT(qdr_network)};
    char longer[300];
    CHECK_FAILS(qdr_network_load("gtp2", &net), QDR_ERR_ARGUMENT,
                "models is named \"gtp2\"; nearest: gpt2 (see quadrille list models; the name of a file has a "
                "slash or ends in .json)");
    check_sentence("network: none of the ", __FILE__, __LINE__);
    CHECK_OK(qdr_network_load("GPT2XL", &net)); /* only spelled otherwise */
    assert_string_equal(net.name, "gpt2-xl");
    CHECK_FAILS(qdr_network_load("llama70b", &net), QDR_ERR_ARGUMENT, "nearest: llama-2-70b, ");
    CHECK_FAILS(qdr_network_load("llama-3", &net), QDR_ERR_ARGUMENT, "nearest: llama-3-70b, llama-3-8b, llama-3");
    CHECK_FAILS(qdr_network_load("zebra\n", &net), QDR_ERR_ARGUMENT, "\"zebra?\" (");
    CHECK_FAILS(qdr_network_load("", &net), QDR_ERR_ARGUMENT, "\"\"");
    memset(longer, 'x', sizeof longer);
    longer[299] = '\0';
    CHECK_FAILS(qdr_network_load(longer, &net), QDR_ERR_ARGUMENT, "none of the");
    CHECK_FAILS(qdr_network_load("none.json", &net), QDR_ERR_IO, "none.json cannot be opened");
    CHECK_FAILS(qdr_network_load("./gpt2", &net), QDR_ERR_IO, "./gpt2 cannot be opened");
    assert_int_equal(net.layers, 0);
}

TEST(too_long_a_path)
{
    qdr_network net = {QDR_INIT(qdr_network)};
    char path[QDRI_DATA_PATH_BYTES + 1];
    memset(path, '/', sizeof path);
    path[QDRI_DATA_PATH_BYTES] = '\0';
    CHECK_FAILS(qdr_network_load(path, &net), QDR_ERR_ARGUMENT,
                "network: the path has 4096 bytes; the maximum is 4095");
}

static void write_config(const char *path, int n_layers)
{
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fprintf(file, "{\"model_type\": \"gpt2\", \"n_layer\": %d}\n", n_layers);
    assert_int_equal(fclose(file), 0);
}

/* A folder of one's own goes before the installed one. */
TEST(folders_and_paths)
{
    char folder[] = "/tmp/qdr_network_XXXXXX", path[4][96], list[200];
    const char *before = getenv("QDR_DATA_PATH");
    char *kept = before ? strdup(before) : NULL;
    qdr_network net = {QDR_INIT(qdr_network)};
    listing names = {0, 0, ""};
    assert_non_null(mkdtemp(folder));
    snprintf(path[0], sizeof path[0], "%s/models", folder);
    assert_int_equal(mkdir(path[0], 0700), 0);
    snprintf(path[1], sizeof path[1], "%s/models/gpt2.json", folder);
    snprintf(path[2], sizeof path[2], "%s/models/own.json", folder);
    snprintf(path[3], sizeof path[3], "%s/models/config.json", folder);
    for (int i = 1; i < 4; i++) write_config(path[i], i);
    CHECK_OK(qdr_network_load(path[2], &net));
    assert_string_equal(net.name, "own");
    assert_int_equal(net.layers, 2);
    CHECK_OK(qdr_network_load(path[3], &net)); /* the folder's name says more */
    assert_string_equal(net.name, "models");
    CHECK_FAILS(qdr_network_load("own", &net), QDR_ERR_ARGUMENT, "\"own\"");
    snprintf(list, sizeof list, "::/nowhere/at/all:%s:", folder);
    setenv("QDR_DATA_PATH", list, 1);
    CHECK_OK(qdr_network_load("own", &net));
    assert_int_equal(net.layers, 2);
    CHECK_OK(qdr_network_load("gpt2", &net));
    assert_int_equal(net.layers, 1);
    CHECK_OK(qdr_network_load("gpt2-xl", &net)); /* and not instead of it */
    assert_int_equal(net.layers, 48);
    CHECK_OK(qdr_network_list(see_name, &names));
    assert_true(names.n >= 40);
    if (kept)
        setenv("QDR_DATA_PATH", kept, 1);
    else
        unsetenv("QDR_DATA_PATH");
    free(kept);
    for (int i = 1; i < 4; i++) assert_int_equal(remove(path[i]), 0);
    assert_int_equal(rmdir(path[0]), 0);
    assert_int_equal(rmdir(folder), 0);
}
