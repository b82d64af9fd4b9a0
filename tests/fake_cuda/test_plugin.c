/* SPDX-License-Identifier: Apache-2.0 */
/* The plugin's own sources on the fake, where the rest of CUDA can be called, too. */
#include "comm/nccl/internal.h"
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
FAKE_TEST(test_peers)
{
    enum { BYTES = 256 };
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
FAKE_TEST(test_event_reached)
{
    gate g;
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

/* At least one, no more than all parts and the world's have room for together. */
FAKE_TEST(test_part_ctas)
{
    assert_int_equal(qdri_nccl_part_ctas(8, 11), 8);
    assert_int_equal(qdri_nccl_part_ctas(8, 12), 4);
    assert_int_equal(qdri_nccl_part_ctas(3, 14), 2);
    for (int most = 1; most <= 64; most++)
        for (int n_parts = 1; n_parts <= 14; n_parts++) {
            const int n = qdri_nccl_part_ctas(most, n_parts), room = 12 * qdri_nccl_sms(most);
            assert_true(n >= 1 && n <= most && (n == 1 || (n_parts + 1) * qdri_nccl_sms(n) <= room));
        }
}

/* What refuses launches of several threads, and what allows them, are both named. */
FAKE_TEST(test_words_of_nccl)
{
    assert_int_equal(qdri_nccl_status(NULL, ncclInvalidUsage, "ncclAllReduce"), QDR_ERR_DEVICE);
    assert_non_null(strstr(qdr_last_error(), "NCCL_LAUNCH_RACE_FATAL=0"));
    assert_non_null(strstr(qdr_last_error(), "NCCL_LAUNCH_ORDER_IMPLICIT=1"));
}

/* On the device's GPU, whichever the caller uses, also when clocks are compared again, after a second. */
FAKE_TEST(test_stamps)
{
    int64_t at_ns = 0;
    qdri_dev *dev = open_device(0);
    qdr_stream *stream = open_stream(dev);
    OK(cudaSetDevice(1));
    QUIET(assert_int_equal(qdri_stamp(stream, &at_ns), QDR_OK));
    nanosleep(&(struct timespec){.tv_sec = 1, .tv_nsec = 1000000}, NULL);
    QUIET(assert_int_equal(qdri_stream_synchronize(stream), QDR_OK));
    assert_true(at_ns > 0);
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
}

/* ---- a reduce-scatter of more members than one kernel adds, in uneven parts, in place ---- */

enum { MEMBERS = QDRI_REDUCE_MOST + 2, MOST_ELEMS = 3 * MEMBERS };

typedef struct member {
    ncclUniqueId id;
    nccl_comm comm;
    qdri_coll coll;
    qdr_stream *stream;
    int32_t *data;
    int64_t begin, n; /* its part */
} member;

static int32_t brought(int rank, int64_t i) { return rank * rank + (int32_t)i; }

static void open_member(member *self, qdri_dev *dev, int rank, const int64_t *counts)
{
    int32_t values[MOST_ELEMS];
    void *memory = NULL;
    qdri_comm_init(&self->comm.base, NULL, dev, rank, MEMBERS, NULL);
    pthread_mutex_init(&self->comm.calls, NULL);
    self->coll = (qdri_coll){.kind = QDR_REDUCE_SCATTER, .dtype = QDR_I32, .op = QDR_SUM, .counts = counts};
    qdri_coll_part(&self->coll, MEMBERS, rank, &self->begin, &self->n);
    assert_int_equal(qdri_mem_alloc(dev, sizeof values, &memory), QDR_OK);
    self->data = memory;
    self->coll.send = memory;
    self->coll.recv = self->data + self->begin;
    const size_t staging = qdri_nccl_scratch_bytes(&self->comm.base, &self->coll);
    assert_int_equal(qdri_staging_reserve(&self->comm.base, staging), QDR_OK);
    self->stream = open_stream(dev);
    for (int64_t i = 0; i < MOST_ELEMS; i++) values[i] = brought(rank, i);
    assert_int_equal(qdri_copy(self->stream, memory, values, sizeof values), QDR_OK);
    assert_int_equal(qdri_stream_synchronize(self->stream), QDR_OK);
}

static void *scatter(void *user)
{
    member *self = user;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t handle = NULL;
    config.maxCTAs = 1;
    OK(cudaSetDevice(0));
    assert_int_equal(ncclCommInitRankConfig(&handle, MEMBERS, self->id, self->comm.base.rank, &config), ncclSuccess);
    atomic_store(&self->comm.handle, handle);
    assert_int_equal(qdri_nccl_launch(&self->comm.base, &self->coll, self->stream), QDR_OK);
    OK(cudaStreamSynchronize(qdri_cuda_handle(self->stream)));
    assert_int_equal(ncclCommDestroy(handle), ncclSuccess);
    return NULL;
}

static void close_member(member *self)
{
    int32_t got[MOST_ELEMS];
    void *memory = self->data;
    assert_int_equal(qdri_copy(self->stream, got, memory, sizeof got), QDR_OK);
    assert_int_equal(qdri_stream_synchronize(self->stream), QDR_OK);
    for (int64_t i = self->begin; i < self->begin + self->n; i++) {
        int32_t sum = 0;
        for (int rank = 0; rank < MEMBERS; rank++) sum += brought(rank, i);
        assert_int_equal(got[i], sum);
    }
    qdri_stream_destroy(&self->stream);
    qdri_stagings_free(&self->comm.base);
    qdri_mem_free(self->comm.base.dev, &memory);
    pthread_mutex_destroy(&self->comm.calls);
    pthread_mutex_destroy(&self->comm.base.family_mutex);
}

FAKE_TEST(test_many_members)
{
    static member members[MEMBERS];
    pthread_t threads[MEMBERS];
    int64_t counts[MEMBERS];
    ncclUniqueId id;
    qdri_dev *dev = open_device(0);
    assert_int_equal(ncclGetUniqueId(&id), ncclSuccess);
    for (int j = 0; j < MEMBERS; j++) counts[j] = j % 4;
    for (int j = 0; j < MEMBERS; j++) {
        members[j].id = id;
        open_member(&members[j], dev, j, counts);
    }
    for (int j = 0; j < MEMBERS; j++) assert_int_equal(pthread_create(&threads[j], NULL, scatter, &members[j]), 0);
    for (int j = 0; j < MEMBERS; j++) pthread_join(threads[j], NULL);
    for (int j = 0; j < MEMBERS; j++) close_member(&members[j]);
    qdri_dev_destroy(&dev);
}
