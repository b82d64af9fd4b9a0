/* SPDX-License-Identifier: Apache-2.0 */
/* Plans by memory alone: the least memory, to the byte, and the smallest number of ranks are those of complete
 * searches. */
#include <limits.h>
#include <math.h>

#include "random_model.h"
#include "search/search.h"

enum { MOST = 48 };

static qdr_search_opts random_opts(uint64_t *seed)
{
    qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .dtype = QDR_BF16, .n_best = 1};
    opts.n_ranks = (int)test_between(seed, 1, 8);
    opts.layouts = (int)test_between(seed, 0, 3);
    opts.recomputes = (int)test_between(seed, 0, 15) & QDRI_RECOMPUTES;
    opts.micro_batch = random_flag(seed) ? test_between(seed, 1, 4) : 0;
    opts.batch = random_flag(seed) ? test_between(seed, 1, 16) : 0;
    opts.gradient_parts = random_flag(seed) ? -1 : 0;
    opts.optimizer_parts = opts.gradient_parts || random_flag(seed) ? -1 : 0;
    opts.any_levels = !opts.optimizer_parts && random_flag(seed);
    if (random_flag(seed)) opts.ranks[test_between(seed, 0, 3)] = opts.n_ranks;
    return opts;
}

/* What a search says of n ranks. */
static qdri_search_result *search_of(qdr_model *model, const qdr_search_opts *opts, int n_ranks)
{
    static qdri_search_result found;
    qdr_search_opts those = *opts;
    those.n_ranks = n_ranks;
    memset(&found, 0, sizeof found);
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        if (opts->ranks[axis] && n_ranks % opts->ranks[axis]) return &found;
    CHECK_OK(qdri_model_search(model, &those, &found));
    return &found;
}

TEST(same_as_searches)
{
    static const char *const networks[] = {"gpt2", "llama-3-8b", "gpt3-1.3b"};
    uint64_t seed = 5;
    int n_found = 0;
    for (int trial = 0; trial < 60; trial++) {
        qdr_model *model = named_model("dgx-a100", networks[trial % 3]);
        qdr_search_opts opts = random_opts(&seed);
        opts.threads = trial;
        model->machine.is_gpu = trial / 3 % 2;
        qdri_planned_grid least;
        qdri_fewest_ranks fewest;
        CHECK_OK(qdri_model_least_memory(model, &opts, &least));
        const double bytes = least.result.memory_bytes;
        opts.memory_bytes = bytes; /* suffices, and less does not */
        assert_int_equal(search_of(model, &opts, opts.n_ranks)->n_best, bytes > 0);
        opts.memory_bytes = fmax(1, bytes - 1);
        assert_int_equal(search_of(model, &opts, opts.n_ranks)->n_best, 0);
        CHECK_OK(qdri_model_least_memory(model, &opts, &least));
        assert_true(least.result.memory_bytes == bytes);
        opts.memory_bytes = 0x1p31 + (bytes > 0 ? bytes - 0x1p31 : 0x1p32) * (double)test_between(&seed, 20, 100) / 100;
        CHECK_OK(qdri_model_fewest_ranks(model, &opts, MOST, &fewest));
        int expected = 0;
        for (int n = opts.n_ranks + 1; n <= MOST && !expected; n++)
            if (search_of(model, &opts, n)->n_best > 0) expected = n;
        if (fewest.n_ranks != expected)
            fail_msg("trial %d: from %d ranks %d, not %d", trial, opts.n_ranks, fewest.n_ranks, expected);
        assert_true(fewest.tried_to >= (expected ? expected - 1 : MOST));
        if (expected) assert_true(fewest.least.result.memory_bytes <= opts.memory_bytes);
        n_found += expected > 0;
        qdr_model_destroy(&model);
    }
    assert_in_range(n_found, 20, 59);
}

static void note_progress(double bounded_share, int64_t n_simulated, void *user)
{
    double *last = user;
    assert_true(bounded_share >= *last && bounded_share <= 1);
    assert_true(n_simulated == 0 || bounded_share >= 1);
    *last = bounded_share;
}

TEST(progress)
{
    static qdri_search_result found;
    double last = 0;
    qdr_model *model = named_model("dgx-a100", "gpt2");
    const qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .n_ranks = 12, .dtype = QDR_BF16,
                                  .progress = note_progress, .progress_user = &last};
    CHECK_OK(qdri_model_search(model, &opts, &found));
    assert_true(last >= 1);
    qdr_model_destroy(&model);
}

TEST(refusals)
{
    static qdri_search_result found;
    qdr_model *model = named_model("dgx-a100", "gpt2");
    qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .n_ranks = 4, .dtype = QDR_BF16};
    qdri_planned_grid least;
    qdri_fewest_ranks fewest;
    static const struct {
        const char *name;
        size_t offset;
        int most; /* right, as are all before it */
    } numbers[] = {{"any_levels", offsetof(qdr_search_opts, any_levels), 1},
                   {"exhaustive", offsetof(qdr_search_opts, exhaustive), 1},
                   {"layouts", offsetof(qdr_search_opts, layouts), 3},
                   {"recomputes", offsetof(qdr_search_opts, recomputes), QDRI_RECOMPUTES},
                   {"overlap", offsetof(qdr_search_opts, overlap), 15}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++) {
        int *const value = (int *)(void *)((char *)&opts + numbers[i].offset);
        const int wrong[] = {-1, numbers[i].most + 1, INT_MAX};
        char words[64];
        for (int j = 0; j < 3; j++) {
            *value = wrong[j];
            snprintf(words, sizeof words, "search: %s is %d; use ", numbers[i].name, wrong[j]);
            CHECK_FAILS(qdri_model_search(model, &opts, &found), QDR_ERR_ARGUMENT, words);
            CHECK_FAILS(qdri_model_least_memory(model, &opts, &least), QDR_ERR_ARGUMENT, words);
            CHECK_FAILS(qdri_model_fewest_ranks(model, &opts, 9, &fewest), QDR_ERR_ARGUMENT, words);
        }
        *value = numbers[i].most;
        CHECK_OK(qdri_model_search(model, &opts, &found));
        *value = 0;
    }
    opts.threads = -1;
    CHECK_FAILS(qdri_model_search(model, &opts, &found), QDR_ERR_ARGUMENT, "search: -1 threads of a rank; use 1 to ");
    opts.threads = 0;
    qdr_plan plan = {QDR_INIT(qdr_plan)};
    CHECK_FAILS(qdr_model_least_memory(NULL, &opts, &plan, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_model_least_memory(model, &opts, NULL, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_model_fewest_ranks(model, &opts, 9, NULL, NULL, NULL), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(qdr_model_best(model, 0, &plan, NULL), QDR_ERR_ARGUMENT, "last search found 0");
    assert_int_equal(qdri_model_fewest_ranks(model, &opts, 0, &fewest), QDR_ERR_ARGUMENT);
    assert_int_equal(qdri_model_fewest_ranks(model, &opts, QDR_MAX_SEARCH_RANKS + 1, &fewest), QDR_ERR_ARGUMENT);
    opts.dtype = QDR_F64;
    opts.ranks[QDR_X] = 3;
    assert_int_equal(qdri_model_least_memory(model, &opts, &least), QDR_ERR_ARGUMENT);
    assert_true(least.plan.x == 0 && least.result.memory_bytes == 0);
    qdr_model_destroy(&model);
}
