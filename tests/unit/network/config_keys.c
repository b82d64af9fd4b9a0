/* SPDX-License-Identifier: Apache-2.0 */
/* Keys of a config.json that change what a network computes, or how large it is: read as transformers does, or refused
 * by key and value. */
#include "qdr_test.h"
#include "quadrille/network.h"

static qdr_network network_of(const char *text)
{
    qdr_network net = {QDR_INIT(qdr_network)};
    CHECK_OK(qdr_network_parse(text, strlen(text), "a.json", &net));
    return net;
}

TEST(windows_by_layer)
{
    qdr_network net = network_of("{\"model_type\": \"qwen2\", \"num_hidden_layers\": 3, \"use_sliding_window\": true, "
                                 "\"layer_types\": [\"sliding_attention\", \"full_attention\", \"full_attention\"]}");
    assert_int_equal(net.window, 4096);
    assert_int_equal(net.window_layers, 1);
    net = network_of("{\"model_type\": \"llama\", \"num_hidden_layers\": 2, "
                     "\"layer_types\": [\"full_attention\", \"full_attention\"]}");
    assert_int_equal(net.window, 0);
}

/* Rotation needs even heads only where all of a head is turned. */
TEST(heads_that_are_turned)
{
    qdr_network net = network_of("{\"model_type\": \"gpt_neox\", \"hidden_size\": 68, \"num_attention_heads\": 4}");
    assert_int_equal(net.head_size, 17);
    net = network_of("{\"model_type\": \"gpt2\", \"n_embd\": 68, \"n_head\": 4}");
    assert_int_equal(net.head_size, 17);
}

TEST(refusals)
{
    static const struct {
        const char *text;
        qdr_status status;
        const char *says;
    } cases[] = {
        {"{\"model_type\": \"llama\", \"architectures\": [\"LlamaForSequenceClassification\"]}", QDR_ERR_UNSUPPORTED,
         "a.json: key 'architectures[0]' is \"LlamaForSequenceClassification\", which has another head"},
        {"{\"model_type\": \"llama\", \"architectures\": [\"LlamaForCausalLM\", \"LlamaModel\"]}", QDR_ERR_UNSUPPORTED,
         "'architectures[1]' is \"LlamaModel\""},
        {"{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2DoubleHeadsModel\"]}", QDR_ERR_UNSUPPORTED,
         "is \"GPT2DoubleHeadsModel\""},
        {"{\"model_type\": \"qwen2\", \"architectures\": [\"Qwen2ForTokenClassification\"]}", QDR_ERR_UNSUPPORTED,
         "is \"Qwen2ForTokenClassification\""},
        {"{\"model_type\": \"gpt_neox\", \"architectures\": [\"GPTNeoXForQuestionAnswering\"]}", QDR_ERR_UNSUPPORTED,
         "is \"GPTNeoXForQuestionAnswering\""},
        {"{\"model_type\": \"llama\", \"architectures\": \"LlamaForCausalLM\"}", QDR_ERR_ARGUMENT,
         "'architectures' is \"LlamaForCausalLM\"; a list is needed"},
        {"{\"model_type\": \"llama\", \"head_dim\": 127}", QDR_ERR_ARGUMENT,
         "a.json: key 'head_dim' is 127; rotary positions turn pairs: an even number is needed"},
        {"{\"model_type\": \"mistral\", \"hidden_size\": 168}", QDR_ERR_ARGUMENT,
         "'num_attention_heads' is 32, with which a head has 5 of the 168 features"},
        {"{\"model_type\": \"gpt_neox\", \"hidden_size\": 64, \"rotary_pct\": 1.0}", QDR_ERR_ARGUMENT,
         "'num_attention_heads' is 64, with which a head has 1 of the 64"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": null}", QDR_ERR_ARGUMENT, "'num_hidden_layers' is null"},
        {"{\"model_type\": \"gpt2\", \"tie_word_embeddings\": null}", QDR_ERR_ARGUMENT,
         "'tie_word_embeddings' is null"},
        {"{\"model_type\": \"granite\", \"logits_scaling\": null}", QDR_ERR_ARGUMENT, "'logits_scaling' is null"},
        {"{\"model_type\": \"gemma2\", \"query_pre_attn_scalar\": null}", QDR_ERR_ARGUMENT,
         "'query_pre_attn_scalar' is null"},
        {"{\"model_type\": \"qwen3\", \"head_dim\": null}", QDR_ERR_ARGUMENT, "'head_dim' is null"},
        {"{\"model_type\": \"llama\", \"rms_norm_eps\": null}", QDR_ERR_ARGUMENT, "'rms_norm_eps' is null"},
        {"{\"model_type\": \"smollm3\", \"no_rope_layer_interval\": null}", QDR_ERR_ARGUMENT,
         "'no_rope_layer_interval' is null"},
        {"{\"model_type\": \"phi3\", \"hidden_size\": 8, \"num_attention_heads\": 2, \"rope_scaling\": {\"type\": "
         "\"longrope\", \"short_factor\": [1, 1], \"long_factor\": [1, 1]}, \"original_max_position_embeddings\": "
         "null}",
         QDR_ERR_ARGUMENT, "'original_max_position_embeddings' is null"},
        {"{\"model_type\": \"llama\", \"hidden_act\": \"xielu\"}", QDR_ERR_ARGUMENT,
         "'hidden_act' is \"xielu\"; one of gelu, gelu_new"},
        {"{\"model_type\": \"gpt2\", \"pruned_heads\": {\"0\": [1]}}", QDR_ERR_UNSUPPORTED,
         "'pruned_heads' is an object: only networks"},
        {"{\"model_type\": \"gpt2\", \"is_encoder_decoder\": true}", QDR_ERR_UNSUPPORTED,
         "is true: only networks without"},
        {"{\"model_type\": \"gpt2\", \"multi_query\": true}", QDR_ERR_UNSUPPORTED, "'multi_query' is true: "},
        {"{\"model_type\": \"gpt2\", \"rotary_dim\": 4}", QDR_ERR_UNSUPPORTED, "'rotary_dim' is 4: "},
        {"{\"model_type\": \"gpt2\", \"activation_function\": null}", QDR_ERR_ARGUMENT,
         "'activation_function' is null"},
        {"{\"model_type\": \"gpt2\", \"n_head\": 12, \"num_attention_heads\": 6}", QDR_ERR_ARGUMENT,
         "'num_attention_heads' is 6, but 'n_head', its other name, is 12; leave one out"},
        {"{\"model_type\": \"qwen2\", \"num_hidden_layers\": 2, \"layer_types\": [\"full_attention\"]}",
         QDR_ERR_ARGUMENT, "'layer_types' has 1 items for 2 layers"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"layer_types\": [\"sliding_attention\"]}",
         QDR_ERR_ARGUMENT, "'layer_types' has 1 times \"sliding_attention\", but llama has windows in 0 layers"},
        {"{\"model_type\": \"llama\", \"num_hidden_layers\": 1, \"layer_types\": [\"linear_attention\"]}",
         QDR_ERR_ARGUMENT, "'layer_types[0]' is \"linear_attention\"; one of full_attention, sliding_attention"},
        {"{\"model_type\": \"llama\", \"clip_qkv\": 8.0}", QDR_ERR_UNSUPPORTED, "'clip_qkv' is 8.0: "},
        {"{\"model_type\": \"llama\", \"quantization_config\": {\"bits\": 4}}", QDR_ERR_UNSUPPORTED,
         "'quantization_config' is an object: only weights that are not quantized"},
        {"{\"model_type\": \"gemma3_text\", \"use_bidirectional_attention\": \"all\"}", QDR_ERR_UNSUPPORTED,
         "'use_bidirectional_attention' is \"all\": only attention to earlier"},
        {"{\"model_type\": \"llama\", \"attention_chunk_size\": 64}", QDR_ERR_UNSUPPORTED,
         "'attention_chunk_size' is 64"},
        {"{\"model_type\": \"llama\", \"alibi\": true}", QDR_ERR_UNSUPPORTED, "'alibi' is true"},
        {"{\"model_type\": \"llama\", \"kv_lora_rank\": 512}", QDR_ERR_UNSUPPORTED, "'kv_lora_rank' is 512"},
        {"{\"model_type\": \"gpt2\", \"scale_attn_by_inverse_layer_idx\": true}", QDR_ERR_UNSUPPORTED,
         "'scale_attn_by_inverse_layer_idx' is true"},
        {"{\"model_type\": \"gemma2\", \"query_pre_attn_scalar\": -1}", QDR_ERR_ARGUMENT,
         "'query_pre_attn_scalar' is -1"},
        {"{\"model_type\": \"granite\", \"logits_scaling\": 0}", QDR_ERR_ARGUMENT, "'logits_scaling' is 0"},
        {"{\"model_type\": \"olmo2\", \"rms_norm_eps\": 0}", QDR_ERR_ARGUMENT, "'rms_norm_eps' is 0"},
        {"{\"model_type\": \"gpt2\", \"attn_pdrop\": 2}", QDR_ERR_ARGUMENT, "'attn_pdrop' is 2"},
        {"{\"model_type\": \"smollm3\", \"num_hidden_layers\": 2, \"no_rope_layers\": [1]}", QDR_ERR_ARGUMENT,
         "'no_rope_layers' has 1 items for 2 layers"},
        {"{\"model_type\": \"smollm3\", \"num_hidden_layers\": 1, \"no_rope_layers\": [2]}", QDR_ERR_ARGUMENT,
         "'no_rope_layers[0]' is 2"},
        {"{\"model_type\": \"llama\", \"rope_scaling\": \"linear\"}", QDR_ERR_ARGUMENT, "'rope_scaling' is \"linear\""},
        {"{\"model_type\": \"gemma3_text\", \"rope_scaling\": [1]}", QDR_ERR_ARGUMENT, "'rope_scaling' is a list"},
        {"{\"model_type\": \"mistral3\", \"text_config\": {\"model_type\": \"mistral\"}}", QDR_ERR_ARGUMENT,
         "'tie_word_embeddings' is missing, and the default of what nests"},
        {"{\"model_type\": \"gemma3\", \"architectures\": [\"Gemma3ForSequenceClassification\"], \"text_config\": "
         "{\"model_type\": \"gemma3_text\"}}",
         QDR_ERR_UNSUPPORTED, "'architectures[0]' is \"Gemma3ForSequenceClassification\""},
        {"{\"model_type\": \"gemma3\", \"text_config\": {\"model_type\": \"gemma3_text\", \"head_dim\": 0}}",
         QDR_ERR_ARGUMENT, "'text_config.head_dim' is 0"},
        {"{\"dim\": 4096, \"n_layers\": 32, \"n_heads\": 32}", QDR_ERR_ARGUMENT,
         "the params.json of Meta's own format"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdr_network net = {QDR_INIT(qdr_network)};
        CHECK_FAILS(qdr_network_parse(cases[i].text, strlen(cases[i].text), "a.json", &net), cases[i].status,
                    cases[i].says);
        assert_int_equal(net.layers, 0);
    }
}

/* Of a model of texts and images, what reads texts. */
TEST(nested)
{
    const qdr_network net = network_of("{\"model_type\": \"gemma3\", \"architectures\": "
                                       "[\"Gemma3ForConditionalGeneration\"], \"text_config\": "
                                       "{\"model_type\": \"gemma3_text\", \"num_hidden_layers\": 7}}");
    assert_string_equal(net.architecture, "gemma3_text");
    assert_int_equal(net.layers, 7);
    assert_int_equal(net.window_layers, 6);
}

/* Whether the head is tied, the outer object says alone. */
TEST(nested_ties)
{
    qdr_network net = network_of("{\"model_type\": \"gemma3\", \"tie_word_embeddings\": false, \"text_config\": "
                                 "{\"model_type\": \"gemma3_text\"}}");
    assert_int_equal(net.tied, 0);
    net = network_of("{\"model_type\": \"gemma3\", \"text_config\": "
                     "{\"model_type\": \"gemma3_text\", \"tie_word_embeddings\": false}}");
    assert_int_equal(net.tied, 1);
    net = network_of("{\"model_type\": \"mistral3\", \"tie_word_embeddings\": true, \"text_config\": "
                     "{\"model_type\": \"mistral\"}}");
    assert_int_equal(net.tied, 1);
}

static void keep_line(int level, const char *message, void *line)
{
    (void)level;
    (void)snprintf(line, 300, "%s", message);
}

/* As the files of Phi-3 do, whose class transformers has. */
TEST(code_of_its_own)
{
    char line[300] = "";
    assert_int_equal(setenv("QDR_DEBUG", "2", 1), 0);
    qdr_set_log(keep_line, line);
    const qdr_network net = network_of("{\"model_type\": \"phi3\", \"auto_map\": {\"AutoConfig\": \"a.A\", "
                                       "\"AutoModelForCausalLM\": \"b.B\"}}");
    qdr_set_log(NULL, NULL);
    assert_int_equal(unsetenv("QDR_DEBUG"), 0);
    assert_string_equal(net.architecture, "phi3");
    assert_non_null(strstr(line, "names code of its own (auto_map.AutoModelForCausalLM); the class of phi3 is taken"));
}

/* The class has the key, and does not use it. */
TEST(scores_of_gemma3_have_no_cap)
{
    const qdr_network net = network_of("{\"model_type\": \"gemma3_text\", \"attn_logit_softcapping\": 50, "
                                       "\"final_logit_softcapping\": 30}");
    assert_true(net.attention_cap == 0 && net.logits_cap == 30);
}

#define LONGROPE "\"rope_type\": \"longrope\", \"short_factor\": [1, 1], \"long_factor\": [2, 2]"

/* Of phi3 the class has them; of others first the file, but of sets for kinds of layers those. */
TEST(original_positions)
{
    static const struct {
        const char *type, *keys;
        int64_t original;
        double factor;
    } cases[] = {
        {"phi3", "\"rope_parameters\": {" LONGROPE "}", 4096, 4},
        {"phi3", "\"rope_parameters\": {" LONGROPE ", \"original_max_position_embeddings\": 512}", 4096, 4},
        {"phi3", "\"original_max_position_embeddings\": 1024, \"rope_parameters\": {" LONGROPE "}", 1024, 16},
        {"llama", "\"rope_parameters\": {" LONGROPE "}", 16384, 1},
        {"llama", "\"rope_parameters\": {" LONGROPE ", \"original_max_position_embeddings\": 512}", 512, 32},
        {"llama",
         "\"original_max_position_embeddings\": 2048, \"rope_parameters\": {" LONGROPE
         ", \"original_max_position_embeddings\": 512}",
         2048, 8},
        {"olmo3",
         "\"original_max_position_embeddings\": 2048, \"rope_parameters\": {\"full_attention\": {" LONGROPE
         ", \"original_max_position_embeddings\": 512}, \"sliding_attention\": {}}",
         512, 32},
        {"llama", "\"rope_scaling\": {}, \"rope_parameters\": {\"rope_type\": \"linear\", \"factor\": 3}", 0, 3},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[700];
        snprintf(text, sizeof text,
                 "{\"model_type\": \"%s\", \"hidden_size\": 8, \"num_attention_heads\": 2, \"num_key_value_heads\": 1, "
                 "\"max_position_embeddings\": 16384, %s}",
                 cases[i].type, cases[i].keys);
        const qdr_network net = network_of(text);
        assert_int_equal(net.rotary.original, cases[i].original);
        assert_true(net.rotary.factor == cases[i].factor);
    }
}

/* Heads over the vocabulary, by the names that files have for them. */
TEST(classes_that_are_known)
{
    (void)network_of("{\"model_type\": \"llama\", \"architectures\": [\"LLaMAForCausalLM\"]}");
    (void)network_of("{\"model_type\": \"gpt2\", \"architectures\": [\"GPT2LMHeadModel\"]}");
    (void)network_of("{\"model_type\": \"qwen2\", \"architectures\": null}");
    (void)network_of("{\"model_type\": \"mistral\", \"architectures\": [], \"pruned_heads\": {}}");
}
