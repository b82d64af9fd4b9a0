/* SPDX-License-Identifier: Apache-2.0 */
#include "core/named.h"

#include <stdlib.h>
#include <string.h>

static int by_name(const void *left, const void *right)
{
    const qdri_named *a = left, *b = right;
    const int order = strcmp(a->name, b->name);
    return order ? order : (a->number > b->number) - (a->number < b->number);
}

void qdri_named_sort(qdri_named *list, int n)
{
    if (n > 1) qsort(list, (size_t)n, sizeof *list, by_name);
}

const qdri_named *qdri_named_find(const qdri_named *list, int n, const char *name)
{
    int low = 0, high = n;
    while (low < high) {
        const int middle = low + (high - low) / 2;
        if (strcmp(list[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low < n && strcmp(list[low].name, name) == 0 ? &list[low] : NULL;
}

const qdri_named *qdri_named_twice(const qdri_named *list, int n)
{
    for (int i = 0; i + 1 < n; i++)
        if (strcmp(list[i].name, list[i + 1].name) == 0) return &list[i];
    return NULL;
}
