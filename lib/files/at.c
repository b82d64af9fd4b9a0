/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sync_file_range, fallocate */
#include "files/at.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "files/guard.h"

static int write_all(int descriptor, int64_t at, const char *next, size_t n_bytes)
{
    while (n_bytes > 0) {
        const ssize_t done = pwrite(descriptor, next, n_bytes, (off_t)at);
        if (done < 0 && errno == EINTR) continue;
        if (done <= 0) return done < 0 ? errno : EIO;
        next += done;
        at += done;
        n_bytes -= (size_t)done;
    }
    return 0;
}

int qdri_write_at(int descriptor, int64_t at, const void *from, size_t n_bytes)
{
    qdri_guard guard;
    qdri_guard_begin(&guard);
    const int error = write_all(descriptor, at, from, n_bytes);
    qdri_guard_end(&guard, error);
    return error;
}

/* posix_fallocate() would not do: where a file system cannot reserve room, glibc writes a byte into each block that
 * seems empty, and so undoes what another process writes there at the same time. */
static int reserve(int descriptor, off_t n_bytes)
{
    int error;
    do error = fallocate(descriptor, 0, 0, n_bytes) ? errno : 0;
    while (error == EINTR);
    if (error != EOPNOTSUPP && error != ENOSYS && error != EINVAL) return error;
    do error = ftruncate(descriptor, n_bytes) ? errno : 0;
    while (error == EINTR);
    return error;
}

int qdri_reserve(int descriptor, int64_t n_bytes)
{
    qdri_guard guard;
    if (!n_bytes) return 0;
    qdri_guard_begin(&guard);
    const int error = reserve(descriptor, (off_t)n_bytes);
    qdri_guard_end(&guard, error);
    return error;
}

int qdri_sync(int descriptor)
{
    int error;
    do error = fsync(descriptor) ? errno : 0;
    while (error == EINTR);
    return error;
}

int qdri_sync_data(int descriptor)
{
    int error;
    do error = fdatasync(descriptor) ? errno : 0;
    while (error == EINTR);
    return error;
}

void qdri_write_soon(int descriptor, int64_t at, size_t n_bytes)
{
#ifdef SYNC_FILE_RANGE_WRITE
    const int64_t page_bytes = sysconf(_SC_PAGESIZE), begin = (at + page_bytes - 1) / page_bytes * page_bytes;
    const int64_t end = (at + (int64_t)n_bytes) / page_bytes * page_bytes;
    if (end > begin) (void)sync_file_range(descriptor, begin, end - begin, SYNC_FILE_RANGE_WRITE);
#else
    (void)descriptor, (void)at, (void)n_bytes;
#endif
}

const char *qdri_write_remedy(int error)
{
    switch (error) {
    case ENOSPC:
    case EDQUOT: return "make room, or name a file on another disk";
    case EFBIG: return "raise the limit on the size of files (ulimit -f)";
    case EISDIR: return "name a file in it";
    case EEXIST: return "name another one";
    case EMFILE:
    case ENFILE: return "close files, or raise the limit (ulimit -n)";
    case EIO: return "check the disk, or name a file on another one";
    default: return "name a file in a folder that exists and is writable";
    }
}

const char *qdri_read_remedy(int error)
{
    switch (error) {
    case ENOENT:
    case ENOTDIR: return "name a file that exists, and that this rank sees";
    case EACCES:
    case EPERM: return "allow reading it (chmod +r)";
    case EMFILE:
    case ENFILE: return qdri_write_remedy(error);
    default: return "check the disk, or use another copy of the file";
    }
}
