/* SPDX-License-Identifier: Apache-2.0 */
/* A folder for the files of a test of checkpoints, with one name on all ranks. */
#ifndef TESTS_DIST_FOLDER_H
#define TESTS_DIST_FOLDER_H

#include <unistd.h>

#include "dist.h"

enum { PATH_BYTES = 96 };

typedef struct path {
    char text[PATH_BYTES + 32];
} path;

/* A new folder, the same on all ranks. */
static inline path make_folder(qdr_context *ctx)
{
    path folder = {"/tmp/quadrille_checkpoint_XXXXXX"};
    if (qdr_context_rank(ctx) == 0) DIST_CHECK(mkdtemp(folder.text), "no folder in /tmp");
    DIST_OK(qdr_broadcast(ctx, 0, folder.text, sizeof folder.text));
    return folder;
}

static inline path in(path folder, const char *name)
{
    path made;
    snprintf(made.text, sizeof made.text, "%.*s/%s", PATH_BYTES, folder.text, name);
    return made;
}

static inline void remove_folder(qdr_context *ctx, path folder)
{
    static const char *const names[] = {"a", "b", "c", "a.1", "a.2"};
    DIST_OK(qdr_barrier(ctx));
    if (qdr_context_rank(ctx) == 0) {
        for (size_t i = 0; i < sizeof names / sizeof *names; i++) (void)unlink(in(folder, names[i]).text);
        DIST_CHECK(rmdir(folder.text) == 0, "%s holds other files", folder.text);
    }
    DIST_OK(qdr_barrier(ctx));
}

#endif
