/* SPDX-License-Identifier: Apache-2.0 */
/* Files of tokens: each layout written here as its description says, damaged in every way; sources, mixtures, the order
 * of windows, documents. */
#include <sys/stat.h>
#include <unistd.h>

#include "qdr_test.h"
#include "quadrille/tokens.h"

enum { MOST_BYTES = 1 << 16 };

static char folder[64];

static const char *path(const char *name)
{
    static char text[4][128];
    static int next;
    char *to = text[next++ % 4];
    snprintf(to, sizeof *text, "%s/%s", folder, name);
    return to;
}

FIXTURE(make_folder)
{
    strcpy(folder, "/tmp/quadrille-tokens-XXXXXX");
    return mkdtemp(folder) ? 0 : 1;
}

FIXTURE(remove_folder)
{
    char command[128];
    snprintf(command, sizeof command, "rm -r %s", folder);
    return system(command);
}

/* ---- files ---- */

/* Bytes of a file that is being made. */
typedef struct image {
    unsigned char bytes[MOST_BYTES];
    size_t n;
} image;

static void add(image *to, int n_bytes, int64_t value) /* little-endian */
{
    assert_true(to->n + 8 <= MOST_BYTES);
    for (int i = 0; i < n_bytes; i++) to->bytes[to->n++] = (unsigned char)((uint64_t)value >> 8 * i);
}

static void save(const char *name, const void *bytes, size_t n)
{
    FILE *file = fopen(path(name), "wb");
    assert_non_null(file);
    assert_int_equal(fwrite(bytes, 1, n, file), n);
    assert_int_equal(fclose(file), 0);
}

static int32_t token(int64_t i) { return (int32_t)(i * 37 % 101); }

static void add_tokens(image *to, int n_bytes, int n)
{
    for (int i = 0; i < n; i++) add(to, n_bytes, token(i));
}

/* A header of 256 int32, and tokens. */
static void make_ints(image *file, int magic, int version, int n, int fourth, int n_bytes)
{
    file->n = 0;
    add(file, 4, magic), add(file, 4, version), add(file, 4, n), add(file, 4, fourth);
    while (file->n < 1024) add(file, 4, 0);
    add_tokens(file, n_bytes, n);
}

/* An index of sequences of 1, 2, 3 … tokens; documents of 2 sequences each. */
static void make_index(image *file, int type, int n_bytes, int n_sequences)
{
    int64_t at = 0;
    file->n = 0;
    memcpy(file->bytes, "MMIDIDX\0\0", file->n = 9);
    add(file, 8, 1), add(file, 1, type), add(file, 8, n_sequences), add(file, 8, n_sequences / 2 + 1);
    for (int i = 0; i < n_sequences; i++) add(file, 4, i + 1);
    for (int i = 0; i < n_sequences; at += ++i * n_bytes) add(file, 8, at);
    for (int i = 0; i <= n_sequences / 2; i++) add(file, 8, 2 * i);
}

static void make_npy(image *file, const char *type, int n_bytes, const char *shape, int n)
{
    char text[128];
    snprintf(text, sizeof text, "{'descr': '%s', 'fortran_order': False, 'shape': %s, }", type, shape);
    memcpy(file->bytes, "\x93NUMPY\1\0", file->n = 8);
    add(file, 2, 118);
    file->n += (size_t)snprintf((char *)file->bytes + 10, 120, "%-117s\n", text);
    add_tokens(file, n_bytes, n);
}

static image file; /* that is being made */

static void save_file(const char *name) { save(name, file.bytes, file.n); }

/* ---- opening ---- */

static qdr_tokens *tokens;

FIXTURE(close_tokens)
{
    qdr_tokens_close(&tokens);
    return 0;
}

static qdr_status open_as(const char *name, qdr_tokens_opts opts)
{
    const qdr_token_source source = {QDR_INIT(qdr_token_source), .path = path(name), .weight = 1};
    qdr_tokens_close(&tokens);
    opts.size = sizeof opts;
    if (!opts.context) opts.context = 4, opts.only_validation = 1;
    return qdr_tokens_open(&source, 1, &opts, &tokens);
}

static qdr_status open_one(const char *name, qdr_token_format format)
{
    return open_as(name, (qdr_tokens_opts){.format = format});
}

static void expect_tokens(const char *name, qdr_token_format format, int n)
{
    int32_t got[256];
    qdr_tokens_info info = {QDR_INIT(qdr_tokens_info)};
    CHECK_OK(open_one(name, format));
    CHECK_OK(qdr_tokens_get_info(tokens, &info));
    assert_int_equal(info.n_tokens, n);
    CHECK_OK(qdr_tokens_read(tokens, 0, n, got));
    for (int i = 0; i < n; i++) assert_int_equal(got[i], token(i));
    CHECK_OK(qdr_tokens_read(tokens, 7, 9, got));
    for (int i = 0; i < 9; i++) assert_int_equal(got[i], token(7 + i));
    CHECK_FAILS(qdr_tokens_read(tokens, n - 8, 9, got), QDR_ERR_ARGUMENT, "there are no");
}

/* Of every length that is not the whole; a long file may be cut at some places only. */
static void expect_cut_refused(const char *name)
{
    for (size_t n = 0; n < file.n; n += n < 64 || n > file.n - 8 ? 1 : 61) {
        save(name, file.bytes, n);
        const qdr_status status = open_one(name, QDR_TOKENS_BY_FILE);
        if (status == QDR_OK || strlen(qdr_last_error()) < 20) fail_msg("%s cut to %zu bytes", name, n);
    }
    file.bytes[file.n] = 0;
    save(name, file.bytes, file.n + 1);
    assert_int_not_equal(open_one(name, QDR_TOKENS_BY_FILE), QDR_OK);
    save_file(name);
}

TEST_IN(headers_of_256_numbers, NULL, close_tokens)
{
    static const struct {
        int magic, version, fourth, n_bytes;
    } kinds[] = {
        {20240520, 1, 0, 2}, {20240801, 7, 0, 4}, {20240801, 1, 0, 4}, {278895051, 1, 2, 2}, {278895051, 1, 4, 4}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make_ints(&file, kinds[i].magic, kinds[i].version, 200, kinds[i].fourth, kinds[i].n_bytes);
        save_file("ints");
        expect_tokens("ints", QDR_TOKENS_BY_FILE, 200);
        expect_cut_refused("ints.bin");
    }
    make_ints(&file, 20240520, 2, 200, 0, 2);
    save_file("ints");
    CHECK_FAILS(open_one("ints", QDR_TOKENS_BY_FILE), QDR_ERR_UNSUPPORTED, "version 2");
    make_ints(&file, 278895051, 1, 200, 8, 8);
    save_file("ints");
    CHECK_FAILS(open_one("ints", QDR_TOKENS_BY_FILE), QDR_ERR_UNSUPPORTED, "not known");
    make_ints(&file, 20240522, 1, 200, 0, 2);
    save_file("ints");
    CHECK_FAILS(open_one("ints", QDR_TOKENS_BY_FILE), QDR_ERR_UNSUPPORTED, "evaluation");
    make_ints(&file, 20240520, 1, -1, 0, 2);
    save_file("ints");
    CHECK_FAILS(open_one("ints", QDR_TOKENS_BY_FILE), QDR_ERR_ARGUMENT, "its -1 tokens");
}

TEST_IN(megatron, NULL, close_tokens)
{
    static const int types[][2] = {{1, 1}, {2, 1}, {3, 2}, {4, 4}, {5, 8}, {8, 2}};
    enum { N_SEQUENCES = 16, N = 136 };
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        file.n = 0;
        add_tokens(&file, types[i][1], N);
        save_file("m.bin");
        make_index(&file, types[i][0], types[i][1], N_SEQUENCES);
        save_file("m.idx");
        expect_tokens("m.bin", QDR_TOKENS_BY_FILE, N);
        CHECK_FAILS(open_one("m.idx", QDR_TOKENS_BY_FILE), QDR_ERR_ARGUMENT, "name the .bin");
        for (size_t n = 0; n < file.n; n++) {
            save("m.idx", file.bytes, n);
            if (open_one("m.bin", QDR_TOKENS_BY_FILE) == QDR_OK) fail_msg("an index cut to %zu bytes", n);
        }
    }
    for (int type = 0; type < 10; type++) {
        if (type >= 1 && type <= 5) continue;
        make_index(&file, type, 2, N_SEQUENCES);
        save_file("m.idx");
        if (type != 8) CHECK_FAILS(open_one("m.bin", QDR_TOKENS_BY_FILE), QDR_ERR_UNSUPPORTED, "elements of type");
    }
    make_index(&file, 8, 2, N_SEQUENCES);
    static const struct {
        int at, to;
        const char *says;
    } damages[] = {{34, 2, "sequence 1 of 16 begins at byte 2, but the one before it ends at 4"},
                   {34 + 3, 127, "sequence 1 of 16"},
                   {34 + 64 + 8, 4, "sequence 1 of 16 begins at byte 4"},
                   {34 + 64 + 128, 1, "bound 0 of documents"},
                   {34 + 64 + 128 + 16, 1, "bound 2 of documents"},
                   {34 + 64 + 128 + 64, 15, "bound 8 of documents"},
                   {9, 2, "version 1"},
                   {18, 15, "not 34, 12 for each of its 15"},
                   {25, 127, "sequences"}};
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++) {
        const unsigned char was = file.bytes[damages[i].at];
        file.bytes[damages[i].at] = (unsigned char)damages[i].to;
        save_file("m.idx");
        CHECK_FAILS(open_one("m.bin", QDR_TOKENS_BY_FILE), QDR_ERR_ARGUMENT, damages[i].says);
        file.bytes[damages[i].at] = was;
    }
    save_file("m.idx");
    save("m.bin", file.bytes, 270);
    CHECK_FAILS(open_one("m.bin", QDR_TOKENS_BY_FILE), QDR_ERR_ARGUMENT, "m.bin has 270 bytes, but its .idx says 272");
    unlink(path("m.idx"));
    CHECK_FAILS(open_one("m.bin", QDR_TOKENS_BY_FILE), QDR_ERR_ARGUMENT, "is an index of Megatron");
}

TEST_IN(numpy, NULL, close_tokens)
{
    static const struct {
        const char *type;
        int n_bytes;
    } kinds[] = {{"|u1", 1}, {"|i1", 1}, {"<u2", 2}, {"<i2", 2}, {"<u4", 4}, {"<i4", 4}, {"<u8", 8}, {"<i8", 8}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        make_npy(&file, kinds[i].type, kinds[i].n_bytes, i % 2 ? "(120,)" : "(12, 10)", 120);
        save_file("a.npy");
        expect_tokens("a.npy", QDR_TOKENS_BY_FILE, 120);
        expect_cut_refused("a.npy");
    }
    for (const char *const *other = (const char *const[]){"<f4", ">u2", "|b1", "|S2", "<u16", "", "<", NULL}; *other;
         other++) {
        make_npy(&file, *other, 2, "(120,)", 120);
        save_file("a.npy");
        CHECK_FAILS(open_one("a.npy", QDR_TOKENS_BY_FILE), QDR_ERR_UNSUPPORTED, "little-endian integers");
    }
}

TEST_IN(raw_tokens_are_asked_for, NULL, close_tokens)
{
    static const struct {
        qdr_token_format format;
        int n_bytes;
    } kinds[] = {{QDR_TOKENS_UINT16, 2}, {QDR_TOKENS_UINT32, 4}, {QDR_TOKENS_INT32, 4}, {QDR_TOKENS_TEXT, 1}};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        file.n = 0;
        add_tokens(&file, kinds[i].n_bytes, 100);
        save_file("raw");
        expect_tokens("raw", kinds[i].format, 100);
        save("raw", file.bytes, file.n - 1);
        if (kinds[i].n_bytes > 1)
            CHECK_FAILS(open_one("raw", kinds[i].format), QDR_ERR_ARGUMENT, "no whole number of tokens");
    }
    static const unsigned char bytes[] = {0x01, 0xff, 0x02, 0x00, 0xff, 0xff, 0xff, 0xff};
    save("raw", bytes, sizeof bytes);
    CHECK_FAILS(open_one("raw", QDR_TOKENS_BY_FILE), QDR_ERR_ARGUMENT,
                "begins as uint16 65281 2 65535 65535, or as uint32 196353 4294967295, or as int32 196353 -1; ");
    save("raw", "a\0b\0c\0d\0", 8);
    CHECK_FAILS(open_one("raw", QDR_TOKENS_BY_FILE), QDR_ERR_ARGUMENT, "as uint16 97 98 99 100, or");
    CHECK_OK(open_one("raw", QDR_TOKENS_OR_TEXT));
    save("raw.npy", "abcdefgh", 8);
    CHECK_FAILS(open_one("raw.npy", QDR_TOKENS_BY_FILE), QDR_ERR_ARGUMENT, "begins as uint16 25185 ");
    save("raw", "PAR1\0abcdefgh", 13);
    CHECK_FAILS(open_one("raw", QDR_TOKENS_BY_FILE), QDR_ERR_UNSUPPORTED, "Parquet");
    save("raw", "ARROW1\0\0abcde", 13);
    CHECK_FAILS(open_one("raw", QDR_TOKENS_BY_FILE), QDR_ERR_UNSUPPORTED, "Arrow");
}

TEST_IN(tokens_out_of_range, NULL, close_tokens)
{
    int32_t got[100];
    file.n = 0;
    for (int i = 0; i < 100; i++) add(&file, 4, i == 57 ? 300 : i == 77 ? -5 : 7);
    save_file("raw");
    CHECK_OK(open_as("raw", (qdr_tokens_opts){.format = QDR_TOKENS_INT32, .vocab = 300}));
    CHECK_OK(qdr_tokens_read(tokens, 0, 57, got));
    CHECK_FAILS(qdr_tokens_read(tokens, 50, 10, got), QDR_ERR_ARGUMENT,
                "raw: token 57 is 300, but tokens are from 0 to 299");
    CHECK_FAILS(qdr_tokens_read(tokens, 58, 42, got), QDR_ERR_ARGUMENT, "raw: token 77 is -5");
    CHECK_OK(open_as("raw", (qdr_tokens_opts){.format = QDR_TOKENS_UINT32}));
    CHECK_OK(qdr_tokens_read(tokens, 0, 77, got));
    CHECK_FAILS(qdr_tokens_read(tokens, 0, 78, got), QDR_ERR_ARGUMENT, "token 77 is 4294967291");
}

TEST_IN(files_that_change, NULL, close_tokens)
{
    int32_t got[100];
    save("text", "0123456789abcdefghij", 20);
    CHECK_OK(open_one("text", QDR_TOKENS_BY_FILE));
    save("text", "0123456789abcdefghi", 19);
    CHECK_FAILS(qdr_tokens_read(tokens, 0, 5, got), QDR_ERR_ARGUMENT, "had 20 bytes, and now has 19");
    unlink(path("text"));
    CHECK_FAILS(qdr_tokens_read(tokens, 0, 5, got), QDR_ERR_IO, "No such file");
}

TEST_IN(what_is_no_file, NULL, close_tokens)
{
    CHECK_FAILS(open_one("", QDR_TOKENS_BY_FILE), QDR_ERR_ARGUMENT, "is a folder");
    CHECK_FAILS(open_one("absent", QDR_TOKENS_BY_FILE), QDR_ERR_IO, "No such file");
    assert_int_equal(mkfifo(path("fifo"), 0600), 0);
    CHECK_FAILS(open_one("fifo", QDR_TOKENS_TEXT), QDR_ERR_ARGUMENT, "which cannot be read twice");
    save("empty", "", 0);
    CHECK_FAILS(open_one("empty", QDR_TOKENS_UINT16), QDR_ERR_ARGUMENT, "is empty");
}

/* ---- order ---- */

enum { CONTEXT = 8, N_ROWS = 64 * CONTEXT };
static int32_t read_rows[N_ROWS], target_rows[N_ROWS], key_rows[N_ROWS];
static const qdr_token_rows rows = {QDR_INIT(qdr_token_rows), read_rows, target_rows, key_rows};

/* Token i of a source is i + 100000·source. */
static void save_counting(const char *name, int from, int n)
{
    file.n = 0;
    for (int i = 0; i < n; i++) add(&file, 4, from + i);
    save_file(name);
}

static qdr_status open_mixture(const char *const names[], const double weights[], int n, qdr_tokens_opts opts)
{
    qdr_token_source sources[4];
    char paths[4][128];
    for (int i = 0; i < n; i++) {
        snprintf(paths[i], sizeof paths[i], "%s/%s", folder, names[i]);
        sources[i] = (qdr_token_source){QDR_INIT(qdr_token_source), .path = paths[i], .weight = weights[i]};
    }
    qdr_tokens_close(&tokens);
    opts.size = sizeof opts, opts.context = CONTEXT;
    if (!opts.format) opts.format = QDR_TOKENS_UINT32;
    return qdr_tokens_open(sources, n, &opts, &tokens);
}

/* Each pass reads every window of the training part once; targets follow what is read. */
TEST_IN(a_pass_reads_every_window_once, NULL, close_tokens)
{
    qdr_tokens_info info = {QDR_INIT(qdr_tokens_info)};
    save_counting("count", 0, 1003);
    CHECK_OK(open_mixture((const char *[]){"count"}, (double[]){1}, 1, (qdr_tokens_opts){.seed = 3}));
    CHECK_OK(qdr_tokens_get_info(tokens, &info));
    assert_int_equal(info.n_train, 903);
    assert_int_equal(info.n_windows, (903 - CONTEXT) / CONTEXT);
    for (int64_t pass = 0; pass < 5; pass++) {
        char is_used[903] = {0};
        for (int64_t k = 0; k < info.n_windows; k++) {
            CHECK_OK(qdr_tokens_train(tokens, pass * info.n_windows + k, 1, &rows));
            for (int i = 0; i < CONTEXT; i++) {
                assert_true(read_rows[i] >= 0 && read_rows[i] < 902 && !is_used[read_rows[i]]++);
                assert_int_equal(target_rows[i], read_rows[i] + 1);
                assert_int_equal(key_rows[i], 0);
            }
        }
    }
}

/* Passes and seeds have orders of their own, and all first tokens that leave room for as many windows occur. */
TEST_IN(each_pass_has_its_order, NULL, close_tokens)
{
    enum { N = 1000, N_TRAIN = 900, N_WINDOWS = (N_TRAIN - CONTEXT) / CONTEXT, N_PASSES = 200 };
    static int32_t places[2][N_PASSES][N_WINDOWS];
    int is_used[CONTEXT] = {0}, n_same = 0, n_of_seed = 0;
    save_counting("count", 0, N);
    for (int seed = 0; seed < 2; seed++) {
        CHECK_OK(open_mixture((const char *[]){"count"}, (double[]){1}, 1, (qdr_tokens_opts){.seed = seed}));
        for (int k = 0; k < N_PASSES * N_WINDOWS; k++) {
            CHECK_OK(qdr_tokens_train(tokens, k, 1, &rows));
            places[seed][k / N_WINDOWS][k % N_WINDOWS] = read_rows[0];
        }
    }
    for (int pass = 0; pass < N_PASSES; pass++) {
        for (int k = 0; k < N_WINDOWS; k++) {
            const int window = places[0][pass][k] / CONTEXT;
            n_same += pass && window == places[0][pass - 1][k] / CONTEXT;
            n_of_seed += window == places[1][pass][k] / CONTEXT;
        }
        is_used[places[0][pass][0] % CONTEXT] = 1;
    }
    for (int i = 0; i < CONTEXT; i++) assert_true(is_used[i]);
    /* By chance one of N_WINDOWS is the same. */
    assert_in_range(n_same, N_PASSES / 2, 2 * N_PASSES);
    assert_in_range(n_of_seed, N_PASSES / 2, 2 * N_PASSES);
}

/* A sequence is the same, however many are read at once and in whatever order, and however many files a source has. */
TEST_IN(a_sequence_depends_on_its_number_alone, NULL, close_tokens)
{
    static int32_t one[N_ROWS], two[N_ROWS];
    const double weights[] = {3, 1};
    save_counting("count", 0, 1000);
    save_counting("other", 100000, 500);
    CHECK_OK(open_mixture((const char *[]){"count", "other"}, weights, 2, (qdr_tokens_opts){.seed = 5}));
    CHECK_OK(qdr_tokens_train(tokens, 70, 64, &rows));
    memcpy(one, read_rows, sizeof one);
    save_counting("part-0", 0, 333);
    save_counting("part-1", 333, 1);
    save_counting("part-2", 334, 666);
    CHECK_OK(open_mixture((const char *[]){"part-?", "other"}, weights, 2, (qdr_tokens_opts){.seed = 5}));
    for (int64_t k = 63; k >= 0; k--) {
        CHECK_OK(qdr_tokens_train(tokens, 70 + k, 1, &rows));
        memcpy(two + k * CONTEXT, read_rows, CONTEXT * sizeof *two);
    }
    assert_memory_equal(one, two, sizeof one);
    CHECK_OK(open_mixture((const char *[]){"part-?", "other"}, weights, 2, (qdr_tokens_opts){.seed = 6}));
    CHECK_OK(qdr_tokens_train(tokens, 70, 64, &rows));
    assert_memory_not_equal(one, read_rows, sizeof one);
}

/* After any number of sequences each source has its share, less than one for each source away. */
TEST_IN(sources_have_their_shares, NULL, close_tokens)
{
    uint64_t seed = test_seed();
    const char *const names[] = {"0", "1", "2", "3"};
    for (int s = 0; s < 4; s++) save_counting(names[s], 100000 * s, 100 * (s + 1));
    for (int trial = 0; trial < 20; trial++) {
        double weights[4], sum = 0;
        int64_t n[4] = {0};
        for (int s = 0; s < 4; s++) sum += weights[s] = (double)test_between(&seed, 1, trial < 10 ? 5 : 1000);
        CHECK_OK(open_mixture(names, weights, 4, (qdr_tokens_opts){.seed = trial}));
        for (int64_t k = 0; k < 2000; k++) {
            CHECK_OK(qdr_tokens_train(tokens, k, 1, &rows));
            n[read_rows[0] / 100000]++;
            for (int s = 0; s < 4; s++) {
                const double off = (double)n[s] - (double)(k + 1) * weights[s] / sum;
                assert_true(off > -4 && off < 4);
            }
        }
    }
}

TEST_IN(bad_mixtures, NULL, close_tokens)
{
    const char *const names[] = {"count", "other"};
    static const double bad[] = {0, -1, 0.0 / 0.0, 1.0 / 0.0, 1e-9};
    save_counting("count", 0, 1000);
    save_counting("other", 0, 89);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        for (int at = 0; at < 2; at++) {
            const double weights[] = {at ? 1 : bad[i], at ? bad[i] : 1};
            CHECK_FAILS(open_mixture((const char *[]){"count", "part-0"}, weights, 2, (qdr_tokens_opts){0}),
                        QDR_ERR_ARGUMENT, at ? "part-0 has weight" : "count has weight");
        }
    CHECK_FAILS(open_mixture(names, (double[]){1, 1}, 2, (qdr_tokens_opts){0}), QDR_ERR_ARGUMENT,
                "other has 89 tokens, but 90 are needed, ten times");
    CHECK_FAILS(open_mixture((const char *[]){"count", "c*"}, (double[]){1, 1}, 2, (qdr_tokens_opts){0}),
                QDR_ERR_ARGUMENT, "count is named twice");
    CHECK_FAILS(open_mixture(names, (double[]){1, 1}, 1, (qdr_tokens_opts){.documents = QDR_DOCUMENTS_INDEX}),
                QDR_ERR_ARGUMENT, ".idx that says where documents end");
    CHECK_FAILS(open_mixture(names, (double[]){1, 1}, 1,
                             (qdr_tokens_opts){.documents = QDR_DOCUMENTS_TOKEN, .vocab = 9, .document_token = 9}),
                QDR_ERR_ARGUMENT, "token 9");
    CHECK_FAILS(open_mixture(names, (double[]){1}, 1, (qdr_tokens_opts){.vocab = -1}), QDR_ERR_ARGUMENT, "range");
    CHECK_FAILS(open_mixture((const char *[]){"no*ne"}, (double[]){1}, 1, (qdr_tokens_opts){0}), QDR_ERR_IO, "no*ne");
}

/* ---- validation ---- */

TEST_IN(validation_reads_the_last_tenths, NULL, close_tokens)
{
    qdr_tokens_info info = {QDR_INIT(qdr_tokens_info)};
    save_counting("count", 0, 1003);
    save_counting("other", 100000, 555);
    CHECK_OK(open_mixture((const char *[]){"count", "other"}, (double[]){1, 1}, 2, (qdr_tokens_opts){0}));
    CHECK_OK(qdr_tokens_get_info(tokens, &info));
    assert_int_equal(info.n_validation, (100 - 1) / CONTEXT + (55 - 1) / CONTEXT);
    assert_int_equal(info.n_evaluation, (99 + 7) / CONTEXT + (54 + 7) / CONTEXT);
    for (int64_t n = 1; n <= info.n_validation + 3; n++) {
        int32_t before = -1;
        CHECK_OK(qdr_tokens_validate(tokens, 0, n + 1, n, &rows));
        for (int64_t i = 0; i < n; i++) {
            const int32_t at = read_rows[i * CONTEXT];
            assert_true(at > before);
            assert_true((at >= 903 && at + CONTEXT < 1003) || (at >= 100500 && at + CONTEXT < 100555));
            before = at;
            for (int64_t j = 0; j < CONTEXT; j++) assert_int_equal(target_rows[i * CONTEXT + j], at + j + 1);
        }
        for (int64_t j = n * CONTEXT; j < (n + 1) * CONTEXT; j++)
            assert_true(read_rows[j] == 0 && target_rows[j] == -1);
    }
    int64_t n_targets = 0, next = 904; /* every token of both parts but the first */
    CHECK_OK(qdr_tokens_validate(tokens, 0, info.n_evaluation + 1, 0, &rows));
    for (int64_t j = 0; j < (info.n_evaluation + 1) * CONTEXT; j++) {
        if (target_rows[j] < 0) continue;
        assert_int_equal(target_rows[j], next);
        next = next == 1002 ? 100501 : next + 1;
        n_targets++;
    }
    assert_int_equal(n_targets, 99 + 54);
}

/* ---- documents ---- */

/* The rows of a window by a plain rule: tokens[i] is of document document[i]. */
static void expect_documents(const int *document, int64_t first)
{
    for (int64_t row = 0, key = 0; row < CONTEXT; row++) {
        if (row && document[first + row] != document[first + row - 1]) key = row;
        assert_int_equal(key_rows[row], key);
        const int ends = document[first + row + 1] != document[first + row];
        assert_int_equal(target_rows[row], ends ? -1 : read_rows[row] + 1);
    }
}

TEST_IN(documents_of_an_index, NULL, close_tokens)
{
    enum { N_SEQUENCES = 40, N_EACH = N_SEQUENCES * (N_SEQUENCES + 1) / 2, N = 2 * N_EACH };
    static int document[N];
    for (int part = 0, at = 0; part < 2; part++) {
        save_counting(part ? "i1.bin" : "i0.bin", at, N_EACH);
        make_index(&file, 4, 4, N_SEQUENCES);
        save_file(part ? "i1.idx" : "i0.idx");
        for (int s = 0; s < N_SEQUENCES; s++)
            for (int i = 0; i <= s; i++) document[at++] = 100 * part + s / 2;
    }
    const qdr_token_source source = {QDR_INIT(qdr_token_source), .path = path("i?.bin"), .weight = 1};
    const qdr_tokens_opts opts = {QDR_INIT(qdr_tokens_opts), .context = CONTEXT, .documents = QDR_DOCUMENTS_INDEX};
    CHECK_OK(qdr_tokens_open(&source, 1, &opts, &tokens));
    for (int64_t k = 0; k < 400; k++) {
        CHECK_OK(qdr_tokens_train(tokens, k, 1, &rows));
        expect_documents(document, read_rows[0]);
    }
}

TEST_IN(documents_of_a_token, NULL, close_tokens)
{
    enum { N = 600, END = 5 };
    static int document[N];
    char text[N];
    uint64_t seed = test_seed();
    for (int i = 0; i < N; i++) text[i] = (char)(test_between(&seed, 0, 5) ? 6 : END);
    for (int i = 1; i < N; i++) document[i] = document[i - 1] + (text[i - 1] == END || i == 200);
    save("d0", text, 200);
    save("d1", text + 200, N - 200);
    CHECK_OK(open_mixture(
        (const char *[]){"d?"}, (double[]){1}, 1,
        (qdr_tokens_opts){
            .format = QDR_TOKENS_TEXT, .documents = QDR_DOCUMENTS_TOKEN, .document_token = END, .only_validation = 1}));
    for (int64_t k = 0; k * CONTEXT < N; k++) {
        CHECK_OK(qdr_tokens_validate(tokens, k, 1, 0, &rows));
        for (int64_t i = 0, key = 0; i < CONTEXT && k * CONTEXT + i < N; i++) {
            const int64_t at = k * CONTEXT + i;
            if (i && document[at] != document[at - 1]) key = i;
            assert_int_equal(key_rows[i], key);
            const int has_next = at + 1 < N && document[at + 1] == document[at];
            assert_int_equal(target_rows[i], has_next ? text[at + 1] : -1);
        }
    }
}

TEST_IN(bytes_in_memory, NULL, close_tokens)
{
    char text[300];
    for (int i = 0; i < 300; i++) text[i] = (char)(i % 256);
    const qdr_token_source source = {QDR_INIT(qdr_token_source), "a text", 1, text, sizeof text};
    const qdr_tokens_opts opts = {QDR_INIT(qdr_tokens_opts), .context = CONTEXT};
    CHECK_OK(qdr_tokens_open(&source, 1, &opts, &tokens));
    CHECK_OK(qdr_tokens_read(tokens, 0, 300, read_rows));
    for (int i = 0; i < 300; i++) assert_int_equal(read_rows[i], i % 256);
}

int main(void) { return run_all_tests(make_folder, remove_folder); }
