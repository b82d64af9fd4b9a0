/* SPDX-License-Identifier: Apache-2.0 */
/* The file of choices: read whole, replaced whole. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/environment.h"
#include "core/input.h"
#include "core/size.h"
#include "linear/tune.h"

enum { MOST_BYTES = 1 << 26 };

const char *qdri_tune_path(void)
{
    const char *path = qdri_environment_text(QDRI_VARIABLE_TUNE);
    return path && strcasecmp(path, "off") != 0 ? path : NULL;
}

qdr_status qdri_tune_load(const char *path, char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    if (access(path, F_OK) != 0 && errno == ENOENT) return QDR_OK;
    if (qdr_input_read(path, MOST_BYTES, text, bytes) == QDR_OK) return QDR_OK;
    char why[QDRI_ERROR_BYTES];
    snprintf(why, sizeof why, "%s", qdr_last_error());
    return QDR_FAIL(QDR_ERR_IO, "tune: %s; set QDR_TUNE to another file", why);
}

/* A name in the same folder that no other process, and no other world of this one, writes to. */
static qdr_status name_beside(const char *path, char **name)
{
    static atomic_int n_named;
    const size_t bytes = strlen(path) + 48;
    QDR_TRY(qdri_calloc(bytes, 1, "the name of a file", (void **)name));
    snprintf(*name, bytes, "%s.%ld.%d", path, (long)getpid(), atomic_fetch_add(&n_named, 1));
    return QDR_OK;
}

static int write_whole(const char *name, const qdri_tune_table *table)
{
    FILE *file = fopen(name, "w");
    int good = file && qdri_tune_write(table, file);
    if (file && fclose(file) != 0) good = 0;
    return good;
}

qdr_status qdri_tune_store(const char *path, const qdri_tune_table *table)
{
    char *name = NULL;
    QDR_TRY(name_beside(path, &name));
    const int good = write_whole(name, table) && rename(name, path) == 0, error = errno;
    if (!good) remove(name);
    free(name);
    if (good) return QDR_OK;
    return QDR_FAIL(QDR_ERR_IO,
                    "tune: %.200s could not be written (%s); set QDR_TUNE to a file in a folder that "
                    "exists and has room",
                    path, strerror(error));
}
