/* SPDX-License-Identifier: Apache-2.0 */
/* The recorded accesses of kernels compared with what the CPU's kernels do: bytes that change are recorded as written,
 * and results depend only on what is recorded as read. And with the table of operands (lib/core/operands.h). */
#include "test_fake.h"

#include "accesses.h"
#include "dev/cuda/kernels/launch.h"
#include "internal.h"
#include "kernel_cases.h"

/* ---- the launcher ---- */

static int n_launched;

cudaError_t qdri_cuda_launch_body(const qdri_kernel *kernel, const qdri_cuda_target *target);

cudaError_t qdri_cuda_launch_body(const qdri_kernel *kernel, const qdri_cuda_target *target)
{
    (void)kernel;
    (void)target;
    n_launched++;
    return cudaSuccess;
}

cudaError_t qdri_cuda_round_body(const qdri_cuda_rounded *rounded, int n_sms, cudaStream_t stream);

cudaError_t qdri_cuda_round_body(const qdri_cuda_rounded *rounded, int n_sms, cudaStream_t stream)
{
    (void)rounded;
    (void)n_sms;
    (void)stream;
    n_launched++;
    return cudaSuccess;
}

cudaError_t qdri_cuda_launch_stamp_body(int64_t *nanosecs, cudaStream_t stream);

cudaError_t qdri_cuda_launch_stamp_body(int64_t *nanosecs, cudaStream_t stream)
{
    (void)nanosecs;
    (void)stream;
    n_launched++;
    return cudaSuccess;
}

FAKE_TEST(test_launch)
{
    cudaStream_t stream = new_stream(), other = new_stream();
    float *x = new_memory(32), *y = new_memory(32);
    const qdri_kernel kernel = {
        .kind = QDRI_K_CAST, .dtype = QDR_F32, .u.binary = {.n = 8, .a = x, .y = y, .dtype2 = QDR_F32}};
    const qdri_cuda_target here = {.n_sms = 8, .stream = stream};
    const qdri_cuda_target there = {.n_sms = 8, .stream = other};
    n_launched = 0;
    REPORTS(FAKE_UNWRITTEN, OK(qdri_cuda_launch(&kernel, &here)));
    OK(cudaMemsetAsync(x, 0, 32, stream));
    QUIET(OK(qdri_cuda_launch(&kernel, &here)));
    REPORTS(FAKE_RACE, qdri_cuda_launch(&kernel, &there));
    assert_int_equal(n_launched, 3);
    OK(cudaDeviceSynchronize());
    OK(cudaFree(x));
    REPORTS(FAKE_USE_AFTER_FREE, GIVES(qdri_cuda_launch(&kernel, &here), cudaErrorIllegalAddress));
    assert_int_equal(n_launched, 3);
}

/* Rows with gaps that nobody wrote; the result has whole rows of 16 steps. */
FAKE_TEST(test_round)
{
    enum { HEIGHT = 3, WIDTH = 5, STRIDE = 7, PADDED = 16, X_BYTES = HEIGHT * STRIDE * 4 };
    cudaStream_t stream = new_stream();
    char *x = new_memory(X_BYTES), *y = new_memory(HEIGHT * PADDED);
    void *parts = new_memory(QDRI_CUDA_FP8_PARTS * 4), *back = new_memory(4);
    qdri_cuda_rounded r = {.x = x,
                           .dtype = QDR_F32,
                           .n_rows = HEIGHT,
                           .n_cols = WIDTH,
                           .stride = STRIDE,
                           .rounding = QDRI_E4M3,
                           .y = y,
                           .y_stride = PADDED,
                           .parts = parts,
                           .back = back};
    REPORTS(FAKE_UNWRITTEN, OK(qdri_cuda_round(&r, 8, stream)));
    OK(cudaMemset2DAsync(x, STRIDE * 4, 0, WIDTH * 4, HEIGHT, stream));
    n_launched = 0;
    QUIET(OK(qdri_cuda_round(&r, 8, stream)));
    assert_int_equal(n_launched, 1);
    r.is_widened = 1;
    REPORTS(FAKE_OUT_OF_BOUNDS, (void)qdri_cuda_round(&r, 8, stream));
    r.is_widened = 0;
    r.is_turned = 1; /* five rows */
    REPORTS(FAKE_OUT_OF_BOUNDS, (void)qdri_cuda_round(&r, 8, stream));
    OK(cudaDeviceSynchronize());
}

/* ---- kernels ---- */

static qdri_dev *dev;
static qdr_stream *cpu_stream;

static void run_on_cpu(const qdri_kernel *kernel)
{
    CHECK_OK(qdri_kernel_run(cpu_stream, kernel));
    CHECK_OK(qdri_stream_synchronize(cpu_stream));
}

/* Which bytes of the arena some access of these kinds has. */
static void mark(const fake_kernel_accesses *found, const kernel_case *c, unsigned kinds, unsigned char *marks)
{
    memset(marks, 0, sizeof c->arena);
    for (int i = 0; i < found->n; i++) {
        const fake_access *a = &found->all[i];
        if (!(kinds >> a->kind & 1)) continue;
        for (int64_t r = 0; r < a->n_rows; r++) {
            const size_t at = (size_t)((const unsigned char *)a->begin - c->arena) + (size_t)r * a->stride_bytes;
            assert_true(at + a->row_bytes <= c->used);
            memset(marks + at, 1, a->row_bytes);
        }
    }
}

static size_t type_bytes(const qdri_kernel *kernel, qdri_operand_type type)
{
    switch (type) {
    case QDRI_OPERAND_T: return qdr_dtype_bytes(kernel->dtype);
    case QDRI_OPERAND_A: return qdr_dtype_bytes(sums_of(kernel->dtype));
    case QDRI_OPERAND_DTYPE2: return qdr_dtype_bytes(kernel->u.binary.dtype2);
    case QDRI_OPERAND_I32: return sizeof(int32_t);
    case QDRI_OPERAND_F64: return sizeof(double);
    default: return 1;
    }
}

/* The kernel touches only some of it: positions that its rows meet, numbers of a step, a workspace. */
static int is_touched_in_part(qdri_kernel_kind kind, const qdri_operand *operand)
{
    if (kind == QDRI_K_POSITION_ADD || kind == QDRI_K_POSITION_SUM) return operand->extent == QDRI_PER_TABLE;
    if (operand->extent == QDRI_PER_WORK) return 1;
    return kind >= QDRI_K_ADAMW_RATE && kind <= QDRI_K_ADAMW && operand->extent == QDRI_PER_CALL;
}

/* Which bytes the table says are written, or read; 2: perhaps. */
static void mark_operands(const kernel_case *c, int written, unsigned char *marks)
{
    const qdri_operand *all;
    const int n = qdri_kernel_operands(c->kernel.kind, &all);
    memset(marks, 0, sizeof c->arena);
    for (int i = 0; i < n; i++) {
        const qdri_operand_use use = all[i].use;
        const int is_read = use == QDRI_OPERAND_READ || use == QDRI_OPERAND_UPDATED ||
                            (use == QDRI_OPERAND_SUMMED && c->kernel.accumulate);
        const unsigned char *begin = qdri_operand_pointer(&c->kernel, &all[i]);
        if (!begin || !(written ? use != QDRI_OPERAND_READ : is_read)) continue;
        const size_t at = (size_t)(begin - c->arena), elem_bytes = type_bytes(&c->kernel, all[i].type);
        const size_t bytes = (size_t)qdri_operand_elems(&c->kernel, &all[i]) * elem_bytes;
        assert_true(at + bytes <= c->used);
        memset(marks + at, is_touched_in_part(c->kernel.kind, &all[i]) ? 2 : 1, bytes);
    }
}

/* The table agrees with the accesses; it has no strides. */
static void check_operands(const kernel_case *c, const fake_kernel_accesses *found)
{
    static const unsigned kinds[] = {1u << FAKE_READ | 1u << FAKE_READ_COPY, 1u << FAKE_WRITE | 1u << FAKE_SCRATCH};
    static unsigned char recorded[CASE_BYTES], said[CASE_BYTES];
    const qdri_operand *all;
    if (!qdri_kernel_operands(c->kernel.kind, &all)) return;
    if (c->kernel.kind == QDRI_K_COPY_BLOCK && c->kernel.u.block.y_stride > c->kernel.u.block.row_bytes) return;
    if (qdri_family_of(c->kernel.kind) == QDRI_OF_NORM && c->kernel.u.norm.stride > c->kernel.u.norm.n_cols) return;
    for (int written = 0; written < 2; written++) {
        mark(found, c, kinds[written], recorded);
        mark_operands(c, written, said);
        for (size_t i = 0; i < c->used; i++) {
            if (recorded[i] ? said[i] : said[i] != 1) continue;
            print_error("%s, case %d: byte %zu is %s%s, but its operands say otherwise\n", found->name, c->number, i,
                        recorded[i] ? "" : "not ", written ? "written" : "read");
            fail();
        }
    }
}

FIXTURE(open_dev)
{
    CHECK_OK(qdri_dev_create_cpu(1, &dev));
    CHECK_OK(qdri_stream_create(dev, QDRI_STREAM_COMPUTE, &cpu_stream));
    return 0;
}

FIXTURE(close_dev)
{
    qdri_stream_destroy(&cpu_stream);
    qdri_dev_destroy(&dev);
    return 0;
}

/* What is not said to be read is disturbed: the results stay the same. What is not said to be written stays, and all
 * that is said to be written is the same in both runs. */
static void check_case(kernel_case *c)
{
    static unsigned char before[CASE_BYTES], first[CASE_BYTES];
    static unsigned char is_read[CASE_BYTES], is_written[CASE_BYTES], is_scratch[CASE_BYTES];
    fake_kernel_accesses found;
    fake_find_accesses(&c->kernel, &found);
    assert_true(found.n > 0 && found.n <= FAKE_KERNEL_ACCESSES_MOST);
    check_operands(c, &found);
    mark(&found, c, 1u << FAKE_READ | 1u << FAKE_READ_COPY, is_read);
    mark(&found, c, 1u << FAKE_WRITE, is_written);
    memset(is_scratch, 0, sizeof is_scratch);
    memset(is_scratch + c->work_begin, 1, c->work_bytes);
    memcpy(before, c->arena, c->used);
    run_on_cpu(&c->kernel);
    memcpy(first, c->arena, c->used);
    for (size_t i = 0; i < c->used; i++) {
        if (!is_written[i] && !is_scratch[i]) assert_int_equal(first[i], before[i]);
        c->arena[i] = is_read[i] ? before[i] : (unsigned char)(before[i] ^ 0x15);
    }
    run_on_cpu(&c->kernel);
    for (size_t i = 0; i < c->used; i++) {
        if (!is_written[i] || c->arena[i] == first[i]) continue;
        print_error("%s, case %d: byte %zu of %zu depends on what is not read\n", found.name, c->number, i, c->used);
        fail();
    }
}

TEST_IN(test_kernels, open_dev, close_dev)
{
    static kernel_case c;
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    for (int kind = 0; kind < QDRI_N_KERNELS; kind++) {
        if (kind == QDRI_K_REDUCE || kind == QDRI_K_TO_KEYS || kind == QDRI_K_FROM_KEYS) continue; /* no CPU has them */
        if (kind == QDRI_K_PACK || kind == QDRI_K_UNPACK) continue; /* no GPU has them */
        if (kind == QDRI_K_COPY || kind == QDRI_K_ZERO) continue; /* the device copies and fills */
        for (int i = 0; i < N_CASES * 4; i++) {
            make_case(&c, (qdri_kernel_kind)kind, dtypes[i % 4], i / 4);
            check_case(&c);
        }
    }
}

/* A result may be a source; numbers without a place are not looked for. */
TEST(test_reduce)
{
    static const char x[3][64];
    const void *sources[] = {x[0], x[1]};
    void *results[] = {(void *)(uintptr_t)x[1], (void *)(uintptr_t)x[2]};
    qdri_kernel kernel = {.kind = QDRI_K_REDUCE, .dtype = QDR_BF16};
    fake_kernel_accesses found;
    kernel.u.gather.n = 10;
    kernel.u.gather.n_sources = kernel.u.gather.n_results = 2;
    kernel.u.gather.sources = sources;
    kernel.u.gather.results = results;
    fake_find_accesses(&kernel, &found);
    assert_int_equal(found.n, 4);
    for (int i = 0; i < 4; i++) {
        assert_int_equal(found.all[i].kind, i < 2 ? FAKE_READ : FAKE_WRITE);
        assert_ptr_equal(found.all[i].begin, i < 2 ? sources[i] : results[i - 2]);
        assert_int_equal(found.all[i].row_bytes, 20);
    }
    kernel.u.gather.n = 0;
    fake_find_accesses(&kernel, &found);
    assert_int_equal(found.n, 0);
}
