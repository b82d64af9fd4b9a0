/* SPDX-License-Identifier: Apache-2.0 */
/* The log: its receiver, its levels. */
#include "core/log.h"

#include "qdr_test.h"

static struct {
    int n_lines, level;
    char line[2048];
} heard;

static void listen(int level, const char *line, void *user)
{
    assert_ptr_equal(user, &heard);
    heard.n_lines++;
    heard.level = level;
    snprintf(heard.line, sizeof heard.line, "%s", line);
}

static void lines_above_the_level_are_dropped(void **state)
{
    (void)state;
    const char *levels[] = {"0", "1", "2", "3", "verbose", "9"};
    const int expected[] = {1, 2, 3, 4, 2, 2};
    for (int i = 0; i < 6; i++) {
        assert_int_equal(setenv("QDR_DEBUG", levels[i], 1), 0);
        qdr_set_log(listen, &heard);
        heard.n_lines = 0;
        for (int level = QDRI_LOG_ERROR; level <= QDRI_LOG_DEBUG; level++) qdri_log(level, "level %d", level);
        assert_int_equal(heard.n_lines, expected[i]);
        assert_int_equal(heard.level, expected[i] - 1);
    }
    assert_int_equal(unsetenv("QDR_DEBUG"), 0);
}

static void nobody_listens_at_first(void **state)
{
    (void)state;
    heard.n_lines = 0;
    qdri_log(QDRI_LOG_ERROR, "unheard");
    qdr_set_log(listen, &heard);
    qdri_log(QDRI_LOG_WARNING, "heard %s", "once");
    assert_int_equal(heard.n_lines, 1);
    assert_string_equal(heard.line, "heard once");
    qdr_set_log(NULL, NULL);
    qdri_log(QDRI_LOG_ERROR, "unheard");
    assert_int_equal(heard.n_lines, 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(nobody_listens_at_first),
        cmocka_unit_test(lines_above_the_level_are_dropped),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
