/* SPDX-License-Identifier: Apache-2.0 */
/* Times a layer's three products with W in either storage. All ranks compute at the same time, as in training, because
 * they share caches and memory. */
#include <math.h>
#include <stdlib.h>

#include "core/size.h"
#include "dev/clock.h"
#include "dev/cpu/narrow.h"
#include "linear/measures.h"
#include "linear/tune.h"

enum { LEAST_ROUNDS = 5, MOST_ROUNDS = 51, N_TIMES = 2 * QDRI_N_PRODUCTS, MOST_SECS = 16 };
#define ROUNDS_SECS 0.1

typedef double product_secs[2][QDRI_N_PRODUCTS];
typedef int product_algorithms[2][QDRI_N_PRODUCTS];

typedef struct operands {
    void *x, *y, *w; /* y: also used for dY */
    void *result; /* of any of the products */
    void *secs; /* exchanged between ranks */
} operands;

/* How one product is run. */
typedef struct way {
    qdri_product_kind kind;
    qdr_storage storage;
    int algorithm;
} way;

static qdr_status take(qdri_dev *dev, int64_t rows, int64_t cols, qdr_dtype dtype, void **memory)
{
    int64_t n_elems;
    size_t bytes;
    QDR_TRY(qdri_mul_elems(rows, cols, &n_elems));
    QDR_TRY(qdri_elems_bytes(n_elems, dtype, &bytes));
    return qdri_mem_alloc(dev, bytes, memory);
}

enum { BLOCK_ELEMS = 1 << 16 };

static qdr_status fill(qdr_stream *stream, void *memory, int64_t n_elems, const void *block, size_t each)
{
    for (int64_t at = 0; at < n_elems; at += BLOCK_ELEMS) {
        const int64_t n = qdri_least(n_elems - at, BLOCK_ELEMS);
        QDR_TRY(qdri_copy(stream, (char *)memory + (size_t)at * each, block, (size_t)n * each));
    }
    return QDR_OK;
}

qdr_status qdri_take_random(qdr_stream *stream, int64_t rows, int64_t cols, qdr_dtype dtype, void **memory)
{
    const size_t each = qdr_dtype_bytes(dtype);
    void *block = NULL;
    QDR_TRY(take(qdri_stream_dev(stream), rows, cols, dtype, memory));
    QDR_TRY(qdri_calloc(BLOCK_ELEMS, each, "random numbers", &block));
    uint32_t state = 1; /* for numbers in [-0.5, 0.5], which are repeated after a block */
    for (int i = 0; i < BLOCK_ELEMS; i++) {
        state = state * 1664525u + 1013904223u; /* Numerical Recipes */
        const float number = (float)(state >> 8) * 0x1p-24f - 0.5f;
        if (dtype == QDR_F64) ((double *)block)[i] = (double)number;
        if (dtype == QDR_F32) ((float *)block)[i] = number;
        if (qdri_is_narrow(dtype)) ((uint16_t *)block)[i] = qdri_narrow_round(dtype, number);
    }
    const qdr_status status = fill(stream, *memory, rows * cols, block, each);
    const qdr_status ended = qdri_stream_synchronize(stream); /* the block is in use until then */
    free(block);
    return status == QDR_OK ? ended : status;
}

static int64_t most(int64_t a, int64_t b) { return a > b ? a : b; }

static qdr_status operands_create(const qdr_stack *stack, const qdri_tune_key *key, operands *o)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    QDR_TRY(qdri_take_random(stream, key->m, key->k, key->dtype, &o->x));
    QDR_TRY(qdri_take_random(stream, key->m, key->n, key->dtype, &o->y));
    QDR_TRY(qdri_take_random(stream, key->n, key->k, key->dtype, &o->w));
    QDR_TRY(take(dev, most(key->m * most(key->n, key->k), key->n * key->k), 1, stack->net.grad_dtype, &o->result));
    return qdri_mem_alloc(dev, MOST_SECS * sizeof(double), &o->secs);
}

static qdri_gemm product_of(const qdr_stack *stack, const qdri_tune_key *key, const operands *o, way how)
{
    const int is_dw = how.kind == QDRI_PRODUCT_DW, turned = how.storage == QDR_IN_OUT;
    qdri_task task = {.kind = QDRI_TASK_PRODUCT,
                      .dtype = key->dtype,
                      .out_dtype = is_dw ? stack->net.grad_dtype : key->dtype,
                      .algorithm = how.algorithm};
    qdri_set_product(&task, how.kind, how.storage, key->m, key->n, key->k);
    qdri_gemm gemm = qdri_task_gemm(&task);
    gemm.a = how.kind == QDRI_PRODUCT_Y || (is_dw && turned) ? o->x : o->y;
    gemm.b = !is_dw ? o->w : turned ? o->y : o->x;
    gemm.c = o->result;
    return gemm;
}

static qdr_status time_product(const qdr_stack *stack, const qdri_tune_key *key, const operands *o, way how,
                               double *secs)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    const qdri_gemm gemm = product_of(stack, key, o, how);
    const int64_t began_ns = qdri_now_ns();
    QDR_TRY(qdri_gemm_run(stream, &gemm));
    QDR_TRY(qdri_stream_synchronize(stream));
    *secs = 1e-9 * (double)(qdri_now_ns() - began_ns);
    return QDR_OK;
}

/* Times each product in either storage, [in, out] first in every other round, because earlier products warm caches. */
static qdr_status run_round(const qdr_stack *stack, const qdri_tune_key *key, const operands *o,
                            product_algorithms algorithms, int round, product_secs secs)
{
    for (int i = 0; i < 2; i++) {
        const int which = (i + round) % 2;
        for (int kind = 0; kind < QDRI_N_PRODUCTS; kind++)
            QDR_TRY(time_product(
                stack, key, o, (way){(qdri_product_kind)kind, which ? QDR_IN_OUT : QDR_OUT_IN, algorithms[which][kind]},
                &secs[which][kind]));
    }
    return QDR_OK;
}

/* Replaces the times by those of the slowest rank. */
static qdr_status slowest(const qdr_stack *stack, const operands *o, double *secs, int n)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    QDR_TRY(qdri_copy(stream, o->secs, secs, (size_t)n * sizeof *secs));
    for (int axis = QDR_X; axis <= QDR_D; axis++)
        QDR_TRY(qdr_all_reduce(stack->grid, (qdr_axis)axis, QDR_MAX, o->secs, n, QDR_F64, stream));
    QDR_TRY(qdri_copy(stream, secs, o->secs, (size_t)n * sizeof *secs));
    return qdri_stream_synchronize(stream);
}

/* ---- choosing an algorithm ---- */

enum { TRIALS = 5 };

static qdr_status choose_algorithm(const qdr_stack *stack, const qdri_tune_key *key, const operands *o, way how,
                                   int *algorithm)
{
    struct {
        int n, numbers[MOST_SECS];
    } list = {0}; /* rank 0's, used by all ranks */
    qdr_context *ctx = qdr_grid_context(stack->grid);
    const qdri_gemm gemm = product_of(stack, key, o, how);
    double secs[MOST_SECS];
    int best = 0;
    *algorithm = 0;
    QDR_TRY(
        qdr_agree(ctx, qdri_gemm_list_algorithms(qdr_context_stream(ctx), &gemm, MOST_SECS, list.numbers, &list.n)));
    QDR_TRY(qdr_broadcast(ctx, 0, &list, sizeof list));
    if (list.n == 1) return QDR_OK;
    for (int i = 0; i < list.n; i++) {
        how.algorithm = list.numbers[i];
        secs[i] = HUGE_VAL;
        for (int trial = 0; trial < TRIALS; trial++) {
            double once;
            QDR_TRY(time_product(stack, key, o, how, &once));
            if (trial > 0 && once < secs[i]) secs[i] = once; /* without the first */
        }
    }
    QDR_TRY(slowest(stack, o, secs, list.n));
    for (int i = 1; i < list.n; i++)
        if (secs[i] < secs[best]) best = i;
    *algorithm = best > 0 ? list.numbers[best] : 0;
    return QDR_OK;
}

/* ---- number of rounds ---- */

/* Runs one round to warm up and to determine how many follow: the same number on all ranks. All ranks begin each round
 * together. */
static qdr_status run_rounds(qdr_stack *stack, const qdri_tune_key *key, const operands *o,
                             product_algorithms algorithms, product_secs medians)
{
    product_secs rounds[MOST_ROUNDS];
    QDR_TRY(run_round(stack, key, o, algorithms, 0, rounds[0]));
    QDR_TRY(slowest(stack, o, &rounds[0][0][0], N_TIMES));
    double all = 0;
    for (int i = 0; i < QDRI_N_PRODUCTS; i++) all += rounds[0][0][i] + rounds[0][1][i];
    const double wanted = ROUNDS_SECS / (all > 0 ? all : 1e-9);
    const int n_rounds = wanted < LEAST_ROUNDS ? LEAST_ROUNDS : wanted > MOST_ROUNDS ? MOST_ROUNDS : (int)wanted;
    for (int round = 0; round < n_rounds; round++) {
        QDR_TRY(qdr_barrier(qdr_grid_context(stack->grid)));
        QDR_TRY(run_round(stack, key, o, algorithms, round, rounds[round]));
    }
    /* Medians, because on a busy machine a long product never runs undisturbed: a minimum would not be reliable. */
    for (int i = 0; i < N_TIMES; i++) {
        double secs[MOST_ROUNDS];
        const int which = i / QDRI_N_PRODUCTS, kind = i % QDRI_N_PRODUCTS;
        for (int round = 0; round < n_rounds; round++) secs[round] = rounds[round][which][kind];
        medians[which][kind] = qdri_median(secs, n_rounds);
    }
    return slowest(stack, o, &medians[0][0], N_TIMES);
}

qdr_status qdri_tune_measure(qdr_stack *stack, qdri_tune_choice *choice)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    operands o = {0};
    void **const memory[] = {&o.x, &o.y, &o.w, &o.result, &o.secs};
    qdr_status status = qdr_agree(qdr_grid_context(stack->grid), operands_create(stack, &choice->key, &o));
    if (status == QDR_OK) {
        for (int i = 0; i < N_TIMES && status == QDR_OK; i++) {
            const int which = i / QDRI_N_PRODUCTS, kind = i % QDRI_N_PRODUCTS;
            const way how = {(qdri_product_kind)kind, which ? QDR_IN_OUT : QDR_OUT_IN, 0};
            status = choose_algorithm(stack, &choice->key, &o, how, &choice->algorithms[which][kind]);
        }
        if (status == QDR_OK) status = run_rounds(stack, &choice->key, &o, choice->algorithms, choice->secs);
        status = qdri_give_up(stack, status);
    }
    for (int i = 0; i < 5; i++) qdri_mem_free(dev, memory[i]);
    return status;
}
