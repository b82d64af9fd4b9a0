/* SPDX-License-Identifier: Apache-2.0 */
/* One table of the numbers of a machine file: each one's key, place, unit and range. Reading, writing and setting by
 * name go through it. */
#ifndef QDRI_PERFMODEL_MACHINE_TABLE_H
#define QDRI_PERFMODEL_MACHINE_TABLE_H

#include <stddef.h>

#include "quadrille/machine.h"

/* Of what runs beside something else; beyond that it waits, as far as the model goes. */
enum { QDRI_MOST_SLOWDOWN = 100 };

/* A number: `value in the struct` = unit · value in the file. */
typedef struct qdri_machine_field {
    const char *key;
    size_t offset;
    double unit;
    double least, most;
    int is_int;
} qdri_machine_field;

/* An object of the file, or the root. */
typedef struct qdri_machine_section {
    const char *key; /* NULL: the root */
    size_t offset;
    const qdri_machine_field *fields;
} qdri_machine_section;

/* A list of objects. */
typedef struct qdri_machine_list {
    const char *key;
    size_t offset, item_bytes, count_offset;
    int least, most; /* items */
    const qdri_machine_field *fields;
} qdri_machine_list;

enum { QDRI_N_SECTIONS = 6, QDRI_N_LISTS = 3, QDRI_LINKS_LIST = 1 };
extern const qdri_machine_section qdri_machine_sections[QDRI_N_SECTIONS];
extern const qdri_machine_list qdri_machine_lists[QDRI_N_LISTS];

/* In the file's unit. `place` is the struct that the field lies in. */
double qdri_machine_get_number(const void *place, const qdri_machine_field *f);
void qdri_machine_set_number(void *place, const qdri_machine_field *f, double value);
/* Every number in its range; lists with as many items as there is room for. Products of a type that has no peak are not
 * looked at. */
qdr_status qdri_machine_check_numbers(const qdr_machine *machine, const char *name);

#endif
