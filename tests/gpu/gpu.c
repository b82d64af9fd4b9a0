/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the measurements on a GPU. */
#include "gpu.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "quadrille/cuda.h"

_Noreturn void gpu_end(int code)
{
    fflush(NULL);
    _Exit(code);
}

_Noreturn void gpu_leave(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    gpu_end(1);
}

void gpu_check(qdr_status status, const char *call)
{
    if (status < QDR_OK) gpu_leave("%s: %s", call, qdr_last_error());
}

void gpu_check_cuda(cudaError_t error, const char *call)
{
    if (error != cudaSuccess) gpu_leave("%s: %s", call, cudaGetErrorString(error));
}

void gpu_check_lt(cublasStatus_t error, const char *call)
{
    if (error != CUBLAS_STATUS_SUCCESS) gpu_leave("%s: %s", call, cublasLtGetStatusName(error));
}

gpu_place gpu_open(void)
{
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .device = "cuda"};
    const qdr_grid_opts alone = {QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = 1};
    gpu_place place;
    OK(qdr_context_create_self(&opts, &place.ctx));
    OK(qdr_grid_create(place.ctx, &alone, &place.grid));
    place.stream = qdr_stream_cuda(qdr_context_stream(place.ctx));
    return place;
}

void gpu_close(gpu_place *place)
{
    qdr_grid_destroy(&place->grid);
    qdr_context_destroy(&place->ctx);
}

void gpu_wait(const gpu_place *place) { OK(qdr_stream_synchronize(qdr_context_stream(place->ctx))); }

/* ---- numbers ---- */

void *gpu_memory(const gpu_place *place, int64_t n, qdr_dtype dtype)
{
    void *data;
    OK(qdr_mem_alloc(place->ctx, (size_t)n * qdr_dtype_bytes(dtype), &data));
    return data;
}

static void *host_memory(int64_t n, qdr_dtype dtype)
{
    void *host = malloc((size_t)n * qdr_dtype_bytes(dtype) + 1);
    if (!host) gpu_leave("no memory on the host for %lld numbers", (long long)n);
    return host;
}

/* The sum of four uniform numbers of 16 bits is nearly normal, and costs one step of splitmix64. */
static float random_number(uint64_t *state, double deviation)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    z ^= z >> 31;
    const uint64_t sum = (z & 0xffff) + (z >> 16 & 0xffff) + (z >> 32 & 0xffff) + (z >> 48);
    return (float)(deviation * 1.7320508 * ((double)sum * 0x1p-16 - 2));
}

static uint16_t bf16_of(float number)
{
    uint32_t bits;
    memcpy(&bits, &number, sizeof bits);
    return (uint16_t)((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

static double value_of(const void *data, int64_t i, qdr_dtype dtype)
{
    if (dtype == QDR_F32) return (double)((const float *)data)[i];
    const uint32_t bits = (uint32_t)((const uint16_t *)data)[i] << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return (double)value;
}

void gpu_fill(const gpu_place *place, void *data, int64_t n, qdr_dtype dtype, double deviation)
{
    static uint64_t state = 1;
    void *host = host_memory(n, dtype);
    for (int64_t i = 0; i < n; i++) {
        const float number = random_number(&state, deviation);
        if (dtype == QDR_F32)
            ((float *)host)[i] = number;
        else
            ((uint16_t *)host)[i] = bf16_of(number);
    }
    OK(qdr_copy(place->ctx, data, host, (size_t)n * qdr_dtype_bytes(dtype), NULL));
    gpu_wait(place);
    free(host);
}

void *gpu_random(const gpu_place *place, int64_t n, qdr_dtype dtype, double deviation)
{
    void *data = gpu_memory(place, n, dtype);
    gpu_fill(place, data, n, dtype, deviation);
    return data;
}

double gpu_distance(const gpu_place *place, const void *a, const void *b, int64_t n, qdr_dtype dtype)
{
    const size_t bytes = (size_t)n * qdr_dtype_bytes(dtype);
    void *left = host_memory(n, dtype), *right = host_memory(n, dtype);
    double difference = 0, size = 0;
    OK(qdr_copy(place->ctx, left, a, bytes, NULL));
    OK(qdr_copy(place->ctx, right, b, bytes, NULL));
    gpu_wait(place);
    for (int64_t i = 0; i < n; i++) {
        const double x = value_of(left, i, dtype), y = value_of(right, i, dtype);
        difference += (x - y) * (x - y);
        size += y * y;
    }
    free(left);
    free(right);
    return size > 0 ? sqrt(difference / size) : INFINITY;
}

/* ---- times ---- */

gpu_marks gpu_marks_make(cudaStream_t stream)
{
    gpu_marks marks = {.stream = stream};
    for (int i = 0; i < 64; i++) CUDA_OK(cudaEventCreate(&marks.events[i]));
    return marks;
}

void gpu_marks_free(gpu_marks *marks)
{
    for (int i = 0; i < 64; i++) CUDA_OK(cudaEventDestroy(marks->events[i]));
}

void gpu_marks_reset(gpu_marks *marks) { marks->n = 0; }

void gpu_mark(gpu_marks *marks)
{
    if (marks->n == 64) gpu_leave("more than 64 marks");
    CUDA_OK(cudaEventRecord(marks->events[marks->n++], marks->stream));
}

void gpu_marks_wait(const gpu_marks *marks) { CUDA_OK(cudaEventSynchronize(marks->events[marks->n - 1])); }

double gpu_between(const gpu_marks *marks, int i)
{
    float ms;
    CUDA_OK(cudaEventElapsedTime(&ms, marks->events[i], marks->events[i + 1]));
    return (double)ms;
}

double gpu_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return 1e6 * (double)t.tv_sec + 1e-3 * (double)t.tv_nsec;
}
