/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files: their headers and lists, reading, and giving up. */
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/crc.h"
#include "checkpoint/internal.h"
#include "core/input.h"
#include "core/kind.h"
#include "core/size.h"
#include "dev/cpu/narrow.h"
#include "files/at.h"

/* ---- bytes ---- */

qdr_status qdri_tensor_file_read(const qdri_tensor_file *file, int64_t at, size_t n_bytes, void *to)
{
    char *next = to;
    while (n_bytes > 0) {
        const ssize_t got = pread(file->descriptor, next, n_bytes, (off_t)at);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0)
            return QDR_FAIL(QDR_ERR_IO, "%s cannot be read (%s); %s", qdri_shown(file->path).text, strerror(errno),
                            qdri_read_remedy(errno));
        if (got == 0)
            return QDR_FAIL(QDR_ERR_IO,
                            "%s ends at byte %" PRId64
                            ", where %zu more were: something shortened it; use another copy of the file",
                            qdri_shown(file->path).text, at, n_bytes);
        next += got;
        at += got;
        n_bytes -= (size_t)got;
    }
    return QDR_OK;
}

uint32_t qdri_header_crc(const char *text, size_t n_bytes, size_t crc_at)
{
    uint32_t crc = qdri_crc(0, text, crc_at);
    crc = qdri_crc(crc, "00000000", QDRI_CRC_DIGITS);
    return qdri_crc(crc, text + crc_at + QDRI_CRC_DIGITS, n_bytes - crc_at - QDRI_CRC_DIGITS);
}

/* ---- headers ---- */

static qdr_status check_header_crc(const qdri_tensor_file *file, const char *text, size_t n_bytes)
{
    const qdri_tensors *header = file->header;
    const uint32_t crc = header->has_header_crc ? qdri_header_crc(text, n_bytes, (size_t)header->header_crc_at) : 0;
    /* A bit of either key may be the damaged one. */
    const int needs_one = qdri_tensors_metadata(header, QDRI_SAFETENSORS_HEADER_CRC) ||
                          qdri_tensors_metadata(header, QDRI_SAFETENSORS_CRC);
    if (header->has_header_crc ? crc == header->header_crc : !needs_one) return QDR_OK;
    if (!header->has_header_crc)
        return QDR_FAIL(QDR_ERR_IO,
                        "%s: the header is damaged, or another program changed it: its checksum, %s, is missing or "
                        "not in the first place; use another copy of the file",
                        qdri_shown(file->path).text, QDRI_SAFETENSORS_HEADER_CRC);
    return QDR_FAIL(QDR_ERR_IO,
                    "%s: the header is damaged: its checksum is %08" PRIx32 ", not %08" PRIx32
                    "; use another copy of the file",
                    qdri_shown(file->path).text, crc, header->header_crc);
}

static qdr_status parse_header(qdri_tensor_file *file, int64_t file_bytes, size_t n_bytes)
{
    char *text = NULL;
    QDR_TRY(qdri_calloc(n_bytes, 1, "a safetensors header", (void **)&text));
    qdr_status status = qdri_tensor_file_read(file, QDRI_SAFETENSORS_LENGTH_BYTES, n_bytes, text);
    if (status == QDR_OK) status = qdri_tensors_parse(text, n_bytes, file_bytes, file->path, &file->header);
    if (status == QDR_OK) status = check_header_crc(file, text, n_bytes);
    free(text);
    return status;
}

/* Says what another file is, where that can be seen. */
static qdr_status check_kind(const qdri_tensor_file *file, int64_t file_bytes)
{
    char bytes[QDRI_KIND_BYTES];
    const size_t n = file_bytes < QDRI_KIND_BYTES ? (size_t)file_bytes : sizeof bytes;
    QDR_TRY(qdri_tensor_file_read(file, 0, n, bytes));
    const char *kind = qdri_kind_of_file(bytes, n, 0);
    return kind ? QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %s", qdri_shown(file->path).text, kind) : QDR_OK;
}

static qdr_status open_file(const char *path, qdri_tensor_file *file)
{
    unsigned char length[QDRI_SAFETENSORS_LENGTH_BYTES];
    struct stat state;
    uint64_t n_bytes = 0;
    QDR_TRY(qdri_strdup(path, &file->path));
    file->descriptor = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC); /* a FIFO without a writer would wait */
    if (file->descriptor < 0 || fstat(file->descriptor, &state))
        return qdri_cannot_open(qdri_shown(path).text, qdri_read_remedy(errno));
    if (!S_ISREG(state.st_mode))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is no regular file; a safetensors file is needed", qdri_shown(path).text);
    QDR_TRY(check_kind(file, state.st_size));
    if (state.st_size < QDRI_SAFETENSORS_LENGTH_BYTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has %" PRId64 " bytes, too few for a safetensors file",
                        qdri_shown(path).text, (int64_t)state.st_size);
    QDR_TRY(qdri_tensor_file_read(file, 0, sizeof length, length));
    for (int i = QDRI_SAFETENSORS_LENGTH_BYTES; i-- > 0;) n_bytes = n_bytes << 8 | length[i];
    if (n_bytes > QDRI_SAFETENSORS_MAX_HEADER || (int64_t)n_bytes > state.st_size - QDRI_SAFETENSORS_LENGTH_BYTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s begins with a header of %" PRIu64 " bytes, but has %" PRId64
                        " bytes, and headers have %d at most: it is truncated, or not a safetensors file",
                        qdri_shown(path).text, n_bytes, (int64_t)state.st_size, QDRI_SAFETENSORS_MAX_HEADER);
    file->data_at = QDRI_SAFETENSORS_LENGTH_BYTES + (int64_t)n_bytes;
    return parse_header(file, state.st_size, (size_t)n_bytes);
}

qdr_status qdri_safetensors_sort(qdr_safetensors *file)
{
    QDR_TRY(QDRI_NEW(file->n, "the names of tensors", &file->by_name));
    for (int i = 0; i < file->n; i++) file->by_name[i] = (qdri_named){file->entries[i].tensor->name, i};
    qdri_named_sort(file->by_name, file->n);
    return QDR_OK;
}

qdr_status qdri_safetensors_add_file(qdr_safetensors *self, const char *path, int *capacity)
{
    QDR_TRY(qdri_list_grow((void **)&self->files, self->n_files, capacity, sizeof *self->files, "files"));
    self->files[self->n_files] = (qdri_tensor_file){.descriptor = -1};
    return open_file(path, &self->files[self->n_files++]);
}

qdr_status qdri_safetensors_list(qdr_safetensors *self)
{
    int64_t n = 0;
    for (int i = 0; i < self->n_files; i++) n += self->files[i].header->n;
    QDR_TRY(QDRI_NEW(n, "the tensors of files", &self->entries));
    for (int i = 0; i < self->n_files; i++)
        for (int k = 0; k < self->files[i].header->n; k++)
            self->entries[self->n++] = (qdri_tensor_entry){&self->files[i].header->tensors[k], &self->files[i]};
    return qdri_safetensors_sort(self);
}

/* ---- what it holds ---- */

int qdr_safetensors_count(const qdr_safetensors *file) { return file ? file->n : 0; }

const qdr_tensor *qdr_safetensors_tensor(const qdr_safetensors *file, int index)
{
    return file && index >= 0 && index < file->n ? file->entries[index].tensor : NULL;
}

int qdr_safetensors_find(const qdr_safetensors *file, const char *name)
{
    const qdri_named *found = file && name ? qdri_named_find(file->by_name, file->n, name) : NULL;
    return found ? found->number : -1;
}

const char *qdr_safetensors_metadata(const qdr_safetensors *file, const char *key)
{
    const char *value = NULL;
    for (int i = 0; file && key && i < file->n_files && !value; i++)
        value = qdri_tensors_metadata(file->files[i].header, key);
    for (const char **at = file && key ? file->out.metadata : NULL; at && at[0] && !value; at += 2)
        if (strcmp(at[0], key) == 0) value = at[1];
    return value;
}

const char *qdr_safetensors_metadata_key(const qdr_safetensors *file, int index)
{
    return file && index >= 0 && index < file->n_keys ? file->keys[index].name : NULL;
}

const char *qdr_safetensors_path(const qdr_safetensors *file, int index)
{
    return file && index >= 0 && index < file->n_files ? file->files[index].path : NULL;
}

int qdri_tensor_has(const qdr_tensor *tensor, int64_t first, int64_t n)
{
    return first >= 0 && n >= 0 && first <= tensor->n_elems && n <= tensor->n_elems - first;
}

/* ---- elements ---- */

static qdr_status read_converted(const qdri_tensor_entry *entry, int64_t first, int64_t n, qdr_dtype as, void *host)
{
    const qdr_dtype type = (qdr_dtype)entry->tensor->dtype;
    const int64_t each = (int64_t)qdr_dtype_bytes(type), all = QDRI_FILE_CHUNK / each;
    const int64_t most = n > 0 && n < all ? n : all;
    void *chunk = NULL;
    qdr_status status = qdri_calloc((size_t)most, (size_t)each, "elements of a file", &chunk);
    for (int64_t done = 0; done < n && status == QDR_OK; done += most) {
        const int64_t some = qdri_least(n - done, most);
        status = qdri_tensor_file_read(entry->file, entry->file->data_at + entry->tensor->begin + (first + done) * each,
                                       (size_t)(some * each), chunk);
        if (status == QDR_OK) qdri_convert(as, (char *)host + (size_t)done * qdr_dtype_bytes(as), type, chunk, some);
    }
    free(chunk);
    return status;
}

/* The tensor of a call that reads. */
static qdr_status find_entry(const qdr_safetensors *file, int index, const qdri_tensor_entry **entry)
{
    *entry = NULL;
    if (!file || index < 0 || index >= file->n)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "safetensors: tensor %d of %d; use qdr_safetensors_find()", index,
                        qdr_safetensors_count(file));
    if (file->out.output)
        return QDR_FAIL(QDR_ERR_STATE, "%s is being written; close it, then open it to read",
                        qdri_shown(file->path).text);
    *entry = &file->entries[index];
    return QDR_OK;
}

qdr_status qdr_safetensors_read(const qdr_safetensors *file, int index, int64_t first, int64_t n, qdr_dtype as,
                                void *host)
{
    const qdri_tensor_entry *entry;
    QDR_TRY(find_entry(file, index, &entry));
    qdr_tensor bytes = *entry->tensor;
    const char *path = entry->file->path;
    const int is_bytes = as == QDR_U8;
    if (is_bytes) bytes.n_elems = bytes.bytes;
    if ((!host && n > 0) || !qdri_tensor_has(&bytes, first, n))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %" PRId64 " %s from %" PRId64 " of tensor %s, which has %" PRId64 "%s",
                        qdri_shown(path).text, n, is_bytes ? "bytes" : "elements", first, qdri_shown(bytes.name).text,
                        bytes.n_elems, host ? "" : "; the memory is NULL");
    if (is_bytes || bytes.dtype == (int)as) {
        const int64_t each = is_bytes ? 1 : (int64_t)qdr_dtype_bytes(as);
        return qdri_tensor_file_read(entry->file, entry->file->data_at + bytes.begin + first * each, (size_t)(n * each),
                                     host);
    }
    if (!qdri_is_float((qdr_dtype)bytes.dtype) || !qdri_is_float(as))
        return QDR_FAIL(QDR_ERR_DTYPE, "%s: tensor %s is %s, which is not read as %s; read it as u8, as bytes",
                        qdri_shown(path).text, qdri_shown(bytes.name).text, bytes.type, qdr_dtype_name(as));
    return read_converted(entry, first, n, as, host);
}

qdr_status qdr_safetensors_verify(const qdr_safetensors *file, int index)
{
    const qdri_tensor_entry *entry;
    void *chunk = NULL;
    uint32_t crc = 0;
    QDR_TRY(find_entry(file, index, &entry));
    const qdr_tensor *tensor = entry->tensor;
    if (!tensor->has_crc)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s has no checksum of tensor %s; convert the file to add them",
                        qdri_shown(entry->file->path).text, qdri_shown(tensor->name).text);
    const int64_t most = qdri_least(tensor->bytes, QDRI_FILE_CHUNK);
    qdr_status status = qdri_calloc((size_t)most, 1, "elements of a file", &chunk);
    for (int64_t done = 0; done < tensor->bytes && status == QDR_OK; done += most) {
        const int64_t left = tensor->bytes - done, some = qdri_least(left, most);
        status = qdri_tensor_file_read(entry->file, entry->file->data_at + tensor->begin + done, (size_t)some, chunk);
        if (status == QDR_OK) crc = qdri_crc(crc, chunk, (size_t)some);
    }
    free(chunk);
    if (status != QDR_OK || crc == tensor->crc) return status;
    return QDR_FAIL(QDR_ERR_IO,
                    "%s: tensor %s is damaged: its checksum is %08" PRIx32 ", not %08" PRIx32
                    "; use another copy of the file",
                    qdri_shown(entry->file->path).text, qdri_shown(tensor->name).text, crc, tensor->crc);
}

/* ---- discarding ---- */

/* Removes what was written. */
static void free_output(qdri_tensor_output *out)
{
    qdr_output_discard(&out->output);
    for (char **text = out->strings; text && *text; text++) free(*text);
    free(out->strings);
    free(out->metadata);
    free(out->tensors);
    free(out->shares);
    for (int i = 0; i < out->n; i++) qdri_spans_free(&out->spans[i]);
    free(out->spans);
    free(out->written);
}

void qdr_safetensors_discard(qdr_safetensors **file)
{
    if (!file || !*file) return;
    qdr_safetensors *self = *file;
    *file = NULL;
    for (int i = 0; i < self->n_files; i++) {
        if (self->files[i].descriptor >= 0) close(self->files[i].descriptor);
        qdri_tensors_free(&self->files[i].header);
        free(self->files[i].path);
    }
    free_output(&self->out);
    free(self->files);
    free(self->entries);
    free(self->by_name);
    free(self->keys);
    free(self->path);
    free(self);
}
