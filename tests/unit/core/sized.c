/* SPDX-License-Identifier: Apache-2.0 */
/* Structs of programs that were built with other headers: shorter, longer, and never begun. */
#include "core/sized.h"

#include <string.h>

#include "qdr_test.h"

/* Three releases of one struct; the library has the second. */
typedef struct first {
    size_t size;
    int a;
} first;
typedef struct second {
    size_t size;
    int a;
    double b;
} second;
typedef struct third {
    size_t size;
    int a;
    double b;
    const char *c;
} third;

static qdr_status take(const void *given, second *own) { return QDRI_TAKE(second, given, own); }

TEST(shorter_structs_end_with_zeros)
{
    const struct {
        first given;
        int64_t behind[4];
    } old = {{QDR_INIT(first), .a = 7}, {-1, -1, -1, -1}};
    second own;
    memset(&own, 1, sizeof own);
    CHECK_OK(take(&old.given, &own));
    assert_int_equal(own.a, 7);
    assert_true(own.b == 0);
    assert_int_equal(own.size, sizeof own);
}

TEST(longer_structs_must_end_with_zeros)
{
    third given = {QDR_INIT(third), .a = 7, .b = 8};
    second own;
    CHECK_OK(take(&given, &own));
    assert_true(own.a == 7 && own.b == 8 && own.size == sizeof own);
    given.c = "set";
    CHECK_FAILS(take(&given, &own), QDR_ERR_UNSUPPORTED, "second: it has 32 bytes, and sets byte");
}

TEST(structs_must_be_begun)
{
    second own, given = {.a = 1};
    const size_t wrong[] = {0, 1, sizeof(size_t) - 1, sizeof given + 4097, SIZE_MAX};
    for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
        given.size = wrong[i];
        CHECK_FAILS(take(&given, &own), QDR_ERR_ARGUMENT, "begin it with QDR_INIT(second)");
        CHECK_FAILS(QDRI_CLEAR(second, &given), QDR_ERR_ARGUMENT, "begin it with QDR_INIT(second)");
        assert_int_equal(given.a, 1);
    }
    CHECK_FAILS(take(NULL, &own), QDR_ERR_ARGUMENT, "NULL");
    CHECK_FAILS(QDRI_CLEAR(second, NULL), QDR_ERR_ARGUMENT, "NULL");
}

TEST(results_are_given_as_far_as_they_reach)
{
    const second own = {QDR_INIT(second), .a = 7, .b = 8};
    struct {
        first given;
        int64_t behind;
    } old = {{QDR_INIT(first), .a = 1}, -1};
    third new = {QDR_INIT(third), .a = 1, .c = "kept"};
    CHECK_OK(qdri_clear(&old.given, sizeof own, "second"));
    assert_int_equal(old.given.a, 0);
    qdri_give(&old.given, &own, sizeof own);
    assert_true(old.given.a == 7 && old.given.size == sizeof old.given && old.behind == -1);
    CHECK_OK(qdri_clear(&new, sizeof own, "second"));
    qdri_give(&new, &own, sizeof own);
    assert_true(new.a == 7 && new.b == 8 && new.size == sizeof new);
    assert_string_equal(new.c, "kept");
}

TEST(items_are_as_far_apart_as_the_first_says)
{
    third items[] = {{QDR_INIT(third), .a = 1}, {QDR_INIT(third), .a = 2}};
    second own;
    CHECK_OK(take(qdri_sized_item(items, 1), &own));
    assert_int_equal(own.a, 2);
}
