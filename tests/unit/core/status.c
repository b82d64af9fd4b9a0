/* SPDX-License-Identifier: Apache-2.0 */
/* Names and texts of statuses; the thread's message. */
#include "core/status.h"

#include <errno.h>
#include <pthread.h>

#include "qdr_test.h"

TEST(every_status_has_its_name_and_text)
{
    assert_string_equal(qdr_status_name(QDR_OK), "QDR_OK");
    assert_string_equal(qdr_status_name(QDR_ERR_SHAPE), "QDR_ERR_SHAPE");
    assert_string_equal(qdr_status_text(QDR_ERR_MEMORY), "out of memory");
    assert_string_equal(qdr_status_name((qdr_status)-99), "QDR_UNKNOWN");
    assert_string_equal(qdr_status_text((qdr_status)99), "unknown status");
}

TEST(fail_returns_its_code_and_keeps_the_sentence)
{
    qdri_set_last_error("");
    assert_string_equal(qdr_last_error(), "");
    assert_int_equal(QDR_FAIL(QDR_ERR_SHAPE, "width %d is odd; use %d", 5, 6), QDR_ERR_SHAPE);
    assert_string_equal(qdr_last_error(), "width 5 is odd; use 6");
    /* The old sentence may be part of the new one. */
    assert_int_equal(QDR_FAIL(QDR_ERR_PEER, "rank 3: %s", qdr_last_error()), QDR_ERR_PEER);
    assert_string_equal(qdr_last_error(), "rank 3: width 5 is odd; use 6");
    qdri_set_last_error(qdr_last_error());
    assert_string_equal(qdr_last_error(), "rank 3: width 5 is odd; use 6");
}

TEST(long_sentences_are_cut)
{
    char words[2 * QDRI_ERROR_BYTES];
    memset(words, 'w', sizeof words - 1);
    words[sizeof words - 1] = '\0';
    assert_int_equal(QDR_FAIL(QDR_ERR_IO, "%s", words), QDR_ERR_IO);
    assert_int_equal(strlen(qdr_last_error()), QDRI_ERROR_BYTES - 1);
    qdri_set_last_error(words);
    assert_int_equal(strlen(qdr_last_error()), QDRI_ERROR_BYTES - 1);
}

static void *fail_elsewhere(void *unused)
{
    (void)unused;
    const qdr_status status = QDR_FAIL(QDR_ERR_STATE, "elsewhere");
    return status == QDR_ERR_STATE && strcmp(qdr_last_error(), "elsewhere") == 0 ? &errno : NULL;
}

TEST(sentences_belong_to_threads)
{
    pthread_t thread;
    void *result = NULL;
    qdri_set_last_error("here");
    assert_int_equal(pthread_create(&thread, NULL, fail_elsewhere, NULL), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    assert_non_null(result);
    assert_string_equal(qdr_last_error(), "here");
}

TEST(kept_errors_return_whole)
{
    qdri_kept_error kept;
    qdri_set_shared_error("of all ranks");
    qdri_keep_last_error(&kept);
    assert_int_equal(QDR_FAIL(QDR_ERR_IO, "in between"), QDR_ERR_IO);
    assert_false(qdr_last_error_is_shared());
    qdri_restore_last_error(&kept);
    assert_string_equal(qdr_last_error(), "of all ranks");
    assert_true(qdr_last_error_is_shared());
    qdri_set_last_error("of this rank");
    qdri_keep_last_error(&kept);
    qdri_set_shared_error("of all ranks");
    qdri_restore_last_error(&kept);
    assert_string_equal(qdr_last_error(), "of this rank");
    assert_false(qdr_last_error_is_shared());
}

static qdr_status try_all(const qdr_status *statuses, int n, int *n_tried)
{
    for (*n_tried = 0; *n_tried < n; (*n_tried)++) QDR_TRY(statuses[*n_tried]);
    return QDR_OK;
}

TEST(try_passes_errors_on)
{
    const qdr_status statuses[] = {QDR_OK, QDR_OK, QDR_ERR_IO, QDR_OK};
    int n_tried;
    assert_int_equal(try_all(statuses, 4, &n_tried), QDR_ERR_IO);
    assert_int_equal(n_tried, 2);
    assert_int_equal(try_all(statuses, 2, &n_tried), QDR_OK);
}
