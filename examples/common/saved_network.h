/* SPDX-License-Identifier: Apache-2.0 */
/* Whose network a file of tensors has: its header says so, before any network is built. */
#ifndef EXAMPLES_SAVED_NETWORK_H
#define EXAMPLES_SAVED_NETWORK_H

#include <quadrille/safetensors.h>

#include "program.h"

typedef struct saved_network {
    qdr_network network; /* with as many learned positions as the file has */
    int is_whole; /* 0: what the tensors of a GPT-2 say without a "config" in the note; heads and epsilon are 0 */
    char others[192]; /* tensors that are not loaded, for a sentence; the optimizer's are not among them */
} saved_network;

/* The network is that of the note's "config", else `model`, unless that is NULL, else the GPT-2 of the tensors. Local.
 * The sentence, if the failure is not the library's, names the first tensor that is missing or has another shape, or
 * says whose file it is. */
qdr_status saved_network_read(const qdr_safetensors *file, const char *path, const qdr_network *model,
                              saved_network *saved, char sentence[PROBLEM_BYTES]);

#endif
