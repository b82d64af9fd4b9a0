/* SPDX-License-Identifier: Apache-2.0 */
/* Products with a bias, with GELU and with the gradient through GELU, as far as the device fuses them, compared with
 * the same operations one after the other and with a long double triple loop. */
#include "device.h"

enum { BIAS = 1, GELU = 2, GELU_OF = 4 };
enum { N_ROUNDS = 400 };

/* What a GPU's own instruction for tanh may be off by, relatively (PTX ISA, tanh.approx.f32). */
static const ref tanh_error = 0x1p-10L;

typedef struct fused_case {
    qdri_gemm g;
    int parts, shift; /* elements by which arrays are off a boundary of 16 bytes */
    array a, b, c, bias, gelu, gelu_of;
} fused_case;

/* An array that begins `shift` elements after a boundary of 16 bytes: element first_of(). */
static array make_at(qdr_dtype dtype, int64_t n, int is_random)
{
    return is_random ? make_random(dtype, n + 32, 1.5) : make(dtype, n + 32);
}

static int64_t first_of(const array *a, int shift) { return (int64_t)(16 / qdr_dtype_bytes(a->dtype)) - 1 + shift; }

static void *begin_of(const array *a, int shift)
{
    return (char *)a->data + (size_t)first_of(a, shift) * qdr_dtype_bytes(a->dtype);
}

static fused_case make_case(qdr_dtype dtype, int parts)
{
    fused_case t = {.parts = parts, .shift = (int)test_between(&seed, 0, 3) % 3};
    qdri_gemm *g = &t.g;
    g->dtype = g->c_dtype = dtype;
    g->m = odd_sizes[test_between(&seed, 0, N_SIZES - 1)];
    g->n = test_between(&seed, 0, 2) ? 8 * test_between(&seed, 1, 9) : odd_sizes[test_between(&seed, 0, N_SIZES - 1)];
    g->k = odd_sizes[test_between(&seed, 0, N_SIZES - 1)];
    g->trans_a = (int)test_between(&seed, 0, 1);
    g->trans_b = (int)test_between(&seed, 0, 1);
    g->alpha = 1;
    g->lda = g->trans_a ? g->m : g->k;
    g->ldb = g->trans_b ? g->k : g->n;
    g->ldc = g->n;
    t.a = make_at(dtype, g->m * g->k, 1);
    t.b = make_at(dtype, g->n * g->k, 1);
    t.c = make_at(dtype, g->m * g->n, 0);
    t.bias = make_at(dtype, g->n, 1);
    t.gelu = make_at(dtype, g->m * g->n, 0);
    t.gelu_of = make_at(dtype, g->m * g->n, 1);
    g->a = begin_of(&t.a, 0);
    g->b = begin_of(&t.b, 0);
    g->c = begin_of(&t.c, 0);
    if (parts & BIAS) g->bias = begin_of(&t.bias, t.shift);
    if (parts & GELU) g->gelu = begin_of(&t.gelu, 0);
    if (parts & GELU_OF) g->gelu_of = begin_of(&t.gelu_of, 0);
    return t;
}

static void drop_case(fused_case *t)
{
    drop(&t->a);
    drop(&t->b);
    drop(&t->c);
    drop(&t->bias);
    drop(&t->gelu);
    drop(&t->gelu_of);
}

/* The sum of element (i, j) with its bias, and what its terms add up to in size. */
static ref sum_of(const fused_case *t, int64_t i, int64_t j, ref *size)
{
    const qdri_gemm *g = &t->g;
    const int64_t a0 = first_of(&t->a, 0), b0 = first_of(&t->b, 0);
    ref sum = t->parts & BIAS ? get(&t->bias, first_of(&t->bias, t->shift) + j) : 0;
    *size = fabsl(sum);
    for (int64_t l = 0; l < g->k; l++) {
        const ref x = get(&t->a, a0 + (g->trans_a ? l * g->lda + i : i * g->lda + l));
        const ref y = get(&t->b, b0 + (g->trans_b ? j * g->ldb + l : l * g->ldb + j));
        sum += x * y;
        *size += fabsl(x * y);
    }
    return sum;
}

static ref scaled(ref x) { return 0.79788456080286535588L * (x + 0.044715L * x * x * x); }
static ref scaled_slope(ref x) { return 0.79788456080286535588L * (1 + 3 * 0.044715L * x * x); }
static ref gelu(ref x) { return x / (1 + expl(-2 * scaled(x))); }
static ref gelu_slope(ref x)
{
    const ref s = 1 / (1 + expl(-2 * scaled(x)));
    return s + 2 * x * s * (1 - s) * scaled_slope(x);
}

/* By how much GELU of x may be off where x is: its slope is at most 1.13. Beside that, what its computation rounds (the
 * tests of the kernel have the same) and what tanh may. */
static ref gelu_bound(qdr_dtype dtype, ref x, ref error)
{
    const int64_t n = 8 + (int64_t)(12 * fabsl(scaled(x)));
    return 1.13L * error + gamma_of(dtype, n) * fabsl(x) + tanh_error * fabsl(x) / 2;
}

static ref slope_bound(qdr_dtype dtype, ref x)
{
    const int64_t n = 20 + (int64_t)(24 * fabsl(scaled(x)));
    const ref size = 1 + fabsl(x * scaled_slope(x));
    return gamma_of(dtype, n) * size + tanh_error * size;
}

/* What goes into GELU, or through its slope, may be stored before, by products that do it at once, too; these may also
 * round the product before they add a bias and do GELU (docs/numerics.md). */
static void check_case(const fused_case *t, const char *what)
{
    const qdri_gemm *g = &t->g;
    const int rounds = t->parts == (BIAS | GELU);
    for (int64_t i = 0; i < g->m * g->n; i++) {
        ref size;
        const ref sum = sum_of(t, i / g->n, i % g->n, &size);
        const ref bias = t->parts & BIAS ? get(&t->bias, first_of(&t->bias, t->shift) + i % g->n) : 0;
        const ref exact = gamma_of(g->dtype, g->k + 4) * size;
        const ref error = exact + (rounds ? storing_error(g->dtype, sum - bias, exact) : 0);
        const ref stored = error + storing_error(g->dtype, sum, error);
        const ref x = t->parts & GELU_OF ? get(&t->gelu_of, first_of(&t->gelu_of, 0) + i) : 0;
        if (t->parts & GELU_OF) {
            const ref slope = gelu_slope(x), off = slope_bound(g->dtype, x);
            check_near(&t->c, first_of(&t->c, 0) + i, sum * slope, stored * (fabsl(slope) + off) + fabsl(sum) * off,
                       what);
            continue;
        }
        check_near(&t->c, first_of(&t->c, 0) + i, sum, error, what);
        if (t->parts & GELU)
            check_near(&t->gelu, first_of(&t->gelu, 0) + i, gelu(sum), gelu_bound(g->dtype, sum, stored), what);
    }
}

static void fill_nan(array *a)
{
    for (int64_t i = 0; i < a->n; i++) set(a, i, (double)NAN);
}

/* Elements before and after it are unchanged. */
static void check_around(const array *a, int64_t n)
{
    const int64_t first = first_of(a, 0);
    for (int64_t i = 0; i < a->n; i++)
        if (i < first || i >= first + n) assert_true(isnan(get(a, i)));
}

static void run_in_steps(const fused_case *t)
{
    const qdri_gemm *g = &t->g;
    qdri_gemm product = *g;
    product.bias = NULL;
    product.gelu = NULL;
    product.gelu_of = NULL;
    CHECK_OK(qdri_gemm_run(stream, &product));
    if (t->parts & BIAS) {
        qdri_kernel add = {.kind = QDRI_K_BIAS_ADD, .dtype = g->dtype};
        add.u.rows.n_rows = g->m;
        add.u.rows.n_cols = g->n;
        add.u.rows.y = g->c;
        add.u.rows.p = begin_of(&t->bias, t->shift);
        run(&add);
    }
    if (!(t->parts & (GELU | GELU_OF))) return;
    qdri_kernel last = {.kind = t->parts & GELU ? QDRI_K_ACTIVATION_FORWARD : QDRI_K_ACTIVATION_BACKWARD,
                        .dtype = g->dtype};
    last.u.activation.n_rows = g->m;
    last.u.activation.n_cols = g->n;
    last.u.activation.x = t->parts & GELU ? g->c : g->gelu_of;
    last.u.activation.y = g->gelu;
    last.u.activation.dy = last.u.activation.dx = g->c;
    run(&last);
}

/* A sum that is rounded before the bias is added meets two roundings. */
static void check_steps(fused_case *t)
{
    run_in_steps(t);
    if (!(t->parts & BIAS) || !is_narrow(t->g.dtype)) check_case(t, "one after the other");
    fill_nan(&t->c);
    fill_nan(&t->gelu);
}

/* Whether products do GELU: from Hopper on, unless told not to (docs/gpu.md). */
static int does_gelu(void)
{
    const char *choice = getenv("QDR_FUSE_GELU");
    const qdri_plugin *plugin;
    qdr_gpu gpu;
    if (!on_cuda() || (choice && strcmp(choice, "0") == 0)) return 0;
    CHECK_OK(qdri_plugin_open(&plugin));
    CHECK_OK(plugin->find_gpu(0, &gpu));
    return gpu.major >= 9;
}

static int n_fused, n_fused_gelu;

static void check_fused(fused_case *t)
{
    const int64_t n = t->g.m * t->g.n;
    if (!qdri_dev_fuses(device, &t->g)) {
        if (n > 0) CHECK_FAILS(qdri_gemm_run(stream, &t->g), QDR_ERR_UNSUPPORTED, "GELU");
        return;
    }
    n_fused += n > 0 && t->g.k > 0;
    n_fused_gelu += n > 0 && t->g.k > 0 && t->parts > BIAS;
    CHECK_OK(qdri_gemm_run(stream, &t->g));
    CHECK_OK(qdri_stream_synchronize(stream));
    check_case(t, "at once");
    check_around(&t->c, n);
    check_around(&t->gelu, t->parts & GELU ? n : 0);
}

TEST(products_at_once_are_near)
{
    static const int parts[] = {BIAS, GELU, BIAS | GELU, GELU_OF};
    n_fused = n_fused_gelu = 0;
    for (int round = 0; round < N_ROUNDS; round++) {
        fused_case t = make_case(float_types[round % N_TYPES], parts[round / N_TYPES % 4]);
        check_steps(&t);
        check_fused(&t);
        drop_case(&t);
    }
    if (on_cuda()) /* a bias in three types of four, unless there is nothing to multiply */
        assert_true(n_fused > N_ROUNDS / 10);
    else
        assert_int_equal(n_fused, 0);
    if (does_gelu()) /* in two types, where rows have whole units of 8 */
        assert_true(n_fused_gelu > N_ROUNDS / 20);
    else
        assert_int_equal(n_fused_gelu, 0);
}

/* One element off, and it is not done at once. */
TEST(what_is_not_aligned_is_left)
{
    static const int parts[] = {GELU, BIAS | GELU, GELU_OF};
    const int does = does_gelu();
    for (int i = 0; i < 3; i++) {
        fused_case t = make_case(i % 2 ? QDR_F16 : QDR_BF16, parts[i]);
        qdri_gemm g = t.g;
        g.n = g.ldc = g.ldb = 16;
        g.trans_b = 0;
        assert_int_equal(qdri_dev_fuses(device, &g), does);
        g.n = g.ldc = 12;
        assert_false(qdri_dev_fuses(device, &g));
        g.n = g.ldc = 16;
        g.c = (char *)g.c + 8;
        assert_false(qdri_dev_fuses(device, &g));
        g.c = t.g.c;
        g.beta = 1;
        assert_false(qdri_dev_fuses(device, &g));
        g.beta = 0;
        g.ldc = 24;
        assert_false(qdri_dev_fuses(device, &g));
        g.ldc = 16;
        g.c_dtype = QDR_F32;
        assert_false(qdri_dev_fuses(device, &g));
        g.c_dtype = g.dtype;
        if (g.gelu) g.gelu = (char *)g.gelu + 2;
        if (g.gelu_of) g.gelu_of = (const char *)g.gelu_of + 2;
        assert_false(qdri_dev_fuses(device, &g));
        drop_case(&t);
    }
}

int main(void) { return run_all_tests(device_open, device_close); }
