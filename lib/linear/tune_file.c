/* SPDX-License-Identifier: Apache-2.0 */
/* The file of choices: read whole, replaced whole. */
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "core/size.h"
#include "linear/tune.h"

enum { MOST_BYTES = 1 << 26 };

const char *qdri_tune_path(void)
{
    const char *path = getenv("QDR_TUNE");
    return path && *path && strcasecmp(path, "off") != 0 ? path : NULL;
}

static qdr_status read_whole(FILE *file, const char *path, char **text, size_t *bytes)
{
    const int is_folder = fgetc(file) == EOF && ferror(file);
    const long length = !is_folder && fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
    if (length > MOST_BYTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "tune: %.200s has %ld bytes, and no file of choices has more than %d; set "
                        "QDR_TUNE to another one",
                        path, length, (int)MOST_BYTES);
    if (length >= 0) {
        rewind(file);
        QDR_TRY(qdri_calloc((size_t)length, 1, "a file of choices", (void **)text));
        *bytes = fread(*text, 1, (size_t)length, file);
        if (*bytes == (size_t)length) return QDR_OK;
    }
    return QDR_FAIL(QDR_ERR_IO, "tune: %.200s could not be read (%s); set QDR_TUNE to another file", path,
                    strerror(errno));
}

qdr_status qdri_tune_load(const char *path, char **text, size_t *bytes)
{
    *text = NULL;
    *bytes = 0;
    FILE *file = fopen(path, "r");
    if (!file && errno == ENOENT) return QDR_OK;
    if (!file)
        return QDR_FAIL(QDR_ERR_IO, "tune: %.200s could not be opened (%s); set QDR_TUNE to another file", path,
                        strerror(errno));
    const qdr_status status = read_whole(file, path, text, bytes);
    fclose(file);
    if (status == QDR_OK) return QDR_OK;
    free(*text);
    *text = NULL;
    *bytes = 0;
    return status;
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
