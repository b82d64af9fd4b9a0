/* SPDX-License-Identifier: Apache-2.0 */
/* A device whose allocations and thread creations fail, one after the other: each failure is reported, nothing is
 * leaked, nothing hangs. */
#include "dev/dev.h"
#include "fault/inject.h"
#include "qdr_test.h"

static qdr_status nothing_run(void *args)
{
    (void)args;
    return QDR_OK;
}

/* Everything that creates: two kinds of streams, memory, an event recorded on one stream and then on the other, a
 * product that needs the device's panels. Stops at the first failure. */
static qdr_status use_device(qdri_dev *dev, qdr_stream *streams[2], qdr_event **event, void **data)
{
    QDR_TRY(qdri_stream_create(dev, QDRI_STREAM_COMPUTE, &streams[0]));
    QDR_TRY(qdri_stream_create(dev, QDRI_STREAM_COMM, &streams[1]));
    QDR_TRY(qdri_event_create(dev, event));
    QDR_TRY(qdri_mem_alloc(dev, 1000, data));
    for (int i = 0; i < 2; i++) {
        QDR_TRY(qdri_work(streams[i], nothing_run, NULL, 0));
        QDR_TRY(qdri_event_record(*event, streams[i]));
        QDR_TRY(qdri_stream_wait(streams[1 - i], *event));
    }
    const qdri_gemm gemm = {.m = 2,
                            .n = 2,
                            .k = 2,
                            .a = *data,
                            .b = *data,
                            .c = *data,
                            .lda = 2,
                            .ldb = 2,
                            .ldc = 2,
                            .alpha = 1,
                            .dtype = QDR_BF16,
                            .c_dtype = QDR_BF16};
    QDR_TRY(qdri_gemm_run(streams[0], &gemm));
    return qdri_stream_synchronize(streams[0]);
}

static qdr_status create_use_destroy(void)
{
    qdri_dev *dev = NULL;
    qdr_stream *streams[2] = {NULL, NULL};
    qdr_event *event = NULL;
    void *data = NULL;
    size_t bytes = 1;
    QDR_TRY(qdri_dev_create_cpu(1, &dev));
    const qdr_status status = use_device(dev, streams, &event, &data);
    qdri_event_destroy(&event);
    for (int i = 0; i < 2; i++) qdri_stream_destroy(&streams[i]);
    qdri_mem_usage(dev, &bytes, NULL);
    assert_int_equal(bytes, (data ? 1000 : 0) + (status == QDR_OK ? qdri_dev_fixed_bytes(dev, QDR_BF16) : 0));
    qdri_mem_free(dev, &data);
    qdri_dev_destroy(&dev);
    return status;
}

static void try_all(int kind, qdr_status want)
{
    long n = 0;
    int happened = 1;
    for (; happened; n++) {
        inject_begin(kind, n, INJECT_ONCE);
        const qdr_status status = create_use_destroy();
        inject_end();
        happened = inject_happened();
        assert_int_equal(status, happened ? want : QDR_OK);
        if (happened) assert_true(qdr_last_error()[0] != '\0');
    }
    assert_true(n > 2);
}

TEST(memory_fails) { try_all(INJECT_MEMORY, QDR_ERR_MEMORY); }

TEST(threads_fail) { try_all(INJECT_THREAD, QDR_ERR_THREAD); }
