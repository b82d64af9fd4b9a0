/* SPDX-License-Identifier: Apache-2.0 */
/** @file network.h  The shape of a transformer, read from the config.json of a model or from the data that comes with
 * the program, and the exact numbers of parameters and flops that follow from it.
 *
 * Part of libquadrille_perf: no ranks. All functions are local and blocking; they are thread-safe as long as nobody
 * changes the environment.
 *
 * A network is an embedding E[V, H] (and P[positions, H], where positions are learned), `layers` layers, a final norm,
 * and a head W[V, H] without bias, which is E if `tied`. A layer is attention and an MLP, with norms before or after
 * them; layers differ in windows and rotary positions only (qdr_network_layer()):
 *
 *    attention  q[heads·head_size, H], k and v [kv_heads·head_size, H], out[H, heads·head_size]
 *    MLP        up[F, H], down[H, F], and gate[F, H] where `gated`; F = ffn
 *
 * The mathematics are those of Hugging Face's transformers for the model_type `architecture`.
 */
#ifndef QUADRILLE_NETWORK_H
#define QUADRILLE_NETWORK_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Where the norms of a layer are. */
typedef enum qdr_norm_place {
    QDR_NORM_BEFORE = 0, /**< of what attention and MLP read; a single one (norms_per_layer 1) is read by both */
    QDR_NORM_AFTER = 1, /**< of what they add to the stream (OLMo 2) */
    QDR_NORM_AROUND = 2 /**< both: four in a layer (Gemma 2) */
} qdr_norm_place;

/** RMS norms of queries and keys, before they are rotated. */
typedef enum qdr_head_norm {
    QDR_HEAD_NORM_NONE = 0,
    QDR_HEAD_NORM_EACH = 1, /**< of each head: gammas of head_size for q and for k (Qwen 3) */
    QDR_HEAD_NORM_ALL = 2 /**< of all heads together: gammas of the widths of q and of k (OLMo 2) */
} qdr_head_norm;

/** How frequencies of rotary positions follow from their base, by the names of transformers. */
typedef enum qdr_rotary_kind {
    QDR_ROTARY_DEFAULT = 0, /**< theta^(-2i/d) */
    QDR_ROTARY_LINEAR = 1, /**< divided by factor */
    QDR_ROTARY_DYNAMIC = 2, /**< of a larger base for sequences longer than `original` */
    QDR_ROTARY_LLAMA3 = 3, /**< low ones divided by factor: those with fewer than `low` turns in `original` positions;
                              those with more than `high` stay */
    QDR_ROTARY_YARN = 4, /**< the same by the index of the pair, between the indices of `high` and `low` turns */
    QDR_ROTARY_LONGROPE = 5 /**< divided by short_factors in sequences of `original` positions, else by long_factors */
} qdr_rotary_kind;

#define QDR_ROTARY_MOST_FACTORS 128
/** One set of rotary positions. All zero: the default kind of base 10000 over all columns of a head. */
typedef struct qdr_rotary {
    qdr_rotary_kind kind;
    int interleaved; /**< 1: pairs are columns 2i and 2i + 1; 0: i and i + d/2 */
    int exact_bounds; /**< yarn: 1: the indices are not rounded to whole ones */
    int64_t columns; /**< d: of each head, from its first; if odd, one more is turned; 0: head_size */
    int64_t original; /**< positions of the sequences that the network was first trained with */
    double theta; /**< base; 0: 10000 */
    double factor; /**< at least 1 */
    double magnitude; /**< of cosines and sines; 0: 1 */
    double low, high;
    double short_factors[QDR_ROTARY_MOST_FACTORS], long_factors[QDR_ROTARY_MOST_FACTORS]; /**< of pairs */
    double room[8]; /**< zeros, for later members */
} qdr_rotary;

#define QDR_NETWORK_MOST_LAYERS 1024
/** Bits of qdr_network.layer_kinds. */
enum {
    QDR_LAYER_WINDOW = 1, /**< attends to the window */
    QDR_LAYER_UNROTATED = 2, /**< has no rotary positions */
    QDR_LAYER_LOCAL = 4 /**< has those of local_rotary */
};

/** A plain struct, to be copied, changed or filled by hand. Sizes count elements. Zeros after `parallel_residual` mean
 * a network without what they describe. */
typedef struct qdr_network {
    size_t size; /**< QDR_INIT(qdr_network) */
    char name[64]; /**< of the data file, or of another file; of a config.json, the name of its folder */
    char architecture[16]; /**< its model_type: "gpt2", "llama", "gemma3_text" */
    char activation[32]; /**< as the file calls it: "gelu_new", "silu"; of Gemma "gelu_pytorch_tanh" for "gelu" */
    int64_t layers, hidden; /**< hidden: H */
    int64_t heads, kv_heads, head_size; /**< heads·head_size need not be H; kv_heads <= heads */
    int64_t ffn, vocab; /**< F, V */
    int64_t context; /**< most tokens of a sequence */
    int64_t positions; /**< learned positions; 0: rotary, no parameters */
    int64_t window; /**< positions that each position attends to, itself included, in window_layers; 0: all */
    int64_t window_layers; /**< number of layers with a window; the others attend to all positions */
    int gated; /**< 1: down(act(gate(x)) * up(x)), 0: down(act(up(x))) */
    int qkv_bias, out_bias, mlp_bias; /**< 1: these products have biases */
    qdr_norm_kind norm; /**< with H parameters, or 2·H if there are betas */
    int norms_per_layer; /**< of the stream, without those of heads; 0: as many as norm_place says */
    int tied; /**< 1: the head is the embedding */
    int parallel_residual; /**< 1: x + attention(norm(x)) + mlp(norm(x)) */
    qdr_norm_place norm_place;
    qdr_head_norm head_norm;
    int norm_one_plus; /**< 1: norms multiply by 1 + gamma, also those of heads */
    int norm_no_beta; /**< 1: layer norms without beta */
    int round_embedding_factor; /**< 1: to the type of the weights (Gemma) */
    double norm_epsilon; /**< 0: 1e-5 */
    double attention_scale; /**< of scores; 0: 1/sqrt(head_size) */
    double attention_cap, logits_cap; /**< scores, or logits, l become c·tanh(l/c); 0: none */
    double embedding_factor; /**< of what the embedding gives; 0: 1 */
    double branch_factor; /**< of what attention and MLP add to the stream; 0: 1 */
    double logits_factor; /**< 0: 1 */
    qdr_rotary rotary, local_rotary;
    unsigned char layer_kinds[QDR_NETWORK_MOST_LAYERS]; /**< bits for each layer; if all are zero, the last
                                                           window_layers have windows, and all have rotary positions */
} qdr_network;

/** What one layer has that others may not have. */
typedef struct qdr_network_layer {
    size_t size; /**< QDR_INIT(qdr_network_layer) */
    int64_t window; /**< 0: attends to all positions */
    int64_t rotary_columns; /**< of each head; 0: no rotary positions */
    int interleaved;
} qdr_network_layer;
/** The layer of a number from 0 on. Pure.
 *  @param[out] described  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  NULL or no size; no such layer */
QDR_API QDR_NODISCARD qdr_status qdr_network_describe_layer(const qdr_network *network, int64_t layer,
                                                            qdr_network_layer *described);
/** Angles of rotary positions in sequences of `sequence` tokens: position p turns pair i by p·frequencies[i], and
 * cosines and sines are multiplied by *magnitude. Sources: transformers' modeling_rope_utils; YaRN, Peng et al. 2023
 * (arXiv 2309.00071); LongRoPE, Ding et al. 2024 (arXiv 2402.13753). Pure.
 *  @param[out] frequencies  rotary_columns / 2 numbers, of the caller; unchanged after an error
 *  @retval QDR_ERR_ARGUMENT  NULL; no such layer, or one without rotary positions; sequence < 1 */
QDR_API QDR_NODISCARD qdr_status qdr_network_rotary(const qdr_network *network, int64_t layer, int64_t sequence,
                                                    double *frequencies, double *magnitude);

/** Loads a network by path or by name.
 *
 * An argument that contains a slash, ends in ".json" or is "-" (standard input) is the path of a config.json of a
 * model (Hugging Face, as transformers 4 or 5 writes it), of model_type cohere2, gemma, gemma2, gemma3_text, glm4,
 * gpt2, gpt_neox, granite, llama, mistral, olmo2, olmo3, phi3, qwen2, qwen3, smollm3 or starcoder2, or one that has
 * such a file as its "text_config"; keys that are absent take the default of that class in transformers, unknown keys
 * are ignored. Rates of dropout, and code of the model's own (auto_map), are named in the log, and not applied.
 * Everything else is the name of a model: models/NAME.json in a folder of QDR_DATA_PATH (separated by colons), in the
 * installed data folder, or in the sources from which this was built.
 *
 * Without head_dim head_size is hidden / heads, rounded down, except for the classes that refuse heads that do not
 * divide. pad_token_id is not read: of a token that is only padding, -1 makes no embedding, and a target of -1 is not
 * counted, while transformers embeds it and keeps its gradient from the table. Keys that would make it another network
 * than this one describes are refused by name and value.
 *  @param[out] network  all zero after an error
 *  @retval QDR_ERR_ARGUMENT     NULL; an unknown name (the sentence lists the nearest ones); invalid JSON, or a value
 *                               of the wrong type or out of range (file and key)
 *  @retval QDR_ERR_IO           the file cannot be read
 *  @retval QDR_ERR_MEMORY       out of memory
 *  @retval QDR_ERR_UNSUPPORTED  another model_type; a mixture of experts; cross-attention; a head other than one over
 *                               the vocabulary, or none (`architectures`); pruned heads; attention, rotary positions or
 *                               an activation of another kind; quantized weights */
QDR_API QDR_NODISCARD qdr_status qdr_network_load(const char *name_or_path, qdr_network *network);
/** The same for a text of `bytes` bytes. `name` is what error sentences call it, and becomes the network's name. */
QDR_API QDR_NODISCARD qdr_status qdr_network_parse(const char *text, size_t bytes, const char *name,
                                                   qdr_network *network);
/** All members as a JSON object in one line, which qdr_network_load() and qdr_network_parse() read, too. Returns the
 * length of the text, without its terminating null, or 0 if there is no memory for it; writes at most `capacity` bytes,
 * always null-terminated. */
QDR_API size_t qdr_network_text(const qdr_network *network, char *text, size_t capacity);
/** Where two networks are not the same. */
typedef struct qdr_network_difference {
    size_t size; /**< QDR_INIT(qdr_network_difference) */
    const char *key; /**< the member, "layers"; valid forever */
    char first[40], second[40]; /**< its values */
} qdr_network_difference;
/** Compares all members but the name, in the order of qdr_network. The names that transformers has for one activation
 * (gelu_new, gelu_fast, gelu_pytorch_tanh; silu, swish) are one, and zeros are what they stand for. Pure.
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
    int64_t attention, mlp, norms; /**< of one layer; norms: also those of heads */
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

/** A parameter as qdr_stack_add_network() has it, for networks with their ends. */
typedef struct qdr_network_parameter {
    size_t size; /**< of the library's struct */
    const char *name; /**< "block0.qkv.weight"; valid during the call */
    int is_vector; /**< 1: [n_cols]; n_rows is 1 */
    int64_t n_rows, n_cols;
} qdr_network_parameter;
typedef void (*qdr_network_parameter_fn)(const qdr_network_parameter *parameter, void *user);
/** Calls `each` with all parameters, in the order of the stack. embedding.positions has `positions` rows.
 *  @retval QDR_ERR_ARGUMENT     NULL or no size
 *  @retval QDR_ERR_SHAPE        as qdr_network_params()
 *  @retval QDR_ERR_UNSUPPORTED  an activation that the library lacks
 *  @retval QDR_ERR_MEMORY       out of memory; `each` may have been called for some */
QDR_API QDR_NODISCARD qdr_status qdr_network_parameters(const qdr_network *network, qdr_network_parameter_fn each,
                                                        void *user);

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
