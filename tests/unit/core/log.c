/* SPDX-License-Identifier: Apache-2.0 */
/* The log: its receiver, its levels. */
#include "core/log.h"

#include <unistd.h>

#include "qdr_test.h"
#include "quadrille/context.h"

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

/* What `talk` prints on standard error. */
static void read_printed(void (*talk)(void), char *text, size_t bytes)
{
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    const int saved = dup(STDERR_FILENO);
    assert_true(saved >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    talk();
    fflush(stderr);
    assert_true(dup2(saved, STDERR_FILENO) >= 0);
    close(saved);
    rewind(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
}

static void talk_at_all_levels(void)
{
    qdri_log(QDRI_LOG_ERROR, "first");
    qdri_log(QDRI_LOG_WARNING, "second of %d", 4);
    qdri_log(QDRI_LOG_INFO, "third");
    qdri_log(QDRI_LOG_DEBUG, "fourth");
}

/* Before a program has set a log. */
TEST(warnings_reach_standard_error)
{
    char text[256];
    read_printed(talk_at_all_levels, text, sizeof text);
    assert_string_equal(text, "quadrille: error: first\nquadrille: warning: second of 4\n");
    assert_int_equal(setenv("QDR_DEBUG", "2", 1), 0);
    qdri_log_read_level();
    read_printed(talk_at_all_levels, text, sizeof text);
    assert_string_equal(text, "quadrille: error: first\nquadrille: warning: second of 4\nquadrille: third\n");
    assert_int_equal(setenv("QDR_DEBUG", "0", 1), 0);
    qdri_log_read_level();
    read_printed(talk_at_all_levels, text, sizeof text);
    assert_string_equal(text, "quadrille: error: first\n");
    assert_int_equal(unsetenv("QDR_DEBUG"), 0);
}

/* A trace that cannot be written, in a program that has set no log. */
static int trace_nowhere(qdr_local_world *world, int rank, void *user)
{
    qdr_context *ctx;
    (void)user;
    if (qdr_context_create_local(world, rank, NULL, &ctx) != QDR_OK) return 1;
    qdr_context_destroy(&ctx);
    return 0;
}

static void run_traced(void)
{
    int result = 1;
    CHECK_OK(qdr_local_run(1, trace_nowhere, NULL, &result));
    assert_int_equal(result, 0);
}

TEST(a_lost_trace_is_said)
{
    char text[512];
    assert_int_equal(setenv("QDR_TRACE", "/nonexistent/x", 1), 0);
    read_printed(run_traced, text, sizeof text);
    assert_int_equal(unsetenv("QDR_TRACE"), 0);
    assert_non_null(strstr(text, "quadrille: warning: trace: QDR_TRACE /nonexistent/x.0: cannot be written"));
}

TEST(lines_above_the_level_are_dropped)
{
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

TEST(null_drops_all)
{
    char text[256];
    heard.n_lines = 0;
    qdr_set_log(listen, &heard);
    read_printed(talk_at_all_levels, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(heard.n_lines, 2);
    assert_string_equal(heard.line, "second of 4");
    qdr_set_log(NULL, NULL);
    read_printed(talk_at_all_levels, text, sizeof text);
    assert_string_equal(text, "");
    assert_int_equal(heard.n_lines, 2);
}
