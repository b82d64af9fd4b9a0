/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded work of the CUDA device: CUDA graphs. */
#include <stdlib.h>

#include "core/size.h"
#include "dev/cuda/cuda.h"

typedef struct record {
    cudaGraphExec_t executable;
    cudaStream_t origin; /* its workspaces are used, wherever the graph runs */
    cudaEvent_t event; /* after its last run, and thus after all of them; streams may have been destroyed */
} record;

static qdr_status find_state(const qdr_stream *stream, enum cudaStreamCaptureStatus *state)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    QDRI_CUDA_ENTER(dev);
    QDRI_CUDA_TRY(dev, cudaStreamIsCapturing(qdri_cuda_handle(stream), state));
    return QDR_OK;
}

int qdri_cuda_is_recording(qdr_stream *stream)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    return find_state(stream, &state) == QDR_OK && state != cudaStreamCaptureStatusNone;
}

qdr_status qdri_cuda_record_begin(qdr_stream *stream)
{
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    if (qdri_cuda_is_recording(stream))
        return QDR_FAIL(QDR_ERR_STATE, "graph: the context is already recording; call qdr_graph_end() first");
    QDRI_CUDA_ENTER(dev);
    /* Relaxed, so that the library may allocate memory and other threads are not restricted. */
    QDRI_CUDA_TRY(dev, cudaStreamBeginCapture(qdri_cuda_handle(stream), cudaStreamCaptureModeRelaxed));
    dev->recording = stream;
    return QDR_OK;
}

int qdri_cuda_record_is_lost(qdr_stream *stream)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;
    if (!qdri_cuda_dev_of(stream)->recording) return 0;
    return find_state(stream, &state) == QDR_OK && state == cudaStreamCaptureStatusInvalidated;
}

static void free_record(record *recorded)
{
    if (!recorded) return;
    if (recorded->executable) (void)cudaGraphExecDestroy(recorded->executable);
    if (recorded->event) (void)cudaEventDestroy(recorded->event);
    free(recorded);
}

static qdr_status instantiate(qdr_stream *stream, cudaGraph_t graph, record **made)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    QDR_TRY(QDRI_NEW(1, "a recorded step", made));
    (*made)->origin = qdri_cuda_handle(stream);
    QDRI_CUDA_TRY(dev, cudaEventCreateWithFlags(&(*made)->event, cudaEventDisableTiming));
    /* Otherwise all nodes, including collectives, would have the priority of the stream on which the graph is
     * launched. */
    QDRI_CUDA_TRY(dev, cudaGraphInstantiate(&(*made)->executable, graph, cudaGraphInstantiateFlagUseNodePriority));
    return QDR_OK;
}

qdr_status qdri_cuda_record_end(qdr_stream *stream, void **result)
{
    qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    cudaGraph_t graph = NULL;
    if (!qdri_cuda_is_recording(stream))
        return QDR_FAIL(QDR_ERR_STATE, "graph: nothing is being recorded; call qdr_graph_begin() first");
    QDRI_CUDA_ENTER(dev);
    const cudaError_t error = cudaStreamEndCapture(qdri_cuda_handle(stream), &graph);
    dev->recording = NULL;
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "graph: work enqueued since qdr_graph_begin() cannot be recorded (%s); see graph.h for what "
                        "cannot be recorded",
                        cudaGetErrorString(error));
    }
    record *made = NULL;
    const qdr_status status = instantiate(stream, graph, &made);
    if (status == QDR_OK)
        *result = made;
    else
        free_record(made);
    (void)cudaGraphDestroy(graph);
    return status;
}

/* Orders later work on `behind` after the present work on `before`. */
static qdr_status order(const qdri_cuda_dev *dev, const record *recorded, cudaStream_t before, cudaStream_t behind)
{
    QDRI_CUDA_TRY(dev, cudaEventRecord(recorded->event, before));
    if (before != behind) QDRI_CUDA_TRY(dev, cudaStreamWaitEvent(behind, recorded->event, cudaEventWaitDefault));
    return QDR_OK;
}

qdr_status qdri_cuda_record_run(qdr_stream *stream, void *data)
{
    const qdri_cuda_dev *dev = qdri_cuda_dev_of(stream);
    const record *recorded = data;
    cudaStream_t handle = qdri_cuda_handle(stream);
    if (dev->recording)
        return QDR_FAIL(QDR_ERR_STATE, "graph: the context is recording, and a recorded step cannot be part of "
                                       "another; call qdr_graph_end() first");
    QDRI_CUDA_ENTER(dev);
    if (handle != recorded->origin) QDR_TRY(order(dev, recorded, recorded->origin, handle));
    QDRI_CUDA_TRY(dev, cudaGraphLaunch(recorded->executable, handle));
    return order(dev, recorded, handle, recorded->origin);
}

void qdri_cuda_record_free(qdri_dev *dev, void *data)
{
    record *recorded = data;
    QDRI_CUDA_VISIT((const qdri_cuda_dev *)dev);
    (void)cudaEventSynchronize(recorded->event);
    free_record(recorded);
}
