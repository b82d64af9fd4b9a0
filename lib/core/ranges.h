/* SPDX-License-Identifier: Apache-2.0 */
/* Memory passed to calls: address ranges, and whether they may overlap. */
#ifndef QDRI_CORE_RANGES_H
#define QDRI_CORE_RANGES_H

#include "core/status.h"

typedef struct qdri_range {
    const char *what;
    const void *begin;
    size_t bytes; /* 0: no memory, whatever begin is */
    int writes; /* written; else only read */
    int in_place; /* written element by element: may coincide exactly with one of the others */
} qdri_range;

/* @retval QDR_ERR_ARGUMENT  a written range overlaps another one; the message begins with `who` */
QDR_NODISCARD qdr_status qdri_ranges_check(const char *who, const qdri_range *ranges, int n);
#define QDRI_RANGES_CHECK(who, ...)                                                                                    \
    qdri_ranges_check(who, (const qdri_range[]){__VA_ARGS__},                                                          \
                      (int)(sizeof((const qdri_range[]){__VA_ARGS__}) / sizeof(qdri_range)))

#endif
