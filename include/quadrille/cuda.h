/* SPDX-License-Identifier: Apache-2.0 */
/** @file cuda.h  Contexts that compute on a GPU. The only public header with a CUDA type; it includes no CUDA headers.
 *
 * A context whose options say `.device = "cuda"` computes on one GPU: its memory (qdr_mem_alloc()) is on that GPU, its
 * streams are CUDA streams, and cuBLASLt computes its products. Everything that needs CUDA is in a separate library,
 * libquadrille_cuda.so, which the first such context opens. It is looked for at QDR_CUDA_PLUGIN, next to libquadrille,
 * where it was installed, and on the loader's search path. Without the plugin, a driver or a GPU, making the context
 * fails with QDR_ERR_UNSUPPORTED and a sentence; contexts on the CPU keep working. The same holds for a driver older
 * than the plugin's CUDA, a plugin of another build, a GPU that does not exist, and one below compute capability 8.0.
 *
 * The library never uses the default stream, and no call waits for the GPU except those documented as "blocking". Each
 * call leaves the calling thread's current GPU as it was; a thread that had not chosen any keeps the context's. Local
 * ranks (qdr_local_run()) may share a GPU; then a collective's call waits until all members have called it, so that
 * collectives along several axes must be called in one order on all ranks.
 *
 * QDR_CUDA_COMM in rank 0's environment selects how the GPUs of a world communicate: "nccl" needs a GPU for each rank,
 * but for tests (NCCL 2.30 and later with NCCL_MULTI_RANK_GPU_ENABLE=1, see docs/gpu.md); "mpi" sends through the
 * host's memory; "local" is for ranks of one process, on one GPU or on several that reach each other's memory. "auto",
 * the default: nccl if it can be used, else mpi or local; for ranks with callbacks (qdr_context_create_boot()) nccl.
 * The first collective of a kind on an NCCL communicator waits on the host until all its ranks call it: NCCL connects
 * them. With NCCL, a thread of each context watches for NCCL errors, for ranks that gave up and for collectives that
 * take longer than QDR_TIMEOUT; any of these poisons the context, and NCCL's communicators are aborted. Each
 * communicator may use so many SMs that all that may run at the same time fit on the GPU; QDR_NCCL_MAX_CTAS sets
 * another number of thread blocks for each, and is refused if they would not fit. NCCL must be 2.26 or later. Where
 * NCCL joins ranks, the library sets NCCL_LAUNCH_ORDER_IMPLICIT=1 unless it is set: kernels of NCCL start in the order
 * of the host's calls, those of the program's other users of NCCL, too (who may need NCCL_LAUNCH_RACE_FATAL=0; see
 * docs/gpu.md). NCCL allocates and registers the memory of stacks if it can on all ranks, unless one of them has
 * QDR_NCCL_REGISTER=0 (default 1); collectives of coll.h on a stack's memory then need such memory on all ranks. NCCL
 * adds in its own order: the same plan gives the same bits.
 *
 * Environment: QDR_CUDA_MEMORY=managed (default device) allocates memory that the host may read and write as well,
 * while no work on a stream uses it (slower; for tests and debugging). QDR_TF32=1 (default 0) lets F32 products round
 * their operands to TF32. QDR_FUSE_GELU=0 (default 1) runs GELU in separate kernels where a GPU would fuse it with a
 * product (BF16 and F16, compute capability 9.0 and later). QDR_NVTX=1 marks the tasks of schedules with NVTX ranges,
 * "layer: kind #task" as in traces; 0, the default: only if a profiler has started the program. QDR_ATTENTION=cudnn
 * lets cuDNN 9.16 or later compute attention in BF16 and F16 if that library is found (the file that QDR_CUDNN names;
 * else on the loader's search path, among Python packages and with CUDA) and has a deterministic kernel for the shape;
 * own: Quadrille's own kernels do; auto, the default: cuDNN for the shapes in docs/gpu.md, own kernels for others.
 * Other values are QDR_ERR_ARGUMENT. */
#ifndef QUADRILLE_CUDA_H
#define QUADRILLE_CUDA_H

#include "context.h"

struct CUstream_st; /**< what cudaStream_t points to */

#ifdef __cplusplus
extern "C" {
#endif

/** The number of the GPU on which this context computes, as CUDA numbers GPUs in this process; -1: none. Local. */
QDR_API int qdr_context_gpu(const qdr_context *ctx);

/** Wraps a CUDA stream of the caller's, for functions that take a stream. The CUDA stream still belongs to the caller
 * and must outlive *stream; work that the library enqueues on it runs in order with the caller's. *stream is destroyed
 * with qdr_stream_destroy(), which waits for the CUDA stream's work.
 *  @retval QDR_ERR_ARGUMENT     NULL; CUDA's default stream, which waits for all others; or a stream of another GPU
 *                               (with CUDA 12.8 and later, which can tell)
 *  @retval QDR_ERR_UNSUPPORTED  the context computes on the CPU. Local. */
QDR_API QDR_NODISCARD qdr_status qdr_stream_wrap_cuda(qdr_context *ctx, struct CUstream_st *cuda_stream,
                                                      qdr_stream **stream);
/** The underlying CUDA stream, for the caller's own kernels and libraries; it belongs to `stream`. NULL if the stream
 * is NULL or on a CPU. Local. */
QDR_API struct CUstream_st *qdr_stream_cuda(qdr_stream *stream);

#ifdef __cplusplus
}
#endif
#endif
