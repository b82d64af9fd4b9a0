/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files: opening one file, or those of an index; closing. */
#include <stdlib.h>
#include <string.h>

#include "checkpoint/internal.h"
#include "core/size.h"

enum { PATH_BYTES = 4096 };

static qdr_status open_one(qdr_safetensors *self)
{
    int capacity = 0;
    QDR_TRY(qdri_safetensors_add_file(self, self->path, &capacity));
    return qdri_safetensors_list(self);
}

static int by_number(const void *left, const void *right)
{
    const qdri_named *a = left, *b = right;
    return (a->number > b->number) - (a->number < b->number);
}

/* The keys of the metadata, each once, in the order of the files. */
static qdr_status list_keys(qdr_safetensors *self)
{
    int n = 0, capacity = 0;
    for (int i = 0; i < self->n_files; i++)
        for (const char *key = NULL; (key = qdri_tensors_next_key(self->files[i].header, key)); n++) {
            QDR_TRY(qdri_list_grow((void **)&self->keys, n, &capacity, sizeof *self->keys, "the keys of the metadata"));
            self->keys[n] = (qdri_named){key, n};
        }
    qdri_named_sort(self->keys, n);
    for (int i = 0; i < n; i++)
        if (i == 0 || strcmp(self->keys[i].name, self->keys[self->n_keys - 1].name) != 0)
            self->keys[self->n_keys++] = self->keys[i];
    if (self->n_keys) qsort(self->keys, (size_t)self->n_keys, sizeof *self->keys, by_number);
    return QDR_OK;
}

qdr_status qdr_safetensors_open(const char *path, qdr_safetensors **file)
{
    if (!file) return QDR_FAIL(QDR_ERR_ARGUMENT, "safetensors: the result is NULL; pass the address of a pointer");
    *file = NULL;
    if (!path) return QDR_FAIL(QDR_ERR_ARGUMENT, "safetensors: the path is NULL; pass the name of a file");
    char found[PATH_BYTES];
    QDR_TRY(qdr_safetensors_locate(path, found, sizeof found));
    QDR_TRY(QDRI_NEW(1, "a safetensors file", file));
    qdr_status status = qdri_strdup(found, &(*file)->path);
    if (status == QDR_OK) status = (qdri_has_ending(found, ".json") ? qdri_safetensors_open_index : open_one)(*file);
    if (status == QDR_OK) status = list_keys(*file);
    if (status != QDR_OK) qdr_safetensors_discard(file);
    return status;
}

qdr_status qdr_safetensors_close(qdr_safetensors **file)
{
    if (!file || !*file) return QDR_OK;
    const qdr_status status = (*file)->out.output ? qdri_tensor_output_commit(*file) : QDR_OK;
    qdr_safetensors_discard(file);
    return status;
}
