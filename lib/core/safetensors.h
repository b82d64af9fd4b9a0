/* SPDX-License-Identifier: Apache-2.0 */
/* Headers of safetensors files: parsing, checking and printing texts. See quadrille/safetensors.h. */
#ifndef QDRI_CORE_SAFETENSORS_H
#define QDRI_CORE_SAFETENSORS_H

#include "core/status.h"
#include "quadrille/safetensors.h"

enum {
    QDRI_SAFETENSORS_LENGTH_BYTES = 8, /* before the header */
    QDRI_SAFETENSORS_MAX_HEADER = 100 * 1000 * 1000, /* bytes; that of Hugging Face's package */
    QDRI_SAFETENSORS_ALIGN = 4096, /* of the elements, in files that we write */
    QDRI_CRC_DIGITS = 8
};
#define QDRI_SAFETENSORS_CRC "crc32" /* keys of the metadata */
#define QDRI_SAFETENSORS_HEADER_CRC "header_crc32"

/* A parsed header. */
typedef struct qdri_tensors {
    qdr_tensor *tensors; /* by `begin` */
    int n;
    int has_header_crc;
    uint32_t header_crc;
    int64_t header_crc_at; /* where its digits are in the text */
    int64_t data_bytes;
    struct qdri_json *document; /* has all strings */
} qdri_tensors;

/* Bits of an element of a type, "F32"; 0 for an unknown type. */
int qdri_tensor_bits(const char *type);

/* Parses a header of n_bytes, without the eight bytes before it. `path` is the file's name in messages.
 * @param file_bytes  of the whole file
 * @retval QDR_ERR_ARGUMENT  it is not JSON, contradicts itself, or does not describe a file of this size */
QDR_NODISCARD qdr_status qdri_tensors_parse(const char *text, size_t n_bytes, int64_t file_bytes, const char *path,
                                            qdri_tensors **tensors);
/* The value of a key of the metadata; NULL: there is none. */
const char *qdri_tensors_metadata(const qdri_tensors *tensors, const char *key);
/* The key that follows `key` in the metadata, or the first if it is NULL; NULL after the last. */
const char *qdri_tensors_next_key(const qdri_tensors *tensors, const char *key);
void qdri_tensors_free(qdri_tensors **tensors);

/* Sets bytes and places of tensors whose name, type, dtype and shape are set.
 * @retval QDR_ERR_ARGUMENT  an unknown type, a negative extent, a part of a byte, too many elements to count, no name,
 *                           or one that occurs twice */
QDR_NODISCARD qdr_status qdri_tensors_place(const char *who, qdr_tensor *tensors, int n);
/* Prints the header of placed tensors with their checksums, and zeros as its own, padded with blanks so that the
 * elements begin at a multiple of QDRI_SAFETENSORS_ALIGN. Its length does not depend on checksums.
 * @param metadata      keys and values in turn, NULL after the last; NULL: none
 * @param[out] text     to be freed with free(); *n_bytes long
 * @param[out] crc_at   where the eight digits of its own checksum are
 * @retval QDR_ERR_ARGUMENT  a name or a string is not UTF-8, a key is one that is added, or it is too long
 * @retval QDR_ERR_MEMORY    out of memory */
QDR_NODISCARD qdr_status qdri_tensors_print(const qdr_tensor *tensors, int n, const char *const *metadata, char **text,
                                            size_t *n_bytes, size_t *crc_at);

#endif
