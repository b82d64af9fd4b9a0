/* SPDX-License-Identifier: Apache-2.0 */
/* A list for one sentence: the first few of what is wrong, and how many more there are. */
#ifndef QDRI_CORE_COMPLAINTS_H
#define QDRI_CORE_COMPLAINTS_H

typedef struct qdri_complaints {
    char text[300]; /* "a is missing, b is [2], not [3]" */
    char more[32]; /* ", and 7 more", or "" */
    int n, n_named;
} qdri_complaints;

void qdri_complain(qdri_complaints *all, const char *format, ...) __attribute__((format(printf, 2, 3)));

#endif
