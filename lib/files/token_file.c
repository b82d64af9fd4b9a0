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

enum { HEAD_BYTES = 4096, CHUNK_BYTES = 32768, INTS_BYTES = 1024 /* a header of 256 int32 */ };

static int ends_in(const char *path, const char *ending)
{
    const size_t n = strlen(path), m = strlen(ending);
    return n > m && strcmp(path + n - m, ending) == 0;
}

/* ---- bytes of files ---- */

/* A file while it is open. */
typedef struct disk {
    const char *path;
    int64_t bytes;
    int descriptor;
    char name[QDRI_TOKEN_NAME_BYTES];
} disk;

static qdr_status changed(const disk *d, int64_t bytes)
{
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s had %" PRId64 " bytes, and now has %" PRId64 "; do not change it meanwhile",
                    d->name, d->bytes, bytes);
}

static qdr_status open_same(const char *path, int64_t bytes, disk *d)
{
    struct stat info;
    *d = (disk){path, bytes, open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY), ""};
    qdri_input_name(path, d->name, sizeof d->name);
    if (d->descriptor < 0) return qdri_cannot_open(d->name, NULL);
    if (fstat(d->descriptor, &info) == 0 && info.st_size == bytes) return QDR_OK;
    close(d->descriptor);
    return changed(d, info.st_size);
}

static qdr_status read_at(const disk *d, int64_t at, void *to, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        const ssize_t got = pread(d->descriptor, (char *)to + done, (size_t)(n - done), at + done);
        if (got == 0) return changed(d, at + done);
        if (got < 0 && errno != EINTR) return QDR_FAIL(QDR_ERR_IO, "%s cannot be read (%s)", d->name, strerror(errno));
        if (got > 0) done += got;
    }
    return QDR_OK;
}

static qdr_status check_kind(const qdri_token_file *file, const struct stat *info)
{
    if (S_ISDIR(info->st_mode))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is a folder; name files, as in 'FOLDER/*.bin'", file->name);
    if (!S_ISREG(info->st_mode))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %s, which cannot be read twice; copy it to a file", file->name,
                        S_ISFIFO(info->st_mode) ? "a pipe" : "a device or a socket");
    if (!info->st_size) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is empty; name a file with tokens", file->name);
    return QDR_OK;
}

/* ---- tokens ---- */

static int64_t token_at(const unsigned char *from, int bytes, int is_signed)
{
    uint64_t raw = 0;
    const uint64_t sign = is_signed ? UINT64_C(1) << (8 * bytes - 1) : 0;
    memcpy(&raw, from, (size_t)bytes);
    return (int64_t)((raw ^ sign) - sign);
}

static qdr_status bad_token(const qdri_token_file *file, int64_t limit, int64_t at, int64_t token)
{
    if (token < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: token %" PRId64 " is %" PRId64 ", but tokens are not negative; is this "
                        "its type?",
                        file->name, at, token);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s: token %" PRId64 " is %" PRId64 ", but the vocabulary has %" PRId64
                    "; take the network for which it was written, or say its type",
                    file->name, at, token, limit);
}

qdr_status qdri_token_file_read(const qdri_token_file *file, int64_t limit, int64_t first, int64_t n, int32_t *to)
{
    unsigned char chunk[CHUNK_BYTES];
    const int64_t bytes = file->token_bytes, most = CHUNK_BYTES / bytes;
    disk d = {.descriptor = -1};
    qdr_status status = QDR_OK;
    if (!file->text) QDR_TRY(open_same(file->path, file->bytes, &d));
    for (int64_t done = 0; done < n && status == QDR_OK; done += most) {
        const int64_t some = n - done < most ? n - done : most, at = file->begin + (first + done) * bytes;
        const unsigned char *from = file->text ? (const unsigned char *)file->text + at : chunk;
        if (!file->text) status = read_at(&d, at, chunk, some * bytes);
        for (int64_t i = 0; i < some && status == QDR_OK; i++) {
            const int64_t token = token_at(from + i * bytes, file->token_bytes, file->is_signed);
            if (token < 0 || token >= limit) status = bad_token(file, limit, first + done + i, token);
            to[done + i] = (int32_t)token;
        }
    }
    if (!file->text) close(d.descriptor);
    return status;
}

/* ---- Megatron's index ---- */

/* 9 bytes of magic, uint64 version, a byte of type, uint64 numbers of sequences and of bounds; then int32 lengths and
 * int64 places, in bytes, of sequences, and int64 bounds of documents, in sequences. */
enum { INDEX_BYTES = 34, CACHE_BYTES = 4096 };
static const char index_magic[9] = "MMIDIDX\0";

/* Bytes around the number that was read last. */
typedef struct cache {
    int64_t begin, end;
    unsigned char bytes[CACHE_BYTES];
} cache;

static qdr_status take(const disk *d, cache *c, int64_t at, int bytes, int64_t *number)
{
    if (at < c->begin || at + bytes > c->end) {
        const int64_t left = d->bytes - at, n = left < CACHE_BYTES ? left : CACHE_BYTES;
        c->begin = at, c->end = at + n;
        QDR_TRY(read_at(d, at, c->bytes, n));
    }
    *number = token_at(c->bytes + (at - c->begin), bytes, 1);
    return QDR_OK;
}

static qdr_status take_length(const disk *d, cache *c, int64_t sequence, int64_t *n_tokens)
{
    return take(d, c, INDEX_BYTES + 4 * sequence, 4, n_tokens);
}

static qdr_status take_place(const qdri_token_file *file, const disk *d, cache *c, int64_t sequence, int64_t *byte)
{
    *byte = file->bytes;
    if (sequence == file->n_sequences) return QDR_OK;
    return take(d, c, INDEX_BYTES + 4 * file->n_sequences + 8 * sequence, 8, byte);
}

static qdr_status take_bound(const qdri_token_file *file, const disk *d, cache *c, int64_t document, int64_t *sequence)
{
    return take(d, c, INDEX_BYTES + 12 * file->n_sequences + 8 * document, 8, sequence);
}

static qdr_status take_index_head(qdri_token_file *file, const disk *d)
{
    static const signed char types[] = {0, 1, -1, -2, -4, -8, 0, 0, 2}; /* bytes of an element, signed: negative */
    unsigned char head[INDEX_BYTES] = {0};
    uint64_t version, counts[2];
    QDR_TRY(read_at(d, 0, head, d->bytes < INDEX_BYTES ? d->bytes : INDEX_BYTES));
    memcpy(&version, head + 9, 8);
    memcpy(counts, head + 18, 16);
    if (memcmp(head, index_magic, sizeof index_magic) != 0 || version != 1 || d->bytes < INDEX_BYTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is no index of Megatron, of version 1: it has %" PRId64 " bytes, and does not begin with "
                        "MMIDIDX and a header of %d; write it again, or remove it if it is something else",
                        d->name, d->bytes, INDEX_BYTES);
    const int type = head[17], bytes = type < (int)sizeof types ? types[type] : 0;
    if (!bytes)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s has elements of type %d, but those of tokens are 1 (uint8), 2 (int8), 3 (int16), 4 "
                        "(int32), 5 (int64) or 8 (uint16); write it again",
                        d->name, type);
    const uint64_t most = (uint64_t)d->bytes;
    if (counts[0] > most || counts[1] > most || INDEX_BYTES + 12 * counts[0] + 8 * counts[1] != most)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s has %" PRId64 " bytes, which are not %d, 12 for each of its %" PRIu64
                        " sequences and 8 for each of its %" PRIu64 " bounds of documents; write it again",
                        d->name, d->bytes, INDEX_BYTES, counts[0], counts[1]);
    file->token_bytes = bytes < 0 ? -bytes : bytes, file->is_signed = bytes < 0;
    file->n = file->bytes / file->token_bytes;
    file->n_sequences = (int64_t)counts[0], file->n_documents = counts[1] ? (int64_t)counts[1] - 1 : 0;
    return QDR_OK;
}

/* Sequences lie one behind the other, and documents are whole sequences. */
static qdr_status check_index(const qdri_token_file *file, const disk *d)
{
    cache lengths = {0}, places = {0};
    int64_t end = 0, n = 0, at = 0, bound = 0;
    for (int64_t i = 0; i < file->n_sequences; i++) {
        QDR_TRY(take_length(d, &lengths, i, &n));
        QDR_TRY(take_place(file, d, &places, i, &at));
        if (n < 0 || at != end)
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s: sequence %" PRId64 " has %" PRId64 " tokens from byte %" PRId64
                            " on, but begins where the one before it ends, at %" PRId64 "; write it again",
                            d->name, i, n, at, end);
        end += n * file->token_bytes;
    }
    if (end != file->bytes)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s has %" PRId64 " bytes, but its index describes %" PRId64 "; copy both again", file->name,
                        file->bytes, end);
    for (int64_t i = 0; file->n_documents && i <= file->n_documents; i++) {
        QDR_TRY(take_bound(file, d, &places, i, &at));
        if (at < bound || at > file->n_sequences || (i == 0 && at) ||
            (i == file->n_documents && at < file->n_sequences))
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s: bound %" PRId64 " of documents is sequence %" PRId64 " of %" PRId64 ", after %" PRId64
                            "; write it again",
                            d->name, i, at, file->n_sequences, bound);
        bound = at;
    }
    return QDR_OK;
}

static qdr_status take_index(qdri_token_file *file)
{
    disk d;
    QDR_TRY(open_same(file->index, file->index_bytes, &d));
    qdr_status status = take_index_head(file, &d);
    if (status == QDR_OK) status = check_index(file, &d);
    close(d.descriptor);
    return status;
}

/* Bisection; documents before `low` begin before the token. */
qdr_status qdri_token_file_document(const qdri_token_file *file, int64_t from, int64_t *begin)
{
    disk d;
    cache c = {0};
    int64_t low = 0, high = file->n_documents;
    qdr_status status = QDR_OK;
    *begin = file->n;
    QDR_TRY(open_same(file->index, file->index_bytes, &d));
    while (low < high && status == QDR_OK) {
        const int64_t middle = low + (high - low) / 2;
        int64_t at = 0;
        status = take_bound(file, &d, &c, middle, &at);
        if (status == QDR_OK) status = take_place(file, &d, &c, at, &at);
        at /= file->token_bytes;
        if (at < from)
            low = middle + 1;
        else
            high = middle, *begin = at;
    }
    close(d.descriptor);
    return status;
}

/* Whether there is PATH.idx beside PATH.bin, whose name is then kept. */
static qdr_status find_index(qdri_token_file *file)
{
    struct stat info;
    if (!ends_in(file->path, ".bin")) return QDR_OK;
    QDR_TRY(qdri_strdup(file->path, &file->index));
    memcpy(file->index + strlen(file->index) - 4, ".idx", 4);
    if (stat(file->index, &info) == 0 && S_ISREG(info.st_mode))
        file->index_bytes = info.st_size;
    else
        free(file->index), file->index = NULL;
    return QDR_OK;
}

/* ---- other layouts ---- */

/* A header of 256 int32. */
static qdr_status take_ints(qdri_token_file *file, const int32_t *ints, int token_bytes)
{
    file->begin = INTS_BYTES;
    file->token_bytes = token_bytes;
    file->n = ints[2];
    if (file->bytes >= INTS_BYTES && file->bytes - INTS_BYTES == file->n * token_bytes) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s has %" PRId64 " bytes, but a header of %d and the %" PRId64 " tokens of %d bytes that it "
                    "names are %" PRId64 "; copy or write it again",
                    file->name, file->bytes, INTS_BYTES, file->n, token_bytes, INTS_BYTES + file->n * token_bytes);
}

static qdr_status take_npy(qdri_token_file *file, const unsigned char *head, size_t n_head)
{
    qdr_npy header;
    QDR_TRY(qdr_npy_read_header(head, n_head, file->name, &header));
    const char *type = header.type, *sizes = "1248";
    const int is_small = *type && type[1] && type[2] == '1' && strchr("<|>=", *type);
    if (strlen(type) != 3 || !strchr("iu", type[1]) || !strchr(sizes, type[2]) || (*type != '<' && !is_small))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s: contains elements of type '%s', but tokens are little-endian integers; save "
                        "a.astype('<u4')",
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
                    "%s has %" PRId64 " bytes, which are no whole number of tokens of %d; is this its "
                    "type?",
                    file->name, file->bytes, file->token_bytes);
}

typedef struct first_tokens {
    char text[64];
} first_tokens;

static first_tokens first_as(const unsigned char *head, size_t n_head, int bytes, int is_signed)
{
    first_tokens list = {""};
    size_t used = 0;
    for (size_t i = 0; i < 4 && (i + 1) * (size_t)bytes <= n_head; i++)
        used += (size_t)snprintf(list.text + used, sizeof list.text - used, "%s%" PRId64, i ? ", " : "",
                                 token_at(head + i * (size_t)bytes, bytes, is_signed));
    return list;
}

static qdr_status ask(const qdri_token_file *file, const unsigned char *head, size_t n_head)
{
    const char *kind = qdri_kind_of_file((const char *)head, n_head, 1);
    if (kind) return QDR_FAIL(QDR_ERR_UNSUPPORTED, "%s is %s", file->name, kind);
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s does not say what its tokens are: as uint16 it begins with %s, as uint32 with %s, as int32 "
                    "with %s; name the type, or text for bytes",
                    file->name, first_as(head, n_head, 2, 0).text, first_as(head, n_head, 4, 0).text,
                    first_as(head, n_head, 4, 1).text);
}

static qdr_status recognise(qdri_token_file *file, const unsigned char *head, size_t n_head)
{
    int32_t ints[4] = {0};
    memcpy(ints, head, n_head < sizeof ints ? n_head : sizeof ints);
    if (n_head >= 6 && memcmp(head, "\x93NUMPY", 6) == 0) return take_npy(file, head, n_head);
    if (n_head >= sizeof index_magic && memcmp(head, index_magic, sizeof index_magic) == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is an index of Megatron; name the .bin beside it", file->name);
    if (ints[0] == 20240522)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s has questions of an evaluation for llm.c (20240522), not tokens one after the other; name "
                        "a file of tokens",
                        file->name);
    if (ints[0] == 20240520 && (ints[1] == 1 || n_head < 8)) return take_ints(file, ints, 2);
    if (ints[0] == 20240801 && (ints[1] == 7 || ints[1] == 1 || n_head < 8)) return take_ints(file, ints, 4);
    if (ints[0] == 278895051 && ints[1] == 1 && (ints[3] == 2 || ints[3] == 4)) return take_ints(file, ints, ints[3]);
    if (ints[0] == 20240520 || ints[0] == 20240801 || ints[0] == 278895051)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "%s: its header is that of tokens, %d, but of version %d and %d bytes, which are not known; "
                        "write it again",
                        file->name, ints[0], ints[1], ints[3]);
    if (memchr(head, 0, n_head) || ends_in(file->path, ".bin") || ends_in(file->path, ".npy"))
        return ask(file, head, n_head);
    return take_raw(file, QDR_TOKENS_TEXT);
}

static qdr_status read_head(qdri_token_file *file)
{
    unsigned char head[HEAD_BYTES];
    disk d;
    const int64_t n_head = file->bytes < HEAD_BYTES ? file->bytes : HEAD_BYTES;
    QDR_TRY(open_same(file->path, file->bytes, &d));
    const qdr_status status = read_at(&d, 0, head, n_head);
    close(d.descriptor);
    return status == QDR_OK ? recognise(file, head, (size_t)n_head) : status;
}

qdr_status qdri_token_file_open(qdri_token_file *file, qdr_token_format format)
{
    struct stat info;
    qdri_input_name(file->path, file->name, sizeof file->name);
    if (file->text) return take_raw(file, QDR_TOKENS_TEXT);
    if (stat(file->path, &info) != 0) return qdri_cannot_open(file->name, NULL);
    QDR_TRY(check_kind(file, &info));
    file->bytes = info.st_size;
    file->device = info.st_dev, file->node = info.st_ino;
    if (format) return take_raw(file, format);
    QDR_TRY(find_index(file));
    return file->index ? take_index(file) : read_head(file);
}

void qdri_token_file_close(qdri_token_file *file)
{
    free(file->path);
    free(file->index);
}
