/* SPDX-License-Identifier: Apache-2.0 */
/* Files read within limits: what is too large, grows, never ends, or never begins is refused with one message. */
#include "core/input.h"

#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qdr_test.h"

enum { MOST = 1 << 16, WAIT_MSECS = 50 };

static char folder[64], path[128];

FIXTURE(begin)
{
    snprintf(folder, sizeof folder, "/tmp/qdr_input_XXXXXX");
    if (!mkdtemp(folder)) return 1;
    snprintf(path, sizeof path, "%s/a", folder);
    return 0;
}

FIXTURE(end)
{
    unlink(path);
    return rmdir(folder);
}

static void write_bytes(size_t n_bytes)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    for (size_t i = 0; i < n_bytes; i++) assert_int_not_equal(putc((int)(i % 251), file), EOF);
    assert_int_equal(fclose(file), 0);
}

static void check_read(size_t n_bytes)
{
    char *bytes;
    size_t got;
    CHECK_OK(qdr_input_read(path, MOST, &bytes, &got));
    assert_int_equal(got, n_bytes);
    for (size_t i = 0; i < n_bytes; i++) assert_int_equal((unsigned char)bytes[i], i % 251);
    assert_int_equal(bytes[n_bytes], 0);
    free(bytes);
}

static void check_refused(const char *name, qdr_status status, const char *words)
{
    char *bytes = folder;
    size_t got = 1;
    CHECK_FAILS(qdri_input_read_within(name, MOST, WAIT_MSECS, &bytes, &got), status, words);
    assert_null(bytes);
    assert_int_equal(got, 0);
}

TEST_IN(sizes, begin, end)
{
    static const size_t sizes[] = {0, 1, 2, 4095, 4096, MOST - 1, MOST};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        write_bytes(sizes[i]);
        check_read(sizes[i]);
    }
    write_bytes(MOST + 1);
    check_refused(path, QDR_ERR_ARGUMENT, "is larger than 65536 bytes");
}

TEST_IN(what_is_no_file, begin, end)
{
    char *bytes;
    size_t got;
    check_refused(path, QDR_ERR_IO, "cannot be opened (No such file");
    check_refused(folder, QDR_ERR_IO, "Is a directory");
    check_refused("/dev/zero", QDR_ERR_ARGUMENT, "/dev/zero is a device");
    CHECK_FAILS(qdr_input_read(NULL, MOST, &bytes, &got), QDR_ERR_ARGUMENT, "NULL");
    assert_null(bytes);
}

/* Files of /proc say that they are empty. */
TEST(files_without_a_size)
{
    char *bytes;
    size_t got;
    CHECK_OK(qdr_input_read("/proc/self/status", MOST, &bytes, &got));
    assert_non_null(strstr(bytes, "VmSize"));
    free(bytes);
}

static void *write_fifo(void *with)
{
    const size_t n_bytes = *(size_t *)with;
    FILE *file = fopen(path, "wb");
    for (size_t i = 0; file && i < n_bytes; i++) putc((int)(i % 251), file);
    if (file) fclose(file);
    return NULL;
}

TEST_IN(fifos, begin, end)
{
    pthread_t writer;
    size_t n_bytes = MOST;
    assert_int_equal(mkfifo(path, 0600), 0);
    check_refused(path, QDR_ERR_IO, "no byte arrived in 0.05 s");
    assert_int_equal(pthread_create(&writer, NULL, write_fifo, &n_bytes), 0);
    check_read(n_bytes);
    pthread_join(writer, NULL);
    /* One that is open, and silent after its first bytes. */
    const int held = open(path, O_RDWR | O_NONBLOCK);
    assert_true(held >= 0);
    assert_int_equal(write(held, "abc", 3), 3);
    check_refused(path, QDR_ERR_IO, "no byte arrived in 0.05 s");
    close(held);
}

static atomic_int is_done;

static void *append(void *unused)
{
    FILE *file = fopen(path, "ab");
    while (file && !is_done) {
        putc('a', file);
        fflush(file);
    }
    if (file) fclose(file);
    return unused;
}

TEST_IN(a_file_that_grows, begin, end)
{
    pthread_t writer;
    char *bytes;
    size_t got;
    qdr_status status = QDR_OK;
    write_bytes(MOST);
    atomic_store(&is_done, 0);
    assert_int_equal(pthread_create(&writer, NULL, append, NULL), 0);
    for (int i = 0; i < 100000 && status == QDR_OK; i++) {
        status = qdr_input_read(path, (size_t)1 << 30, &bytes, &got);
        free(bytes);
    }
    atomic_store(&is_done, 1);
    pthread_join(writer, NULL);
    check_status(status, QDR_ERR_ARGUMENT, "reading a file that grows", __FILE__, __LINE__);
    check_sentence("while it was read", __FILE__, __LINE__);
}

/* Its end is what tells, and it keeps its place in the sentence. */
TEST(long_names)
{
    char name[400], shown[200];
    memset(name, 'n', sizeof name);
    memcpy(name + 390, "end.json\n", 10);
    qdri_input_name(name, shown, sizeof shown);
    assert_int_equal(strlen(shown), 199);
    assert_memory_equal(shown, "...n", 4);
    assert_string_equal(shown + 190, "end.json?");
    qdri_input_name("-", shown, sizeof shown);
    assert_string_equal(shown, "standard input");
}

TEST(controls_are_hidden)
{
    static const char *const cases[][2] = {{"a\xe2\x80\xae"
                                            "b",
                                            "a?b"},
                                           {"\xe2\x81\xa6x\xe2\x81\xa9", "?x?"},
                                           {"\x1b[1m\x7f", "?[1m?"},
                                           {"\xc2\x9b"
                                            "1",
                                            "?1"},
                                           {"\xd8\x9c", "?"},
                                           {"\xef\xbb\xbfn", "?n"},
                                           {"\xf3\xa0\x81\x81.\xc2\xad.\xef\xbf\xb9", "?.?.?"},
                                           {"cut \xf3\xa0\x81", "cut \xf3\xa0\x81"},
                                           {"gr\xc3\xb6\xc3\x9f"
                                            "e \xe2\x80\xa6",
                                            "gr\xc3\xb6\xc3\x9f"
                                            "e \xe2\x80\xa6"},
                                           {"cut \xe2", "cut \xe2"},
                                           {"cut \xe2\x80", "cut \xe2\x80"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        char text[64];
        snprintf(text, sizeof text, "%s", cases[i][0]);
        qdr_text_hide_controls(text);
        assert_string_equal(text, cases[i][1]);
    }
    qdr_text_hide_controls(NULL);
}
