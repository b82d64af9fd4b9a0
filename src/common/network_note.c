/* SPDX-License-Identifier: Apache-2.0 */
#include "common/network_note.h"

#include <jansson.h>
#include <quadrille_private/input.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* NULL: no memory. json_dumps() may leave a key out when memory runs out, and succeed. */
static char *text_of(const json_t *value)
{
    const size_t flags = JSON_COMPACT | JSON_ENCODE_ANY, n = json_dumpb(value, NULL, 0, flags);
    char *text = n ? malloc(n + 1) : NULL;
    if (!text) return NULL;
    text[n] = '\0';
    if (json_dumpb(value, text, n, flags) == n) return text;
    free(text);
    return NULL;
}

qdr_status network_note_read(const char *note, const char *where, qdr_network *network, int *has_network)
{
    json_t *document = NULL;
    *has_network = 0;
    if (!note || note[strspn(note, " \t\n\r")] != '{') return QDR_OK;
    qdr_status status = qdr_json_read(note, strlen(note), where, &document);
    const json_t *config = json_object_get(document, NOTE_CONFIG);
    char *text = config ? text_of(config) : NULL;
    if (status >= 0 && config && !text) status = QDR_ERR_MEMORY;
    if (status >= 0 && text) status = qdr_network_parse(text, strlen(text), where, network);
    *has_network = status >= 0 && text;
    free(text);
    json_decref(document);
    return status;
}

/* 1 where there is none, or one that no network has: the tensor will not fit. */
static int64_t extent(const qdr_safetensors *file, const char *name, int dim)
{
    const qdr_tensor *tensor = qdr_safetensors_tensor(file, qdr_safetensors_find(file, name));
    const int64_t n = tensor && tensor->n_dims == 2 ? tensor->shape[dim] : 0;
    return n >= 1 && n <= 1 << 30 ? n : 1;
}

qdr_network network_of_tensors(const qdr_safetensors *file)
{
    qdr_network sizes = {.vocab = extent(file, "embedding.weight", 0),
                         .hidden = extent(file, "embedding.weight", 1),
                         .positions = extent(file, "embedding.positions", 0),
                         .ffn = extent(file, "block0.fc.weight", 0),
                         .tied = qdr_safetensors_find(file, "head.weight") < 0};
    char name[64];
    do snprintf(name, sizeof name, "block%lld.qkv.weight", (long long)sizes.layers);
    while (qdr_safetensors_find(file, name) >= 0 && ++sizes.layers < QDR_NETWORK_MOST_LAYERS);
    if (sizes.layers == 0) sizes.layers = 1; /* whose first tensor that is missing is named */
    return sizes;
}
