/* SPDX-License-Identifier: Apache-2.0 */
/* Choices of storage: the rule, the table, the text of the file, and the file itself. */
#include "linear/tune.h"
#include "qdr_test.h"

#include <jansson.h>
#include <sys/stat.h>
#include <unistd.h>

/* A layer of 2 rows, 3 out-features and 5 in-features: C[m,n] sums k products. */
TEST(products_of_either_storage)
{
    static const struct {
        qdri_product_kind kind;
        qdr_storage storage;
        int64_t m, n, k;
        const char *mode;
    } cases[] = {
        {QDRI_PRODUCT_Y, QDR_STORAGE_AUTO, 2, 3, 5, "NT"}, /* not asked is [out, in] */
        {QDRI_PRODUCT_Y, QDR_OUT_IN, 2, 3, 5, "NT"},       {QDRI_PRODUCT_Y, QDR_IN_OUT, 2, 3, 5, "NN"},
        {QDRI_PRODUCT_DX, QDR_OUT_IN, 2, 5, 3, "NN"},      {QDRI_PRODUCT_DX, QDR_IN_OUT, 2, 5, 3, "NT"},
        {QDRI_PRODUCT_DW, QDR_OUT_IN, 3, 5, 2, "TN"},      {QDRI_PRODUCT_DW, QDR_IN_OUT, 5, 3, 2, "TN"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdri_task task = {.kind = QDRI_TASK_PRODUCT};
        qdri_set_product(&task, cases[i].kind, cases[i].storage, 2, 3, 5);
        assert_int_equal(task.m, cases[i].m);
        assert_int_equal(task.n, cases[i].n);
        assert_int_equal(task.k, cases[i].k);
        assert_string_equal(qdri_product_mode(&task), cases[i].mode);
        assert_true(task.flops == 60);
    }
}

static qdri_tune_choice choice_of(const char *machine, int64_t m, qdr_storage storage)
{
    qdri_tune_choice c = {.key = {.n_threads = 2, .dtype = QDR_BF16, .m = m, .n = 5000000000, .k = 7},
                          .storage = storage,
                          .secs = {{0.125, 0.25, 0.5}, {0.0625, 0.03125, 1}}};
    snprintf(c.key.machine, sizeof c.key.machine, "%s", machine);
    return c;
}

TEST(noise_turns_nothing)
{
    static const struct {
        double in_out;
        qdr_storage storage;
    } cases[] = {{4, QDR_OUT_IN}, {3, QDR_OUT_IN}, {2.86, QDR_OUT_IN}, {2.84, QDR_IN_OUT}, {1, QDR_IN_OUT}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdri_tune_choice c = {.secs = {{1, 1, 1}, {0.5, 0.25, cases[i].in_out - 0.75}}};
        qdri_tune_choose(&c);
        assert_int_equal(c.storage, cases[i].storage);
    }
}

TEST(a_choice_is_for_one_key)
{
    qdri_tune_table table = {0};
    const qdri_tune_choice c = choice_of("one", 3, QDR_IN_OUT);
    assert_null(qdri_tune_find(&table, &c.key));
    for (int64_t m = 40; m > 0; m--) {
        const qdri_tune_choice more = choice_of("one", m, m == 3 ? QDR_IN_OUT : QDR_OUT_IN);
        CHECK_OK(qdri_tune_add(&table, &more));
    }
    assert_int_equal(qdri_tune_find(&table, &c.key)->storage, QDR_IN_OUT);
    qdri_tune_key others[7];
    for (int i = 0; i < 7; i++) others[i] = c.key;
    others[0].machine[0] = 'O';
    others[1].n_threads++;
    others[2].dtype = QDR_F32;
    others[3].m = 41;
    others[4].n++;
    others[5].k++;
    snprintf(others[6].machine, sizeof others[6].machine, "one more");
    for (int i = 0; i < 7; i++) assert_null(qdri_tune_find(&table, &others[i]));
    qdri_tune_free(&table);
}

/* ---- the text ---- */

static char *text_of(const qdri_tune_table *table, size_t *bytes)
{
    char *text = NULL;
    FILE *file = open_memstream(&text, bytes);
    assert_non_null(file);
    assert_true(qdri_tune_write(table, file));
    fclose(file);
    return text;
}

static char *two_choices(size_t *bytes)
{
    qdri_tune_table table = {0};
    qdri_tune_choice a = choice_of("a \"quoted\" \\ name", 1, QDR_IN_OUT);
    qdri_tune_choice b = choice_of("b", 2, QDR_OUT_IN);
    memcpy(a.algorithms[1], (const int[]){2147483647, 0, 7}, sizeof a.algorithms[1]);
    memset(b.secs, 0, sizeof b.secs);
    CHECK_OK(qdri_tune_add(&table, &a));
    CHECK_OK(qdri_tune_add(&table, &b));
    char *text = text_of(&table, bytes);
    qdri_tune_free(&table);
    return text;
}

TEST(what_is_written_is_read)
{
    size_t bytes;
    char *text = two_choices(&bytes);
    qdri_tune_table table = {0};
    CHECK_OK(qdri_tune_read(text, bytes, "file", &table));
    assert_int_equal(table.n, 2);
    const qdri_tune_choice a = choice_of("a \"quoted\" \\ name", 1, QDR_IN_OUT);
    const qdri_tune_choice *first = qdri_tune_find(&table, &a.key);
    assert_non_null(first);
    assert_int_equal(first->storage, QDR_IN_OUT);
    assert_memory_equal(first->secs, a.secs, sizeof a.secs);
    assert_memory_equal(first->algorithms[1], ((const int[]){2147483647, 0, 7}), 3 * sizeof(int));
    assert_int_equal(table.choices[1].algorithms[0][2], 0);
    assert_string_equal(table.choices[1].key.machine, "b");
    assert_int_equal(table.choices[1].storage, QDR_OUT_IN);
    assert_true(table.choices[1].secs[0][0] == 0);
    qdri_tune_free(&table);
    free(text);
}

TEST(nothing_is_no_choices)
{
    qdri_tune_table table = {0};
    size_t bytes;
    CHECK_OK(qdri_tune_read("", 0, "file", &table));
    assert_int_equal(table.n, 0);
    char *text = text_of(&table, &bytes);
    CHECK_OK(qdri_tune_read(text, bytes, "file", &table));
    assert_int_equal(table.n, 0);
    qdri_tune_free(&table);
    free(text);
}

/* Cut anywhere: no crash, one sentence that names the file. */
TEST(every_cut_is_refused)
{
    size_t bytes;
    char *text = two_choices(&bytes);
    for (size_t n = 1; n + 2 < bytes; n++) { /* the last byte is a newline */
        qdri_tune_table table = {0};
        CHECK_FAILS(qdri_tune_read(text, n, "some.json", &table), QDR_ERR_ARGUMENT, "some.json");
        qdri_tune_free(&table);
    }
    free(text);
}

TEST(mistakes_are_named)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"hello", "line 1"},
        {"[1, 2]", "not a tuning file"},
        {"{\"quadrille_tune\": 1, \"choices\": []}", "version 1, not 2; remove it"},
        {"{\"quadrille_tune\": 3, \"choices\": []}", "version 3, not 2"},
        {"{\"quadrille_tune\": 2, \"choices\": 3}", "not a tuning file"},
        {"{\"quadrille_tune\": 2}", "not a tuning file"},
        {"{\"quadrille_tune\": 2, \"choices\": [7]}", "choice 1 of some.json"},
        {"{\"quadrille_tune\": 2, \"choices\": [{}]}", "machine"},
        {"{\"quadrille_tune\": 2, \"choices\": [{\"machine\": \"a\", \"threads\": 1, \"dtype\": "
         "\"f32\", \"m\": \"9\", \"n\": 1, \"k\": 1, \"storage\": \"in-out\"}]}",
         "integer"},
        {"{\"quadrille_tune\": 2, \"choices\": [{\"machine\": \"a\", \"threads\": 1, \"dtype\": "
         "\"i32\", \"m\": 9, \"n\": 1, \"k\": 1, \"storage\": \"in-out\"}]}",
         "dtype \"i32\"; use f32, f64, bf16 or f16"},
        {"{\"quadrille_tune\": 2, \"choices\": [{\"machine\": \"a\", \"threads\": 1, \"dtype\": "
         "\"f32\", \"m\": 9, \"n\": 1, \"k\": 1, \"storage\": \"NT\"}]}",
         "storage \"NT\"; use out-in or in-out"},
        {"{\"quadrille_tune\": 2, \"choices\": [{\"machine\": \"a\", \"threads\": 1, \"dtype\": "
         "\"f32\", \"m\": 9, \"n\": 1, \"k\": 1, \"storage\": \"in-out\", \"in-out\": 3}]}",
         "choice 1"},
        {"{\"quadrille_tune\": 2, \"choices\": [{\"machine\": \"a\", \"threads\": 1, \"dtype\": "
         "\"f32\", \"m\": 9, \"n\": 1, \"k\": 1, \"storage\": \"in-out\", \"algorithms\": [1, "
         "2]}]}",
         "choice 1"},
        {"{\"quadrille_tune\": 2, \"choices\": [{\"machine\": \"a\", \"threads\": 1, \"dtype\": "
         "\"f32\", \"m\": 9, \"n\": 1, \"k\": 1, \"storage\": \"in-out\", \"algorithms\": [1, 2, "
         "-1]}]}",
         "algorithm -1; none is below 0"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdri_tune_table table = {0};
        CHECK_FAILS(qdri_tune_read(cases[i].text, strlen(cases[i].text), "some.json", &table), QDR_ERR_ARGUMENT,
                    cases[i].says);
        check_sentence("some.json", __FILE__, __LINE__);
        qdri_tune_free(&table);
    }
}

TEST(a_long_name_is_refused)
{
    char machine[600], text[900];
    qdri_tune_table table = {0};
    memset(machine, 'x', sizeof machine);
    machine[599] = '\0';
    snprintf(text, sizeof text,
             "{\"quadrille_tune\": 2, \"choices\": [{\"machine\": \"%s\", \"threads\": 1, \"dtype\": "
             "\"f32\", \"m\": 9, \"n\": 1, \"k\": 1, \"storage\": \"in-out\"}]}",
             machine);
    CHECK_FAILS(qdri_tune_read(text, strlen(text), "f", &table), QDR_ERR_ARGUMENT, "599 bytes");
    qdri_tune_free(&table);
}

/* ---- the file ---- */

TEST(the_file_is_replaced_or_left)
{
    char folder[] = "/tmp/qdr_tune_XXXXXX", path[64], inside[96], *text;
    size_t bytes;
    qdri_tune_table table = {0}, read = {0};
    const qdri_tune_choice c = choice_of("a", 1, QDR_IN_OUT);
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/tune.json", folder);
    snprintf(inside, sizeof inside, "%s/none/tune.json", folder);
    CHECK_OK(qdri_tune_load(path, &text, &bytes)); /* there is none yet */
    assert_null(text);
    assert_int_equal(bytes, 0);
    for (int n = 1; n <= 2; n++) {
        CHECK_OK(qdri_tune_add(&table, &c));
        CHECK_OK(qdri_tune_store(path, &table));
        CHECK_OK(qdri_tune_load(path, &text, &bytes));
        CHECK_OK(qdri_tune_read(text, bytes, path, &read));
        assert_int_equal(read.n, n);
        qdri_tune_free(&read);
        free(text);
    }
    CHECK_FAILS(qdri_tune_store(inside, &table), QDR_ERR_ARGUMENT, "No such file");
    CHECK_FAILS(qdri_tune_load(folder, &text, &bytes), QDR_ERR_IO, "cannot be read");
    CHECK_FAILS(qdri_tune_store(folder, &table), QDR_ERR_ARGUMENT, "Is a directory");
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(folder), 0); /* and nothing else was left there */
    qdri_tune_free(&table);
}

TEST(the_environment_names_it)
{
    unsetenv("QDR_TUNE");
    assert_null(qdri_tune_path());
    setenv("QDR_TUNE", "", 1);
    assert_null(qdri_tune_path());
    setenv("QDR_TUNE", "off", 1);
    assert_null(qdri_tune_path());
    setenv("QDR_TUNE", "OFF", 1);
    assert_null(qdri_tune_path());
    setenv("QDR_TUNE", "offset.json", 1);
    assert_string_equal(qdri_tune_path(), "offset.json");
    unsetenv("QDR_TUNE");
}

static long fails_in = -1; /* allocations of jansson's until one fails; < 0: none does */

static void *allocate(size_t bytes) { return fails_in >= 0 && fails_in-- == 0 ? NULL : malloc(bytes); }

TEST(a_lack_of_memory_is_no_mistake)
{
    static const char text[] = "{\"quadrille_tune\": 2, \"choices\": [{\"machine\": \"a machine of a long name\", "
                               "\"threads\": 2, \"dtype\": \"f32\", "
                               "\"m\": 10, \"n\": 20, \"k\": 30, \"storage\": \"in-out\", \"algorithms\": [1, 0, 2], "
                               "\"out-in\": {\"y\": 2, \"dx\": 2, \"dw\": 2}, \"in-out\": {\"y\": 1, \"dx\": 1, "
                               "\"dw\": 1.0123456789012345}}]}";
    int n_refused = 0;
    for (long n = 0, has_failed = 1; has_failed; n++) {
        qdri_tune_table table = {0};
        fails_in = n;
        const qdr_status status = qdri_tune_read(text, strlen(text), "some.json", &table);
        has_failed = fails_in < 0;
        fails_in = -1;
        if (status != QDR_OK) {
            assert_true(has_failed);
            CHECK_FAILS(status, QDR_ERR_MEMORY, "out of memory for some.json");
            n_refused++;
        } else { /* as if none had failed: some are not needed */
            const qdri_tune_choice *c = &table.choices[0];
            assert_int_equal(table.n, 1);
            assert_string_equal(c->key.machine, "a machine of a long name");
            assert_true(c->key.m == 10 && c->key.n == 20 && c->key.k == 30 && c->key.n_threads == 2);
            assert_true(c->storage == QDR_IN_OUT && c->algorithms[1][0] == 1 && c->algorithms[1][2] == 2);
            assert_true(c->secs[0][0] >= 2 && c->secs[1][2] > 1.01234567890123 && c->secs[1][2] < 1.01234567890124);
        }
        qdri_tune_free(&table);
    }
    assert_true(n_refused > 20);
}

int main(void)
{
    json_set_alloc_funcs(allocate, free);
    return run_all_tests(NULL, NULL);
}
