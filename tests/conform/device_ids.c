/* SPDX-License-Identifier: Apache-2.0 */
/* Tokens and targets outside the vocabulary fail the kernels that read them; negative ones do not. First keys that a
 * row cannot have do. */
#include "device.h"

enum { N_ROWS = 37, N_COLS = 3, VOCAB = 10, BEGIN = 4, END = 7 };

static const qdri_kernel_kind readers[] = {QDRI_K_EMBED_FORWARD, QDRI_K_EMBED_BACKWARD, QDRI_K_CE_SUMS,
                                           QDRI_K_CE_BACKWARD};
enum { N_READERS = 4 };

static int embeds(qdri_kernel_kind kind) { return kind == QDRI_K_EMBED_FORWARD || kind == QDRI_K_EMBED_BACKWARD; }

static qdri_kernel kernel_of(qdri_kernel_kind kind, qdr_dtype dtype, const int32_t *ids, int64_t vocab,
                             void *const memory[4])
{
    qdri_kernel k = {.kind = kind, .dtype = dtype};
    if (embeds(kind)) {
        k.u.embed.n_rows = N_ROWS;
        k.u.embed.n_cols = N_COLS;
        k.u.embed.begin = BEGIN;
        k.u.embed.end = END;
        k.u.embed.vocab = vocab;
        k.u.embed.tokens = ids;
        k.u.embed.e = memory[0];
        k.u.embed.y = memory[1];
        k.u.embed.dy = memory[2];
        k.u.embed.de = memory[3];
        return k;
    }
    k.u.ce.n_rows = N_ROWS;
    k.u.ce.n_cols = END - BEGIN;
    k.u.ce.begin = BEGIN;
    k.u.ce.vocab = vocab;
    k.u.ce.targets = ids;
    k.u.ce.logits = memory[0];
    k.u.ce.work = memory[1];
    k.u.ce.work2 = memory[2];
    k.u.ce.saved = memory[2];
    k.u.ce.dlogits = memory[3];
    return k;
}

/* Runs one kernel on a device of its own, which a failure poisons. */
static void run_apart(qdri_kernel_kind kind, qdr_dtype dtype, const int32_t *ids, int64_t vocab, qdr_status wanted,
                      const char *words)
{
    void *memory[4];
    for (int i = 0; i < 4; i++) memory[i] = memory_new(N_ROWS * N_COLS * sizeof(double));
    int32_t *own_ids = memory_new(N_ROWS * sizeof *ids);
    memcpy(own_ids, ids, N_ROWS * sizeof *ids);
    const qdri_kernel k = kernel_of(kind, dtype, own_ids, vocab, memory);
    (void)device_open(NULL);
    CHECK_OK(qdri_kernel_run(stream, &k));
    assert_int_equal(qdri_stream_synchronize(stream), wanted);
    if (wanted != QDR_OK) assert_non_null(strstr(qdr_last_error(), words));
    assert_int_equal(qdri_dev_status(device), wanted);
    (void)device_close(NULL);
    for (int i = 0; i < 4; i++) memory_drop(memory[i]);
    memory_drop(own_ids);
}

TEST(ids_beyond_the_vocabulary)
{
    static const int32_t wrong[] = {VOCAB, INT32_MAX};
    static const int64_t places[] = {0, 17, N_ROWS - 1};
    for (int i = 0; i < N_READERS * N_TYPES * 3 * 2; i++) {
        const qdri_kernel_kind kind = readers[i % N_READERS];
        const int64_t row = places[i / N_READERS % 3];
        const int32_t id = wrong[i / N_READERS / 3 % 2];
        const qdr_dtype dtype = float_types[i / N_READERS / 6];
        int32_t ids[N_ROWS] = {0};
        char words[100];
        ids[row] = id;
        if (row < N_ROWS - 1) ids[row + 1] = INT32_MAX; /* the first is named */
        (void)snprintf(words, sizeof words, "the %s in row %lld on this rank is %d, but the vocabulary has %d",
                       embeds(kind) ? "token" : "target", (long long)row, (int)id, VOCAB);
        run_apart(kind, dtype, ids, VOCAB, QDR_ERR_ARGUMENT, words);
        run_apart(kind, dtype, ids, 0, QDR_OK, NULL);
    }
}

TEST(negative_ids_are_none)
{
    for (int i = 0; i < N_READERS * N_TYPES; i++) {
        int32_t ids[N_ROWS] = {-1, VOCAB - 1, INT32_MIN, 0, -VOCAB};
        run_apart(readers[i % N_READERS], float_types[i / N_READERS], ids, VOCAB, QDR_OK, NULL);
    }
}

static void attend_apart(qdri_kernel_kind kind, int64_t row, int32_t key, const char *words)
{
    static const int32_t valid[8] = {0, 0, 1, 3, 0, 1, 1, 1};
    enum { ROWS = 8, BYTES = 4096 };
    void *memory[7];
    for (int i = 0; i < 7; i++) memory[i] = memory_new(BYTES);
    int32_t *keys = memcpy(memory[6], valid, sizeof valid);
    keys[row] = key;
    qdri_kernel k = {.kind = kind,
                     .dtype = QDR_F32,
                     .u.attention = {.n_rows = ROWS,
                                     .context = 4,
                                     .n_heads = 1,
                                     .n_kv_heads = 1,
                                     .head_size = 1,
                                     .window = 4,
                                     .scale = 1,
                                     .qkv = memory[0],
                                     .y = memory[1],
                                     .dy = memory[2],
                                     .out = memory[3],
                                     .saved = memory[4],
                                     .work = memory[5],
                                     .first_keys = keys}};
    assert_true(qdri_attention_work_bytes(&k) <= BYTES);
    (void)device_open(NULL);
    CHECK_OK(qdri_kernel_run(stream, &k));
    assert_int_equal(qdri_stream_synchronize(stream), words ? QDR_ERR_ARGUMENT : QDR_OK);
    if (words && !strstr(qdr_last_error(), words)) fail_msg("not '%s': %s", words, qdr_last_error());
    (void)device_close(NULL);
    for (int i = 0; i < 7; i++) memory_drop(memory[i]);
}

TEST(first_keys_that_a_row_cannot_have)
{
    for (int i = 0; i < 2; i++) {
        const qdri_kernel_kind kind = i ? QDRI_K_ATTENTION_BACKWARD : QDRI_K_ATTENTION_FORWARD;
        attend_apart(kind, 4, 0, NULL);
        attend_apart(kind, 4, 1, "the first key in row 4 on this rank is 1; use 0, that of the row before it in the ");
        attend_apart(kind, 6, 0, "the first key in row 6 on this rank is 0; use 1, ");
        attend_apart(kind, 6, -1, "the first key in row 6 on this rank is -1; use 1, ");
        attend_apart(kind, 6, 3, " to 2, the row's own place there");
        attend_apart(kind, 0, INT32_MIN, "the first key in row 0 ");
        attend_apart(kind, 7, INT32_MAX, "the first key in row 7 ");
    }
}

/* Before it runs: a part of the vocabulary that lies outside of it. */
TEST(parts_outside_the_vocabulary)
{
    static const int64_t wrong[] = {END - 1, 1, -1, INT64_MIN};
    const int32_t ids[N_ROWS] = {0};
    double room[N_ROWS * N_COLS] = {0};
    void *const memory[4] = {room, room, room, room};
    (void)device_open(NULL);
    for (int i = 0; i < N_READERS * 4; i++) {
        const qdri_kernel k = kernel_of(readers[i % N_READERS], QDR_F32, ids, wrong[i / N_READERS], memory);
        assert_int_equal(qdri_kernel_run(stream, &k), QDR_ERR_SHAPE);
        assert_non_null(strstr(qdr_last_error(), "vocabulary"));
    }
    assert_int_equal(qdri_dev_status(device), QDR_OK);
    (void)device_close(NULL);
}
