/* SPDX-License-Identifier: Apache-2.0 */
/* Writing machine files: the shortest digits that give the same number when read. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/status.h"
#include "machine/machine_table.h"

/* Writes text, escaped for JSON. */
static void write_text(FILE *file, const char *text)
{
    putc('"', file);
    for (; *text; text++) {
        if ((unsigned char)*text < ' ')
            fprintf(file, "\\u%04x", (unsigned)(unsigned char)*text);
        else
            fprintf(file, *text == '"' || *text == '\\' ? "\\%c" : "%c", *text);
    }
    putc('"', file);
}

/* Writes a number in the file's unit, such that reading it gives the same number in the struct. */
static void write_number(FILE *file, const void *place, const qdri_machine_field *f)
{
    const double wanted = f->is_int ? 0 : *(const double *)(const void *)((const char *)place + f->offset);
    const double value = qdri_machine_get_number(place, f);
    char text[40];
    if (f->is_int) {
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
static void write_fields(FILE *file, const qdri_machine_field *fields, const void *place, const char *first,
                         const char *between)
{
    for (const qdri_machine_field *f = fields; f->key; f++) {
        fprintf(file, "%s\"%s\": ", f == fields ? first : between, f->key);
        write_number(file, place, f);
    }
}

/* A type without a peak: not supported by the machine. */
static int is_absent(const qdri_machine_section *section, const qdr_machine *machine)
{
    const int is_type = section->offset == offsetof(qdr_machine, f64) ||
                        section->offset == offsetof(qdr_machine, f32) || section->offset == offsetof(qdr_machine, bf16);
    const qdr_machine_products *type = (const void *)((const char *)machine + section->offset);
    return is_type && !(type->peak_flops > 0);
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
            write_text(file, ((const qdr_machine_link *)(const void *)item)->name);
            fputs(", ", file);
        }
        write_fields(file, list->fields, item, "", ", ");
        putc('}', file);
    }
    fputs("\n  ]", file);
}

qdr_status qdr_machine_write(const qdr_machine *machine, const char *more, FILE *file)
{
    if (!machine || !file) return QDR_FAIL(QDR_ERR_ARGUMENT, "machine: the machine or the file to write to is NULL");
    QDR_TRY(qdr_machine_check(machine, machine->name));
    fputs("{\n  \"name\": ", file);
    write_text(file, machine->name);
    fputs(",\n  \"device\": ", file);
    write_text(file, machine->device);
    for (int i = 0; i < QDRI_N_SECTIONS; i++) {
        const qdri_machine_section *section = &qdri_machine_sections[i];
        const void *place = (const char *)machine + section->offset;
        if (is_absent(section, machine)) continue;
        if (section->key) fprintf(file, ",\n  \"%s\": {", section->key);
        write_fields(file, section->fields, place, section->key ? "" : ",\n  ", section->key ? ", " : ",\n  ");
        if (section->key) putc('}', file);
    }
    for (int i = 0; i < QDRI_N_LISTS; i++) write_list(file, &qdri_machine_lists[i], machine);
    if (more) fprintf(file, ",\n  %s", more);
    fputs("\n}\n", file);
    if (fflush(file) == 0 && !ferror(file)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_IO, "machine: the file of %s cannot be written; is the disk full?", machine->name);
}
