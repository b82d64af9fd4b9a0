/* SPDX-License-Identifier: Apache-2.0 */
/* Checks for overlaps between memory ranges. */
#include "core/ranges.h"

static int overlap(const qdri_range *a, const qdri_range *b)
{
    const uintptr_t a_begin = (uintptr_t)a->begin, b_begin = (uintptr_t)b->begin;
    if (a->bytes == 0 || b->bytes == 0) return 0;
    return a_begin < b_begin ? b_begin - a_begin < a->bytes : a_begin - b_begin < b->bytes;
}

qdr_status qdri_ranges_check(const char *who, const qdri_range *ranges, int n)
{
    for (int j = 1; j < n; j++) {
        for (int i = 0; i < j; i++) {
            const qdri_range *a = &ranges[i], *b = &ranges[j];
            const int may_coincide = a->in_place || b->in_place;
            if ((!a->writes && !b->writes) || !overlap(a, b)) continue;
            if (may_coincide && a->begin == b->begin && a->bytes == b->bytes) continue;
            return QDR_FAIL(
                QDR_ERR_ARGUMENT,
                "%.100s: %s (%zu bytes at %p) and %s (%zu bytes at %p) overlap; give each memory of its own%s", who,
                a->what, a->bytes, a->begin, b->what, b->bytes, b->begin, may_coincide ? ", or exactly the same" : "");
        }
    }
    return QDR_OK;
}
