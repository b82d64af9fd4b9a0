/* SPDX-License-Identifier: Apache-2.0 */
/* The tensors of a GPT as examples/common/gpt.c names them, and what a checkpoint's note says of its network: train_gpt
 * writes and reads both, `quadrille ckpt convert` makes them of a GPT-2. */
#ifndef QUADRILLE_SRC_COMMON_GPT_TENSORS_H
#define QUADRILLE_SRC_COMMON_GPT_TENSORS_H

#include <stdint.h>

/* Keys of a note, a JSON object. Sizes must be those of the tensors; heads and epsilon are said nowhere else. */
#define NOTE_NETWORK "network" /* "gpt2", or another model_type of transformers, whose "config" is in the note, too */
#define NOTE_CONFIG "config"
#define NOTE_LAYERS "layers"
#define NOTE_HIDDEN "hidden"
#define NOTE_FFN "ffn"
#define NOTE_HEADS "heads"
#define NOTE_EPSILON "epsilon"
#define GPT_NETWORK "gpt2"
#define GPT_EPSILON 1e-5 /* of a note by a train_gpt that did not say it yet */

enum { GPT_MOST = 1 << 30 /* of each size, so that shapes can be computed */ };

typedef struct gpt_sizes {
    int64_t layers, hidden, ffn, context, vocab;
    int tied; /* 1: there is no head.weight */
} gpt_sizes;

typedef struct gpt_tensor {
    char name[48];
    int n_dims;
    int64_t shape[2];
} gpt_tensor;

int64_t gpt_tensors_count(const gpt_sizes *sizes);
/* Tensor `index`, in the order of the file: the tables, block by block, norm, head. */
gpt_tensor gpt_tensors_at(const gpt_sizes *sizes, int64_t index);

#endif
