/* SPDX-License-Identifier: Apache-2.0 */
/* Files of machines and of software: reading, checking, and writing with the shortest digits that give the same number
 * when read. */
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "core/json.h"
#include "core/nearest.h"
#include "core/sized.h"
#include "files/data.h"
#include "machine/machine_table.h"

enum { MOST_BASES = 4 };

/* ---- reading ---- */

/* A number under an unknown key is a mistake; other values are notes. */
static qdr_status check_keys(const qdri_json_node *object, const qdri_machine_field *fields)
{
    for (const char *key = NULL; (key = qdri_json_next_key(object, key)) != NULL;) {
        const qdri_json_node node = qdri_json_get(object, key);
        const char *nearest = "";
        int least = INT_MAX, is_known = 0;
        if (qdri_json_kind_of(node) != QDRI_JSON_NUMBER) continue;
        for (const qdri_machine_field *f = fields; f->key && !is_known; f++) {
            const int distance = qdri_edit_distance(key, f->key);
            is_known = strcasecmp(key, f->key) == 0;
            if (distance >= least || !qdri_name_is_near(key, f->key)) continue;
            nearest = f->key;
            least = distance;
        }
        if (is_known) continue;
        if (!*nearest)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is unknown; docs/model.md lists the keys",
                            qdri_json_where(node).text);
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is unknown; did you mean '%s'?", qdri_json_where(node).text, nearest);
    }
    return QDR_OK;
}

static qdr_status read_fields(const qdri_json_node *object, const qdri_machine_field *fields, void *item)
{
    QDR_TRY(check_keys(object, fields));
    for (const qdri_machine_field *f = fields; f->key; f++) {
        const qdri_json_node node = qdri_json_get(object, f->key);
        double value = 0;
        int64_t whole = 0;
        if (!qdri_json_has(node)) continue;
        if (f->kind == QDRI_WHOLE) {
            QDR_TRY(qdri_json_int(node, (int64_t)f->least, (int64_t)f->most, &whole));
            value = (double)whole;
        } else {
            QDR_TRY(qdri_json_number(node, f->least, f->most, &value));
        }
        qdri_machine_set_number(item, f, value);
    }
    return QDR_OK;
}

static qdr_status read_name(const qdri_json_node *object, const char *key, char name[QDR_MAX_NAME])
{
    const char *text = NULL;
    QDR_TRY(qdri_json_string_or(qdri_json_get(object, key), QDR_MAX_NAME, NULL, &text));
    if (text) snprintf(name, QDR_MAX_NAME, "%s", text);
    return QDR_OK;
}

/* A list replaces that of the base. */
static qdr_status read_list(const qdri_json_node *root, const qdri_machine_list *which, char *at)
{
    const qdri_json_node node = qdri_json_get(root, which->key);
    qdri_json_node list;
    size_t n = 0;
    if (!qdri_json_has(node)) return QDR_OK;
    QDR_TRY(qdri_json_list(node, &list, &n));
    if (n < 1 || n > (size_t)which->most)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has %zu entries; 1 to %d are possible", qdri_json_where(node).text, n,
                        which->most);
    for (size_t i = 0; i < n; i++) {
        const qdri_json_node entry = qdri_json_at(&list, i);
        char *item = at + which->offset + i * which->item_bytes;
        qdri_json_node object;
        memset(item, 0, which->item_bytes);
        QDR_TRY(qdri_json_object(entry, &object));
        if (which == &qdri_machine_lists[QDRI_LINKS_LIST])
            QDR_TRY(read_name(&object, "name", ((qdr_machine_link *)(void *)item)->name));
        QDR_TRY(read_fields(&object, which->fields, item));
    }
    *(int *)(void *)(at + which->count_offset) = (int)n;
    return QDR_OK;
}

static qdr_status read_sections(const qdri_json_node *root, const qdri_file_kind *kind, char *at)
{
    QDR_TRY(read_name(root, "name", at + kind->name));
    if (kind->device) QDR_TRY(read_name(root, "device", at + kind->device));
    for (const qdri_machine_section *section = kind->sections; section->fields; section++) {
        qdri_json_node object = *root;
        if (section->key) {
            const qdri_json_node node = qdri_json_get(root, section->key);
            if (!qdri_json_has(node)) continue;
            QDR_TRY(qdri_json_object(node, &object));
        }
        QDR_TRY(read_fields(&object, section->fields, at + section->offset));
        /* A type of products that occurs in a file must have a peak, there or in the base. */
        const qdri_json_node peak = qdri_json_get(&object, "peak_TFLOPS");
        if (qdri_machine_lacks(at, section) && !qdri_json_has(peak))
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is missing; a peak is needed, or 0 for none",
                            qdri_json_where(peak).text);
    }
    for (const qdri_machine_list *list = kind->lists; list->key; list++) QDR_TRY(read_list(root, list, at));
    return QDR_OK;
}

/* Defaults for what a file may leave out. */
static void set_neutral(qdr_machine *machine)
{
    qdr_machine_products *types[] = {&machine->f64, &machine->f32, &machine->bf16};
    *machine = (qdr_machine){QDR_INIT(qdr_machine), .memory_efficiency = 1, .n_units = 1, .wave_power = 1};
    for (int i = 0; i < 3; i++) *types[i] = (qdr_machine_products){.most = 1, .factor = {1, 1, 1}, .odd_factor = 1};
    machine->collectives.n_protocols = 1;
    machine->collectives.protocols[0] = (qdr_machine_protocol){.step_factor = 1, .rate_factor = 1};
}

/* For qdri_data_resolve(): machines whose device begins with `name` ("H100"). */
static int with_device(const char *name, const char **list, int n)
{
    static _Thread_local int is_asking; /* a file may be based on an unknown name, too */
    int n_near = 0;
    if (is_asking) return 0;
    is_asking = 1;
    for (int i = 0; i < n; i++) {
        qdr_machine machine = {QDR_INIT(qdr_machine)};
        if (qdr_machine_load(list[i], &machine) != QDR_OK) continue; /* a broken file is not a suggestion */
        if (!qdri_name_begins(name, machine.device)) continue;
        const char *near = list[i];
        memmove(list + n_near + 1, list + n_near, (size_t)(i - n_near) * sizeof *list);
        list[n_near++] = near;
    }
    is_asking = 0;
    return n_near;
}

static qdr_status load(const qdri_file_kind *kind, const char *name_or_path, int depth, void *item);

static qdr_status read_document(const qdri_json *document, const qdri_file_kind *kind, int depth, void *item)
{
    qdri_json_node root;
    const char *base = NULL;
    QDR_TRY(qdri_json_root(document, &root));
    const qdri_json_node based_on = qdri_json_get(&root, "based_on");
    QDR_TRY(qdri_json_string_or(based_on, QDR_MAX_NAME, NULL, &base));
    if (base && depth == MOST_BASES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: more than %d files are based on one another; do they form a cycle?",
                        qdri_json_where(based_on).text, MOST_BASES);
    if (base) QDR_TRY(load(kind, base, depth + 1, item));
    return read_sections(&root, kind, item);
}

static qdr_status load(const qdri_file_kind *kind, const char *name_or_path, int depth, void *item)
{
    char path[QDRI_DATA_PATH_BYTES];
    qdri_json *document = NULL;
    QDR_TRY(
        qdri_data_resolve(kind->noun, kind->noun, kind->folder, name_or_path, kind->device ? with_device : NULL, path));
    QDR_TRY(qdri_json_load(path, &document));
    const qdr_status status = read_document(document, kind, depth, item);
    qdri_json_free(&document);
    return status;
}

qdr_status qdri_file_load(const qdri_file_kind *kind, const char *name_or_path, void *item)
{
    return load(kind, name_or_path, 0, item);
}

qdr_status qdri_file_parse(const qdri_file_kind *kind, const char *text, size_t bytes, const char *name, void *item)
{
    qdri_json *document = NULL;
    qdr_status status = qdri_json_parse(text, bytes, name, &document);
    if (status == QDR_OK) status = read_document(document, kind, 0, item);
    qdri_json_free(&document);
    return status;
}

qdr_status qdri_file_list(const qdri_file_kind *kind, qdr_name_fn each, void *user)
{
    qdri_data_names names = {0};
    if (!each) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the function to call is NULL", kind->noun);
    QDR_TRY(qdri_data_list(kind->folder, &names));
    for (int i = 0; i < names.n; i++) each(names.names[i], user);
    qdri_data_names_free(&names);
    return QDR_OK;
}

/* ---- required values ---- */

static qdr_status missing(const char *name, const char *key, const char *what)
{
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: key '%s' is missing or 0; %s is needed", name, key, what);
}

static qdr_status check_link(const qdr_machine *machine, int level, const char *name)
{
    const qdr_machine_link *link = &machine->links[level];
    const int below = level ? machine->links[level - 1].n_ranks : 1;
    const int last = level == machine->n_links - 1;
    char key[32];
    snprintf(key, sizeof key, "links[%d].%s", level,
             level == 0         ? "rank_GBps"
             : link->n_adapters ? "adapter_GBps"
                                : "adapters");
    if (level == 0 ? !(link->rank_bytes_per_sec > 0) : !(link->n_adapters > 0 && link->adapter_bytes_per_sec > 0))
        return missing(name, key, "what the link carries");
    if (last ? link->n_ranks != 0 && link->n_ranks <= below : link->n_ranks <= below)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: key 'links[%d].ranks' is %d; it must exceed the %d of the level below (on the last level, "
                        "0 means any number)",
                        name, level, link->n_ranks, below);
    if (last || machine->links[level + 1].n_ranks == 0 || link->n_ranks == 0) return QDR_OK;
    if (machine->links[level + 1].n_ranks % link->n_ranks == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: key 'links[%d].ranks' is %d, not a multiple of the %d of the level below",
                    name, level + 1, machine->links[level + 1].n_ranks, link->n_ranks);
}

qdr_status qdr_machine_check(const qdr_machine *given, const char *name)
{
    qdr_machine own;
    const qdr_machine *machine = &own;
    QDR_TRY(QDRI_TAKE(qdr_machine, given, &own));
    if (machine->ranks_per_node < 1) return missing(name, "ranks_per_node", "a number of ranks");
    if (!(machine->memory_bytes > 0)) return missing(name, "memory_GiB", "the memory of a rank");
    if (!(machine->memory_bytes_per_sec > 0)) return missing(name, "memory_GBps", "the memory's speed");
    if (!(machine->f32.peak_flops > 0) && !(machine->bf16.peak_flops > 0))
        return missing(name, "bf16.peak_TFLOPS", "a peak of bf16 or f32");
    if (machine->n_links < 1) return missing(name, "links", "a list of at least one level");
    QDR_TRY(qdri_check_numbers(&qdri_machine_kind, machine, name));
    for (int l = 0; l < machine->n_links; l++) QDR_TRY(check_link(machine, l, name));
    return QDR_OK;
}

/* ---- writing ---- */

/* Writes a number in the file's unit, such that reading it gives the same number in the struct. */
static void write_number(FILE *file, const void *item, const qdri_machine_field *f)
{
    const double wanted = f->kind == QDRI_WHOLE ? 0 : *(const double *)(const void *)((const char *)item + f->offset);
    const double value = qdri_machine_get_number(item, f);
    char text[40];
    if (f->kind == QDRI_WHOLE) {
        fprintf(file, "%.0f", value);
        return;
    }
    for (int n_digits = 6; n_digits <= 17; n_digits++) {
        snprintf(text, sizeof text, "%.*g", n_digits, value);
        if (strtod(text, NULL) * f->unit == wanted) break;
    }
    fputs(text, file);
}

/* Writes all numbers of an object; `first` precedes the first of them. */
static void write_fields(FILE *file, const qdri_machine_field *fields, const void *item, const char *first,
                         const char *between)
{
    for (const qdri_machine_field *f = fields; f->key; f++) {
        fprintf(file, "%s\"%s\": ", f == fields ? first : between, f->key);
        write_number(file, item, f);
    }
}

static void write_list(FILE *file, const qdri_machine_list *list, const qdr_machine *machine)
{
    const char *base = (const char *)machine;
    const int n = *(const int *)(const void *)(base + list->count_offset);
    if (n < 1) return;
    fprintf(file, ",\n  \"%s\": [", list->key);
    for (int i = 0; i < n; i++) {
        const char *item = base + list->offset + (size_t)i * list->item_bytes;
        fputs(i ? ",\n    {" : "\n    {", file);
        if (list == &qdri_machine_lists[QDRI_LINKS_LIST]) {
            fputs("\"name\": ", file);
            qdri_json_put_quoted(file, ((const qdr_machine_link *)(const void *)item)->name);
            fputs(", ", file);
        }
        write_fields(file, list->fields, item, "", ", ");
        putc('}', file);
    }
    fputs("\n  ]", file);
}

qdr_status qdr_machine_write(const qdr_machine *given, const char *more, FILE *file)
{
    qdr_machine own;
    const qdr_machine *machine = &own;
    if (!file) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: the file to write to is NULL");
    QDR_TRY(QDRI_TAKE(qdr_machine, given, &own));
    QDR_TRY(qdr_machine_check(machine, machine->name));
    fputs("{\n  \"name\": ", file);
    qdri_json_put_quoted(file, machine->name);
    fputs(",\n  \"device\": ", file);
    qdri_json_put_quoted(file, machine->device);
    for (const qdri_machine_section *section = qdri_machine_sections; section->fields; section++) {
        const void *item = (const char *)machine + section->offset;
        if (qdri_machine_lacks(machine, section)) continue;
        if (section->key) fprintf(file, ",\n  \"%s\": {", section->key);
        write_fields(file, section->fields, item, section->key ? "" : ",\n  ", section->key ? ", " : ",\n  ");
        if (section->key) putc('}', file);
    }
    for (const qdri_machine_list *list = qdri_machine_lists; list->key; list++) write_list(file, list, machine);
    if (more) fprintf(file, ",\n  %s", more);
    fputs("\n}\n", file);
    if (fflush(file) == 0 && !ferror(file)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_IO, "machine: the file of %s cannot be written; is the disk full?", machine->name);
}

/* ---- public functions ---- */

static qdr_status finish(qdr_status status, const char *name, const qdr_machine *own, qdr_machine *machine)
{
    if (status == QDR_OK) status = qdr_machine_check(own, name);
    if (status == QDR_OK) QDRI_GIVE(qdr_machine, machine, own);
    return status;
}

qdr_status qdr_machine_load(const char *name_or_path, qdr_machine *machine)
{
    qdr_machine own;
    QDR_TRY(QDRI_CLEAR(qdr_machine, machine));
    if (!name_or_path) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: the name is NULL");
    set_neutral(&own);
    return finish(qdri_file_load(&qdri_machine_kind, name_or_path, &own), name_or_path, &own, machine);
}

qdr_status qdr_machine_parse(const char *text, size_t bytes, const char *name, qdr_machine *machine)
{
    qdr_machine own;
    QDR_TRY(QDRI_CLEAR(qdr_machine, machine));
    if (!text || !name) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: the text or its name is NULL");
    set_neutral(&own);
    return finish(qdri_file_parse(&qdri_machine_kind, text, bytes, name, &own), name, &own, machine);
}

qdr_status qdr_machine_list(qdr_name_fn each, void *user) { return qdri_file_list(&qdri_machine_kind, each, user); }
