/* SPDX-License-Identifier: Apache-2.0 */
/* Numbers in notes, as they occur in published tables. */
#include "predict/text.h"

#include <math.h>

#include "qdr_test.h"

#define WORDS(...) ((const char *const[]){__VA_ARGS__, NULL})

/* A number, or -1 where none is found. */
static double after(const char *text, const char *word)
{
    double value = -1;
    return text_number_after(text, WORDS(word), &value) ? value : -1;
}

static double before(const char *text, const char *unit)
{
    double value = -1;
    return text_number_before(text, unit, &value) ? value : -1;
}

static void expect(double got, double want)
{
    if (!(fabs(got - want) < 1e-9)) fail_msg("%g is not %g", got, want);
}

static void numbers_behind_words(void **state)
{
    (void)state;
    expect(after("microbatch 4; mem 35.0 gb", "microbatch"), 4);
    expect(after("microbatch 4; mem 35.0 gb", "mem"), 35);
    expect(after("cp2 vp6", "vp"), 6);
    expect(after("zero-1", "zero"), 1);
    expect(after("microbatch size not in table", "microbatch"), -1);
    expect(after("microbatch ; mem ;", "mem"), -1);
    expect(after("deep 3, ep 2", "ep"), 2);
    expect(after("microbatch size x; microbatch 8", "microbatch"), 8);
    expect(after("size: 2", "size"), 2);
    expect(after("size -- 2", "size"), -1);
    expect(after("mem", "mem"), -1);
    double value = 0;
    const char *end = text_number_after("mem 67gb", WORDS("memory", "mem"), &value);
    assert_string_equal(end, "gb");
}

static void numbers_before_units(void **state)
{
    (void)state;
    double value = 0;
    expect(before("39.3k tokens/s; aggregate", "tokens/s"), 39300);
    expect(before("grad accum 1, 1007 tokens/s/gpu", "tokens/s"), 1007);
    expect(before("82.4 gib", "gib"), 82.4);
    expect(before("gib 7gib", "gib"), 7);
    expect(before("k tokens/s", "tokens/s"), -1);
    expect(before(". tokens/s", "tokens/s"), -1);
    expect(before("", "tokens/s"), -1);
    assert_string_equal(text_number_before("4378 tokens/s (per gpu)", "tokens/s", &value), " (per gpu)");
}

static void words_in_lower_case(void **state)
{
    (void)state;
    char text[8] = "";
    text_append(text, sizeof text, "FSDP");
    text_append(text, sizeof text, "+TP more");
    assert_string_equal(text, "fsdp+tp");
    assert_true(text_has(text, WORDS("x", "dp+t")));
    assert_false(text_has(text, WORDS("zero")));
}

static void marks_become_blanks(void **state)
{
    (void)state;
    char text[] = "_micro_batch-size=4: zero - 3", empty[] = "";
    text_words(text);
    assert_string_equal(text, " micro batch size 4 zero 3");
    text_words(empty);
    assert_string_equal(empty, "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_behind_words),
        cmocka_unit_test(numbers_before_units),
        cmocka_unit_test(words_in_lower_case),
        cmocka_unit_test(marks_become_blanks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
