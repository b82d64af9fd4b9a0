/* SPDX-License-Identifier: Apache-2.0 */
/* A small product and a small sum, on the CPU and on GPUs. Their numbers are small whole numbers, so results are exact
 * in any order of summation and in any type. */
#define _POSIX_C_SOURCE 200809L
#include <quadrille/coll.h>
#include <quadrille/launch.h>
#include <stdlib.h>
#include <string.h>

#include "common/layer_case.h"
#include "common/memory.h"
#include "common/process.h"
#include "doctor/doctor.h"

#define GROUP "works"
enum { ROWS = 48, IN = 64, OUT = 40, N_SUMMED = 1000, N_RANKS = 2 };

/* One test, run by the ranks of one process. */
typedef struct attempt {
    int n_wrong; /* elements; of rank 0 */
    double secs; /* of the second run */
    failure why;
} attempt;

/* ---- a product ---- */

typedef struct product {
    float x[ROWS * IN], w[OUT * IN], y[ROWS * OUT];
    void *x_there, *y_there;
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_linear *layer;
} product;

/* -2 to 2 */
static void fill(float *values, int n, int step)
{
    for (int i = 0; i < n; i++) values[i] = (float)(i * step % 11 % 5 - 2);
}

static qdr_status build(qdr_context *ctx, product *p)
{
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = ROWS, .dtype = QDR_F32};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{IN, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "product", .in = {{IN, 1}}, .out = {{OUT, 1}}};
    qdr_edge edges[2];
    TRY(grid_make(ctx, (grid_size){1, 1, 1, 1}, NULL, &p->grid));
    TRY(layer_build(p->grid, &opts, &input, &desc, &p->stack, edges, &p->layer));
    return qdr_stack_load_parameter(p->stack, qdr_linear_weight_index(p->layer), p->w);
}

static int try_product(qdr_context *ctx, void *user)
{
    attempt *self = user;
    product p = {.grid = NULL};
    fill(p.x, ROWS * IN, 7);
    fill(p.w, OUT * IN, 3);
    qdr_status status = build(ctx, &p);
    if (status == QDR_OK) status = qdr_mem_alloc(ctx, sizeof p.x, &p.x_there);
    if (status == QDR_OK) status = qdr_mem_alloc(ctx, sizeof p.y, &p.y_there);
    if (status == QDR_OK) status = memory_copy(ctx, p.x_there, p.x, sizeof p.x);
    for (int i = 0; i < 2 && status == QDR_OK; i++) {
        const double begin = process_secs();
        status = qdr_linear_forward(p.layer, p.x_there, p.y_there, 0, NULL);
        if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
        self->secs = process_secs() - begin;
    }
    if (status == QDR_OK) status = memory_copy(ctx, p.y, p.y_there, sizeof p.y);
    fail_status(&self->why, status);
    int n_wrong = 0;
    for (int i = 0; i < ROWS; i++)
        for (int j = 0; j < OUT; j++) {
            double sum = 0;
            for (int l = 0; l < IN; l++) sum += (double)p.x[i * IN + l] * (double)p.w[j * IN + l];
            const double y = (double)p.y[i * OUT + j];
            n_wrong += !(y >= sum && y <= sum); /* a NaN is wrong, too */
        }
    self->n_wrong = n_wrong;
    qdr_mem_free(ctx, &p.x_there);
    qdr_mem_free(ctx, &p.y_there);
    qdr_stack_destroy(&p.stack);
    qdr_grid_destroy(&p.grid);
    return self->why.code;
}

/* ---- a sum over ranks ---- */

static qdr_status sum(qdr_context *ctx, qdr_grid *grid, void *there, float *values, double *secs)
{
    const size_t bytes = N_SUMMED * sizeof *values;
    for (int i = 0; i < N_SUMMED; i++) values[i] = (float)(i % 5 + qdr_context_rank(ctx));
    TRY(memory_copy(ctx, there, values, bytes));
    TRY(qdr_barrier(ctx));
    const double begin = process_secs();
    TRY(qdr_all_reduce(grid, QDR_D, QDR_SUM, there, N_SUMMED, QDR_F32, NULL));
    TRY(qdr_stream_synchronize(qdr_context_stream(ctx)));
    *secs = process_secs() - begin;
    return memory_copy(ctx, values, there, bytes);
}

static int try_sum(qdr_context *ctx, void *user)
{
    attempt *shared = user, mine = {.n_wrong = 0};
    float values[N_SUMMED];
    void *there = NULL;
    qdr_grid *grid = NULL;
    qdr_status status = grid_make(ctx, (grid_size){1, 1, 1, N_RANKS}, NULL, &grid);
    if (status == QDR_OK) status = qdr_agree(ctx, qdr_mem_alloc(ctx, N_SUMMED * sizeof *values, &there));
    for (int i = 0; i < 2 && status == QDR_OK; i++) status = sum(ctx, grid, there, values, &mine.secs);
    for (int i = 0; i < N_SUMMED && status == QDR_OK; i++) {
        const float expected = (float)(2 * (i % 5) + 1);
        mine.n_wrong += !(values[i] >= expected && values[i] <= expected);
    }
    fail_status(&mine.why, status);
    fail_together(&mine.why, ctx);
    qdr_mem_free(ctx, &there);
    qdr_grid_destroy(&grid);
    if (qdr_context_rank(ctx) == 0) *shared = mine;
    return mine.why.code || mine.n_wrong;
}

/* ---- both tests ---- */

/* What to run to learn more about wrong numbers: on the CPU a command, for GPUs a script in the sources. */
static const char *next_of(const char *device)
{
    if (device && strcmp(device, "cpu") == 0) return "quadrille verify";
    return "sh tests/gpu/run.sh build kernels correct, in Quadrille's sources";
}

/* Runs alone in its process, or on local ranks, which the other processes of a launcher can run as well. */
static qdr_status start(int n_ranks, const char *device, qdr_main_fn fn, attempt *tried, int *code)
{
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = 1, .device = device};
    qdr_context *ctx = NULL;
    if (n_ranks > 1) return qdr_launch(n_ranks, &opts, fn, tried, code);
    TRY(qdr_context_create_self(&opts, &ctx));
    *code = fn(ctx, tried);
    qdr_context_destroy(&ctx);
    return QDR_OK;
}

static void try_on(doctor_report *report, const char *device, const char *name, int n_ranks)
{
    char what[64];
    attempt tried = {.n_wrong = 0};
    int code = 0;
    if (n_ranks > 1)
        snprintf(what, sizeof what, "the sum of %d ranks (%d numbers)", n_ranks, N_SUMMED);
    else
        snprintf(what, sizeof what, "a product of %d x %d x %d", ROWS, OUT, IN);
    const qdr_status status = start(n_ranks, device, n_ranks > 1 ? try_sum : try_product, &tried, &code);
    if (status != QDR_OK) fail_status(&tried.why, status);
    if (code && !tried.n_wrong && !tried.why.code)
        fail(&tried.why, code, "%s: a rank found wrong numbers; run %s", what, next_of(device));
    if (tried.why.code)
        doctor_add_sentence(report, GROUP, name, DOCTOR_BROKEN, tried.why.sentence);
    else if (tried.n_wrong)
        doctor_advise(doctor_add(report, GROUP, name, DOCTOR_BROKEN, "%d numbers in %s are wrong", tried.n_wrong, what),
                      "do not train here; run %s, and send its output and that of quadrille doctor --json to the "
                      "maintainers of Quadrille",
                      next_of(device));
    else
        doctor_add(report, GROUP, name, DOCTOR_GOOD, "%s is right", what)->secs = tried.secs;
}

/* 1: it was tried and is right. */
static int try_sum_on(doctor_report *report, const char *device, const char *name)
{
    const int n_launched = qdr_launched(), n_broken = doctor_count(report, DOCTOR_BROKEN);
    if (n_launched > 1)
        doctor_add(report, GROUP, name, DOCTOR_NONE, "not tried: this is one of %d processes of a launcher",
                   n_launched);
    else
        try_on(report, device, name, N_RANKS);
    return n_launched <= 1 && doctor_count(report, DOCTOR_BROKEN) == n_broken;
}

/* ---- NCCL, if there are GPUs for two ranks ---- */

/* The library's message about memory that NCCL does not register; "": none. */
static char heard[512];

static void hear(int level, const char *line, void *user)
{
    (void)level, (void)user;
    if (strstr(line, "cannot register memory")) snprintf(heard, sizeof heard, "%s", line);
}

static int is_set_to(const char *name, const char *value) { return strcmp(qdr_environment_value(name), value) == 0; }

static void try_nccl(doctor_report *report)
{
    const qdr_gpu_report *gpus = &report->gpus;
    char old[64];
    if (!gpus->nccl || !doctor_can_use(report, 0) || !doctor_can_use(report, 1)) return;
    snprintf(old, sizeof old, "%s", qdr_environment_value("QDR_CUDA_COMM"));
    setenv("QDR_CUDA_COMM", "nccl", 1);
    if (try_sum_on(report, "cuda", "all-reduce, NCCL")) {
        if (*heard)
            doctor_add_sentence(report, GROUP, "NCCL memory", DOCTOR_NOTE, heard);
        else if (is_set_to("QDR_NCCL_REGISTER", "0"))
            doctor_add(report, GROUP, "NCCL memory", DOCTOR_GOOD, "is not registered, because of QDR_NCCL_REGISTER=0");
        else if (is_set_to("QDR_CUDA_MEMORY", "managed"))
            doctor_add(report, GROUP, "NCCL memory", DOCTOR_GOOD,
                       "is not registered, because it is managed (QDR_CUDA_MEMORY)");
        else
            doctor_add(report, GROUP, "NCCL memory", DOCTOR_GOOD, "is registered (QDR_NCCL_REGISTER=0 turns that off)");
    }
    setenv("QDR_CUDA_COMM", old, 1);
}

void doctor_try_all(doctor_report *report)
{
    try_on(report, "cpu", "product, CPU", 1);
    try_sum_on(report, "cpu", "all-reduce, CPU");
    if (strcmp(qdr_environment_value("QDR_DEVICE"), "cpu") != 0) /* the device of programs that select none */
        try_on(report, NULL, "product, QDR_DEVICE", 1);
    if (report->gpus.n_gpus == 0) return;
    int n_used = 0;
    for (int i = 0; i < report->gpus.n_gpus; i++) {
        char device[20], name[32];
        if (!doctor_can_use(report, i)) continue;
        snprintf(device, sizeof device, "cuda:%d", i);
        snprintf(name, sizeof name, "product, %s", device);
        try_on(report, device, name, 1);
        n_used++;
    }
    qdr_set_log(hear, NULL); /* during the last tests, in which NCCL joins ranks with a GPU each */
    if (n_used == report->gpus.n_gpus) try_sum_on(report, "cuda", "all-reduce, cuda");
    try_nccl(report);
}
