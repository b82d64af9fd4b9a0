/* SPDX-License-Identifier: Apache-2.0 */
/* Element-wise kernels of the CPU device, for the machine's best instruction set. */
#include "dev/cpu/kernels/kernels.h"

#include "core/codec_format.h"
#include "core/environment.h"
#include "core/size.h"
#include "dev/cpu/cpu.h"
#include "dev/cpu/narrow.h"
#include "dev/rates.h"
#include "quadrille/convert.h"

typedef struct kernel_set {
    const qdri_kernel_fn *f32, *f64, *bf16, *f16, *codec;
} kernel_set;

#define KERNEL_SET(isa)                                                                                                \
    ((kernel_set){qdri_kernels_f32_##isa, qdri_kernels_f64_##isa, qdri_kernels_bf16_##isa, qdri_kernels_f16_##isa,     \
                  qdri_codec_kernels_##isa})

static int machine_has(int set)
{
#ifdef __x86_64__
    if (set == QDRI_KERNELS_AVX512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
               __builtin_cpu_supports("fma");
    if (set == QDRI_KERNELS_AVX2) return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return set == QDRI_KERNELS_BASE;
}

static atomic_int best_set = QDRI_KERNELS_AS_TOLD;

/* Contexts refuse a value that is not understood. */
static int read_limit(void)
{
    static const int sets[] = {QDRI_KERNELS_AVX512, QDRI_KERNELS_AVX2, QDRI_KERNELS_BASE};
    int choice;
    return qdri_environment_choice(QDRI_VARIABLE_KERNELS, &choice) == QDR_OK ? sets[choice] : sets[0];
}

int qdri_cpu_kernels_limit(int set)
{
    atomic_store(&best_set, set);
    return machine_has(set);
}

int qdri_cpu_kernels_best(void)
{
    int set = atomic_load(&best_set);
    if (set == QDRI_KERNELS_AS_TOLD) atomic_store(&best_set, set = read_limit());
    while (set > QDRI_KERNELS_BASE && !machine_has(set)) set--;
    return set;
}

static qdri_kernel_fn find_kernel(const qdri_kernel *kernel)
{
    kernel_set kernels = KERNEL_SET(base);
#ifdef __x86_64__
    const int set = qdri_cpu_kernels_best();
    if (set == QDRI_KERNELS_AVX512) kernels = KERNEL_SET(avx512);
    if (set == QDRI_KERNELS_AVX2) kernels = KERNEL_SET(avx2);
#endif
    if (kernels.codec[kernel->kind]) return kernels.codec[kernel->kind];
    if (kernel->dtype == QDR_F64) return kernels.f64[kernel->kind];
    if (kernel->dtype == QDR_BF16) return kernels.bf16[kernel->kind];
    if (kernel->dtype == QDR_F16) return kernels.f16[kernel->kind];
    return kernels.f32[kernel->kind];
}

static void cast(qdr_dtype from, const void *a, qdr_dtype to, void *y, int64_t n)
{
    qdri_kernel kernel = {.kind = QDRI_K_CAST, .dtype = from};
    kernel.u.binary.n = n;
    kernel.u.binary.a = a;
    kernel.u.binary.y = y;
    kernel.u.binary.dtype2 = to;
    find_kernel (&kernel)(&kernel);
}

void qdri_widen(qdr_dtype dtype, float *to, const uint16_t *from, int64_t n) { cast(dtype, from, QDR_F32, to, n); }

void qdri_narrow(qdr_dtype dtype, uint16_t *to, const float *from, int64_t n) { cast(QDR_F32, from, dtype, to, n); }

void qdr_bf16_from_f32(uint16_t *to, const float *from, int64_t n) { qdri_narrow(QDR_BF16, to, from, n); }
void qdr_f32_from_bf16(float *to, const uint16_t *from, int64_t n) { qdri_widen(QDR_BF16, to, from, n); }
void qdr_f16_from_f32(uint16_t *to, const float *from, int64_t n) { qdri_narrow(QDR_F16, to, from, n); }
void qdr_f32_from_f16(float *to, const uint16_t *from, int64_t n) { qdri_widen(QDR_F16, to, from, n); }

/* An id beyond the vocabulary belongs to no rank; undetected, its row would be treated like another one. The maximum is
 * found at memory speed, the row only if it is wrong. */
static qdr_status ids_check(const char *what, const int32_t *ids, int64_t n, int64_t vocab)
{
    int32_t limit = -1;
    for (int64_t row = 0; row < n; row++) limit = ids[row] > limit ? ids[row] : limit;
    if (vocab == 0 || limit < vocab) return QDR_OK;
    int64_t row = 0;
    while (ids[row] < vocab) row++;
    return qdri_fail_id(what, row, ids[row], vocab);
}

static qdr_status first_keys_check(const int32_t *first_keys, int64_t n, int64_t context)
{
    for (int64_t row = 0; first_keys && row < n; row++) {
        const int64_t most = row % context;
        const int32_t least = most ? first_keys[row - 1] : 0;
        if (first_keys[row] < least || first_keys[row] > most)
            return qdri_fail_first_key(row, first_keys[row], least, most);
    }
    return QDR_OK;
}

static qdr_status kernel_ids_check(const qdri_kernel *kernel)
{
    switch (kernel->kind) {
    case QDRI_K_EMBED_FORWARD:
    case QDRI_K_EMBED_BACKWARD:
        return ids_check(QDRI_ID_TOKEN, kernel->u.embed.tokens, kernel->u.embed.n_rows, kernel->u.embed.vocab);
    case QDRI_K_CE_SUMS:
    case QDRI_K_CE_BACKWARD:
        return ids_check(QDRI_ID_TARGET, kernel->u.ce.targets, kernel->u.ce.n_rows, kernel->u.ce.vocab);
    case QDRI_K_ATTENTION_FORWARD:
    case QDRI_K_ATTENTION_BACKWARD:
        return first_keys_check(kernel->u.attention.first_keys, kernel->u.attention.n_rows,
                                kernel->u.attention.context);
    default: return QDR_OK;
    }
}

/* Whether a message of the lossless codec can be unpacked: its blocks add up to its bytes. */
static qdr_status message_check(const qdri_kernel *kernel)
{
    const unsigned char *wire = kernel->u.codec.wire;
    const size_t each = qdr_dtype_bytes(kernel->dtype);
    const int64_t most = (int64_t)kernel->u.codec.stride;
    const int64_t n_bytes = kernel->u.codec.n_bytes ? *kernel->u.codec.n_bytes : most;
    int64_t at = 0, left = kernel->u.codec.n;
    while (left > 0 && !(most > 0 && n_bytes > most)) {
        const int64_t n = qdri_least(left, QDRI_LOSSLESS_BLOCK);
        const int how = at + QDRI_LOSSLESS_HEADER <= n_bytes ? wire[at + 1] : -1;
        const int is_known = how == QDRI_LOSSLESS_PLAIN || (how == QDRI_LOSSLESS_PACKED && n == QDRI_LOSSLESS_BLOCK);
        if (!is_known) break;
        at += (int64_t)qdri_lossless_bytes(how, each, n);
        left -= n;
    }
    if (left == 0 && at == n_bytes) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT,
                    "unpacking: the message of %" PRId64 " bytes is none of %" PRId64 " elements from byte %" PRId64
                    " on: its sender had another number of them (QDR_CHECK=1 names both calls), or it is damaged",
                    n_bytes, kernel->u.codec.n, at);
}

typedef struct kernel_args {
    qdri_kernel kernel;
    qdri_kernel_fn run;
    qdri_cpu_dev *dev;
} kernel_args;

static int is_attention(const qdri_kernel *kernel)
{
    return kernel->kind == QDRI_K_ATTENTION_FORWARD || kernel->kind == QDRI_K_ATTENTION_BACKWARD;
}

static qdr_status kernel_run(void *args)
{
    const kernel_args *self = args;
    const qdri_kernel_kind kind = self->kernel.kind;
    QDR_TRY(kernel_ids_check(&self->kernel));
    if (kind == QDRI_K_UNPACK) QDR_TRY(message_check(&self->kernel));
    if (kind == QDRI_K_ADAMW_BEGIN && qdri_rates_differ(self->kernel.u.adamw.numbers, self->kernel.u.adamw.n_ranks))
        return qdri_fail_rate(self->kernel.u.adamw.numbers->lr);
    if (!is_attention(&self->kernel)) return qdri_cpu_run_parts(self->dev, &self->kernel, self->run);
    qdri_address_space_use();
    if (qdri_attention_takes_onednn(&self->kernel)) qdri_onednn_alone();
    qdri_blas_begin(1);
    const qdr_status status = qdri_cpu_run_parts(self->dev, &self->kernel, self->run);
    qdri_blas_end();
    return status;
}

qdr_status qdri_cpu_kernel(qdr_stream *stream, const qdri_kernel *kernel)
{
    if (kernel->kind == QDRI_K_REDUCE || kernel->kind == QDRI_K_TO_KEYS || kernel->kind == QDRI_K_FROM_KEYS)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "reduction: on the CPU, communicators compute it themselves");
    const kernel_args args = {*kernel, find_kernel(kernel), (qdri_cpu_dev *)stream->dev};
    _Static_assert(sizeof args <= QDRI_WORK_BYTES, "a kernel's arguments fit into a work item");
    if (is_attention(kernel) && qdri_attention_takes_onednn(kernel))
        return qdri_cpu_enqueue_own(stream, kernel_run, &args, sizeof args);
    return qdri_cpu_enqueue(stream, kernel_run, NULL, &args, sizeof args);
}

size_t qdri_cpu_kernel_bytes(qdr_stream *stream, const qdri_kernel *kernel)
{
    const int n_threads = ((const qdri_cpu_dev *)stream->dev)->n_threads;
    return is_attention(kernel) ? qdri_cpu_attention_bytes(kernel, n_threads) : 0;
}

void qdri_cpu_reserve_kernel(qdr_stream *stream, size_t bytes)
{
    qdri_cpu_dev *dev = (qdri_cpu_dev *)stream->dev;
    void *work;
    if (bytes <= dev->work_bytes || qdri_mem_alloc_for(&dev->base, "attention", bytes, &work) != QDR_OK) return;
    pthread_mutex_lock(&dev->work_lock);
    qdri_mem_free(&dev->base, &dev->work);
    dev->work = work;
    dev->work_bytes = bytes;
    pthread_mutex_unlock(&dev->work_lock);
}
