/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* flock, getrandom */
#include "files/partial.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/input.h"
#include "core/log.h"
#include "core/size.h"
#include "files/at.h"
#include "files/path.h"

#define ENDING ".partial"
enum {
    MOST_TRIES = 100,
    PAUSE_NSECS = 10000000,
    NUMBER_BYTES = 16 /* ".1" */
};

struct qdri_partial {
    char path[QDRI_PATH_BYTES]; /* the caller's */
    char full[QDRI_PATH_BYTES + QDRI_NAME_BYTES];
    char name[QDRI_NAME_BYTES], draft[QDRI_NAME_BYTES]; /* in the folder; draft "": none */
    unsigned char mark[sizeof((qdri_partial_ticket *)NULL)->mark];
    int folder, descriptor;
};

qdr_status qdri_partial_fail(const char *path, int error)
{
    char shown[300];
    qdri_input_name(path, shown, sizeof shown);
    if (error == EWOULDBLOCK)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s cannot be written: another run is writing %s" ENDING "; name another file", shown, shown);
    if (error == ENOTBLK)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s cannot be written: it is no regular file; name another one", shown);
    const char *why = strerror(error), *remedy = qdri_write_remedy(error); /* NOLINT(concurrency-mt-unsafe) */
    if (error == ENOENT || error == ENOTDIR || error == EACCES || error == EPERM || error == EISDIR || error == ELOOP ||
        error == ENAMETOOLONG || error == EROFS || error == ETXTBSY)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s cannot be written (%s); %s", shown, why, remedy);
    return QDR_FAIL(QDR_ERR_IO, "%s could not be written (%s); %s", shown, why, remedy);
}

/* Whether an open file still has the name. */
static int has_name(const qdri_partial *self, int descriptor)
{
    struct stat file, named;
    return fstat(descriptor, &file) == 0 && fstatat(self->folder, self->draft, &named, AT_SYMLINK_NOFOLLOW) == 0 &&
           file.st_dev == named.st_dev && file.st_ino == named.st_ino;
}

/* A file system without locks cannot say whether a run has the file: then none has it. */
static int is_locked(int descriptor) { return flock(descriptor, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK; }

/* Removes what a dead run has left. Returns 0, EWOULDBLOCK if a run has it, or another error. */
static int remove_left(const qdri_partial *self)
{
    struct stat info;
    const int number = openat(self->folder, self->draft, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (number < 0) return errno == ENOENT ? 0 : errno;
    int error = 0;
    if (fstat(number, &info) != 0 || !S_ISREG(info.st_mode))
        error = ENOTBLK;
    else if (is_locked(number))
        error = EWOULDBLOCK;
    else if (has_name(self, number) && unlinkat(self->folder, self->draft, 0) != 0)
        error = errno;
    close(number);
    return error;
}

/* Between its creation and its lock another process may take the file for one that was left, and remove it. */
static int make_draft(qdri_partial *self)
{
    for (int i = 0; i < MOST_TRIES; i++) {
        const struct timespec pause = {.tv_nsec = PAUSE_NSECS};
        const int error = remove_left(self);
        if (error) return error;
        const int number = openat(self->folder, self->draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC,
                                  0666);
        if (number < 0 && errno != EEXIST) return errno;
        if (number >= 0 && !is_locked(number) && has_name(self, number)) {
            self->descriptor = number;
            return 0;
        }
        if (number >= 0) close(number);
        nanosleep(&pause, NULL);
    }
    return EWOULDBLOCK;
}

/* Other nodes can read it then. */
static int write_mark(qdri_partial *self)
{
    unsigned char *random = self->mark + 8;
    const size_t n = sizeof self->mark - 8;
    if (getrandom(random, n, 0) != (ssize_t)n) return errno;
    const int error = qdri_write_at(self->descriptor, 0, self->mark, sizeof self->mark);
    return error ? error : qdri_sync(self->descriptor);
}

/* Returns 0, or an error number. */
static int open_draft(qdri_partial *self, const char *path)
{
    struct stat old;
    qdri_path resolved;
    if (stat(path, &old) != 0) {
        if (errno != ENOENT) return errno;
        old.st_mode = 0;
    }
    if (S_ISDIR(old.st_mode)) return EISDIR;
    if (old.st_mode && !S_ISREG(old.st_mode)) return ENOTBLK;
    if (old.st_mode && access(path, W_OK) != 0) return errno;
    int error = qdri_path_resolve(path, &resolved);
    if (error) return error;
    if (!resolved.name[0]) return EISDIR;
    if (strlen(resolved.name) + sizeof ENDING + NUMBER_BYTES > sizeof self->draft) return ENAMETOOLONG;
    memcpy(self->name, resolved.name, sizeof self->name);
    snprintf(self->draft, sizeof self->draft, "%.*s" ENDING, QDRI_NAME_BYTES - NUMBER_BYTES, self->name);
    snprintf(self->full, sizeof self->full, "%s/%s", resolved.folder, self->draft);
    self->folder = open(resolved.folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (self->folder < 0) return errno;
    error = make_draft(self);
    if (error) {
        self->draft[0] = '\0';
        return error;
    }
    if (old.st_mode) {
        (void)!fchown(self->descriptor, old.st_uid, old.st_gid);
        (void)!fchmod(self->descriptor, old.st_mode & 0777);
    }
    return write_mark(self);
}

qdr_status qdri_partial_create(const char *path, qdri_partial **partial)
{
    *partial = NULL;
    if (!*path || strlen(path) >= QDRI_PATH_BYTES) return qdri_partial_fail(path, *path ? ENAMETOOLONG : ENOENT);
    QDR_TRY(QDRI_NEW(1, "a file that is being written", partial));
    qdri_partial *self = *partial;
    memcpy(self->path, path, strlen(path) + 1);
    self->folder = self->descriptor = -1;
    const int error = open_draft(self, path);
    if (error) qdri_partial_discard(partial);
    return error ? qdri_partial_fail(path, error) : QDR_OK;
}

qdri_partial_ticket qdri_partial_ticket_of(const qdri_partial *partial)
{
    qdri_partial_ticket ticket = {.name = ""};
    snprintf(ticket.name, sizeof ticket.name, "%s", partial->full);
    memcpy(ticket.mark, partial->mark, sizeof ticket.mark);
    return ticket;
}

/* Whether a file that is open begins with the mark; it is opened once more, for reading. */
static int has_mark(const qdri_partial_ticket *ticket, int descriptor)
{
    unsigned char found[sizeof ticket->mark];
    struct stat written, read;
    const int number = open(ticket->name, O_RDONLY | O_CLOEXEC);
    if (number < 0) return 0;
    ssize_t n;
    do n = pread(number, found, sizeof found, 0);
    while (n < 0 && errno == EINTR);
    const int is_same = n == (ssize_t)sizeof found && memcmp(found, ticket->mark, sizeof found) == 0 &&
                        fstat(descriptor, &written) == 0 && fstat(number, &read) == 0 &&
                        written.st_ino == read.st_ino && written.st_dev == read.st_dev;
    close(number);
    return is_same;
}

qdr_status qdri_partial_join(const qdri_partial_ticket *ticket, const char *who, int *descriptor)
{
    char shown[300];
    qdri_input_name(ticket->name, shown, sizeof shown);
    *descriptor = open(ticket->name, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    if (*descriptor < 0)
        return QDR_FAIL(QDR_ERR_IO, "%s, which rank 0 has made, cannot be opened on %s (%s); %s", shown, who,
                        strerror(errno), /* NOLINT(concurrency-mt-unsafe) */
                        errno == ENOENT ? "name a file in a folder that all ranks see" : qdri_write_remedy(errno));
    if (has_mark(ticket, *descriptor)) return QDR_OK;
    close(*descriptor);
    *descriptor = -1;
    return QDR_FAIL(QDR_ERR_IO,
                    "%s on %s is not the file that rank 0 has made; name a file in a folder that all ranks see, and to "
                    "which no other run saves",
                    shown, who);
}

int qdri_partial_descriptor(const qdri_partial *partial) { return partial->descriptor; }

static const char *numbered(const qdri_partial *self, int number, char name[QDRI_NAME_BYTES + NUMBER_BYTES])
{
    snprintf(name, QDRI_NAME_BYTES + NUMBER_BYTES, "%s.%d", self->name, number);
    return name;
}

static int exists(const qdri_partial *self, const char *name)
{
    struct stat info;
    return fstatat(self->folder, name, &info, AT_SYMLINK_NOFOLLOW) == 0;
}

static int move(const qdri_partial *self, int from, int to)
{
    char old[QDRI_NAME_BYTES + NUMBER_BYTES], new[QDRI_NAME_BYTES + NUMBER_BYTES];
    return renameat(self->folder, numbered(self, from, old), self->folder, numbered(self, to, new)) == 0 ? 0 : errno;
}

/* PATH.1 becomes PATH.2, and so on, up to the first name that is free, or the last that is kept; then PATH.0 becomes
 * PATH.1. Each step replaces a file that is kept under another name, or the last one. */
static int shift_older(const qdri_partial *self, int keep)
{
    char name[QDRI_NAME_BYTES + NUMBER_BYTES];
    int n = 1, error = 0;
    if (!exists(self, numbered(self, 0, name))) return 0;
    while (n < keep && exists(self, numbered(self, n, name))) n++;
    for (; n > 0 && !error; n--) error = move(self, n - 1, n);
    return error;
}

static int is_same(const qdri_partial *self, const char *left, const char *right)
{
    struct stat a, b;
    return fstatat(self->folder, left, &a, AT_SYMLINK_NOFOLLOW) == 0 &&
           fstatat(self->folder, right, &b, AT_SYMLINK_NOFOLLOW) == 0 && a.st_dev == b.st_dev && a.st_ino == b.st_ino;
}

/* The file gets the name PATH.0 as well. A run that was killed may have left one: before its file was in place, or
 * after; then it is kept first. */
static int link_older(const qdri_partial *self, int keep)
{
    char name[QDRI_NAME_BYTES + NUMBER_BYTES];
    if (keep < 1 || !exists(self, self->name)) return 0;
    if (is_same(self, self->name, numbered(self, 0, name))) return 0;
    const int error = shift_older(self, keep);
    if (error) return error;
    return linkat(self->folder, self->name, self->folder, numbered(self, 0, name), 0) == 0 ? 0 : errno;
}

static void warn(const qdri_partial *self, const char *what, int error)
{
    if (error && error != EINVAL)
        qdri_log(QDRI_LOG_WARNING, "%s is complete, but %s: %s", self->path, what,
                 strerror(error)); /* NOLINT(concurrency-mt-unsafe) */
}

static int put_in_place(qdri_partial *self, int keep)
{
    char name[QDRI_NAME_BYTES + NUMBER_BYTES];
    int error = qdri_sync(self->descriptor);
    if (error) return error;
    if (!has_name(self, self->descriptor)) return EWOULDBLOCK; /* without locks, another run has replaced it */
    error = link_older(self, keep);
    if (error) return error;
    if (renameat(self->folder, self->draft, self->folder, self->name) != 0) {
        error = errno;
        if (keep > 0) (void)unlinkat(self->folder, numbered(self, 0, name), 0);
        return error;
    }
    self->draft[0] = '\0';
    if (keep > 0) warn(self, "the older ones have not got their names", shift_older(self, keep));
    warn(self, "may be the older file again after a power failure", qdri_sync(self->folder));
    return 0;
}

qdr_status qdri_partial_commit(qdri_partial **partial, int keep)
{
    const int error = put_in_place(*partial, keep);
    const qdr_status status = error ? qdri_partial_fail((*partial)->path, error) : QDR_OK;
    qdri_partial_discard(partial);
    return status;
}

void qdri_partial_discard(qdri_partial **partial)
{
    if (!partial || !*partial) return;
    qdri_partial *self = *partial;
    *partial = NULL;
    /* Without locks it may be another run's by now. */
    if (self->draft[0] && has_name(self, self->descriptor)) (void)unlinkat(self->folder, self->draft, 0);
    if (self->descriptor >= 0) close(self->descriptor);
    if (self->folder >= 0) close(self->folder);
    free(self);
}
