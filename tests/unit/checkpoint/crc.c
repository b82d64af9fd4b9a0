/* SPDX-License-Identifier: Apache-2.0 */
/* Checksums of tensors from shares of their runs, against the definition: division of polynomials, bit by bit. */
#include "checkpoint/crc.h"

#include "qdr_test.h"
#include "slow_crc.h"

TEST(shares_of_runs_give_the_checksum)
{
    enum { MOST = 3000 };
    static unsigned char bytes[MOST];
    uint64_t seed = test_seed();
    assert_int_equal(slow_crc((const unsigned char *)"123456789", 9), 0xcbf43926u);
    for (int trial = 0; trial < 300; trial++) {
        const size_t n = test_random(&seed) % MOST;
        uint32_t shares = 0;
        size_t cuts[4] = {0};
        for (size_t i = 0; i < n; i++) bytes[i] = (unsigned char)(test_random(&seed) >> 40);
        for (int i = 1; i < 4; i++) cuts[i] = cuts[i - 1] + test_random(&seed) % (n - cuts[i - 1] + 1);
        for (int i = 3; i >= 0; i--) { /* backwards: in any order */
            const size_t end = i == 3 ? n : cuts[i + 1];
            shares ^= qdri_crc_share(bytes + cuts[i], end - cuts[i], (int64_t)(n - end));
        }
        assert_int_equal(qdri_crc_of_shares(shares, (int64_t)n), slow_crc(bytes, n));
        assert_int_equal(qdri_crc(0, bytes, n), slow_crc(bytes, n));
        const uint32_t begun = qdri_crc(0, bytes, cuts[1]);
        assert_int_equal(qdri_crc(begun, bytes + cuts[1], n - cuts[1]), slow_crc(bytes, n));
    }
}

static uint32_t times(uint32_t a, uint32_t b)
{
    uint32_t product = 0;
    for (; a; a <<= 1, b = times_x(b)) product ^= a >> 31 ? b : 0;
    return product;
}

/* a, and n zero bytes after it: a * x^(8n), by squares. */
static uint32_t before_zeros(uint32_t a, int64_t n)
{
    for (uint32_t square = UINT32_C(1) << 23; n; n >>= 1, square = times(square, square))
        if (n & 1) a = times(a, square);
    return a;
}

/* Of a tensor that is zero but for two runs, a number of bytes apart. */
static uint32_t crc_of_two(const unsigned char *run, size_t n_run, const int64_t zeros[3])
{
    uint32_t crc = before_zeros(UINT32_MAX, zeros[0]);
    for (int i = 1; i < 3; i++)
        crc = before_zeros(~slow_crc(run, n_run) ^ before_zeros(UINT32_MAX ^ crc, (int64_t)n_run), zeros[i]);
    return ~crc;
}

#define G (INT64_C(1) << 30)

/* Zeros before, between and after two runs of nine bytes: so many as no test could write. */
TEST(shares_of_large_tensors)
{
    static const int64_t cases[][3] = {{0, 0, 0},
                                       {3, 5, 7},
                                       {2 * G - 9, 0, 0},
                                       {0, 2 * G, 1},
                                       {1, 0, 2 * G},
                                       {4 * G - 10, 1, 0},
                                       {4 * G, 0, 0},
                                       {0, 4 * G, 0},
                                       {0, 0, 4 * G},
                                       {1, 2, 4 * G + 3},
                                       {5 * G, 7 * G + 1, 11 * G + 2},
                                       {1024 * G + 1, 2048 * G + 2, 3 * G}};
    static const char run[] = "123456789", shown[] = "---123456789-----123456789-------";
    unsigned char few[sizeof shown - 1];
    for (size_t i = 0; i < sizeof few; i++) few[i] = (unsigned char)(shown[i] == '-' ? 0 : shown[i]);
    assert_int_equal(crc_of_two((const unsigned char *)run, 9, cases[1]), slow_crc(few, sizeof few));
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        const int64_t *zeros = cases[i], n_after = zeros[2], n = zeros[0] + 9 + zeros[1] + 9 + n_after;
        const uint32_t crc = crc_of_two((const unsigned char *)run, 9, zeros);
        const uint32_t shares = qdri_crc_share(run, 9, n_after) ^ qdri_crc_share(run, 9, zeros[1] + 9 + n_after);
        qdri_crc_runs runs = qdri_crc_runs_begin(9, zeros[1] + 9);
        for (int k = 0; k < 2; k++) qdri_crc_runs_add(&runs, qdri_crc(0, run, 9));
        if (qdri_crc_of_shares(shares, n) != crc) fail_msg("case %d: runs one by one", i);
        if (qdri_crc_of_shares(qdri_crc_runs_share(&runs, n_after), n) != crc) fail_msg("case %d: runs together", i);
    }
}
