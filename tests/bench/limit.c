/* SPDX-License-Identifier: Apache-2.0 */
/* An upper limit for the speed of examples/train: only the products of its layers, all those of one step (forward,
 * dX, dW), on P threads with one BLAS thread each, every matrix in its own memory. limit [P [SECONDS]]; prints tokens
 * per second, and GFLOP/s per thread. */
#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LAYERS = 4, HIDDEN = 128, VOCABULARY = 256, TOKENS = 512, MAX_THREADS = 64 };

static const struct {
    int n, k;
} block[] = {{3 * HIDDEN, HIDDEN}, {HIDDEN, HIDDEN}, {4 * HIDDEN, HIDDEN}, {HIDDEN, 4 * HIDDEN}},
  head = {VOCABULARY, HIDDEN};
enum { N_PRODUCTS = 4 * LAYERS + 1 };

typedef struct operands {
    int n, k;
    float *x, *y, *dx, *dy, *w, *dw;
} operands;

typedef struct worker {
    pthread_t thread;
    pthread_barrier_t *start;
    int rows, n_steps;
    double secs;
} worker;

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static float *make(size_t n)
{
    float *values = malloc(n * sizeof *values);
    if (!values) exit(1);
    for (size_t i = 0; i < n; i++) values[i] = (float)(i % 17) * 0.1f - 0.8f;
    return values;
}

static operands make_operands(int rows, int n, int k)
{
    const size_t m = (size_t)rows, width = (size_t)n, depth = (size_t)k;
    return (operands){n,
                      k,
                      make(m * depth),
                      make(m * width),
                      make(m * depth),
                      make(m * width),
                      make(width * depth),
                      make(width * depth)};
}

static void forward(const operands *o, int m)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, m, o->n, o->k, 1, o->x, o->k, o->w, o->k, 0, o->y, o->n);
}

static void backward(const operands *o, int m)
{
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, m, o->k, o->n, 1, o->dy, o->n, o->w, o->k, 0, o->dx, o->k);
    cblas_sgemm(CblasRowMajor, CblasTrans, CblasNoTrans, o->n, o->k, m, 1, o->dy, o->n, o->x, o->k, 0, o->dw, o->k);
}

static void *work(void *argument)
{
    worker *self = argument;
    operands all[N_PRODUCTS];
    for (int i = 0; i < N_PRODUCTS; i++)
        all[i] = i < 4 * LAYERS ? make_operands(self->rows, block[i % 4].n, block[i % 4].k)
                                : make_operands(self->rows, head.n, head.k);
    pthread_barrier_wait(self->start);
    const double began = now();
    for (int step = 0; step < self->n_steps; step++) {
        for (int i = 0; i < N_PRODUCTS; i++) forward(&all[i], self->rows);
        for (int i = N_PRODUCTS; i-- > 0;) backward(&all[i], self->rows);
    }
    self->secs = now() - began;
    return NULL; /* the memory goes with the process */
}

/* Seconds of the slowest. */
static double run(int n_threads, int n_steps)
{
    worker workers[MAX_THREADS];
    pthread_barrier_t start;
    double secs = 0;
    pthread_barrier_init(&start, NULL, (unsigned)n_threads);
    for (int i = 0; i < n_threads; i++) {
        workers[i] = (worker){.start = &start, .rows = TOKENS / n_threads, .n_steps = n_steps};
        if (pthread_create(&workers[i].thread, NULL, work, &workers[i])) exit(1);
    }
    for (int i = 0; i < n_threads; i++) {
        pthread_join(workers[i].thread, NULL);
        if (workers[i].secs > secs) secs = workers[i].secs;
    }
    pthread_barrier_destroy(&start);
    return secs;
}

int main(int argc, char **argv)
{
    const int n_threads = argc > 1 ? atoi(argv[1]) : 2;
    const double wanted_secs = argc > 2 ? atof(argv[2]) : 3;
    if (n_threads < 1 || n_threads > MAX_THREADS || TOKENS % n_threads || !(wanted_secs > 0)) {
        fprintf(stderr, "usage: limit [THREADS [SECONDS]]; the threads divide %d tokens\n", TOKENS);
        return 2;
    }
    openblas_set_num_threads(1);
    const double one_step = run(n_threads, 10) / 10;
    const int n_steps = (int)(wanted_secs / one_step) + 1;
    const double secs = run(n_threads, n_steps);
    double flops = 2.0 * TOKENS * head.n * head.k * 3;
    for (int i = 0; i < 4; i++) flops += 2.0 * TOKENS * block[i].n * block[i].k * 3 * LAYERS;
    printf("%.0f tokens/s, %.1f GFLOP/s a thread, %d steps\n", TOKENS * n_steps / secs,
           1e-9 * flops * n_steps / secs / n_threads, n_steps);
    return 0;
}
