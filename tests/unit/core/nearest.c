/* SPDX-License-Identifier: Apache-2.0 */
/* Suggestions for mistyped names. */
#include "core/nearest.h"

#include "qdr_test.h"
#include "quadrille_private/names.h"

TEST(edit_distances)
{
    static const struct {
        const char *a, *b;
        int distance;
    } cases[] = {
        {"", "", 0},         {"", "abc", 3},           {"abc", "", 3},       {"gpt2", "gpt2", 0},
        {"gtp2", "gpt2", 1}, {"gpt", "gpt2", 1},       {"GPT-2", "gpt2", 1}, {"kitten", "sitting", 3},
        {"abcd", "badc", 2}, {"gpt2xl", "gpt2-xl", 1},
    };
    char longer[200];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        assert_int_equal(qdri_edit_distance(cases[i].a, cases[i].b), cases[i].distance);
    memset(longer, 'x', sizeof longer);
    longer[199] = '\0';
    assert_int_equal(qdri_edit_distance(longer, ""), QDRI_NEAREST_BYTES);
}

static const char *const names[] = {"dgx-a100",    "dgx-h100",    "gpt2",      "gpt2-xl",
                                    "llama-2-70b", "llama-3-70b", "llama-3-8b"};
enum { N_NAMES = sizeof names / sizeof *names };

static void check_nearest(const char *typed, int most, const char *expected, int n_expected)
{
    char text[256];
    assert_int_equal(qdr_names_nearest(typed, names, N_NAMES, most, text, sizeof text), n_expected);
    assert_string_equal(text, expected);
}

TEST(the_closest_come_first)
{
    check_nearest("gtp2", 3, "gpt2", 1);
    check_nearest("GPT2XL", 3, "gpt2-xl", 1);
    check_nearest("llama-70b", 3, "llama-2-70b, llama-3-70b", 2);
    check_nearest("llama-70b", 1, "llama-2-70b", 1);
    check_nearest("H100", 3, "dgx-h100", 1);
    check_nearest("llama-3", 3, "llama-3-70b, llama-3-8b", 2);
    check_nearest("zebra", 3, "", 0);
    check_nearest("nope", 3, "", 0);
    check_nearest("", 3, "", 0);
    check_nearest(NULL, 3, "", 0);
}

/* Names of models and machines, as people type them. */
TEST(typos)
{
    static const char *const all[] = {"dgx-a100",    "dgx-h100",   "gpt-neox-20b", "gpt2",        "gpt2-large",
                                      "gpt2-medium", "gpt2-xl",    "gpt3-13b",     "gpt3-175b",   "gpt3-2.7b",
                                      "gpt3-6.7b",   "llama-13b",  "llama-2-13b",  "llama-2-70b", "llama-2-7b",
                                      "llama-3-70b", "llama-3-8b", "llama-3.1-8b", "llama-30b",   "llama-65b",
                                      "llama-7b",    "mistral-7b", "perlmutter",   "qwen2-0.5b",  "qwen2-7b"};
    static const char *const typed[][2] = {{"gpt-2", "gpt2"},
                                           {"GPT2", "gpt2"},
                                           {"gtp2", "gpt2"},
                                           {"gpt-2-xl", "gpt2-xl"},
                                           {"gpt2_medium", "gpt2-medium"},
                                           {"llama70b", "llama-2-70b"},
                                           {"Llama-70B", "llama-2-70b"},
                                           {"llama2-70b", "llama-2-70b"},
                                           {"lama-2-70b", "llama-2-70b"},
                                           {"llama-2-7x", "llama-2-7b"},
                                           {"llama 3 8b", "llama-3-8b"},
                                           {"llama3.1-8b", "llama-3.1-8b"},
                                           {"llama_13b", "llama-13b"},
                                           {"mistral7b", "mistral-7b"},
                                           {"misral-7b", "mistral-7b"},
                                           {"quen2-7b", "qwen2-7b"},
                                           {"gpt3-27b", "gpt3-2.7b"},
                                           {"DGX-H100", "dgx-h100"},
                                           {"h100", "dgx-h100"},
                                           {"dgxa100", "dgx-a100"},
                                           {"perlmuter", "perlmutter"},
                                           {"gptneox20b", "gpt-neox-20b"}};
    for (size_t i = 0; i < sizeof typed / sizeof *typed; i++) {
        char text[64];
        (void)qdr_names_nearest(typed[i][0], all, sizeof all / sizeof *all, 1, text, sizeof text);
        if (strcmp(text, typed[i][1]) != 0) fail_msg("%s: %s, not %s", typed[i][0], text, typed[i][1]);
    }
    assert_true(qdri_name_is_same("Llama_2.7B", "llama-2-7b"));
    assert_false(qdri_name_is_same("llama-27", "llama-2-7b"));
}

/* A name of which only a part has room would be wrong. */
TEST(names_are_whole)
{
    char text[16];
    assert_int_equal(qdr_names_nearest("gpt2", names, N_NAMES, 2, text, sizeof text), 2);
    assert_string_equal(text, "gpt2, gpt2-xl");
    assert_int_equal(qdr_names_nearest("gpt2", names, N_NAMES, 2, text, 13), 1);
    assert_string_equal(text, "gpt2");
    assert_int_equal(qdr_names_nearest("gpt2", names, N_NAMES, 2, NULL, 0), 0);
}
