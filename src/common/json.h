/* SPDX-License-Identifier: Apache-2.0 */
/* Prints JSON. */
#ifndef QUADRILLE_SRC_COMMON_JSON_H
#define QUADRILLE_SRC_COMMON_JSON_H

#include <jansson.h>

#include "common/failure.h"

/* Prints an object or a list, and a newline, to standard output, and frees it. NULL, which an earlier failure in
 * building it left, is one. flags: of jansson. The message begins with `command`. */
int write_json(json_t *object, size_t flags, const char *command, failure *why);

#endif
