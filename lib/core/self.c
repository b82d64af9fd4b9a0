/* SPDX-License-Identifier: Apache-2.0 */
/* The location of this library: the tree into which it was installed may have been moved since. */
#define _GNU_SOURCE /* dladdr */
#include "core/self.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static const char here; /* an address in this library */

void qdri_own_folder(char *folder, size_t bytes)
{
    char program[QDRI_FOLDER_BYTES];
    const char *path = NULL;
    Dl_info self;
    *folder = '\0';
    if (dladdr(&here, &self)) path = self.dli_fname;
    /* For a program that contains the static library, the loader knows only the name with which it was started. */
    if (path && !strchr(path, '/')) {
        const ssize_t length = readlink("/proc/self/exe", program, sizeof program);
        if (length <= 0 || length >= (ssize_t)sizeof program) return;
        program[length] = '\0';
        path = program;
    }
    const char *slash = path ? strrchr(path, '/') : NULL;
    if (!slash || (size_t)(slash - path) + 2 > bytes) return;
    snprintf(folder, bytes, "%.*s", (int)(slash - path + 1), path);
}
