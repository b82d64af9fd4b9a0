/* SPDX-License-Identifier: Apache-2.0 */
/* Names and their numbers, sorted for look-up: n log n steps, whatever the names are. */
#ifndef QDRI_CORE_NAMED_H
#define QDRI_CORE_NAMED_H

typedef struct qdri_named {
    const char *name;
    int number;
} qdri_named;

/* Sorts by name; equal names by number. */
void qdri_named_sort(qdri_named *list, int n);
/* The first of a sorted list that has this name; NULL: none. */
const qdri_named *qdri_named_find(const qdri_named *list, int n, const char *name);
/* The first of a sorted list whose name the next one has as well; NULL: names are unique. */
const qdri_named *qdri_named_twice(const qdri_named *list, int n);

#endif
