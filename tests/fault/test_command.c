/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille linear` on two local ranks while the n-th allocation or thread creation fails, for many n (every n with
 * the argument `each`): it ends with exit code 0, or with 3 (memory) or 1 (threads) and one message, and writes either
 * all results or none. */
#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/command.h"
#include "common/npy.h"
#include "fault/inject.h"
#include "qdr_test.h"

enum { MOST_CALLS = 20000 };

/* Everything lies in one folder; standard error goes to a file in it. */
static char folder[64];
static int own_stderr;
static int each; /* 1: every call fails once, else the first ones and some later ones */

static const char *path(const char *name)
{
    static char paths[8][128];
    static int next;
    char *made = paths[next++ % 8];
    snprintf(made, sizeof paths[0], "%s/%s", folder, name);
    return made;
}

static void save(const char *name, int64_t n_rows, int64_t n_cols)
{
    static const float numbers[64] = {1, 2, 3, 4, 5, 6, 7, 8};
    const npy_array array = {.dtype = QDR_F32, .n_dims = 2, .shape = {n_rows, n_cols}, .data = numbers};
    qdr_output *output;
    failure why = {0};
    if (npy_stage(&output, folder, name, &array, &why)) fail_msg("%s", why.sentence);
    CHECK_OK(qdr_output_commit(&output));
}

FIXTURE(make_inputs)
{
    strcpy(folder, "/tmp/quadrille-fault-XXXXXX");
    assert_non_null(mkdtemp(folder));
    save("x.npy", 5, 4);
    save("w.npy", 3, 4);
    save("dy.npy", 5, 3);
    return 0;
}

/* Removes the files of the folder `name` and itself; returns how many there were. */
static int remove_folder(const char *name)
{
    int n_files = 0;
    char file[512];
    DIR *dir = opendir(name);
    if (!dir) return 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (strcmp(entry->d_name, ".") == 0 || strcmp(entry->d_name, "..") == 0) continue;
        snprintf(file, sizeof file, "%s/%s", name, entry->d_name);
        n_files += unlink(file) == 0;
    }
    closedir(dir);
    rmdir(name);
    return n_files;
}

FIXTURE(remove_inputs)
{
    remove_folder(folder);
    return 0;
}

static int run_linear(void)
{
    const char *words[] = {"linear", "--x",     path("x.npy"), "--w", path("w.npy"), "--dy",     path("dy.npy"),
                           "--grid", "1x1x2x1", "--local",     "2",   "--out",       path("out")};
    char *arguments[sizeof words / sizeof *words + 1] = {0};
    char texts[sizeof words / sizeof *words][128];
    const int n_words = (int)(sizeof words / sizeof *words);
    for (int i = 0; i < n_words; i++) {
        snprintf(texts[i], sizeof texts[i], "%s", words[i]);
        arguments[i] = texts[i];
    }
    return command_linear.run(n_words, arguments);
}

static void silence(void)
{
    fflush(stderr);
    own_stderr = dup(STDERR_FILENO);
    FILE *file = freopen(path("stderr"), "w", stderr);
    assert_non_null(file);
}

/* Gives standard error back; returns the number of lines that went to the file. */
static int count_lines(void)
{
    int n_lines = 0;
    fflush(stderr);
    dup2(own_stderr, STDERR_FILENO);
    close(own_stderr);
    FILE *file = fopen(path("stderr"), "r");
    assert_non_null(file);
    for (int letter; (letter = fgetc(file)) != EOF;) n_lines += letter == '\n';
    fclose(file);
    return n_lines;
}

static void fail_each(int kinds, inject_extent extent, int wanted_code)
{
    long n = 0, n_failed = 0;
    int injected = 1;
    for (; injected && n < MOST_CALLS; n += each ? 1 : 1 + n / 16) {
        silence();
        inject_begin(kinds, n, extent);
        const int code = run_linear();
        injected = inject_happened();
        inject_end();
        const int n_lines = count_lines(), n_files = remove_folder(path("out"));
        if (code == EXIT_OK ? n_lines != 0 || n_files != 4 : n_lines != 1 || n_files != 0)
            fail_msg("call %ld: exit code %d, %d lines, %d files", n, code, n_lines, n_files);
        assert_true(code == EXIT_OK || code == wanted_code);
        if (!injected) assert_int_equal(code, EXIT_OK);
        n_failed += code != EXIT_OK;
    }
    print_message("up to call %ld, %ld failures\n", n - 1, n_failed);
    assert_true(n_failed > 1 && n < MOST_CALLS);
}

TEST(memory_runs_out) { fail_each(INJECT_MEMORY, INJECT_ONCE, EXIT_NOTHING_FITS); }

TEST(no_more_memory) { fail_each(INJECT_MEMORY, INJECT_ONWARDS, EXIT_NOTHING_FITS); }

TEST(threads_run_out) { fail_each(INJECT_THREAD, INJECT_ONCE, EXIT_FAILED); }

int main(int argc, char **argv)
{
    each = argc > 1 && strcmp(argv[1], "each") == 0;
    return run_all_tests(make_inputs, remove_inputs);
}
