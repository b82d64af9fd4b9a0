/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear completely or not at all: until they are complete they are drafts, under unpredictable names. */
#define _GNU_SOURCE /* O_PATH, getrandom, flock, fopencookie */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <quadrille_private/output.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "core/size.h"
#include "files/at.h"
#include "files/guard.h"
#include "files/output.h"
#include "files/path.h"

#define ENDING ".part"
enum {
    N_DIGITS = 16,
    N_SHOWN = 200, /* of the name: all names are shorter than QDRI_NAME_BYTES */
    MOST_TRIES = 100
};
enum { READER_TRIES = 500, READER_PAUSE_NSECS = 20000000 /* ten seconds in all */, MOST_KEPT = 100000 };

struct qdr_output {
    FILE *file; /* NULL: finished */
    int number; /* of the open file to which it writes */
    int error; /* an errno value: the first failure of the stream, which stdio forgets; 0: none */
    int folder; /* -1: written directly, and nothing is moved into place */
    qdr_output_kind kind;
    int has_failed;
    char what[48], path[QDRI_PATH_BYTES], kept[QDRI_PATH_BYTES + QDRI_NAME_BYTES + 16];
    char name[QDRI_NAME_BYTES], draft[QDRI_NAME_BYTES]; /* in the folder; draft "": none */
};

/* ---- messages ---- */

static const char *blank_after(const char *what) { return *what ? " " : ""; }

static const char *remedy_for(int error)
{
    if (error == ENXIO) return "start the program that reads it, or name a file";
    return error == ENOTBLK ? "name a file" : qdri_write_remedy(error);
}

static const char *reason_of(int error)
{
    if (error == ENOTBLK) return "it is a disk";
    if (error == ENXIO) return "no program reads from it";
    return strerror(error); /* NOLINT(concurrency-mt-unsafe): thread-safe for known numbers in glibc */
}

static qdr_status fail_write(qdr_output *output, int error)
{
    output->has_failed = 1;
    if (error == EEXIST)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s%s%.300s: exists by now and was not replaced; name another file",
                        output->what, blank_after(output->what), output->path);
    return QDR_FAIL(QDR_ERR_IO, "%s%s%.300s: could not be written (%s); %s", output->what, blank_after(output->what),
                    output->path, reason_of(error), remedy_for(error));
}

/* ---- the stream ---- */

static ssize_t on_write(void *cookie, const char *text, size_t bytes)
{
    qdr_output *output = cookie;
    qdri_guard guard;
    qdri_guard_begin(&guard);
    size_t done = 0;
    int error = 0;
    while (done < bytes && !error) {
        const ssize_t n = write(output->number, text + done, bytes - done);
        if (n < 0 && errno != EINTR) error = errno;
        if (n > 0) done += (size_t)n;
    }
    qdri_guard_end(&guard, error);
    if (error && !output->error) output->error = error;
    if (error) errno = error;
    return (ssize_t)done;
}

static int on_close(void *cookie)
{
    qdr_output *output = cookie;
    const int number = output->number;
    output->number = -1;
    if (close(number) == 0) return 0;
    if (!output->error) output->error = errno;
    return -1;
}

/* ---- drafts: .NAME.0123456789abcdef.part ----
 *
 * Each is locked. The lock ends with the process, so a file that is not locked was left behind. */

/* The name up to the random digits. */
static size_t begin_name(const char *name, char draft[QDRI_NAME_BYTES])
{
    return (size_t)snprintf(draft, QDRI_NAME_BYTES, ".%.*s.", N_SHOWN, name);
}

/* Creates an empty, locked file in the folder, for a file that will be called `name`. Returns its descriptor; -1: errno
 * says why. */
static int make_draft(int folder, const char *name, char draft[QDRI_NAME_BYTES])
{
    const size_t bytes = begin_name(name, draft);
    for (int i = 0; i < MOST_TRIES; i++) {
        uint64_t digits;
        if (getrandom(&digits, sizeof digits, 0) != (ssize_t)sizeof digits) return -1;
        snprintf(draft + bytes, QDRI_NAME_BYTES - bytes, "%016llx" ENDING, (unsigned long long)digits);
        const int number = openat(folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (number < 0 && errno != EEXIST) return -1;
        if (number < 0) continue;
        /* Before it is locked, another process may take the file for a leftover and remove it: then it is not used. */
        struct stat info;
        const int is_refused = flock(number, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
        if (!is_refused && fstat(number, &info) == 0 && info.st_nlink > 0) return number;
        close(number);
    }
    errno = EEXIST;
    return -1;
}

/* Removes this user's drafts for `name` whose processes have ended. */
static void clean_drafts(int folder, const char *name)
{
    char begin[QDRI_NAME_BYTES];
    const size_t bytes = begin_name(name, begin);
    const int listed = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = listed < 0 ? NULL : fdopendir(listed);
    if (listed >= 0 && !entries) close(listed);
    if (!entries) return;
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;) {
        struct stat info;
        if (strncmp(entry->d_name, begin, bytes) != 0 ||
            strspn(entry->d_name + bytes, "0123456789abcdef") != N_DIGITS ||
            strcmp(entry->d_name + bytes + N_DIGITS, ENDING) != 0)
            continue;
        const int number = openat(folder, entry->d_name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
        if (number < 0) continue;
        if (fstat(number, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
            flock(number, LOCK_EX | LOCK_NB) == 0)
            (void)unlinkat(folder, entry->d_name, 0);
        close(number);
    }
    closedir(entries);
}

/* ---- opening ---- */

/* Standard output or error under another name, such as /dev/stdout; sockets cannot be opened a second time. */
static int open_standard(const struct stat *info)
{
    struct stat open_file;
    for (int number = STDOUT_FILENO; number <= STDERR_FILENO; number++)
        if (fstat(number, &open_file) == 0 && open_file.st_dev == info->st_dev && open_file.st_ino == info->st_ino)
            return fcntl(number, F_DUPFD_CLOEXEC, 0);
    return -1;
}

/* In a process without standard output, what it prints would otherwise go into the file. */
static int above_standard(int number)
{
    if (number < 0 || number > STDERR_FILENO) return number;
    const int above = fcntl(number, F_DUPFD_CLOEXEC, STDERR_FILENO + 1), error = errno;
    close(number);
    errno = error;
    return above;
}

/* A FIFO is opened once it has a reader; an open that waits for one might wait forever. */
static int open_directly(const char *path, const struct stat *info)
{
    const struct timespec pause = {.tv_nsec = READER_PAUSE_NSECS};
    int number = open_standard(info);
    if (number >= 0) return number;
    for (int i = 0; i < READER_TRIES; i++) {
        number = open(path, O_WRONLY | O_NOCTTY | O_NONBLOCK | O_CLOEXEC);
        if (number >= 0 || errno != ENXIO || !S_ISFIFO(info->st_mode)) break;
        nanosleep(&pause, NULL);
    }
    if (number >= 0) (void)fcntl(number, F_SETFL, fcntl(number, F_GETFL) & ~O_NONBLOCK);
    return number;
}

/* What exists under a name. Returns 0 if a regular file can be moved there, or, with *is_direct set, if something else
 * must be written directly; otherwise an error number. */
static int look_at(const char *path, struct stat *info, int *is_direct)
{
    *is_direct = 0;
    if (strcmp(path, "-") == 0) return EINVAL;
    if (stat(path, info) != 0) {
        info->st_mode = 0;
        return errno == ENOENT ? 0 : errno;
    }
    if (S_ISDIR(info->st_mode)) return EISDIR;
    if (S_ISBLK(info->st_mode)) return ENOTBLK;
    if (access(path, W_OK) != 0) return errno;
    *is_direct = !S_ISREG(info->st_mode);
    return 0;
}

/* Opens the folder and creates the draft, which gets the owner and the permissions of the file that it will replace. */
static int open_draft(qdr_output *output, const struct stat *old)
{
    qdri_path resolved;
    const int error = qdri_path_resolve(output->path, &resolved);
    if (error || !resolved.name[0]) {
        errno = error ? error : EISDIR;
        return -1;
    }
    memcpy(output->name, resolved.name, sizeof output->name);
    output->folder = open(resolved.folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (output->folder < 0) return -1;
    clean_drafts(output->folder, output->name);
    const int number = make_draft(output->folder, output->name, output->draft);
    if (number < 0) {
        output->draft[0] = '\0';
        return -1;
    }
    if (!old->st_mode) return number;
    (void)!fchown(number, old->st_uid, old->st_gid);
    (void)!fchmod(number, old->st_mode & 0777);
    return number;
}

/* Adds a second name for the older file; without hard links, renames it. */
static int rename_old(int folder, const char *name, const char *to)
{
    struct stat info;
    if (linkat(folder, name, folder, to, 0) == 0) return 0;
    if (errno == EEXIST) return EEXIST;
    if (fstatat(folder, to, &info, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    return renameat(folder, name, folder, to) == 0 ? 0 : errno;
}

/* How the user finds the older file: below the place that a link led to. */
static void set_kept(qdr_output *output, const char *name)
{
    struct stat info;
    qdri_path resolved;
    const int is_link = lstat(output->path, &info) == 0 && S_ISLNK(info.st_mode);
    if (is_link && qdri_path_resolve(output->path, &resolved) == 0)
        snprintf(output->kept, sizeof output->kept, "%s/%s", resolved.folder, name);
    else
        snprintf(output->kept, sizeof output->kept, "%s%s", output->path, strrchr(name, '.'));
}

/* A log has its final name from the beginning. */
static int begin_log(qdr_output *output, const struct stat *old)
{
    char to[QDRI_NAME_BYTES + 16];
    int error = old->st_mode && old->st_size > 0 ? EEXIST : 0; /* keeps an older one */
    for (int i = 1; error == EEXIST && i <= MOST_KEPT; i++) {
        snprintf(to, sizeof to, "%s.%d", output->name, i);
        error = rename_old(output->folder, output->name, to);
        if (!error) set_kept(output, to);
    }
    if (error) return error;
    if (renameat(output->folder, output->draft, output->folder, output->name) != 0) return errno;
    output->draft[0] = '\0';
    return 0;
}

/* Returns 0, or an error number. */
static int open_any(qdr_output *output)
{
    struct stat info;
    int is_direct;
    int error = look_at(output->path, &info, &is_direct);
    if (error) return error;
    if (info.st_mode && !is_direct && output->kind == QDR_OUTPUT_NEW) return EEXIST;
    const int number = above_standard(is_direct ? open_directly(output->path, &info) : open_draft(output, &info));
    if (number < 0) return errno;
    output->number = number;
    output->file = fopencookie(output, "w", (cookie_io_functions_t){.write = on_write, .close = on_close});
    if (!output->file) {
        error = errno;
        close(number);
        return error;
    }
    return !is_direct && output->kind == QDR_OUTPUT_LOG ? begin_log(output, &info) : 0;
}

qdr_status qdr_output_open(const char *what, const char *path, qdr_output_kind kind, qdr_output **output)
{
    QDR_TRY(QDRI_CLEAR_POINTER("output", output));
    if (!what || !path || (unsigned)kind > QDR_OUTPUT_LOG)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "output: the name or the path is NULL, or the kind %d is unknown", (int)kind);
    if (strcmp(path, "-") == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s%s-: standard output is used already; name a file (./- for a file of that name)", what,
                        blank_after(what));
    if (!*path) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s%s'': the name is empty; name a file", what, blank_after(what));
    if (strlen(path) >= QDRI_PATH_BYTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s%s%.100s...: the path has %zu bytes; at most %d are possible", what,
                        blank_after(what), path, strlen(path), QDRI_PATH_BYTES - 1);
    qdr_output *made;
    QDR_TRY(QDRI_NEW(1, "an output", &made));
    made->folder = -1;
    made->kind = kind;
    snprintf(made->what, sizeof made->what, "%s", what);
    memcpy(made->path, path, strlen(path) + 1);
    const int error = open_any(made);
    if (!error) {
        *output = made;
        return QDR_OK;
    }
    qdr_output_discard(&made);
    if (error == ENOMEM)
        return QDR_FAIL(QDR_ERR_MEMORY, "%s%s%.300s: out of memory for its names; free some", what, blank_after(what),
                        path);
    const int is_of_system = error == ENOSPC || error == EDQUOT || error == EIO || error == EMFILE || error == ENFILE ||
                             error == EFBIG;
    return qdri_fail(is_of_system ? QDR_ERR_IO : QDR_ERR_ARGUMENT, __FILE__, __LINE__,
                     "%s%s%.300s: cannot be written (%s); %s", what, blank_after(what), path, reason_of(error),
                     remedy_for(error));
}

qdr_status qdr_output_try(const char *what, const char *path)
{
    struct stat info;
    int is_direct = 0;
    qdr_output *output;
    if (what && path && look_at(path, &info, &is_direct) == 0 && is_direct) return QDR_OK;
    const qdr_status status = qdr_output_open(what, path, QDR_OUTPUT_REPLACE, &output);
    qdr_output_discard(&output);
    return status;
}

int qdr_output_replaces(const char *path)
{
    struct stat info;
    return path && stat(path, &info) == 0 && S_ISREG(info.st_mode);
}

int qdri_output_descriptor(const qdr_output *output) { return output->folder < 0 ? -1 : output->number; }

FILE *qdr_output_file(const qdr_output *output) { return output ? output->file : NULL; }

const char *qdr_output_kept(const qdr_output *output) { return output ? output->kept : ""; }

/* ---- ending ---- */

/* The first failure of a write, or else of the call that has just failed; EIO if the caller made the stream fail in
 * another way, such as by reading from it. */
static int cause_of(const qdr_output *output)
{
    if (output->error) return output->error;
    return errno ? errno : EIO;
}

/* Closes the file. Returns 0, or the number of the first error. */
static int close_file(qdr_output *output)
{
    FILE *file = output->file;
    int error = 0;
    output->file = NULL;
    errno = 0;
    if (fflush(file) != 0 || ferror(file) || output->error) error = cause_of(output);
    if (!error && output->folder >= 0 && fsync(output->number) != 0 && errno != EINVAL) error = errno;
    if (fclose(file) != 0 && !error) error = cause_of(output);
    return error;
}

qdr_status qdr_output_finish(qdr_output *output)
{
    if (!output) return QDR_FAIL(QDR_ERR_ARGUMENT, "output: NULL cannot be finished");
    if (output->has_failed) return QDR_FAIL(QDR_ERR_IO, "output: %.300s has failed already", output->path);
    const int error = output->file ? close_file(output) : 0;
    return error ? fail_write(output, error) : QDR_OK;
}

/* A hard link fails if something exists there by now; some file systems have none. */
static int put_new(const qdr_output *output)
{
    struct stat info;
    if (linkat(output->folder, output->draft, output->folder, output->name, 0) == 0)
        return unlinkat(output->folder, output->draft, 0) == 0 ? 0 : errno;
    if (errno == EEXIST || fstatat(output->folder, output->name, &info, AT_SYMLINK_NOFOLLOW) == 0) return EEXIST;
    return renameat(output->folder, output->draft, output->folder, output->name) == 0 ? 0 : errno;
}

static int put_in_place(qdr_output *output)
{
    if (!output->draft[0]) return 0; /* a log, or not a regular file */
    const int error = output->kind == QDR_OUTPUT_NEW                                               ? put_new(output)
                      : renameat(output->folder, output->draft, output->folder, output->name) == 0 ? 0
                                                                                                   : errno;
    if (!error) output->draft[0] = '\0';
    return error;
}

qdr_status qdr_output_commit(qdr_output **output)
{
    if (!output || !*output) return QDR_FAIL(QDR_ERR_ARGUMENT, "output: NULL cannot be committed");
    qdr_status status = qdr_output_finish(*output);
    if (status == QDR_OK) {
        const int error = put_in_place(*output);
        if (error) status = fail_write(*output, error);
    }
    qdr_output_discard(output);
    return status;
}

void qdr_output_discard(qdr_output **output)
{
    if (!output || !*output) return;
    if ((*output)->file) (void)fclose((*output)->file);
    if ((*output)->draft[0]) (void)unlinkat((*output)->folder, (*output)->draft, 0);
    if ((*output)->folder >= 0) close((*output)->folder);
    free(*output);
    *output = NULL;
}
