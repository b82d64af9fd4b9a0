/* SPDX-License-Identifier: Apache-2.0 */
/* What a checkpoint of a stack holds, in the order of the file, and which of it this rank writes, and reads. */
#ifndef QDRI_CHECKPOINT_CONTENTS_H
#define QDRI_CHECKPOINT_CONTENTS_H

#include "linear/internal.h"
#include "optim/optim.h"
#include "quadrille/safetensors.h"

#define QDRI_CHECKPOINT_VERSION "1" /* of the layout: the metadata's `quadrille` */
#define QDRI_CHECKPOINT_LAYOUT "quadrille"
#define QDRI_CHECKPOINT_OPTIMIZER "optimizer"
#define QDRI_CHECKPOINT_NOTE "note"

/* What this rank has of one tensor. */
typedef struct qdri_saved {
    int parameter;
    int64_t begin, n; /* elements of the shard that it writes and reads */
    void *values; /* device memory, of element `begin`: the parameter or the moment */
    qdr_dtype dtype; /* of values */
    void *master; /* of a parameter in BF16 or F16 with an optimizer: its F32, likewise; else NULL */
} qdri_saved;

typedef struct qdri_contents {
    const qdr_stack *stack;
    qdr_dtype dtype; /* of all elements in the file */
    int n;
    qdr_tensor *tensors; /* placed */
    qdri_saved *saved; /* by tensor */
    int64_t own_bytes; /* of the file's elements, those of this rank */
    char *names;
} qdri_contents;

/* optimizer NULL: parameters only. Memory need not be bound, if the optimizer is NULL.
 * @retval QDR_ERR_ARGUMENT  two parameters have the same name */
QDR_NODISCARD qdr_status qdri_contents_make(const qdr_stack *stack, const qdr_adamw *optimizer,
                                            qdri_contents *contents);
void qdri_contents_free(qdri_contents *contents);
const qdri_parameter *qdri_contents_parameter(const qdri_contents *contents, int tensor);

enum { QDRI_OPTIMIZER_TEXT_BYTES = 512 };
/* The metadata's description of an optimizer, in JSON; and the steps that it says. */
QDR_NODISCARD qdr_status qdri_optimizer_print(const qdr_adamw *optimizer, char text[QDRI_OPTIMIZER_TEXT_BYTES]);
QDR_NODISCARD qdr_status qdri_optimizer_read(const char *text, const char *path, int64_t *n_begun, int64_t *n_steps);

#endif
