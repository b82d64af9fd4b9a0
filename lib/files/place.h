/* SPDX-License-Identifier: Apache-2.0 */
/* Where a path leads: through symbolic links to a name in a folder. */
#ifndef QDRI_FILES_PLACE_H
#define QDRI_FILES_PLACE_H

enum { QDRI_PATH_BYTES = 4096, QDRI_NAME_BYTES = 256 };

typedef struct qdri_place {
    char folder[QDRI_PATH_BYTES]; /* "." for a path without a slash */
    char name[QDRI_NAME_BYTES]; /* not a symbolic link; "" where the path ends with a slash */
} qdri_place;

/* Follows the links of the last part, also those that lead nowhere yet. 0: done; else what errno would be. */
int qdri_place_find(const char *path, qdri_place *place);

#endif
