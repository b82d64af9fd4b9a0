/* SPDX-License-Identifier: Apache-2.0 */
#include "files/token_file.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/input.h"
#include "core/kind.h"
#include "core/size.h"
#include "quadrille_private/npy.h"

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "tokens are read as they lie in files: this needs a little-endian machine"
#endif

enum { HEAD_BYTES = 4096, SOME_BYTES = 32768, INTS_BYTES = 1024 /* a header of 256 int32 */ };

/* ---- numbers in files ---- */

/* Of a file of that many bytes, which is opened for this call alone. */
static qdr_status read_at(const char *path, int64_t bytes, int64_t at, void *to, int64_t n)
{
    struct stat info = {0};
    char name[QDRI_TOKEN_NAME_BYTES];
    const int file = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    qdri_input_name(path, name, sizeof name);
    if (file < 0) return qdri_cannot_open(name, NULL);
    ssize_t got = fstat(file, &info) == 0 && info.st_size == bytes;
    for (int64_t done = 0; done < n && got > 0; done += got) do
            got = pread(file, (char *)to + done, (size_t)(n - done), at + done);
        while (got < 0 && errno == EINTR);
    const int error = errno;
    (void)fstat(file, &info);
    close(file);
    if (got < 0) return QDR_FAIL(QDR_ERR_IO, "%s cannot be read (%s)", name, strerror(error));
    if (got > 0 || n == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s had %" PRId64 " bytes, and now has %" PRId64 "; do not change it meanwhile",
                    name, bytes, (int64_t)info.st_size);
}

static int64_t number_at(const unsigned char *from, int bytes, int is_signed)
{
    uint64_t raw = 0;
    const uint64_t sign = is_signed ? UINT64_C(1) << (8 * bytes - 1) : 0;
    memcpy(&raw, from, (size_t)bytes);
    return (int64_t)((raw ^ sign) - sign);
}

/* Reads numbers before byte `end`, some at a time. */
typedef struct reader {
    const char *path;
    int64_t bytes, end; /* bytes: of the file */
    int64_t some_begin, some_end;
    unsigned char some[SOME_BYTES];
} reader;

static qdr_status take(reader *r, int64_t at, int bytes, int is_signed, int64_t *number)
{
    if (at < r->some_begin || at + bytes > r->some_end) {
        r->some_begin = at, r->some_end = r->end - at < SOME_BYTES ? r->end : at + SOME_BYTES;
        QDR_TRY(read_at(r->path, r->bytes, at, r->some, r->some_end - at));
    }
    *number = number_at(r->some + (at - r->some_begin), bytes, is_signed);
    return QDR_OK;
}

qdr_status qdri_token_file_read(const qdri_token_file *file, int64_t limit, int64_t first, int64_t n, int32_t *to)
{
    const int bytes = file->token_bytes;
    reader r = {.path = file->path, .bytes = file->bytes, .end = file->begin + (first + n) * bytes};
    for (int64_t i = 0, token = 0; i < n; i++) {
        if (file->text)
            token = (unsigned char)file->text[first + i];
        else
            QDR_TRY(take(&r, file->begin + (first + i) * bytes, bytes, file->is_signed, &token));
        if (token < 0 || token >= limit)
            return QDR_FAIL(
                QDR_ERR_ARGUMENT,
                "%s: token %" PRId64 " is %" PRId64 ", but tokens are from 0 to %" PRId64
                "; take the network for which they were written, or name the file's format (train: --tokens)",
                file->name, first + i, token, limit - 1);
        to[i] = (int32_t)token;
    }
    return QDR_OK;
}

/* ---- Megatron's index ---- */

/* 9 bytes of magic, uint64 version, a byte of type, uint64 numbers of sequences and of bounds; then int32 lengths and
 * int64 places, in bytes, of sequences, and int64 bounds of documents, in sequences. */
enum { INDEX_BYTES = 34 };
static const char index_magic[9] = "MMIDIDX\0";

static qdr_status take_place(const qdri_token_file *file, reader *r, int64_t sequence, int64_t *byte)
{
    *byte = file->bytes;
    if (sequence >= file->n_sequences) return QDR_OK;
    return take(r, INDEX_BYTES + 4 * file->n_sequences + 8 * sequence, 8, 1, byte);
}

static qdr_status take_bound(const qdri_token_file *file, reader *r, int64_t document, int64_t *sequence)
{
    return take(r, INDEX_BYTES + 12 * file->n_sequences + 8 * document, 8, 1, sequence);
}

static qdr_status take_index_head(qdri_token_file *file)
{
    static const signed char types[] = {0, 1, -1, -2, -4, -8, 0, 0, 2}; /* bytes of an element, signed: negative */
    unsigned char head[INDEX_BYTES] = {0};
    const int64_t n = file->index_bytes;
    QDR_TRY(read_at(file->index, n, 0, head, n < INDEX_BYTES ? n : INDEX_BYTES));
    const int type = head[17], bytes = type < (int)sizeof types ? types[type] : 0;
    const int64_t version = number_at(head + 9, 8, 1), n_sequences = number_at(head + 18, 8, 1);
    const int64_t n_bounds = number_at(head + 26, 8, 1);
    if (memcmp(head, index_magic, sizeof index_magic) != 0 || version != 1 || n < INDEX_BYTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s has an .idx that does not begin with MMIDIDX and version 1, as Megatron's "
                        "do; write it again, or remove it",
                        file->name);
    if (!bytes)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s has elements of type %d, but those of tokens are 1 (uint8), 2 (int8), "
                        "3 (int16), 4 (int32), 5 (int64) or 8 (uint16); write it again",
                        file->name, type);
    if (n_sequences < 0 || n_sequences > n || n_bounds < 0 || n_bounds > n ||
        INDEX_BYTES + 12 * n_sequences + 8 * n_bounds != n)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s has an .idx of %" PRId64 " bytes, which are not %d, 12 for each of its %" PRId64
                        " sequences and 8 for each of its %" PRId64 " bounds of documents; write it again",
                        file->name, n, INDEX_BYTES, n_sequences, n_bounds);
    file->token_bytes = bytes < 0 ? -bytes : bytes, file->is_signed = bytes < 0;
    file->n = file->bytes / file->token_bytes;
    file->n_sequences = n_sequences, file->n_documents = n_bounds ? n_bounds - 1 : 0;
    return QDR_OK;
}

/* Sequences lie one behind the other, and documents are whole sequences. */
static qdr_status check_index(const qdri_token_file *file)
{
    reader lengths = {.path = file->index, .bytes = file->index_bytes, .end = file->index_bytes}, places = lengths;
    int64_t end = 0, n = 0, at = 0, bound = 0;
    for (int64_t i = 0; i <= file->n_sequences; i++, end += n * file->token_bytes) {
        QDR_TRY(take_place(file, &places, i, &at));
        if (at != end && i == file->n_sequences)
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s has %" PRId64 " bytes, but its .idx says %" PRId64 "; copy both files again",
                            file->name, at, end);
        if (at != end)
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s: by its .idx sequence %" PRId64 " of %" PRId64 " begins at byte %" PRId64
                            ", but the one before it ends at %" PRId64 "; copy both files again",
                            file->name, i, file->n_sequences, at, end);
        if (i < file->n_sequences) QDR_TRY(take(&lengths, INDEX_BYTES + 4 * i, 4, 0, &n));
    }
    for (int64_t i = 0; file->n_documents && i <= file->n_documents; i++, bound = at) {
        QDR_TRY(take_bound(file, &places, i, &at));
        if (at < bound || (i == 0 && at) || (i == file->n_documents ? at != file->n_sequences : at > file->n_sequences))
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s: by its .idx bound %" PRId64 " of documents is sequence %" PRId64 " of %" PRId64
                            ", after %" PRId64 "; write it again",
                            file->name, i, at, file->n_sequences, bound);
    }
    return QDR_OK;
}

/* Bisection; documents before `low` begin before the token. */
qdr_status qdri_token_file_document(const qdri_token_file *file, int64_t from, int64_t *begin)
{
    reader r = {.path = file->index, .bytes = file->index_bytes, .end = file->index_bytes};
    *begin = file->n;
    for (int64_t low = 0, high = file->n_documents, at = 0; low < high;) {
        const int64_t middle = low + (high - low) / 2;
        QDR_TRY(take_bound(file, &r, middle, &at));
        QDR_TRY(take_place(file, &r, at, &at));
        at /= file->token_bytes;
        if (at < from)
            low = middle + 1;
        else
            high = middle, *begin = at;
    }
    return QDR_OK;
}

/* Whether there is PATH.idx beside PATH.bin, whose name is then kept. */
static qdr_status find_index(qdri_token_file *file)
{
    struct stat info;
    if (!qdri_has_ending(file->path, ".bin")) return QDR_OK;
    QDR_TRY(qdri_strdup(file->path, &file->index));
    memcpy(file->index + strlen(file->index) - 4, ".idx", 4);
    if (stat(file->index, &info) == 0 && S_ISREG(info.st_mode))
        file->index_bytes = info.st_size;
    else
        free(file->index), file->index = NULL;
    return QDR_OK;
}

/* ---- other layouts ---- */

/* llm.c's header of 256 int32, and those like it. */
static qdr_status take_ints(qdri_token_file *file, const int32_t *ints)
{
    const int magic = ints[0], version = ints[1], each = ints[3];
    file->begin = INTS_BYTES;
    file->n = ints[2];
    file->token_bytes = magic == 20240520 && version == 1                                ? 2
                        : magic == 20240801 && (version == 7 || version == 1)            ? 4
                        : magic == 278895051 && version == 1 && (each == 2 || each == 4) ? each
                                                                                         : 0;
    if (magic == 20240522 || !file->token_bytes)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s: its header is %d, version %d, %s; name a file of tokens", file->name,
                        magic, version, magic == 20240522 ? "an evaluation for llm.c" : "which is not known, or cut");
    if (file->bytes - INTS_BYTES == file->n * file->token_bytes) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s has %" PRId64 " bytes, but a header of %d and its %" PRId64 " tokens of %d bytes are %" PRId64
                    "; copy or write it again",
                    file->name, file->bytes, INTS_BYTES, file->n, file->token_bytes,
                    INTS_BYTES + file->n * file->token_bytes);
}

static qdr_status take_npy(qdri_token_file *file, const unsigned char *head, size_t n_head)
{
    qdr_npy header;
    QDR_TRY(qdr_npy_read_header(head, n_head, file->name, &header));
    const char *type = header.type;
    const int is_integer = strlen(type) == 3 && strchr("iu", type[1]) && strchr("1248", type[2]);
    if (!is_integer || (*type != '<' && type[2] != '1'))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s: contains elements of type '%s', but tokens are little-endian "
                        "integers; save a.astype('<u4')",
                        file->name, type);
    file->token_bytes = type[2] - '0';
    file->is_signed = type[1] == 'i';
    file->begin = (int64_t)header.begin;
    file->n = (file->bytes - file->begin) / file->token_bytes;
    return qdr_npy_check_length(&header, (size_t)file->bytes, (size_t)file->token_bytes, type, file->name);
}

static qdr_status take_raw(qdri_token_file *file, qdr_token_format format)
{
    file->is_text = format == QDR_TOKENS_TEXT;
    file->token_bytes = file->is_text ? 1 : format == QDR_TOKENS_UINT16 ? 2 : 4;
    file->is_signed = format == QDR_TOKENS_INT32;
    file->n = file->bytes / file->token_bytes;
    if (file->bytes % file->token_bytes == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s has %" PRId64 " bytes, which are no whole number of tokens of %d bytes; copy it again, or name "
                    "its format (train: --tokens)",
                    file->name, file->bytes, file->token_bytes);
}

/* What it would begin with in each format; unless it is something else, which small tokens look like, as UTF-16. */
static qdr_status ask(const qdri_token_file *file, const unsigned char *head, size_t n_head)
{
    static const char *const formats[] = {"uint16", "uint32", "int32"};
    const char *kind = qdri_kind_of_file((const char *)head, n_head, 1);
    char words[256] = "";
    if (kind && strncmp(kind, "a text", 6) != 0) return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s is %s", file->name, kind);
    for (int i = 0, used = 0; i < 3; i++) {
        if (file->bytes % (i ? 4 : 2)) continue;
        used += snprintf(words + used, sizeof words - (size_t)used, "%s as %s", used ? ", or" : "", formats[i]);
        for (size_t j = 0, bytes = i ? 4 : 2; j < 4 && (j + 1) * bytes <= n_head; j++)
            used += snprintf(words + used, sizeof words - (size_t)used, " %" PRId64,
                             number_at(head + j * bytes, (int)bytes, i == 2));
    }
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s does not say what its tokens are%s%s; name its format (train: --tokens), which is text if each "
                    "byte is one",
                    file->name, *words ? ": it begins" : "", words);
}

static qdr_status recognise(qdri_token_file *file, int asks)
{
    unsigned char head[HEAD_BYTES];
    int32_t ints[4] = {0};
    const size_t n_head = file->bytes < HEAD_BYTES ? (size_t)file->bytes : HEAD_BYTES;
    QDR_TRY(read_at(file->path, file->bytes, 0, head, (int64_t)n_head));
    memcpy(ints, head, n_head < sizeof ints ? n_head : sizeof ints);
    if (ints[0] == 20240520 || ints[0] == 20240801 || ints[0] == 20240522 || ints[0] == 278895051)
        return take_ints(file, ints);
    if (n_head >= 6 && memcmp(head, "\x93NUMPY", 6) == 0) return take_npy(file, head, n_head);
    if (n_head >= sizeof index_magic && memcmp(head, index_magic, sizeof index_magic) == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is an index of Megatron; name the .bin beside it", file->name);
    if (asks && (memchr(head, 0, n_head) || qdri_has_ending(file->path, ".bin") || qdri_has_ending(file->path, ".npy")))
        return ask(file, head, n_head);
    return take_raw(file, QDR_TOKENS_TEXT);
}

/* Megatron's own programs take the name without its ending. */
static qdr_status cannot_find(const qdri_token_file *file)
{
    static const char ending[] = ".bin";
    struct stat info;
    char *longer = NULL;
    const int error = errno;
    QDR_TRY(QDRI_NEW(strlen(file->path) + sizeof ending, "a name", &longer));
    sprintf(longer, "%s%s", file->path, ending);
    const int is_there = stat(longer, &info) == 0;
    free(longer);
    errno = error;
    if (!is_there) return qdri_cannot_open(file->name, NULL);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "there is no %s, but %s%s; name that", file->name, file->name, ending);
}

qdr_status qdri_token_file_open(qdri_token_file *file, qdr_token_format format)
{
    struct stat info;
    qdri_input_name(file->path, file->name, sizeof file->name);
    if (file->text) return take_raw(file, QDR_TOKENS_TEXT);
    if (stat(file->path, &info) != 0) return cannot_find(file);
    if (!S_ISREG(info.st_mode) || !info.st_size)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %s; name a file with tokens, or FOLDER/*.bin", file->name,
                        S_ISREG(info.st_mode)   ? "empty"
                        : S_ISDIR(info.st_mode) ? "a folder"
                                                : "a pipe or a device, which cannot be read twice");
    file->bytes = info.st_size;
    file->device = info.st_dev, file->node = info.st_ino;
    if (format && format != QDR_TOKENS_OR_TEXT) return take_raw(file, format);
    QDR_TRY(find_index(file));
    if (!file->index) return recognise(file, format == QDR_TOKENS_BY_FILE);
    QDR_TRY(take_index_head(file));
    return check_index(file);
}

void qdri_token_file_close(qdri_token_file *file)
{
    free(file->path);
    free(file->index);
}
