/* SPDX-License-Identifier: Apache-2.0 */
/* Plain writing and reading for `quadrille bench ckpt`. */
#include "bench/ckpt_file.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

enum { PIECE_BYTES = 1 << 20 };

int ckpt_file_make(const char *path, int64_t n_bytes)
{
    const int descriptor = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) return errno;
    int error = posix_fallocate(descriptor, 0, n_bytes);
    if (!error && fsync(descriptor) != 0) error = errno;
    if (close(descriptor) != 0 && !error) error = errno;
    return error;
}

int ckpt_file_open(const char *path, int *descriptor)
{
    *descriptor = open(path, O_RDWR | O_CLOEXEC);
    return *descriptor < 0 ? errno : 0;
}

static size_t piece_of(int64_t left) { return left < PIECE_BYTES ? (size_t)left : PIECE_BYTES; }

int ckpt_file_write(int descriptor, const char *from, int64_t at, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        const ssize_t written = pwrite(descriptor, from + done, piece_of(n - done), at + done);
        if (written < 0 && errno != EINTR) return errno;
        if (written > 0) done += written;
    }
    return fdatasync(descriptor) != 0 ? errno : 0;
}

int ckpt_file_read(int descriptor, char *to, int64_t at, int64_t n)
{
    for (int64_t done = 0; done < n;) {
        const ssize_t found = pread(descriptor, to + done, piece_of(n - done), at + done);
        if (found < 0 && errno != EINTR) return errno;
        if (found == 0) return EIO; /* it is shorter */
        if (found > 0) done += found;
    }
    return 0;
}
