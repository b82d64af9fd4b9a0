/* SPDX-License-Identifier: Apache-2.0 */
/* Files that appear whole or not at all, unless they are no files. */
#include "output.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_LINKS 40 /* as many as Linux follows */

static int complain(const output *out, const char *remedy, char sentence[PROBLEM_BYTES])
{
    snprintf(sentence, PROBLEM_BYTES, "%s %.300s: %s; %s", out->what, out->path, strerror(errno), remedy);
    return 0;
}

static int copy_path(const char *from, char to[PATH_BYTES])
{
    errno = ENAMETOOLONG;
    return snprintf(to, PATH_BYTES, "%s", from) < PATH_BYTES;
}

/* Replaces a link by what it says, which counts from the link's own folder. 1: done, or it was no link (*followed =
 * 0). */
static int follow_link(char path[PATH_BYTES], int *followed)
{
    char said[PATH_BYTES];
    struct stat info;
    *followed = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    if (!*followed) return 1;
    const ssize_t length = readlink(path, said, sizeof said - 1);
    if (length < 0) return 0;
    said[length] = '\0';
    const char *slash = strrchr(path, '/');
    const size_t n_folder = said[0] == '/' || slash == NULL ? 0 : (size_t)(slash - path) + 1;
    errno = ENAMETOOLONG;
    if (n_folder + (size_t)length >= PATH_BYTES) return 0;
    memcpy(path + n_folder, said, (size_t)length + 1);
    return 1;
}

/* Fills target and draft. 0: errno says why it cannot be. */
static int choose_places(output *out)
{
    struct stat info;
    if (!copy_path(out->path, out->target)) return 0;
    out->draft[0] = '\0';
    if (stat(out->path, &info) == 0 && !S_ISREG(info.st_mode)) {
        errno = EISDIR;
        return !S_ISDIR(info.st_mode);
    }
    int followed = 1;
    for (int i = 0; followed; i++) {
        errno = ELOOP;
        if (i > MAX_LINKS || !follow_link(out->target, &followed)) return 0;
    }
    errno = ENAMETOOLONG;
    return snprintf(out->draft, PATH_BYTES, "%s.part", out->target) < PATH_BYTES;
}

/* The draft gets the permissions of the file that it will replace. */
static FILE *open_draft(const output *out)
{
    struct stat old;
    const int number = open(out->draft, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0666);
    if (number < 0) return NULL;
    if (stat(out->target, &old) == 0) (void)!fchmod(number, old.st_mode & 0777);
    FILE *file = fdopen(number, "w");
    if (file == NULL) close(number);
    return file;
}

int output_open(output *out, const char *what, const char *path, char sentence[PROBLEM_BYTES])
{
    *out = (output){.what = what, .path = path};
    if (choose_places(out)) out->file = out->draft[0] ? open_draft(out) : fopen(path, "w");
    if (out->file != NULL) return 1;
    return complain(out, "name a file in a folder that exists and is writable", sentence);
}

int output_try(const char *what, const char *path, char sentence[PROBLEM_BYTES])
{
    output out = {.what = what, .path = path};
    /* Opening a pipe would wait for its reader. */
    if (choose_places(&out) && !out.draft[0] && access(path, W_OK) == 0) return 1;
    if (!out.draft[0]) return complain(&out, "name a file in a folder that exists and is writable", sentence);
    if (!output_open(&out, what, path, sentence)) return 0;
    fclose(out.file);
    remove(out.draft);
    return 1;
}

int output_close(output *out, char sentence[PROBLEM_BYTES])
{
    errno = 0;
    const int failed = fflush(out->file) != 0 || ferror(out->file);
    const int error = errno;
    int closed = fclose(out->file) == 0;
    out->file = NULL;
    if (closed && !failed && (!out->draft[0] || rename(out->draft, out->target) == 0)) return 1;
    if (failed) errno = error ? error : EIO;
    complain(out, "is the disk full, or is it a folder?", sentence);
    if (out->draft[0]) remove(out->draft);
    return 0;
}
