/* SPDX-License-Identifier: Apache-2.0 */
/* Kernels of the CPU device: one source, compiled for several instruction sets and picked when the
 * first one runs. */
#ifndef QDRI_DEV_CPU_KERNELS_H
#define QDRI_DEV_CPU_KERNELS_H

#include "dev/kernels.h"

typedef void (*qdri_cpu_kernel_fn)(const qdri_kernel *kernel);

/* One function per kind and type (F32, F64, BF16); NULL where a kernel does not know the type. */
typedef struct qdri_cpu_kernels {
    qdri_cpu_kernel_fn run[QDRI_N_KERNELS][3];
} qdri_cpu_kernels;

extern const qdri_cpu_kernels qdri_cpu_kernels_plain;
extern const qdri_cpu_kernels qdri_cpu_kernels_avx2;
extern const qdri_cpu_kernels qdri_cpu_kernels_avx512;

/* The best set for this processor. */
const qdri_cpu_kernels *qdri_cpu_kernels_pick(void);

/* Rows of queries that attention treats at once: causality spares the keys behind them. */
#define QDRI_ATTENTION_ROWS 64

#endif
