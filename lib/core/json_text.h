/* SPDX-License-Identifier: Apache-2.0 */
/* JSON as RFC 8259 defines it, read into jansson's values. jansson's own reader does not survive a lack of memory:
 * where the buffer of a word cannot grow it drops a byte and goes on, past the end of the word if that byte was the
 * quote. */
#ifndef QDRI_CORE_JSON_TEXT_H
#define QDRI_CORE_JSON_TEXT_H

#include <jansson.h>

#include "core/status.h"

enum { QDRI_JSON_WHY_BYTES = 96, QDRI_JSON_MAX_DEPTH = 2048 };

/* What is wrong with a text. */
typedef struct qdri_json_mistake {
    int line;
    char why[QDRI_JSON_WHY_BYTES]; /* may hold bytes of the text */
} qdri_json_mistake;

/* The outermost value, an object or a list, in which no object has a key twice and no string a zero byte; to be given
 * back with json_decref(). *root is NULL after an error, whose sentence is the caller's.
 * @retval QDR_ERR_ARGUMENT  *mistake says why
 * @retval QDR_ERR_MEMORY    no judgement of the text */
QDR_NODISCARD qdr_status qdri_json_text_read(const char *text, size_t bytes, json_t **root, qdri_json_mistake *mistake);

/* Of a character that begins there: its bytes, 0 if it is not UTF-8. */
size_t qdri_utf8_bytes(const unsigned char *at, const unsigned char *end);

#endif
