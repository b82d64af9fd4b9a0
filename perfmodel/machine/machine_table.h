/* SPDX-License-Identifier: Apache-2.0 */
/* One table with all numbers in a file of a machine, and one of those in a file of a software: key, location, unit and
 * range of each. Reading, writing and setting by name all use them. */
#ifndef QDRI_PERFMODEL_MACHINE_MACHINE_TABLE_H
#define QDRI_PERFMODEL_MACHINE_MACHINE_TABLE_H

#include <stddef.h>

#include "files/data.h"
#include "quadrille/machine.h"

/* Limit for what runs at the same time as something else; with a higher value, the model treats it as waiting. */
enum { QDRI_MOST_SLOWDOWN = 100 };

typedef enum qdri_field_kind {
    QDRI_NUMBER,
    QDRI_RATE, /* something is divided by it; 0: there is none, or its limit is not known */
    QDRI_WHOLE /* an int */
} qdri_field_kind;

/* In the file's units: smaller rates above 0 are refused, so times stay finite, whatever is divided by one. */
#define QDRI_LEAST_RATE 1e-6

/* A number: (value in the struct) = unit · (value in the file). */
typedef struct qdri_machine_field {
    qdri_field_kind kind;
    const char *key;
    size_t offset;
    double unit;
    double least, most;
} qdri_machine_field;

/* An object in the file, or the root. */
typedef struct qdri_machine_section {
    const char *key; /* NULL: the root */
    size_t offset;
    const qdri_machine_field *fields;
} qdri_machine_section;

/* A list of objects. */
typedef struct qdri_machine_list {
    const char *key;
    size_t offset, item_bytes, count_offset;
    int least, most; /* number of items */
    const qdri_machine_field *fields;
} qdri_machine_list;

enum { QDRI_LINKS_LIST = 1 };
extern const qdri_machine_section qdri_machine_sections[]; /* to one without fields */
extern const qdri_machine_list qdri_machine_lists[]; /* to one without a key */

/* A kind of files, KIND/NAME.json in the data. */
typedef struct qdri_file_kind {
    const char *noun, *folder;
    const qdri_machine_section *sections;
    const qdri_machine_list *lists;
    size_t name, device; /* where its names are; device 0: it has none */
} qdri_file_kind;
extern const qdri_file_kind qdri_machine_kind, qdri_software_kind;

/* In the file's unit. `item` is the struct that contains the field. */
double qdri_machine_get_number(const void *item, const qdri_machine_field *f);
void qdri_machine_set_number(void *item, const qdri_machine_field *f, double value);
/* Whether the section is a type of products that the machine does not support: one without a peak. */
int qdri_machine_lacks(const void *machine, const qdri_machine_section *section);
/* Checks that every number is in its range, and lists are not too long. Products of a type without a peak are not
 * checked. */
qdr_status qdri_check_numbers(const qdri_file_kind *kind, const void *item, const char *name);
/* Reads a file, or a text, and what it is based on, over what is in *item. */
qdr_status qdri_file_load(const qdri_file_kind *kind, const char *name_or_path, void *item);
qdr_status qdri_file_parse(const qdri_file_kind *kind, const char *text, size_t bytes, const char *name, void *item);
/* The name of the file whose name is `text`, or one of whose aliases `text` equals or begins with. */
qdr_status qdri_file_find(const qdri_file_kind *kind, const char *text, char name[QDRI_DATA_NAME_BYTES]);
qdr_status qdri_file_list(const qdri_file_kind *kind, qdr_name_fn each, void *user);

#endif
