/* SPDX-License-Identifier: Apache-2.0 */
/* Reads whole files, within limits of size and time. */
#include "quadrille_private/input.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/input.h"
#include "core/kind.h"
#include "core/size.h"

enum { NAME_BYTES = 200, FIRST_BYTES = 1 << 16 };

typedef struct input {
    int file, is_stdin;
    int waits_msecs; /* for the next byte; -1: no limit */
    size_t max_bytes;
    size_t expected_bytes; /* size of a regular file when it was opened; 0: unknown */
    char *bytes;
    size_t n_bytes, capacity;
    char name[NAME_BYTES];
} input;

/* Bytes of a character that cannot be seen, or moves what follows: a control character, or one of Unicode's marks of
 * direction and format, U+00AD, 061C, 180E, 200B to 200F, 2028 to 202E, 2060 to 206F, FEFF, FFF9 to FFFB and E0000 to
 * E01FF; 0: it is none. */
static int control_bytes(const unsigned char *at)
{
    if (*at < ' ' || *at == 0x7f) return 1;
    if (at[0] == 0xc2 && ((at[1] >= 0x80 && at[1] < 0xa0) || at[1] == 0xad)) return 2;
    if (at[0] == 0xd8 && at[1] == 0x9c) return 2;
    if (at[0] == 0xe1 && at[1] == 0xa0 && at[2] == 0x8e) return 3;
    if (at[0] == 0xef && at[1] == 0xbb && at[2] == 0xbf) return 3;
    if (at[0] == 0xef && at[1] == 0xbf && at[2] >= 0xb9 && at[2] <= 0xbb) return 3;
    if (at[0] == 0xf3 && at[1] == 0xa0 && at[2] >= 0x80 && at[2] <= 0x87 && at[3] >= 0x80) return 4;
    if (at[0] != 0xe2) return 0;
    if (at[1] == 0x80 && ((at[2] >= 0x8b && at[2] <= 0x8f) || (at[2] >= 0xa8 && at[2] <= 0xae))) return 3;
    return at[1] == 0x81 && at[2] >= 0xa0 && at[2] <= 0xaf ? 3 : 0;
}

void qdr_text_hide_controls(char *text)
{
    char *to = text;
    for (const char *from = text; text && *from; to++) {
        const int n = control_bytes((const unsigned char *)from);
        *to = n ? '?' : *from;
        from += n ? n : 1;
    }
    if (text) *to = '\0';
}

/* The end of a long name is more informative than its beginning. */
void qdri_input_name(const char *path, char *name, size_t capacity)
{
    const size_t bytes = strlen(path);
    if (strcmp(path, "-") == 0)
        snprintf(name, capacity, "standard input");
    else if (bytes < capacity)
        snprintf(name, capacity, "%s", path);
    else
        snprintf(name, capacity, "...%s", path + bytes - (capacity - 4));
    qdr_text_hide_controls(name);
}

qdri_shown_name qdri_shown(const char *path)
{
    qdri_shown_name name;
    qdri_input_name(path, name.text, sizeof name.text);
    return name;
}

qdr_status qdri_cannot_open(const char *shown, const char *remedy)
{
    return QDR_FAIL(QDR_ERR_IO, "%s cannot be opened (%s)%s%s", shown, strerror(errno), remedy ? "; " : "",
                    remedy ? remedy : "");
}

static qdr_status too_large(const input *in)
{
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is larger than %zu %s, the limit for such a file", in->name,
                    in->max_bytes >> 20 ? in->max_bytes >> 20 : in->max_bytes, in->max_bytes >> 20 ? "MiB" : "bytes");
}

static qdr_status unreadable(const input *in)
{
    return QDR_FAIL(QDR_ERR_IO, "%s cannot be read (%s)", in->name, strerror(errno));
}

/* Does not wait for a writer, which may never come. */
static qdr_status open_input(input *in, const char *path)
{
    struct stat info;
    in->is_stdin = strcmp(path, "-") == 0;
    in->file = in->is_stdin ? STDIN_FILENO : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
    if (in->file < 0) return qdri_cannot_open(in->name, NULL);
    if (fstat(in->file, &info) != 0) return unreadable(in);
    if (in->is_stdin || isatty(in->file)) in->waits_msecs = -1;
    if (S_ISREG(info.st_mode)) {
        in->expected_bytes = (size_t)info.st_size;
        return in->expected_bytes > in->max_bytes ? too_large(in) : QDR_OK;
    }
    if (S_ISDIR(info.st_mode)) return QDR_FAIL(QDR_ERR_IO, "%s cannot be read (%s)", in->name, strerror(EISDIR));
    if (S_ISFIFO(info.st_mode) || in->waits_msecs < 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is a device or a socket, not a file", in->name);
}

/* ---- reading ---- */

/* Leaves space for one byte more than allowed, so that an excess is detected, and for the terminating zero. */
static qdr_status make_room(input *in)
{
    char *larger = NULL;
    if (in->n_bytes + 1 < in->capacity) return QDR_OK;
    const size_t wanted = in->capacity         ? 2 * in->capacity
                          : in->expected_bytes ? in->expected_bytes + 2
                                               : (size_t)FIRST_BYTES;
    QDR_TRY(QDRI_NEW(wanted, "the contents of a file", &larger));
    if (in->n_bytes) memcpy(larger, in->bytes, in->n_bytes);
    free(in->bytes);
    in->bytes = larger;
    in->capacity = wanted;
    return QDR_OK;
}

/* poll() also reports the end of a pipe; before its first writer it does not. */
static qdr_status wait_for_bytes(const input *in)
{
    struct pollfd wanted = {.fd = in->file, .events = POLLIN};
    int n;
    do n = poll(&wanted, 1, in->waits_msecs);
    while (n < 0 && errno == EINTR);
    if (n < 0) return unreadable(in);
    if (n > 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_IO, "%s: no byte arrived in %g s; start the program that writes to it, or name a file",
                    in->name, 1e-3 * in->waits_msecs);
}

static qdr_status read_all(input *in)
{
    for (ssize_t got = -1; got != 0;) {
        QDR_TRY(make_room(in));
        QDR_TRY(wait_for_bytes(in));
        got = read(in->file, in->bytes + in->n_bytes, in->capacity - in->n_bytes - 1);
        if (got < 0 && errno != EINTR && errno != EAGAIN) return unreadable(in);
        if (got > 0) in->n_bytes += (size_t)got;
        if (in->n_bytes > in->max_bytes) return too_large(in);
        if (in->expected_bytes && in->n_bytes > in->expected_bytes)
            return QDR_FAIL(QDR_ERR_ARGUMENT,
                            "%s grew beyond its %zu bytes while it was read; wait until it is complete", in->name,
                            in->expected_bytes);
    }
    in->bytes[in->n_bytes] = '\0';
    return QDR_OK;
}

qdr_status qdri_input_read_within(const char *path, size_t max_bytes, int waits_msecs, char **bytes, size_t *n_bytes)
{
    input in = {.max_bytes = max_bytes, .waits_msecs = waits_msecs};
    *bytes = NULL;
    *n_bytes = 0;
    qdri_input_name(path, in.name, sizeof in.name);
    qdr_status status = open_input(&in, path);
    if (status == QDR_OK) status = read_all(&in);
    if (in.file >= 0 && !in.is_stdin) close(in.file);
    if (status != QDR_OK) {
        free(in.bytes);
        return status;
    }
    *bytes = in.bytes;
    *n_bytes = in.n_bytes;
    return QDR_OK;
}

qdr_status qdr_input_read(const char *path, size_t max_bytes, char **bytes, size_t *n_bytes)
{
    if (bytes) *bytes = NULL;
    if (n_bytes) *n_bytes = 0;
    if (!path || !bytes || !n_bytes) return QDR_FAIL(QDR_ERR_ARGUMENT, "input: the path or the result pointer is NULL");
    return qdri_input_read_within(path, max_bytes, 1000 * QDR_INPUT_WAIT_SECS, bytes, n_bytes);
}

qdr_status qdr_input_read_text(const char *path, size_t max_bytes, char **bytes, size_t *n_bytes)
{
    char name[NAME_BYTES];
    QDR_TRY(qdr_input_read(path, max_bytes, bytes, n_bytes));
    const char *kind = qdri_kind_of_file(*bytes, *n_bytes, 1);
    const size_t n_mark = qdri_mark_bytes(*bytes, *n_bytes);
    *n_bytes -= n_mark;
    memmove(*bytes, *bytes + n_mark, *n_bytes + 1);
    if (!kind) return QDR_OK;
    free(*bytes);
    *bytes = NULL;
    *n_bytes = 0;
    qdri_input_name(path, name, sizeof name);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is %s", name, kind);
}

int qdri_has_ending(const char *text, const char *ending)
{
    const size_t length = strlen(text), n = strlen(ending);
    return length > n && strcmp(text + length - n, ending) == 0;
}

int qdri_input_is_there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0 && S_ISREG(info.st_mode) && access(path, R_OK) == 0;
}
