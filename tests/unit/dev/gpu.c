/* SPDX-License-Identifier: Apache-2.0 */
/* Reports about GPUs, from a stand-in for the plugin (fake_plugin.c) or without one, according to QDR_CUDA_PLUGIN. */
#include <unistd.h>

#include "qdr_test.h"
#include "quadrille/gpu.h"

static qdr_gpu_report report;

static int has_plugin(void)
{
    const char *plugin = getenv("QDR_CUDA_PLUGIN");
    return plugin && access(plugin, R_OK) == 0;
}

static void ask(const char *mode)
{
    setenv("FAKE_PLUGIN", mode, 1);
    memset(&report, 0xff, sizeof report);
    report.size = sizeof report;
    CHECK_OK(qdr_gpu_query(&report));
}

static void check_versions(int driver)
{
    assert_int_equal(report.has_plugin, 1);
    assert_int_equal(report.driver, driver);
    assert_int_equal(report.runtime, 13000);
    assert_int_equal(report.cublaslt, 130101);
    assert_int_equal(report.nccl, 22809);
}

TEST(two_gpus)
{
    if (!has_plugin()) skip();
    ask("");
    check_versions(13010);
    assert_int_equal(report.status, QDR_OK);
    assert_string_equal(report.sentence, "");
    assert_int_equal(report.n_gpus, 2);
    assert_int_equal(report.cudnn, 91900);
    assert_string_equal(report.cudnn_sentence, "");
    qdr_gpu found = {QDR_INIT(qdr_gpu)}, *gpu = &found;
    CHECK_OK(qdr_gpu_describe(1, gpu));
    assert_string_equal(gpu->name, "Fake 1");
    assert_string_equal(gpu->bus, "ffff:a1:00.0"); /* as the topology writes it */
    assert_int_equal(gpu->number, 1);
    assert_int_equal(gpu->major, 8);
    assert_int_equal(gpu->n_sms, 132);
    assert_int_equal(gpu->bytes, INT64_C(80) << 30);
    assert_int_equal(gpu->bytes_free, INT64_C(79) << 30);
}

TEST(one_cannot_be_asked)
{
    if (!has_plugin()) skip();
    ask("lost");
    check_versions(13010);
    assert_int_equal(report.status, QDR_ERR_DEVICE);
    assert_non_null(strstr(report.sentence, "GPU 0 is lost"));
    assert_int_equal(report.n_gpus, 2);
    qdr_gpu lost = {QDR_INIT(qdr_gpu)}, other = lost;
    CHECK_OK(qdr_gpu_describe(0, &lost));
    CHECK_OK(qdr_gpu_describe(1, &other));
    assert_int_equal(lost.status, QDR_ERR_DEVICE);
    assert_int_equal(lost.bytes, 0);
    assert_int_equal(report.cudnn, 0);
    assert_non_null(strstr(report.cudnn_sentence, "none in the test"));
    assert_int_equal(other.status, QDR_OK);
    assert_string_equal(other.name, "Fake 1");
    CHECK_FAILS(qdr_gpu_describe(2, &other), QDR_ERR_ARGUMENT, "no GPU 2");
    assert_string_equal(other.name, "");
}

TEST(no_driver_and_no_gpu)
{
    if (!has_plugin()) skip();
    ask("none");
    check_versions(0);
    assert_int_equal(report.status, QDR_ERR_UNSUPPORTED);
    assert_non_null(strstr(report.sentence, "no driver in the test"));
    assert_int_equal(report.n_gpus, 0);
    ask("hidden");
    assert_int_equal(report.status, QDR_ERR_UNSUPPORTED);
    assert_non_null(strstr(report.sentence, "CUDA_VISIBLE_DEVICES"));
    assert_int_equal(report.n_gpus, 0);
}

TEST(no_plugin)
{
    if (has_plugin()) skip();
    for (int i = 0; i < 2; i++) { /* the same when it is asked again */
        ask("");
        assert_int_equal(report.status, QDR_ERR_UNSUPPORTED);
        assert_non_null(strstr(report.sentence, getenv("QDR_CUDA_PLUGIN")));
        assert_int_equal(report.has_plugin | report.driver | report.runtime | report.n_gpus, 0);
    }
}

TEST(no_place) { CHECK_FAILS(qdr_gpu_query(NULL), QDR_ERR_ARGUMENT, "NULL"); }
