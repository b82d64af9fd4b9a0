/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by all tests: cmocka with its includes, checks of statuses, and reproducible seeds. */
#ifndef QDR_TEST_H
#define QDR_TEST_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "quadrille/status.h"

/* meson takes this exit code as "skipped". */
enum { QDR_TEST_SKIP = 77 };

/* TEST(name) { ... } is a test of its program; all run in the order of their file. TEST_IN: between a function that
 * sets up what it needs, or NULL, and one that tears it down. */
#define TEST(name) TEST_IN(name, NULL, NULL)
#define TEST_IN(name, set_up, tear_down)                                                                               \
    static void name(void **);                                                                                         \
    __attribute__((constructor)) static void add_##name(void) { add_test(__LINE__, #name, name, set_up, tear_down); }  \
    static void name(__attribute__((unused)) void **state)

void add_test(int line, const char *name, CMUnitTestFunction test, CMFixtureFunction set_up,
              CMFixtureFunction tear_down);

/* FIXTURE(name) { ... }: such a function, which returns 0 if all went well. */
#define FIXTURE(name) static inline int name(__attribute__((unused)) void **state)

/* Runs them all: a program without a main() does just that. The functions are called once, before and after all. */
int run_all_tests(CMFixtureFunction set_up, CMFixtureFunction tear_down);

/* Fails with the sentence of the error. */
#define CHECK_OK(expression) check_status((expression), QDR_OK, #expression, __FILE__, __LINE__)
/* The call fails with `status`, and its sentence holds `words`. */
#define CHECK_FAILS(expression, status, words)                                                                         \
    do {                                                                                                               \
        check_status((expression), (status), #expression, __FILE__, __LINE__);                                         \
        check_sentence((words), __FILE__, __LINE__);                                                                   \
    } while (0)

static inline void check_status(qdr_status got, qdr_status want, const char *what, const char *file, int line)
{
    if (got == want) return;
    print_error("%s gave %s, not %s: %s\n", what, qdr_status_name(got), qdr_status_name(want), qdr_last_error());
    _fail(file, line);
}

static inline void check_sentence(const char *words, const char *file, int line)
{
    if (strstr(qdr_last_error(), words)) return;
    print_error("\"%s\" is not in \"%s\"\n", words, qdr_last_error());
    _fail(file, line);
}

/* The seed of this run: QDR_TEST_SEED, or the time; printed, so that a failure can be repeated. */
static inline uint64_t test_seed(void)
{
    const char *text = getenv("QDR_TEST_SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    print_message("QDR_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* splitmix64: the next 64 random bits. */
static inline uint64_t test_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/* A random number of [low, high]. */
static inline int64_t test_between(uint64_t *state, int64_t low, int64_t high)
{
    return low + (int64_t)(test_random(state) % (uint64_t)(high - low + 1));
}

#endif
