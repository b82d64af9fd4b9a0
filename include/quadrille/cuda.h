/* SPDX-License-Identifier: Apache-2.0 */
/** @file cuda.h  Contexts that compute on a GPU. The only public header with a type of CUDA's, and it needs none of
 * CUDA's headers.
 *
 *  A context whose options say `.device = "cuda"` computes on one GPU: its memory (qdr_mem_alloc()) is that GPU's, its
 * streams are CUDA streams, its products cuBLASLt's. All that needs CUDA is in a library of its own,
 * libquadrille_cuda.so, which the first such context opens; it is looked for where QDR_CUDA_PLUGIN says, beside
 * libquadrille, where it was installed, and where the loader looks. Where there is no plugin, no driver, or no GPU,
 * making the context fails with QDR_ERR_UNSUPPORTED and a sentence; contexts on the CPU go on working. So it does for a
 * driver older than the plugin's CUDA, a plugin of another build, a GPU that is not there, and one below compute
 * capability 8.0.
 *
 *  Nothing of the library runs on the default stream, and no call waits for the GPU but those that say "blocking". The
 * library makes its GPU the calling thread's current one and leaves it so. Local ranks (qdr_local_run()) may share a
 * GPU; then a collective's call waits until all members have called it, so that collectives along several axes must be
 * called in one order on all ranks.
 *
 *  QDR_CUDA_COMM says what joins the GPUs of a world, in rank 0's environment: "nccl" needs a GPU for each rank; "mpi"
 * sends through the host's memory; "local" is for ranks of one process, on one GPU or on several that reach each
 * other's memory. "auto", the default: for ranks of MPI nccl where it fits, else mpi; for local ranks local; for ranks
 * with callbacks (qdr_context_create_boot()) nccl. With NCCL a thread of each context looks for its errors, for ranks
 * that gave up and for collectives that last longer than QDR_TIMEOUT; any of these poisons the context, and NCCL's
 * communicators are aborted. Each of them takes as many SMs as leaves all that may run together room on the GPU;
 * QDR_NCCL_MAX_CTAS sets another number, of blocks of threads for each, and is refused where that room would not do.
 * NCCL must be 2.26 or later. The library sets NCCL_LAUNCH_ORDER_IMPLICIT=1 unless it is set: kernels of NCCL start in
 * the order of the host's calls. NCCL gives and registers the memory of stacks where all ranks can, unless
 * QDR_NCCL_REGISTER=0 (else 1) on one of them; collectives of coll.h on a stack's memory then want such memory on all
 * ranks. Sums of NCCL have an order of its own: the same plan gives the same bits.
 *
 *  Environment: QDR_CUDA_MEMORY=managed (else device) makes memory that the host may read and write, too, when no work
 * of a stream uses it (slower; for tests and for looking into things). QDR_TF32=1 (else 0) lets F32 products round
 * their operands to TF32. QDR_FUSE_GELU=0 (else 1) runs GELU in kernels of its own where a GPU would do it with a
 * product (BF16 and F16, compute capability 9.0 and later). QDR_NVTX=1 marks the tasks of schedules with NVTX ranges,
 * "layer: kind #task" as in traces; 0, the default: where a profiler has started the program. QDR_ATTENTION=cudnn lets
 * cuDNN 9.16 or later compute attention of BF16 and F16 where the library is found (the file that QDR_CUDNN names; else
 * where the loader looks, and where Python packages and CUDA lie) and has a deterministic kernel for the shape; own,
 * and auto, the default: the library's kernels. Other values are QDR_ERR_ARGUMENT. */
#ifndef QUADRILLE_CUDA_H
#define QUADRILLE_CUDA_H

#include "context.h"

struct CUstream_st; /**< what cudaStream_t points to */

#ifdef __cplusplus
extern "C" {
#endif

/** The number of the GPU that this context computes on, as CUDA counts in this process; -1: none. Local. */
QDR_API int qdr_context_gpu(const qdr_context *ctx);

/** Makes a stream of the caller's usable where the library takes one. The CUDA stream stays the caller's and outlives
 * *stream; work that the library enqueues there keeps its place among the caller's. *stream is destroyed with
 * qdr_stream_destroy(), which waits for the CUDA stream's work.
 *  @retval QDR_ERR_ARGUMENT     NULL; CUDA's default stream, which waits for all others; or a stream of another GPU
 *                               (with CUDA 12.8 and later, which can tell)
 *  @retval QDR_ERR_UNSUPPORTED  the context computes on the CPU Local. */
QDR_API QDR_NODISCARD qdr_status qdr_stream_wrap_cuda(qdr_context *ctx, struct CUstream_st *cuda_stream,
                                                      qdr_stream **stream);
/** The CUDA stream behind a stream, for the caller's own kernels and libraries; it belongs to `stream`. NULL: the
 * stream is NULL or a CPU's. Local. */
QDR_API struct CUstream_st *qdr_stream_cuda(qdr_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
