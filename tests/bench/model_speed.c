/* SPDX-License-Identifier: Apache-2.0 */
/* The speed of the model on one core: closed-form bounds and simulated layers per second. Templates are built before
 * the timing starts, as they are for all but the first of many queries. */
#include <quadrille/plan.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { N_RUNS = 15, N_PREDICTED = 2000, LAYERS = 4 };

static double now_secs(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_size(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int complain(void)
{
    fprintf(stderr, "model_speed: %s\n", qdr_last_error());
    return 1;
}

static int time_searches(qdr_model *model, int n_ranks, int any_levels, qdr_search_result *found)
{
    const qdr_search_opts opts = {QDR_INIT(qdr_search_opts), .n_ranks = n_ranks,   .batch = 2048,
                                  .dtype = QDR_BF16,         .memory_bytes = 1e15, .any_levels = any_levels};
    double secs[N_RUNS];
    if (qdr_model_search(model, &opts, found) != QDR_OK) return complain();
    for (int i = 0; i < N_RUNS; i++) {
        const double start = now_secs();
        if (qdr_model_search(model, &opts, found) != QDR_OK) return complain();
        secs[i] = now_secs() - start;
    }
    qsort(secs, N_RUNS, sizeof *secs, by_size);
    printf("search of %d ranks%s: %lld bounds and %lld simulations in %.0f ms, %.2f million bounds per "
           "second (median of %d)\n",
           n_ranks, any_levels ? ", any levels" : "", (long long)found->n_bounded, (long long)found->n_simulated,
           1e3 * secs[N_RUNS / 2], 1e-6 * (double)found->n_bounded / secs[N_RUNS / 2], N_RUNS);
    return 0;
}

/* A prediction runs four layers forward, and backward as the last micro-batch and as one before. */
static int time_simulations(qdr_model *model, const qdr_search_result *found)
{
    double secs[N_RUNS];
    qdr_plan plan = {QDR_INIT(qdr_plan)};
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    for (int run = 0; run < N_RUNS; run++) {
        const double start = now_secs();
        for (int i = 0; i < N_PREDICTED; i++) {
            if (qdr_model_best(model, i % found->n_best, &plan, NULL) != QDR_OK) return complain();
            if (qdr_model_predict(model, &plan, &result) != QDR_OK) return complain();
        }
        secs[run] = now_secs() - start;
    }
    qsort(secs, N_RUNS, sizeof *secs, by_size);
    printf("%d predictions in %.0f ms: %.0f layers per second, each forward and backward, with a second "
           "backward if there are micro-batches (median of %d)\n",
           N_PREDICTED, 1e3 * secs[N_RUNS / 2], N_PREDICTED * LAYERS / secs[N_RUNS / 2], N_RUNS);
    return 0;
}

int main(int argc, char **argv)
{
    qdr_search_result found = {QDR_INIT(qdr_search_result)};
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_model *model = NULL;
    const int n_ranks = argc > 1 ? atoi(argv[1]) : 4096;
    if (qdr_machine_load("dgx-h100", &machine) != QDR_OK || qdr_network_load("llama-3.1-405b", &network) != QDR_OK ||
        qdr_model_create(&machine, &network, &model) != QDR_OK)
        return complain();
    const int failed = time_searches(model, n_ranks, 1, &found) || time_searches(model, n_ranks, 0, &found) ||
                       time_simulations(model, &found);
    qdr_model_destroy(&model);
    return failed;
}
