/* SPDX-License-Identifier: Apache-2.0 */
/* Counts allocations in the whole process. A program that uses it links with count_dep, so that calls by the library
 * and by the test are counted, but not those inside other libraries. */
#ifndef TEST_DIST_COUNT_H
#define TEST_DIST_COUNT_H

#include <stddef.h>

/* Starts at zero. Any thread may allocate. */
void count_begin(void);
/* The largest single allocation since then; and the most that was held at once of what came since then. */
void count_so_far(size_t *largest, size_t *peak);

#endif
