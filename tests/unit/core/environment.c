/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables: each value is accepted or refused, in the same form. */
#include "core/environment.h"

#include "core/log.h"
#include "qdr_test.h"
#include "quadrille/context.h"

/* What each kind of value refuses; TEXT takes anything. */
static const struct {
    const char *values; /* of the table */
    const char *good[4], *bad[12];
} kinds[] = {
    {"0 or 1", {"0", "1"}, {"yes", "2", "true", "on", " 1", "1 ", "01", "-1"}},
    {"auto, own or cudnn", {"auto", "own", "cudnn"}, {"Auto", "none", "0"}},
    {"auto, nccl, mpi or local", {"auto", "nccl", "local"}, {"rccl", "1"}},
    {"best, avx2 or base", {"best", "avx2", "base"}, {"avx512", "sse", "2"}},
    {"device or managed", {"device", "managed"}, {"host", "0"}},
    {"a whole number from 0 to 3", {"0", "1", "3"}, {"4", "abc", "1.5", "-1", "0x1", " 1", "1 ", "+1", "1e0"}},
    {"a whole number from 1 to 64", {"1", "64"}, {"0", "65", "many", "1.5"}},
    {"cpu, cuda, or cuda:N for GPU N",
     {"cpu", "cuda", "cuda:0", "cuda:12"},
     {"gpu", "cuda:", "cuda:x", "cuda:1024", "cuda:-1", "CPU", "cuda:1 "}},
    {"seconds from 0 to 1000000",
     {"0", "1.5", "1e3"},
     {"-1", "soon", "1e7", "nan", "inf", "0x10", "1s", " 1", "1 ", "1-2", "1e"}},
    {"a file", {"/no/such/file"}, {NULL}},
    {"a file, or off", {"off", "/x"}, {NULL}},
    {"folders separated by colons", {"/a:/b"}, {NULL}},
    {"a machine's name or file", {"laptop"}, {NULL}},
    {"a preset or codecs, as for qdr_codecs_parse()", {"none", "int8,inside"}, {NULL}},
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

static qdr_variable variable_at(int number)
{
    qdr_variable variable = {QDR_INIT(qdr_variable)};
    CHECK_OK(qdr_environment_variable(number, &variable));
    return variable;
}

static int kind_of(const qdr_variable *variable)
{
    for (int i = 0; i < N_KINDS; i++)
        if (strcmp(kinds[i].values, variable->values) == 0) return i;
    fail_msg("%s takes %s: add that to the test", variable->name, variable->values);
    return -1;
}

static void set(const char *name, const char *value) { assert_int_equal(setenv(name, value, 1), 0); }

static void check_context_refuses(const char *expected)
{
    qdr_context *ctx = NULL;
    CHECK_FAILS(qdr_context_create_self(NULL, &ctx), QDR_ERR_ARGUMENT, expected);
    assert_null(ctx);
}

/* The whole table: a new variable is tested, too. */
TEST(all_refuse_what_they_do_not_understand)
{
    char expected[256];
    for (int i = 0; i < qdr_environment_size(); i++) {
        const qdr_variable before = variable_at(i);
        const int kind = kind_of(&before);
        assert_false(before.is_set);
        assert_string_equal(before.value, before.initial);
        for (int j = 0; j < 4 && kinds[kind].good[j]; j++) {
            set(before.name, kinds[kind].good[j]);
            CHECK_OK(qdr_environment_check());
            assert_string_equal(variable_at(i).value, kinds[kind].good[j]);
            assert_string_equal(qdr_environment_value(before.name), kinds[kind].good[j]);
            assert_true(variable_at(i).is_set && variable_at(i).is_understood);
        }
        for (int j = 0; j < 12 && kinds[kind].bad[j]; j++) {
            set(before.name, kinds[kind].bad[j]);
            snprintf(expected, sizeof expected, "environment: %s is \"%s\"; use %s", before.name, kinds[kind].bad[j],
                     before.values);
            CHECK_FAILS(qdr_environment_check(), QDR_ERR_ARGUMENT, expected);
            assert_false(variable_at(i).is_understood);
            check_context_refuses(expected);
        }
        set(before.name, "");
        CHECK_OK(qdr_environment_check());
        assert_false(variable_at(i).is_set);
        assert_int_equal(unsetenv(before.name), 0);
    }
}

/* The name is what people look for; what counts where it is not set must be a value, too. */
TEST(the_table_is_in_order)
{
    qdr_variable variable = {QDR_INIT(qdr_variable)};
    for (int i = 0; i < qdr_environment_size(); i++) {
        variable = variable_at(i);
        if (i) assert_true(strcmp(variable_at(i - 1).name, variable.name) < 0);
        assert_true(strncmp(variable.name, "QDR_", 4) == 0 && *variable.room && *variable.meaning);
        set(variable.name, variable.initial);
        CHECK_OK(qdr_environment_check());
        assert_int_equal(unsetenv(variable.name), 0);
    }
    CHECK_FAILS(qdr_environment_variable(-1, &variable), QDR_ERR_ARGUMENT, "no variable -1");
    CHECK_FAILS(qdr_environment_variable(qdr_environment_size(), &variable), QDR_ERR_ARGUMENT, "no variable");
    CHECK_FAILS(qdr_environment_variable(0, NULL), QDR_ERR_ARGUMENT, "NULL");
    assert_null(qdr_environment_value("QDR_NO"));
    assert_null(qdr_environment_value(NULL));
}

/* ---- unknown ones ---- */

static struct {
    int n;
    char lines[4][256];
} heard;

static void hear(int level, const char *line, void *user)
{
    (void)user;
    assert_int_equal(level, QDRI_LOG_WARNING);
    assert_true(heard.n < 4);
    snprintf(heard.lines[heard.n++], sizeof heard.lines[0], "%s", line);
}

static void make_context(void)
{
    qdr_context *ctx;
    heard.n = 0;
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
    qdr_context_destroy(&ctx);
}

TEST(unknown_ones_get_a_warning)
{
    qdr_set_log(hear, NULL);
    set("QDR_CHEK", "1");
    set("QDR_TEST_ANYTHING", "1");
    make_context();
    assert_int_equal(heard.n, 1);
    assert_string_equal(heard.lines[0], "environment: QDR_CHEK is not a variable of Quadrille; did you mean QDR_CHECK? "
                                        "See quadrille env");
    make_context(); /* said already */
    assert_int_equal(heard.n, 0);
    set("QDR_ZZZZZZ", "1");
    make_context();
    assert_int_equal(heard.n, 2);
    assert_int_equal(unsetenv("QDR_CHEK"), 0);
    make_context();
    assert_int_equal(heard.n, 1);
    assert_string_equal(heard.lines[0], "environment: QDR_ZZZZZZ is not a variable of Quadrille; see quadrille env");
    assert_int_equal(unsetenv("QDR_ZZZZZZ"), 0);
    make_context();
    assert_int_equal(heard.n, 0);
    qdr_set_log(NULL, NULL);
}

static int make_one(qdr_local_world *world, int rank, void *user)
{
    qdr_context *ctx;
    (void)user;
    if (qdr_context_create_local(world, rank, NULL, &ctx) != QDR_OK) return 1;
    qdr_context_destroy(&ctx);
    return 0;
}

/* And so of many ranks only one. */
TEST(one_rank_warns)
{
    int result = 1;
    qdr_set_log(hear, NULL);
    set("QDR_TRACES", "x");
    heard.n = 0;
    CHECK_OK(qdr_local_run(3, make_one, NULL, &result));
    assert_int_equal(result, 0);
    assert_int_equal(heard.n, 1);
    assert_non_null(strstr(heard.lines[0], "did you mean QDR_TRACE?"));
    assert_int_equal(unsetenv("QDR_TRACES"), 0);
    qdr_set_log(NULL, NULL);
}

int main(void)
{
    for (int i = 0; i < qdr_environment_size(); i++) unsetenv(variable_at(i).name); /* of who runs the tests */
    return run_all_tests(NULL, NULL);
}
