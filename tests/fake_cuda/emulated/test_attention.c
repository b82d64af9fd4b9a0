/* SPDX-License-Identifier: Apache-2.0 */
/* CUDA's attention against the CPU's: forward, and backward of the same forward. */
#include "kernels.h"

typedef struct heads {
    qdr_dtype dtype;
    int64_t n_sequences, context, n_heads, n_kv_heads, size;
} heads;

static int64_t width_of(const heads *h) { return (h->n_heads + 2 * h->n_kv_heads) * h->size; }

static kernel_test attention_of(qdri_kernel_kind kind, const heads *h)
{
    kernel_test test = test_of(kind, h->dtype);
    const int64_t n_rows = h->n_sequences * h->context;
    const qdr_attention sizes = {.n_rows = n_rows,
                                 .context = h->context,
                                 .n_heads = h->n_heads,
                                 .head_size = h->size,
                                 .dtype = h->dtype};
    test.kernel.u.attention.n_rows = n_rows;
    test.kernel.u.attention.context = h->context;
    test.kernel.u.attention.n_heads = h->n_heads;
    test.kernel.u.attention.n_kv_heads = h->n_kv_heads;
    test.kernel.u.attention.head_size = h->size;
    operand *work = add_operand(&test, AT(attention.work), QDR_U8,
                                (int64_t)qdri_attention_work_bytes(&sizes));
    memset(work->data, 0xff, bytes_of(work));
    work->is_scratch = 1;
    return test;
}

/* Scores of q and k up to 1 are sums of `size` products, scaled by 1/sqrt(size): off by u·(size +
 * 2)·sqrt(size). So are the weights, relatively, besides the sum's roundings; v is up to 1. */
static double weight_bound(const heads *h)
{
    return roundings(h->dtype, h->size + 2) * sqrt((double)h->size) +
           roundings(h->dtype, h->context);
}

static void forward(const heads *h)
{
    kernel_test test = attention_of(QDRI_K_ATTENTION_FORWARD, h);
    const int64_t n_rows = h->n_sequences * h->context;
    add_random(&test, AT(attention.qkv), h->dtype, n_rows * width_of(h), -1, 1);
    add_result(&test, AT(attention.out), h->dtype, n_rows * h->n_heads * h->size, 0,
               2 * weight_bound(h));
    add_result(&test, AT(attention.saved), sum_type(h->dtype), n_rows * h->n_heads, 0,
               2 * weight_bound(h));
    check_kernel(&test);
}

/* The saved log-sum-exp and y are the CPU's. */
static void backward(const heads *h)
{
    kernel_test test = attention_of(QDRI_K_ATTENTION_FORWARD, h);
    const int64_t n_rows = h->n_sequences * h->context, n_y = n_rows * h->n_heads * h->size;
    void *results[N_OPERANDS];
    add_random(&test, AT(attention.qkv), h->dtype, n_rows * width_of(h), -1, 1);
    operand *saved = add_result(&test, AT(attention.saved), sum_type(h->dtype), n_rows * h->n_heads,
                                0, 0);
    operand *y = add_result(&test, AT(attention.out), h->dtype, n_y, 0, 0);
    run_on_cpu(&test, results);
    memcpy(saved->data, results[2], bytes_of(saved));
    memcpy(y->data, results[3], bytes_of(y));
    for (int i = 0; i < test.n; i++) test_free(results[i]);
    saved->is_result = y->is_result = 0;
    y->where = AT(attention.y);
    test.kernel.kind = QDRI_K_ATTENTION_BACKWARD;
    add_random(&test, AT(attention.dy), h->dtype, n_y, -1, 1);
    /* dP is up to size, its sum weighted by P too; queries in a column: context·group */
    const double terms = (double)(h->context * h->n_heads / h->n_kv_heads);
    add_result(&test, AT(attention.out), h->dtype, n_rows * width_of(h), 0,
               4 * weight_bound(h) * sqrt((double)h->size) * (1 + terms));
    check_kernel(&test);
}

static void check_heads(heads h)
{
    for (int t = 0; t < N_TYPES; t++) {
        h.dtype = float_types[t];
        forward(&h);
        if (h.n_heads > 0) backward(&h);
    }
}

static void shapes(void **state)
{
    (void)state;
    check_heads((heads){0, 1, 1, 1, 1, 1});
    check_heads((heads){0, 2, 5, 2, 2, 3});
    check_heads((heads){0, 2, 17, 4, 2, 8});
    check_heads((heads){0, 1, 64, 1, 1, 64});
    check_heads((heads){0, 1, 70, 3, 1, 72}); /* a whole chunk and a part */
    check_heads((heads){0, 1, 33, 2, 1, 130}); /* two blocks of results */
    check_heads((heads){0, 1, 34, 1, 1, 300});
    check_heads((heads){0, 0, 7, 2, 2, 4}); /* no rows */
    check_heads((heads){0, 1, 7, 0, 2, 4}); /* no queries */
    for (int round = 0; round < 12; round++) {
        const int64_t n_kv = test_between(&seed, 1, 3);
        check_heads((heads){0, test_between(&seed, 1, 2), test_between(&seed, 1, 100),
                            n_kv * test_between(&seed, 1, 3), n_kv, test_between(&seed, 1, 70)});
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(shapes)};
    return cmocka_run_group_tests(tests, open_devices, close_devices);
}
