/* SPDX-License-Identifier: Apache-2.0 */
/* Lists that grow by doubling. */
#ifndef QUADRILLE_SRC_COMMON_GROW_H
#define QUADRILLE_SRC_COMMON_GROW_H

#include <stdint.h>
#include <stdlib.h>

/* Whether there is room for one more item in the list, which may move; room is made for `least` items at first, and
 * the list stays as it is when out of memory. */
static inline int grow(void **items, int64_t n, int64_t *capacity, int64_t least, size_t bytes_each)
{
    if (n < *capacity) return 1;
    const int64_t wanted = *capacity ? 2 * *capacity : least;
    void *more = realloc(*items, (size_t)wanted * bytes_each);
    if (!more) return 0;
    *items = more;
    *capacity = wanted;
    return 1;
}

#endif
