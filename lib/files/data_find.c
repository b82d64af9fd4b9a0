/* SPDX-License-Identifier: Apache-2.0 */
/* The public interface to data files. */
#include <quadrille/data.h>
#include <string.h>

#include "files/data.h"

qdr_status qdr_data_find(const char *kind, const char *name_or_path, char *path, size_t bytes)
{
    char found[QDRI_DATA_PATH_BYTES];
    if (path && bytes) *path = '\0';
    if (!kind || !name_or_path || !path || !bytes)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "data: the kind, the name or the path pointer is NULL");
    QDR_TRY(qdri_data_resolve("data", "data file", kind, name_or_path, NULL, found));
    if (strlen(found) >= bytes)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "data: the path has %zu bytes; there is room for %zu", strlen(found),
                        bytes - 1);
    memcpy(path, found, strlen(found) + 1);
    return QDR_OK;
}

qdr_status qdr_data_host_file(char *path, size_t bytes)
{
    char found[QDRI_DATA_PATH_BYTES];
    if (path && bytes) *path = '\0';
    if (!path || !bytes) return QDR_FAIL(QDR_ERR_ARGUMENT, "data: the path pointer is NULL");
    if (!qdri_data_host_file(found))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "data: there is no folder for this host's files; set HOME or XDG_DATA_HOME to "
                        "an absolute path");
    if (strlen(found) >= bytes)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "data: the path has %zu bytes; there is room for %zu", strlen(found),
                        bytes - 1);
    memcpy(path, found, strlen(found) + 1);
    return QDR_OK;
}
