/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files: made under names that nobody can foresee, locked while their process lives, removed by others after
 * that. */
#ifndef QDRI_FILES_DRAFT_H
#define QDRI_FILES_DRAFT_H

#include "files/place.h"

/* Makes an empty, locked file in the folder for what will be called `name`. Returns its number; -1: errno says why. */
int qdri_draft_make(int folder, const char *name, char draft[QDRI_NAME_BYTES]);
/* Removes the drafts of this `name`, of this user, whose processes have ended. */
void qdri_draft_clean(int folder, const char *name);

#endif
