/* SPDX-License-Identifier: Apache-2.0 */
/* What train reads: sequences, ahead or not, padding, failures meanwhile, and which output of the bible program is
 * not text. tests/unit/files/tokens.c tests which sequences these are. */
#include "../../../examples/common/corpus.h"

#include <sys/stat.h>
#include <unistd.h>

#include "qdr_test.h"

enum { N_TEXT = 1234, CONTEXT = 7, MOST = 12 };

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

static qdr_context *ctx;
static corpus text;
static char sentence[PROBLEM_BYTES];

static qdr_status open_corpus(settings set)
{
    set.how.context = CONTEXT, set.network.vocab = 256, set.seed = 5;
    return corpus_open(ctx, &set, &text, sentence);
}

FIXTURE(make_folder)
{
    char letters[N_TEXT + 1] = {0};
    for (int i = 0; i < N_TEXT; i++) letters[i] = (char)('a' + i * 7 % 26);
    strcpy(folder, "/tmp/quadrille-corpus-XXXXXX");
    if (!mkdtemp(folder)) return 1;
    write_file("text", letters, 0600);
    return qdr_context_create_self(NULL, &ctx);
}

FIXTURE(remove_folder)
{
    qdr_context_destroy(&ctx);
    (void)unlink(path("text"));
    (void)unlink(path("bible"));
    return rmdir(folder);
}

FIXTURE(close_corpus)
{
    corpus_close(&text);
    return 0;
}

/* The rows that the tokens have for these sequences, and empty ones behind them. */
static void expect_part(corpus_part part)
{
    int32_t numbers[2 * MOST * CONTEXT];
    const int64_t n = part.n * CONTEXT, n_rooms = part.n_rooms * CONTEXT;
    const qdr_token_rows wanted = {QDR_INIT(qdr_token_rows), numbers, numbers + n, NULL};
    if (corpus_take(&text, part, sentence) != QDR_OK) fail_msg("%s", sentence);
    if (part.is_training)
        CHECK_OK(qdr_tokens_train(text.tokens, part.first, part.n, &wanted));
    else
        CHECK_OK(qdr_tokens_validate(text.tokens, part.first, part.n, part.n_all, &wanted));
    const qdr_token_rows got = text.rows;
    assert_memory_equal(got.tokens, wanted.tokens, (size_t)n * sizeof *numbers);
    assert_memory_equal(got.targets, wanted.targets, (size_t)n * sizeof *numbers);
    for (int64_t i = n; i < n_rooms; i++) assert_true(got.tokens[i] == 0 && got.targets[i] == -1);
}

TEST_IN(sequences_are_read_ahead_or_not, NULL, close_corpus)
{
    assert_int_equal(open_corpus((settings){.file = path("text")}), QDR_OK);
    assert_int_equal(corpus_reserve(&text, MOST), QDR_OK);
    for (int64_t step = 0; step < 5; step++) {
        expect_part((corpus_part){10 * step, 10, MOST, 0, 1});
        if (step == 2) expect_part((corpus_part){3, 4, MOST, 9, 0});
        assert_true(text.has_ahead); /* also after a validation */
    }
    expect_part((corpus_part){7, 10, MOST, 0, 1}); /* not the one that was read ahead */
    expect_part((corpus_part){17, 10, MOST, 0, 1});
}

/* The text becomes shorter while the next sequences are waited for. */
TEST_IN(a_failure_ahead_is_told, NULL, close_corpus)
{
    write_file("bible", "abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz abcdefghijklmnopqrstuvwxyz", 0600);
    assert_int_equal(open_corpus((settings){.file = path("bible")}), QDR_OK);
    assert_int_equal(corpus_reserve(&text, 1), QDR_OK);
    expect_part((corpus_part){0, 1, 1, 0, 1});
    write_file("bible", "abc", 0600);
    qdr_status status = corpus_take(&text, (corpus_part){1, 1, 1, 0, 1}, sentence); /* perhaps it was read before */
    if (status == QDR_OK) status = corpus_take(&text, (corpus_part){2, 1, 1, 0, 1}, sentence);
    assert_int_equal(status, QDR_ERR_ARGUMENT);
    assert_non_null(strstr(sentence, "had 80 bytes, and now has "));
}

/* FILE stands for the text, FOLDER for where it is. */
static void expect_refused(const char *data, const char *says)
{
    char words[512] = "";
    for (const char *at = data; *at;) {
        const int is_file = strncmp(at, "FILE", 4) == 0, is_folder = strncmp(at, "FOLDER", 6) == 0;
        const size_t used = strlen(words);
        snprintf(words + used, sizeof words - used, is_file || is_folder ? "%s" : "%.1s",
                 is_file     ? path("text")
                 : is_folder ? folder
                             : at);
        at += is_file ? 4 : is_folder ? 6 : 1;
    }
    assert_int_equal(open_corpus((settings){.data = words}), QDR_ERR_ARGUMENT);
    if (!strstr(sentence, says)) fail_msg("%s: %s", words, sentence);
    corpus_close(&text);
}

TEST(lists_of_data)
{
    expect_refused("FILE:x", "text:x cannot be opened");
    expect_refused("FILE:-1", "has weight -1");
    expect_refused("FILE:nan", "has weight nan");
    expect_refused("FILE:3,FOLDER/te*", "is named twice");
    expect_refused("FILE:3,FOLDER/none:2", "none cannot be opened");
    expect_refused("FOLDER", "is a folder");
    expect_refused(",", "a name is missing beside a comma");
    expect_refused("FILE,,FILE", "a name is missing beside a comma");
    expect_refused("FILE,", "a name is missing beside a comma");
    assert_int_equal(open_corpus((settings){.file = path("text"), .documents = "x"}), QDR_ERR_ARGUMENT);
    assert_non_null(strstr(sentence, "--documents x"));
    corpus_close(&text);
}

/* What stands before the first prompt's line, and lines that begin with a prompt, are talk. */
TEST_IN(the_program_that_prints_the_bible_may_talk, NULL, close_corpus)
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
    assert_int_equal(open_corpus((settings){0}), QDR_OK);
    assert_int_equal(setenv("PATH", was, 1), 0);
    static const char wanted[] = "Ge1:1 line 1 of the text\nGe1:2 line 2 of the text\n"
                                 "Ge1:3 line 3 of the text\nGe1:4 line 4 of the text\n";
    assert_int_equal(text.text_bytes, sizeof wanted - 1);
    assert_memory_equal(text.text, wanted, sizeof wanted - 1);
    assert_string_equal(text.name, "King James Bible");
}

int main(void) { return run_all_tests(make_folder, remove_folder); }
