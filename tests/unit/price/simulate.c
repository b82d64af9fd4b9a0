/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated time compared with closed forms, and with a simulation in small time steps. */
#include "price/simulate.h"

#include <math.h>
#include <unistd.h>

#include "qdr_test.h"

enum { MOST = 64 };

/* A list being made by hand. */
typedef struct list {
    qdri_task tasks[MOST];
    qdri_price prices[MOST];
    int next[MOST];
    qdri_schedule schedule;
} list;

static int add(list *l, int stream, double latency, double work, double use, int wait)
{
    const int i = l->schedule.n_tasks++;
    l->tasks[i] = (qdri_task){.stream = stream};
    if (wait >= 0) l->tasks[i].waits[l->tasks[i].n_waits++] = wait;
    l->prices[i] = (qdri_price){.latency_secs = latency, .work_secs = work, .flow_bytes_per_sec = use, .use = {use}};
    return i;
}

static qdri_sim_times run(list *l, double processor, double transfer, qdri_sim_span *spans)
{
    qdri_sim_times times;
    const qdr_machine machine = {.processor_slowdown = processor, .transfer_slowdown = transfer};
    l->schedule.tasks = l->tasks;
    qdri_simulate(&machine, &l->schedule, l->prices, l->next, &times, spans);
    return times;
}

static void near(double a, double b)
{
    if (!(fabs(a - b) <= 1e-12 * (1 + fabs(b)))) fail_msg("%.15g is not %.15g", a, b);
}

TEST(streams)
{
    list l = {.schedule = {0}};
    near(run(&l, 0, 0, NULL).end_secs, 0);
    const int a = add(&l, 0, 0, 3, 0, -1);
    add(&l, 1, 0.5, 1, 1, -1);
    add(&l, 0, 0, 2, 0, -1);
    qdri_sim_times t = run(&l, 0, 0, NULL);
    near(t.end_secs, 5); /* the transfer is hidden */
    near(t.busy[0], 5);
    near(t.busy[1], 1.5);
    near(t.exposed[1], 0);
    add(&l, 1, 0.25, 4, 1, a); /* begins at 3 */
    t = run(&l, 0, 0, NULL);
    near(t.end_secs, 7.25);
    near(t.exposed[1], 2.25);
    add(&l, 0, 0, 0, 0, 3); /* nothing to do, waits */
    near(run(&l, 0, 0, NULL).end_secs, 7.25);
}

TEST(slowdown)
{
    list l = {.schedule = {0}};
    add(&l, 0, 0, 2, 0, -1);
    add(&l, 1, 0, 1, 1, -1);
    /* Both run until the transfer has done its 1 at a rate of 1/1.5, at 1.5; by then the processor has done 1.5/1.25 =
     * 1.2, and does the other 0.8 alone. */
    const qdri_sim_times t = run(&l, 0.25, 0.5, NULL);
    near(t.stream_end[1], 1.5);
    near(t.end_secs, 2.3);
}

/* Beside the machine's, slowdowns of the transfers that run: of their link, both ways, and of their codecs, of products
 * and of themselves. */
TEST(slowdown_of_transfers)
{
    list l = {.schedule = {0}};
    add(&l, 0, 0, 2, 0, -1);
    const int a = add(&l, 1, 0, 1, 0.25, -1), b = add(&l, 2, 0, 1, 0.25, -1);
    l.prices[a].slowdown = 0.25;
    l.prices[b].slowdown = 0.5;
    l.prices[b].processor_slowdown = 0.75;
    l.prices[b].own_slowdown = 2;
    /* a takes 1 + 0.5 + 0.25 beside products, which then run at 1/(1 + 0.25 + 0.25 + 0.5 + 0.75). b takes 1 + 0.5 +
     * 0.5 + 2 there, and products 1 + 0.25 + 0.5 + 0.75 beside b alone. */
    qdri_sim_times t = run(&l, 0.25, 0.5, NULL);
    near(t.stream_end[1], 1.75);
    const double done = 1.75 / 2.75, both = 4 - 1.75, left = 2 - done - both / 2.5;
    assert_true(left > 0);
    near(t.stream_end[2], 4);
    near(t.end_secs, 4 + left);
    /* One that has not begun slows nothing down, and without products nothing slows down transfers. */
    l.prices[b].latency_secs = 4;
    t = run(&l, 0.25, 0.5, NULL);
    const double beside_a = 1.75 / 1.5, alone = 2 - beside_a;
    near(t.stream_end[1], 1.75);
    near(t.stream_end[0], 1.75 + alone);
    near(t.stream_end[2], 5);
}

/* Four groups on one link take four times as long; one that needs a tenth of it is not slowed. */
TEST(links)
{
    list l = {.schedule = {0}};
    for (int s = 1; s <= 4; s++) add(&l, s, 0, 1, 1, -1);
    near(run(&l, 0, 0, NULL).end_secs, 4);
    add(&l, 5, 0, 2, 0.1, -1);
    const qdri_sim_times t = run(&l, 0, 0, NULL);
    near(t.stream_end[5], 2);
    near(t.stream_end[1], 2 + (1 - 2 * 0.9 / 4) * 4);
    const qdri_price a = {.flow_bytes_per_sec = 1, .use = {1, 0.5}}, b = {.flow_bytes_per_sec = 1, .use = {0, 1}},
                     c = {.flow_bytes_per_sec = 1, .use = {0.5}}, slow = {.flow_bytes_per_sec = 0.1, .use = {0.4}};
    const qdri_price *const alike[] = {&a, &b, &c}, *const unlike[] = {&a, &slow};
    double rates[3];
    qdri_share_links(3, alike, rates);
    /* Together to 2/3, where a and c fill link 0 and a and b fill link 1: 2/3·0.5 + 2/3 = 1. */
    for (int i = 0; i < 3; i++) near(rates[i], 2.0 / 3);
    qdri_share_links(2, unlike, rates); /* the slow one is at its most when a still grows */
    near(rates[1], 1);
    near(rates[0], 0.6);
}

/* A flow that links cannot be divided by: no machine has it, and sharing ends all the same. */
TEST(ends)
{
    const qdri_price slow = {.flow_bytes_per_sec = 1e-310, .use = {0.6}},
                     fast = {.flow_bytes_per_sec = 1, .use = {0.6}};
    const qdri_price *const both[] = {&slow, &fast};
    double rates[2];
    alarm(60);
    qdri_share_links(2, both, rates);
    alarm(0);
    for (int i = 0; i < 2; i++) assert_true(rates[i] >= 0 && rates[i] <= 1);
}

/* The same by a clock with small ticks, and rates by water-filling in small steps. */
typedef struct ticking {
    double latency[MOST], work[MOST], end[MOST];
    int done[MOST];
} ticking;

static int may_run(const list *l, const ticking *t, int i)
{
    for (int j = 0; j < i; j++)
        if (l->tasks[j].stream == l->tasks[i].stream && !t->done[j]) return 0;
    for (int w = 0; w < l->tasks[i].n_waits; w++)
        if (!t->done[l->tasks[i].waits[w]]) return 0;
    return !t->done[i];
}

static void tick_rates(const list *l, const int *runs, const ticking *t, double *rates)
{
    double full[QDR_MAX_LINKS] = {0};
    int stopped[MOST] = {0}, n = l->schedule.n_tasks;
    memset(rates, 0, (size_t)n * sizeof *rates);
    for (int step = 0; step < 2000; step++)
        for (int i = 0; i < n; i++) {
            if (!runs[i] || stopped[i] || l->tasks[i].stream == 0 || t->latency[i] > 0) continue;
            const qdri_price *price = &l->prices[i];
            const double grown = 1.0 / 2000 / price->flow_bytes_per_sec;
            for (int k = 0; k < QDR_MAX_LINKS; k++)
                if (full[k] + price->use[k] * grown > 1 + 1e-9 && price->use[k] > 0) stopped[i] = 1;
            if (rates[i] + grown > 1 + 1e-9) stopped[i] = 1;
            if (stopped[i]) continue;
            rates[i] += grown;
            for (int k = 0; k < QDR_MAX_LINKS; k++) full[k] += price->use[k] * grown;
        }
}

/* Whether a tick changed which tasks run at which rate. */
static int tick(const list *l, ticking *t, const double *rates, const int *runs, double now, double secs,
                const double slow[2])
{
    int computes = 0, transfers = 0, changed = 0;
    for (int i = 0; i < l->schedule.n_tasks; i++) {
        computes |= runs[i] && l->tasks[i].stream == 0;
        transfers |= runs[i] && l->tasks[i].stream != 0 && t->latency[i] <= 0;
    }
    for (int i = 0; i < l->schedule.n_tasks; i++) {
        if (!runs[i]) continue;
        const int on_processor = l->tasks[i].stream == 0;
        const double rate = on_processor ? 1 / (1 + (transfers ? slow[0] : 0))
                                         : rates[i] / (1 + (computes ? slow[1] : 0));
        if (t->latency[i] > 0) {
            t->latency[i] -= secs;
            changed |= t->latency[i] <= 0;
        } else {
            t->work[i] -= secs * rate;
        }
        if (t->latency[i] > 0 || t->work[i] > 0) continue;
        t->done[i] = changed = 1;
        t->end[i] = now + secs;
    }
    return changed;
}

static double tick_all(const list *l, double secs, const double slow[2])
{
    ticking t = {.done = {0}};
    int runs[MOST] = {0}, changed = 1, n_left = l->schedule.n_tasks;
    double rates[MOST], end = 0;
    for (int i = 0; i < l->schedule.n_tasks; i++) {
        t.latency[i] = l->prices[i].latency_secs;
        t.work[i] = l->prices[i].work_secs;
    }
    for (double now = 0; n_left > 0; now += secs) {
        for (int i = 0; changed && i < l->schedule.n_tasks; i++) runs[i] = may_run(l, &t, i);
        if (changed) tick_rates(l, runs, &t, rates);
        changed = tick(l, &t, rates, runs, now, secs, slow);
        n_left = 0;
        for (int i = 0; i < l->schedule.n_tasks; i++) {
            n_left += !t.done[i];
            if (t.end[i] > end) end = t.end[i];
        }
    }
    return end;
}

TEST(random_lists)
{
    const double slow[2] = {0.2, 0.3};
    uint64_t seed = test_seed();
    for (int trial = 0; trial < 20; trial++) {
        list l = {.schedule = {0}};
        for (int i = 0; i < 14; i++) {
            const int stream = (int)(test_random(&seed) % 4);
            const int wait = i && test_random(&seed) % 3 == 0 ? (int)(test_random(&seed) % (uint64_t)i) : -1;
            const double latency = stream ? (double)(test_random(&seed) % 10) / 20 : 0;
            const double use = stream ? 0.1 * (double)(1 + test_random(&seed) % 10) : 0;
            add(&l, stream, latency, 0.1 + (double)(test_random(&seed) % 10) / 10, use, wait);
        }
        const double end = run(&l, slow[0], slow[1], NULL).end_secs;
        const double ticked = tick_all(&l, 1e-3, slow);
        /* 14 tasks, each ending up to two ticks late; rates cut to 1/2000 of a flow of 0.1 or more. */
        assert_true(fabs(end - ticked) <= 28e-3 + 10e-3 * end);
    }
}

/* The parts of a step add up. */
TEST(exposed)
{
    uint64_t seed = test_seed();
    for (int trial = 0; trial < 200; trial++) {
        list l = {.schedule = {0}};
        for (int i = 0; i < 40; i++)
            add(&l, (int)(test_random(&seed) % 6), 0.01, (double)(test_random(&seed) % 10) / 10, 0.5,
                i ? (int)(test_random(&seed) % (uint64_t)i) : -1);
        qdri_sim_span spans[MOST];
        const qdri_sim_times t = run(&l, 0.1, 0.1, spans);
        double sum = t.busy[0], last = 0;
        for (int s = 0; s < QDRI_N_STREAMS; s++) sum += t.exposed[s];
        assert_true(fabs(sum - t.end_secs) <= 1e-9 * t.end_secs);
        for (int i = 0; i < 40; i++) {
            assert_true(spans[i].end_secs >= spans[i].start_secs);
            if (spans[i].end_secs > last) last = spans[i].end_secs;
        }
        assert_true(fabs(last - t.end_secs) < 1e-12);
    }
}
