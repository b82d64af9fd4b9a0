/* SPDX-License-Identifier: Apache-2.0 */
/* The distance between two names. */
#ifndef QDRI_CORE_NEAREST_H
#define QDRI_CORE_NEAREST_H

enum { QDRI_NEAREST_BYTES = 64 };

/* The number of characters to insert, remove, replace, or swap with a neighbour, to turn a into b, ignoring case. Only
 * the first QDRI_NEAREST_BYTES characters count. */
int qdri_edit_distance(const char *a, const char *b);
/* 1: `name` begins with `typed`, or each word of `typed` begins a word of `name`, in the same order. */
int qdri_name_begins(const char *typed, const char *name);
/* 1: they differ in case, dashes, dots, underscores and blanks at most. */
int qdri_name_is_same(const char *typed, const char *name);
/* 1: `name` is similar enough to be suggested. */
int qdri_name_is_near(const char *typed, const char *name);

#endif
