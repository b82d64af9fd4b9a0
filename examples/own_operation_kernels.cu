/* SPDX-License-Identifier: Apache-2.0 */
/* SiLU and its backward pass as CUDA kernels, for own_operation.c. */
#include "own_operation.h"

enum { THREADS = 256 };

__device__ static double sigmoid(double x) { return 1 / (1 + exp(-x)); }

__global__ static void forward(const double *x, double *y, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i < n) y[i] = x[i] * sigmoid(x[i]);
}

__global__ static void backward(const double *x, const double *dy, double *dx, int accumulate, int64_t n)
{
    const int64_t i = (int64_t)blockIdx.x * THREADS + threadIdx.x;
    if (i >= n) return;
    const double s = sigmoid(x[i]), value = dy[i] * s * (1 + x[i] * (1 - s));
    dx[i] = accumulate ? dx[i] + value : value;
}

/* A launch without blocks is an error in CUDA, and a rank may have no rows. */
static unsigned blocks_for(int64_t n) { return (unsigned)((n + THREADS - 1) / THREADS); }

int silu_forward_on_gpu(cudaStream_t stream, const double *x, double *y, int64_t n)
{
    if (n == 0) return 0;
    forward<<<blocks_for(n), THREADS, 0, stream>>>(x, y, n);
    return (int)cudaGetLastError();
}

int silu_backward_on_gpu(cudaStream_t stream, const double *x, const double *dy, double *dx, int accumulate, int64_t n)
{
    if (n == 0) return 0;
    backward<<<blocks_for(n), THREADS, 0, stream>>>(x, dy, dx, accumulate, n);
    return (int)cudaGetLastError();
}
