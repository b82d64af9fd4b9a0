/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin with everything that needs CUDA: a separate library, opened when the first context requests a GPU, so that
 * a program without one never loads CUDA's half a gigabyte. */
#ifndef QDRI_DEV_PLUGIN_H
#define QDRI_DEV_PLUGIN_H

#include "dev/dev.h"
#include "quadrille/gpu.h"

/* What the plugin receives from the library that opens it, in addition to the structs with which both were compiled. */
typedef struct qdri_plugin_host {
    char *(*last_error)(void); /* the calling thread's message, QDRI_ERROR_BYTES */
    void (*log)(int level, const char *line);
    int had_nccl; /* the program had loaded NCCL before */
} qdri_plugin_host;

/* In the order of QDR_ATTENTION's words. */
typedef enum qdri_attention_choice {
    QDRI_ATTENTION_AUTO, /* cuDNN for the shapes for which records show that it is faster */
    QDRI_ATTENTION_OWN,
    QDRI_ATTENTION_CUDNN /* wherever it can */
} qdri_attention_choice;

typedef struct qdri_cuda_opts {
    int number; /* of the GPU, among those visible to this process */
    int is_managed; /* memory that the host can read, too: slower, for tests */
    int tf32; /* F32 products may round their operands to TF32 */
    int no_gelu; /* products are not fused with GELU */
    int ranges; /* 1: always emitted; 0: only if a profiler is attached */
    qdri_attention_choice attention;
} qdri_cuda_opts;

/* Versions as in CUDA: 13000. */
typedef struct qdri_cuda_versions {
    int driver, runtime, n_gpus;
    size_t cublaslt;
    int nccl; /* 0: built without NCCL */
} qdri_cuda_versions;

/* The plugin's table. Its first member tells whether the rest can be used. */
typedef struct qdri_plugin {
    const char *build; /* QDRI_PLUGIN_BUILD of the plugin */
    void (*connect)(const qdri_plugin_host *host); /* must be called first */
    qdr_status (*find_versions)(qdri_cuda_versions *versions);
    qdr_status (*find_gpu)(int number, qdr_gpu *gpu);
    qdr_status (*find_cudnn)(int *version); /* opens it */
    qdr_status (*dev_create)(const qdri_cuda_opts *opts, qdri_dev **dev);
    const void *comm; /* communicators in lib/comm that need CUDA; NULL: none */
} qdri_plugin;

#define QDRI_PLUGIN_SYMBOL "qdr_cuda_plugin"
/* Library and plugin must be from the same build. */
#define QDRI_PLUGIN_BUILD QDR_VERSION_STRING " 9"

/* Opens the plugin, once per process. Any thread.
 * @retval QDR_ERR_UNSUPPORTED  it is not there, cannot be loaded, or is from another build; the message says where it
 * was searched for, or what the loader reported about an existing one */
QDR_NODISCARD qdr_status qdri_plugin_open(const qdri_plugin **plugin);

/* Creates the device for one GPU. gpu: its number; -1: the rank's number on its node, modulo the number of GPUs. Reads
 * QDR_CUDA_MEMORY ("device", "managed"), QDR_FUSE_GELU, QDR_TF32 and QDR_NVTX ("0", "1"), QDR_ATTENTION ("auto", "own",
 * "cudnn").
 * @retval QDR_ERR_ARGUMENT     one of these has another value
 * @retval QDR_ERR_UNSUPPORTED  no plugin, no driver, a driver too old, no such GPU */
QDR_NODISCARD qdr_status qdri_dev_create_cuda(int gpu, int node_rank, qdri_dev **dev);

#endif
