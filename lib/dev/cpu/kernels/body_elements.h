/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels: sums, casts. Outputs may be inputs. */

#define ADD_LOOP(type, load)                                                                                           \
    {                                                                                                                  \
        const type *b = kernel->u.binary.b;                                                                            \
        SIMD for (int64_t i = 0; i < n; i++) y[i] = put(get(a[i]) + factor * (real)load(b[i]));                        \
    }

#define SAME(x) (x)

static void add(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.binary.n;
    const real factor = (real)qdri_factor_of(kernel);
    const elem *a = kernel->u.binary.a;
    elem *y = kernel->u.binary.y;
    switch (kernel->u.binary.dtype2) {
    case QDR_F64: ADD_LOOP(double, SAME) break;
    case QDR_BF16: ADD_LOOP(uint16_t, qdri_bf16_load) break;
    case QDR_F16: ADD_LOOP(uint16_t, qdri_f16_load) break;
    default: ADD_LOOP(float, SAME) break;
    }
}

enum { SUM_BLOCK = 512 }; /* elements that stay in the L1 cache */

static void sum_block(const elem *x, int64_t stride, int n_parts, int64_t n, elem *y)
{
    real sum[SUM_BLOCK];
    SIMD for (int64_t i = 0; i < n; i++) sum[i] = get(x[i]);
    for (int part = 1; part < n_parts; part++) row_sum(n, sum, x + part * stride);
    SIMD for (int64_t i = 0; i < n; i++) y[i] = put(sum[i]);
}

static void sum_parts(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.parts.n;
    const span cols = span_of(kernel, n);
    const elem *x = (const elem *)kernel->u.parts.x + cols.first;
    elem *y = (elem *)kernel->u.parts.y + cols.first;
    for (int64_t at = 0; at < cols.n; at += SUM_BLOCK)
        sum_block(x + at, n, kernel->u.parts.n_parts, cols.n - at < SUM_BLOCK ? cols.n - at : SUM_BLOCK, y + at);
}

#define CAST_LOOP(type, store)                                                                                         \
    {                                                                                                                  \
        type *y = kernel->u.binary.y;                                                                                  \
        SIMD for (int64_t i = 0; i < n; i++) y[i] = store(get(a[i]));                                                  \
    }

#define TO_F32(x) ((float)(x))
#define TO_F64(x) ((double)(x))
#define TO_BF16(x) qdri_bf16_round((float)(x))
#define TO_F16(x) qdri_f16_round((float)(x))

static void cast(const qdri_kernel *kernel)
{
    const int64_t n = kernel->u.binary.n;
    const elem *a = kernel->u.binary.a;
    if (kernel->u.binary.dtype2 == kernel->dtype) {
        row_scale(n, kernel->u.binary.y, a, (real)qdri_factor_of(kernel));
        return;
    }
    switch (kernel->u.binary.dtype2) {
    case QDR_F64: CAST_LOOP(double, TO_F64) break;
    case QDR_BF16: CAST_LOOP(uint16_t, TO_BF16) break;
    case QDR_F16: CAST_LOOP(uint16_t, TO_F16) break;
    default: CAST_LOOP(float, TO_F32) break;
    }
}

static void copy_block(const qdri_kernel *kernel)
{
    const size_t bytes = kernel->u.block.row_bytes;
    const char *x = kernel->u.block.x;
    char *y = kernel->u.block.y;
    if (bytes == 0) return;
    for (int64_t r = 0; r < kernel->u.block.n_rows; r++)
        memcpy(y + (size_t)r * kernel->u.block.y_stride, x + (size_t)r * kernel->u.block.x_stride, bytes);
}
