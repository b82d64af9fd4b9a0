/* SPDX-License-Identifier: Apache-2.0 */
/* Writing at places of a file that 32 bits cannot count: of a file with holes, which takes no room. */
#include "files/at.h"

#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qdr_test.h"

#define G (INT64_C(1) << 30)

TEST(numbers_are_where_they_were_written)
{
    static const int64_t at[] = {7, 2 * G - 4, 2 * G + 9, 4 * G - 4, 4 * G + 7, 5 * G};
    enum { N = sizeof at / sizeof *at };
    char path[] = "/tmp/qdr_at_XXXXXX";
    struct stat info;
    const int descriptor = mkstemp(path);
    assert_true(descriptor >= 0 && unlink(path) == 0);
    if (ftruncate(descriptor, at[N - 1]) != 0) { /* a file system without such files */
        close(descriptor);
        skip();
    }
    for (int i = 0; i < N; i++) assert_int_equal(qdri_write_at(descriptor, at[i], &at[i], sizeof at[i]), 0);
    assert_int_equal(fstat(descriptor, &info), 0);
    assert_true(info.st_size == at[N - 1] + (int64_t)sizeof *at);
    for (int i = 0; i < N; i++) {
        int64_t found = -1;
        assert_int_equal(pread(descriptor, &found, sizeof found, at[i]), sizeof found);
        if (found != at[i]) fail_msg("byte %" PRId64 " has what belongs to byte %" PRId64, at[i], found);
    }
    close(descriptor);
}
