/* SPDX-License-Identifier: Apache-2.0 */
/* Timestamps: a kernel writes the GPU's clock into pinned memory; when the host next waits for a stream, written values
 * are converted to the host's clock and stored at their destinations. */
#include <stdlib.h>

#include "core/size.h"
#include "dev/clock.h"
#include "dev/cuda/cuda.h"

enum { CHUNK_STAMPS = 4096, N_COMPARISONS = 5 };
#define COMPARE_AGAIN_NS INT64_C(1000000000) /* clocks drift apart by a few µs in that time */

typedef struct stamp_chunk {
    struct stamp_chunk *next;
    int64_t *written; /* pinned; 0: not yet */
    int64_t *places[CHUNK_STAMPS];
    int n, n_left;
} stamp_chunk;

struct qdri_cuda_stamps {
    stamp_chunk *chunks; /* the newest first */
    cudaStream_t stream; /* on which clocks are compared */
    int64_t *gpu_ns; /* pinned */
    int64_t offset_ns, compared_ns; /* the host's clock minus the GPU's; time of the comparison */
};

static void chunk_free(stamp_chunk *chunk)
{
    (void)cudaFreeHost(chunk->written);
    free(chunk);
}

/* The comparison with the shortest duration, of several. The callers have entered the GPU. */
static qdr_status compare_clocks(qdri_cuda_dev *dev)
{
    qdri_cuda_stamps *stamps = dev->stamps;
    int64_t least_ns = INT64_MAX;
    for (int i = 0; i < N_COMPARISONS; i++) {
        const int64_t before_ns = qdri_now_ns();
        QDRI_CUDA_TRY(dev, qdri_cuda_launch_stamp(stamps->gpu_ns, stamps->stream));
        QDRI_CUDA_TRY(dev, cudaStreamSynchronize(stamps->stream));
        const int64_t after_ns = qdri_now_ns();
        if (after_ns - before_ns >= least_ns) continue;
        least_ns = after_ns - before_ns;
        stamps->offset_ns = before_ns + least_ns / 2 - *(volatile int64_t *)stamps->gpu_ns;
    }
    stamps->compared_ns = qdri_now_ns();
    return QDR_OK;
}

qdr_status qdri_cuda_stamp(qdr_stream *stream, int64_t *nanosecs)
{
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    if (qdri_cuda_is_recording(stream))
        return QDR_FAIL(
            QDR_ERR_UNSUPPORTED,
            "graph: a measured step cannot be recorded because its times belong to one run; unset QDR_REPORT");
    QDRI_CUDA_ENTER(dev);
    if (!dev->stamps) {
        QDR_TRY(QDRI_NEW(1, "stamps of tasks", &dev->stamps));
        QDRI_CUDA_TRY(dev, cudaStreamCreateWithFlags(&dev->stamps->stream, cudaStreamNonBlocking));
        QDRI_CUDA_TRY(dev,
                      cudaHostAlloc((void **)&dev->stamps->gpu_ns, sizeof *dev->stamps->gpu_ns, cudaHostAllocMapped));
        QDR_TRY(compare_clocks(dev));
    }
    stamp_chunk *chunk = dev->stamps->chunks;
    if (!chunk || chunk->n == CHUNK_STAMPS) {
        QDR_TRY(QDRI_NEW(1, "stamps of tasks", &chunk));
        const cudaError_t error = cudaHostAlloc((void **)&chunk->written, CHUNK_STAMPS * sizeof *chunk->written,
                                                cudaHostAllocMapped);
        if (error != cudaSuccess) {
            free(chunk);
            return qdri_cuda_status(dev, error, "cudaHostAlloc");
        }
        for (int i = 0; i < CHUNK_STAMPS; i++) chunk->written[i] = 0;
        chunk->next = dev->stamps->chunks;
        dev->stamps->chunks = chunk;
    }
    QDRI_CUDA_TRY(dev, qdri_cuda_launch_stamp(&chunk->written[chunk->n], qdri_cuda_handle(stream)));
    chunk->places[chunk->n++] = nanosecs;
    chunk->n_left++;
    return QDR_OK;
}

void qdri_cuda_stamps_collect(qdri_cuda_dev *dev)
{
    qdri_cuda_stamps *stamps = dev->stamps;
    if (!stamps || !stamps->chunks) return;
    if (qdri_now_ns() - stamps->compared_ns > COMPARE_AGAIN_NS) (void)compare_clocks(dev);
    stamp_chunk **link = &stamps->chunks;
    while (*link) {
        stamp_chunk *chunk = *link;
        for (int i = 0; i < chunk->n && chunk->n_left > 0; i++) {
            const int64_t gpu_ns = ((volatile int64_t *)chunk->written)[i];
            if (!chunk->places[i] || gpu_ns == 0) continue;
            *chunk->places[i] = gpu_ns + stamps->offset_ns;
            chunk->places[i] = NULL;
            chunk->n_left--;
        }
        if (chunk->n < CHUNK_STAMPS || chunk->n_left > 0) {
            link = &chunk->next;
            continue;
        }
        *link = chunk->next;
        chunk_free(chunk);
    }
}

void qdri_cuda_stamps_free(qdri_cuda_dev *dev)
{
    qdri_cuda_stamps *stamps = dev->stamps;
    if (!stamps) return;
    while (stamps->chunks) {
        stamp_chunk *chunk = stamps->chunks;
        stamps->chunks = chunk->next;
        chunk_free(chunk);
    }
    if (stamps->gpu_ns) (void)cudaFreeHost(stamps->gpu_ns);
    if (stamps->stream) (void)cudaStreamDestroy(stamps->stream);
    free(stamps);
    dev->stamps = NULL;
}
