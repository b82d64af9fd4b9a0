/* SPDX-License-Identifier: Apache-2.0 */
#ifndef UNIT_SEARCH_PAIRS_H
#define UNIT_SEARCH_PAIRS_H

#include "search/search.h"

static inline int has_pair(const qdri_parts *pairs, int n, int gradient, int optimizer)
{
    for (int i = 0; i < n; i++)
        if (pairs[i].gradient == gradient && pairs[i].optimizer == optimizer) return 1;
    return 0;
}

#endif
