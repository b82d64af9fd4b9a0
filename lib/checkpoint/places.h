/* SPDX-License-Identifier: Apache-2.0 */
/* Where the tensors that a stack needs are in a file, or in several: rank 0 looks, and all ranks hear of it. */
#ifndef QDRI_CHECKPOINT_PLACES_H
#define QDRI_CHECKPOINT_PLACES_H

#include "checkpoint/contents.h"
#include "checkpoint/internal.h"
#include "quadrille/checkpoint.h"

typedef struct qdri_place {
    int64_t at; /* byte of the file */
    int file;
    int dtype;
    int has_crc;
    uint32_t crc;
} qdri_place;

typedef struct qdri_places {
    qdri_place *places; /* by tensor of the contents */
    qdri_tensor_file *files; /* open on this rank */
    int n_files;
    int64_t n_begun, n_steps; /* of the file's optimizer */
    int n_ignored, has_optimizer;
    char *note; /* NULL: none */
} qdri_places;

/* Collective over the context of the stack, agrees. Errors are those of qdr_checkpoint_load() before anything is
 * changed. first_rows: as in qdr_checkpoint_load_opts. */
QDR_NODISCARD qdr_status qdri_places_find(const qdri_contents *contents, int needs_optimizer, const char *first_rows,
                                          const char *path, qdri_places *places);
void qdri_places_free(qdri_places *places);

#endif
