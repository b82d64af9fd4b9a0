/* SPDX-License-Identifier: Apache-2.0 */
/* Operands of kernels: each pointer of a task gets where lib/core/kernel_list.h says, and nothing else changes; and how
 * many elements it must have there. That kernels use as many: tests/fake_cuda/test_accesses.c. */
#include "core/operands.h"

#include "qdr_test.h"

enum { MOST_READS = 10, MOST_WRITES = 6 };

/* What a kernel reads and what it writes, in the order of a task's operands. */
static const struct {
    qdri_kernel_kind kind;
    size_t reads[MOST_READS], writes[MOST_WRITES];
} wanted[] = {
#define AT(member) offsetof(qdri_kernel, u.member)
    {QDRI_K_ADD, {AT(binary.a), AT(binary.b)}, {AT(binary.y)}},
    {QDRI_K_SUM_PARTS, {AT(parts.x)}, {AT(parts.y)}},
    {QDRI_K_CAST, {AT(binary.a)}, {AT(binary.y)}},
    {QDRI_K_BIAS_ADD, {AT(rows.p)}, {AT(rows.y)}},
    {QDRI_K_COLUMN_SUM, {AT(rows.x)}, {AT(rows.p)}},
    {QDRI_K_ACTIVATION_FORWARD, {AT(activation.x)}, {AT(activation.y)}},
    {QDRI_K_ACTIVATION_BACKWARD, {AT(activation.dy), AT(activation.x)}, {AT(activation.dx)}},
    {QDRI_K_NORM_MOMENTS, {AT(norm.x)}, {AT(norm.work)}},
    {QDRI_K_NORM_MERGE, {AT(norm.work)}, {AT(norm.stats)}},
    {QDRI_K_NORM_APPLY, {AT(norm.x), AT(norm.stats), AT(norm.gamma), AT(norm.beta)}, {AT(norm.y)}},
    {QDRI_K_NORM_SUMS,
     {AT(norm.dy), AT(norm.x), AT(norm.stats), AT(norm.gamma)},
     {AT(norm.work), AT(norm.dgamma), AT(norm.dbeta)}},
    {QDRI_K_NORM_BACKWARD, {AT(norm.dy), AT(norm.x), AT(norm.stats), AT(norm.gamma), AT(norm.work)}, {AT(norm.dx)}},
    {QDRI_K_ATTENTION_FORWARD,
     {AT(attention.qkv), AT(attention.rotation), AT(attention.q_gamma), AT(attention.k_gamma), AT(attention.sinks),
      AT(attention.first_keys)},
     {AT(attention.out), AT(attention.saved), AT(attention.work)}},
    {QDRI_K_ATTENTION_BACKWARD,
     {AT(attention.dy), AT(attention.qkv), AT(attention.y), AT(attention.saved), AT(attention.rotation),
      AT(attention.q_gamma), AT(attention.k_gamma), AT(attention.sinks), AT(attention.first_keys)},
     {AT(attention.out), AT(attention.work), AT(attention.d_q_gamma), AT(attention.d_k_gamma), AT(attention.d_sinks)}},
    {QDRI_K_EMBED_FORWARD, {AT(embed.tokens), AT(embed.e)}, {AT(embed.y)}},
    {QDRI_K_EMBED_BACKWARD, {AT(embed.tokens), AT(embed.dy)}, {AT(embed.de)}},
    {QDRI_K_POSITION_ADD, {AT(rows.p)}, {AT(rows.y)}},
    {QDRI_K_POSITION_SUM, {AT(rows.x)}, {AT(rows.p)}},
    {QDRI_K_CE_MAX, {AT(ce.logits)}, {AT(ce.work)}},
    {QDRI_K_CE_SUMS, {AT(ce.logits), AT(ce.targets), AT(ce.work)}, {AT(ce.work2)}},
    {QDRI_K_CE_LOSS, {AT(ce.targets), AT(ce.work), AT(ce.work2)}, {AT(ce.result), AT(ce.saved)}},
    {QDRI_K_CE_BACKWARD, {AT(ce.logits), AT(ce.targets), AT(ce.saved)}, {AT(ce.dlogits)}},
    {QDRI_K_SUM_SQUARES, {AT(reduce.a)}, {AT(reduce.result)}},
    {QDRI_K_ADAMW_RATE, {0}, {AT(adamw.numbers)}},
    {QDRI_K_ADAMW_BEGIN, {0}, {AT(adamw.numbers)}},
    {QDRI_K_ADAMW, {AT(adamw.g), AT(adamw.numbers)}, {AT(adamw.p), AT(adamw.m), AT(adamw.v), AT(adamw.master)}},
    {QDRI_K_COPY_BLOCK, {AT(block.x)}, {AT(block.y)}},
    {QDRI_K_COPY, {AT(block.x)}, {AT(block.y)}},
    {QDRI_K_ZERO, {0}, {AT(block.y)}},
};
enum { N_WANTED = sizeof wanted / sizeof *wanted, UNTOUCHED = 0xa5 };

static int count(const size_t *members)
{
    int n = 0;
    while (members[n]) n++;
    return n;
}

/* The pointers are at these members, whose bytes then become as untouched as the rest. */
static void take(qdri_kernel *kernel, const size_t *members, int n, char *const *pointers)
{
    for (int i = 0; i < n; i++) {
        char *at = (char *)kernel + members[i];
        assert_memory_equal(at, &pointers[i], sizeof *pointers);
        memset(at, UNTOUCHED, sizeof *pointers);
    }
}

static void bind_and_check(int at, int n_reads, int n_writes)
{
    static char places[MOST_READS + MOST_WRITES];
    char *reads[MOST_READS] = {NULL}, *writes[MOST_WRITES] = {NULL};
    qdri_kernel kernel, untouched;
    for (int i = 0; i < n_reads; i++) reads[i] = &places[i];
    for (int i = 0; i < n_writes; i++) writes[i] = &places[MOST_READS + i];
    memset(&kernel, UNTOUCHED, sizeof kernel);
    kernel.kind = wanted[at].kind;
    untouched = kernel;
    qdri_kernel_bind(&kernel, (void *const *)reads, n_reads, (void *const *)writes, n_writes);
    take(&kernel, wanted[at].reads, count(wanted[at].reads), reads);
    take(&kernel, wanted[at].writes, count(wanted[at].writes), writes);
    assert_memory_equal(&kernel, &untouched, sizeof kernel);
}

TEST(pointers_get_to_their_members)
{
    for (int i = 0; i < N_WANTED; i++) {
        const int n_reads = count(wanted[i].reads), n_writes = count(wanted[i].writes);
        bind_and_check(i, n_reads, n_writes);
        bind_and_check(i, n_reads, n_writes - 1); /* what is missing becomes NULL */
        if (n_reads > 0) bind_and_check(i, n_reads - 1, n_writes);
    }
}

/* Of each kernel but those whose description counts its operands. */
TEST(every_kernel_is_listed)
{
    int at = 0;
    for (int kind = 0; kind < QDRI_N_KERNELS; kind++) {
        const qdri_operand *operands;
        const int n = qdri_kernel_operands((qdri_kernel_kind)kind, &operands);
        if (kind >= QDRI_K_REDUCE) {
            assert_int_equal(n, 0);
            continue;
        }
        assert_true(at < N_WANTED);
        assert_int_equal(wanted[at].kind, kind);
        assert_int_equal(n, count(wanted[at].reads) + count(wanted[at].writes));
        at++;
    }
    assert_int_equal(at, N_WANTED);
}

static int64_t elems(const qdri_kernel *kernel, int operand)
{
    const qdri_operand *operands;
    assert_true(operand < qdri_kernel_operands(kernel->kind, &operands));
    return qdri_operand_elems(kernel, &operands[operand]);
}

/* Then nobody reads a table or a number per column, but sums are written. */
TEST(without_rows)
{
    enum { GAMMA = 3, SUMS = 4, DGAMMA = 5, TABLE = 1, D_TABLE = 2 };
    qdri_kernel norm = {.kind = QDRI_K_NORM_SUMS, .u.norm = {.n_rows = 2, .n_cols = 7}};
    qdri_kernel embed = {.kind = QDRI_K_EMBED_FORWARD, .u.embed = {.n_rows = 2, .n_cols = 7, .begin = 3, .end = 8}};
    assert_int_equal(elems(&norm, GAMMA), 7);
    assert_int_equal(elems(&norm, SUMS), 4);
    assert_int_equal(elems(&norm, DGAMMA), 7);
    assert_int_equal(elems(&embed, TABLE), 35);
    norm.u.norm.n_rows = embed.u.embed.n_rows = 0;
    assert_int_equal(elems(&norm, GAMMA), 0);
    assert_int_equal(elems(&norm, SUMS), 0);
    assert_int_equal(elems(&norm, DGAMMA), 7);
    assert_int_equal(elems(&embed, TABLE), 0);
    embed.kind = QDRI_K_EMBED_BACKWARD;
    assert_int_equal(elems(&embed, D_TABLE), 35);
}

TEST(gates_have_two_blocks)
{
    enum { DY, X, DX };
    qdri_kernel kernel = {.kind = QDRI_K_ACTIVATION_BACKWARD, .u.activation = {.n_rows = 3, .n_cols = 5}};
    assert_int_equal(elems(&kernel, X), 15);
    kernel.u.activation.gated = 1;
    assert_int_equal(elems(&kernel, DY), 15);
    assert_int_equal(elems(&kernel, X), 30);
    assert_int_equal(elems(&kernel, DX), 30);
}

TEST(copies_count_bytes)
{
    qdri_kernel kernel = {.kind = QDRI_K_COPY_BLOCK, .u.block = {.n_rows = 3, .row_bytes = 10}};
    assert_int_equal(elems(&kernel, 0), 30);
    kernel.kind = QDRI_K_COPY;
    assert_int_equal(elems(&kernel, 1), 10);
    kernel.kind = QDRI_K_ZERO;
    assert_int_equal(elems(&kernel, 0), 10);
}

/* They are at most INT64_MAX, and so refused where it matters, instead of few. */
TEST(too_many_to_count)
{
    const qdri_kernel norm = {.kind = QDRI_K_NORM_MERGE,
                              .u.norm = {.n_rows = INT64_MAX / 2, .n_cols = 1, .n_parts = 2}};
    assert_int_equal(elems(&norm, 0), INT64_MAX);
}
