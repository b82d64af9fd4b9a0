/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as the header of a safetensors file, after two bytes with the size of its data: refused with one
 * printable message, or accepted; then the tensors cover the data, and printing them gives the same list. */
#include "core/safetensors.h"
#include "fuzz.h"

enum { SIZE_BYTES = 2 };

static void print_and_parse(const qdri_tensors *tensors)
{
    qdr_tensor *placed = malloc((size_t)tensors->n * sizeof *placed + 1);
    qdri_tensors *again;
    char *text;
    size_t n_bytes, crc_at;
    require(placed != NULL);
    for (int i = 0; i < tensors->n; i++) placed[i] = tensors->tensors[i];
    require(qdri_tensors_place("fuzz", placed, tensors->n) == QDR_OK);
    require(qdri_tensors_print(placed, tensors->n, NULL, &text, &n_bytes, &crc_at) == QDR_OK);
    require(memcmp(text + crc_at, "00000000\"", 9) == 0);
    const int64_t file_bytes = QDRI_SAFETENSORS_LENGTH_BYTES + (int64_t)n_bytes + tensors->data_bytes;
    require(file_bytes % QDRI_SAFETENSORS_ALIGN == tensors->data_bytes % QDRI_SAFETENSORS_ALIGN);
    require(qdri_tensors_parse(text, n_bytes, file_bytes, "printed", &again) == QDR_OK);
    require(again->n == tensors->n && again->has_header_crc);
    for (int i = 0; i < tensors->n; i++) {
        const qdr_tensor *a = &tensors->tensors[i], *b = &again->tensors[i];
        require(strcmp(a->name, b->name) == 0 && strcmp(a->type, b->type) == 0 && a->n_dims == b->n_dims);
        require(a->begin == b->begin && a->bytes == b->bytes && a->has_crc == b->has_crc && a->crc == b->crc);
        require(memcmp(a->shape, b->shape, sizeof a->shape) == 0);
    }
    qdri_tensors_free(&again);
    free(text);
    free(placed);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    qdri_tensors *tensors;
    int64_t end = 0;
    if (n_bytes < SIZE_BYTES) return 0;
    const size_t n_header = n_bytes - SIZE_BYTES, n_data = bytes[0] + 256u * bytes[1];
    const int64_t file_bytes = QDRI_SAFETENSORS_LENGTH_BYTES + (int64_t)(n_header + n_data);
    qdri_set_last_error("");
    if (qdri_tensors_parse((const char *)bytes + SIZE_BYTES, n_header, file_bytes, "fuzz", &tensors) != QDR_OK) {
        check_printable(qdr_last_error());
        require(tensors == NULL);
        return 0;
    }
    for (int i = 0; i < tensors->n; i++) {
        const qdr_tensor *tensor = &tensors->tensors[i];
        require(tensor->begin == end && tensor->bytes >= 0 && tensor->n_elems >= 0);
        require(tensor->bytes * 8 == tensor->n_elems * qdri_tensor_bits(tensor->type));
        end += tensor->bytes;
    }
    require(end == (int64_t)n_data);
    (void)qdri_tensors_metadata(tensors, "format");
    print_and_parse(tensors);
    qdri_tensors_free(&tensors);
    return 0;
}
