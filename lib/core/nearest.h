/* SPDX-License-Identifier: Apache-2.0 */
/* How far two names are from each other. */
#ifndef QDRI_CORE_NEAREST_H
#define QDRI_CORE_NEAREST_H

enum { QDRI_NEAREST_BYTES = 64 };

/* Letters to insert, remove, replace, or exchange with a neighbour, to make b of a; case does not matter. Of the first
 * QDRI_NEAREST_BYTES letters. */
int qdri_edit_distance(const char *a, const char *b);
/* 1: `typed` is the beginning of `name`, or each of its words begins a word of `name`, in the same order. */
int qdri_name_begins(const char *typed, const char *name);

#endif
