/* SPDX-License-Identifier: Apache-2.0 */
/* The text of train_gpt: which parts are used for training and validation, and which output of the bible program is not
 * text. */
#include "../../../examples/common/corpus.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qdr_test.h"
#include "quadrille/quadrille.h"

enum { N_BYTES = 1234, CONTEXT = 7 };

static char folder[64];

static const char *path(const char *name)
{
    static char text[128];
    snprintf(text, sizeof text, "%s/%s", folder, name);
    return text;
}

static void write_file(const char *name, const char *text, mode_t mode)
{
    FILE *file = fopen(path(name), "w");
    assert_non_null(file);
    fputs(text, file);
    assert_int_equal(fclose(file), 0);
    assert_int_equal(chmod(path(name), mode), 0);
}

static corpus read_corpus(const char *file, int64_t context)
{
    corpus text;
    qdr_context *ctx = NULL;
    char sentence[PROBLEM_BYTES] = "";
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
    const qdr_status status = corpus_read(ctx, file, context, &text, sentence);
    if (status != QDR_OK) fail_msg("%s", sentence);
    qdr_context_destroy(&ctx);
    return text;
}

FIXTURE(make_folder)
{
    strcpy(folder, "/tmp/quadrille-corpus-XXXXXX");
    return mkdtemp(folder) ? 0 : 1;
}

FIXTURE(remove_folder)
{
    (void)unlink(path("text"));
    (void)unlink(path("bible"));
    return rmdir(folder);
}

/* All windows of `n_passes` passes lie in the first 90 %, those of one pass do not overlap, and they leave out less
 * than two contexts. */
TEST(training_reads_the_first_nine_tenths)
{
    enum { N_TRAIN = N_BYTES - N_BYTES / 10, N_WINDOWS = (N_TRAIN - CONTEXT) / CONTEXT };
    char letters[N_BYTES + 1] = {0};
    memset(letters, 'a', N_BYTES);
    write_file("text", letters, 0600);
    corpus text = read_corpus(path("text"), CONTEXT);
    assert_int_equal(text.n_bytes, N_BYTES);
    assert_int_equal(text.n_train, N_TRAIN);
    for (int64_t pass = 0; pass < 100; pass++) { /* each at another offset */
        char used[N_TRAIN] = {0};
        for (int64_t i = 0; i < N_WINDOWS; i++) {
            const int64_t begin = corpus_train_window(&text, CONTEXT, 5, pass * N_WINDOWS + i);
            assert_true(begin >= 0 && begin + CONTEXT + 1 <= N_TRAIN);
            for (int64_t j = begin; j < begin + CONTEXT; j++) assert_int_equal(used[j]++, 0);
        }
    }
    corpus_free(&text);
}

/* Passes and seeds have orders of their own, and all first bytes that leave room for as many windows occur. */
TEST(each_pass_has_its_order)
{
    enum { N_TRAIN = N_BYTES - N_BYTES / 10, N_WINDOWS = (N_TRAIN - CONTEXT) / CONTEXT, N_PASSES = 200 };
    enum { N_PLACES = N_TRAIN - CONTEXT * N_WINDOWS };
    corpus text = read_corpus(path("text"), CONTEXT);
    int n_same = 0, n_of_seed = 0, is_used[N_PLACES] = {0};
    for (int64_t pass = 0; pass < N_PASSES; pass++) {
        int64_t least = N_TRAIN;
        for (int64_t i = 0; i < N_WINDOWS; i++) {
            const int64_t number = pass * N_WINDOWS + i, place = corpus_train_window(&text, CONTEXT, 5, number);
            n_same += place / CONTEXT == corpus_train_window(&text, CONTEXT, 5, number + N_WINDOWS) / CONTEXT;
            n_of_seed += place / CONTEXT == corpus_train_window(&text, CONTEXT, 6, number) / CONTEXT;
            if (place < least) least = place;
        }
        assert_in_range(least, 0, N_PLACES - 1);
        is_used[least] = 1;
    }
    for (int i = 0; i < N_PLACES; i++) assert_true(is_used[i]);
    /* By chance one of N_WINDOWS is the same. */
    assert_in_range(n_same, N_PASSES / 2, 2 * N_PASSES);
    assert_in_range(n_of_seed, N_PASSES / 2, 2 * N_PASSES);
    corpus_free(&text);
}

/* The windows of the last validation follow each other from the first kept byte to the last. */
TEST(validation_reads_the_last_tenth)
{
    corpus text = read_corpus(path("text"), CONTEXT);
    const int64_t n = corpus_validation_windows(&text, CONTEXT);
    int64_t end = text.n_train;
    assert_int_equal(n, (N_BYTES / 10 - 1) / CONTEXT);
    for (int64_t i = 0; i < n; i++) {
        const int64_t begin = corpus_validation_window(&text, CONTEXT, i, n);
        assert_true(begin >= text.n_train && begin + CONTEXT + 1 <= N_BYTES);
        assert_true(begin - end <= 1);
        end = begin + CONTEXT;
    }
    assert_int_equal(end, N_BYTES - 1);
    assert_int_equal(corpus_validation_window(&text, CONTEXT, 0, 1), text.n_train);
    for (int64_t i = 0; i < 5; i++) { /* a few, with equal distances */
        const double place = (double)text.n_train + (double)(N_BYTES - 1 - CONTEXT - text.n_train) * (double)i / 4;
        assert_true(fabs((double)corpus_validation_window(&text, CONTEXT, i, 5) - place) < 1);
    }
    corpus_free(&text);
}

/* What stands before the first prompt's line, and lines that begin with a prompt, are talk. */
TEST(the_program_that_prints_the_bible_may_talk)
{
    char was[4096], search[4200];
    const char *environment = getenv("PATH");
    snprintf(was, sizeof was, "%s", environment ? environment : "");
    write_file("bible",
               "#!/bin/sh\n"
               "echo 'bible: Release 1'; echo 'Ge1:1 shown at the start'\n"
               "echo 'bible(KJV) [Gen1:1]> gen1:1-rev22:21'\n"
               "for i in 1 2 3 4; do echo \"Ge1:$i line $i of the text\"; done\n"
               "printf 'bible(KJV) [Re22:21]> '\n",
               0700);
    snprintf(search, sizeof search, "%s:%s", folder, was);
    assert_int_equal(setenv("PATH", search, 1), 0);
    corpus text = read_corpus(NULL, CONTEXT);
    assert_int_equal(setenv("PATH", was, 1), 0);
    static const char wanted[] = "Ge1:1 line 1 of the text\nGe1:2 line 2 of the text\n"
                                 "Ge1:3 line 3 of the text\nGe1:4 line 4 of the text\n";
    assert_int_equal(text.n_bytes, sizeof wanted - 1);
    assert_memory_equal(text.bytes, wanted, sizeof wanted - 1);
    assert_string_equal(text.name, "King James Bible");
    corpus_free(&text);
}

int main(void) { return run_all_tests(make_folder, remove_folder); }
