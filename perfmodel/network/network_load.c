/* SPDX-License-Identifier: Apache-2.0 */
/* Networks by name, by path and from text. */
#include <stdio.h>
#include <string.h>

#include "files/data.h"
#include "network/network.h"

static const char kind[] = "models";

/* The network's name: a for a.json; x for x/config.json. */
static void name_of(const char *path, char *name, size_t bytes)
{
    const char *begin = strrchr(path, '/'), *end = path + strlen(path);
    begin = begin ? begin + 1 : path;
    if (begin > path + 1 && strcmp(begin, "config.json") == 0) {
        end = begin - 1;
        for (begin = end; begin > path && begin[-1] != '/'; begin--) continue;
    } else if (end - begin > 5 && strcmp(end - 5, ".json") == 0) {
        end -= 5;
    }
    snprintf(name, bytes, "%.*s", (int)(end - begin), begin);
}

qdr_status qdr_network_load(const char *name_or_path, qdr_network *network)
{
    char path[QDRI_DATA_PATH_BYTES], name[sizeof network->name];
    qdri_json *document;
    if (!network) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the result is NULL");
    *network = (qdr_network){.version = 0};
    if (!name_or_path) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the name is NULL");
    QDR_TRY(qdri_data_resolve("network", "model", kind, name_or_path, NULL, path));
    QDR_TRY(qdri_json_load(path, &document));
    name_of(strcmp(path, "-") == 0 ? "standard input" : path, name, sizeof name);
    const qdr_status status = qdri_network_read(document, name, network);
    qdri_json_free(&document);
    return status;
}

qdr_status qdr_network_parse(const char *text, size_t bytes, const char *name, qdr_network *network)
{
    qdri_json *document;
    if (!network) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the result is NULL");
    *network = (qdr_network){.version = 0};
    if (!text || !name) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the text or its name is NULL");
    QDR_TRY(qdri_json_parse(text, bytes, name, &document));
    const qdr_status status = qdri_network_read(document, name, network);
    qdri_json_free(&document);
    return status;
}

qdr_status qdr_network_list(qdr_network_name_fn each, void *user)
{
    qdri_data_names names;
    if (!each) return QDR_FAIL(QDR_ERR_ARGUMENT, "network: the function to call is NULL");
    QDR_TRY(qdri_data_list(kind, &names));
    for (int i = 0; i < names.n; i++) each(names.names[i], user);
    qdri_data_names_free(&names);
    return QDR_OK;
}
