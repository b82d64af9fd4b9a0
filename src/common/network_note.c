/* SPDX-License-Identifier: Apache-2.0 */
#include "common/network_note.h"

#include <jansson.h>
#include <quadrille_private/input.h>
#include <stdlib.h>
#include <string.h>

qdr_status network_note_read(const char *note, const char *where, qdr_network *network, int *has_network)
{
    json_t *document = NULL;
    *has_network = 0;
    if (!note || note[strspn(note, " \t\n\r")] != '{') return QDR_OK;
    qdr_status status = qdr_json_read(note, strlen(note), where, &document);
    const json_t *config = json_object_get(document, NOTE_CONFIG);
    char *text = config ? json_dumps(config, JSON_COMPACT | JSON_ENCODE_ANY) : NULL;
    if (status >= 0 && text) status = qdr_network_parse(text, strlen(text), where, network);
    *has_network = status >= 0 && text;
    free(text);
    json_decref(document);
    return status;
}
