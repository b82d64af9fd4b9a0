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
    if (kernel->accumulate) sum += *kernel->u.reduce.result;
    *kernel->u.reduce.result = sum;
}

static void adamw_rate(const qdri_kernel *kernel)
{
    kernel->u.adamw.numbers->lr = kernel->u.adamw.lr;
    qdri_rate_pieces(kernel->u.adamw.numbers);
}

static void adamw_begin(const qdri_kernel *kernel)
{
    qdri_adamw_numbers *numbers = kernel->u.adamw.numbers;
    const double scale = kernel->u.adamw.grad_scale, most = kernel->u.adamw.clip_norm;
    const double norm = sqrt(numbers->norm_squared) / scale;
    qdri_rate_pieces(numbers);
    numbers->n_begun++;
    numbers->correction1 = numbers->correction2 = 0;
    if (kernel->u.adamw.skips && !(norm < INFINITY)) return;
    numbers->n_steps++;
    numbers->factor = (most > 0 && norm > most ? most / norm : 1) / scale;
    numbers->correction1 = 1 / (1 - pow(kernel->u.adamw.beta1, numbers->n_steps));
    numbers->correction2 = 1 / (1 - pow(kernel->u.adamw.beta2, numbers->n_steps));
}

static void adamw(const qdri_kernel *kernel)
{
    const qdri_adamw_numbers *numbers = kernel->u.adamw.numbers;
    const real factor = (real)numbers->factor;
    const real beta1 = (real)kernel->u.adamw.beta1;
    const real beta2 = (real)kernel->u.adamw.beta2;
    const real rest1 = (real)(1 - kernel->u.adamw.beta1);
    const real rest2 = (real)(1 - kernel->u.adamw.beta2);
    const real correction1 = (real)numbers->correction1;
    const real correction2 = (real)numbers->correction2;
    const real epsilon = (real)kernel->u.adamw.epsilon;
    const real lr = (real)numbers->lr;
    const real decay = (real)kernel->u.adamw.weight_decay;
    const real *g = kernel->u.adamw.g;
    real *m = kernel->u.adamw.m;
    real *v = kernel->u.adamw.v;
    elem *p = kernel->u.adamw.p;
    real *master = ELEM_IS_REAL ? kernel->u.adamw.p : kernel->u.adamw.master;
    if (numbers->correction1 == 0) return;
    SIMD for (int64_t i = 0; i < kernel->u.adamw.n; i++)
    {
        const real gi = g[i] * factor;
        const real mi = beta1 * m[i] + rest1 * gi;
        const real vi = beta2 * v[i] + rest2 * (gi * gi);
        const real step = mi * correction1 / (real_sqrt(vi * correction2) + epsilon);
        /* A parameter that is not its rounded master was initialised or loaded since. */
        const real now = ELEM_IS_REAL || put(master[i]) == p[i] ? master[i] : get(p[i]);
        const real next = now - lr * (step + decay * now);
        m[i] = mi;
        v[i] = vi;
        master[i] = next;
        if (!ELEM_IS_REAL) p[i] = put(next);
    }
}
