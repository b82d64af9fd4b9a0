/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a machine by their keys: "bf16.most", "links[1].adapter_GBps". */
#include <stdio.h>
#include <string.h>

#include "core/status.h"
#include "data.h"
#include "machine_table.h"

enum { KEY_BYTES = 64 };

/* One number of a machine. */
typedef struct spot {
    char key[KEY_BYTES];
    void *place;
    const qdri_machine_field *field;
} spot;
/* @return 1: enough */
typedef int (*spot_fn)(const spot *at, void *user);

static int walk_fields(const char *prefix, const qdri_machine_field *fields, void *place,
                       spot_fn each, void *user)
{
    for (const qdri_machine_field *f = fields; f->key; f++) {
        spot at = {.place = place, .field = f};
        snprintf(at.key, sizeof at.key, "%s%s", prefix, f->key);
        if (each(&at, user)) return 1;
    }
    return 0;
}

static int walk(qdr_machine *machine, spot_fn each, void *user)
{
    char *base = (char *)machine, prefix[KEY_BYTES / 2];
    for (int i = 0; i < QDRI_N_SECTIONS; i++) {
        const qdri_machine_section *section = &qdri_machine_sections[i];
        snprintf(prefix, sizeof prefix, section->key ? "%s." : "%s",
                 section->key ? section->key : "");
        if (walk_fields(prefix, section->fields, base + section->offset, each, user)) return 1;
    }
    for (int i = 0; i < QDRI_N_LISTS; i++) {
        const qdri_machine_list *list = &qdri_machine_lists[i];
        const int n = *(int *)(void *)(base + list->count_offset);
        for (int j = 0; j < n; j++) {
            snprintf(prefix, sizeof prefix, "%s[%d].", list->key, j);
            char *item = base + list->offset + (size_t)j * list->item_bytes;
            if (walk_fields(prefix, list->fields, item, each, user)) return 1;
        }
    }
    return 0;
}

typedef struct search {
    const char *key;
    spot found, nearest;
    int least_distance;
} search;

static int look(const spot *at, void *user)
{
    search *s = user;
    const int distance = qdri_edit_distance(s->key, at->key);
    if (distance < s->least_distance) {
        s->least_distance = distance;
        s->nearest = *at;
    }
    if (strcmp(s->key, at->key) != 0) return 0;
    s->found = *at;
    return 1;
}

static qdr_status find(qdr_machine *machine, const char *key, spot *found)
{
    if (!machine || !key) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: the machine or key is NULL");
    search s = {.key = key, .least_distance = 1 << 30};
    if (!walk(machine, look, &s))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: no key '%.64s'; did you mean '%s'?", key,
                        s.nearest.key);
    *found = s.found;
    return QDR_OK;
}

qdr_status qdr_machine_get(const qdr_machine *machine, const char *key, double *value)
{
    spot at;
    if (!value) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: no place for the value");
    *value = 0;
    QDR_TRY(find((qdr_machine *)machine, key, &at));
    *value = qdri_machine_get_number(at.place, at.field);
    return QDR_OK;
}

qdr_status qdr_machine_set(qdr_machine *machine, const char *key, double value)
{
    spot at;
    QDR_TRY(find(machine, key, &at));
    const qdri_machine_field *f = at.field;
    if (!(value >= f->least && value <= f->most) || (f->is_int && value != (double)(int)value))
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "machine: key '%s' is %g; a%s number from %g to %g is "
                        "needed",
                        key, value, f->is_int ? " whole" : "", f->least, f->most);
    qdri_machine_set_number(at.place, f, value);
    return QDR_OK;
}

typedef struct telling {
    qdr_name_fn each;
    void *user;
} telling;

static int tell(const spot *at, void *user)
{
    const telling *to = user;
    to->each(at->key, to->user);
    return 0;
}

void qdr_machine_keys(const qdr_machine *machine, qdr_name_fn each, void *user)
{
    telling to = {each, user};
    if (machine && each) walk((qdr_machine *)machine, tell, &to);
}
