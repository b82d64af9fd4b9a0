/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapped calls of files. They have the names that glibc gives them where offsets have 64 bits. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <sys/types.h>

#include "fault/inject.h"

static atomic_int error_to_set;
static atomic_size_t most_bytes;

void inject_file_error(int error, size_t n_bytes)
{
    atomic_store(&error_to_set, error);
    atomic_store(&most_bytes, n_bytes);
}

/* -1 with errno, if the call is to fail. */
static int fails(inject_kind kind)
{
    if (!inject_call(kind)) return 0;
    errno = atomic_load(&error_to_set);
    return -1;
}

/* ---- what is not on the disk yet ---- */

enum { MOST_DESCRIPTORS = 1024, CLEAN = 0, FILE_WRITTEN, FOLDER_CHANGED };
static atomic_char states[MOST_DESCRIPTORS];
static atomic_int n_files, n_folders;

void inject_unsynced_begin(void)
{
    atomic_store(&n_files, 0);
    atomic_store(&n_folders, 0);
}

inject_unsynced inject_unsynced_now(void)
{
    return (inject_unsynced){.files = atomic_load(&n_files), .folders = atomic_load(&n_folders)};
}

static void set_state(int file, char state)
{
    if (file >= 0 && file < MOST_DESCRIPTORS) atomic_store(&states[file], state);
}

static void look_at_closed(int file)
{
    const int state = file >= 0 && file < MOST_DESCRIPTORS ? atomic_exchange(&states[file], CLEAN) : CLEAN;
    if (state == FILE_WRITTEN) (void)atomic_fetch_add(&n_files, 1);
    if (state == FOLDER_CHANGED) (void)atomic_fetch_add(&n_folders, 1);
}

/* Any descriptor of the file counts: each process that has written must have synced. */
static void look_at_named(int folder, const char *name)
{
    struct stat named, file;
    if (fstatat(folder, name, &named, AT_SYMLINK_NOFOLLOW) != 0) return;
    for (int i = 0; i < MOST_DESCRIPTORS; i++)
        if (atomic_load(&states[i]) == FILE_WRITTEN && fstat(i, &file) == 0 && file.st_dev == named.st_dev &&
            file.st_ino == named.st_ino)
            (void)atomic_fetch_add(&n_files, 1);
}

static int synced(int file, int result)
{
    if (result == 0) set_state(file, CLEAN);
    return result;
}

/* ---- the calls ---- */

/* The linker gives these names; they are reserved for that. */
ssize_t __real_write(int file, const void *from, size_t n_bytes);
int __real_open64(const char *path, int flags, ...);
int __real_openat64(int folder, const char *path, int flags, ...);
ssize_t __real_pwrite64(int file, const void *from, size_t n_bytes, off_t at);
ssize_t __real_pread64(int file, void *to, size_t n_bytes, off_t at);
int __real_fallocate64(int file, int mode, off_t at, off_t n_bytes);
int __real_ftruncate64(int file, off_t n_bytes);
int __real_fsync(int file);
int __real_fdatasync(int file);
int __real_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __real_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
int __real_unlinkat(int folder, const char *path, int flags);
int __real_flock(int file, int operation);
int __real_close(int file);
ssize_t __wrap_write(int file, const void *from, size_t n_bytes);
int __wrap_open64(const char *path, int flags, ...);
int __wrap_openat64(int folder, const char *path, int flags, ...);
ssize_t __wrap_pwrite64(int file, const void *from, size_t n_bytes, off_t at);
ssize_t __wrap_pread64(int file, void *to, size_t n_bytes, off_t at);
int __wrap_fallocate64(int file, int mode, off_t at, off_t n_bytes);
int __wrap_ftruncate64(int file, off_t n_bytes);
int __wrap_fsync(int file);
int __wrap_fdatasync(int file);
int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to);
int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags);
int __wrap_unlinkat(int folder, const char *path, int flags);
int __wrap_flock(int file, int operation);
int __wrap_close(int file);

/* The permissions of a file that is created. */
static int mode_of(int flags, va_list arguments) { return flags & O_CREAT ? va_arg(arguments, int) : 0; }

int __wrap_open64(const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const int mode = mode_of(flags, arguments);
    va_end(arguments);
    return fails(INJECT_OPEN) ? -1 : __real_open64(path, flags, mode);
}

int __wrap_openat64(int folder, const char *path, int flags, ...)
{
    va_list arguments;
    va_start(arguments, flags);
    const int mode = mode_of(flags, arguments);
    va_end(arguments);
    return fails(INJECT_OPEN) ? -1 : __real_openat64(folder, path, flags, mode);
}

/* Sets *n_bytes to what is to be moved; -1 with errno. */
static int shortens(inject_kind kind, size_t *n_bytes)
{
    if (!fails(kind)) return 0;
    const size_t most = atomic_load(&most_bytes);
    if (errno) return -1;
    if (*n_bytes > most) *n_bytes = most;
    return 0;
}

ssize_t __wrap_pwrite64(int file, const void *from, size_t n_bytes, off_t at)
{
    if (shortens(INJECT_WRITE, &n_bytes)) return -1;
    const ssize_t n = __real_pwrite64(file, from, n_bytes, at);
    if (n > 0) set_state(file, FILE_WRITTEN);
    return n;
}

/* Does not fail. */
ssize_t __wrap_write(int file, const void *from, size_t n_bytes)
{
    const ssize_t n = __real_write(file, from, n_bytes);
    if (n > 0) set_state(file, FILE_WRITTEN);
    return n;
}

ssize_t __wrap_pread64(int file, void *to, size_t n_bytes, off_t at)
{
    return shortens(INJECT_READ, &n_bytes) ? -1 : __real_pread64(file, to, n_bytes, at);
}

int __wrap_fallocate64(int file, int mode, off_t at, off_t n_bytes)
{
    return fails(INJECT_RESERVE) ? -1 : __real_fallocate64(file, mode, at, n_bytes);
}

int __wrap_ftruncate64(int file, off_t n_bytes)
{
    return fails(INJECT_TRUNCATE) ? -1 : __real_ftruncate64(file, n_bytes);
}

int __wrap_fsync(int file) { return fails(INJECT_SYNC) ? -1 : synced(file, __real_fsync(file)); }

int __wrap_fdatasync(int file) { return fails(INJECT_SYNC) ? -1 : synced(file, __real_fdatasync(file)); }

int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    if (fails(INJECT_RENAME)) return -1;
    look_at_named(from_folder, from);
    const int result = __real_renameat(from_folder, from, to_folder, to);
    if (result == 0) set_state(to_folder, FOLDER_CHANGED);
    return result;
}

int __wrap_linkat(int from_folder, const char *from, int to_folder, const char *to, int flags)
{
    return fails(INJECT_LINK) ? -1 : __real_linkat(from_folder, from, to_folder, to, flags);
}

int __wrap_unlinkat(int folder, const char *path, int flags)
{
    return fails(INJECT_UNLINK) ? -1 : __real_unlinkat(folder, path, flags);
}

int __wrap_flock(int file, int operation) { return fails(INJECT_LOCK) ? -1 : __real_flock(file, operation); }

int __wrap_close(int file)
{
    look_at_closed(file);
    const int result = __real_close(file);
    return fails(INJECT_CLOSE) ? -1 : result;
}
