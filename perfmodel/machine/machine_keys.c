/* SPDX-License-Identifier: Apache-2.0 */
/* The numbers of a machine by key: "bf16.most", "links[1].adapter_GBps". */
#include <limits.h>
#include <stdio.h>
#include <string.h>

#include "core/nearest.h"
#include "core/status.h"
#include "files/data.h"
#include "machine/machine_table.h"

enum { KEY_BYTES = 64 };

/* "a number from 0 to 1e+09", for messages. */
enum { RANGE_BYTES = 80 };
static const char *range_of(const qdri_machine_field *f, char text[RANGE_BYTES])
{
    if (f->least_positive > 0)
        snprintf(text, RANGE_BYTES, "0 or a number from %g to %g", f->least_positive, f->most);
    else
        snprintf(text, RANGE_BYTES, "a%s number from %g to %g", f->is_int ? " whole" : "", f->least, f->most);
    return text;
}

/* One number of a machine. */
typedef struct spot {
    char key[KEY_BYTES];
    void *place;
    const qdri_machine_field *field;
} spot;
/* @return 1: stop */
typedef int (*spot_fn)(const spot *at, void *user);

static int is_in_range(const qdri_machine_field *f, double value)
{
    if (!(value >= f->least && value <= f->most)) return 0;
    if (value > 0 && value < f->least_positive) return 0;
    return !f->is_int || value == (double)(int)value;
}

static int walk_fields(const char *prefix, const qdri_machine_field *fields, void *place, spot_fn each, void *user)
{
    for (const qdri_machine_field *f = fields; f->key; f++) {
        spot at = {.place = place, .field = f};
        snprintf(at.key, sizeof at.key, "%s%s", prefix, f->key);
        if (each(&at, user)) return 1;
    }
    return 0;
}

static int walk_section(qdr_machine *machine, const qdri_machine_section *section, spot_fn each, void *user)
{
    char prefix[KEY_BYTES / 2] = "";
    if (section->key) snprintf(prefix, sizeof prefix, "%s.", section->key);
    return walk_fields(prefix, section->fields, (char *)machine + section->offset, each, user);
}

static int list_length(const qdr_machine *machine, const qdri_machine_list *list)
{
    return *(const int *)(const void *)((const char *)machine + list->count_offset);
}

static int walk_list(qdr_machine *machine, const qdri_machine_list *list, spot_fn each, void *user)
{
    char prefix[KEY_BYTES / 2];
    const int n = list_length(machine, list);
    for (int i = 0; i < n; i++) {
        char *item = (char *)machine + list->offset + (size_t)i * list->item_bytes;
        snprintf(prefix, sizeof prefix, "%s[%d].", list->key, i);
        if (walk_fields(prefix, list->fields, item, each, user)) return 1;
    }
    return 0;
}

static int walk(qdr_machine *machine, spot_fn each, void *user)
{
    for (int i = 0; i < QDRI_N_SECTIONS; i++)
        if (walk_section(machine, &qdri_machine_sections[i], each, user)) return 1;
    for (int i = 0; i < QDRI_N_LISTS; i++)
        if (walk_list(machine, &qdri_machine_lists[i], each, user)) return 1;
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
    if (distance < s->least_distance && qdri_name_is_near(s->key, at->key)) {
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
    search s = {.key = key, .least_distance = INT_MAX};
    if (walk(machine, look, &s)) {
        *found = s.found;
        return QDR_OK;
    }
    if (!*s.nearest.key)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: no key '%.64s'; docs/model.md lists the keys", key);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: no key '%.64s'; did you mean '%s'?", key, s.nearest.key);
}

qdr_status qdr_machine_get(const qdr_machine *machine, const char *key, double *value)
{
    spot at;
    if (!value) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: the value pointer is NULL");
    *value = 0;
    QDR_TRY(find((qdr_machine *)machine, key, &at));
    *value = qdri_machine_get_number(at.place, at.field);
    return QDR_OK;
}

qdr_status qdr_machine_set(qdr_machine *machine, const char *key, double value)
{
    spot at;
    char range[RANGE_BYTES];
    QDR_TRY(find(machine, key, &at));
    const qdri_machine_field *f = at.field;
    if (!is_in_range(f, value))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: key '%s' is %g; %s is needed", key, value, range_of(f, range));
    qdri_machine_set_number(at.place, f, value);
    return QDR_OK;
}

/* ---- the whole machine ---- */

/* Products of a type that the machine does not support are not checked. */
static int is_unused(const qdr_machine *machine, const qdri_machine_section *section)
{
    const qdr_machine_products *types[] = {&machine->f64, &machine->f32, &machine->bf16};
    for (int i = 0; i < 3; i++)
        if ((const char *)types[i] == (const char *)machine + section->offset) return types[i]->peak_flops == 0;
    return 0;
}

static int find_bad(const spot *at, void *user)
{
    if (is_in_range(at->field, qdri_machine_get_number(at->place, at->field))) return 0;
    *(spot *)user = *at;
    return 1;
}

static qdr_status check_length(const qdr_machine *machine, const qdri_machine_list *list, const char *name)
{
    const int n = list_length(machine, list);
    if (n >= list->least && n <= list->most) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: key '%s' has %d entries; %d to %d are possible", name, list->key, n,
                    list->least, list->most);
}

qdr_status qdri_machine_check_numbers(const qdr_machine *machine, const char *name)
{
    qdr_machine *walked = (qdr_machine *)machine; /* find_bad does not change it */
    spot bad = {.field = NULL};
    char range[RANGE_BYTES];
    for (int i = 0; i < QDRI_N_LISTS; i++) QDR_TRY(check_length(machine, &qdri_machine_lists[i], name));
    for (int i = 0; i < QDRI_N_SECTIONS && !bad.field; i++)
        if (!is_unused(machine, &qdri_machine_sections[i]))
            walk_section(walked, &qdri_machine_sections[i], find_bad, &bad);
    for (int i = 0; i < QDRI_N_LISTS && !bad.field; i++) walk_list(walked, &qdri_machine_lists[i], find_bad, &bad);
    if (!bad.field) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: key '%s' is %g; %s is needed", name, bad.key,
                    qdri_machine_get_number(bad.place, bad.field), range_of(bad.field, range));
}

/* ---- keys ---- */

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
