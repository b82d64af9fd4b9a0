/* SPDX-License-Identifier: Apache-2.0 */
#define _GNU_SOURCE /* sync_file_range */
#include "files/at.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

int qdri_write_at(int descriptor, int64_t at, const void *from, size_t n_bytes)
{
    const char *next = from;
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

int qdri_reserve(int descriptor, int64_t n_bytes)
{
    int error = EINTR;
    while (n_bytes && error == EINTR) error = posix_fallocate(descriptor, 0, (off_t)n_bytes);
    if (!n_bytes || error == 0) return 0;
    if (error != EOPNOTSUPP && error != EINVAL) return error;
    return ftruncate(descriptor, (off_t)n_bytes) ? errno : 0;
}

void qdri_write_soon(int descriptor, int64_t at, size_t n_bytes)
{
#ifdef SYNC_FILE_RANGE_WRITE
    const int64_t page = 4096, begin = (at + page - 1) / page * page, end = (at + (int64_t)n_bytes) / page * page;
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
    default: return "name a file in a folder that exists and is writable";
    }
}
