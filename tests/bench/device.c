/* SPDX-License-Identifier: Apache-2.0 */
/* The overhead of the CPU device: products through it compared with the same cblas calls, and the speed of kernels.
 * Prints one line per case: median, minimum and 90th percentile of the times in µs, and the rate at the median.
 *
 *   bench_device [THREADS [ROWS COLS]] */
#include <cblas.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/operands.h"
#include "dev/dev.h"

enum { N_TRIALS = 15, CONTEXT = 128, HEADS = 4, HEAD_SIZE = 32 };
static size_t n_rows = 512, n_cols = 512;

static qdri_dev *dev;
static qdr_stream *stream;

static void check(qdr_status status)
{
    if (status == QDR_OK) return;
    fprintf(stderr, "%s: %s\n", qdr_status_name(status), qdr_last_error());
    exit(1);
}

static double now_us(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return 1e6 * (double)now.tv_sec + 1e-3 * (double)now.tv_nsec;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a;
    const double y = *(const double *)b;
    return (x > y) - (x < y);
}

static void report(const char *name, double us[N_TRIALS], double work, const char *unit)
{
    qsort(us, N_TRIALS, sizeof us[0], compare);
    const double median = us[N_TRIALS / 2];
    printf("%-28s %10.1f %10.1f %10.1f  %8.2f %s\n", name, median, us[0], us[N_TRIALS * 9 / 10], work / (1e3 * median),
           unit);
}

static void *memory(size_t bytes)
{
    void *data = NULL;
    check(qdri_mem_alloc(dev, bytes, &data));
    return data;
}

/* Small numbers of both signs. */
static float *floats(size_t n)
{
    float *data = memory(n * sizeof *data);
    for (size_t i = 0; i < n; i++) data[i] = (float)((int)(i * 2654435761u % 2001) - 1000) / 500.0f;
    return data;
}

static void bench_gemm(int m, int n, int k)
{
    float *a = floats((size_t)m * (size_t)k);
    float *b = floats((size_t)k * (size_t)n);
    float *c = floats((size_t)m * (size_t)n);
    double direct[N_TRIALS];
    double device[N_TRIALS];
    const qdri_gemm gemm = {
        .m = m, .n = n, .k = k, .a = a, .b = b, .c = c, .lda = k, .ldb = k, .ldc = n, .trans_b = 1, .alpha = 1.0};
    char name[64];
    for (int i = 0; i < N_TRIALS; i++) {
        double start = now_us();
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, n, k, 1, a, k, b, k, 0, c, n);
        direct[i] = now_us() - start;
        start = now_us();
        check(qdri_gemm_run(stream, &gemm));
        check(qdri_stream_synchronize(stream));
        device[i] = now_us() - start;
    }
    snprintf(name, sizeof name, "cblas  %dx%dx%d", m, n, k);
    report(name, direct, 2.0 * m * n * k, "GFLOP/s");
    snprintf(name, sizeof name, "device %dx%dx%d", m, n, k);
    report(name, device, 2.0 * m * n * k, "GFLOP/s");
}

/* bytes: read and written by one run of all kernels. */
static void bench_kernels(const char *name, int n_kernels, const qdri_kernel *kernels, double bytes)
{
    double us[N_TRIALS];
    const int n_runs = 20;
    for (int i = 0; i < N_TRIALS; i++) {
        const double start = now_us();
        for (int r = 0; r < n_runs * n_kernels; r++) check(qdri_kernel_run(stream, &kernels[r % n_kernels]));
        check(qdri_stream_synchronize(stream));
        us[i] = (now_us() - start) / n_runs;
    }
    report(name, us, bytes, "GB/s");
}

static void bench_kernel(const char *name, const qdri_kernel *kernel, double bytes)
{
    bench_kernels(name, 1, kernel, bytes);
}

/* What other kernels are compared with. */
static void bench_copy(void)
{
    const size_t bytes = sizeof(float) * n_rows * n_cols;
    const qdri_kernel kernel = {
        .kind = QDRI_K_COPY_BLOCK,
        .u.block = {.n_rows = 1, .row_bytes = bytes, .x = floats(n_rows * n_cols), .y = floats(n_rows * n_cols)}};
    bench_kernel("copy", &kernel, 2.0 * (double)bytes);
}

static void bench_binary(qdri_kernel_kind kind, const char *name, double n_arrays)
{
    const size_t n = n_rows * n_cols;
    qdri_kernel kernel = {.kind = kind, .dtype = QDR_F32};
    kernel.u.binary.n = (int64_t)(n_rows * n_cols);
    kernel.u.binary.a = floats(n);
    kernel.u.binary.b = floats(n);
    kernel.u.binary.y = floats(n);
    bench_kernel(name, &kernel, 4.0 * (double)n * n_arrays);
}

static void bench_activation(const char *name, qdr_activation_function function, int gated)
{
    const size_t n = n_rows * n_cols;
    const double n_in = 1 + gated;
    char text[40];
    qdri_kernel kernel = {.kind = QDRI_K_ACTIVATION_FORWARD, .dtype = QDR_F32};
    kernel.u.activation.n_rows = (int64_t)n_rows;
    kernel.u.activation.n_cols = (int64_t)n_cols;
    kernel.u.activation.function = function;
    kernel.u.activation.gated = gated;
    kernel.u.activation.x = floats(2 * n);
    kernel.u.activation.dy = floats(n);
    kernel.u.activation.y = floats(n);
    kernel.u.activation.dx = floats(2 * n);
    bench_kernel(name, &kernel, 4.0 * (double)n * (n_in + 1));
    snprintf(text, sizeof text, "%s_backward", name);
    kernel.kind = QDRI_K_ACTIVATION_BACKWARD;
    bench_kernel(text, &kernel, 4.0 * (double)n * (2 * n_in + 1));
}

static void bench_rows(qdri_kernel_kind kind, const char *name, double n_arrays)
{
    const size_t n = n_rows * n_cols;
    qdri_kernel kernel = {.kind = kind, .dtype = QDR_F32};
    kernel.u.rows.n_rows = (int64_t)n_rows;
    kernel.u.rows.n_cols = (int64_t)n_cols;
    kernel.u.rows.context = CONTEXT;
    kernel.u.rows.x = floats(n);
    kernel.u.rows.y = floats(n);
    kernel.u.rows.p = floats(n);
    bench_kernel(name, &kernel, 4.0 * (double)n * n_arrays);
}

static qdri_kernel norm_of(qdri_kernel_kind kind, int is_rms)
{
    const size_t n = n_rows * n_cols;
    qdri_kernel kernel = {.kind = kind, .dtype = QDR_F32};
    kernel.u.norm.n_rows = (int64_t)n_rows;
    kernel.u.norm.n_cols = kernel.u.norm.stride = kernel.u.norm.n_features = (int64_t)n_cols;
    kernel.u.norm.n_parts = 1;
    kernel.u.norm.is_rms = is_rms;
    kernel.u.norm.epsilon = 1e-5;
    kernel.u.norm.x = floats(n);
    kernel.u.norm.gamma = floats(n_cols);
    kernel.u.norm.beta = is_rms ? NULL : floats(n_cols);
    kernel.u.norm.dy = floats(n);
    kernel.u.norm.y = floats(n);
    kernel.u.norm.dx = floats(n);
    kernel.u.norm.stats = floats(2 * n_rows);
    kernel.u.norm.work = floats(3 * n_rows);
    kernel.u.norm.dgamma = floats(n_cols);
    kernel.u.norm.dbeta = is_rms ? NULL : floats(n_cols);
    return kernel;
}

static void bench_norm(qdri_kernel_kind kind, const char *name, int is_rms, double n_arrays)
{
    const qdri_kernel kernel = norm_of(kind, is_rms);
    bench_kernel(name, &kernel, 4.0 * (double)(n_rows * n_cols) * n_arrays);
}

/* A whole pass, which must read x and write y, or read x and dy and write dx. */
static void bench_whole_norm(const char *name, int is_rms)
{
    const double bytes = 4.0 * (double)(n_rows * n_cols);
    qdri_kernel kernels[3], forward = norm_of(QDRI_K_NORM_MOMENTS, is_rms);
    char text[40];
    for (int i = 0; i < 3; i++) kernels[i] = forward;
    kernels[1].kind = QDRI_K_NORM_MERGE;
    kernels[2].kind = QDRI_K_NORM_APPLY;
    bench_kernels(name, 3, kernels, 2 * bytes);
    kernels[0].kind = QDRI_K_NORM_SUMS;
    kernels[1].kind = QDRI_K_NORM_BACKWARD;
    snprintf(text, sizeof text, "%s_backward", name);
    bench_kernels(text, 2, kernels, 3 * bytes);
}

static void bench_ce(qdri_kernel_kind kind, const char *name, double n_arrays)
{
    const size_t n = n_rows * n_cols;
    qdri_kernel kernel = {.kind = kind, .dtype = QDR_F32};
    kernel.u.ce.n_rows = (int64_t)n_rows;
    kernel.u.ce.n_cols = (int64_t)n_cols;
    kernel.u.ce.targets = memory(n_rows * sizeof(int32_t));
    kernel.u.ce.logits = floats(n);
    kernel.u.ce.work = memory(n_rows * sizeof(float));
    kernel.u.ce.work2 = memory(2 * n_rows * sizeof(float));
    kernel.u.ce.saved = memory(2 * n_rows * sizeof(float));
    kernel.u.ce.dlogits = floats(n);
    kernel.u.ce.result = memory(2 * sizeof(double));
    kernel.u.ce.scale = 1.0;
    bench_kernel(name, &kernel, 4.0 * (double)n * n_arrays);
}

static void bench_optim(void)
{
    const size_t n = n_rows * n_cols;
    qdri_kernel squares = {.kind = QDRI_K_SUM_SQUARES, .dtype = QDR_F32};
    qdri_kernel adamw = {.kind = QDRI_K_ADAMW, .dtype = QDR_F32};
    squares.u.reduce.n = adamw.u.adamw.n = (int64_t)n;
    squares.u.reduce.a = adamw.u.adamw.g = floats(n);
    squares.u.reduce.result = memory(sizeof(double));
    adamw.u.adamw.p = floats(n);
    adamw.u.adamw.m = memory(n * sizeof(float));
    adamw.u.adamw.v = memory(n * sizeof(float));
    adamw.u.adamw.numbers = memory(sizeof *adamw.u.adamw.numbers);
    adamw.u.adamw.beta1 = 0.9;
    adamw.u.adamw.beta2 = 0.95;
    adamw.u.adamw.epsilon = 1e-8;
    *adamw.u.adamw.numbers = (qdri_adamw_numbers){
        .n_steps = 2, .lr = 1e-4, .factor = 1, .correction1 = 1, .correction2 = 1};
    bench_kernel("sum_squares", &squares, 4.0 * (double)n);
    bench_kernel("adamw", &adamw, 4.0 * (double)n * 7);
}

static qdri_kernel attention_of(qdri_kernel_kind kind)
{
    const size_t width = (size_t)HEADS * HEAD_SIZE;
    qdri_kernel kernel = {.kind = kind, .dtype = QDR_F32};
    kernel.u.attention.n_rows = (int64_t)n_rows;
    kernel.u.attention.context = kernel.u.attention.window = CONTEXT;
    kernel.u.attention.scale = 0.17677669529663687; /* 1 / sqrt(HEAD_SIZE) */
    kernel.u.attention.n_heads = kernel.u.attention.n_kv_heads = HEADS;
    kernel.u.attention.head_size = HEAD_SIZE;
    kernel.u.attention.rotation = floats((size_t)CONTEXT * HEAD_SIZE);
    kernel.u.attention.rotary_columns = HEAD_SIZE; /* for the workspace */
    kernel.u.attention.qkv = floats(n_rows * width * 3);
    kernel.u.attention.y = floats(n_rows * width);
    kernel.u.attention.dy = floats(n_rows * width);
    kernel.u.attention.saved = floats((size_t)n_rows * HEADS);
    kernel.u.attention.work = memory(qdri_attention_work_bytes(&kernel));
    kernel.u.attention.out = kind == QDRI_K_ATTENTION_FORWARD ? (void *)(uintptr_t)kernel.u.attention.y
                                                              : (void *)floats(n_rows * width * 3);
    kernel.u.attention.rotary_columns = 0;
    return kernel;
}

static void bench_attention(void)
{
    const double bytes = 4.0 * (double)n_rows * HEADS * HEAD_SIZE;
    const qdri_kernel forward = attention_of(QDRI_K_ATTENTION_FORWARD),
                      backward = attention_of(QDRI_K_ATTENTION_BACKWARD);
    bench_kernel("attention_forward", &forward, bytes * 4);
    bench_kernel("attention_backward", &backward, bytes * 8);
}

/* What it takes to load queries and keys turned: the difference between attention with and without rotary positions.
 * Both are read and written, and so is a row of the table for each row of a head. */
static void bench_turns(const char *name, int interleaved)
{
    double us[N_TRIALS];
    const int n_runs = 20;
    qdri_kernel kernels[2] = {attention_of(QDRI_K_ATTENTION_FORWARD)};
    kernels[1] = kernels[0];
    kernels[1].u.attention.rotary_columns = HEAD_SIZE;
    kernels[1].u.attention.interleaved = interleaved;
    for (int i = 0; i < N_TRIALS; i++) {
        us[i] = 0;
        for (int r = 0; r < 2 * n_runs; r++) {
            const double start = now_us();
            check(qdri_kernel_run(stream, &kernels[r % 2]));
            check(qdri_stream_synchronize(stream));
            us[i] += (r % 2 ? 1 : -1) * (now_us() - start) / n_runs;
        }
    }
    report(name, us, 4.0 * 2 * (double)n_rows * HEADS * HEAD_SIZE * 3, "GB/s");
}

static qdr_status nothing_run(void *args)
{
    (void)args;
    return QDR_OK;
}

/* One stream waits for the other and the other for it: the time of one hand-off from thread to thread. */
static void bench_handoff(void)
{
    enum { N_HOPS = 400 };
    double us[N_TRIALS];
    qdr_stream *streams[2] = {stream, NULL};
    qdr_event *events[2];
    check(qdri_stream_create(dev, QDRI_STREAM_COMM, &streams[1]));
    for (int i = 0; i < 2; i++) check(qdri_event_create(dev, &events[i]));
    for (int t = 0; t < N_TRIALS; t++) {
        const double start = now_us();
        for (int i = 0; i < N_HOPS; i++) {
            check(qdri_stream_wait(streams[i % 2], events[1 - i % 2]));
            check(qdri_work(streams[i % 2], nothing_run, NULL, 0));
            check(qdri_event_record(events[i % 2], streams[i % 2]));
        }
        for (int i = 0; i < 2; i++) check(qdri_stream_synchronize(streams[i]));
        us[t] = (now_us() - start) / N_HOPS;
    }
    report("hand-off", us, 1e6, "k/s");
    for (int i = 0; i < 2; i++) qdri_event_destroy(&events[i]);
    qdri_stream_destroy(&streams[1]);
}

int main(int argc, char **argv)
{
    const int n_threads = argc > 1 ? atoi(argv[1]) : 1;
    if (argc > 3) {
        n_rows = strtoul(argv[2], NULL, 10);
        n_cols = strtoul(argv[3], NULL, 10);
    }
    check(qdri_dev_create_cpu(n_threads, &dev));
    check(qdri_stream_create(dev, QDRI_STREAM_COMPUTE, &stream));
    printf("%d BLAS threads, %d trials; kernels on [%zu, %zu] f32\n", n_threads, N_TRIALS, n_rows, n_cols);
    printf("%-28s %10s %10s %10s\n", "case", "median us", "least", "p90");
    bench_copy();
    bench_binary(QDRI_K_ADD, "add", 3);
    bench_activation("gelu", QDR_GELU_TANH, 0);
    bench_activation("gelu_erf", QDR_GELU_ERF, 0);
    bench_activation("silu", QDR_SILU, 0);
    bench_activation("silu_gate", QDR_SILU, 1);
    bench_activation("gelu_gate", QDR_GELU_TANH, 1);
    bench_activation("relu_squared", QDR_RELU_SQUARED, 0);
    bench_rows(QDRI_K_BIAS_ADD, "bias_add", 2);
    bench_rows(QDRI_K_COLUMN_SUM, "column_sum", 1);
    bench_rows(QDRI_K_POSITION_ADD, "position_add", 3);
    for (int is_rms = 0; is_rms < 2; is_rms++) {
        bench_norm(QDRI_K_NORM_MOMENTS, is_rms ? "rms_moments" : "norm_moments", is_rms, 1);
        bench_norm(QDRI_K_NORM_APPLY, is_rms ? "rms_apply" : "norm_apply", is_rms, 2);
        bench_norm(QDRI_K_NORM_SUMS, is_rms ? "rms_sums" : "norm_sums", is_rms, 2);
        bench_norm(QDRI_K_NORM_BACKWARD, is_rms ? "rms_backward" : "norm_backward", is_rms, 3);
    }
    bench_whole_norm("layer_norm", 0);
    bench_whole_norm("rms_norm", 1);
    bench_ce(QDRI_K_CE_MAX, "ce_max", 1);
    bench_ce(QDRI_K_CE_SUMS, "ce_sums", 1);
    bench_ce(QDRI_K_CE_BACKWARD, "ce_backward", 2);
    bench_optim();
    bench_attention();
    bench_turns("attention_turned", 0);
    bench_turns("attention_interleaved", 1);
    bench_handoff();
    bench_gemm(512, 512, 128);
    bench_gemm(4096, 4096, 1024);
    qdri_stream_destroy(&stream);
    return 0;
}
