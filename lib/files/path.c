/* SPDX-License-Identifier: Apache-2.0 */
/* Resolves paths. realpath() does not follow links to files that do not exist yet. */
#include "files/path.h"

#include <errno.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_LINKS = 40 }; /* the limit of Linux */

/* Replaces a link by its target, which is relative to the link's folder. */
static int follow(char path[QDRI_PATH_BYTES], int *was_link)
{
    char target[QDRI_PATH_BYTES];
    struct stat info;
    *was_link = lstat(path, &info) == 0 && S_ISLNK(info.st_mode);
    if (!*was_link) return 0;
    const ssize_t length = readlink(path, target, sizeof target - 1);
    if (length < 0) return errno;
    target[length] = '\0';
    const char *slash = strrchr(path, '/');
    const size_t n_folder = target[0] == '/' || !slash ? 0 : (size_t)(slash - path) + 1;
    if (n_folder + (size_t)length >= QDRI_PATH_BYTES) return ENAMETOOLONG;
    memcpy(path + n_folder, target, (size_t)length + 1);
    return 0;
}

int qdri_path_resolve(const char *path, qdri_path *resolved)
{
    char at[QDRI_PATH_BYTES];
    if (!*path) return ENOENT;
    if (strlen(path) >= sizeof at) return ENAMETOOLONG;
    memcpy(at, path, strlen(path) + 1);
    int was_link = 1;
    for (int i = 0; was_link; i++) {
        const int error = i > MOST_LINKS ? ELOOP : follow(at, &was_link);
        if (error) return error;
    }
    char *slash = strrchr(at, '/');
    const char *name = slash ? slash + 1 : at;
    if (strlen(name) >= sizeof resolved->name) return ENAMETOOLONG;
    memcpy(resolved->name, name, strlen(name) + 1);
    if (slash) slash[slash == at] = '\0'; /* the root keeps its slash */
    const char *folder = slash ? at : ".";
    memcpy(resolved->folder, folder, strlen(folder) + 1);
    return 0;
}
