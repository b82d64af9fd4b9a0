/* SPDX-License-Identifier: Apache-2.0 */
/* Streams, events and host work of the CUDA device. */
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "dev/cuda/cuda.h"

static qdri_cuda_stream *own(qdr_stream *stream) { return (qdri_cuda_stream *)stream; }

qdr_status qdri_cuda_stream_create(qdri_dev *dev, qdri_stream_kind kind, qdr_stream **stream)
{
    const qdri_cuda_dev *cuda = (const qdri_cuda_dev *)dev;
    int least = 0, greatest = 0;
    qdri_cuda_stream *made = NULL;
    QDRI_CUDA_ENTER(cuda);
    QDRI_CUDA_TRY(cuda, cudaDeviceGetStreamPriorityRange(&least, &greatest));
    QDR_TRY(QDRI_NEW(1, "a stream", &made));
    /* Collectives and their codecs have a higher priority than products: they have little work to do, and others wait
     * for them. */
    const cudaError_t error = cudaStreamCreateWithPriority(&made->handle, cudaStreamNonBlocking,
                                                           kind == QDRI_STREAM_COMPUTE ? least : greatest);
    if (error != cudaSuccess) {
        free(made);
        return qdri_cuda_status(cuda, error, "cudaStreamCreateWithPriority");
    }
    made->base.dev = dev;
    made->is_owned = 1;
    *stream = &made->base;
    return QDR_OK;
}

qdr_status qdri_cuda_stream_wrap(qdri_dev *dev, void *native, qdr_stream **stream)
{
    qdri_cuda_stream *made = NULL;
    if (!native || native == (void *)cudaStreamLegacy || native == (void *)cudaStreamPerThread)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "cuda: the default stream waits for all others; create one with "
                                          "cudaStreamCreateWithFlags(…, cudaStreamNonBlocking)");
    const qdri_cuda_dev *cuda = (const qdri_cuda_dev *)dev;
    int gpu = cuda->opts.number;
    const cudaError_t error = cudaStreamGetDevice(native, &gpu);
    if (error == cudaErrorCallRequiresNewerDriver) /* drivers report a stream's GPU from 12.8 on */
        (void)cudaGetLastError();
    else
        QDR_TRY(qdri_cuda_status(cuda, error, "cudaStreamGetDevice"));
    if (gpu != cuda->opts.number)
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "cuda: the stream belongs to GPU %d, but the context computes on GPU %d; create it after cudaSetDevice(%d)",
            gpu, cuda->opts.number, cuda->opts.number);
    QDR_TRY(QDRI_NEW(1, "a stream", &made));
    made->base.dev = dev;
    made->handle = native;
    *stream = &made->base;
    return QDR_OK;
}

void *qdri_cuda_stream_native(qdr_stream *stream) { return own(stream)->handle; }

void qdri_cuda_stream_destroy(qdr_stream *stream)
{
    qdri_cuda_stream *self = own(stream);
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    cudaGraph_t graph = NULL;
    QDRI_CUDA_VISIT(dev);
    if (dev->recording && qdri_cuda_is_recording(stream)) { /* discards the recording of which the stream is part */
        (void)cudaStreamEndCapture(qdri_cuda_handle(dev->recording), &graph);
        (void)cudaGetLastError();
        if (graph) (void)cudaGraphDestroy(graph);
        dev->recording = NULL;
    }
    const qdr_status status = qdri_cuda_stream_synchronize(stream);
    (void)status; /* by now, a failure has been recorded by the device */
    qdri_cuda_free_spaces(stream);
    if (self->is_owned) (void)cudaStreamDestroy(self->handle);
    free(self);
}

/* An error in work that was enqueued earlier now fails all ranks. */
static qdr_status poison(qdri_dev *dev, qdr_status status)
{
    if (status < QDR_OK) qdri_dev_poison(dev, status, qdr_last_error());
    return status;
}

/* A recording is not waited for by other ranks. */
int qdri_cuda_is_failure(qdr_stream *stream, qdr_status status)
{
    return (status == QDR_ERR_DEVICE || status == QDR_ERR_MEMORY) && !qdri_cuda_is_recording(stream);
}

qdr_status qdri_cuda_stream_synchronize(qdr_stream *stream)
{
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    if (qdri_cuda_is_recording(stream))
        return QDR_FAIL(QDR_ERR_STATE,
                        "stream: recorded work does not run, so it cannot be waited for; call qdr_graph_end() first");
    QDRI_CUDA_ENTER(dev);
    const cudaError_t error = cudaStreamSynchronize(own(stream)->handle);
    const qdr_status status = poison(stream->dev, qdri_cuda_status(dev, error, "the work of a stream"));
    qdri_cuda_look_for_fault(dev);
    qdri_cuda_stamps_collect(dev);
    return status;
}

qdr_status qdri_cuda_event_create(qdri_dev *dev, qdr_event **event)
{
    const qdri_cuda_dev *cuda = (const qdri_cuda_dev *)dev;
    qdri_cuda_event *made = NULL;
    QDRI_CUDA_ENTER(cuda);
    QDR_TRY(QDRI_NEW(1, "an event", &made));
    const cudaError_t error = cudaEventCreateWithFlags(&made->handle, cudaEventDisableTiming);
    if (error != cudaSuccess) {
        free(made);
        return qdri_cuda_status(cuda, error, "cudaEventCreateWithFlags");
    }
    made->base.dev = dev;
    *event = &made->base;
    return QDR_OK;
}

void qdri_cuda_event_destroy(qdr_event *event)
{
    QDRI_CUDA_VISIT((const qdri_cuda_dev *)event->dev);
    (void)cudaEventDestroy(((qdri_cuda_event *)event)->handle);
    free(event);
}

qdr_status qdri_cuda_event_record(qdr_event *event, qdr_stream *stream)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    QDRI_CUDA_ENTER(dev);
    QDRI_CUDA_TRY(dev, cudaEventRecord(((qdri_cuda_event *)event)->handle, own(stream)->handle));
    return QDR_OK;
}

qdr_status qdri_cuda_stream_wait(qdr_stream *stream, qdr_event *event)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    QDRI_CUDA_ENTER(dev);
    QDRI_CUDA_TRY(dev,
                  cudaStreamWaitEvent(own(stream)->handle, ((qdri_cuda_event *)event)->handle, cudaEventWaitDefault));
    return QDR_OK;
}

/* An event that has not been reached is not an error that the caller should find in cudaGetLastError(). One in a
 * recording is never reached. */
int qdri_cuda_event_reached(qdr_event *event)
{
    QDRI_CUDA_VISIT((const qdri_cuda_dev *)event->dev);
    const cudaError_t error = cudaEventQuery(((qdri_cuda_event *)event)->handle);
    if (error != cudaSuccess) (void)cudaGetLastError();
    return error != cudaErrorNotReady && error != cudaErrorCapturedEvent;
}

typedef struct host_work {
    qdri_dev *dev;
    qdri_work_fn fn;
    _Alignas(16) unsigned char args[QDRI_WORK_BYTES];
} host_work;

static void run_host_work(void *user)
{
    host_work *work = user;
    qdr_status status = QDR_OK;
    if (qdri_dev_status(work->dev) == QDR_OK) status = work->fn(work->args);
    if (status == QDR_PENDING) status = QDR_FAIL(QDR_ERR_STATE, "cuda: work of a stream may not be pending on a GPU");
    (void)poison(work->dev, status);
    free(work);
}

qdr_status qdri_cuda_work(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    host_work *work = NULL;
    if (qdri_cuda_is_recording(stream)) /* the arguments are freed once, but a recording runs many times */
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "cuda: a host function cannot be recorded; call it between runs of the graph");
    QDRI_CUDA_ENTER(dev);
    QDR_TRY(QDRI_NEW(1, "work of a stream", &work));
    work->dev = stream->dev;
    work->fn = fn;
    if (bytes) memcpy(work->args, args, bytes);
    const cudaError_t error = cudaLaunchHostFunc(own(stream)->handle, run_host_work, work);
    if (error != cudaSuccess) free(work);
    return qdri_cuda_status(dev, error, "cudaLaunchHostFunc");
}
