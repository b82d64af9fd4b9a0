/* SPDX-License-Identifier: Apache-2.0 */
/* Whether a file of tensors is that of a GPT of common/gpt.c: its header says so, before any network is built. */
#ifndef EXAMPLES_SAVED_GPT_H
#define EXAMPLES_SAVED_GPT_H

#include <quadrille/safetensors.h>

#include "program.h"
#include "src/common/gpt_tensors.h"

typedef struct saved_gpt {
    gpt_sizes sizes;
    char others[192]; /* tensors that are not loaded, for a sentence; the optimizer's are not among them */
} saved_gpt;

/* Local. The sentence names the first tensor that is missing or has another shape, or says whose file it is. */
qdr_status saved_gpt_read(const qdr_safetensors *file, const char *path, saved_gpt *saved,
                          char sentence[PROBLEM_BYTES]);

#endif
