/* SPDX-License-Identifier: Apache-2.0 */
#include "network/types.h"

#include <string.h>

/* What most have. */
#define RMS .norm = QDR_NORM_RMS, .norms_per_layer = 2
#define AROUND .norm = QDR_NORM_RMS, .norms_per_layer = 4, .norm_place = QDR_NORM_AROUND
#define GEMMA                                                                                                          \
    .kv_heads = 4, .head_size = 256, .activation = "gelu_pytorch_tanh", .activation_key = "hidden_activation",         \
    .bias_keys = ATTENTION_BIAS, .window = 4096
#define BIASES .qkv_bias = 1, .out_bias = 1, .mlp_bias = 1
#define ATTENTION_BIAS                                                                                                 \
    {                                                                                                                  \
        "attention_bias", "attention_bias", NULL                                                                       \
    }
#define BOTH_BIASES                                                                                                    \
    {                                                                                                                  \
        "attention_bias", "attention_bias", "mlp_bias"                                                                 \
    }

static const qdri_type types[] = {
    {.shape = {.architecture = "cohere2",
               .gated = 1,
               .norms_per_layer = 1,
               .norm_no_beta = 1,
               .parallel_residual = 1,
               .tied = 1,
               .rotary = {.interleaved = 1}},
     .sizes = {40, 8192, 64, 256000, 8192, 22528},
     .activation = "silu",
     .epsilon_key = "layer_norm_eps",
     .bias_keys = ATTENTION_BIAS,
     .window = 4096,
     .layers = QDRI_BY_PERIOD_ROTATED,
     .period = 4,
     .period_key = "sliding_window_pattern"},
    {.shape = {.architecture = "gemma", .gated = 1, RMS, .norm_one_plus = 1, .tied = 1},
     .sizes = {28, 3072, 16, 256000, 8192, 24576},
     .kv_heads = 16,
     .head_size = 256,
     .activation = "gelu_pytorch_tanh",
     .bias_keys = ATTENTION_BIAS,
     .window = -1},
    {.shape = {.architecture = "gemma2", .gated = 1, AROUND, .norm_one_plus = 1, .tied = 1},
     .sizes = {26, 2304, 8, 256000, 8192, 9216},
     GEMMA,
     .layers = QDRI_BY_PERIOD,
     .period = 2},
    {.shape = {.architecture = "gemma3_text",
               .gated = 1,
               AROUND,
               .norm_one_plus = 1,
               .tied = 1,
               .head_norm = QDR_HEAD_NORM_EACH},
     .sizes = {26, 2304, 8, 262208, 131072, 9216},
     GEMMA,
     .layers = QDRI_BY_PERIOD_LOCAL,
     .period = 6,
     .period_key = "sliding_window_pattern",
     .theta = 1e6,
     .local_theta = 1e4,
     .local_theta_key = "rope_local_base_freq"},
    {.shape = {.architecture = "glm4", .qkv_bias = 1, .gated = 1, AROUND, .rotary = {.interleaved = 1}},
     .sizes = {40, 4096, 32, 151552, 131072, 13696},
     .kv_heads = 2,
     .head_size = 128,
     .activation = "silu",
     .bias_keys = {"attention_bias", NULL, NULL},
     .window = -1,
     .share_key = "partial_rotary_factor",
     .share = 0.5,
     .epsilon = 1.5625e-7},
    {.shape = {.architecture = "gpt2", BIASES, .norms_per_layer = 2, .tied = 1},
     .sizes = {12, 768, 12, 50257, 1024, 0},
     .kv_heads = -1,
     .activation = "gelu_new",
     .activation_key = "activation_function",
     .epsilon_key = "layer_norm_epsilon",
     .is_gpt2 = 1,
     .window = -1},
    {.shape = {.architecture = "gpt_neox", BIASES, .norms_per_layer = 2, .parallel_residual = 1},
     .sizes = {44, 6144, 64, 50432, 2048, 24576},
     .kv_heads = -1,
     .activation = "gelu",
     .epsilon_key = "layer_norm_eps",
     .bias_keys = ATTENTION_BIAS,
     .window = -1,
     .theta_key = "rotary_emb_base",
     .share_key = "rotary_pct",
     .share = 0.25},
    {.shape = {.architecture = "granite", .gated = 1, RMS},
     .sizes = {32, 4096, 32, 32000, 2048, 11008},
     .activation = "silu",
     .bias_keys = BOTH_BIASES,
     .window = -1},
    {.shape = {.architecture = "llama", .gated = 1, RMS},
     .sizes = {32, 4096, 32, 32000, 2048, 11008},
     .activation = "silu",
     .bias_keys = BOTH_BIASES,
     .window = -1},
    {.shape = {.architecture = "mistral", .gated = 1, RMS},
     .sizes = {32, 4096, 32, 32000, 131072, 14336},
     .kv_heads = 8,
     .activation = "silu",
     .window = 4096},
    {.shape = {.architecture = "olmo2", .gated = 1, RMS, .norm_place = QDR_NORM_AFTER, .head_norm = QDR_HEAD_NORM_ALL},
     .epsilon = 1e-5,
     .sizes = {32, 4096, 32, 50304, 2048, 11008},
     .activation = "silu",
     .bias_keys = ATTENTION_BIAS,
     .window = -1},
    {.shape = {.architecture = "olmo3", .gated = 1, RMS, .norm_place = QDR_NORM_AFTER, .head_norm = QDR_HEAD_NORM_ALL},
     .epsilon = 1e-5,
     .sizes = {32, 4096, 32, 50304, 2048, 11008},
     .activation = "silu",
     .bias_keys = ATTENTION_BIAS,
     .window = 4096,
     .layers = QDRI_BY_PERIOD_LOCAL,
     .period = 4,
     .theta = 5e5,
     .local_theta = 5e5},
    {.shape = {.architecture = "phi3", .gated = 1, RMS},
     .epsilon = 1e-5,
     .sizes = {32, 3072, 32, 32064, 4096, 8192},
     .activation = "silu",
     .share_key = "partial_rotary_factor"},
    {.shape = {.architecture = "qwen2", .gated = 1, RMS, .qkv_bias = 1},
     .sizes = {32, 4096, 32, 151936, 32768, 22016},
     .kv_heads = 32,
     .activation = "silu",
     .window = 4096,
     .layers = QDRI_FROM_LAYER},
    {.shape = {.architecture = "qwen3", .gated = 1, RMS, .head_norm = QDR_HEAD_NORM_EACH},
     .sizes = {32, 4096, 32, 151936, 32768, 22016},
     .kv_heads = 32,
     .head_size = 128,
     .activation = "silu",
     .bias_keys = ATTENTION_BIAS,
     .window = 4096,
     .layers = QDRI_FROM_LAYER},
    {.shape = {.architecture = "smollm3", .gated = 1, RMS, .tied = 1},
     .sizes = {36, 2048, 16, 128256, 32768, 11008},
     .kv_heads = 4,
     .activation = "silu",
     .bias_keys = BOTH_BIASES,
     .layers = QDRI_BY_ROTATION,
     .period = 4,
     .period_key = "no_rope_layer_interval",
     .theta = 2e6},
    {.shape = {.architecture = "starcoder2", BIASES, .norms_per_layer = 2, .tied = 1},
     .sizes = {30, 3072, 24, 49152, 4096, 12288},
     .kv_heads = 2,
     .activation = "gelu_pytorch_tanh",
     .epsilon_key = "norm_epsilon",
     .bias_keys = {"use_bias", "use_bias", "use_bias"}},
};

const char qdri_known_types[] = "cohere2, gemma, gemma2, gemma3_text, glm4, gpt2, gpt_neox, granite, llama, mistral, "
                                "olmo2, olmo3, phi3, qwen2, qwen3, smollm3 and starcoder2";

const qdri_type *qdri_find_type(const char *model_type)
{
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i].shape.architecture, model_type) == 0) return &types[i];
    return NULL;
}
