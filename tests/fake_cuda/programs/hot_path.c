/* SPDX-License-Identifier: Apache-2.0 */
/* The library's calls to CUDA and NCCL that are made for speed, or so that nothing waits forever: results do not show
 * them. Runs steps of a small GPT, between which nothing waits for the GPU, so that only the streams determine the
 * order; then checks the fake's counters.
 *
 *   hot_path GRID local|nccl|unordered CTAS [BESIDE]    CTAS: the most that a collective takes; unordered: nccl, and
 *                                                       the user wants no order of launches; BESIDE: these ran beside
 *                                                       products, and none waited for one */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "served.h"
#include "small_gpt.h"

enum { STEPS = 3, SMS = 64 };

/* Nobody waits on the host within a step: neither in what is enqueued, nor in what enqueues it. The count is of all
 * ranks, so they all do the same between two barriers. */
static qdr_status check_waits(qdr_context *ctx, small_gpt *m)
{
    TRY(small_gpt_fill(m, 0));
    TRY(qdr_barrier(ctx));
    const int64_t before = counted("wait of the host");
    TRY(qdr_barrier(ctx));
    TRY(qdr_stack_forward(m->gpt.stack));
    TRY(small_gpt_backward(m, 0));
    TRY(qdr_adamw_step(m->optimizer, 1e-2));
    TRY(qdr_barrier(ctx));
    const int64_t n = counted("wait of the host") - before;
    TRY(qdr_barrier(ctx));
    if (n == 0 && before > 0) return QDR_OK;
    fprintf(stderr, "the host waited %lld times in a step, %lld before\n", (long long)n, (long long)before);
    return QDR_ERR_STATE;
}

static qdr_status train(qdr_context *ctx, small_gpt *m)
{
    TRY(small_gpt_create(ctx, m));
    TRY(gpt_init(&m->gpt, 1, 0.1));
    for (int step = 0; step < STEPS; step++) TRY(small_gpt_train(m, NULL));
    return check_waits(ctx, m);
}

static int run_rank(qdr_context *ctx, void *user)
{
    small_gpt m = *(const small_gpt *)user;
    const int exit_code = small_gpt_leave(ctx, train(ctx, &m));
    small_gpt_destroy(&m);
    return exit_code;
}

static int check(const char *what, int64_t least, int64_t most)
{
    const int64_t n = counted(what);
    if (n >= least && n <= most) return 0;
    fprintf(stderr, "%s: %lld, not %lld to %lld\n", what, (long long)n, (long long)least, (long long)most);
    return 1;
}

static int is(const char *what, int64_t n) { return check(what, n, n); }
static int some(const char *what) { return check(what, 1, INT64_MAX); }

/* Events without times, streams that the default stream does not block; axes go before products. */
static int check_streams(void)
{
    return is("timed event", 0) + is("blocking stream", 0) + some("product") + is("urgent product", 0);
}

/* Each communicator has space on the GPU in addition to the others, for sends and receives of a power of two, and
 * products leave it to one of them. */
static int check_nccl(int n_ctas, int is_ordered)
{
    int n_sms = 1;
    while (n_sms < n_ctas) n_sms *= 2;
    return some("urgent") + (is_ordered ? is("unordered", 0) : some("unordered")) + is("shared", 0) +
           is("asynchronous", 0) + is("CTAs", n_ctas) + is("SMs", SMS - n_sms) +
           is("confined product", counted("product"));
}

/* Of products that last a while; a collective alone never waits for one. Kernels are those of codecs. */
static int check_beside(const char *what)
{
    char name[64];
    snprintf(name, sizeof name, "%s beside a product", what);
    const int n_bad = some(name) + is("collective behind a product", 0);
    return strcmp(what, "kernel") == 0 ? n_bad + some("kernel of several messages") : n_bad;
}

static int check_local(void) { return is("confined product", 0) + is("SMs", 0); }

int main(int argc, char **argv)
{
    small_gpt m = {.config = {.network.hidden = 16, .n_sequences = 4, .layout = QDR_SCATTERED}};
    char sms[16];
    const int n = argc >= 4 ? small_gpt_read_shape(&m, argv[1]) : 0;
    if (!n) return 2;
    const int is_local = strcmp(argv[2], "local") == 0;
    const int is_ordered = strcmp(argv[2], "unordered") != 0;
    snprintf(sms, sizeof sms, "%d", SMS);
    setenv("FAKE_CUDA_SMS", sms, 1);
    setenv("QDR_CUDA_COMM", is_local ? "local" : "nccl", 1);
    if (argc > 4) {
        setenv("FAKE_CUDA_PRODUCT_US", "2000", 1);
        m.config.network.layers = m.config.panels = 2;
    }
    if (!is_ordered) setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "0", 1);
    if (small_gpt_launch(n, run_rank, &m)) return 1;
    int n_bad = check_streams() + (is_local ? check_local() : check_nccl(atoi(argv[3]), is_ordered));
    for (int i = 4; i < argc; i++) n_bad += check_beside(argv[i]);
    return n_bad > 0;
}
