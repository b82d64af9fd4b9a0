/* SPDX-License-Identifier: Apache-2.0 */
/* The configurations of tests/reference/networks, which transformers wrote: what they describe, the same in both of its
 * dialects. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "qdr_test.h"
#include "reference/model_tensors.h"
#include "schedule/network.h"

/* Sums over the tensors of model.safetensors, and each layer's window and turned columns: 'w' has one, 'r' turns, 'l'
 * turns by the local set, '-' does not. */
static const struct {
    const char *name;
    int64_t n_params;
    const char *layers;
} known[] = {
    {"cohere2", 70920, "WW-WW-"},
    {"gemma", 25344, "rr"},
    {"gemma2", 37008, "WrW"},
    {"gemma3", 71688, "LLrLLr"},
    {"glm4", 30444, "rr"},
    {"gpt2", 23396, "--"},
    {"gpt_neox", 50624, "rr"},
    {"gpt_neox-serial", 23504, "rr"},
    {"granite", 23148, "rr"},
    {"llama", 27756, "rr"},
    {"llama-dynamic", 27756, "rr"},
    {"llama-linear", 27756, "rr"},
    {"llama-llama3", 27756, "rr"},
    {"llama-one-key-head", 22284, "rr"},
    {"llama-tied-biases", 25896, "rr"},
    {"llama-yarn", 27756, "rr"},
    {"mistral", 27756, "WW"},
    {"olmo2", 23244, "rr"},
    {"olmo3", 60012, "LLrLLr"},
    {"phi3", 33936, "WW"},
    {"phi3-long", 33936, "rr"},
    {"qwen2", 20856, "rr"},
    {"qwen2-window", 32472, "rWW"},
    {"qwen3", 27796, "rr"},
    {"smollm3", 39024, "r-r-"},
    {"starcoder2", 17540, "WW"},
};
enum { N_KNOWN = sizeof known / sizeof *known, WINDOW = 7 };

static qdr_network load(const char *name, const char *file)
{
    qdr_network net = {QDR_INIT(qdr_network)};
    char path[512];
    snprintf(path, sizeof path, "%s/%s/%s", getenv("QDR_TEST_NETWORKS"), name, file);
    CHECK_OK(qdr_network_load(path, &net));
    return net;
}

TEST(dialects_agree)
{
    for (int i = 0; i < N_KNOWN; i++) {
        qdr_network_difference difference = {QDR_INIT(qdr_network_difference)};
        const qdr_network a = load(known[i].name, "config.json"), b = load(known[i].name, "config4.json");
        if (qdr_network_differ(&a, &b, &difference))
            fail_msg("%s: %s is %s in config.json, %s in config4.json", known[i].name, difference.key, difference.first,
                     difference.second);
    }
}

TEST(parameters_are_counted)
{
    for (int i = 0; i < N_KNOWN; i++) {
        const qdr_network net = load(known[i].name, "config.json");
        qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
        CHECK_OK(qdr_network_params(&net, &counts));
        if (counts.total != known[i].n_params)
            fail_msg("%s: %lld, not %lld", known[i].name, (long long)counts.total, (long long)known[i].n_params);
    }
}

/* ---- lists ---- */

typedef struct listing {
    const qdr_network *network;
    char first[64], last[64];
    int64_t n_elems;
} listing;

/* Sizes are those of the tensors that a checkpoint of transformers has for it. */
static void see_parameter(const qdr_network_parameter *parameter, void *user)
{
    listing *seen = user;
    tensor_list list;
    int64_t n = 0;
    if (!tensors_of(seen->network, parameter->name, &list))
        fail_msg("%s: %s is in no tensor", seen->network->name, parameter->name);
    for (int i = 0; i < list.n; i++) n += list.of[i].n_rows * list.of[i].n_cols;
    if (parameter->n_rows * parameter->n_cols != n)
        fail_msg("%s: %s has %lldx%lld elements, not %lld", seen->network->name, parameter->name,
                 (long long)parameter->n_rows, (long long)parameter->n_cols, (long long)n);
    assert_int_equal(parameter->is_vector, !list.of[0].is_matrix);
    if (!seen->n_elems) snprintf(seen->first, sizeof seen->first, "%s", parameter->name);
    snprintf(seen->last, sizeof seen->last, "%s", parameter->name);
    seen->n_elems += n;
}

TEST(parameters_are_listed)
{
    for (int i = 0; i < N_KNOWN; i++) {
        const qdr_network net = load(known[i].name, "config.json");
        listing seen = {.network = &net};
        CHECK_OK(qdr_network_parameters(&net, see_parameter, &seen));
        assert_int_equal(seen.n_elems, known[i].n_params);
        assert_string_equal(seen.first, "embedding.weight");
        if (!net.tied) assert_string_equal(seen.last, "head.weight");
    }
    qdr_network net = load("llama", "config.json");
    listing seen = {.network = &net};
    CHECK_FAILS(qdr_network_parameters(&net, NULL, &seen), QDR_ERR_ARGUMENT, "the function to call is NULL");
    CHECK_FAILS(qdr_network_parameters(NULL, see_parameter, &seen), QDR_ERR_ARGUMENT, "the pointer is NULL");
    strcpy(net.activation, "mish");
    CHECK_FAILS(qdr_network_parameters(&net, see_parameter, &seen), QDR_ERR_UNSUPPORTED, "it has mish");
    net.layers = 0;
    CHECK_FAILS(qdr_network_parameters(&net, see_parameter, &seen), QDR_ERR_SHAPE, "layers 0");
    assert_int_equal(seen.n_elems, 0);
}

/* ---- texts ---- */

TEST(texts_have_all)
{
    enum { CAPACITY = 16384 };
    static char text[CAPACITY];
    for (int i = 0; i < N_KNOWN; i++) {
        const qdr_network net = load(known[i].name, "config.json");
        qdr_network read = {QDR_INIT(qdr_network)};
        const size_t n = qdr_network_text(&net, text, CAPACITY);
        assert_in_range(n, 1, CAPACITY - 1);
        assert_int_equal(strlen(text), n);
        assert_null(strchr(text, '\n'));
        CHECK_OK(qdr_network_parse(text, n, "a text", &read));
        assert_memory_equal(&read, &net, sizeof net);
    }
}

TEST(texts_that_are_wrong)
{
    static char text[4096], changed[4096 + 64];
    char begin[8] = "unset";
    qdr_network net = load("llama", "config.json"), read = {QDR_INIT(qdr_network)};
    const size_t n = qdr_network_text(&net, text, sizeof text);
    assert_int_equal(qdr_network_text(&net, begin, sizeof begin), n);
    assert_string_equal(begin, "{\"name\"");
    assert_int_equal(qdr_network_text(&net, NULL, 0), n);
    assert_int_equal(qdr_network_text(NULL, begin, sizeof begin), 0);
    assert_string_equal(begin, "");
    snprintf(changed, sizeof changed, "{\"heats\": 2, %s", text + 1);
    CHECK_FAILS(qdr_network_parse(changed, strlen(changed), "a text", &read), QDR_ERR_ARGUMENT, "a text: key 'heats'");
    snprintf(changed, sizeof changed, "{\"name\": null%s", strchr(text, ','));
    CHECK_FAILS(qdr_network_parse(changed, strlen(changed), "a text", &read), QDR_ERR_ARGUMENT, "'name' is null");
    net.kv_heads = 3 * net.heads;
    const size_t wrong = qdr_network_text(&net, text, sizeof text);
    CHECK_FAILS(qdr_network_parse(text, wrong, "a text", &read), QDR_ERR_ARGUMENT, "key heads");
    char *key = strstr(text, "\"vocab\"");
    key[1] = 'V';
    CHECK_FAILS(qdr_network_parse(text, wrong, "a text", &read), QDR_ERR_ARGUMENT, "'vocab' is missing");
    assert_int_equal(read.layers, 0);
}

TEST(layers_are_those_of_the_classes)
{
    for (int i = 0; i < N_KNOWN; i++) {
        const qdr_network net = load(known[i].name, "config.json");
        assert_int_equal(net.layers, strlen(known[i].layers));
        for (int64_t l = 0; l < net.layers; l++) {
            const char kind = known[i].layers[l];
            const int has_window = kind == 'W' || kind == 'L', turns = kind != '-';
            qdr_network_layer layer = {QDR_INIT(qdr_network_layer)};
            CHECK_OK(qdr_network_describe_layer(&net, l, &layer));
            assert_int_equal(layer.window, has_window ? WINDOW : 0);
            assert_int_equal(layer.rotary_columns > 0, turns);
            assert_true(turns == (qdri_layer_rotary(&net, l) != NULL));
            assert_true((kind == 'L') == (qdri_layer_rotary(&net, l) == &net.local_rotary));
        }
        qdr_network_layer beyond = {QDR_INIT(qdr_network_layer)};
        CHECK_FAILS(qdr_network_describe_layer(&net, net.layers, &beyond), QDR_ERR_ARGUMENT, "which has");
    }
}

/* ---- rotary positions ---- */

#define SHORT                                                                                                          \
    "1,1.1,1.2,1.3,1.4,1.5,1.6,1.7,1.8,1.9,2,2.1,2.2,2.3,2.4,2.5,2.6,2.7,2.8,2.9,3,3.1,3.2,3.3,3.4,3.5,3.6,"           \
    "3.7,3.8,3.9,4,4.1"
#define LONG "1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20,21,22,23,24,25,26,27,28,29,30,31,32"

/* Heads of 64 columns, 4096 positions. The numbers are those of transformers 5.24 (modeling_rope_utils), whose
 * functions were run in float64. */
static const struct {
    const char *type, *parameters;
    int64_t sequence;
    double sum, fifth, seventeenth, last, magnitude;
} scaled[] = {
    {"llama", "'type': 'linear', 'factor': 4.0", 9, 0.99947705861909442, 0.059284342641541386, 0.0018747355233311397,
     3.3338035804083099e-05, 1},
    {"llama", "'rope_type': 'dynamic', 'factor': 4.0", 4095, 3.9979082344763777, 0.23713737056616555,
     0.0074989420933245588, 0.0001333521432163324, 1},
    {"llama", "'rope_type': 'dynamic', 'factor': 4.0", 10000, 3.3902825858786141, 0.17421252178588176,
     0.0026282692201104844, 1.9710247496178461e-05, 1},
    {"llama",
     "'rope_type': 'llama3', 'rope_theta': 500000.0, 'factor': 8.0, 'low_freq_factor': 1.0, 'high_freq_factor': 4.0, "
     "'original_max_position_embeddings': 1024",
     9, 2.9407292436571666, 0.12868737343265052, 0.00011730923379467252, 3.7673226901739645e-07, 1},
    {"llama", "'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 1024", 9, 3.8380873649851273,
     0.23713737056616555, 0.0023073667979460178, 3.3338035804083099e-05, 1.1386294361119891},
    {"llama",
     "'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 1024, 'truncate': false, "
     "'beta_fast': 16, 'beta_slow': 2",
     9, 3.8911479939025426, 0.23713737056616555, 0.0018747355233311397, 3.3338035804083099e-05, 1.1386294361119891},
    {"llama",
     "'rope_type': 'yarn', 'factor': 40.0, 'original_max_position_embeddings': 1024, 'mscale': 0.7, "
     "'mscale_all_dim': 1.1",
     9, 3.790141104137752, 0.23713737056616555, 0.00074989420933245553, 3.3338035804083101e-06, 0.89503654885516193},
    {"llama", "'rope_type': 'yarn', 'factor': 4.0, 'original_max_position_embeddings': 1024, 'attention_factor': 1.25",
     9, 3.8380873649851273, 0.23713737056616555, 0.0023073667979460178, 3.3338035804083099e-05, 1.25},
    {"phi3", "'type': 'su', 'short_factor': [" SHORT "], 'long_factor': [" LONG "]", 1024, 3.2427890230363925,
     0.1580915803774437, 0.0027773859604905771, 3.2524912979593268e-05, 1.0954451150103321},
    {"phi3", "'rope_type': 'longrope', 'short_factor': [" SHORT "], 'long_factor': [" LONG "]", 1025,
     1.8480778689975033, 0.039522895094360924, 0.00041660789407358659, 4.1672544755103874e-06, 1.0954451150103321},
};

/* 'key' becomes "key". */
static void quote(char *text)
{
    for (; *text; text++)
        if (*text == '\'') *text = '"';
}

static qdr_status parse(const char *type, const char *key, const char *parameters, qdr_network *net)
{
    char text[2000];
    snprintf(text, sizeof text,
             "{'model_type': '%s', 'hidden_size': 256, 'num_attention_heads': 4, 'num_hidden_layers': 2, "
             "'max_position_embeddings': 4096, %s'%s': {%s}}",
             type, strcmp(type, "phi3") ? "" : "'original_max_position_embeddings': 1024, ", key, parameters);
    quote(text);
    return qdr_network_parse(text, strlen(text), "a.json", net);
}

#define NEAR(a, b) assert_true(fabs((a) - (b)) <= 1e-14 * fabs(b))

TEST(frequencies)
{
    for (size_t i = 0; i < sizeof scaled / sizeof *scaled; i++)
        for (int dialect = 0; dialect < 2; dialect++) {
            qdr_network net = {QDR_INIT(qdr_network)};
            double f[32], magnitude, sum = 0;
            CHECK_OK(parse(scaled[i].type, dialect ? "rope_parameters" : "rope_scaling", scaled[i].parameters, &net));
            CHECK_OK(qdr_network_rotary(&net, 1, scaled[i].sequence, f, &magnitude));
            for (int k = 0; k < 32; k++) sum += f[k];
            assert_true(fabs(sum - scaled[i].sum) <= 32 * 1e-15 * sum);
            NEAR(f[5], scaled[i].fifth);
            NEAR(f[17], scaled[i].seventeenth);
            NEAR(f[31], scaled[i].last);
            NEAR(magnitude, scaled[i].magnitude);
        }
}

TEST(frequencies_of_part_of_a_head)
{
    qdr_network net = load("gpt_neox-serial", "config.json"); /* a quarter of 6 columns: 1, so one pair is turned */
    qdr_network_layer layer = {QDR_INIT(qdr_network_layer)};
    double f[3] = {0, 7, 7}, magnitude;
    CHECK_OK(qdr_network_describe_layer(&net, 0, &layer));
    assert_int_equal(layer.rotary_columns, 2);
    CHECK_OK(qdr_network_rotary(&net, 0, 1, f, &magnitude));
    assert_true(f[0] == 1 && f[1] == 7);
    net = load("gpt2", "config.json");
    CHECK_FAILS(qdr_network_rotary(&net, 0, 1, f, &magnitude), QDR_ERR_ARGUMENT, "needs rotary positions");
    net = load("gemma3", "config.json");
    double local[5], full[5];
    CHECK_OK(qdr_network_rotary(&net, 0, 1, local, &magnitude));
    CHECK_OK(qdr_network_rotary(&net, 2, 1, full, &magnitude));
    NEAR(local[1], pow(1e4, -0.2));
    NEAR(full[1], pow(1e6, -0.2) / 8);
    CHECK_FAILS(qdr_network_rotary(&net, 2, 0, full, &magnitude), QDR_ERR_ARGUMENT, "0 tokens");
    CHECK_FAILS(qdr_network_rotary(&net, 6, 1, full, &magnitude), QDR_ERR_ARGUMENT, "layer 6 of gemma3, which has 6");
    net.head_size = net.local_rotary.columns = 1024; /* more pairs than there is room for factors */
    net.local_rotary.kind = QDR_ROTARY_LONGROPE;
    CHECK_FAILS(qdr_network_rotary(&net, 0, 1, full, &magnitude), QDR_ERR_SHAPE, "at most 256 can be turned");
}

TEST(rotary_positions_that_are_refused)
{
    static const struct {
        const char *type, *parameters, *says;
    } cases[] = {
        {"llama", "'rope_type': 'other', 'factor': 2",
         "'rope_parameters.rope_type' is \"other\"; one of default, linear"},
        {"llama", "'rope_type': 'su'", "is \"su\"; one of"},
        {"llama", "'rope_type': 'linear'", "'rope_parameters.factor' is missing"},
        {"llama", "'rope_type': 'linear', 'factor': -4", "'rope_parameters.factor' is -4"},
        {"llama", "'rope_type': 'linear', 'factor': 0.5", "'rope_parameters.factor' is 0.5"},
        {"llama", "'rope_theta': 0", "'rope_parameters.rope_theta' is 0; a positive number"},
        {"llama", "'rope_type': 'llama3', 'factor': 8, 'low_freq_factor': 4, 'high_freq_factor': 4", "must be larger"},
        {"llama", "'partial_rotary_factor': 0.5", "llama turn all columns"},
        {"llama", "'full_attention': {'rope_theta': 5}", "have one"},
        {"gemma3_text", "'rope_theta': 5", "neither \"full_attention\" nor"},
        {"phi3", "'partial_rotary_factor': 0", "none of the 64 columns"},
        {"phi3", "'partial_rotary_factor': 1.5", "'rope_parameters.partial_rotary_factor' is 1.5"},
        {"phi3", "'rope_type': 'longrope', 'short_factor': [1, 2], 'long_factor': [1, 2]",
         "has 2 factors for 32 pairs"},
        {"phi3", "'rope_type': 'longrope', 'short_factor': [" SHORT "], 'long_factor': 3", "a list is needed"},
        {"llama", "'rope_type': 'yarn', 'factor': 4, 'rope_theta': 1", "the base of yarn's"},
        {"llama", "'rope_type': 'yarn', 'factor': 4, 'beta_fast': 0", "'rope_parameters.beta_fast' is 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdr_network net = {QDR_INIT(qdr_network)};
        const qdr_status status = parse(cases[i].type, "rope_parameters", cases[i].parameters, &net);
        if (status == QDR_OK || !strstr(qdr_last_error(), cases[i].says))
            fail_msg("%s: %s, not %s", cases[i].parameters, status == QDR_OK ? "accepted" : qdr_last_error(),
                     cases[i].says);
    }
}
