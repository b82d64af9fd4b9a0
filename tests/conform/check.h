/* SPDX-License-Identifier: Apache-2.0 */
/* How programs of this folder fail: with the place, the rank, and the library's sentence. */
#ifndef TESTS_CONFORM_CHECK_H
#define TESTS_CONFORM_CHECK_H

#include <stdio.h>

#include "quadrille/status.h"

/* Returns 1 from a function of which `own_rank` is the rank. */
#define CHECK_OF_RANK(own_rank, condition, ...)                                                                        \
    do {                                                                                                               \
        if (!(condition)) {                                                                                            \
            fprintf(stderr, "%s:%d: rank %d: %s: ", __FILE__, __LINE__, own_rank, #condition);                         \
            fprintf(stderr, __VA_ARGS__);                                                                              \
            fprintf(stderr, " (%s)\n", qdr_last_error());                                                              \
            return 1;                                                                                                  \
        }                                                                                                              \
    } while (0)
#define OK(expression) CHECK((expression) == QDR_OK, "failed")

#endif
