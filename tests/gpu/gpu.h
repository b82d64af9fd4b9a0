/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the measurements on a GPU: they exit with a message at the first error, use random numbers, measure times
 * with events on the library's stream, and print one JSON object for each case. */
#ifndef QDR_TESTS_GPU_GPU_H
#define QDR_TESTS_GPU_GPU_H

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "quadrille/quadrille.h"

void gpu_check(qdr_status status, const char *call);
void gpu_check_cuda(cudaError_t error, const char *call);
void gpu_check_lt(cublasStatus_t error, const char *call);
#define OK(call) gpu_check((call), #call)
#define CUDA_OK(call) gpu_check_cuda((call), #call)
#define LT_OK(call) gpu_check_lt((call), #call)
/* Ends the process at once, after writing what is buffered: exit() from one of several ranks that are threads would
 * unload libraries which the others are using. */
_Noreturn void gpu_end(int code);
/* Leaves with exit code 1. */
_Noreturn void gpu_leave(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* A context of one rank on the GPU, a 1x1x1x1 grid, the context's stream. */
typedef struct gpu_place {
    qdr_context *ctx;
    qdr_grid *grid;
    cudaStream_t stream;
} gpu_place;
gpu_place gpu_open(void);
void gpu_close(gpu_place *place);

void *gpu_memory(const gpu_place *place, int64_t n, qdr_dtype dtype);
/* n random numbers in device memory, F32 or BF16: about normal, mean 0. Waits. */
void gpu_fill(const gpu_place *place, void *data, int64_t n, qdr_dtype dtype, double deviation);
void *gpu_random(const gpu_place *place, int64_t n, qdr_dtype dtype, double deviation);
/* |a - b| / |b| of the first n elements, euclidean; NaN counts as different. Waits. */
double gpu_distance(const gpu_place *place, const void *a, const void *b, int64_t n, qdr_dtype dtype);
void gpu_wait(const gpu_place *place);

/* Marks in the stream, to be timed. */
typedef struct gpu_marks {
    cudaStream_t stream;
    cudaEvent_t events[64];
    int n;
} gpu_marks;
gpu_marks gpu_marks_make(cudaStream_t stream);
void gpu_marks_free(gpu_marks *marks);
/* Begins anew. */
void gpu_marks_reset(gpu_marks *marks);
void gpu_mark(gpu_marks *marks);
/* Milliseconds from mark i to mark i + 1, once gpu_marks_wait() has returned. */
double gpu_between(const gpu_marks *marks, int i);
void gpu_marks_wait(const gpu_marks *marks);

/* One result: an object in one line on standard output. */
typedef struct gpu_report gpu_report;
gpu_report *gpu_report_begin(const char *benchmark, const char *title);
/* Samples of one figure, in the order in which they were taken. */
void gpu_report_samples(gpu_report *report, const char *name, const double *samples, int n);
void gpu_report_number(gpu_report *report, const char *name, double value);
void gpu_report_word(gpu_report *report, const char *name, const char *word);
/* The figure's median is wanted to be at least this. */
void gpu_report_bar(gpu_report *report, const char *name, double least);
/* … or at most this. */
void gpu_report_limit(gpu_report *report, const char *name, double most);
void gpu_report_end(gpu_report *report);

double gpu_median(const double *samples, int n);
double gpu_now(void); /* microseconds of a clock that only goes forward */

#endif
