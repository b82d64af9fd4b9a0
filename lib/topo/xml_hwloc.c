/* SPDX-License-Identifier: Apache-2.0 */
/* Reads a machine that was recorded as XML. */
#include "topo/xml_hwloc.h"

#include <stdio.h>
#include <stdlib.h>

#include "core/input.h"
#include "topo/topo.h"

enum { MOST_XML_BYTES = 256 << 20 };

/* hwloc itself does not report what is wrong with a file, and may read this machine instead. */
static qdr_status read_xml(const char *path, char **text, size_t *bytes)
{
    if (qdr_input_read(path, MOST_XML_BYTES, text, bytes) != QDR_OK) {
        char why[QDRI_ERROR_BYTES];
        snprintf(why, sizeof why, "%s", qdr_last_error());
        return QDR_FAIL(QDR_ERR_IO, "topology: %s", why);
    }
    if (*bytes) return QDR_OK;
    free(*text);
    *text = NULL;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "topology: %.300s is empty; write one with 'lstopo FILE.xml' there", path);
}

static qdr_status load_text(hwloc_topology_t hwloc, const char *path, const char *text, size_t bytes)
{
    /* hwloc counts the zero byte at the end. */
    if (hwloc_topology_set_xmlbuffer(hwloc, text, (int)bytes + 1) != 0 || hwloc_topology_load(hwloc) != 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "topology: %.300s is not a machine that hwloc %s can read; write one with "
                        "'lstopo FILE.xml' there (lstopo --export-xml-flags v2 with hwloc 3)",
                        path, qdri_topo_hwloc_version());
    return QDR_OK;
}

qdr_status qdri_topo_load_xml(hwloc_topology_t hwloc, const char *path)
{
    char *text;
    size_t bytes;
    QDR_TRY(read_xml(path, &text, &bytes));
    const qdr_status status = load_text(hwloc, path, text, bytes);
    free(text);
    return status;
}
