/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's own sources on the fake, where the rest of CUDA can be called, too. */
#include "dev/cuda/cuda.h"
#include "test_fake.h"

static qdri_dev *open_device(int number)
{
    const qdri_cuda_opts opts = {.number = number};
    qdri_dev *dev = NULL;
    assert_int_equal(qdri_cuda_dev_create(&opts, &dev), QDR_OK);
    return dev;
}

static qdr_stream *open_stream(qdri_dev *dev)
{
    qdr_stream *stream = NULL;
    assert_int_equal(qdri_stream_create(dev, QDRI_STREAM_COMPUTE, &stream), QDR_OK);
    return stream;
}

static qdr_status add(qdr_stream *stream, const void *a, const void *b, void *sum, int64_t n)
{
    const void *sources[] = {a, b};
    qdri_kernel kernel = {.kind = QDRI_K_REDUCE, .dtype = QDR_F32};
    kernel.u.gather.n = n;
    kernel.u.gather.n_sources = 2;
    kernel.u.gather.n_results = 1;
    kernel.u.gather.op = QDR_SUM;
    kernel.u.gather.sources = sources;
    kernel.u.gather.results = &sum;
    return qdri_kernel_run(stream, &kernel);
}

/* A GPU that was let in reads what the other's pool gave, and what a caller took there. */
static void test_peers(void **state)
{
    enum { BYTES = 256 };
    (void)state;
    qdri_dev *near = open_device(0), *far = open_device(1);
    qdr_stream *stream = open_stream(near), *writer = open_stream(far);
    void *mine = NULL, *pooled = NULL;
    OK(cudaSetDevice(1));
    void *callers = new_memory(BYTES);
    assert_int_equal(qdri_mem_alloc(near, BYTES, &mine), QDR_OK);
    assert_int_equal(qdri_mem_alloc(far, BYTES, &pooled), QDR_OK);
    for (int i = 0; i < 2; i++) assert_int_equal(qdri_fill_zero(writer, i ? callers : pooled, BYTES), QDR_OK);
    assert_int_equal(qdri_stream_synchronize(writer), QDR_OK);
    for (int i = 0; i < 2; i++) assert_true(qdri_dev_open_to(far, 0)); /* again is no error */
    GIVES(cudaGetLastError(), cudaSuccess);
    QUIET(assert_int_equal(add(stream, pooled, callers, mine, BYTES / 4), QDR_OK));
    assert_int_equal(qdri_stream_synchronize(stream), QDR_OK);
    qdri_mem_free(near, &mine);
    qdri_mem_free(far, &pooled);
    OK(cudaFree(callers));
    qdri_stream_destroy(&stream);
    qdri_stream_destroy(&writer);
    qdri_dev_destroy(&near);
    qdri_dev_destroy(&far);
}

/* What is not reached is no error of the caller's. */
static void test_event_reached(void **state)
{
    gate g;
    (void)state;
    qdri_dev *dev = open_device(0);
    qdr_stream *stream = open_stream(dev);
    qdr_event *event = NULL;
    assert_int_equal(qdri_event_create(dev, &event), QDR_OK);
    close_gate(qdri_cuda_handle(stream), &g);
    assert_int_equal(qdri_event_record(event, stream), QDR_OK);
    assert_false(qdri_event_reached(event));
    GIVES(cudaGetLastError(), cudaSuccess);
    open_gate(&g);
    assert_int_equal(qdri_stream_synchronize(stream), QDR_OK);
    assert_true(qdri_event_reached(event));
    qdri_event_destroy(&event);
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        FAKE_TEST(test_peers),
        FAKE_TEST(test_event_reached),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
