/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that commands print. */
#ifndef QUADRILLE_SRC_COMMON_JSON_H
#define QUADRILLE_SRC_COMMON_JSON_H

#include <jansson.h>

#include "common/failure.h"

/* Before jansson is used: counts allocations for it that fail. */
void json_begin(void);
/* 1: memory ran out in a call of jansson on this thread, which may have left something out. */
int json_has_failed(void);
/* The digits of the number that needs most, for JSON_REAL_PRECISION(). */
size_t json_digits(json_t *value);
/* Prints an object or a list, and a newline, to standard output, and frees it. NULL, which running out of memory while
 * it was built left, is a failure, whose message begins with `command`. flags: of jansson. */
int write_json(json_t *object, size_t flags, const char *command, failure *why);
/* The number; null if it is not finite, which JSON cannot say. */
json_t *json_finite(double number);
/* The text, or "" if it is not UTF-8, as text from files, drivers and the environment may be. */
json_t *json_text(const char *text);

#endif
