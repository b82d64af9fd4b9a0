/* SPDX-License-Identifier: Apache-2.0 */
/* To be loaded before all libraries: makes a program believe that it runs on a node with version 9.9.9 of the library
 * and with a clock that is 3 s ahead. */
#define _GNU_SOURCE 1 /* RTLD_NEXT */
#include <dlfcn.h>
#include <quadrille/version.h>
#include <string.h>
#include <time.h>

/* POSIX allows converting a data pointer to a function pointer, C does not: so it is copied as bytes. */
static void find_next(const char *name, void *function)
{
    void *found = dlsym(RTLD_NEXT, name);
    memcpy(function, &found, sizeof found);
}

QDR_API int clock_gettime(clockid_t clock, struct timespec *now);
int clock_gettime(clockid_t clock, struct timespec *now)
{
    static int (*next)(clockid_t, struct timespec *);
    if (!next) find_next("clock_gettime", &next);
    const int code = next(clock, now);
    if (code == 0 && clock == CLOCK_REALTIME) now->tv_sec += 3;
    return code;
}

const qdr_versions *qdr_get_versions(void)
{
    static qdr_versions versions;
    const qdr_versions *(*next)(void);
    find_next("qdr_get_versions", &next);
    versions = *next();
    versions.quadrille = "9.9.9";
    return &versions;
}
