/* SPDX-License-Identifier: Apache-2.0 */
/* Products of every type and shape against a long double triple loop. */
#include "dev/cpu/cpu.h"
#include "device.h"

typedef struct gemm_case {
    int64_t m, n, k;
    int trans_a, trans_b;
    double alpha, beta;
    qdr_dtype dtype, c_dtype;
    int by_onednn; /* past the device */
} gemm_case;

/* Leading dimensions a little larger than needed. */
static int64_t stride_of(int64_t n_cols) { return n_cols + test_between(&seed, 0, 3); }

/* |error| ≤ γ(k + 2)·(|alpha|·Σ|a·b| + |beta·c|): k products summed in any order, scaled, added. A GPU may round the
 * sum to C's type before it adds (docs/numerics.md). */
static void check_product(const qdri_gemm *g, const array *a, const array *b, const array *before, const array *c)
{
    for (int64_t i = 0; i < g->m; i++) {
        for (int64_t j = 0; j < g->n; j++) {
            ref sum = 0;
            ref size = 0;
            for (int64_t l = 0; l < g->k; l++) {
                const ref x = get(a, g->trans_a ? l * g->lda + i : i * g->lda + l);
                const ref y = get(b, g->trans_b ? j * g->ldb + l : l * g->ldb + j);
                sum += x * y;
                size += fabsl(x * y);
            }
            const ref old = g->beta == 0 ? 0 : (ref)g->beta * get(before, i * g->ldc + j);
            const ref bound = gamma_of(g->dtype, g->k + 3) * ((ref)fabs(g->alpha) * size + fabsl(old));
            const ref stored = g->beta != 0 && on_cuda() ? storing_error(g->c_dtype, (ref)g->alpha * sum, bound) : 0;
            check_near(c, i * g->ldc + j, (ref)g->alpha * sum + old, bound + stored, "product");
        }
    }
}

/* What lies between the rows of C is left alone. */
static void check_gaps(const qdri_gemm *g, const array *before, const array *c)
{
    const size_t bytes = qdr_dtype_bytes(c->dtype);
    for (int64_t i = 0; i + 1 < g->m; i++) {
        const size_t from = (size_t)(i * g->ldc + g->n) * bytes;
        assert_memory_equal((char *)c->data + from, (char *)before->data + from, (size_t)(g->ldc - g->n) * bytes);
    }
}

static void run_case(const gemm_case *t)
{
    qdri_gemm g = {.m = t->m, .n = t->n, .k = t->k, .trans_a = t->trans_a, .trans_b = t->trans_b};
    g.alpha = t->alpha;
    g.beta = t->beta;
    g.dtype = t->dtype;
    g.c_dtype = t->c_dtype;
    g.lda = stride_of(t->trans_a ? t->m : t->k);
    g.ldb = stride_of(t->trans_b ? t->k : t->n);
    g.ldc = stride_of(t->n);
    array a = make_random(t->dtype, (t->trans_a ? t->k : t->m) * g.lda, 1);
    array b = make_random(t->dtype, (t->trans_b ? t->n : t->k) * g.ldb, 1);
    array c = t->beta == 0 ? make(t->c_dtype, t->m * g.ldc) : make_random(t->c_dtype, t->m * g.ldc, 1);
    array before = copy_of(&c);
    g.a = a.data;
    g.b = b.data;
    g.c = c.data;
    if (t->by_onednn) {
        CHECK_OK(qdri_gemm_onednn(&g));
    } else {
        CHECK_OK(qdri_gemm_run(stream, &g));
    }
    CHECK_OK(qdri_stream_synchronize(stream));
    check_product(&g, &a, &b, &before, &c);
    check_gaps(&g, &before, &c);
    drop(&a);
    drop(&b);
    drop(&c);
    drop(&before);
}

static const struct {
    qdr_dtype dtype, c_dtype;
} type_pairs[] = {{QDR_F32, QDR_F32},  {QDR_F64, QDR_F64}, {QDR_BF16, QDR_BF16},
                  {QDR_BF16, QDR_F32}, {QDR_F16, QDR_F16}, {QDR_F16, QDR_F32}};
enum { N_PAIRS = 6, FIRST_NARROW = 2 };

TEST(products_of_odd_sizes)
{
    static const double factors[] = {0.0, 1.0, -0.5};
    for (int round = 0; round < 150; round++) {
        for (int pair = 0; pair < N_PAIRS; pair++) {
            const gemm_case t = {
                .m = odd_sizes[test_between(&seed, 0, N_SIZES - 1)],
                .n = odd_sizes[test_between(&seed, 0, N_SIZES - 1)],
                .k = odd_sizes[test_between(&seed, 0, N_SIZES - 1)],
                .trans_a = (int)test_between(&seed, 0, 1),
                .trans_b = (int)test_between(&seed, 0, 1),
                .alpha = factors[test_between(&seed, 1, 2)],
                .beta = factors[test_between(&seed, 0, 2)],
                .dtype = type_pairs[pair].dtype,
                .c_dtype = type_pairs[pair].c_dtype,
            };
            run_case(&t);
        }
    }
}

/* oneDNN multiplies BF16 only where the machine can, but its way is the same in F32. */
TEST(products_by_onednn)
{
    static const double factors[] = {0.0, 1.0, -0.5};
    const float x = 1;
    float y = 0;
    const qdri_gemm one = {.m = 1, .n = 1, .k = 1, .a = &x, .b = &x, .c = &y, .lda = 1, .ldb = 1, .ldc = 1, .alpha = 1};
    if (on_cuda()) skip();
    if (qdri_gemm_onednn(&one) == QDR_ERR_UNSUPPORTED) skip();
    for (int round = 0; round < 60; round++) {
        const gemm_case t = {
            .m = odd_sizes[test_between(&seed, 1, N_SIZES - 1)],
            .n = odd_sizes[test_between(&seed, 1, N_SIZES - 1)],
            .k = odd_sizes[test_between(&seed, 1, N_SIZES - 1)],
            .trans_a = (int)test_between(&seed, 0, 1),
            .trans_b = (int)test_between(&seed, 0, 1),
            .alpha = factors[test_between(&seed, 1, 2)],
            .beta = factors[test_between(&seed, 0, 2)],
            .by_onednn = 1,
        };
        run_case(&t);
    }
}

/* More than one panel of the conversion in each direction. */
TEST(products_of_several_panels)
{
    for (int pair = FIRST_NARROW; pair < N_PAIRS; pair++) {
        const qdr_dtype dtype = type_pairs[pair].dtype, c_dtype = type_pairs[pair].c_dtype;
        const gemm_case wide = {515, 3, 1030, 0, 1, 1.0, 1.0, dtype, c_dtype, 0};
        const gemm_case tall = {3, 1029, 514, 1, 0, 2.0, 0.0, dtype, c_dtype, 0};
        run_case(&wide);
        run_case(&tall);
    }
}

/* Whole blocks of AMX, and one or a few numbers more or less: oneDNN 2.6 has an illegal instruction among them. */
TEST(products_beside_whole_blocks)
{
    static const int64_t steps[] = {30, 31, 32, 33, 62, 63, 64, 65, 95, 127, 1886, 1887, 1888};
    for (int i = 0; i < 13; i++)
        for (int pair = FIRST_NARROW; pair < FIRST_NARROW + 2; pair++)
            for (int trans = 0; trans < 4; trans++) {
                const gemm_case t = {130,
                                     21,
                                     steps[i],
                                     trans & 1,
                                     trans >> 1,
                                     1.0,
                                     trans == 3,
                                     type_pairs[pair].dtype,
                                     type_pairs[pair].c_dtype,
                                     0};
                run_case(&t);
            }
}

/* NaN and Inf of the inputs are not hidden; k = 0 scales C. */
TEST(products_hide_nothing)
{
    for (int pair = 0; pair < N_PAIRS; pair++) {
        array a = make_random(type_pairs[pair].dtype, 4, 1);
        array b = make_random(type_pairs[pair].dtype, 4, 1);
        array c = make(type_pairs[pair].c_dtype, 4);
        qdri_gemm g = {.m = 2, .n = 2, .k = 2, .a = a.data, .b = b.data, .c = c.data, .lda = 2};
        g.ldb = g.ldc = 2;
        g.alpha = 1;
        g.dtype = type_pairs[pair].dtype;
        g.c_dtype = type_pairs[pair].c_dtype;
        set(&a, 0, (double)NAN);
        set(&b, 1, (double)INFINITY);
        CHECK_OK(qdri_gemm_run(stream, &g));
        CHECK_OK(qdri_stream_synchronize(stream));
        assert_true(isnan(get(&c, 0)));
        assert_true(isinf(get(&c, 3)) || isnan(get(&c, 3)));
        assert_true(isfinite(get(&c, 2)));
        drop(&a);
        drop(&b);
        drop(&c);
    }
}

TEST(bad_products_are_refused)
{
    float x[4] = {0};
    const qdri_gemm good = {.m = 2, .n = 2, .k = 2, .a = x, .b = x, .c = x, .lda = 2, .ldb = 2, .ldc = 2, .alpha = 1};
    qdri_gemm g = good;
    CHECK_FAILS(qdri_gemm_run(stream, NULL), QDR_ERR_ARGUMENT, "NULL");
    g.a = NULL;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_ARGUMENT, "A is NULL");
    g = good;
    g.m = -1;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_SHAPE, "-1");
    g = good;
    g.ldb = 1;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_SHAPE, "leading dimension 1 of B");
    g = good;
    g.dtype = QDR_I32;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_DTYPE, "i32");
    g = good;
    g.c_dtype = QDR_F64;
    CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_DTYPE, "f64");
    g = good;
    g.m = 1;
    g.lda = INT64_C(1) << 40;
    if (!on_cuda()) /* whose library counts in 64 bits */
        CHECK_FAILS(qdri_gemm_run(stream, &g), QDR_ERR_SHAPE, "1099511627776");
    assert_int_equal(qdri_dev_status(device), QDR_OK);
}

int main(void) { return run_all_tests(device_open, device_close); }
