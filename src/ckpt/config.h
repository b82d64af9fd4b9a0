/* SPDX-License-Identifier: Apache-2.0 */
/* The config.json that lies beside weights of Hugging Face's transformers: what their network computes, which names and
 * shapes alone do not say. What it says becomes the note of the file that is written. */
#ifndef QUADRILLE_SRC_CKPT_CONFIG_H
#define QUADRILLE_SRC_CKPT_CONFIG_H

#include "ckpt/convert.h"
#include "common/files.h"
#include "common/gpt_tensors.h"

/* A kind of network that can be converted. */
typedef struct ckpt_family {
    const char *model_type, *map, *architecture;
    int tied; /* whether an absent tie_word_embeddings means true */
} ckpt_family;

/* What a GPT-2 computes: tensors do not say heads and epsilon. */
typedef struct ckpt_gpt2 {
    gpt_sizes sizes;
    int64_t heads;
    double epsilon;
} ckpt_gpt2;

typedef struct ckpt_config {
    char path[FILES_PATH_BYTES]; /* "": there is none */
    json_t *document; /* has all strings; NULL: it was not read */
    const char *model_type; /* "": it does not say it */
    const ckpt_family *family; /* NULL: a network that is not known here */
    int tied;
    ckpt_gpt2 gpt2; /* of that family */
    char unsaid[240], unapplied[160]; /* keys and values that are to be told */
} ckpt_config;

/* The file of tensors that `path` is, or that the folder `path` has, and the config.json beside it, if there is one. */
int ckpt_config_find(const char *path, char file[FILES_PATH_BYTES], ckpt_config *config, failure *why);
/* Reads the text, up to its family. */
int ckpt_config_load(ckpt_config *config, failure *why);
/* Reads the rest, and refuses what this library does not compute, by key and value. from: NULL, gpt2 or llama. */
int ckpt_config_read(ckpt_config *config, const char *from, failure *why);
/* Refuses one that is not that of these tensors, which are ours. */
int ckpt_config_check(const ckpt_config *config, const ckpt_plan *plan, failure *why);
/* The note that says the same, to be freed; NULL: out of memory. */
char *ckpt_config_note(const ckpt_config *config);
/* The flag of jansson that prints a number with no more digits than it needs. */
size_t ckpt_real_digits(double value);
void ckpt_config_free(ckpt_config *config);

/* ---- that of a GPT-2: gpt2.c ---- */

int ckpt_gpt2_read(ckpt_config *config, failure *why);
int ckpt_gpt2_check(const ckpt_config *config, const ckpt_plan *plan, failure *why);
/* What a file of our tensors is, by them and by its note. 0: the note does not say heads, or cannot be read. */
int ckpt_gpt2_of(const ckpt_plan *plan, const char *note, ckpt_gpt2 *gpt2, failure *why);
/* The config.json of a network, to be freed; NULL: out of memory. type: of tensors, F32 or f32. */
json_t *ckpt_gpt2_document(const ckpt_gpt2 *gpt2, const char *type);
/* The first key in which another config.json differs; NULL: it is the same network, in the same type. */
const char *ckpt_gpt2_difference(const ckpt_gpt2 *gpt2, const char *type, const ckpt_config *other);

#endif
