/* SPDX-License-Identifier: Apache-2.0 */
/* Sums of squares and AdamW in every type, against long double references. */
#include "device.h"

static qdri_kernel kernel_of(qdri_kernel_kind kind, qdr_dtype dtype)
{
    return (qdri_kernel){.kind = kind, .dtype = dtype};
}

TEST(sum_of_squares)
{
    for (int t = 0; t < 2 * N_TYPES * N_SIZES; t++) {
        const int64_t n = 13 * odd_sizes[t / (2 * N_TYPES)];
        qdri_kernel k = kernel_of(QDRI_K_SUM_SQUARES, float_types[t / 2 % N_TYPES]);
        array a = make_random(k.dtype, n, 3);
        array result = make(QDR_F64, 1);
        ref want = 0;
        if (t % 2) set(&result, 0, (double)(want = 1.5L));
        for (int64_t i = 0; i < n; i++) want += get(&a, i) * get(&a, i);
        k.u.reduce.n = n;
        k.u.reduce.a = a.data;
        k.u.reduce.result = result.data;
        k.accumulate = t % 2;
        run(&k);
        check_near(&result, 0, want, gamma_of(QDR_F64, n + 2) * want, "sum of squares");
        drop(&a);
        drop(&result);
    }
}

enum { N_ARRAYS = 5 };

/* One parameter, before or after a step. */
typedef struct adamw_arrays {
    array p, master, g, m, v;
} adamw_arrays;

static adamw_arrays arrays_make(qdr_dtype dtype, int64_t n)
{
    const qdr_dtype sums = sum_type(dtype);
    adamw_arrays a = {make_random(dtype, n, 1), make_random(sums, n, 1), make_random(sums, n, 1),
                      make_random(sums, n, 1), make(sums, n)};
    for (int64_t i = 0; i < n; i++) set(&a.v, i, uniform(0, 1));
    for (int64_t i = 0; i < n; i++) { /* the others were written since the last step */
        if (is_narrow(dtype) && test_between(&seed, 0, 2)) set(&a.p, i, (double)get(&a.master, i));
    }
    return a;
}

static adamw_arrays arrays_copy(const adamw_arrays *a)
{
    return (adamw_arrays){copy_of(&a->p), copy_of(&a->master), copy_of(&a->g), copy_of(&a->m), copy_of(&a->v)};
}

static void arrays_drop(adamw_arrays *a)
{
    array *all[N_ARRAYS] = {&a->p, &a->master, &a->g, &a->m, &a->v};
    for (int i = 0; i < N_ARRAYS; i++) drop(all[i]);
}

/* Where a step starts: a parameter that is not its rounded master was written since the last one. */
static ref value_before(const adamw_arrays *old, int64_t i)
{
    if (!is_narrow(old->p.dtype)) return get(&old->p, i);
    array rounded = make(old->p.dtype, 1);
    set(&rounded, 0, (double)get(&old->master, i));
    const int is_kept = get(&rounded, 0) == get(&old->p, i);
    drop(&rounded);
    return get(is_kept ? &old->master : &old->p, i);
}

static void check_step(const qdri_kernel *k, const adamw_arrays *old, const adamw_arrays *now, double t)
{
    const ref limit = (ref)k->u.adamw.clip_norm, grad_scale = (ref)k->u.adamw.grad_scale;
    const ref beta1 = (ref)k->u.adamw.beta1, beta2 = (ref)k->u.adamw.beta2;
    const ref norm = sqrtl((ref)k->u.adamw.numbers->norm_squared) / grad_scale;
    const ref factor = (limit > 0 && norm > limit ? limit / norm : 1) / grad_scale;
    const int has_master = is_narrow(k->dtype);
    for (int64_t i = 0; i < k->u.adamw.n; i++) {
        const ref g = factor * get(&old->g, i);
        const ref p = value_before(old, i);
        const ref m = beta1 * get(&old->m, i) + (1 - beta1) * g;
        const ref v = beta2 * get(&old->v, i) + (1 - beta2) * g * g;
        const ref root = sqrtl(v / (1 - powl(beta2, (ref)t))) + (ref)k->u.adamw.epsilon;
        const ref scale = (ref)k->u.adamw.lr / (1 - powl(beta1, (ref)t)) / root;
        const ref decay = (ref)k->u.adamw.lr * (ref)k->u.adamw.weight_decay;
        const ref m_size = beta1 * fabsl(get(&old->m, i)) + fabsl(g);
        const ref size = fabsl(p) + scale * m_size + decay * fabsl(p);
        check_near(&now->m, i, m, gamma_of(k->dtype, 6) * m_size, "m");
        check_near(&now->v, i, v, gamma_of(k->dtype, 10) * v, "v");
        check_near(has_master ? &now->master : &now->p, i, p - scale * m - decay * p, gamma_of(k->dtype, 30) * size,
                   "parameter");
        if (has_master) check_near(&now->p, i, get(&now->master, i), 0, "rounded parameter");
    }
}

static qdri_kernel step_of(qdr_dtype dtype, const adamw_arrays *a, qdri_adamw_numbers *numbers)
{
    qdri_kernel k = kernel_of(QDRI_K_ADAMW_RATE, dtype);
    k.u.adamw.n = a->p.n;
    k.u.adamw.p = a->p.data;
    k.u.adamw.master = is_narrow(dtype) ? a->master.data : NULL;
    k.u.adamw.g = a->g.data;
    k.u.adamw.m = a->m.data;
    k.u.adamw.v = a->v.data;
    k.u.adamw.numbers = numbers;
    k.u.adamw.lr = 0.01;
    k.u.adamw.beta1 = 0.9;
    k.u.adamw.beta2 = 0.95;
    k.u.adamw.epsilon = 1e-8;
    k.u.adamw.weight_decay = 0.1;
    k.u.adamw.grad_scale = 1;
    return k;
}

static void run_step(qdri_kernel *k)
{
    k->kind = QDRI_K_ADAMW_RATE;
    run(k);
    k->kind = QDRI_K_ADAMW_BEGIN;
    run(k);
    k->kind = QDRI_K_ADAMW;
    run(k);
}

/* Clipped and not, of gradients that are too large by a power of two or not, the first step and later ones. */
TEST(adamw_steps)
{
    qdri_adamw_numbers *numbers = memory_new(sizeof *numbers);
    for (int t = 0; t < 4 * N_TYPES * N_SIZES; t++) {
        const qdr_dtype dtype = float_types[t / 4 % N_TYPES];
        const double n_before = (double)test_between(&seed, 0, 3);
        adamw_arrays a = arrays_make(dtype, odd_sizes[t / (4 * N_TYPES)]);
        adamw_arrays old = arrays_copy(&a);
        qdri_kernel k = step_of(dtype, &a, numbers);
        k.u.adamw.clip_norm = t % 2 ? 1 : 0;
        k.u.adamw.grad_scale = t % 4 > 1 ? 4 : 1;
        k.u.adamw.skips = (int)test_between(&seed, 0, 1);
        *numbers = (qdri_adamw_numbers){.norm_squared = 25, .n_steps = n_before, .n_begun = 7};
        run_step(&k);
        assert_true(numbers->n_steps == n_before + 1 && numbers->n_begun == 8);
        check_step(&k, &old, &a, numbers->n_steps);
        arrays_drop(&a);
        arrays_drop(&old);
    }
    memory_drop(numbers);
}

static int are_same(const adamw_arrays *a, const adamw_arrays *b)
{
    const array *one[N_ARRAYS] = {&a->p, &a->master, &a->g, &a->m, &a->v},
                *other[N_ARRAYS] = {&b->p, &b->master, &b->g, &b->m, &b->v};
    int same = 1;
    for (int i = 0; i < N_ARRAYS; i++)
        same &= memcmp(one[i]->data, other[i]->data, (size_t)one[i]->n * qdr_dtype_bytes(one[i]->dtype)) == 0;
    return same;
}

/* A norm that is Inf or NaN: nothing happens, and no step is counted, where that is wanted; else NaN shows. The next
 * good step is as if the skipped ones had not been. */
TEST(bad_steps_are_skipped)
{
    static const double bad[] = {NAN, INFINITY};
    enum { N = 19 };
    qdri_adamw_numbers *numbers = memory_new(sizeof *numbers);
    for (int t = 0; t < 2 * N_TYPES; t++) {
        const qdr_dtype dtype = float_types[t / 2];
        adamw_arrays a = arrays_make(dtype, N);
        adamw_arrays old = arrays_copy(&a);
        qdri_kernel k = step_of(dtype, &a, numbers);
        k.u.adamw.skips = 1;
        k.u.adamw.clip_norm = 1;
        *numbers = (qdri_adamw_numbers){.norm_squared = bad[t % 2]};
        run_step(&k);
        assert_true(are_same(&a, &old) && numbers->n_steps == 0 && numbers->n_begun == 1);
        numbers->norm_squared = 9;
        run_step(&k);
        assert_true(!are_same(&a, &old) && numbers->n_steps == 1);
        check_step(&k, &old, &a, 1);
        numbers->norm_squared = bad[t % 2];
        k.u.adamw.skips = 0;
        set(&a.g, 3, bad[t % 2]);
        run_step(&k);
        assert_true(numbers->n_steps == 2 && isnan(get(&a.p, 3)));
        arrays_drop(&a);
        arrays_drop(&old);
    }
    memory_drop(numbers);
}

/* What n ranks with the same rate add. */
static qdri_adamw_numbers sums_of(int n_ranks, double lr)
{
    qdri_adamw_numbers sums = {.norm_squared = 9, .lr = lr};
    uint64_t bits;
    memcpy(&bits, &lr, sizeof lr);
    for (int rank = 0; rank < n_ranks; rank++)
        for (int i = 0; i < QDRI_RATE_PIECES; i++) {
            const double piece = (double)(bits >> 16 * i & 0xffff);
            sums.rate[i] += piece;
            sums.rate_squared[i] += piece * piece;
        }
    return sums;
}

/* Steps of any number of ranks with one rate, which leave this rank's for the next one. That those with different rates
 * fail, which would end the device here, is tested on ranks. */
TEST(rates_of_ranks)
{
    static const int n_ranks[] = {2, 3, 7, 1000, 1 << 20};
    static const double rates[] = {0, 0.1, 1e-300, 1.7e308, 0x1.fffffffffffffp-7};
    qdri_adamw_numbers *numbers = memory_new(sizeof *numbers);
    for (int t = 0; t < 25; t++) {
        adamw_arrays a = arrays_make(QDR_F64, 1);
        qdri_kernel k = step_of(QDR_F64, &a, numbers);
        const double lr = rates[t / 5];
        const qdri_adamw_numbers own = sums_of(1, lr);
        *numbers = sums_of(n_ranks[t % 5], lr);
        k.kind = QDRI_K_ADAMW_BEGIN;
        k.u.adamw.n_ranks = n_ranks[t % 5];
        run(&k);
        assert_true(numbers->n_steps == 1 && numbers->lr == lr);
        assert_memory_equal(numbers->rate, own.rate, sizeof own.rate);
        assert_memory_equal(numbers->rate_squared, own.rate_squared, sizeof own.rate_squared);
        *numbers = (qdri_adamw_numbers){0};
        k.kind = QDRI_K_ADAMW_RATE;
        k.u.adamw.lr = lr;
        run(&k);
        assert_memory_equal(numbers->rate, own.rate, sizeof own.rate);
        assert_memory_equal(numbers->rate_squared, own.rate_squared, sizeof own.rate_squared);
        arrays_drop(&a);
    }
    memory_drop(numbers);
}

TEST(bad_scales_are_refused)
{
    qdri_adamw_numbers *numbers = memory_new(sizeof *numbers);
    adamw_arrays a = arrays_make(QDR_F16, 1);
    qdri_kernel k = step_of(QDR_F16, &a, numbers);
    k.kind = QDRI_K_ADAMW_BEGIN;
    k.u.adamw.grad_scale = 0;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_ARGUMENT, "scaled by 0");
    for (int kind = QDRI_K_ADAMW_RATE; kind <= QDRI_K_ADAMW; kind++) {
        k = step_of(QDR_F16, &a, NULL);
        k.kind = (qdri_kernel_kind)kind;
        CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_ARGUMENT, "numbers");
    }
    k = step_of(QDR_F16, &a, numbers);
    k.kind = QDRI_K_ADAMW;
    k.u.adamw.master = NULL;
    CHECK_FAILS(qdri_kernel_run(stream, &k), QDR_ERR_ARGUMENT, "master");
    arrays_drop(&a);
    memory_drop(numbers);
}

int main(void) { return run_each_set(); }
