/* SPDX-License-Identifier: Apache-2.0 */
/* Files of software, and what they make of a machine. */
#include <math.h>

#include "qdr_test.h"
#include "quadrille/machine.h"

static qdr_software parsed(const char *text)
{
    qdr_software software = {QDR_INIT(qdr_software)};
    CHECK_OK(qdr_software_parse(text, strlen(text), "text", &software));
    return software;
}

static qdr_machine machine_of(void)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    CHECK_OK(qdr_machine_load("dgx-h100", &machine));
    return machine;
}

static void expect_near(double is, double wanted)
{
    if (!(fabs(is - wanted) <= 1e-12 * fabs(wanted))) fail_msg("%.17g is not %.17g", is, wanted);
}

TEST(what_a_file_leaves_out_is_neutral)
{
    const qdr_software software = parsed("{\"name\": \"none\"}");
    qdr_machine machine = machine_of();
    const qdr_machine before = machine;
    assert_string_equal(software.name, "none");
    CHECK_OK(qdr_machine_set_software(&machine, &software));
    expect_near(machine.bf16.most, before.bf16.most);
    expect_near(machine.attention_efficiency, before.attention_efficiency);
    expect_near(machine.memory_efficiency, before.memory_efficiency);
    expect_near(machine.links[1].adapter_bytes_per_sec, before.links[1].adapter_bytes_per_sec);
    expect_near(machine.software.host_secs, 0); /* costs are the software's */
    assert_true(before.software.host_secs > 0);
    CHECK_OK(qdr_machine_check(&machine, "result"));
}

TEST(factors_and_costs)
{
    const qdr_software software = parsed(
        "{\"name\": \"some\", \"factors\": {\"products\": 0.5, \"attention\": 0, \"kernels\": 0.25, \"links\": 2}, "
        "\"costs\": {\"host_us\": 7, \"stall_nodes\": 3, \"bucket_MiB\": 25}}");
    qdr_machine machine = machine_of();
    const qdr_machine before = machine;
    CHECK_OK(qdr_machine_set_software(&machine, &software));
    expect_near(machine.bf16.most, before.bf16.most / 2);
    expect_near(machine.f32.most, before.f32.most / 2);
    expect_near(machine.attention_efficiency, 0);
    expect_near(machine.memory_efficiency, before.memory_efficiency / 4);
    expect_near(machine.links[0].rank_bytes_per_sec, 2 * before.links[0].rank_bytes_per_sec);
    expect_near(machine.links[0].switch_bytes_per_sec, 2 * before.links[0].switch_bytes_per_sec);
    expect_near(machine.links[1].adapter_bytes_per_sec, 2 * before.links[1].adapter_bytes_per_sec);
    expect_near(machine.software.host_secs, 7e-6);
    expect_near(machine.software.bucket_bytes, 25 * 1048576.0);
    assert_int_equal(machine.software.stall_nodes, 3);
    CHECK_OK(qdr_machine_check(&machine, "result"));
}

/* Nothing is faster than a peak. */
TEST(at_most_the_peak)
{
    const qdr_software software = parsed("{\"factors\": {\"products\": 9, \"attention\": 9, \"kernels\": 9}}");
    qdr_machine machine = machine_of();
    CHECK_OK(qdr_machine_set_software(&machine, &software));
    expect_near(machine.bf16.most, 1);
    expect_near(machine.attention_efficiency, 1);
    expect_near(machine.memory_efficiency, 1);
    CHECK_OK(qdr_machine_check(&machine, "result"));
}

TEST(refusals)
{
    static const char *const cases[][2] = {
        {"{\"factors\": {\"product\": 1}}", "products"},
        {"{\"factors\": {\"products\": 0}}", "products"},
        {"{\"factors\": {\"kernels\": 11}}", "kernels"},
        {"{\"factors\": {\"links\": -1}}", "links"},
        {"{\"factors\": 1}", "factors"},
        {"{\"costs\": {\"host\": 1}}", "host"},
        {"{\"most\": 1}", "most"},
        {"[]", "text"},
        {"{\"based_on\": \"no such software\"}", "no such software"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        qdr_software software = {QDR_INIT(qdr_software)};
        assert_int_equal(qdr_software_parse(cases[i][0], strlen(cases[i][0]), "text", &software), QDR_ERR_ARGUMENT);
        if (!strstr(qdr_last_error(), cases[i][1])) fail_msg("%s: %s", cases[i][0], qdr_last_error());
        expect_near(software.factors.products, 0);
    }
    qdr_machine machine = machine_of();
    qdr_software software = parsed("{}");
    software.factors.products = NAN;
    const double most = machine.bf16.most;
    assert_int_equal(qdr_machine_set_software(&machine, &software), QDR_ERR_ARGUMENT);
    expect_near(machine.bf16.most, most);
    assert_int_equal(qdr_machine_set_software(NULL, &software), QDR_ERR_ARGUMENT);
    assert_int_equal(qdr_machine_set_software(&machine, NULL), QDR_ERR_ARGUMENT);
}

static void load_one(const char *name, void *user)
{
    qdr_software software = {QDR_INIT(qdr_software)};
    CHECK_OK(qdr_software_load(name, &software));
    assert_string_equal(software.name, name);
    CHECK_OK(qdr_software_find(name, &software));
    assert_string_equal(software.name, name);
    ++*(int *)user;
}

TEST(those_that_are_installed)
{
    qdr_software software = {QDR_INIT(qdr_software)};
    int n = 0;
    CHECK_OK(qdr_software_list(load_one, &n));
    assert_true(n > 0);
    CHECK_OK(qdr_software_find("NeMo 25.04", &software)); /* begins with an alias */
    assert_string_equal(software.name, "nemo");
    assert_int_equal(qdr_software_find("Nemmo", &software), QDR_ERR_ARGUMENT);
    assert_non_null(strstr(qdr_last_error(), "NeMo"));
    assert_int_equal(qdr_software_list(NULL, NULL), QDR_ERR_ARGUMENT);
}
