/* SPDX-License-Identifier: Apache-2.0 */
/* Folders of safetensors files, as Hugging Face lays them out. */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "checkpoint/internal.h"
#include "core/complaints.h"
#include "core/input.h"
#include "files/at.h"

#define FILE_ENDING ".safetensors"
#define INDEX_ENDING ".safetensors.index.json"

/* What a folder has of one kind. */
typedef struct found {
    char name[256]; /* the usual one if it is there, else the last */
    int n, is_usual;
    qdri_complaints list;
} found;

int qdri_read_file_number(const char *name, qdri_file_number *number)
{
    enum { DIGITS = 5, ALL_DIGITS = DIGITS + 4 + DIGITS };
    const int n_stem = (int)strlen(name) - ALL_DIGITS - (int)strlen(FILE_ENDING);
    const char *at = name + n_stem;
    if (n_stem < 0 || strspn(at, "0123456789") != DIGITS || strncmp(at + DIGITS, "-of-", 4) != 0 ||
        strspn(at + DIGITS + 4, "0123456789") != DIGITS || strcmp(at + ALL_DIGITS, FILE_ENDING) != 0)
        return 0;
    *number = (qdri_file_number){(int)strtol(at, NULL, 10), (int)strtol(at + DIGITS + 4, NULL, 10), n_stem};
    return 1;
}

static void add(found *all, const char *name, const char *usual)
{
    all->n++;
    qdri_complain(&all->list, "%.60s", qdri_shown(name).text);
    if (all->is_usual) return;
    all->is_usual = strcmp(name, usual) == 0;
    snprintf(all->name, sizeof all->name, "%s", name);
}

static qdr_status list_folder(const char *path, found *indexes, found *files)
{
    DIR *folder = opendir(path);
    if (!folder && errno == ENOMEM)
        return QDR_FAIL(QDR_ERR_MEMORY, "%s: out of memory for its names; free some", qdri_shown(path).text);
    if (!folder) return qdri_cannot_open(qdri_shown(path).text, qdri_read_remedy(errno));
    for (struct dirent *entry; (entry = readdir(folder));) {
        if (qdri_has_ending(entry->d_name, INDEX_ENDING)) add(indexes, entry->d_name, "model" INDEX_ENDING);
        if (qdri_has_ending(entry->d_name, FILE_ENDING)) add(files, entry->d_name, "model" FILE_ENDING);
    }
    closedir(folder);
    return QDR_OK;
}

/* The one that is meant; both of the usual names, or several others, leave a choice. */
static qdr_status choose(const char *path, const found *indexes, const found *files, const char **name)
{
    const int is_index = indexes->is_usual || (!files->is_usual && indexes->n == 1);
    const int is_file = files->is_usual || (!indexes->is_usual && indexes->n == 0 && files->n == 1);
    qdri_file_number number;
    *name = is_index ? indexes->name : files->name;
    if (is_file && !is_index && qdri_read_file_number(*name, &number) && number.n > 1)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s has file %d of %d alone, without an index; fetch the others and their NAME" INDEX_ENDING
                        ", or name the file for its part of the tensors",
                        qdri_shown(path).text, number.number, number.n);
    if (is_index != is_file) return QDR_OK;
    if (!indexes->n && !files->n)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s is a folder without a file NAME" FILE_ENDING "; name a folder that has one, or a file",
                        qdri_shown(path).text);
    const int has_both = indexes->is_usual && files->is_usual;
    const qdri_complaints *list = indexes->n ? &indexes->list : &files->list;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is a folder with %s%s; name one of them", qdri_shown(path).text,
                    has_both ? "model" FILE_ENDING " and model" INDEX_ENDING : list->text, has_both ? "" : list->more);
}

static qdr_status locate(const char *path, char *file, size_t bytes)
{
    struct stat info;
    found indexes = {.n = 0}, files = {.n = 0};
    const char *name = "", *slash = "";
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        QDR_TRY(list_folder(path, &indexes, &files));
        QDR_TRY(choose(path, &indexes, &files, &name));
        if (!qdri_has_ending(path, "/")) slash = "/";
    }
    if ((size_t)snprintf(file, bytes, "%s%s%s", path, slash, name) < bytes) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the path has more than %zu bytes; move the file", qdri_shown(path).text,
                    bytes - 1);
}

qdr_status qdr_safetensors_locate(const char *path, char *file, size_t bytes)
{
    if (!path || !file || !bytes)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "safetensors: the path or the result is NULL; pass both");
    const qdr_status status = locate(path, file, bytes);
    if (status != QDR_OK) *file = '\0';
    return status;
}
