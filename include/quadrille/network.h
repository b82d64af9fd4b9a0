/* SPDX-License-Identifier: Apache-2.0 */
/** @file network.h  The shape of a transformer, read from the config.json of a model or from the data that comes with
 * the program, and the exact numbers of parameters and flops that follow from it.
 *
 * Part of libquadrille_perf: no ranks. All functions are local and blocking; they are thread-safe as long as nobody
 * changes the environment.
 *
 * A network is an embedding E[V, H] (and P[positions, H], where positions are learned), `layers` equal layers, a final
 * norm, and a head W[V, H] without bias, which is E if `tied`. A layer is norm, attention, norm, MLP:
 *
 *    attention  q[heads·head_size, H], k and v [kv_heads·head_size, H], out[H, heads·head_size]
 *    MLP        up[F, H], down[H, F], and gate[F, H] where `gated`; F = ffn
 */
#ifndef QUADRILLE_NETWORK_H
#define QUADRILLE_NETWORK_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum qdr_norm_kind {
    QDR_NORM_LAYER = 0, /**< gamma and beta: 2·H parameters */
    QDR_NORM_RMS = 1 /**< gamma: H parameters */
} qdr_norm_kind;

/** A plain struct, to be copied, changed or filled by hand. Sizes count elements. */
typedef struct qdr_network {
    size_t size; /**< QDR_INIT(qdr_network) */
    char name[64]; /**< of the data file, or of another file; of a config.json, the name of its folder */
    char architecture[16]; /**< its model_type: "gpt2", "gpt_neox", "llama", "mistral", "qwen2" */
    char activation[32]; /**< as the file calls it: "gelu_new", "silu" */
    int64_t layers, hidden; /**< hidden: H */
    int64_t heads, kv_heads, head_size; /**< heads·head_size need not be H; kv_heads <= heads */
    int64_t ffn, vocab; /**< F, V */
    int64_t context; /**< most tokens of a sequence */
    int64_t positions; /**< learned positions; 0: rotary, no parameters */
    int64_t window; /**< positions that each position attends to, itself included, in window_layers; 0: all */
    int64_t window_layers; /**< number of layers with a window; the others attend to all positions */
    int gated; /**< 1: down(act(gate(x)) * up(x)), 0: down(act(up(x))) */
    int qkv_bias, out_bias, mlp_bias; /**< 1: these products have biases */
    qdr_norm_kind norm;
    int norms_per_layer;
    int tied; /**< 1: the head is the embedding */
    int parallel_residual; /**< 1: x + attention(norm(x)) + mlp(norm(x)) */
} qdr_network;

/** Loads a network by path or by name.
 *
 * An argument that contains a slash, ends in ".json" or is "-" (standard input) is the path of a config.json of a
 * model (Hugging Face), of model_type gpt2, gpt_neox, llama, mistral or qwen2; keys that are absent take the default of
 * that class in transformers, unknown keys are ignored. Everything else is the name of a model: models/NAME.json in a
 * folder of QDR_DATA_PATH (separated by colons), in the installed data folder, or in the sources from which this was
 * built.
 *
 * head_dim may be given for any model_type; without it head_size is hidden / heads, rounded down. No size needs to
 * divide another. Keys that would make it another network than this one describes are refused by name and value.
 *  @param[out] network  all zero after an error
 *  @retval QDR_ERR_ARGUMENT     NULL; an unknown name (the sentence lists the nearest ones); invalid JSON, or a value
 *                               of the wrong type or out of range (file and key)
 *  @retval QDR_ERR_IO           the file cannot be read
 *  @retval QDR_ERR_MEMORY       out of memory
 *  @retval QDR_ERR_UNSUPPORTED  another model_type; a mixture of experts; cross-attention; a head other than one over
 *                               the vocabulary, or none (`architectures`); pruned heads; code of the model's own */
QDR_API QDR_NODISCARD qdr_status qdr_network_load(const char *name_or_path, qdr_network *network);
/** The same for a text of `bytes` bytes. `name` is what error sentences call it, and becomes the network's name. */
QDR_API QDR_NODISCARD qdr_status qdr_network_parse(const char *text, size_t bytes, const char *name,
                                                   qdr_network *network);
/** Where two networks are not the same. */
typedef struct qdr_network_difference {
    size_t size; /**< QDR_INIT(qdr_network_difference) */
    const char *key; /**< the member, "layers"; valid forever */
    char first[40], second[40]; /**< its values */
} qdr_network_difference;
/** Compares all members but the name, in the order of qdr_network. The names of GELU by tanh (gelu_new, gelu_fast,
 * gelu_pytorch_tanh, gelu_python_tanh, gelu_accurate) are one. Pure.
 *  @param[out] difference  the first; unchanged if there is none; may be NULL
 *  @return 1 if the networks differ, else 0 */
QDR_API int qdr_network_differ(const qdr_network *a, const qdr_network *b, qdr_network_difference *difference);
/** Receives one name, valid during the call. */
typedef void (*qdr_network_name_fn)(const char *name, void *user);
/** Calls `each` with the names that qdr_network_load() knows, in the order of strcmp().
 *  @retval QDR_ERR_ARGUMENT  each is NULL
 *  @retval QDR_ERR_MEMORY    out of memory; nothing was called */
QDR_API QDR_NODISCARD qdr_status qdr_network_list(qdr_network_name_fn each, void *user);

/** Numbers of parameters, biases included. */
typedef struct qdr_network_counts {
    size_t size; /**< QDR_INIT(qdr_network_counts) */
    int64_t embedding; /**< V·H */
    int64_t positions; /**< positions·H */
    int64_t attention, mlp, norms; /**< of one layer */
    int64_t layer; /**< attention + mlp + norms */
    int64_t final_norm;
    int64_t head; /**< V·H, 0 where tied */
    int64_t total; /**< embedding + positions + layers·layer + final_norm + head */
} qdr_network_counts;

/** Exact numbers of parameters, equal to the sums over the tensors of a checkpoint.
 *  @param[out] counts  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  NULL or no size
 *  @retval QDR_ERR_SHAPE     a size out of its range, or too many parameters for 63 bits */
QDR_API QDR_NODISCARD qdr_status qdr_network_params(const qdr_network *network, qdr_network_counts *counts);

/** Flops of the matrix products of one token's forward pass, where a multiply-add counts as 2; backward takes twice
 * that. Not counted: norms, softmax, activations, embeddings.
 *
 *    linear            2·layers·(weights of attention and MLP, without biases)
 *    head              2·V·H
 *    attention         4·heads·head_size · Σ over layers of s, or of min(s, window) in
 *                      window_layers: scores and values of all positions, as papers count them
 *    attention_causal  the same with the mean number of positions that a token sees: (s + 1)/2, or
 *                      w - w·(w - 1)/(2·s) with w = min(s, window)
 *
 * Without windows and with heads·head_size = kv_heads·head_size = H, F = 4·H, three times linear + head + attention
 * are the 72·l·H²·(1 + s/(6·H) + V/(12·l·H)) per token of Narayanan et al. 2021 (arXiv 2104.04473), without
 * recomputation. */
typedef struct qdr_network_flops {
    size_t size; /**< QDR_INIT(qdr_network_flops) */
    double linear, head, attention, attention_causal;
} qdr_network_flops;

/** Flops per token in sequences of s = `sequence` tokens.
 *  @param[out] flops  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  NULL, no size, or sequence < 1
 *  @retval QDR_ERR_SHAPE     as qdr_network_params() */
QDR_API QDR_NODISCARD qdr_status qdr_network_flops_per_token(const qdr_network *network, int64_t sequence,
                                                             qdr_network_flops *flops);

#ifdef __cplusplus
}
#endif
#endif
