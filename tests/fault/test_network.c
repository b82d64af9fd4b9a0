/* SPDX-License-Identifier: Apache-2.0 */
/* Networks while the n-th allocation fails: QDR_ERR_MEMORY, and no results. */
#include "fault/inject.h"
#include "qdr_test.h"
#include "quadrille/network.h"

static void count_name(const char *name, void *user)
{
    (void)name;
    ++*(int *)user;
}

/* One call of each function that allocates. */
static qdr_status load(qdr_network *net, int *n_names)
{
    (void)n_names;
    return qdr_network_load("gpt2", net);
}

static qdr_status parse(qdr_network *net, int *n_names)
{
    (void)n_names;
    return qdr_network_parse("{\"model_type\": \"gpt2\"}", 22, "text", net);
}

static qdr_status list(qdr_network *net, int *n_names)
{
    (void)net;
    return qdr_network_list(count_name, n_names);
}

/* Its own sentence needs a list of names. */
static qdr_status unknown(qdr_network *net, int *n_names)
{
    (void)n_names;
    return qdr_network_load("gtp2", net);
}

static void check_call(qdr_status (*call)(qdr_network *net, int *n_names), qdr_status expected)
{
    for (long n = 0;; n++) {
        qdr_network net = {QDR_INIT(qdr_network)};
        int n_names = 0;
        inject_begin(INJECT_MEMORY, n, INJECT_ONCE);
        const qdr_status status = call(&net, &n_names);
        inject_end();
        if (!inject_happened()) {
            assert_int_equal(status, expected);
            assert_true(n > 0);
            return;
        }
        assert_int_equal(net.layers, 0);
        assert_int_equal(n_names, 0);
        CHECK_FAILS(status, QDR_ERR_MEMORY, "out of memory");
    }
}

TEST(each_allocation)
{
    check_call(load, QDR_OK);
    check_call(parse, QDR_OK);
    check_call(list, QDR_OK);
    check_call(unknown, QDR_ERR_ARGUMENT);
}
