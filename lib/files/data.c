/* SPDX-License-Identifier: Apache-2.0 */
/* Finds data files, and suggests names close to an unknown one. */
#include "files/data.h"

#include <dirent.h>
#include <quadrille_private/data.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "config.h"
#include "core/environment.h"
#include "core/input.h"
#include "core/json.h"
#include "core/nearest.h"
#include "core/self.h"
#include "core/size.h"
#include "quadrille_private/names.h"

#define ENDING ".json"
enum { MAX_NEAREST = 3 };

/* ---- folders ---- */

/* Copies the next folder of a colon-separated list; 0 at its end. */
static int next_of_list(const char **list, char folder[QDRI_DATA_PATH_BYTES])
{
    while (*list && **list) {
        const size_t bytes = strcspn(*list, ":");
        const char *begin = *list;
        *list += bytes + (begin[bytes] == ':');
        if (bytes == 0 || bytes >= QDRI_DATA_PATH_BYTES) continue;
        memcpy(folder, begin, bytes);
        folder[bytes] = '\0';
        return 1;
    }
    return 0;
}

/* Iterates over the data folders. */
typedef struct walk {
    const char *list; /* the rest of QDR_DATA_PATH */
    int n_known; /* number of built-in folders already considered */
} walk;

static walk walk_begin(void) { return (walk){.list = qdri_environment_text(QDRI_VARIABLE_DATA_PATH)}; }

/* A moved installation finds its own files before those of the prefix for which it was built. */
static int walk_next(walk *w, char folder[QDRI_DATA_PATH_BYTES])
{
    static const char *const known[] = {QDRI_DATA_FROM_LIB, QDRI_DATA_FROM_BIN, QDRI_DATA_DIR, QDRI_SOURCE_DATA_DIR};
    enum { N_KNOWN = sizeof known / sizeof *known };
    if (next_of_list(&w->list, folder)) return 1;
    while (w->n_known < N_KNOWN) {
        const char *path = known[w->n_known++];
        char own[QDRI_FOLDER_BYTES] = "";
        if (path[0] != '/') qdri_own_folder(own, sizeof own);
        if (!path[0] || (path[0] != '/' && !own[0])) continue;
        snprintf(folder, QDRI_DATA_PATH_BYTES, "%s%s", own, path);
        return 1;
    }
    return 0;
}

/* ---- names ---- */

static qdr_status add_file(qdri_data_names *names, const char *file)
{
    char name[QDRI_DATA_NAME_BYTES];
    const size_t bytes = strlen(file) - strlen(ENDING);
    if (bytes >= sizeof name) return QDR_OK; /* no name is that long */
    memcpy(name, file, bytes);
    name[bytes] = '\0';
    for (int i = 0; i < names->n; i++)
        if (strcmp(names->names[i], name) == 0) return QDR_OK;
    QDR_TRY(qdri_list_grow((void **)&names->names, names->n, &names->capacity, sizeof *names->names,
                           "names of data files"));
    memcpy(names->names[names->n++], name, sizeof name);
    return QDR_OK;
}

static int by_name(const void *a, const void *b) { return strcmp(a, b); }

qdr_status qdri_data_list(const char *kind, qdri_data_names *names)
{
    char folder[QDRI_DATA_PATH_BYTES];
    *names = (qdri_data_names){.n = 0};
    for (walk w = walk_begin(); walk_next(&w, folder);) {
        char path[QDRI_DATA_PATH_BYTES];
        DIR *dir = snprintf(path, sizeof path, "%s/%s", folder, kind) < (int)sizeof path ? opendir(path) : NULL;
        if (!dir) continue;
        qdr_status status = QDR_OK;
        for (struct dirent *entry; status == QDR_OK && (entry = readdir(dir)) != NULL;)
            if (entry->d_name[0] != '.' && qdri_has_ending(entry->d_name, ENDING))
                status = add_file(names, entry->d_name);
        closedir(dir);
        if (status == QDR_OK) continue;
        qdri_data_names_free(names);
        return status;
    }
    if (names->n) qsort(names->names, (size_t)names->n, sizeof *names->names, by_name);
    return QDR_OK;
}

void qdri_data_names_free(qdri_data_names *names)
{
    free(names->names);
    *names = (qdri_data_names){.n = 0};
}

/* ---- suggestions ---- */

static qdr_status unknown_name(const char *room, const char *noun, const char *kind, const char *name,
                               qdri_data_prefer_fn prefer)
{
    char shown[QDRI_DATA_NAME_BYTES], nearest[3 * QDRI_DATA_NAME_BYTES + 21] = "";
    const char **list = NULL;
    qdri_data_names names;
    QDR_TRY(qdri_data_list(kind, &names));
    const int n = names.n;
    const qdr_status status = QDRI_NEW(n, "names of data files", &list);
    if (status == QDR_OK) {
        size_t used = 0;
        for (int i = 0; i < n; i++) list[i] = names.names[i];
        const int n_near = prefer ? prefer(name, list, n) : 0;
        for (int i = 0; i < n_near && i < MAX_NEAREST; i++) {
            snprintf(nearest + used, sizeof nearest - used, "%s%s", i ? ", " : "", list[i]);
            used += strlen(nearest + used);
        }
        if (!n_near) qdr_names_nearest(name, list, n, MAX_NEAREST, nearest, sizeof nearest);
    }
    free(list);
    qdri_data_names_free(&names);
    QDR_TRY(status);
    qdri_json_printable(name, shown, sizeof shown);
    if (n == 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: no %s is named \"%s\", and no data files are installed; set QDR_DATA_PATH to a folder "
                        "that contains %s/NAME.json, or name a file",
                        room, noun, shown, kind);
    const int has_plural = strcmp(kind, noun) != 0; /* there is no plural of software */
    const int is_listed = !has_plural || strcmp(kind, "models") == 0 || strcmp(kind, "machines") == 0;
    return QDR_FAIL(
        QDR_ERR_ARGUMENT,
        "%s: none of the %d %s%s%s is named \"%s\"%s%s (%s%s%sthe name of a file has a slash or ends in .json)", room,
        n, has_plural ? "" : "kinds of ", noun, has_plural ? "s" : "", shown, *nearest ? "; nearest: " : "", nearest,
        is_listed ? "see quadrille list " : "", is_listed ? kind : "", is_listed ? "; " : "");
}

/* The only name that is spelled like this one but for case, dashes, dots and underscores; "": none, or several. */
static qdr_status find_spelling(const char *kind, const char *name, char spelled[QDRI_DATA_NAME_BYTES])
{
    qdri_data_names names;
    int n = 0;
    QDR_TRY(qdri_data_list(kind, &names));
    for (int i = 0; i < names.n; i++)
        if (qdri_name_is_same(name, names.names[i]) && n++ == 0) memcpy(spelled, names.names[i], QDRI_DATA_NAME_BYTES);
    if (n != 1) *spelled = '\0';
    qdri_data_names_free(&names);
    return QDR_OK;
}

/* 1: a data folder has this name. */
static int find_name(const char *kind, const char *name, char path[QDRI_DATA_PATH_BYTES])
{
    char folder[QDRI_DATA_PATH_BYTES];
    for (walk w = walk_begin(); name[0] && walk_next(&w, folder);) {
        const int bytes = snprintf(path, QDRI_DATA_PATH_BYTES, "%s/%s/%s" ENDING, folder, kind, name);
        if (bytes < QDRI_DATA_PATH_BYTES && qdri_input_is_there(path)) return 1;
    }
    return 0;
}

/* The machine file that `quadrille calibrate` leaves for this host; it may not exist. 0: there is no place for it. */
static int host_file(char path[QDRI_DATA_PATH_BYTES])
{
    char folder[QDRI_DATA_PATH_BYTES], host[256] = "";
    if (gethostname(host, sizeof host - 1) != 0 || !host[0] || strchr(host, '/')) return 0;
    if (!qdri_environment_user_data(folder, sizeof folder)) return 0;
    return snprintf(path, QDRI_DATA_PATH_BYTES, "%s/hosts/%s" ENDING, folder, host) < QDRI_DATA_PATH_BYTES;
}

/* A folder means the config.json that it has. */
static qdr_status look_into_folder(const char *room, const char *noun, const char *kind,
                                   char path[QDRI_DATA_PATH_BYTES])
{
    struct stat info;
    const size_t n = strlen(path);
    const qdri_shown_name shown = qdri_shown(path);
    if (stat(path, &info) != 0 || !S_ISDIR(info.st_mode)) return QDR_OK;
    if (strcmp(kind, "models") == 0) {
        snprintf(path + n, QDRI_DATA_PATH_BYTES - n, "%sconfig.json", path[n - 1] == '/' ? "" : "/");
        if (qdri_input_is_there(path)) return QDR_OK;
    }
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s is a folder%s; name a %s, or its file", room, shown.text,
                    strcmp(kind, "models") == 0 ? " without a config.json" : "", noun);
}

qdr_status qdri_data_resolve(const char *room, const char *noun, const char *kind, const char *given,
                             qdri_data_prefer_fn prefer, char path[QDRI_DATA_PATH_BYTES])
{
    char own_file[QDRI_DATA_PATH_BYTES];
    const char *name_or_path = given;
    if (strcmp(kind, "machines") == 0 && strcmp(given, "here") == 0)
        name_or_path = host_file(own_file) && qdri_input_is_there(own_file) ? own_file : "laptop";
    const int is_path = strcmp(name_or_path, "-") == 0 || strchr(name_or_path, '/') ||
                        qdri_has_ending(name_or_path, ENDING);
    if (!is_path) {
        char spelled[QDRI_DATA_NAME_BYTES];
        if (find_name(kind, name_or_path, path)) return QDR_OK;
        if (strcmp(kind, "models") == 0 &&
            snprintf(path, QDRI_DATA_PATH_BYTES, "%s/config.json", name_or_path) < QDRI_DATA_PATH_BYTES &&
            qdri_input_is_there(path))
            return QDR_OK;
        QDR_TRY(find_spelling(kind, name_or_path, spelled));
        if (find_name(kind, spelled, path)) return QDR_OK;
        return unknown_name(room, noun, kind, name_or_path, prefer);
    }
    if (strlen(name_or_path) >= QDRI_DATA_PATH_BYTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the path has %zu bytes; the maximum is %d", room, strlen(name_or_path),
                        QDRI_DATA_PATH_BYTES - 1);
    memcpy(path, name_or_path, strlen(name_or_path) + 1);
    return look_into_folder(room, noun, kind, path);
}

/* ---- public functions ---- */

static qdr_status give(const char *found, char *path, size_t bytes)
{
    if (strlen(found) >= bytes)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "data: the path has %zu bytes; there is room for %zu", strlen(found),
                        bytes - 1);
    memcpy(path, found, strlen(found) + 1);
    return QDR_OK;
}

qdr_status qdr_data_find(const char *kind, const char *name_or_path, char *path, size_t bytes)
{
    char found[QDRI_DATA_PATH_BYTES];
    if (path && bytes) *path = '\0';
    if (!kind || !name_or_path || !path || !bytes)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "data: the kind, the name or the path pointer is NULL");
    QDR_TRY(qdri_data_resolve("data", "data file", kind, name_or_path, NULL, found));
    return give(found, path, bytes);
}

qdr_status qdr_data_host_file(char *path, size_t bytes)
{
    char found[QDRI_DATA_PATH_BYTES];
    if (path && bytes) *path = '\0';
    if (!path || !bytes) return QDR_FAIL(QDR_ERR_ARGUMENT, "data: the path pointer is NULL");
    if (!host_file(found))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "data: there is no folder for this host's files; set HOME or XDG_DATA_HOME to "
                        "an absolute path");
    return give(found, path, bytes);
}
