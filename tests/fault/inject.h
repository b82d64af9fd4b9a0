/* SPDX-License-Identifier: Apache-2.0 */
/* Failures on request: the n-th allocation or thread creation of the code under test fails, once or from then on.
 *
 * A program that uses it links with -Wl,--wrap=... (fault_link_args in meson.build), so that calls by the library and
 * by the test are counted, but not those inside other libraries. One counter for the process; any thread may call. */
#ifndef QDR_TEST_INJECT_H
#define QDR_TEST_INJECT_H

typedef enum inject_kind {
    INJECT_MEMORY = 1, /* malloc, calloc, realloc, posix_memalign, aligned_alloc, strdup */
    INJECT_THREAD = 2 /* pthread_create */
} inject_kind;

typedef enum inject_extent {
    INJECT_ONCE = 0, /* the n-th call fails, later ones work */
    INJECT_ONWARDS = 1 /* it and all later ones fail */
} inject_extent;

/* Counts from 0 again. The n-th call (0 is the first) of the kinds (a sum) fails; n < 0: none, only count. */
void inject_begin(int kinds, long n, inject_extent extent);
/* Stops failing and counting; the number of calls of these kinds since inject_begin(). */
long inject_end(void);
/* Whether a call has been made to fail since inject_begin(). */
int inject_happened(void);

#endif
