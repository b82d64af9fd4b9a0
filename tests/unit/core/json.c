/* SPDX-License-Identifier: Apache-2.0 */
/* JSON documents: reading, places, values, and every message. */
#include "core/json.h"

#include <jansson.h>
#include <math.h>
#include <unistd.h>

#include "qdr_test.h"
#include "quadrille_private/input.h"

static qdri_json *document_of(const char *text)
{
    qdri_json *document;
    CHECK_OK(qdri_json_parse(text, strlen(text), "a.json", &document));
    return document;
}

/* A document and its root, for one test at a time. */
static qdri_json *document;
static qdri_json_node root;

static void begin(const char *text)
{
    document = document_of(text);
    CHECK_OK(qdri_json_root(document, &root));
}

FIXTURE(end)
{
    qdri_json_free(&document);
    qdri_json_free(&document); /* twice is allowed */
    return 0;
}

/* The whole sentence. */
#define CHECK_SAYS(expression, status, sentence)                                                                       \
    do {                                                                                                               \
        check_status((expression), (status), #expression, __FILE__, __LINE__);                                         \
        assert_string_equal(qdr_last_error(), sentence);                                                               \
    } while (0)

/* ---- reading ---- */

TEST_IN(no_json, NULL, end)
{
    static const struct {
        const char *text, *says;
    } cases[] = {
        {"", "a.json, line 1: '[' or '{' expected near end of file; this is not JSON"},
        {"{\n\n\"a\": }", "a.json, line 3: "},
        {"{\"a\": 1, \"a\": 2}", "a.json, line 1: duplicate object key"},
        {"{\"a\": 1} 2", "a.json, line 1: end of file expected"},
        {"{\"a\": 1e999}", "real number overflow"},
        {"{\"a\": 99999999999999999999}", "too big integer"},
        {"{\"a\": NaN}", "this is not JSON"},
        {"{\"\xff\": 1}", "a.json, line 1: unable to decode byte 0xff"},
        {"[1, 2", "this is not JSON"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdri_json *none = (qdri_json *)&cases;
        CHECK_FAILS(qdri_json_parse(cases[i].text, strlen(cases[i].text), "a.json", &none), QDR_ERR_ARGUMENT,
                    cases[i].says);
        assert_null(none);
    }
}

TEST_IN(every_cut_is_refused, NULL, end)
{
    static const char text[] = "{\"a\": [1, {\"b\": \"c\\\"d\"}], \"e\": true}";
    for (size_t bytes = 0; bytes + 1 < sizeof text; bytes++) {
        qdri_json *none;
        assert_int_equal(qdri_json_parse(text, bytes, "a.json", &none), QDR_ERR_ARGUMENT);
        assert_null(none);
    }
}

TEST_IN(the_root_is_an_object, NULL, end)
{
    document = document_of("[1]");
    CHECK_SAYS(qdri_json_root(document, &root), QDR_ERR_ARGUMENT,
               "a.json holds a list; an object is needed: {\"key\": value, ...}");
}

TEST_IN(depth_has_a_limit, NULL, end)
{
    enum { MOST = 2048 }; /* of jansson */
    static char text[2 * MOST + 16];
    for (int depth = MOST; depth <= MOST + 1; depth++) {
        text[0] = '\n';
        memset(text + 1, '[', (size_t)depth);
        memset(text + 1 + depth, ']', (size_t)depth);
        qdri_json *made;
        const qdr_status status = qdri_json_parse(text, (size_t)(2 * depth + 1), "a", &made);
        assert_int_equal(status, depth > MOST ? QDR_ERR_ARGUMENT : QDR_OK);
        if (status != QDR_OK)
            assert_string_equal(qdr_last_error(),
                                "a, line 2: maximum parsing depth reached near '['; this is not JSON");
        qdri_json_free(&made);
    }
    /* Brackets in strings open nothing. */
    begin("{\"a\": \"[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[\\\"[\"}");
}

TEST_IN(size_has_a_limit, NULL, end)
{
    const size_t bytes = QDRI_JSON_MAX_BYTES + 1;
    char *text = malloc(bytes);
    assert_non_null(text);
    memset(text, ' ', bytes);
    text[0] = '[';
    text[bytes - 2] = ']';
    CHECK_SAYS(qdri_json_parse(text, bytes, "a", &document), QDR_ERR_ARGUMENT,
               "a is larger than 16 MiB, the limit for JSON files");
    CHECK_OK(qdri_json_parse(text, bytes - 1, "a", &document));
    free(text);
}

/* ---- files ---- */

static void write_file(const char *path, const char *text, size_t bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(text, 1, bytes, file), bytes);
    assert_int_equal(fclose(file), 0);
}

TEST_IN(files, NULL, end)
{
    char folder[] = "/tmp/qdr_json_XXXXXX", path[64], words[128], *large;
    int64_t n;
    const size_t bytes = QDRI_JSON_MAX_BYTES + 1;
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/a.json", folder);
    CHECK_FAILS(qdri_json_load(path, &document), QDR_ERR_IO, "a.json cannot be opened (No such file or directory)");
    assert_null(document);
    CHECK_FAILS(qdri_json_load(folder, &document), QDR_ERR_IO, "cannot be read (Is a directory)");
    write_file(path, "{\"n\": 3}", 8);
    CHECK_OK(qdri_json_load(path, &document));
    CHECK_OK(qdri_json_root(document, &root));
    snprintf(words, sizeof words, "%s: key 'n' is 3; a whole number >= 4 is needed", path);
    CHECK_SAYS(qdri_json_int(qdri_json_get(&root, "n"), 4, INT64_MAX, &n), QDR_ERR_ARGUMENT, words);
    qdri_json_free(&document);
    large = calloc(bytes, 1);
    assert_non_null(large);
    write_file(path, large, bytes);
    free(large);
    CHECK_FAILS(qdri_json_load(path, &document), QDR_ERR_ARGUMENT, "larger than 16 MiB, the limit");
    /* Standard input */
    write_file(path, "{\"n\": \n-3}", 10);
    assert_non_null(freopen(path, "rb", stdin));
    CHECK_OK(qdri_json_load("-", &document));
    CHECK_OK(qdri_json_root(document, &root));
    CHECK_SAYS(qdri_json_int(qdri_json_get(&root, "n"), 1, INT64_MAX, &n), QDR_ERR_ARGUMENT,
               "standard input: key 'n' is -3; a whole number >= 1 is needed");
    assert_int_equal(remove(path), 0);
    assert_int_equal(rmdir(folder), 0);
}

TEST_IN(names_in_sentences, NULL, end)
{
    char name[400], sentence[512];
    memset(name, 'x', sizeof name);
    strcpy(name + 300, "/b\n.json");
    assert_int_equal(qdri_json_parse("[", 1, name, &document), QDR_ERR_ARGUMENT);
    snprintf(sentence, sizeof sentence, "%s", qdr_last_error());
    assert_memory_equal(sentence, "...xxx", 6); /* the end says more than the beginning */
    assert_non_null(strstr(sentence, "x/b?.json, line 1: "));
    qdri_json_printable("a\nb\x7f\xc3\xa4", name, 6);
    assert_string_equal(name, "a?b??");
}

/* ---- values ---- */

TEST_IN(whole_numbers, NULL, end)
{
    int64_t n;
    begin("{\"a\": 3, \"b\": 2e9,\n \"c\": 1.5, \"d\": -3, \"e\": 1e300, \"f\": \"7\", \"g\": null,"
          "\n\n \"h\": [1], \"i\": {}, \"j\": true, \"k\": false, \"l\": 9007199254740993}");
    const struct {
        const char *key;
        int64_t least, most;
        const char *says;
    } wrong[] = {
        {"a", 4, INT64_MAX, "a.json: key 'a' is 3; a whole number >= 4 is needed"},
        {"a", 4, 9, "a.json: key 'a' is 3; a whole number from 4 to 9 is needed"},
        {"a", 0, 2, "a.json: key 'a' is 3; a whole number from 0 to 2 is needed"},
        {"b", 1, INT32_MAX - 1000000000, "a.json: key 'b' is 2e+09; a whole number from 1 to 1147483647 is needed"},
        {"c", 1, INT32_MAX, "a.json: key 'c' is 1.5; a whole number >= 1 is needed"},
        {"d", 1, INT32_MAX, "a.json: key 'd' is -3; a whole number >= 1 is needed"},
        {"e", 1, INT64_MAX, "a.json: key 'e' is 1e+300; a whole number >= 1 is needed"},
        {"f", 1, INT64_MAX, "a.json: key 'f' is \"7\"; a whole number >= 1 is needed"},
        {"g", 1, INT64_MAX, "a.json: key 'g' is null; a whole number >= 1 is needed"},
        {"h", 1, INT64_MAX, "a.json: key 'h' is a list; a whole number >= 1 is needed"},
        {"i", 1, INT64_MAX, "a.json: key 'i' is an object; a whole number >= 1 is needed"},
        {"j", 1, INT64_MAX, "a.json: key 'j' is true; a whole number >= 1 is needed"},
        {"k", 1, INT64_MAX, "a.json: key 'k' is false; a whole number >= 1 is needed"},
        {"l", 1, INT32_MAX,
         "a.json: key 'l' is 9007199254740993; a whole number from 1 to 2147483647 is "
         "needed"},
        {"z", 1, INT64_MAX, "a.json: key 'z' is missing; a whole number >= 1 is needed"},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        n = 77;
        CHECK_SAYS(qdri_json_int(qdri_json_get(&root, wrong[i].key), wrong[i].least, wrong[i].most, &n),
                   QDR_ERR_ARGUMENT, wrong[i].says);
        assert_int_equal(n, 0);
    }
    CHECK_OK(qdri_json_int(qdri_json_get(&root, "a"), 3, 3, &n));
    assert_int_equal(n, 3);
    CHECK_OK(qdri_json_int(qdri_json_get(&root, "b"), 0, INT32_MAX, &n));
    assert_int_equal(n, 2000000000);
    CHECK_OK(qdri_json_int(qdri_json_get(&root, "l"), 0, INT64_MAX, &n));
    assert_true(n == 9007199254740993);
    CHECK_OK(qdri_json_int_or(qdri_json_get(&root, "a"), 1, 9, 5, &n));
    assert_int_equal(n, 3);
    CHECK_OK(qdri_json_int_or(qdri_json_get(&root, "g"), 1, 9, 5, &n)); /* null: absent */
    assert_int_equal(n, 5);
    CHECK_OK(qdri_json_int_or(qdri_json_get(&root, "z"), 1, 9, -1, &n));
    assert_int_equal(n, -1);
    CHECK_FAILS(qdri_json_int_or(qdri_json_get(&root, "d"), 1, 9, 5, &n), QDR_ERR_ARGUMENT, "is -3");
}

TEST_IN(numbers, NULL, end)
{
    double x;
    begin("{\"a\": 2, \"b\": 2.5e-6, \"c\": -1, \"d\": \"1\"}");
    CHECK_OK(qdri_json_number(qdri_json_get(&root, "a"), 0, INFINITY, &x));
    assert_true(x == 2);
    CHECK_OK(qdri_json_number(qdri_json_get(&root, "b"), 0, 1, &x));
    assert_true(x == 2.5e-6);
    CHECK_SAYS(qdri_json_number(qdri_json_get(&root, "c"), 0, INFINITY, &x), QDR_ERR_ARGUMENT,
               "a.json: key 'c' is -1; a number >= 0 is needed");
    assert_true(x == 0);
    CHECK_SAYS(qdri_json_number(qdri_json_get(&root, "a"), 0, 1, &x), QDR_ERR_ARGUMENT,
               "a.json: key 'a' is 2; a number from 0 to 1 is needed");
    CHECK_SAYS(qdri_json_number(qdri_json_get(&root, "d"), 0, INFINITY, &x), QDR_ERR_ARGUMENT,
               "a.json: key 'd' is \"1\"; a number >= 0 is needed");
    CHECK_SAYS(qdri_json_number(qdri_json_get(&root, "e"), 0, INFINITY, &x), QDR_ERR_ARGUMENT,
               "a.json: key 'e' is missing; a number >= 0 is needed");
    CHECK_OK(qdri_json_number_or(qdri_json_get(&root, "e"), 0, 1, 0.5, &x));
    assert_true(x == 0.5);
    CHECK_OK(qdri_json_number_or(qdri_json_get(&root, "b"), 0, 1, 0.5, &x));
    assert_true(x == 2.5e-6);
}

TEST_IN(flags_and_strings, NULL, end)
{
    static const char *const words[] = {"ring", "tree"};
    const char *text;
    int flag, word;
    begin("{\"a\": true, \"b\": false, \"c\": 1, \"d\": \"tree\", \"e\": \"tr\\u00e4\\n\"}");
    CHECK_OK(qdri_json_flag_or(qdri_json_get(&root, "a"), 0, &flag));
    assert_int_equal(flag, 1);
    CHECK_OK(qdri_json_flag_or(qdri_json_get(&root, "b"), 1, &flag));
    assert_int_equal(flag, 0);
    CHECK_OK(qdri_json_flag_or(qdri_json_get(&root, "z"), 1, &flag));
    assert_int_equal(flag, 1);
    CHECK_SAYS(qdri_json_flag_or(qdri_json_get(&root, "c"), 1, &flag), QDR_ERR_ARGUMENT,
               "a.json: key 'c' is 1; true or false is needed");
    CHECK_OK(qdri_json_string(qdri_json_get(&root, "d"), 5, &text));
    assert_string_equal(text, "tree");
    CHECK_SAYS(qdri_json_string(qdri_json_get(&root, "d"), 4, &text), QDR_ERR_ARGUMENT,
               "a.json: key 'd' is \"tree\"; a string of at most 3 bytes is needed");
    assert_null(text);
    CHECK_SAYS(qdri_json_string(qdri_json_get(&root, "c"), 0, &text), QDR_ERR_ARGUMENT,
               "a.json: key 'c' is 1; a string is needed");
    CHECK_OK(qdri_json_string_or(qdri_json_get(&root, "z"), 0, "none", &text));
    assert_string_equal(text, "none");
    CHECK_OK(qdri_json_string_or(qdri_json_get(&root, "d"), 0, "none", &text));
    assert_string_equal(text, "tree");
    CHECK_OK(qdri_json_word(qdri_json_get(&root, "d"), words, 2, &word));
    assert_int_equal(word, 1);
    CHECK_SAYS(qdri_json_word(qdri_json_get(&root, "e"), words, 2, &word), QDR_ERR_ARGUMENT,
               "a.json: key 'e' is \"tr???\"; one of ring, tree is needed");
    CHECK_SAYS(qdri_json_word(qdri_json_get(&root, "z"), words, 2, &word), QDR_ERR_ARGUMENT,
               "a.json: key 'z' is missing; one of ring, tree is needed");
}

/* As a machine has them: lists of objects. */
TEST_IN(nested, NULL, end)
{
    qdri_json_node levels, level, list, item;
    size_t n;
    double x;
    begin("{\n \"levels\": [\n  {\"name\": \"gpu\", \"secs\": 1e-6},\n  {\"name\": \"node\",\n"
          "   \"secs\": -1, \"sizes\": [1, [2, \"]\"], -3]}\n ],\n \"last\": {}\n}");
    CHECK_OK(qdri_json_list(qdri_json_get(&root, "levels"), &levels, &n));
    assert_int_equal(n, 2);
    CHECK_OK(qdri_json_object(qdri_json_at(&levels, 1), &level));
    CHECK_SAYS(qdri_json_number(qdri_json_get(&level, "secs"), 0, INFINITY, &x), QDR_ERR_ARGUMENT,
               "a.json: key 'levels[1].secs' is -1; a number >= 0 is needed");
    CHECK_SAYS(qdri_json_number(qdri_json_get(&level, "bytes"), 0, INFINITY, &x), QDR_ERR_ARGUMENT,
               "a.json: key 'levels[1].bytes' is missing; a number >= 0 is needed");
    CHECK_OK(qdri_json_list(qdri_json_get(&level, "sizes"), &list, &n));
    assert_int_equal(n, 3);
    CHECK_SAYS(qdri_json_number(qdri_json_at(&list, 2), 0, INFINITY, &x), QDR_ERR_ARGUMENT,
               "a.json: key 'levels[1].sizes[2]' is -3; a number >= 0 is needed");
    CHECK_SAYS(qdri_json_number(qdri_json_at(&list, 3), 0, INFINITY, &x), QDR_ERR_ARGUMENT,
               "a.json: key 'levels[1].sizes[3]' is missing; a number >= 0 is needed");
    CHECK_SAYS(qdri_json_object(qdri_json_at(&list, 0), &item), QDR_ERR_ARGUMENT,
               "a.json: key 'levels[1].sizes[0]' is 1; an object is needed");
    CHECK_SAYS(qdri_json_list(qdri_json_get(&root, "last"), &list, &n), QDR_ERR_ARGUMENT,
               "a.json: key 'last' is an object; a list is needed");
    assert_int_equal(n, 0);
    assert_string_equal(qdri_json_where(qdri_json_get(&root, "last")).text, "a.json: key 'last'");
}

TEST_IN(kinds, NULL, end)
{
    static const char keys[][2] = {"z", "a", "b", "c", "d", "e", "f"};
    begin("{\"a\": null, \"b\": true, \"c\": 1, \"d\": \"\", \"e\": [], \"f\": {}}");
    for (int i = 0; i < 7; i++) {
        const qdri_json_node node = qdri_json_get(&root, keys[i]);
        assert_int_equal(qdri_json_kind_of(node), i);
        assert_int_equal(qdri_json_has(node), i >= 2);
    }
    const qdri_json_node c = qdri_json_get(&root, "c"), below = qdri_json_get(&c, "x");
    assert_int_equal(qdri_json_kind_of(below), QDRI_JSON_ABSENT);
    assert_int_equal(qdri_json_kind_of(qdri_json_at(&c, 0)), QDRI_JSON_ABSENT);
}

/* ---- another reader ---- */

/* A text with a few bytes changed, left out or put in is JSON for both readers or for neither, with the same values. */
TEST_IN(as_jansson_reads, NULL, end)
{
    static const char whole[] = "{\"a\": [1, -2.5e+3, {\"b\": \"c\\\"d\\u00e4\\ud83d\\ude00\\n\", "
                                "\"\xc3\xa4\xe2\x82\xac\": null}], \"e\": true, "
                                "\"f\": [[], {}, false, 0, -0.0, 12345678901234567890, 1E9]}\n";
    static const char bytes[] = "{}[]\":,\\ue-+.0123456789abtrfnl \n\t\x01\x7f\x80\xc3\xe2\xf0\xff";
    uint64_t seed = test_seed();
    int n_good = 0;
    for (int i = 0; i < 50000; i++) {
        char text[sizeof whole + 4];
        size_t n = sizeof whole - 1;
        memcpy(text, whole, n);
        for (int64_t changes = 1 + (int64_t)(test_random(&seed) % 3); changes > 0; changes--) {
            const size_t at = test_random(&seed) % n;
            const char byte = bytes[test_random(&seed) % (sizeof bytes - 1)]; /* no zero byte, which jansson skips */
            const uint64_t how = test_random(&seed) % 3;
            if (how == 1) memmove(text + at, text + at + 1, --n - at);
            if (how == 2) memmove(text + at + 1, text + at, n++ - at);
            if (how != 1) text[at] = byte;
        }
        json_error_t error;
        json_t *theirs = json_loadb(text, n, JSON_REJECT_DUPLICATES, &error), *ours;
        const qdr_status status = qdr_json_read(text, n, "text", &ours);
        if ((status == QDR_OK) != (theirs != NULL) || (theirs && !json_equal(ours, theirs)))
            fail_msg("'%.*s': jansson: %s; ours: %s", (int)n, text, theirs ? "JSON" : error.text,
                     status == QDR_OK ? "JSON" : qdr_last_error());
        n_good += status == QDR_OK;
        json_decref(ours);
        json_decref(theirs);
    }
    assert_true(n_good > 1000 && n_good < 49000);
}

/* ---- memory ---- */

static long fails_in = -1; /* allocations of jansson's until one fails; < 0: none does */

static void *allocate(size_t bytes) { return fails_in >= 0 && fails_in-- == 0 ? NULL : malloc(bytes); }

/* Each allocation fails once: a sentence about memory, never one about the text, and never another value. Words of more
 * than 16, 32 and 64 bytes make jansson's buffers grow. */
TEST_IN(no_memory, NULL, end)
{
    static const char text[] =
        "{\"a word of more than sixteen bytes\": "
        "\"0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef!\", "
        "\"number\": 0.12345678901234567, \"large\": 1234567890123456789, "
        "\"list\": [1, 2, [3, {\"a\": \"\\u00e4\", \"b\": null, \"c\": true, \"d\": [], \"e\": 5, \"f\": 6}]]}";
    begin(text);
    for (long n = 0;; n++) {
        qdri_json *other;
        fails_in = n;
        const qdr_status status = qdri_json_parse(text, strlen(text), "a.json", &other);
        const int has_failed = fails_in < 0;
        fails_in = -1;
        if (!has_failed) {
            assert_true(n > 20);
            qdri_json_node whole;
            CHECK_OK(status);
            CHECK_OK(qdri_json_root(other, &whole));
            assert_true(json_equal((json_t *)whole.value, (json_t *)root.value));
            qdri_json_free(&other);
            return;
        }
        CHECK_FAILS(status, QDR_ERR_MEMORY, "out of memory for the JSON of a.json");
    }
}

int main(void)
{
    json_set_alloc_funcs(allocate, free);
    return run_all_tests(NULL, NULL);
}
