/* SPDX-License-Identifier: Apache-2.0 */
/* Temporary files: .NAME.0123456789abcdef.part. The lock ends with the process, so a file that is not locked was left
 * behind. */
#define _GNU_SOURCE /* getrandom, flock */
#include "files/draft.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#define ENDING ".part"
enum {
    N_DIGITS = 16,
    N_SHOWN = 200, /* of the name: all names are shorter than QDRI_NAME_BYTES */
    MOST_TRIES = 100
};

/* The name up to the random digits. */
static size_t begin_name(const char *name, char draft[QDRI_NAME_BYTES])
{
    return (size_t)snprintf(draft, QDRI_NAME_BYTES, ".%.*s.", N_SHOWN, name);
}

/* Between its creation and its locking, another process may take the file for a leftover and remove it: then it is not
 * used. */
static int is_mine(int number)
{
    struct stat info;
    const int refused = flock(number, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK;
    return !refused && fstat(number, &info) == 0 && info.st_nlink > 0;
}

int qdri_draft_make(int folder, const char *name, char draft[QDRI_NAME_BYTES])
{
    const size_t bytes = begin_name(name, draft);
    for (int i = 0; i < MOST_TRIES; i++) {
        uint64_t digits;
        if (getrandom(&digits, sizeof digits, 0) != (ssize_t)sizeof digits) return -1;
        snprintf(draft + bytes, QDRI_NAME_BYTES - bytes, "%016llx" ENDING, (unsigned long long)digits);
        const int number = openat(folder, draft, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0666);
        if (number < 0 && errno != EEXIST) return -1;
        if (number >= 0 && is_mine(number)) return number;
        if (number >= 0) close(number);
    }
    errno = EEXIST;
    return -1;
}

static int is_draft(const char *entry, const char *begin, size_t bytes)
{
    return strncmp(entry, begin, bytes) == 0 && strspn(entry + bytes, "0123456789abcdef") == N_DIGITS &&
           strcmp(entry + bytes + N_DIGITS, ENDING) == 0;
}

static void clean_one(int folder, const char *entry)
{
    struct stat info;
    const int number = openat(folder, entry, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (number < 0) return;
    if (fstat(number, &info) == 0 && S_ISREG(info.st_mode) && info.st_uid == geteuid() &&
        flock(number, LOCK_EX | LOCK_NB) == 0)
        (void)unlinkat(folder, entry, 0);
    close(number);
}

void qdri_draft_clean(int folder, const char *name)
{
    char begin[QDRI_NAME_BYTES];
    const size_t bytes = begin_name(name, begin);
    const int listed = openat(folder, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *entries = listed < 0 ? NULL : fdopendir(listed);
    if (listed >= 0 && !entries) close(listed);
    if (!entries) return;
    for (const struct dirent *entry; (entry = readdir(entries)) != NULL;)
        if (is_draft(entry->d_name, begin, bytes)) clean_one(folder, entry->d_name);
    closedir(entries);
}
