/* SPDX-License-Identifier: Apache-2.0 */
/* Indexes of safetensors files: which of several files has which tensor. An index that does not say what its files have
 * would lose tensors, so each file is opened and compared with it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/internal.h"
#include "core/complaints.h"
#include "core/json.h"
#include "core/named.h"
#include "core/size.h"

#define ENDING ".safetensors"
enum { PATH_BYTES = 4096 };

/* ---- files ---- */

/* The path of a file in the folder of the index. */
static qdr_status path_beside(const qdr_safetensors *self, const char *name, char path[PATH_BYTES])
{
    const char *slash = strrchr(self->path, '/');
    const int n_folder = slash ? (int)(slash - self->path) + 1 : 0;
    if (!strchr(name, '/') && snprintf(path, PATH_BYTES, "%.*s%s", n_folder, self->path, name) < PATH_BYTES)
        return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s names the file %s; files must be in the folder of the index",
                    qdri_shown(self->path).text, qdri_shown(name).text);
}

static const char *name_of(const qdri_tensor_file *file)
{
    const char *slash = strrchr(file->path, '/');
    return slash ? slash + 1 : file->path;
}

/* Of files that are numbered, each is named. They are sorted by name. */
static void check_numbers(const qdr_safetensors *self, qdri_complaints *all)
{
    for (int i = 0; i < self->n_files; i++) {
        const char *name = name_of(&self->files[i]);
        qdri_file_number first, next;
        int last = 0;
        if (!qdri_read_file_number(name, &first)) continue;
        for (next = first;;) {
            while (++last < next.number)
                qdri_complain(all, "file %d of %d of %.*s is not named", last, first.n, first.n_stem, name);
            if (i + 1 == self->n_files || !qdri_read_file_number(name_of(&self->files[i + 1]), &next) ||
                next.n != first.n || next.n_stem != first.n_stem ||
                strncmp(name, name_of(&self->files[i + 1]), (size_t)next.n_stem) != 0)
                break;
            i++;
        }
        while (++last <= first.n)
            qdri_complain(all, "file %d of %d of %.*s is not named", last, first.n, first.n_stem, name);
    }
}

/* Opens each file once, in the order of their names. */
static qdr_status open_files(qdr_safetensors *self, qdri_named *names, int n)
{
    int capacity = 0;
    char path[PATH_BYTES];
    qdri_named_sort(names, n);
    for (int i = 0; i < n; i++) {
        if (i > 0 && strcmp(names[i].name, names[i - 1].name) == 0) continue;
        QDR_TRY(path_beside(self, names[i].name, path));
        QDR_TRY(qdri_safetensors_add_file(self, path, &capacity));
    }
    return QDR_OK;
}

/* ---- tensors ---- */

/* A tensor as messages show it. */
typedef struct shown_tensor {
    char text[64];
} shown_tensor;
static shown_tensor show(const char *name)
{
    shown_tensor shown;
    qdri_input_name(name, shown.text, sizeof shown.text);
    return shown;
}

/* What the index says of each tensor, against the files. */
static qdr_status check_listed(const qdr_safetensors *self, const qdri_json_node *map, qdri_complaints *all)
{
    for (const char *key = NULL; (key = qdri_json_next_key(map, key));) {
        const char *name;
        QDR_TRY(qdri_json_string(qdri_json_get(map, key), 0, &name));
        const int index = qdr_safetensors_find(self, key);
        const char *is_in = index < 0 ? NULL : name_of(self->entries[index].file);
        if (!is_in)
            qdri_complain(all, "tensor %s should be in %s, which does not have it", show(key).text, show(name).text);
        else if (strcmp(is_in, name) != 0)
            qdri_complain(all, "tensor %s should be in %s, but is in %s", show(key).text, show(name).text,
                          show(is_in).text);
    }
    return QDR_OK;
}

static void check_files(const qdr_safetensors *self, const qdri_json_node *map, qdri_complaints *all)
{
    for (int i = 0; i < self->n; i++) {
        const qdri_tensor_entry *entry = &self->entries[self->by_name[i].number];
        const char *name = entry->tensor->name;
        if (qdri_json_kind_of(qdri_json_get(map, name)) == QDRI_JSON_ABSENT)
            qdri_complain(all, "tensor %s of %s is not listed", show(name).text, show(name_of(entry->file)).text);
        else if (i > 0 && strcmp(name, self->by_name[i - 1].name) == 0)
            qdri_complain(all, "tensor %s is in two files", show(name).text);
    }
}

/* The sum of all tensors' bytes, where an index has it. */
static qdr_status check_total(const qdr_safetensors *self, const qdri_json_node *root, qdri_complaints *all)
{
    const qdri_json_node metadata = qdri_json_get(root, "metadata"), node = qdri_json_get(&metadata, "total_size");
    int64_t bytes = 0, total = 0;
    for (int i = 0; i < self->n; i++) bytes += self->entries[i].tensor->bytes;
    QDR_TRY(qdri_json_int_or(node, 0, INT64_MAX, bytes, &total));
    if (total != bytes)
        qdri_complain(all, "total_size is %" PRId64 ", but the files have %" PRId64 " bytes of tensors", total, bytes);
    return QDR_OK;
}

/* ---- the index ---- */

static qdr_status read_files(qdr_safetensors *self, const qdri_json_node *map)
{
    qdri_named *names = NULL;
    int n = 0, capacity = 0;
    qdr_status status = QDR_OK;
    for (const char *key = NULL; status == QDR_OK && (key = qdri_json_next_key(map, key)); n++) {
        status = qdri_list_grow((void **)&names, n, &capacity, sizeof *names, "the names of files");
        if (status == QDR_OK) status = qdri_json_string(qdri_json_get(map, key), 0, &names[n].name);
    }
    if (status == QDR_OK && n == 0)
        status = QDR_FAIL(QDR_ERR_ARGUMENT,
                          "%s lists no tensors: its weight_map is empty; name a " ENDING
                          " file, or write the index anew",
                          qdri_shown(self->path).text);
    if (status == QDR_OK) status = open_files(self, names, n);
    free(names);
    return status;
}

static qdr_status read_index(qdr_safetensors *self, const qdri_json_node *root)
{
    qdri_complaints all = {.n = 0};
    qdri_json_node map;
    if (!qdri_json_has(qdri_json_get(root, "weight_map")))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is no index of safetensors files: it has no weight_map; name a " ENDING
                        " file, its folder, or NAME" ENDING ".index.json",
                        qdri_shown(self->path).text);
    QDR_TRY(qdri_json_object(qdri_json_get(root, "weight_map"), &map));
    QDR_TRY(read_files(self, &map));
    QDR_TRY(qdri_safetensors_list(self));
    QDR_TRY(check_listed(self, &map, &all));
    check_files(self, &map, &all);
    check_numbers(self, &all);
    QDR_TRY(check_total(self, root, &all));
    if (all.n == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s does not fit its files: %s%s; use the index that belongs to them",
                    qdri_shown(self->path).text, all.text, all.more);
}

qdr_status qdri_safetensors_open_index(qdr_safetensors *self)
{
    qdri_json *document = NULL;
    qdri_json_node root;
    QDR_TRY(qdri_json_load(self->path, &document));
    qdr_status status = qdri_json_root(document, &root);
    if (status == QDR_OK) status = read_index(self, &root);
    qdri_json_free(&document);
    return status;
}
