/* SPDX-License-Identifier: Apache-2.0 */
/* Simulated time, event by event. */
#include "price/simulate.h"

#include <float.h>
#include <string.h>

/* ---- links ---- */

/* How many more bytes per second each growing flow can get before a link is full; *full: that link. */
static double room_on_links(int n, const qdri_price *const transfers[], const double rates[], const int grows[],
                            int *full)
{
    double least = DBL_MAX;
    for (int link = 0; link < QDR_MAX_LINKS; link++) {
        double taken = 0, growing = 0;
        for (int i = 0; i < n; i++) {
            const double use = transfers[i]->use[link];
            taken += rates[i] * use;
            if (grows[i]) growing += use / transfers[i]->flow_bytes_per_sec;
        }
        if (!(growing > 0 && (1 - taken) / growing < least)) continue;
        least = (1 - taken) / growing;
        *full = link;
    }
    return least > 0 ? least : 0;
}

/* Each round stops at least the transfer, or those on the link, that allowed it no more: whatever the rounding of the
 * rates, there are no more rounds than transfers. */
void qdri_share_links(int n, const qdri_price *const transfers[], double rates[])
{
    int grows[QDRI_N_STREAMS], n_growing = n;
    for (int i = 0; i < n; i++) {
        rates[i] = 0;
        grows[i] = 1;
    }
    while (n_growing > 0) {
        int full = -1, fastest = -1;
        double step = room_on_links(n, transfers, rates, grows, &full);
        for (int i = 0; i < n; i++) {
            const double left = (1 - rates[i]) * transfers[i]->flow_bytes_per_sec;
            if (!grows[i] || left >= step) continue;
            step = left;
            fastest = i;
        }
        n_growing = 0;
        for (int i = 0; i < n; i++) {
            if (!grows[i]) continue;
            rates[i] += step / transfers[i]->flow_bytes_per_sec;
            const int stops = fastest >= 0 ? i == fastest : full < 0 || transfers[i]->use[full] > 0;
            if (stops || rates[i] >= 1 - 1e-12) grows[i] = 0;
            n_growing += grows[i];
        }
    }
}

/* ---- streams ---- */

typedef struct simulation {
    const qdr_machine *machine;
    const qdri_task *tasks;
    const qdri_price *prices;
    int *after; /* by task: the next one on its stream; -1: none */
    double now;
    int next[QDRI_N_STREAMS]; /* task that is waiting to start; -1: none */
    int finished[QDRI_N_STREAMS]; /* last finished task; -1: none */
    int n_active, active[QDRI_N_STREAMS]; /* streams with a running task */
    int running[QDRI_N_STREAMS];
    double latency[QDRI_N_STREAMS], work[QDRI_N_STREAMS]; /* what remains of the running task */
    double rate[QDRI_N_STREAMS];
    qdri_sim_times *times;
    qdri_sim_span *spans;
} simulation;

static void begin(simulation *sim, int n_tasks)
{
    int last[QDRI_N_STREAMS];
    for (int s = 0; s < QDRI_N_STREAMS; s++) sim->next[s] = sim->finished[s] = sim->running[s] = last[s] = -1;
    for (int i = 0; i < n_tasks; i++) {
        const int s = sim->tasks[i].stream;
        sim->after[i] = -1;
        if (last[s] < 0)
            sim->next[s] = i;
        else
            sim->after[last[s]] = i;
        last[s] = i;
    }
}

static int start_ready(simulation *sim)
{
    const qdri_task *tasks = sim->tasks;
    int n_started = 0;
    for (int s = 0; s < QDRI_N_STREAMS; s++) {
        const int i = sim->next[s];
        if (i < 0 || sim->running[s] >= 0) continue;
        int n_done = 0; /* of the tasks that it waits for */
        while (n_done < tasks[i].n_waits &&
               sim->finished[tasks[tasks[i].waits[n_done]].stream] >= tasks[i].waits[n_done])
            n_done++;
        if (n_done < tasks[i].n_waits) continue;
        sim->running[s] = i;
        sim->next[s] = sim->after[i];
        sim->latency[s] = sim->prices[i].latency_secs;
        sim->work[s] = sim->prices[i].work_secs;
        sim->active[sim->n_active++] = s;
        if (sim->spans) sim->spans[i].start_secs = sim->now;
        n_started++;
    }
    return n_started;
}

/* The rates at which the work of all running tasks progresses; latency passes at rate 1. */
static void set_rates(simulation *sim)
{
    const qdri_price *transfers[QDRI_N_STREAMS];
    double rates[QDRI_N_STREAMS];
    int streams[QDRI_N_STREAMS], n = 0;
    double slowdown = 0;
    for (int a = 0; a < sim->n_active; a++) {
        const int s = sim->active[a];
        const qdri_price *price = &sim->prices[sim->running[s]];
        if (!(price->flow_bytes_per_sec > 0) || sim->latency[s] > 0) continue;
        slowdown += price->slowdown + price->processor_slowdown;
        transfers[n] = price;
        streams[n++] = s;
    }
    const double beside_transfers = n ? 1 / (1 + sim->machine->processor_slowdown + slowdown) : 1;
    for (int a = 0; a < sim->n_active; a++) sim->rate[sim->active[a]] = beside_transfers;
    rates[0] = 1;
    if (n > 1) qdri_share_links(n, transfers, rates);
    const int computes = sim->running[QDRI_STREAM_OF_COMPUTE] >= 0;
    for (int i = 0; i < n; i++)
        sim->rate[streams[i]] = rates[i] / (computes ? 1 + sim->machine->transfer_slowdown + transfers[i]->slowdown +
                                                           transfers[i]->own_slowdown
                                                     : 1);
}

/* Until the next task ends, or its work begins. */
static void advance(simulation *sim)
{
    double secs = DBL_MAX;
    for (int a = 0; a < sim->n_active; a++) {
        const int s = sim->active[a];
        const double left = sim->latency[s] > 0 ? sim->latency[s] : sim->work[s] / sim->rate[s];
        if (left < secs) secs = left;
    }
    if (sim->running[QDRI_STREAM_OF_COMPUTE] < 0) {
        const double share = secs / (sim->n_active ? sim->n_active : 1);
        for (int a = 0; a < sim->n_active; a++) sim->times->exposed[sim->active[a]] += share;
    }
    sim->now += secs;
    for (int a = 0; a < sim->n_active; a++) {
        const int s = sim->active[a];
        sim->times->busy[s] += secs;
        if (sim->latency[s] > 0) {
            sim->latency[s] -= secs;
            if (sim->latency[s] < 1e-15) sim->latency[s] = 0;
        } else {
            sim->work[s] -= secs * sim->rate[s];
        }
    }
    for (int a = sim->n_active - 1; a >= 0; a--) {
        const int s = sim->active[a], i = sim->running[s];
        if (sim->latency[s] > 0 || sim->work[s] > 1e-15) continue;
        sim->finished[s] = i;
        sim->running[s] = -1;
        sim->active[a] = sim->active[--sim->n_active];
        sim->times->stream_end[s] = sim->now;
        if (sim->spans) sim->spans[i].end_secs = sim->now;
    }
}

void qdri_simulate(const qdr_machine *machine, const qdri_schedule *schedule, const qdri_price *prices, int *next,
                   qdri_sim_times *times, qdri_sim_span *spans)
{
    simulation sim = {
        .machine = machine, .tasks = schedule->tasks, .prices = prices, .after = next, .times = times, .spans = spans};
    memset(times, 0, sizeof *times);
    begin(&sim, schedule->n_tasks);
    while (start_ready(&sim) || sim.n_active) {
        set_rates(&sim);
        advance(&sim);
    }
    times->end_secs = sim.now;
}
