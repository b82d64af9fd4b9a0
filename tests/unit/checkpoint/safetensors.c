/* SPDX-License-Identifier: Apache-2.0 */
/* Safetensors files: what is written is read, damage of any bit is found, headers that contradict themselves are
 * refused, types are converted to the nearest number. */
#include "quadrille/safetensors.h"

#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/spans.h"
#include "dev/cpu/narrow.h"
#include "qdr_test.h"
#include "slow_crc.h"

/* ---- a folder for each test ---- */

static char start[512], folder[64];

FIXTURE(enter)
{
    strcpy(folder, "/tmp/qdr_tensors_XXXXXX");
    return !getcwd(start, sizeof start) || !mkdtemp(folder) || chdir(folder) != 0;
}

FIXTURE(leave)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return chdir(start) != 0 || system(command) != 0; /* NOLINT(cert-env33-c): a folder of this test */
}

/* ---- files ---- */

static char *slurp(const char *path, size_t *n)
{
    struct stat info;
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    assert_int_equal(fstat(fileno(file), &info), 0);
    char *bytes = malloc((size_t)info.st_size + 1);
    assert_non_null(bytes);
    *n = fread(bytes, 1, (size_t)info.st_size, file);
    assert_int_equal(*n, info.st_size);
    fclose(file);
    return bytes;
}

static void spill(const char *path, const char *bytes, size_t n)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

/* A header, and n_data bytes 0, 1, 2, ... */
static void make(const char *path, const char *header, size_t n_data)
{
    FILE *file = fopen(path, "wb");
    const uint64_t length = strlen(header);
    assert_non_null(file);
    for (int i = 0; i < 8; i++) fputc((int)(length >> 8 * i & 255), file);
    fputs(header, file);
    for (size_t i = 0; i < n_data; i++) fputc((int)(i & 255), file);
    assert_int_equal(fclose(file), 0);
}

enum { ROWS = 5, COLUMNS = 7 };
static const char *const metadata[] = {"format", "pt", "note", "{\"step\": 3, \"text\": \"a \\\"b\\\" \303\266\"}",
                                       NULL};

static void fill(double *weights, uint16_t *bias)
{
    for (int i = 0; i < ROWS * COLUMNS; i++) weights[i] = 0.1 * i - 1;
    for (int i = 0; i < COLUMNS; i++) bias[i] = qdri_bf16_round((float)i);
}

static void write_sample(const char *path)
{
    const qdr_tensor tensors[] = {
        {.name = "block.0.\"w\"", .dtype = QDR_F64, .n_dims = 2, .shape = {ROWS, COLUMNS}},
        {.name = "none", .type = "I64", .n_dims = 3, .shape = {2, 0, 3}},
        {.name = "b", .dtype = QDR_BF16, .n_dims = 1, .shape = {COLUMNS}},
        {.name = "steps", .type = "I64"},
    };
    double weights[ROWS * COLUMNS];
    uint16_t bias[COLUMNS];
    const int64_t steps = 77;
    qdr_safetensors *file;
    fill(weights, bias);
    CHECK_OK(qdr_safetensors_create(path, tensors, 4, metadata, &file));
    CHECK_OK(qdr_safetensors_write(file, 0, 20, 15, weights + 20));
    CHECK_OK(qdr_safetensors_write(file, 3, 0, 1, &steps));
    CHECK_OK(qdr_safetensors_write(file, 2, 0, COLUMNS, bias));
    CHECK_OK(qdr_safetensors_write(file, 0, 0, 20, weights));
    CHECK_OK(qdr_safetensors_close(&file));
    assert_null(file);
}

TEST_IN(what_is_written_is_read, enter, leave)
{
    double weights[ROWS * COLUMNS], read[ROWS * COLUMNS];
    uint16_t bias[COLUMNS], read_bias[COLUMNS];
    int64_t steps;
    qdr_safetensors *file;
    fill(weights, bias);
    write_sample("a.safetensors");
    CHECK_OK(qdr_safetensors_open("a.safetensors", &file));
    assert_int_equal(qdr_safetensors_count(file), 4);
    assert_string_equal(qdr_safetensors_metadata(file, "format"), "pt");
    assert_string_equal(qdr_safetensors_metadata(file, "note"), metadata[3]);
    assert_null(qdr_safetensors_metadata(file, "none"));
    int n_found = 0, n_keys = 0;
    for (const char *key = NULL; (key = qdr_safetensors_metadata_key(file, n_keys)); n_keys++)
        n_found += strcmp(key, "format") == 0 || strcmp(key, "note") == 0;
    assert_int_equal(n_keys, 4); /* and two checksums */
    assert_int_equal(n_found, 2);
    assert_null(qdr_safetensors_metadata_key(file, -1));
    assert_null(qdr_safetensors_metadata_key(NULL, 0));
    assert_string_equal(qdr_safetensors_path(file, 0), "a.safetensors");
    assert_null(qdr_safetensors_path(file, 1));
    assert_null(qdr_safetensors_path(file, -1));
    assert_null(qdr_safetensors_path(NULL, 0));
    const int w = qdr_safetensors_find(file, "block.0.\"w\""), b = qdr_safetensors_find(file, "b");
    assert_int_equal(qdr_safetensors_find(file, "c"), -1);
    const qdr_tensor *tensor = qdr_safetensors_tensor(file, w);
    assert_string_equal(tensor->type, "F64");
    assert_int_equal(tensor->dtype, QDR_F64);
    assert_int_equal(tensor->n_dims, 2);
    assert_int_equal(tensor->shape[1], COLUMNS);
    assert_int_equal(tensor->n_elems, ROWS * COLUMNS);
    CHECK_OK(qdr_safetensors_read(file, w, 3, 30, QDR_F64, read));
    assert_memory_equal(read, weights + 3, 30 * sizeof *read);
    CHECK_OK(qdr_safetensors_read(file, b, 0, COLUMNS, QDR_BF16, read_bias));
    assert_memory_equal(read_bias, bias, sizeof bias);
    CHECK_OK(qdr_safetensors_read(file, b, 1, COLUMNS - 1, QDR_F64, read));
    for (int i = 1; i < COLUMNS; i++) assert_true(read[i - 1] == i);
    CHECK_OK(qdr_safetensors_read(file, qdr_safetensors_find(file, "steps"), 0, 8, QDR_U8, &steps));
    assert_int_equal(steps, 77);
    for (int i = 0; i < 4; i++) CHECK_OK(qdr_safetensors_verify(file, i));
    CHECK_FAILS(qdr_safetensors_read(file, w, 30, 6, QDR_F64, read), QDR_ERR_ARGUMENT, "6 elements from 30");
    CHECK_FAILS(qdr_safetensors_read(file, w, -1, 1, QDR_F64, read), QDR_ERR_ARGUMENT, "1 elements from -1");
    CHECK_FAILS(qdr_safetensors_read(file, 4, 0, 1, QDR_F64, read), QDR_ERR_ARGUMENT, "tensor 4 of 4");
    CHECK_FAILS(qdr_safetensors_read(file, 3, 0, 1, QDR_F32, read), QDR_ERR_DTYPE, "is I64");
    CHECK_FAILS(qdr_safetensors_write(file, 0, 0, 1, read), QDR_ERR_STATE, "open for reading");
    CHECK_OK(qdr_safetensors_close(&file));
}

/* The bytes themselves: places, checksums of tensors and of the header. */
TEST_IN(the_format_is_kept, enter, leave)
{
    const size_t weight_bytes = sizeof(double[ROWS][COLUMNS]), bias_bytes = sizeof(uint16_t[COLUMNS]);
    size_t n;
    write_sample("a.safetensors");
    unsigned char *bytes = (unsigned char *)slurp("a.safetensors", &n);
    size_t length = 0;
    for (int i = 7; i >= 0; i--) length = length << 8 | bytes[i];
    assert_int_equal((8 + length) % 4096, 0);
    assert_int_equal(n, 8 + length + weight_bytes + bias_bytes + 8);
    char digits[64], *header = (char *)bytes + 8;
    snprintf(digits, sizeof digits, "\\\"b\\\":\\\"%08x\\\"",
             (unsigned)slow_crc(bytes + 8 + length + weight_bytes, bias_bytes));
    char *text = calloc(length + 1, 1);
    assert_non_null(text);
    memcpy(text, header, length);
    assert_non_null(strstr(text, digits));
    assert_non_null(strstr(text, "\"b\":{\"dtype\":\"BF16\",\"shape\":[7],\"data_offsets\":[280,294]}"));
    char *own = strstr(text, "\"header_crc32\":\"") + 16;
    snprintf(digits, sizeof digits, "%.8s", own);
    memcpy(own, "00000000", 8);
    assert_int_equal(slow_crc((const unsigned char *)text, length), strtoul(digits, NULL, 16));
    free(text);
    free(bytes);
}

/* Names the first damaged tensor; "header": it cannot be opened. */
static const char *damage_of(const char *path, char name[64])
{
    qdr_safetensors *file;
    name[0] = '\0';
    if (qdr_safetensors_open(path, &file) != QDR_OK) return "header";
    for (int i = 0; i < qdr_safetensors_count(file) && !*name; i++)
        if (qdr_safetensors_verify(file, i) != QDR_OK) snprintf(name, 64, "%s", qdr_safetensors_tensor(file, i)->name);
    CHECK_OK(qdr_safetensors_close(&file));
    return name;
}

static void poke(const char *path, size_t at, char byte)
{
    FILE *file = fopen(path, "r+b");
    assert_non_null(file);
    assert_int_equal(fseek(file, (long)at, SEEK_SET), 0);
    assert_int_equal(fputc((unsigned char)byte, file), (unsigned char)byte);
    assert_int_equal(fclose(file), 0);
}

TEST_IN(each_flipped_bit_is_found, enter, leave)
{
    size_t n;
    char name[64];
    write_sample("a");
    char *bytes = slurp("a", &n);
    assert_string_equal(damage_of("a", name), "");
    for (size_t i = 0; i < n; i++) {
        const char *expected = i < 4096 ? "header" : i < 4096 + 280 ? "block.0.\"w\"" : i < 4390 ? "b" : "steps";
        for (int bit = i < 1024 || i > 4000 ? 0 : 7; bit < 8; bit++) { /* of the blanks, one bit each */
            poke("a", i, (char)(bytes[i] ^ 1 << bit));
            assert_string_equal(damage_of("a", name), expected);
        }
        poke("a", i, bytes[i]);
    }
    assert_string_equal(damage_of("a", name), "");
    while (n-- > 0) {
        assert_int_equal(truncate("a", (off_t)n), 0);
        assert_string_equal(damage_of("a", name), "header");
    }
    free(bytes);
}

TEST_IN(headers_that_contradict_themselves_are_refused, enter, leave)
{
    static const struct {
        const char *header;
        size_t n_data;
        const char *says;
    } cases[] = {
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 9, "longer than it should be"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}}", 7, "truncated"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,7]}}", 7, "its shape needs 8 bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[4,12]}}", 12, "a hole"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[0,4]},"
         "\"b\":{\"dtype\":\"U8\",\"shape\":[4],\"data_offsets\":[2,6]}}",
         6, "an overlap"},
        {"{\"a\":{\"dtype\":\"F31\",\"shape\":[2],\"data_offsets\":[0,8]}}", 8, "unknown type \"F31\""},
        {"{\"a\":{\"dtype\":\"F4\",\"shape\":[3],\"data_offsets\":[0,2]}}", 2, "no whole number of bytes"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[-2],\"data_offsets\":[0,8]}}", 8, "is -2"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1.0],\"data_offsets\":[0,4]}}", 4,
         "key 'a.shape[0]' is 1.0; an integer >= 0, without a point, is needed"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4e0]}}", 4,
         "'a.data_offsets[1]' is 4.0; an integer"},
        {"{\"a\":{\"dtype\":\"F32\",\"shape\":[4294967296,4294967296],\"data_offsets\":[0,8]}}", 8, "too large"},
        {"{\"a\":{\"dtype\":\"F64\",\"shape\":[2305843009213693952],\"data_offsets\":[0,0]}}", 0,
         "too large: 2305843009213693952 elements of 64 bits"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,1]}}", 1, "8 dimensions"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0]}}", 1, "missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1,2]}}", 1, "bytes 0 to 1"},
        {"{\"a\":{\"dtype\":\"U8\",\"data_offsets\":[0,1]}}", 1, "'a.shape' is missing"},
        {"{\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         1, "this is not JSON"},
        {"{\"__metadata__\":{\"a\":1}}", 0, "a string is needed"},
        {"{\"__metadata__\":[]}", 0, "an object is needed"},
        {"{\"__metadata__\":{\"crc32\":\"{\\\"a\\\":\\\"1234567\\\"}\"},"
         "\"a\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}",
         1, "eight hexadecimal digits"},
        {"{\"__metadata__\":{\"crc32\":\"nothing\"}}", 0, "not JSON"},
        {"[1]", 0, "an object is needed"},
        {"nothing", 0, "not JSON"},
    };
    qdr_safetensors *file;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        make("a", cases[i].header, cases[i].n_data);
        CHECK_FAILS(qdr_safetensors_open("a", &file), QDR_ERR_ARGUMENT, cases[i].says);
        assert_null(file);
    }
    spill("a", "\377\377\377\377\377\377\377\377{}", 10);
    CHECK_FAILS(qdr_safetensors_open("a", &file), QDR_ERR_ARGUMENT, "not a safetensors file");
    CHECK_FAILS(qdr_safetensors_open("none", &file), QDR_ERR_IO, "none cannot be opened (No such file");
    CHECK_FAILS(qdr_safetensors_open("/dev", &file), QDR_ERR_ARGUMENT, "is a folder without a file NAME.safetensors");
    CHECK_FAILS(qdr_safetensors_open(NULL, &file), QDR_ERR_ARGUMENT, "path is NULL");
    make("a", "{\"__metadata__\":{\"crc32\":\"{}\"}}", 0);
    CHECK_FAILS(qdr_safetensors_open("a", &file), QDR_ERR_IO, "its checksum, header_crc32, is missing");
    make("a", "{\"__metadata__\":{\"header_crc32\":\"0000000g\"}}", 0);
    CHECK_FAILS(qdr_safetensors_open("a", &file), QDR_ERR_IO, "its checksum, header_crc32, is missing");
    make("a", "{\"a\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]}}   ", 3); /* without checksums */
    CHECK_OK(qdr_safetensors_open("a", &file));
    CHECK_FAILS(qdr_safetensors_verify(file, 0), QDR_ERR_UNSUPPORTED, "no checksum of tensor a");
    CHECK_OK(qdr_safetensors_close(&file));
}

/* ---- types ---- */

/* The number of two neighbours of the narrow type that is nearest, ties to the even one. */
static uint16_t nearest(qdr_dtype type, double x)
{
    uint16_t guess = qdri_narrow_round(type, (float)x), best = guess;
    for (int step = -1; step <= 1; step++) {
        const uint16_t other = (uint16_t)(guess + step);
        const double a = fabs((double)qdri_narrow_load(type, other) - x);
        const double b = fabs((double)qdri_narrow_load(type, best) - x);
        if (a < b || (a == b && other % 2 == 0)) best = other;
    }
    return best;
}

TEST_IN(numbers_are_rounded_once, enter, leave)
{
    enum { N = 4000 };
    static const qdr_dtype types[] = {QDR_BF16, QDR_F16};
    static double x[N];
    static uint16_t y[N];
    uint64_t seed = test_seed();
    qdr_safetensors *file;
    for (int i = 0; i < N; i++) { /* many at, or a hair beside, the middle of two numbers */
        const double mantissa = 1 + (double)(test_random(&seed) >> 40 & 0xfff) * 0x1p-12;
        const double hair = ((double)(test_random(&seed) >> 33 & 3) - 1) * 0x1p-45;
        x[i] = ldexp(mantissa + hair, (int)(test_random(&seed) >> 40 & 15) - 8) * (i % 2 ? -1 : 1);
    }
    CHECK_OK(qdr_safetensors_create("a", &(qdr_tensor){.name = "x", .dtype = QDR_F64, .n_dims = 1, .shape = {N}}, 1,
                                    NULL, &file));
    CHECK_OK(qdr_safetensors_write(file, 0, 0, N, x));
    CHECK_OK(qdr_safetensors_close(&file));
    CHECK_OK(qdr_safetensors_open("a", &file));
    for (int t = 0; t < 2; t++) {
        CHECK_OK(qdr_safetensors_read(file, 0, 0, N, types[t], y));
        for (int i = 0; i < N; i++) assert_int_equal(y[i], nearest(types[t], x[i]));
    }
    CHECK_OK(qdr_safetensors_close(&file));
}

/* ---- several files, and files that are not completed ---- */

static void write_one(const char *path, const char *name, unsigned char value)
{
    qdr_safetensors *file;
    CHECK_OK(qdr_safetensors_create(path, &(qdr_tensor){.name = name, .dtype = QDR_U8}, 1, NULL, &file));
    CHECK_OK(qdr_safetensors_write(file, 0, 0, 1, &value));
    CHECK_OK(qdr_safetensors_close(&file));
}

TEST_IN(an_index_names_several_files, enter, leave)
{
    static const char index[] = "{\"metadata\":{\"total_size\":2},\"weight_map\":{\"b\":\"2.st\",\"a\":\"1.st\"}}";
    unsigned char value;
    qdr_safetensors *file;
    write_one("1.st", "a", 10);
    write_one("2.st", "b", 20);
    spill("x.index.json", index, sizeof index - 1);
    CHECK_OK(qdr_safetensors_open("x.index.json", &file));
    assert_int_equal(qdr_safetensors_count(file), 2);
    const char *first = qdr_safetensors_path(file, 0), *second = qdr_safetensors_path(file, 1);
    assert_true((strcmp(first, "1.st") == 0 && strcmp(second, "2.st") == 0) ||
                (strcmp(first, "2.st") == 0 && strcmp(second, "1.st") == 0));
    assert_non_null(qdr_safetensors_metadata_key(file, 1)); /* both have the same keys */
    assert_null(qdr_safetensors_metadata_key(file, 2));
    CHECK_OK(qdr_safetensors_read(file, qdr_safetensors_find(file, "b"), 0, 1, QDR_U8, &value));
    assert_int_equal(value, 20);
    CHECK_OK(qdr_safetensors_verify(file, qdr_safetensors_find(file, "a")));
    CHECK_OK(qdr_safetensors_close(&file));
    write_one("2.st", "c", 20);
    CHECK_FAILS(qdr_safetensors_open("x.index.json", &file), QDR_ERR_ARGUMENT, "tensor b should be in 2.st");
    spill("x.index.json", "{\"weight_map\":{\"b\":\"../2.st\"}}", 30);
    CHECK_FAILS(qdr_safetensors_open("x.index.json", &file), QDR_ERR_ARGUMENT, "in the folder of the index");
    spill("x.index.json", "{}", 2);
    CHECK_FAILS(qdr_safetensors_open("x.index.json", &file), QDR_ERR_ARGUMENT, "is no index of safetensors");
}

/* The first file that has a key says what it means; keys come in the order of the files. */
TEST_IN(metadata_of_several_files, enter, leave)
{
    static const char index[] = "{\"weight_map\":{\"a\":\"1.st\",\"b\":\"2.st\",\"c\":\"3.st\"}}";
    static const char *const pairs[3][5] = {{"x", "1"}, {"x", "2", "y", "2"}, {"z", "3", "y", "3"}};
    static const char *const wanted[][2] = {{"x", "1"}, {"y", "2"}, {"z", "3"}};
    static const char *const names[] = {"a", "b", "c"}, *const paths[] = {"1.st", "2.st", "3.st"};
    const unsigned char value = 1;
    qdr_safetensors *file;
    for (int i = 0; i < 3; i++) {
        CHECK_OK(
            qdr_safetensors_create(paths[i], &(qdr_tensor){.name = names[i], .dtype = QDR_U8}, 1, pairs[i], &file));
        CHECK_OK(qdr_safetensors_write(file, 0, 0, 1, &value));
        CHECK_OK(qdr_safetensors_close(&file));
    }
    spill("x.index.json", index, sizeof index - 1);
    CHECK_OK(qdr_safetensors_open("x.index.json", &file));
    for (int i = 0; i < 3; i++) assert_string_equal(qdr_safetensors_metadata(file, wanted[i][0]), wanted[i][1]);
    int n_keys = 0, next = 0;
    for (const char *key = NULL; (key = qdr_safetensors_metadata_key(file, n_keys)); n_keys++)
        if (next < 3 && strcmp(key, wanted[next][0]) == 0) next++;
    assert_int_equal(next, 3);
    assert_int_equal(n_keys, 5); /* and two checksums */
    CHECK_OK(qdr_safetensors_close(&file));
}

TEST_IN(an_incomplete_file_leaves_the_old_one, enter, leave)
{
    const qdr_tensor two[] = {{.name = "a", .dtype = QDR_U8, .n_dims = 1, .shape = {3}}, {.name = "b", .type = "U8"}};
    const qdr_tensor twice[] = {two[0], two[0]};
    unsigned char bytes[3] = {1, 2, 3};
    qdr_safetensors *file;
    char name[64];
    write_one("a", "old", 1);
    CHECK_OK(qdr_safetensors_create("a", two, 2, NULL, &file));
    CHECK_FAILS(qdr_safetensors_read(file, 0, 0, 1, QDR_U8, bytes), QDR_ERR_STATE, "is being written");
    CHECK_FAILS(qdr_safetensors_write(file, 0, 2, 2, bytes), QDR_ERR_ARGUMENT, "2 elements from 2");
    CHECK_OK(qdr_safetensors_write(file, 0, 0, 2, bytes));
    CHECK_FAILS(qdr_safetensors_close(&file), QDR_ERR_STATE, "of the 3 bytes of tensor a, 2 were written");
    CHECK_OK(qdr_safetensors_create("a", two, 2, NULL, &file));
    qdr_safetensors_discard(&file);
    assert_null(file);
    CHECK_OK(qdr_safetensors_open("a", &file));
    assert_int_equal(qdr_safetensors_find(file, "old"), 0);
    CHECK_OK(qdr_safetensors_close(&file));
    assert_string_equal(damage_of("a", name), "");
    CHECK_FAILS(qdr_safetensors_create("a", twice, 2, NULL, &file), QDR_ERR_ARGUMENT, "two tensors have the name a");
    CHECK_FAILS(qdr_safetensors_create("a", &(qdr_tensor){.type = "U8"}, 1, NULL, &file), QDR_ERR_ARGUMENT, "no name");
    for (int dtype = -1; dtype < 100; dtype += 100)
        CHECK_FAILS(qdr_safetensors_create("a", &(qdr_tensor){.name = "x", .dtype = dtype}, 1, NULL, &file),
                    QDR_ERR_ARGUMENT, dtype < 0 ? "a: tensor x has no type, and its dtype -1" : "its dtype 99 is none");
    CHECK_FAILS(qdr_safetensors_create("a", &(qdr_tensor){.name = "\377", .type = "U8"}, 1, NULL, &file),
                QDR_ERR_ARGUMENT, "UTF-8");
    CHECK_FAILS(qdr_safetensors_create("a", two, 2, (const char *const[]){"crc32", "", NULL}, &file), QDR_ERR_ARGUMENT,
                "checksums are added");
    CHECK_FAILS(qdr_safetensors_create("/dev/null", two, 2, NULL, &file), QDR_ERR_ARGUMENT, "no regular file");
}

/* ---- each element once ---- */

/* Against one mark for each byte. */
TEST(spans_are_what_was_written)
{
    enum { MOST = 200 };
    uint64_t seed = test_seed();
    for (int trial = 0; trial < 500; trial++) {
        char marks[MOST + 1] = {0};
        qdri_spans spans = {0};
        const uint64_t longest = 1 + test_random(&seed) % 20;
        for (int i = 0; i < 300; i++) {
            const int64_t begin = (int64_t)(test_random(&seed) % MOST);
            int64_t end = begin + (int64_t)(test_random(&seed) % longest);
            int expected = 0, overlaps = -1;
            if (end > MOST) end = MOST;
            for (int64_t byte = begin; byte < end; byte++) expected |= marks[byte];
            CHECK_OK(qdri_spans_add(&spans, begin, end, &overlaps));
            assert_int_equal(overlaps, expected);
            if (!expected) memset(marks + begin, 1, (size_t)(end - begin));
        }
        int n_runs = 0;
        for (int byte = 0; byte < MOST; byte++) n_runs += marks[byte] && (byte == 0 || !marks[byte - 1]);
        assert_int_equal(spans.n_before + spans.n_after, n_runs);
        qdri_spans_free(&spans);
    }
}

/* Runs that follow each other are one, and two passes over a million places move little memory. */
TEST(spans_are_cheap)
{
    enum { N = 1 << 20 };
    qdri_spans spans = {0};
    int overlaps;
    for (int64_t i = 0; i < N; i++) CHECK_OK(qdri_spans_add(&spans, i, i + 1, &overlaps));
    for (int64_t i = 2 * N; i-- > N + 1;) CHECK_OK(qdri_spans_add(&spans, i, i + 1, &overlaps));
    assert_int_equal(spans.n_before + spans.n_after, 2);
    assert_int_equal(spans.capacity, 16);
    qdri_spans_free(&spans);
    for (int pass = 0; pass < 2; pass++)
        for (int64_t i = pass; i < N; i += 2) CHECK_OK(qdri_spans_add(&spans, i, i + 1, &overlaps));
    assert_int_equal(spans.n_before + spans.n_after, 1);
    qdri_spans_free(&spans);
}

TEST_IN(elements_are_written_once, enter, leave)
{
    const qdr_tensor ten = {.name = "a", .dtype = QDR_U8, .n_dims = 1, .shape = {10}};
    const unsigned char bytes[10] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9}, others[10] = {0};
    unsigned char found[10];
    qdr_safetensors *file;
    CHECK_OK(qdr_safetensors_create("a", &ten, 1, NULL, &file));
    CHECK_OK(qdr_safetensors_write(file, 0, 0, 5, bytes));
    CHECK_FAILS(qdr_safetensors_write(file, 0, 0, 5, others), QDR_ERR_ARGUMENT, "tensor a were written before");
    CHECK_FAILS(qdr_safetensors_write(file, 0, 4, 6, others), QDR_ERR_ARGUMENT, "some of 6 elements from 4");
    CHECK_FAILS(qdr_safetensors_finish(file), QDR_ERR_STATE, "of the 10 bytes of tensor a, 5 were written");
    CHECK_OK(qdr_safetensors_write(file, 0, 7, 3, bytes + 7));
    CHECK_FAILS(qdr_safetensors_write(file, 0, 6, 2, others), QDR_ERR_ARGUMENT, "written before");
    CHECK_OK(qdr_safetensors_write(file, 0, 3, 0, others));
    CHECK_OK(qdr_safetensors_write(file, 0, 5, 2, bytes + 5));
    CHECK_OK(qdr_safetensors_close(&file));
    CHECK_OK(qdr_safetensors_open("a", &file));
    CHECK_OK(qdr_safetensors_verify(file, 0));
    CHECK_OK(qdr_safetensors_read(file, 0, 0, 10, QDR_U8, found));
    assert_memory_equal(found, bytes, 10);
    CHECK_OK(qdr_safetensors_close(&file));
    CHECK_OK(qdr_safetensors_create("a", &ten, 1, NULL, &file));
    CHECK_OK(qdr_safetensors_write(file, 0, 0, 5, bytes));
    CHECK_FAILS(qdr_safetensors_write(file, 0, 0, 5, bytes), QDR_ERR_ARGUMENT, "written before");
    CHECK_FAILS(qdr_safetensors_close(&file), QDR_ERR_STATE, "of the 10 bytes of tensor a, 5 were written");
}

TEST_IN(a_finished_file_has_its_name_later, enter, leave)
{
    const qdr_tensor one = {.name = "new", .type = "U8"};
    const unsigned char value = 7;
    char name[64];
    qdr_safetensors *file, *old;
    write_one("a", "old", 1);
    for (int is_kept = 0; is_kept < 2; is_kept++) {
        CHECK_OK(qdr_safetensors_create("a", &one, 1, NULL, &file));
        CHECK_FAILS(qdr_safetensors_finish(file), QDR_ERR_STATE, "0 were written");
        CHECK_OK(qdr_safetensors_write(file, 0, 0, 1, &value));
        CHECK_OK(qdr_safetensors_finish(file));
        CHECK_OK(qdr_safetensors_finish(file));
        CHECK_FAILS(qdr_safetensors_write(file, 0, 0, 1, &value), QDR_ERR_STATE, "is finished");
        CHECK_FAILS(qdr_safetensors_read(file, 0, 0, 1, QDR_U8, name), QDR_ERR_STATE, "is being written");
        CHECK_OK(qdr_safetensors_open("a", &old));
        assert_int_equal(qdr_safetensors_find(old, "old"), 0);
        CHECK_FAILS(qdr_safetensors_finish(old), QDR_ERR_STATE, "open for reading");
        CHECK_OK(qdr_safetensors_close(&old));
        if (is_kept)
            CHECK_OK(qdr_safetensors_close(&file));
        else
            qdr_safetensors_discard(&file);
    }
    CHECK_OK(qdr_safetensors_open("a", &file));
    assert_int_equal(qdr_safetensors_find(file, "new"), 0);
    CHECK_OK(qdr_safetensors_close(&file));
    assert_string_equal(damage_of("a", name), "");
    CHECK_FAILS(qdr_safetensors_finish(NULL), QDR_ERR_ARGUMENT, "NULL");
}
