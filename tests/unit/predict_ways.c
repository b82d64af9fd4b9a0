/* SPDX-License-Identifier: Apache-2.0 */
/* Words for methods of parallelism and recomputation, in texts that end with them. */
#include "predict/ways.h"

#include <quadrille/plan.h>

#include "qdr_test.h"

static void stages(void **state)
{
    (void)state;
    char first[] = "deepspeed zero stage 3", second[] = "distributed optimizer", third[] = "",
         fourth[] = "no distributed optimizer", fifth[] = "shard grad op";
    assert_int_equal(ways_zero(first), 3);
    assert_int_equal(ways_zero(second), 1);
    assert_int_equal(ways_zero(third), -1);
    assert_int_equal(ways_zero(fourth), -1);
    assert_int_equal(ways_zero(fifth), 2);
}

static void expect_hybrid(const char *text, int is_hybrid, int replicas, int shards)
{
    int got_replicas = -1, got_shards = -1;
    assert_int_equal(ways_hybrid(text, &got_replicas, &got_shards), is_hybrid);
    assert_int_equal(got_replicas, replicas);
    assert_int_equal(got_shards, shards);
}

static void copies_and_shards(void **state)
{
    (void)state;
    expect_hybrid("hsdp 4x8", 1, 4, 8);
    expect_hybrid("hybrid sharding 8", 1, 0, 8);
    expect_hybrid("hsdp 8x", 1, 0, 8);
    expect_hybrid("hsdp", 1, 0, 0);
    expect_hybrid("hsdp 99999999999x99999999999", 1, 0, 0);
    expect_hybrid("fsdp 8", 0, 0, 0);
}

static void what_is_kept(void **state)
{
    (void)state;
    assert_int_equal(ways_recompute("activation checkpointing"), QDR_RECOMPUTE_FULL);
    assert_int_equal(ways_recompute("no activation checkpointing"), QDR_RECOMPUTE_NONE);
    assert_int_equal(ways_recompute("selective activation checkpointing"), QDR_RECOMPUTE_ATTENTION);
    assert_int_equal(ways_recompute("recompute full"), QDR_RECOMPUTE_FULL);
    assert_int_equal(ways_recompute("fsdp"), -1);
}

/* Of the exact size, so that a sanitizer sees who reads beyond it. */
static void expect_unknown(const char *text, const char *want)
{
    char *copy = strdup(text), word[6];
    const char *at = copy;
    assert_non_null(copy);
    for (; (at = ways_unknown(at, word, sizeof word)) != NULL; want += strlen(word) + 1)
        if (strncmp(want, word, strlen(word)) != 0 || want[strlen(word)] != ';')
            fail_msg("'%s': %s is not the first of %s", text, word, want);
    assert_string_equal(want, "");
    free(copy);
}

static void what_nobody_knows(void **state)
{
    (void)state;
    expect_unknown("", "");
    expect_unknown("8", "");
    expect_unknown("8x", "8x;");
    expect_unknown("hsdp 8x8", "");
    expect_unknown("fsdp32 tp8 compile", "");
    expect_unknown("zero 1.5", "");
    expect_unknown("fsdpx, 1f1b;pear+fsdp", "fsdpx;pear;");
    expect_unknown("bananas", "banan;");
    expect_unknown("sequence", "");
    expect_unknown("full", "full;");
    expect_unknown("recompute full shard", "shard;");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stages),
        cmocka_unit_test(copies_and_shards),
        cmocka_unit_test(what_is_kept),
        cmocka_unit_test(what_nobody_knows),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
