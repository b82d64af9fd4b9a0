/* SPDX-License-Identifier: Apache-2.0 */
/* Whatever work a GPU does not accept, and in whichever call: the device has failed, and its hook is told, by which
 * other ranks learn that they wait in vain. What is only recorded is waited for by nobody. */
#include "../../conform/device.h"
#include "served.h"

enum { N = 16 };

static qdr_event *event;
static array x, y;
static int n_told;

static void tell(void *user) { ++*(int *)user; }

static qdr_status copy(void) { return qdri_copy(stream, y.data, x.data, N * sizeof(float)); }
static qdr_status fill_zero(void) { return qdri_fill_zero(stream, y.data, N * sizeof(float)); }
static qdr_status record(void) { return qdri_event_record(event, stream); }
static qdr_status wait_for_event(void) { return qdri_stream_wait(stream, event); }
static qdr_status wait_across(void) { return qdri_stream_wait_across(stream, event); }

static qdr_status do_nothing(void *args)
{
    (void)args;
    return QDR_OK;
}

static qdr_status work_on_host(void) { return qdri_work(stream, do_nothing, NULL, 0); }

static qdr_status stamp(void)
{
    static int64_t nanosecs;
    return qdri_stamp(stream, &nanosecs);
}

static qdr_status add(void)
{
    qdri_kernel kernel = {.kind = QDRI_K_ADD, .dtype = QDR_F32};
    kernel.u.binary.n = N;
    kernel.u.binary.a = kernel.u.binary.b = x.data;
    kernel.u.binary.y = y.data;
    kernel.u.binary.dtype2 = QDR_F32;
    return qdri_kernel_run(stream, &kernel);
}

static qdr_status multiply(void)
{
    const qdri_gemm product = {.m = 4,
                               .n = 4,
                               .k = 4,
                               .a = x.data,
                               .b = x.data,
                               .c = y.data,
                               .lda = 4,
                               .ldb = 4,
                               .ldc = 4,
                               .alpha = 1,
                               .dtype = QDR_F32,
                               .c_dtype = QDR_F32};
    return qdri_gemm_run(stream, &product);
}

static const struct {
    const char *name;
    qdr_status (*call)(void);
    const char *plans[2]; /* the failures that it runs into; a stamp first asks whether it is recorded */
} calls[] = {
    {"copy", copy, {"device:1", "copy:1"}},
    {"fill", fill_zero, {"device:1", "copy:1"}},
    {"kernel", add, {"device:1", "launch:1"}},
    {"product", multiply, {"device:1", "product:1"}},
    {"stamp", stamp, {"device:2"}},
    {"host function", work_on_host, {"launch:1"}},
    {"record of an event", record, {"device:1", "event:1"}},
    {"wait for an event", wait_for_event, {"event:1"}},
    {"wait across devices", wait_across, {"event:1"}},
};
enum { N_CALLS = sizeof calls / sizeof calls[0] };

/* After a first run, which may need more. */
static void prepare(qdr_status (*call)(void))
{
    device_open(NULL);
    n_told = 0;
    qdri_dev_on_poison(device, tell, &n_told);
    CHECK_OK(qdri_event_create(device, &event));
    CHECK_OK(qdri_event_record(event, stream));
    CHECK_OK(call());
    CHECK_OK(qdri_stream_synchronize(stream));
}

static void finish(void)
{
    plan_failure(NULL);
    qdri_event_destroy(&event);
    device_close(NULL);
}

static void check_call(int i, const char *plan)
{
    prepare(calls[i].call);
    plan_failure(plan);
    print_message("%s, %s\n", calls[i].name, plan);
    assert_int_equal(calls[i].call(), QDR_ERR_DEVICE);
    assert_int_equal(qdri_dev_status(device), QDR_ERR_DEVICE);
    assert_int_equal(n_told, 1);
    finish();
}

TEST(rejected_work_fails_the_device)
{
    for (int i = 0; i < N_CALLS; i++)
        for (int j = 0; j < 2 && calls[i].plans[j]; j++) check_call(i, calls[i].plans[j]);
}

TEST(rejected_recordings_do_not)
{
    void *recorded = NULL;
    prepare(copy);
    CHECK_OK(qdri_record_begin(stream));
    plan_failure("copy:1");
    assert_int_equal(copy(), QDR_ERR_DEVICE);
    CHECK_OK(copy());
    CHECK_OK(qdri_record_end(stream, &recorded));
    CHECK_OK(qdri_record_run(stream, recorded));
    CHECK_OK(qdri_stream_synchronize(stream));
    assert_int_equal(n_told, 0);
    qdri_record_free(device, recorded);
    finish();
}

TEST(rejected_runs_of_recordings_do)
{
    void *recorded = NULL;
    prepare(copy);
    CHECK_OK(qdri_record_begin(stream));
    CHECK_OK(copy());
    CHECK_OK(qdri_record_end(stream, &recorded));
    plan_failure("graph:1");
    assert_int_equal(qdri_record_run(stream, recorded), QDR_ERR_DEVICE);
    assert_int_equal(qdri_dev_status(device), QDR_ERR_DEVICE);
    assert_int_equal(n_told, 1);
    qdri_record_free(device, recorded);
    finish();
}

/* The thread's own GPU is another one, so that each call has to choose. */
FIXTURE(arrays_make)
{
    set_gpu(1);
    seed = test_seed();
    x = make_random(QDR_F32, N, 1);
    y = make(QDR_F32, N);
    return 0;
}

FIXTURE(arrays_drop)
{
    drop(&x);
    drop(&y);
    return 0;
}

int main(void) { return run_all_tests(arrays_make, arrays_drop); }
