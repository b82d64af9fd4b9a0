/* SPDX-License-Identifier: Apache-2.0 */
/* Capture, replay, and what is not allowed during a capture. */
#include <pthread.h>

#include "test_fake.h"

/* x[0] = x[0]·factor + y[0] */
typedef struct step {
    double *x;
    const double *y;
    double factor;
} step;

static void run_step(void *args)
{
    const step *s = args;
    double *x = fake_translate(s->x);
    *x = *x * s->factor + *(const double *)fake_translate(s->y);
}

static cudaError_t enqueue_step(cudaStream_t stream, double *x, const double *y, double factor)
{
    const fake_access accesses[] = {
        {FAKE_READ, x, sizeof *x, 0, 1}, {FAKE_READ, y, sizeof *y, 0, 1}, {FAKE_WRITE, x, sizeof *x, 0, 1}};
    const step s = {x, y, factor};
    const cudaError_t error = fake_use(stream, "step", accesses, 3);
    if (error == cudaSuccess) fake_enqueue(stream, run_step, &s, sizeof s);
    return error;
}

typedef struct scene {
    cudaStream_t a, b;
    cudaEvent_t fork, join;
    double *x, *y; /* 1 and 2 */
} scene;

static scene open_scene(void)
{
    const double one = 1, two = 2;
    const scene s = {new_stream(), new_stream(),           new_event(),
                     new_event(),  new_memory(sizeof one), new_memory(sizeof two)};
    OK(cudaMemcpyAsync(s.x, &one, sizeof one, cudaMemcpyDefault, s.a));
    OK(cudaMemcpyAsync(s.y, &two, sizeof two, cudaMemcpyDefault, s.a));
    OK(cudaStreamSynchronize(s.a));
    return s;
}

static double value_of(cudaStream_t stream, const double *x)
{
    double value = 0;
    OK(cudaMemcpyAsync(&value, x, sizeof value, cudaMemcpyDeviceToHost, stream));
    return value;
}

static enum cudaStreamCaptureStatus status_of(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus status;
    OK(cudaStreamIsCapturing(stream, &status));
    return status;
}

static void begin(cudaStream_t stream)
{
    OK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    assert_int_equal(status_of(stream), cudaStreamCaptureStatusActive);
}

static void fork_to(const scene *s)
{
    OK(cudaEventRecord(s->fork, s->a));
    OK(cudaStreamWaitEvent(s->b, s->fork, 0));
}

static void join_from(const scene *s)
{
    OK(cudaEventRecord(s->join, s->b));
    OK(cudaStreamWaitEvent(s->a, s->join, 0));
}

static cudaGraphExec_t end(cudaStream_t stream)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t exec = NULL;
    OK(cudaStreamEndCapture(stream, &graph));
    OK(cudaGraphInstantiate(&exec, graph, 0));
    OK(cudaGraphDestroy(graph));
    assert_int_equal(status_of(stream), cudaStreamCaptureStatusNone);
    return exec;
}

/* Launches of one graph come one after the other on any streams, and what was launched goes on when the graph is no
 * more. */
FAKE_TEST(test_launches_in_order)
{
    const scene s = open_scene();
    gate g;
    begin(s.a);
    OK(enqueue_step(s.a, s.x, s.y, 2));
    cudaGraphExec_t exec = end(s.a);
    close_gate(s.a, &g);
    QUIET(OK(cudaGraphLaunch(exec, s.a)));
    QUIET(OK(cudaGraphLaunch(exec, s.b)));
    OK(cudaGraphExecDestroy(exec));
    GIVES(cudaStreamQuery(s.b), cudaErrorNotReady);
    open_gate(&g);
    OK(cudaStreamSynchronize(s.b));
    assert_float_equal(value_of(s.b, s.x), 2 * (2 * 1 + 2) + 2, 0);
}

/* The same faults are found within a graph, at its launch. */
FAKE_TEST(test_faults_at_launch)
{
    const scene s = open_scene();
    double *z = new_memory(sizeof *z);
    begin(s.a);
    fork_to(&s);
    OK(enqueue_step(s.a, s.x, s.y, 10));
    OK(use(s.b, "unordered", FAKE_READ, s.x, sizeof *s.x));
    join_from(&s);
    cudaGraphExec_t racing = end(s.a);
    REPORTS(FAKE_RACE, OK(cudaGraphLaunch(racing, s.a)));
    begin(s.a);
    OK(enqueue_step(s.a, z, s.y, 10));
    cudaGraphExec_t unwritten = end(s.a);
    REPORTS(FAKE_UNWRITTEN, OK(cudaGraphLaunch(unwritten, s.a)));
    OK(cudaDeviceSynchronize());
    OK(cudaFree(z));
    REPORTS(FAKE_USE_AFTER_FREE, GIVES(cudaGraphLaunch(unwritten, s.a), cudaErrorIllegalAddress));
    OK(cudaGraphExecDestroy(racing));
    OK(cudaGraphExecDestroy(unwritten));
    REPORTS(FAKE_DOUBLE_FREE, cudaGraphExecDestroy(racing));
    REPORTS(FAKE_DESTROYED, cudaGraphLaunch(racing, s.a));
}

/* Where each thing that is forbidden leads: the call's error, then the capture's. */
static void expect_end(cudaStream_t stream, cudaError_t error)
{
    cudaGraph_t graph = NULL;
    GIVES(cudaStreamEndCapture(stream, &graph), error);
    assert_null(graph);
    assert_int_equal(status_of(stream), cudaStreamCaptureStatusNone);
}

FAKE_TEST(test_waiting_is_forbidden)
{
    const scene s = open_scene();
    double value = 0;
    begin(s.a);
    GIVES(cudaStreamSynchronize(s.a), cudaErrorStreamCaptureUnsupported);
    assert_int_equal(status_of(s.a), cudaStreamCaptureStatusInvalidated);
    GIVES(enqueue_step(s.a, s.x, s.y, 1), cudaErrorStreamCaptureInvalidated);
    expect_end(s.a, cudaErrorStreamCaptureInvalidated);
    begin(s.a);
    GIVES(cudaStreamQuery(s.a), cudaErrorStreamCaptureUnsupported);
    expect_end(s.a, cudaErrorStreamCaptureInvalidated);
    begin(s.a);
    OK(cudaEventRecord(s.fork, s.a));
    GIVES(cudaEventQuery(s.fork), cudaErrorCapturedEvent);
    assert_int_equal(status_of(s.a), cudaStreamCaptureStatusInvalidated);
    GIVES(cudaEventSynchronize(s.fork), cudaErrorCapturedEvent);
    expect_end(s.a, cudaErrorStreamCaptureInvalidated);
    begin(s.a);
    OK(cudaEventRecord(s.fork, s.a));
    GIVES(cudaMemcpyAsync(&value, s.x, sizeof value, cudaMemcpyDefault, s.a), cudaErrorStreamCaptureUnsupported);
    expect_end(s.a, cudaErrorStreamCaptureInvalidated);
    GIVES(cudaStreamWaitEvent(s.a, s.fork, 0), cudaErrorCapturedEvent);
    OK(cudaEventRecord(s.fork, s.a)); /* outside it is an event again */
    OK(cudaEventSynchronize(s.fork));
}

FAKE_TEST(test_crossing_is_forbidden)
{
    const scene s = open_scene();
    cudaGraph_t graph = NULL;
    OK(cudaEventRecord(s.join, s.b));
    begin(s.a);
    GIVES(cudaStreamWaitEvent(s.a, s.join, 0), cudaErrorStreamCaptureIsolation);
    expect_end(s.a, cudaErrorStreamCaptureInvalidated);
    begin(s.a);
    fork_to(&s);
    OK(enqueue_step(s.b, s.x, s.y, 1));
    GIVES(cudaStreamEndCapture(s.b, &graph), cudaErrorStreamCaptureUnmatched);
    expect_end(s.a, cudaErrorStreamCaptureUnjoined);
    assert_int_equal(status_of(s.b), cudaStreamCaptureStatusNone);
    begin(s.a);
    begin(s.b);
    OK(cudaEventRecord(s.fork, s.a));
    GIVES(cudaStreamWaitEvent(s.b, s.fork, 0), cudaErrorStreamCaptureMerge);
    expect_end(s.a, cudaErrorStreamCaptureInvalidated);
    expect_end(s.b, cudaErrorStreamCaptureInvalidated);
    GIVES(cudaStreamEndCapture(s.b, &graph), cudaErrorIllegalState);
}

/* A stream that was forked and has done nothing since it was joined is joined. */
FAKE_TEST(test_joined)
{
    const scene s = open_scene();
    cudaStream_t c = new_stream();
    begin(s.a);
    OK(enqueue_step(s.a, s.x, s.y, 1));
    fork_to(&s);
    OK(enqueue_step(s.b, s.x, s.y, 1));
    join_from(&s);
    OK(cudaStreamWaitEvent(c, s.join, 0)); /* and does nothing */
    OK(cudaGraphExecDestroy(end(s.a)));
}

static void *query(void *event) { return (void *)(intptr_t)cudaEventQuery(event); }

static void *end_capture(void *stream)
{
    cudaGraph_t graph = NULL;
    return (void *)(intptr_t)cudaStreamEndCapture(stream, &graph);
}

static cudaError_t in_thread(void *(*call)(void *), void *of)
{
    pthread_t thread;
    void *result = NULL;
    assert_int_equal(pthread_create(&thread, NULL, call, of), 0);
    assert_int_equal(pthread_join(thread, &result), 0);
    return (cudaError_t)(intptr_t)result;
}

FAKE_TEST(test_modes)
{
    const scene s = open_scene();
    void *data = NULL;
    enum cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    OK(cudaEventRecord(s.join, s.b));
    OK(cudaEventSynchronize(s.join));
    begin(s.a); /* of this thread: others may wait */
    OK(in_thread(query, s.join));
    GIVES(in_thread(end_capture, s.a), cudaErrorStreamCaptureWrongThread);
    OK(cudaGraphExecDestroy(end(s.a)));
    OK(cudaStreamBeginCapture(s.a, cudaStreamCaptureModeGlobal));
    GIVES(in_thread(query, s.join), cudaErrorStreamCaptureUnsupported);
    expect_end(s.a, cudaErrorStreamCaptureInvalidated);
    begin(s.a);
    GIVES(cudaMalloc(&data, 8), cudaErrorStreamCaptureUnsupported);
    expect_end(s.a, cudaErrorStreamCaptureInvalidated);
    begin(s.a);
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, cudaStreamCaptureModeGlobal);
    OK(cudaMalloc(&data, 8));
    OK(cudaStreamSynchronize(s.b));
    GIVES(cudaStreamSynchronize(s.a), cudaErrorStreamCaptureUnsupported);
    OK(cudaThreadExchangeStreamCaptureMode(&mode));
    expect_end(s.a, cudaErrorStreamCaptureInvalidated);
    OK(cudaFree(data));
}

FAKE_TEST(test_leaks)
{
    const scene s = open_scene();
    cudaGraph_t graph = NULL;
    begin(s.a);
    OK(cudaStreamEndCapture(s.a, &graph));
    OK(cudaDeviceSynchronize());
    REPORTS(FAKE_LEAK, fake_check_leaks());
    assert_int_equal(cudaGraphDestroy(graph), cudaSuccess);
    REPORTS(FAKE_DOUBLE_FREE, cudaGraphDestroy(graph));
}
