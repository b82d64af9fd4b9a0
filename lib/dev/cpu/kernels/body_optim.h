/* SPDX-License-Identifier: Apache-2.0 */
/* Sum of squares and AdamW. */

static void sum_squares(const qdri_kernel *kernel)
{
    const elem *a = kernel->u.reduce.a;
    double sum = 0;
    SIMD_SUM(sum)
    for (int64_t i = 0; i < kernel->u.reduce.n; i++) {
        const double x = (double)get(a[i]);
        sum += x * x;
    }
    if (kernel->u.reduce.accumulate) sum += *kernel->u.reduce.result;
    *kernel->u.reduce.result = sum;
}

static real clip_scale(const qdri_kernel *kernel)
{
    const double most = kernel->u.adamw.clip_norm;
    if (!(most > 0)) return 1;
    const double norm = sqrt(*kernel->u.adamw.norm_squared);
    return (real)(norm > most ? most / norm : 1);
}

static void adamw(const qdri_kernel *kernel)
{
    const real clip = clip_scale(kernel);
    const real beta1 = (real)kernel->u.adamw.beta1;
    const real beta2 = (real)kernel->u.adamw.beta2;
    const real rest1 = (real)(1 - kernel->u.adamw.beta1);
    const real rest2 = (real)(1 - kernel->u.adamw.beta2);
    const real correction1 = (real)kernel->u.adamw.correction1;
    const real correction2 = (real)kernel->u.adamw.correction2;
    const real epsilon = (real)kernel->u.adamw.epsilon;
    const real lr = (real)kernel->u.adamw.lr;
    const real decay = (real)kernel->u.adamw.weight_decay;
    const real *g = kernel->u.adamw.g;
    real *m = kernel->u.adamw.m;
    real *v = kernel->u.adamw.v;
    elem *p = kernel->u.adamw.p;
    real *master = ELEM_IS_REAL ? kernel->u.adamw.p : kernel->u.adamw.master;
    SIMD for (int64_t i = 0; i < kernel->u.adamw.n; i++)
    {
        const real gi = g[i] * clip;
        const real mi = beta1 * m[i] + rest1 * gi;
        const real vi = beta2 * v[i] + rest2 * (gi * gi);
        const real step = mi * correction1 / (real_sqrt(vi * correction2) + epsilon);
        const real next = master[i] - lr * (step + decay * master[i]);
        m[i] = mi;
        v[i] = vi;
        master[i] = next;
        if (!ELEM_IS_REAL) p[i] = put(next);
    }
}
