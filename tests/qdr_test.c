/* SPDX-License-Identifier: Apache-2.0 */
#include "qdr_test.h"

/* By the lines of their file, which has 600 at most (tests/tools/check_style.py). cmocka leaves out what is empty. */
static struct CMUnitTest all_tests[601];

void add_test(int line, const char *name, CMUnitTestFunction test, CMFixtureFunction set_up,
              CMFixtureFunction tear_down)
{
    all_tests[line] = (struct CMUnitTest){name, test, set_up, tear_down, NULL};
}

int run_all_tests(CMFixtureFunction set_up, CMFixtureFunction tear_down)
{
    return cmocka_run_group_tests(all_tests, set_up, tear_down);
}

/* Of programs that have none of their own. */
__attribute__((weak)) int main(void) { return run_all_tests(NULL, NULL); }
