/* SPDX-License-Identifier: Apache-2.0 */
/* Lines about a run, at times that are made up. */
#include "../../../examples/common/progress.h"

#include <math.h>
#include <unistd.h>

#include "common/process.h"
#include "qdr_test.h"

TEST(clocks_and_counts)
{
    static const struct {
        double secs;
        const char *says;
    } clocks[] = {{-3, "0:00"},    {0.4, "0:00"},       {59.4, "0:59"},    {59.6, "1:00"},      {65, "1:05"},
                  {3599, "59:59"}, {3599.7, "1:00:00"}, {3661, "1:01:01"}, {86399, "23:59:59"}, {360000, "100:00:00"}};
    static const struct {
        double n;
        const char *says;
    } bytes[] = {{0, "0.0 MB"}, {12.34e6, "12.3 MB"}, {999.9e6, "999.9 MB"}, {1e9, "1.00 GB"}, {80e9, "80.00 GB"}},
      counts[] = {{0, "0"}, {96, "96"}, {99999, "99999"}, {100000, "0.10 M"}, {834567, "0.83 M"}, {1.5e9, "1500.00 M"}};
    char text[24];
    for (size_t i = 0; i < sizeof clocks / sizeof *clocks; i++)
        assert_string_equal(progress_clock(clocks[i].secs, text), clocks[i].says);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        assert_string_equal(progress_count(counts[i].n, text), counts[i].says);
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        assert_string_equal(progress_bytes(bytes[i].n, text), bytes[i].says);
}

/* What a step says on standard error. */
static const char *said_of(progress *line, int64_t step, const progress_numbers *numbers, int milestone)
{
    static char text[256];
    FILE *file = tmpfile();
    assert_non_null(file);
    fflush(stderr);
    const int before = dup(STDERR_FILENO);
    assert_true(before >= 0 && dup2(fileno(file), STDERR_FILENO) >= 0);
    progress_step(line, step, numbers, milestone);
    fflush(stderr);
    assert_true(dup2(before, STDERR_FILENO) >= 0);
    close(before);
    rewind(file);
    const size_t n = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[n] = '\0';
    return text;
}

static const char *said(progress *line, int64_t step, double validation, int milestone)
{
    const progress_numbers numbers = {2.5, validation, 1234.4, .peak_share = NAN, .exposed = NAN, .memory = NAN};
    return said_of(line, step, &numbers, milestone);
}

/* A run that continues after step 1000. Seconds more or less would change no word. */
TEST(a_continued_run_tells_what_is_left)
{
    const double now = process_secs();
    progress line = {.first = 1000, .n_steps = 1005, .every = 1000, .began = now - 200, .drawn = now - 2000};
    assert_string_equal(said(&line, 1004, NAN, 0), "step 1004/1005  loss 2.500  1234 tokens/s  0:50 left\n");
    assert_true(line.drawn >= now);
    assert_string_equal(said(&line, 1003, 3.25, 0), ""); /* too soon */
    line.began = now - 240;
    line.n_steps = 1004;
    assert_string_equal(said(&line, 1003, 3.25, 1),
                        "step 1003/1004  loss 2.500  val 3.250  1234 tokens/s  1:20 left\n");
    line.every = 0;
    line.drawn = now - 2000;
    assert_string_equal(said(&line, 1003, 3.25, 0), "");
    line.terminal = 1;
    assert_string_equal(said(&line, 1004, 3.25, 1),
                        "\rstep 1004/1004  loss 2.500  val 3.250  1234 tokens/s  0:00 left\033[K");
}

/* The last column stays free: some terminals wrap when it is written. */
TEST(a_terminal_has_the_parts_that_fit)
{
    static const char *const lines[] = {
        "step 7/9  loss 2.500  val 3.250  1234 tokens/s  0:20 left  peak 31%  exposed 22%  9.8 MB",
        "step 7/9  loss 2.500  val 3.250  1234 tokens/s  0:20 left  peak 31%  exposed 22%",
        "step 7/9  loss 2.500  1234 tokens/s  0:20 left  peak 31%  exposed 22%",
        "step 7/9  loss 2.500  1234 tokens/s  peak 31%  exposed 22%",
        "step 7/9  loss 2.500  1234 tokens/s  exposed 22%",
        "step 7/9  loss 2.500  1234 tokens/s",
        "step 7/9  loss 2.500",
        "step 7/9",
    };
    const progress_numbers numbers = {2.5, 3.25, 1234.4, .peak_share = 0.314, .exposed = 0.216, .memory = 9.8e6};
    const double now = process_secs();
    progress line = {.n_steps = 9, .terminal = 1, .began = now - 70, .drawn = -1};
    char columns[16], expected[128];
    for (int width = 9, i = 7; width < 100; width++) {
        while (i > 0 && (int)strlen(lines[i - 1]) < width) i--;
        snprintf(columns, sizeof columns, "%d", width);
        assert_int_equal(setenv("COLUMNS", columns, 1), 0);
        snprintf(expected, sizeof expected, "\r%s\033[K", lines[i]);
        assert_string_equal(said_of(&line, 7, &numbers, 1), expected);
    }
    assert_int_equal(unsetenv("COLUMNS"), 0);
    snprintf(expected, sizeof expected, "\r%s\033[K", lines[2]);
    assert_string_equal(said_of(&line, 7, &numbers, 1), expected); /* 80 columns */
    line.terminal = 0;
    snprintf(expected, sizeof expected, "%s\n", lines[0]);
    assert_string_equal(said_of(&line, 7, &numbers, 1), expected);
}
