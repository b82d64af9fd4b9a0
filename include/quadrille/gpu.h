/* SPDX-License-Identifier: Apache-2.0 */
/** @file gpu.h  The GPUs on which this process can compute, and the versions of the libraries they need. Works on any
 * machine and needs no CUDA types.
 *
 * It opens the plugin libquadrille_cuda.so (see cuda.h for where it is looked for) and asks CUDA. The links between
 * GPUs are in topo.h; contexts on them are in context.h and cuda.h. */
#ifndef QUADRILLE_GPU_H
#define QUADRILLE_GPU_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

#define QDR_MAX_GPUS 64 /**< in one report */

/** One GPU, as CUDA describes it. */
typedef struct qdr_gpu {
    size_t size; /**< QDR_INIT(qdr_gpu) */
    char name[256]; /**< "NVIDIA H100 80GB HBM3" */
    char bus[24]; /**< on PCI, "0000:c1:00.0", as in topo.h */
    int number; /**< as CUDA numbers GPUs in this process: the N of the device "cuda:N" */
    int n_sms; /**< streaming multiprocessors */
    int major, minor; /**< compute capability */
    int64_t bytes, bytes_free; /**< memory */
    qdr_status status; /**< QDR_OK; else why it could not be queried: then only number is known */
} qdr_gpu;

/** What was found. Versions are in each library's own form: 13000 is CUDA 13.0, 130101 cuBLASLt 13.1.1, 22809 NCCL
 * 2.28.9; 0: unknown, or there is none. */
typedef struct qdr_gpu_report {
    size_t size; /**< QDR_INIT(qdr_gpu_report) */
    qdr_status status; /**< QDR_OK: contexts on a GPU can be made; QDR_ERR_UNSUPPORTED: no plugin, no driver, one that
                          is too old, or no GPU; else what CUDA reported of the first GPU whose own status is not
                          QDR_OK */
    char sentence[512]; /**< about that status, with the remedy; "" for QDR_OK */
    int has_plugin; /**< 1: the plugin could be opened, so versions of CUDA's libraries are known */
    int driver; /**< the highest CUDA version that the driver supports */
    int runtime; /**< CUDA version with which the plugin was built */
    int cublaslt, nccl;
    int cudnn; /**< 91900: 9.19.0; 0: none that can be used, or no GPU to use it on */
    char cudnn_sentence[512]; /**< about a cuDNN that cannot be used, with the remedy; else "" */
    int n_gpus; /**< that this process sees (CUDA_VISIBLE_DEVICES counts), at most QDR_MAX_GPUS */
} qdr_gpu_report;

/** Fills a report. It is not an error if there is no GPU. Querying memory creates CUDA's
 * context on each GPU, which takes some hundred MB there until the process ends. Local, blocking: up to seconds if
 * there are GPUs. Thread-safe; afterwards any GPU may be the calling thread's current one.
 *  @retval QDR_ERR_ARGUMENT  report is NULL */
QDR_API QDR_NODISCARD qdr_status qdr_gpu_query(qdr_gpu_report *report);
/** Describes one GPU; its status may be an error of CUDA's. As qdr_gpu_query().
 *  @param number  as CUDA numbers GPUs in this process, less than n_gpus
 *  @param[out] gpu  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  gpu is NULL, or there is no such GPU
 *  @retval others            as the status of qdr_gpu_query() without a GPU */
QDR_API QDR_NODISCARD qdr_status qdr_gpu_describe(int number, qdr_gpu *gpu);

#ifdef __cplusplus
}
#endif
#endif
