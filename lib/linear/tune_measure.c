/* SPDX-License-Identifier: Apache-2.0 */
/* A layer's three products, timed with W in either storage. All ranks compute at the same time,
 * since in training they do: they share caches and memory. */
#include <stdlib.h>

#include "core/size.h"
#include "dev/clock.h"
#include "linear/tune.h"

enum { LEAST_ROUNDS = 5, MOST_ROUNDS = 51, N_TIMES = 2 * QDRI_N_PRODUCTS };
#define ROUNDS_SECS 0.1

typedef double product_secs[2][QDRI_N_PRODUCTS];

/* Zeros, which stay zeros however often one product's result is the next one's operand. */
typedef struct operands {
    void *x, *y, *w; /* also of dX, dY and dW */
    void *secs; /* what ranks exchange */
} operands;

static qdr_status take(qdri_dev *dev, int64_t rows, int64_t cols, qdr_dtype dtype, void **memory)
{
    int64_t n_elems;
    size_t bytes;
    QDR_TRY(qdri_mul_elems(rows, cols, &n_elems));
    QDR_TRY(qdri_elems_bytes(n_elems, dtype, &bytes));
    return qdri_mem_alloc(dev, bytes, memory);
}

static qdr_status operands_create(const qdr_stack *stack, const qdri_tune_key *key, operands *o)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    const size_t each = qdr_dtype_bytes(key->dtype), wide = qdr_dtype_bytes(stack->net.grad_dtype);
    QDR_TRY(take(dev, key->m, key->k, key->dtype, &o->x));
    QDR_TRY(take(dev, key->m, key->n, key->dtype, &o->y));
    QDR_TRY(take(dev, key->n, key->k, stack->net.grad_dtype, &o->w));
    QDR_TRY(qdri_mem_alloc(dev, sizeof(product_secs), &o->secs));
    QDR_TRY(qdri_fill_zero(stream, o->x, (size_t)(key->m * key->k) * each));
    QDR_TRY(qdri_fill_zero(stream, o->y, (size_t)(key->m * key->n) * each));
    QDR_TRY(qdri_fill_zero(stream, o->w, (size_t)(key->n * key->k) * wide));
    return qdri_stream_synchronize(stream);
}

static void operands_destroy(const qdr_stack *stack, operands *o)
{
    qdri_dev *dev = qdri_context_dev(qdr_grid_context(stack->grid));
    void **const memory[] = {&o->x, &o->y, &o->w, &o->secs};
    for (int i = 0; i < 4; i++) qdri_mem_free(dev, memory[i]);
}

static qdr_status time_product(const qdr_stack *stack, const qdri_tune_key *key, const operands *o,
                               qdri_product_kind kind, qdr_storage storage, double *secs)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    const int is_dw = kind == QDRI_PRODUCT_DW, turned = storage == QDR_IN_OUT;
    qdri_task task = {.kind = QDRI_TASK_PRODUCT,
                      .dtype = key->dtype,
                      .out_dtype = is_dw ? stack->net.grad_dtype : key->dtype};
    qdri_set_product(&task, kind, storage, key->m, key->n, key->k);
    qdri_gemm gemm = qdri_task_gemm(&task);
    gemm.a = kind == QDRI_PRODUCT_Y || (is_dw && turned) ? o->x : o->y;
    gemm.b = !is_dw ? o->w : turned ? o->y : o->x;
    gemm.c = is_dw ? o->w : kind == QDRI_PRODUCT_Y ? o->y : o->x;
    const int64_t began_ns = qdri_now_ns();
    QDR_TRY(qdri_gemm_run(stream, &gemm));
    QDR_TRY(qdri_stream_synchronize(stream));
    *secs = 1e-9 * (double)(qdri_now_ns() - began_ns);
    return QDR_OK;
}

/* Each product in either storage, [in, out] first in every other round: what came before warms
 * caches.
 */
static qdr_status run_round(const qdr_stack *stack, const qdri_tune_key *key, const operands *o,
                            int round, product_secs secs)
{
    for (int i = 0; i < 2; i++) {
        const int which = (i + round) % 2;
        for (int kind = 0; kind < QDRI_N_PRODUCTS; kind++)
            QDR_TRY(time_product(stack, key, o, (qdri_product_kind)kind,
                                 which ? QDR_IN_OUT : QDR_OUT_IN, &secs[which][kind]));
    }
    return QDR_OK;
}

static int compare(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Medians, as a busy machine gives a long product no undisturbed moment that a minimum could find.
 */
static void find_medians(product_secs *rounds, int n_rounds, product_secs medians)
{
    double sorted[MOST_ROUNDS];
    for (int i = 0; i < N_TIMES; i++) {
        const int which = i / QDRI_N_PRODUCTS, kind = i % QDRI_N_PRODUCTS;
        for (int round = 0; round < n_rounds; round++) sorted[round] = rounds[round][which][kind];
        qsort(sorted, (size_t)n_rounds, sizeof *sorted, compare);
        medians[which][kind] = sorted[n_rounds / 2];
    }
}

/* The slowest rank's. */
static qdr_status slowest(const qdr_stack *stack, const operands *o, product_secs secs)
{
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    QDR_TRY(qdri_copy(stream, o->secs, secs, sizeof(product_secs)));
    for (int axis = QDR_X; axis <= QDR_D; axis++)
        QDR_TRY(qdr_all_reduce(stack->grid, (qdr_axis)axis, QDR_MAX, o->secs, N_TIMES, QDR_F64,
                               stream));
    QDR_TRY(qdri_copy(stream, secs, o->secs, sizeof(product_secs)));
    return qdri_stream_synchronize(stream);
}

static int rounds_for(product_secs secs)
{
    double all = 0;
    for (int i = 0; i < QDRI_N_PRODUCTS; i++) all += secs[0][i] + secs[1][i];
    const double n = ROUNDS_SECS / (all > 0 ? all : 1e-9);
    return n < LEAST_ROUNDS ? LEAST_ROUNDS : n > MOST_ROUNDS ? MOST_ROUNDS : (int)n;
}

/* A round to warm up and to see how many follow: the same number on all ranks. Each begins
 * together.
 */
static qdr_status run_rounds(qdr_stack *stack, const qdri_tune_key *key, const operands *o,
                             product_secs medians)
{
    product_secs rounds[MOST_ROUNDS];
    QDR_TRY(run_round(stack, key, o, 0, rounds[0]));
    QDR_TRY(slowest(stack, o, rounds[0]));
    const int n_rounds = rounds_for(rounds[0]);
    for (int round = 0; round < n_rounds; round++) {
        QDR_TRY(qdr_barrier(qdr_grid_context(stack->grid)));
        QDR_TRY(run_round(stack, key, o, round, rounds[round]));
    }
    find_medians(rounds, n_rounds, medians);
    return slowest(stack, o, medians);
}

qdr_status qdri_tune_measure(qdr_stack *stack, const qdri_tune_key *key, product_secs secs)
{
    operands o = {0};
    qdr_status status = qdr_agree(qdr_grid_context(stack->grid), operands_create(stack, key, &o));
    if (status == QDR_OK) status = qdri_give_up(stack, run_rounds(stack, key, &o, secs));
    operands_destroy(stack, &o);
    return status;
}
