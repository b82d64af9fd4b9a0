/* SPDX-License-Identifier: Apache-2.0 */
/* Machines and software as named in published tables. */
#include <quadrille/machine.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "core/json.h"
#include "core/nearest.h"
#include "core/sized.h"
#include "files/data.h"
#include "machine/machine_table.h"

enum { N_NEAREST = 3, SHOWN_BYTES = 80, FAR = 60 };

/* A name close to the text. */
typedef struct near_name {
    char text[SHOWN_BYTES];
    int distance; /* percent */
} near_name;

typedef struct search {
    const char *text;
    char name[QDRI_DATA_NAME_BYTES]; /* the best file so far; "": none */
    size_t longest; /* length of its alias, the longest match so far */
    near_name nearest[N_NEAREST];
    int n_nearest;
} search;

/* How much of a name differs from the beginning of the text, in percent. */
static int distance(const char *text, const char *name)
{
    char begin[QDRI_DATA_NAME_BYTES + 1];
    const int bytes = (int)strnlen(name, QDRI_DATA_NAME_BYTES);
    snprintf(begin, sizeof begin, "%.*s", bytes, text);
    return bytes ? 100 * qdri_edit_distance(begin, name) / bytes : 100;
}

static void remember(search *s, const char *name)
{
    near_name one = {.distance = distance(s->text, name)};
    qdri_json_printable(name, one.text, sizeof one.text);
    if (one.distance > FAR) return;
    int at = s->n_nearest < N_NEAREST ? s->n_nearest++ : N_NEAREST;
    while (at > 0 && s->nearest[at - 1].distance > one.distance) {
        if (at < N_NEAREST) s->nearest[at] = s->nearest[at - 1];
        at--;
    }
    if (at < N_NEAREST) s->nearest[at] = one;
}

static qdr_status offer_aliases(search *s, const qdri_json *document, const char *file)
{
    qdri_json_node root, list;
    size_t n = 0;
    QDR_TRY(qdri_json_root(document, &root));
    const qdri_json_node node = qdri_json_get(&root, "aliases");
    if (!qdri_json_has(node)) return QDR_OK;
    QDR_TRY(qdri_json_list(node, &list, &n));
    for (size_t i = 0; i < n; i++) {
        const char *alias = NULL;
        QDR_TRY(qdri_json_string(qdri_json_at(&list, i), 0, &alias));
        const size_t bytes = strlen(alias);
        remember(s, alias);
        if (bytes <= s->longest || strncasecmp(s->text, alias, bytes) != 0) continue;
        s->longest = bytes;
        snprintf(s->name, sizeof s->name, "%s", file);
    }
    return QDR_OK;
}

static qdr_status search_all(search *s, const qdri_file_kind *kind, const qdri_data_names *names)
{
    for (int i = 0; i < names->n; i++) {
        const char *file = names->names[i];
        char path[QDRI_DATA_PATH_BYTES];
        qdri_json *document = NULL;
        if (strcasecmp(file, s->text) == 0) {
            snprintf(s->name, sizeof s->name, "%s", file);
            return QDR_OK;
        }
        remember(s, file);
        QDR_TRY(qdri_data_resolve(kind->noun, kind->noun, kind->folder, file, NULL, path));
        QDR_TRY(qdri_json_load(path, &document));
        const qdr_status status = offer_aliases(s, document, file);
        qdri_json_free(&document);
        QDR_TRY(status);
    }
    return QDR_OK;
}

static qdr_status nobody(const search *s, const char *noun)
{
    char shown[SHOWN_BYTES], list[N_NEAREST * (SHOWN_BYTES + 4) + 16] = "";
    qdri_json_printable(s->text, shown, sizeof shown);
    for (int i = 0; i < s->n_nearest; i++) {
        const size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s\"%s\"", i ? ", " : "; nearest: ", s->nearest[i].text);
    }
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "%s: no %s is named \"%s\" or has an alias that this begins with%s (add it to the \"aliases\" of a "
                    "file, or name a %s)",
                    noun, noun, shown, list, noun);
}

qdr_status qdri_file_find(const qdri_file_kind *kind, const char *text, char name[QDRI_DATA_NAME_BYTES])
{
    qdri_data_names names = {0};
    search s = {.text = text};
    if (!text) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the name is NULL", kind->noun);
    QDR_TRY(qdri_data_list(kind->folder, &names));
    const qdr_status status = search_all(&s, kind, &names);
    qdri_data_names_free(&names);
    if (status != QDR_OK) return status;
    memcpy(name, s.name, QDRI_DATA_NAME_BYTES);
    return s.name[0] ? QDR_OK : nobody(&s, kind->noun);
}

qdr_status qdr_machine_find(const char *text, qdr_machine *machine)
{
    char name[QDRI_DATA_NAME_BYTES];
    QDR_TRY(QDRI_CLEAR(qdr_machine, machine));
    QDR_TRY(qdri_file_find(&qdri_machine_kind, text, name));
    return qdr_machine_load(name, machine);
}
