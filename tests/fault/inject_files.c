/* SPDX-License-Identifier: Apache-2.0 */
/* The wrapped calls of files. They have the names that glibc gives them where offsets have 64 bits. */
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdatomic.h>
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

/* The linker gives these names; they are reserved for that. */
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
    return shortens(INJECT_WRITE, &n_bytes) ? -1 : __real_pwrite64(file, from, n_bytes, at);
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

int __wrap_fsync(int file) { return fails(INJECT_SYNC) ? -1 : __real_fsync(file); }

int __wrap_fdatasync(int file) { return fails(INJECT_SYNC) ? -1 : __real_fdatasync(file); }

int __wrap_renameat(int from_folder, const char *from, int to_folder, const char *to)
{
    return fails(INJECT_RENAME) ? -1 : __real_renameat(from_folder, from, to_folder, to);
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
    const int result = __real_close(file);
    return fails(INJECT_CLOSE) ? -1 : result;
}
