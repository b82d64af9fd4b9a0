/* SPDX-License-Identifier: Apache-2.0 */
/* NumPy files: what is read, what is refused and with which message, and that writing leaves a complete file or
 * none. */
#include "common/npy.h"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include "qdr_test.h"

/* A file in memory: version, header and data. */
typedef struct image {
    unsigned char bytes[1024];
    size_t n_bytes;
} image;

static image make_image(int major, const char *header, size_t data_bytes)
{
    image made = {{0}, 0};
    const size_t n_chars = strlen(header), length_bytes = major == 1 ? 2 : 4;
    memcpy(made.bytes, "\x93NUMPY", 6);
    made.bytes[6] = (unsigned char)major;
    for (size_t i = 0; i < length_bytes; i++) made.bytes[8 + i] = (unsigned char)(n_chars >> 8 * i);
    memcpy(made.bytes + 8 + length_bytes, header, n_chars);
    made.n_bytes = 8 + length_bytes + n_chars + data_bytes;
    assert_true(made.n_bytes <= sizeof made.bytes);
    return made;
}

/* The bytes lie at the end of an allocation, so that a sanitizer sees any step beyond them. */
static int parse(const void *bytes, size_t n_bytes, npy_array *array, failure *why)
{
    char *exact = malloc(n_bytes ? n_bytes : 1);
    assert_non_null(exact);
    memcpy(exact, bytes, n_bytes);
    const int code = npy_parse(exact, n_bytes, "a.npy", array, why);
    if (code == 0 && !array->copy) array->data = NULL;
    free(exact);
    return code;
}

static void expect_refused(image refused, const char *words)
{
    npy_array array;
    failure why = {0};
    assert_int_equal(parse(refused.bytes, refused.n_bytes, &array, &why), EXIT_USAGE);
    if (!strstr(why.sentence, words)) fail_msg("\"%s\" does not say \"%s\"", why.sentence, words);
    assert_memory_equal(why.sentence, "a.npy: ", 7);
    npy_close(&array);
}

static void expect_header_refused(const char *header, const char *words)
{
    expect_refused(make_image(1, header, 48), words);
}

static void expect_shape(int major, const char *header, size_t data_bytes, qdr_dtype dtype, int n_dims, int64_t rows,
                         int64_t cols)
{
    const image file = make_image(major, header, data_bytes);
    npy_array array;
    failure why = {0};
    if (parse(file.bytes, file.n_bytes, &array, &why)) fail_msg("%s", why.sentence);
    assert_int_equal(array.dtype, dtype);
    assert_int_equal(array.n_dims, n_dims);
    assert_int_equal(array.shape[0], rows);
    if (n_dims == 2) assert_int_equal(array.shape[1], cols);
    npy_close(&array);
}

TEST(reads_all_versions_and_spellings)
{
    const char *plain = "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }  \n";
    for (int major = 1; major <= 3; major++) expect_shape(major, plain, 48, QDR_F32, 2, 3, 4);
    expect_shape(1, "{\"shape\":(2,3),\"fortran_order\":False,\"descr\":\"<f8\"}", 48, QDR_F64, 2, 2, 3);
    expect_shape(1, "{'descr': '<f8', 'fortran_order': False, 'shape': (6,), }\n", 48, QDR_F64, 1, 6, 0);
    expect_shape(1, "{'descr': '<f8', 'fortran_order': True, 'shape': (6,), }\n", 48, QDR_F64, 1, 6, 0);
    expect_shape(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3L, 4L), }\n", 48, QDR_F32, 2, 3, 4);
    expect_shape(1, "{'descr': '<f2', 'fortran_order': False, 'shape': (3, 5), }\n", 30, QDR_F16, 2, 3, 5);
    expect_shape(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (0, 4), }\n", 0, QDR_F32, 2, 0, 4);
}

TEST(refuses_what_is_not_numpy)
{
    image file = {"PK\3\4 and more", 12};
    expect_refused(file, "archive");
    file.n_bytes = 0;
    expect_refused(file, "is empty");
    memcpy(file.bytes, "P6 4 4 255\n", file.n_bytes = 11);
    expect_refused(file, "not a NumPy file: it begins with byte 0x50");
    file = make_image(1, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", 48);
    file.bytes[6] = 4;
    expect_refused(file, "version 4.0");
}

TEST(refuses_cut_headers)
{
    const image whole = make_image(2, "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }", 48);
    for (size_t n_bytes = 0; n_bytes < whole.n_bytes; n_bytes++) {
        image cut = whole;
        npy_array array;
        failure why = {0};
        cut.n_bytes = n_bytes;
        assert_int_equal(parse(cut.bytes, cut.n_bytes, &array, &why), EXIT_USAGE);
        assert_true(strlen(why.sentence) > 20);
    }
    image absurd = whole;
    memset(absurd.bytes + 8, 0xff, 4);
    expect_refused(absurd, "claims a header of 4294967295 bytes, but only 107 follow");
}

TEST(refuses_damaged_headers)
{
    static const char *const headers[] = {
        "",
        "[('descr', '<f4')]",
        "{'descr': '<f4', 'fortran_order': False}",
        "{'descr': '<f4', 'descr': '<f4', 'shape': (3, 4)}",
        "{'descr': '<f4', 'order': False, 'shape': (3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), 'order': False}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 12}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3.0, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3 4)}",
        "{'descr': '<f4' 'fortran_order': False, 'shape': (3, 4)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)",
        "{'descr': '<f4",
        "{'descr': [('a', '<f4')",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (3, 4)} x",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (9223372036854775808,)}",
    };
    for (size_t i = 0; i < sizeof headers / sizeof *headers; i++) expect_header_refused(headers[i], "damaged header");
}

TEST(refuses_other_arrays)
{
    expect_header_refused("{'descr': '>f4', 'fortran_order': False, 'shape': (3, 4)}", "save a.astype('<f4')");
    expect_header_refused("{'descr': '<i8', 'fortran_order': False, 'shape': (3, 2)}", "type '<i8'");
    expect_header_refused("{'descr': '<f3', 'fortran_order': False, 'shape': (3, 4)}", "type '<f3'");
    expect_header_refused("{'descr': '<f16', 'fortran_order': False, 'shape': (3, 1)}", "type '<f16'");
    expect_header_refused("{'descr': '>f2', 'fortran_order': False, 'shape': (3, 8)}", "save a.astype('<f2')");
    expect_header_refused("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (12,)}",
                          "type '[[\"a\", \"<f4\"]]'");
    expect_header_refused("{'descr': '\n\x1b[2J', 'fortran_order': False, 'shape': (12,)}", "type '??[2J'");
    expect_header_refused("{'descr': '<f4', 'fortran_order': True, 'shape': (3, 4)}", "np.ascontiguousarray");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': ()}", "without dimensions");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (2, 3, 2)}", "has 3 dimensions");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 5)}",
                          "[3, 5] of f32 needs 60 bytes, but only 48");
    expect_header_refused("{'descr': '<f4', 'fortran_order': False, 'shape': (3, 3)}", "has 12 bytes too many");
    expect_header_refused("{'descr': '<f8', 'fortran_order': False, 'shape': (4611686018427387904, 2)}",
                          "more than memory");
}

static void make_folder(char path[64])
{
    strcpy(path, "/tmp/quadrille-npy-XXXXXX");
    assert_non_null(mkdtemp(path));
}

static int count_files(const char *path)
{
    int n_files = 0;
    DIR *dir = opendir(path);
    assert_non_null(dir);
    while (readdir(dir)) n_files++;
    closedir(dir);
    return n_files - 2; /* . and .. */
}

TEST(writes_what_it_reads)
{
    char dir[64], path[128];
    const double numbers[6] = {1, -2, 0x1p-1074, 4, 5, 1e300};
    const npy_array written = {.dtype = QDR_F64, .n_dims = 2, .shape = {3, 2}, .data = numbers};
    npy_array read;
    qdr_output *output;
    failure why = {0};
    make_folder(dir);
    snprintf(path, sizeof path, "%s/a.npy", dir);
    assert_int_equal(npy_stage(&output, dir, "a.npy", &written, &why), 0);
    assert_int_equal(access(path, F_OK), -1); /* not before it is whole */
    assert_int_equal(qdr_output_commit(&output), QDR_OK);
    assert_int_equal(npy_open(path, &read, &why), 0);
    assert_int_equal(read.shape[0], 3);
    assert_int_equal(read.shape[1], 2);
    assert_memory_equal(read.data, numbers, sizeof numbers);
    npy_close(&read);
    assert_int_equal(count_files(dir), 1);
    unlink(path);
    rmdir(dir);
}

TEST(discarding_leaves_nothing)
{
    char dir[64];
    const float number = 1;
    const npy_array array = {.dtype = QDR_F32, .n_dims = 1, .shape = {1}, .data = &number};
    qdr_output *output;
    failure why = {0};
    make_folder(dir);
    assert_int_equal(npy_stage(&output, dir, "a.npy", &array, &why), 0);
    assert_int_equal(count_files(dir), 1);
    qdr_output_discard(&output);
    qdr_output_discard(&output);
    assert_int_equal(count_files(dir), 0);
    rmdir(dir);
    assert_int_equal(npy_stage(&output, dir, "a.npy", &array, &why), EXIT_USAGE);
    assert_non_null(strstr(why.sentence, "No such file"));
    qdr_output_discard(&output);
}

TEST(refuses_paths_that_are_no_files)
{
    npy_array array;
    failure why = {0};
    assert_int_equal(npy_open("/nowhere/x.npy", &array, &why), EXIT_USAGE);
    assert_non_null(strstr(why.sentence, "/nowhere/x.npy cannot be opened (No such file"));
    why.code = 0;
    assert_int_equal(npy_open("/tmp", &array, &why), EXIT_USAGE);
    assert_non_null(strstr(why.sentence, "not a regular file"));
    npy_close(&array);
}
