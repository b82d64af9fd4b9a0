/* SPDX-License-Identifier: Apache-2.0 */
/* Where this library is installed. */
#ifndef QUADRILLE_CORE_SELF_H
#define QUADRILLE_CORE_SELF_H

#include <stddef.h>

enum { QDRI_FOLDER_BYTES = 1024 };

/* The folder of the shared library, or of the program that contains the static one, ending with a slash. "" if it
 * cannot be determined, or does not fit in `bytes` (at least 1). */
void qdri_own_folder(char *folder, size_t bytes);

#endif
