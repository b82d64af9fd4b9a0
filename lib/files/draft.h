/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files: created under unpredictable names, locked while their process lives, and removed by other processes
 * after that. */
#ifndef QDRI_FILES_DRAFT_H
#define QDRI_FILES_DRAFT_H

#include "files/place.h"

/* Creates an empty, locked file in the folder, for a file that will be called `name`. Returns its descriptor; -1: errno
 * says why. */
int qdri_draft_make(int folder, const char *name, char draft[QDRI_NAME_BYTES]);
/* Removes this user's drafts for `name` whose processes have ended. */
void qdri_draft_clean(int folder, const char *name);

#endif
