/* SPDX-License-Identifier: Apache-2.0 */
/* One collective of one size along an axis, with its data and its exact result. */
#include <limits.h>
#include <math.h>
#include <stdlib.h>

#include "bench/coll.h"
#include "common/memory.h"
#include "common/reference.h"

/* ---- memory ---- */

static qdr_context *context_of(const coll_case *the_case) { return qdr_grid_context(the_case->grid); }

/* Of each buffer. */
static size_t bytes_of(const coll_case *the_case)
{
    return (size_t)the_case->capacity * qdr_dtype_bytes(the_case->dtype);
}

static int allocate(const coll_case *made, void **memory, failure *why)
{
    const size_t bytes = bytes_of(made);
    if (!made->is_callers) return fail_status(why, qdr_mem_alloc(context_of(made), bytes, memory));
    *memory = malloc(bytes);
    if (*memory) return EXIT_OK;
    return fail(why, EXIT_NOTHING_FITS, "bench coll: malloc cannot provide %zu bytes; use a smaller --max-bytes",
                bytes);
}

static void release(const coll_case *gone, void **memory)
{
    if (!gone->is_callers) qdr_mem_free(context_of(gone), memory);
    if (gone->is_callers) free(*memory);
    *memory = NULL;
}

int coll_case_create(coll_case *made, int64_t most_elems, int caller_memory, failure *why)
{
    made->size = qdr_grid_size(made->grid, made->axis);
    made->rank = qdr_grid_coordinate(made->grid, made->axis);
    made->is_callers = caller_memory;
    made->capacity = most_elems + made->size; /* all-to-all: n parts as large as the largest */
    made->counts = calloc((size_t)made->size, sizeof *made->counts);
    made->recv_counts = calloc((size_t)made->size, sizeof *made->recv_counts);
    if (!made->counts || !made->recv_counts) fail_memory(why, "bench coll: out of memory for %d counts", made->size);
    if (!why->code && !allocate(made, &made->send, why)) allocate(made, &made->recv, why);
    made->here = why->code ? NULL : malloc(bytes_of(made));
    if (!why->code && !made->here) fail_memory(why, "bench coll: out of memory for %zu bytes", bytes_of(made));
    if (!why->code && made->codec && (made->codec->flags & QDR_CODEC_FEEDBACK))
        fail_status(why, qdr_mem_alloc(context_of(made), (size_t)made->capacity * sizeof(float), &made->feedback));
    return fail_together(why, context_of(made));
}

void coll_case_destroy(coll_case *gone)
{
    release(gone, &gone->send);
    release(gone, &gone->recv);
    qdr_mem_free(context_of(gone), &gone->feedback);
    free(gone->here);
    free(gone->counts);
    free(gone->recv_counts);
}

/* ---- sizes ---- */

/* Where member j's part of the n elements begins. */
static int64_t begin_of(const coll_case *the_case, int j)
{
    const int64_t each = the_case->n / the_case->size, more = the_case->n % the_case->size;
    return j * each + (j < more ? j : more);
}

void coll_case_size(coll_case *sized, int64_t n_elems)
{
    sized->n = n_elems;
    for (int j = 0; j < sized->size; j++) sized->counts[j] = begin_of(sized, j + 1) - begin_of(sized, j);
    for (int j = 0; j < sized->size; j++) sized->recv_counts[j] = sized->counts[sized->rank];
}

static int previous_of(const coll_case *the_case) { return (the_case->rank + the_case->size - 1) % the_case->size; }

double coll_bus_factor(qdr_coll_kind kind, int size)
{
    const double others = (double)(size - 1) / size;
    switch (kind) {
    case QDR_ALL_REDUCE: return 2 * others;
    case QDR_ALL_GATHER:
    case QDR_REDUCE_SCATTER:
    case QDR_ALL_TO_ALL: return others;
    default: return 1;
    }
}

/* ---- the call ---- */

static qdr_status start_coded(const coll_case *c, qdr_stream *stream)
{
    const int64_t own = c->counts[c->rank];
    float *feedback = c->feedback;
    if (c->kind == QDR_ALL_REDUCE)
        return qdr_all_reduce_coded(c->grid, c->axis, QDR_SUM, c->recv, c->n, c->dtype, stream, c->codec, feedback);
    if (c->kind == QDR_ALL_GATHER)
        return qdr_all_gather_coded(c->grid, c->axis, c->send, c->recv, own, c->counts, c->dtype, stream, c->codec,
                                    feedback);
    return qdr_reduce_scatter_coded(c->grid, c->axis, QDR_SUM, c->send, c->recv, own, c->counts, c->dtype, stream,
                                    c->codec, feedback);
}

static int is_coded(const coll_case *c) { return c->codec && c->kind <= QDR_ALL_REDUCE; }

int coll_case_has_both(const coll_case *c)
{
    return (c->kind == QDR_ALL_GATHER || c->kind == QDR_REDUCE_SCATTER) && !is_coded(c);
}

/* This member's part of the vector of n elements in `recv`. */
static void *part_of(const coll_case *c)
{
    return (char *)c->recv + (size_t)begin_of(c, c->rank) * qdr_dtype_bytes(c->dtype);
}

/* Where this member's result begins. */
static void *result_of(const coll_case *c, int in_place)
{
    return c->kind == QDR_REDUCE_SCATTER && in_place ? part_of(c) : c->recv;
}

qdr_status coll_case_start(const coll_case *c, qdr_stream *stream, int in_place)
{
    const int64_t own = c->counts[c->rank];
    void *result = result_of(c, in_place);
    if (is_coded(c)) return start_coded(c, stream);
    switch (c->kind) {
    case QDR_ALL_REDUCE: return qdr_all_reduce(c->grid, c->axis, QDR_SUM, result, c->n, c->dtype, stream);
    case QDR_ALL_GATHER:
        return qdr_all_gather(c->grid, c->axis, in_place ? NULL : c->send, result, own, c->counts, c->dtype, stream);
    case QDR_REDUCE_SCATTER:
        return qdr_reduce_scatter(c->grid, c->axis, QDR_SUM, in_place ? c->recv : c->send, result, own, c->counts,
                                  c->dtype, stream);
    case QDR_BROADCAST: return qdr_grid_broadcast(c->grid, c->axis, 0, c->recv, c->n, c->dtype, stream);
    case QDR_ALL_TO_ALL:
        return qdr_all_to_all(c->grid, c->axis, c->send, c->counts, c->recv, c->recv_counts, 0, c->dtype, stream);
    default:
        return qdr_send_recv(c->grid, c->axis, (c->rank + 1) % c->size, c->send, c->n, previous_of(c), c->recv, c->n,
                             c->dtype, stream);
    }
}

qdr_status coll_case_call(void *user, int series)
{
    const coll_case *called = user;
    const qdr_status status = coll_case_start(called, NULL, series);
    return status < 0 ? status : qdr_stream_synchronize(qdr_context_stream(context_of(called)));
}

/* Sums and gathers of a codec begin with small numbers: up to 2^(10 - SMALL), or 2^(10 - SMALL_F16). */
enum { SMALL = 90, SMALL_F16 = 24 };

static qdr_status put_small_numbers(const coll_case *c)
{
    const double small = ldexp(1, c->dtype == QDR_F16 ? -SMALL_F16 : -SMALL);
    const size_t bytes = (size_t)c->n * qdr_dtype_bytes(c->dtype);
    for (int64_t i = 0; i < c->n; i++)
        element_write(c->dtype, c->here, i, small * (double)(1 + (i * 7919 + c->rank) % 1009) * (i % 2 ? -1 : 1));
    const qdr_status status = memory_copy(context_of(c), c->send, c->here, bytes);
    return status < 0 ? status : memory_copy(context_of(c), c->recv, c->here, bytes);
}

/* Whether calls change what the next one adds to. */
static int grows(const coll_case *c) { return is_coded(c) && c->kind == QDR_ALL_REDUCE; }

int coll_case_most_calls(const coll_case *c)
{
    enum { ERRORS = 2 }; /* bits that errors of codecs may add */
    const int room = c->dtype == QDR_F16 ? 15 + SMALL_F16 - 10 - ERRORS : 127 + SMALL - 10 - ERRORS;
    return grows(c) && c->size > 1 ? (int)(room / log2(c->size)) : INT_MAX;
}

static qdr_status clear_feedback(const coll_case *c)
{
    if (!c->feedback) return QDR_OK;
    return memory_set(context_of(c), c->feedback, 0, (size_t)c->capacity * sizeof(float));
}

qdr_status coll_case_renew(const coll_case *c)
{
    if (!grows(c)) return QDR_OK;
    /* An all-reduce does not use `send`, which still has the numbers. What messages lost is as large as they were. */
    const qdr_status status = memory_copy(context_of(c), c->recv, c->send, (size_t)c->n * qdr_dtype_bytes(c->dtype));
    return status < 0 ? status : clear_feedback(c);
}

qdr_status coll_case_clear(coll_case *cleared)
{
    qdr_context *ctx = context_of(cleared);
    cleared->n_wrong = 0;
    TRY(memory_set(ctx, cleared->send, 0, bytes_of(cleared)));
    TRY(memory_set(ctx, cleared->recv, 0, bytes_of(cleared)));
    TRY(clear_feedback(cleared));
    return is_coded(cleared) ? put_small_numbers(cleared) : QDR_OK;
}

/* ---- data whose result is known ---- */

/* Initial element i of the n elements of member j. */
static double value_of(const coll_case *the_case, int j, int64_t i)
{
    /* Whole numbers up to 256 are exact in every type, so all values, or all sums over the members, stay below that. */
    const int is_sum = the_case->kind == QDR_ALL_REDUCE || the_case->kind == QDR_REDUCE_SCATTER;
    const int64_t most = is_sum ? 256 / the_case->size : 251;
    return 1 + (double)((i + 31 * (int64_t)j) % (most < 1 ? 1 : most));
}

static double sum_of(const coll_case *the_case, int64_t i)
{
    double sum = 0;
    for (int j = 0; j < the_case->size; j++) sum += value_of(the_case, j, i);
    return sum;
}

/* Element i of this member's result. */
static double expected(const coll_case *c, int64_t i)
{
    const int64_t own = c->counts[c->rank];
    switch (c->kind) {
    case QDR_ALL_REDUCE: return sum_of(c, i);
    case QDR_REDUCE_SCATTER: return sum_of(c, begin_of(c, c->rank) + i);
    case QDR_BROADCAST: return value_of(c, 0, i);
    case QDR_ALL_TO_ALL: return value_of(c, (int)(i / own), begin_of(c, c->rank) + i % own);
    case QDR_SEND_RECV: return value_of(c, previous_of(c), i);
    default: break;
    }
    int j = 0; /* the member whose part of a gathered vector contains the element */
    while (i >= begin_of(c, j + 1)) j++;
    return value_of(c, j, i - begin_of(c, j));
}

/* By how much codecs may change an element of the result: messages of at most `members` versions, and of the sum, none
 * of whose elements is more than 256. Where nothing is known, results must be numbers. */
static double bound_of(const coll_case *c)
{
    if (qdr_codec_bound(c->codec, 1) < 0) return INFINITY;
    const double most = c->codec->flags & QDR_CODEC_HADAMARD ? 256 * 16 : 256; /* of a rotated block of 256 */
    const double roundings = c->dtype == QDR_BF16 ? 0x1p-7 : 0x1p-10;
    return (c->size + 1) * qdr_codec_bound(c->codec, most) + (c->dtype == QDR_F32 ? 0x1p-20 : roundings) * 512;
}

/* Where this member's given elements are: in an array of their own, or where the result will be. */
static void *given_of(const coll_case *c, int in_place)
{
    if (c->kind == QDR_ALL_REDUCE || c->kind == QDR_BROADCAST) return c->recv;
    if (!in_place) return c->send;
    return c->kind == QDR_ALL_GATHER ? part_of(c) : c->recv;
}

/* NaN first: elements that are never written count as wrong. */
static qdr_status give(const coll_case *c, int in_place)
{
    const int64_t n_given = c->kind == QDR_ALL_GATHER ? c->counts[c->rank] : c->n;
    const int gives = c->kind != QDR_BROADCAST || c->rank == 0;
    TRY(memory_set(context_of(c), c->recv, 0xff, bytes_of(c)));
    for (int64_t i = 0; gives && i < n_given; i++) element_write(c->dtype, c->here, i, value_of(c, c->rank, i));
    if (gives)
        TRY(memory_copy(context_of(c), given_of(c, in_place), c->here, (size_t)n_given * qdr_dtype_bytes(c->dtype)));
    return clear_feedback(c);
}

/* Elements of this member's result. */
static int64_t n_received(const coll_case *c)
{
    const int64_t own = c->counts[c->rank];
    return c->kind == QDR_REDUCE_SCATTER ? own : c->kind == QDR_ALL_TO_ALL ? own * c->size : c->n;
}

/* Brings the result to the host. */
static qdr_status fetch(const coll_case *c, int in_place)
{
    return memory_copy(context_of(c), c->here, result_of(c, in_place),
                       (size_t)n_received(c) * qdr_dtype_bytes(c->dtype));
}

qdr_status coll_case_check_timed(coll_case *checked)
{
    const qdr_status status = fetch(checked, 0);
    for (int64_t i = 0; status >= 0 && i < n_received(checked); i++)
        checked->n_wrong += !isfinite(element_read(checked->dtype, checked->here, i));
    return status;
}

qdr_status coll_case_check(coll_case *checked, int in_place)
{
    const coll_case *c = checked;
    TRY(give(c, in_place));
    TRY(qdr_barrier(context_of(c)));
    TRY(coll_case_call(checked, in_place));
    TRY(fetch(c, in_place));
    const double bound = is_coded(c) ? bound_of(c) : 0;
    for (int64_t i = 0; i < n_received(c); i++) {
        const double error = fabs(element_read(c->dtype, c->here, i) - expected(c, i));
        checked->n_wrong += !(error <= bound) || isinf(error);
    }
    return QDR_OK;
}
