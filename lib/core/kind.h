/* SPDX-License-Identifier: Apache-2.0 */
/* What a file is that is not what it should be, by its first bytes. */
#ifndef QDRI_CORE_KIND_H
#define QDRI_CORE_KIND_H

#include <stddef.h>

enum { QDRI_KIND_BYTES = 512 /* of a file, with which all kinds are recognised */ };

/* What it is and what to do, for the end of a sentence: "a gzip archive: unpack it with gunzip". NULL: not recognised;
 * then it may be a text in UTF-8, with or without a byte order mark, or a file of an unknown kind.
 * @param is_text  1: a text is expected, and JSON is one; 0: a safetensors file is */
const char *qdri_kind_of_file(const char *bytes, size_t n_bytes, int is_text);
/* Bytes of the byte order mark with which a text in UTF-8 begins: 0 or 3. */
size_t qdri_mark_bytes(const char *bytes, size_t n_bytes);

#endif
