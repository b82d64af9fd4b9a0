/* SPDX-License-Identifier: Apache-2.0 */
/* Data files that come with the program, KIND/NAME.json in a data folder ("models"). The first data folder that has the
 * file is used: those of QDR_DATA_PATH (separated by colons), the installed one, the one in the sources from which this
 * was built. */
#ifndef QDRI_FILES_DATA_H
#define QDRI_FILES_DATA_H

#include "core/status.h"

enum { QDRI_DATA_NAME_BYTES = 64, QDRI_DATA_PATH_BYTES = 4096 };

/* Names of one kind, sorted, without duplicates. */
typedef struct qdri_data_names {
    char (*names)[QDRI_DATA_NAME_BYTES];
    int n, capacity;
} qdri_data_names;

QDR_NODISCARD qdr_status qdri_data_list(const char *kind, qdri_data_names *names);
void qdri_data_names_free(qdri_data_names *names);

/* Moves the names that `name` may mean, for a reason other than its letters, to the front of the list; returns their
 * number. */
typedef int (*qdri_data_prefer_fn)(const char *name, const char **list, int n);

/* The file that a user means: the machine "here" is that of this host, if there is one, else "laptop"; a name that
 * contains a slash, ends in .json or is "-" is a path and not changed, everything else is the name of a data file. The
 * messages begin with `room`, `noun` says what is searched for ("model"). prefer: for suggestions; NULL: none but
 * names like this one.
 * @retval QDR_ERR_ARGUMENT  no such name: the message has the closest ones; or it is too long */
QDR_NODISCARD qdr_status qdri_data_resolve(const char *room, const char *noun, const char *kind,
                                           const char *name_or_path, qdri_data_prefer_fn prefer,
                                           char path[QDRI_DATA_PATH_BYTES]);

#endif
