/* SPDX-License-Identifier: Apache-2.0 */
/* Data files that come with the program, KIND/NAME.json in a data folder ("models"). Data folders, the first that has
 * the file wins: those of QDR_DATA_PATH (parted by colons), the one that was installed, the one of the sources that
 * this was built from. */
#ifndef QDRI_PERFMODEL_DATA_H
#define QDRI_PERFMODEL_DATA_H

#include "core/status.h"

enum { QDRI_DATA_NAME_BYTES = 64, QDRI_DATA_PATH_BYTES = 4096 };

/* Names of one kind, sorted, each once. */
typedef struct qdri_data_names {
    char (*names)[QDRI_DATA_NAME_BYTES];
    int n, capacity;
} qdri_data_names;

QDR_NODISCARD qdr_status qdri_data_list(const char *kind, qdri_data_names *names);
void qdri_data_names_free(qdri_data_names *names);

/* The file that a person means: what has a slash, ends in .json or is "-" is a path and left as it is, everything else
 * the name of a data file. `room` begins the sentences, `noun` says what is looked for ("model").
 * @retval QDR_ERR_ARGUMENT  no such name: the sentence has the nearest ones; or it is too long */
QDR_NODISCARD qdr_status qdri_data_resolve(const char *room, const char *noun, const char *kind,
                                           const char *name_or_path, char path[QDRI_DATA_PATH_BYTES]);

#endif
