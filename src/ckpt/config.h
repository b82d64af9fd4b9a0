/* SPDX-License-Identifier: Apache-2.0 */
/* What the network of weights computes, which names and shapes alone do not say: by the config.json of Hugging Face's
 * transformers that lies beside theirs, or by the note of ours. */
#ifndef QUADRILLE_SRC_CKPT_CONFIG_H
#define QUADRILLE_SRC_CKPT_CONFIG_H

#include <quadrille/network.h>

#include "ckpt/convert.h"
#include "common/files.h"

typedef struct ckpt_config {
    char path[FILES_PATH_BYTES]; /* beside the input; "": there is none */
    json_t *document; /* a config.json of transformers; NULL: there is none of this network */
    int is_of_note, has_network;
    qdr_network network;
    char lack[256]; /* why there is no document */
} ckpt_config;

/* The file of tensors that `path` is, or that the folder `path` has, and the config.json beside it, if there is one. */
int ckpt_config_find(const char *path, char file[FILES_PATH_BYTES], ckpt_config *config, failure *why);
/* Reads the file. needed: 0: one of a model_type without a map is not read further, and has no network. */
int ckpt_config_read(ckpt_config *config, int needed, failure *why);
/* Reads what the note of a file says; it may say nothing. */
int ckpt_config_of_note(ckpt_config *config, const qdr_safetensors *file, failure *why);
/* Refuses tensors, which are ours, that are not exactly those of the network. */
int ckpt_config_check(const ckpt_config *config, const ckpt_plan *plan, failure *why);
/* The note that says the same, to be freed; NULL: out of memory. */
char *ckpt_config_note(const ckpt_config *config);
/* Finds where the config.json of the output belongs; type: of its tensors, F32 or f32. "": there is one already, of the
 * same network and type; another one is refused. */
int ckpt_config_place(ckpt_config *config, const char *output, const char *type, char path[FILES_PATH_BYTES],
                      failure *why);
int ckpt_config_write(const ckpt_config *config, const char *path, failure *why);
void ckpt_config_free(ckpt_config *config);

#endif
