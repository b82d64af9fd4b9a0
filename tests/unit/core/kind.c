/* SPDX-License-Identifier: Apache-2.0 */
/* Files that are something else, by their first bytes. */
#include "core/kind.h"

#include "qdr_test.h"

#define BYTES(text) text, sizeof text - 1

TEST(kinds)
{
    static const struct {
        const char *bytes;
        size_t n;
        const char *says;
    } cases[] = {
        {BYTES("PK\003\004\024\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x10\0\0\0archive/data.pkl"),
         "PyTorch's pickles"},
        {BYTES("PK\003\004\024\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\005\0\0\0x.npy"), "(.npz)"},
        {BYTES("\x80\002\x8a\012l\374\234F"), "pickle"},
        {BYTES("\x80\004\x95"), "pickle"},
        {BYTES("\x89HDF\r\n\x1a\n"), "HDF5"},
        {BYTES("GGUF\003\0\0\0"), "GGUF"},
        {BYTES("\x93NUMPY\001\0v\0"), "(.npy)"},
        {BYTES("PAR1\025\0"), "Parquet"},
        {BYTES("ARROW1\0\0"), "Arrow"},
        {BYTES("\x1f\x8b\010\0"), "gunzip"},
        {BYTES("version https://git-lfs.github.com/spec/v1\n"), "git lfs pull"},
        {BYTES("\n<!DOCTYPE html><html>"), "web page"},
        {BYTES("<HTML>"), "web page"},
        {BYTES("\xff\xfe{\0"), "UTF-16"},
        {BYTES("\xfe\xff\0{"), "UTF-16"},
        {BYTES("\xff\xfe\0\0{\0\0\0"), "UTF-32"},
        {BYTES("{\0\"\0m\0"), "UTF-16"},
        {BYTES("\0{\0\"\0m"), "UTF-16"},
        {BYTES("{\0\0\0\"\0\0\0"), "UTF-16 or UTF-32"},
        {BYTES("\0\0\0{\0\0\0\""), "UTF-16 or UTF-32"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        for (int is_text = 0; is_text < 2; is_text++) {
            const char *found = qdri_kind_of_file(cases[i].bytes, cases[i].n, is_text);
            if (!found || !strstr(found, cases[i].says)) fail_msg("case %zu: %s", i, found ? found : "none");
        }
}

/* Every beginning of any of them is read without its end. */
TEST(short_files)
{
    static const char zip[] = "PK\003\004\024\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x90\0\0\0x.npy";
    for (size_t n = 0; n < sizeof zip; n++) {
        char *copy = malloc(n ? n : 1);
        assert_non_null(copy);
        memcpy(copy, zip, n);
        const char *found = qdri_kind_of_file(copy, n, 0);
        assert_true(n < 4 ? !found : found && strstr(found, "zip"));
        free(copy);
    }
}

/* Lengths of headers that look like other files, and texts. */
TEST(what_is_right)
{
    static const unsigned lengths[] = {0x0280, 0x0480, 0x088b1f, 0x00410041, 123, 0x04034b50, 0x46554747, 0xbfbbef};
    for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
        char bytes[QDRI_KIND_BYTES] = {0};
        for (int k = 0; k < 4; k++) bytes[k] = (char)(lengths[i] >> 8 * k);
        memcpy(bytes + 8, "{\"a\":{", 6);
        assert_null(qdri_kind_of_file(bytes, sizeof bytes, 0));
        assert_non_null(strstr(qdri_kind_of_file(bytes, sizeof bytes, 1), "safetensors"));
    }
    static const char *const texts[] = {"",
                                        "{",
                                        "{}",
                                        "{\"a\": 1}",
                                        "a,b\n1,2\n",
                                        "\xef\xbb\xbf{}",
                                        ("gr\xc3\xb6\xc3\x9f"
                                         "e")};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        assert_null(qdri_kind_of_file(texts[i], strlen(texts[i]), 1));
    assert_non_null(strstr(qdri_kind_of_file(BYTES("{\n \"a\": 1}"), 0), "JSON"));
}
