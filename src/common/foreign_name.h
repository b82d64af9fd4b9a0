/* SPDX-License-Identifier: Apache-2.0 */
#ifndef QUADRILLE_SRC_COMMON_FOREIGN_NAME_H
#define QUADRILLE_SRC_COMMON_FOREIGN_NAME_H

#include <stddef.h>

/* Whether a path for a safetensors file ends as files of another format do, by which other programs would read it; then
 * writes the sentence. what: the option or command, whose sentence it is. shown: the path, as it is printed. */
int foreign_name(const char *what, const char *path, const char *shown, char *sentence, size_t n_bytes);

#endif
