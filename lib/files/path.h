/* SPDX-License-Identifier: Apache-2.0 */
/* The result of resolving a path: a name in a folder, after following symbolic links. */
#ifndef QDRI_FILES_PATH_H
#define QDRI_FILES_PATH_H

enum { QDRI_PATH_BYTES = 4096, QDRI_NAME_BYTES = 256 };

typedef struct qdri_path {
    char folder[QDRI_PATH_BYTES]; /* "." for a path without a slash */
    char name[QDRI_NAME_BYTES]; /* not a symbolic link; "" if the path ends with a slash */
} qdri_path;

/* Follows the links of the last component, including those to files that do not exist yet. Returns 0, or an errno
 * value. */
int qdri_path_resolve(const char *path, qdri_path *resolved);

#endif
