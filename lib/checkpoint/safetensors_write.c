/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files: writing. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/crc.h"
#include "checkpoint/internal.h"
#include "core/size.h"
#include "files/at.h"
#include "files/output.h"

static qdr_status fail_write(qdr_safetensors *file, int error)
{
    file->out.has_failed = 1;
    return QDR_FAIL(QDR_ERR_IO, "%s could not be written (%s); %s", qdri_shown(file->path).text, strerror(error),
                    qdri_write_remedy(error));
}

static qdr_status write_bytes(qdr_safetensors *file, int64_t at, const void *from, size_t n_bytes)
{
    const int error = qdri_write_at(file->out.descriptor, at, from, n_bytes);
    return error ? fail_write(file, error) : QDR_OK;
}

/* ---- beginning ---- */

static int count_strings(const char *const *metadata)
{
    int n = 0;
    while (metadata && metadata[n]) n++;
    return n;
}

/* The caller's strings need not outlive the call. */
static qdr_status copy_strings(qdri_tensor_output *out, const qdr_tensor *tensors, int n, const char *const *metadata)
{
    const int n_metadata = count_strings(metadata);
    QDR_TRY(QDRI_NEW(n, "tensors", &out->tensors));
    QDR_TRY(QDRI_NEW(2 * n + n_metadata + 1, "the names of tensors", &out->strings));
    QDR_TRY(QDRI_NEW(n_metadata + 2, "the metadata", &out->metadata));
    char **next = out->strings;
    for (int i = 0; i < n_metadata; i++, next++) {
        QDR_TRY(qdri_strdup(metadata[i], next));
        out->metadata[i] = *next;
    }
    for (int i = 0; i < n; i++) {
        out->tensors[i] = tensors[i];
        out->tensors[i].has_crc = 1;
        out->tensors[i].crc = 0;
        if (tensors[i].name) QDR_TRY(qdri_strdup(tensors[i].name, next));
        out->tensors[i].name = tensors[i].name ? *next++ : NULL;
        if (tensors[i].type) QDR_TRY(qdri_strdup(tensors[i].type, next));
        out->tensors[i].type = tensors[i].type ? *next++ : NULL;
    }
    return QDR_OK;
}

qdr_status qdri_header_make(const qdr_tensor *tensors, int n, const char *const *metadata, char **bytes,
                            size_t *n_bytes)
{
    char *text = NULL, digits[QDRI_CRC_DIGITS + 1];
    size_t n_text, crc_at;
    *bytes = NULL;
    *n_bytes = 0;
    QDR_TRY(qdri_tensors_print(tensors, n, metadata, &text, &n_text, &crc_at));
    snprintf(digits, sizeof digits, "%08" PRIx32, qdri_header_crc(text, n_text, crc_at));
    memcpy(text + crc_at, digits, QDRI_CRC_DIGITS);
    const qdr_status status = qdri_calloc(QDRI_SAFETENSORS_LENGTH_BYTES + n_text, 1, "a header", (void **)bytes);
    if (status == QDR_OK) {
        for (int i = 0; i < QDRI_SAFETENSORS_LENGTH_BYTES; i++) (*bytes)[i] = (char)(n_text >> 8 * i);
        memcpy(*bytes + QDRI_SAFETENSORS_LENGTH_BYTES, text, n_text);
        *n_bytes = QDRI_SAFETENSORS_LENGTH_BYTES + n_text;
    }
    free(text);
    return status;
}

static qdr_status open_output(qdr_safetensors *file)
{
    QDR_TRY(qdr_output_open("", file->path, QDR_OUTPUT_REPLACE, &file->out.output));
    file->out.descriptor = qdri_output_descriptor(file->out.output);
    if (file->out.descriptor >= 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is no regular file; a safetensors file is not written in one go",
                    qdri_shown(file->path).text);
}

static qdr_status create(qdr_safetensors *file, const qdr_tensor *tensors, int n, const char *const *metadata)
{
    qdri_tensor_output *out = &file->out;
    char *bytes = NULL;
    size_t n_bytes;
    QDR_TRY(copy_strings(out, tensors, n, metadata));
    QDR_TRY(qdri_tensors_place(qdri_shown(file->path).text, out->tensors, n));
    QDR_TRY(QDRI_NEW(n, "the checksums of tensors", &out->shares));
    QDR_TRY(QDRI_NEW(n, "the lengths of tensors", &out->written));
    QDR_TRY(QDRI_NEW(n, "the parts of tensors", &out->spans));
    out->n = n;
    QDR_TRY(QDRI_NEW(n, "the tensors of a file", &file->entries));
    for (; file->n < n; file->n++) file->entries[file->n].tensor = &out->tensors[file->n];
    QDR_TRY(qdri_safetensors_sort(file));
    QDR_TRY(qdri_header_make(out->tensors, n, out->metadata, &bytes, &n_bytes)); /* its length stays */
    free(bytes);
    out->data_at = (int64_t)n_bytes;
    QDR_TRY(open_output(file));
    const int error = qdri_reserve(out->descriptor, out->data_at + qdri_tensors_bytes(out->tensors, n));
    return error ? fail_write(file, error) : QDR_OK;
}

qdr_status qdr_safetensors_create(const char *path, const qdr_tensor *tensors, int n, const char *const *metadata,
                                  qdr_safetensors **file)
{
    if (!file) return QDR_FAIL(QDR_ERR_ARGUMENT, "safetensors: the result is NULL; pass the address of a pointer");
    *file = NULL;
    if (!path || n < 0 || (n && !tensors))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "safetensors: %s is NULL, or %d tensors; pass a path and 0 tensors or more",
                        path ? "the list" : "the path", n);
    QDR_TRY(QDRI_NEW(1, "a safetensors file", file));
    qdr_status status = qdri_strdup(path, &(*file)->path);
    if (status == QDR_OK) status = create(*file, tensors, n, metadata);
    if (status != QDR_OK) qdr_safetensors_discard(file);
    return status;
}

/* ---- elements ---- */

qdr_status qdr_safetensors_write(qdr_safetensors *file, int index, int64_t first, int64_t n, const void *host)
{
    const qdr_tensor *tensor = qdr_safetensors_tensor(file, index);
    if (!tensor || (!host && n > 0) || !qdri_tensor_has(tensor, first, n))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "safetensors: %" PRId64 " elements from %" PRId64 " of tensor %d, which %s",
                        n, first, index,
                        !tensor ? "the file lacks"
                        : host  ? "has fewer"
                                : "come from NULL");
    if (!file->out.output)
        return QDR_FAIL(QDR_ERR_STATE, "%s is open for reading; use qdr_safetensors_create() to write",
                        qdri_shown(file->path).text);
    if (file->out.is_finished)
        return QDR_FAIL(QDR_ERR_STATE, "%s is finished; write before qdr_safetensors_finish()",
                        qdri_shown(file->path).text);
    const int bits = qdri_tensor_bits(tensor->type);
    if (first * bits % 8 || n * bits % 8)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: elements of %d bits are written in whole bytes",
                        qdri_shown(file->path).text, bits);
    const int64_t begin = first * bits / 8, n_bytes = n * bits / 8;
    int overlaps;
    QDR_TRY(qdri_spans_add(&file->out.spans[index], begin, begin + n_bytes, &overlaps));
    if (overlaps)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: some of %" PRId64 " elements from %" PRId64
                        " of tensor %s were written before; write each once",
                        qdri_shown(file->path).text, n, first, qdri_shown(tensor->name).text);
    QDR_TRY(write_bytes(file, file->out.data_at + tensor->begin + begin, host, (size_t)n_bytes));
    file->out.shares[index] ^= qdri_crc_share(host, (size_t)n_bytes, tensor->bytes - begin - n_bytes);
    file->out.written[index] += n_bytes;
    return QDR_OK;
}

/* ---- completing ---- */

static qdr_status check_complete(const qdr_safetensors *file)
{
    if (file->out.has_failed)
        return QDR_FAIL(QDR_ERR_IO, "%s could not be written, as was said: it is as it was",
                        qdri_shown(file->path).text);
    for (int i = 0; i < file->n; i++) {
        const qdr_tensor *tensor = file->entries[i].tensor;
        if (file->out.written[i] == tensor->bytes) continue;
        return QDR_FAIL(
            QDR_ERR_STATE, "%s is as it was: of the %" PRId64 " bytes of tensor %s, %" PRId64 " were written",
            qdri_shown(file->path).text, tensor->bytes, qdri_shown(tensor->name).text, file->out.written[i]);
    }
    return QDR_OK;
}

static qdr_status write_header(qdr_safetensors *file)
{
    char *bytes = NULL;
    size_t n_bytes;
    for (int i = 0; i < file->n; i++)
        file->out.tensors[i].crc = qdri_crc_of_shares(file->out.shares[i], file->out.tensors[i].bytes);
    QDR_TRY(qdri_header_make(file->out.tensors, file->n, file->out.metadata, &bytes, &n_bytes));
    const qdr_status status = write_bytes(file, 0, bytes, n_bytes);
    free(bytes);
    return status;
}

qdr_status qdr_safetensors_finish(qdr_safetensors *file)
{
    if (!file) return QDR_FAIL(QDR_ERR_ARGUMENT, "safetensors: NULL cannot be finished");
    if (!file->out.output)
        return QDR_FAIL(QDR_ERR_STATE, "%s is open for reading; only a file that is being written can be finished",
                        qdri_shown(file->path).text);
    if (file->out.is_finished) return QDR_OK;
    QDR_TRY(check_complete(file));
    QDR_TRY(write_header(file));
    const qdr_status status = qdr_output_finish(file->out.output);
    file->out.has_failed = status != QDR_OK;
    file->out.is_finished = status == QDR_OK;
    return status;
}

qdr_status qdri_tensor_output_commit(qdr_safetensors *file)
{
    QDR_TRY(qdr_safetensors_finish(file));
    return qdr_output_commit(&file->out.output);
}
