/* SPDX-License-Identifier: Apache-2.0 */
/* Text that a model writes: which bytes are shown, and which ones are drawn. */
#include "../../../examples/common/sample.h"

#include <math.h>

#include "qdr_test.h"

/* ---- what is shown ---- */

/* Bytes of the character that begins here, by the definition of UTF-8; 0: none that a terminal may get. */
static int shown_bytes(const uint8_t *at, int n)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    int n_ones = 0;
    while (n_ones < 8 && at[0] >> (7 - n_ones) & 1) n_ones++;
    if (n_ones == 0) return (at[0] >= 0x20 && at[0] != 0x7f) || at[0] == '\n' || at[0] == '\t';
    if (n_ones < 2 || n_ones > 4 || n_ones > n) return 0;
    uint32_t code = at[0] & (0x7fu >> n_ones);
    for (int i = 1; i < n_ones; i++) {
        if ((at[i] & 0xc0) != 0x80) return 0;
        code = code << 6 | (at[i] & 0x3f);
    }
    const int is_surrogate = code >= 0xd800 && code <= 0xdfff, is_control = code >= 0x80 && code <= 0x9f;
    return code < least[n_ones] || code > 0x10ffff || is_surrogate || is_control ? 0 : n_ones;
}

static size_t print(const uint8_t *bytes, int n, char *to, size_t most)
{
    sample_text text = {.out = fmemopen(to, most, "w")};
    assert_non_null(text.out);
    for (int i = 0; i < n; i++) sample_put(&text, bytes[i]);
    sample_end(&text);
    const long length = ftell(text.out);
    fclose(text.out);
    return (size_t)length;
}

static void check_shown(const uint8_t *bytes, int n)
{
    char found[32] = "", wanted[32];
    size_t length = 0;
    for (int i = 0, used; i < n; i += used) {
        const int n_shown = shown_bytes(bytes + i, n - i);
        used = n_shown ? n_shown : 1;
        if (n_shown) memcpy(wanted + length, bytes + i, (size_t)n_shown);
        if (!n_shown) wanted[length] = '?';
        length += (size_t)used;
    }
    if (print(bytes, n, found, sizeof found) != length || memcmp(found, wanted, length) != 0)
        fail_msg("%02x %02x %02x %02x: \"%s\"", bytes[0], bytes[1], bytes[2], bytes[3], found);
}

/* All bytes in pairs, before a letter; and those of three and four bytes around the ends of what there is. */
TEST(only_text_is_shown)
{
    static const uint8_t ends[] = {0x00, 0x41, 0x7f, 0x80, 0x8f, 0x90, 0x9f, 0xa0, 0xbf, 0xc0, 0xc2, 0xe0, 0xff};
    for (int first = 0; first < 256; first++)
        for (int second = 0; second < 256; second++)
            check_shown((const uint8_t[]){(uint8_t)first, (uint8_t)second, 'a', 'b'}, 4);
    for (int first = 0xc0; first < 256; first++)
        for (size_t i = 0; i < sizeof ends * sizeof ends * sizeof ends; i++)
            check_shown((const uint8_t[]){(uint8_t)first, ends[i % 13], ends[i / 13 % 13], ends[i / 169], 'a'}, 5);
    check_shown((const uint8_t[]){0xf0, 0x9f, 0x98, 0x80}, 4);
    check_shown((const uint8_t[]){0xf0, 0x9f, 0x98, 0}, 3); /* not complete */
}

/* ---- what is drawn ---- */

/* Each number falls into the share of its byte. The logits would overflow without their highest. */
TEST(bytes_have_their_shares)
{
    static const double shares[] = {0.125, 0.5, 0.25, 0.0625, 0.0625};
    static const uint8_t bytes[] = {0, 0, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 4}; /* of 16 numbers */
    enum { N = 16 };
    for (int k = 0; k < 3; k++) {
        const double temperature = k == 0 ? 1 : k == 1 ? 0.5 : 4, most = k == 2 ? 400 : 4000;
        float logits[6] = {0};
        for (int i = 0; i < 5; i++) logits[i] = (float)(most + temperature * log(shares[i]));
        logits[5] = (float)(2 * most); /* not among the first 5 */
        for (int i = 0; i < N; i++) {
            assert_int_equal(sample_draw(logits, 5, temperature, (i + 0.01) / N), bytes[i]);
            assert_int_equal(sample_draw(logits, 5, temperature, (i + 0.99) / N), bytes[i]);
        }
        assert_int_equal(sample_draw(logits, 5, temperature, 0), 0);
        assert_int_equal(sample_draw(logits, 5, temperature, 1 - 0x1p-53), 4);
    }
}

/* The first of the likeliest, whatever the number. */
TEST(temperature_0_draws_the_likeliest)
{
    static const float logits[] = {-3, 1, 7, 7, 6, 9};
    for (int i = 0; i < 4; i++) {
        assert_int_equal(sample_draw(logits, 5, 0, i / 4.0), 2);
        assert_int_equal(sample_draw(logits, 6, 0, i / 4.0), 5);
        assert_int_equal(sample_draw(logits, 1, 0, i / 4.0), 0);
    }
}
