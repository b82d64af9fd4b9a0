/* SPDX-License-Identifier: Apache-2.0 */
/* One table with all numbers in a machine file: key, location, unit and range of each. Reading, writing and setting by
 * name all use it. */
#ifndef QDRI_PERFMODEL_MACHINE_MACHINE_TABLE_H
#define QDRI_PERFMODEL_MACHINE_MACHINE_TABLE_H

#include <stddef.h>

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

/* In the file's unit. `item` is the struct that contains the field. */
double qdri_machine_get_number(const void *item, const qdri_machine_field *f);
void qdri_machine_set_number(void *item, const qdri_machine_field *f, double value);
/* Whether the section is a type of products that the machine does not support: one without a peak. */
int qdri_machine_lacks(const qdr_machine *machine, const qdri_machine_section *section);
/* Checks that every number is in its range, and lists are not too long. Products of a type without a peak are not
 * checked. */
qdr_status qdri_machine_check_numbers(const qdr_machine *machine, const char *name);

/* For qdri_data_resolve(): machines whose device name begins with `name` ("H100"). */
int qdri_machine_prefer(const char *name, const char **list, int n);

#endif
