/* SPDX-License-Identifier: Apache-2.0 */
#include "common/gpt_tensors.h"

#include <stdio.h>

/* An extent is a number of times a size. */
typedef enum size_name { NONE, HIDDEN, FFN, CONTEXT, VOCAB } size_name;
typedef struct row {
    const char *name;
    int times; /* of the first extent */
    size_name first, second;
} row;

static const row tables[] = {{"embedding.weight", 1, VOCAB, HIDDEN}, {"embedding.positions", 1, CONTEXT, HIDDEN}};
static const row block[] = {
    {"norm1.gamma", 1, HIDDEN, NONE}, {"norm1.beta", 1, HIDDEN, NONE},    {"qkv.weight", 3, HIDDEN, HIDDEN},
    {"qkv.bias", 3, HIDDEN, NONE},    {"proj.weight", 1, HIDDEN, HIDDEN}, {"proj.bias", 1, HIDDEN, NONE},
    {"norm2.gamma", 1, HIDDEN, NONE}, {"norm2.beta", 1, HIDDEN, NONE},    {"fc.weight", 1, FFN, HIDDEN},
    {"fc.bias", 1, FFN, NONE},        {"fc2.weight", 1, HIDDEN, FFN},     {"fc2.bias", 1, HIDDEN, NONE},
};
static const row end[] = {
    {"norm.gamma", 1, HIDDEN, NONE}, {"norm.beta", 1, HIDDEN, NONE}, {"head.weight", 1, VOCAB, HIDDEN}};

enum {
    N_TABLES = sizeof tables / sizeof *tables,
    N_BLOCK = sizeof block / sizeof *block,
    N_END = sizeof end / sizeof *end
};

int64_t gpt_tensors_count(const gpt_sizes *sizes) { return N_TABLES + sizes->layers * N_BLOCK + N_END - sizes->tied; }

gpt_tensor gpt_tensors_at(const gpt_sizes *sizes, int64_t index)
{
    const int64_t extents[] = {
        [HIDDEN] = sizes->hidden, [FFN] = sizes->ffn, [CONTEXT] = sizes->context, [VOCAB] = sizes->vocab};
    const int64_t in_blocks = index - N_TABLES, after = in_blocks - sizes->layers * N_BLOCK;
    const int is_of_block = in_blocks >= 0 && after < 0;
    const row *is = in_blocks < 0 ? &tables[index] : is_of_block ? &block[in_blocks % N_BLOCK] : &end[after];
    gpt_tensor tensor = {.n_dims = is->second == NONE ? 1 : 2,
                         .shape = {is->times * extents[is->first], is->second == NONE ? 0 : extents[is->second]}};
    if (is_of_block)
        snprintf(tensor.name, sizeof tensor.name, "block%lld.%s", (long long)(in_blocks / N_BLOCK), is->name);
    else
        snprintf(tensor.name, sizeof tensor.name, "%s", is->name);
    return tensor;
}
