/* SPDX-License-Identifier: Apache-2.0 */
/* A rank's context: its device, its default stream, its world. */
#include "context/context.h"

#include <pthread.h>
#include <stdlib.h>

#include "context/internal.h"
#include "core/environment.h"
#include "core/log.h"
#include "core/ranges.h"
#include "core/size.h"
#include "core/sized.h"
#include "dev/plugin.h"
#include "quadrille/cuda.h"
#include "quadrille_private/measure.h"
#include "topo/topo.h"

typedef struct device_choice {
    int is_cuda;
    int gpu; /* its number; -1: the rank's number on its node */
} device_choice;

/* Reads the options' "cpu", "cuda" or "cuda:N"; or else the value of QDR_DEVICE; or else chooses the CPU. */
static qdr_status read_device(const qdr_context_opts *opts, device_choice *choice)
{
    const char *text = opts->device;
    const char *name = text ? text : qdri_environment_text(QDRI_VARIABLE_DEVICE);
    const qdri_device_kind kind = name && *name ? qdri_device_name_read(name, &choice->gpu) : QDRI_DEVICE_CPU;
    choice->is_cuda = kind == QDRI_DEVICE_CUDA;
    if (!choice->is_cuda) choice->gpu = -1;
    if (kind != QDRI_DEVICE_UNKNOWN) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the %s \"%.40s\" is not known; use cpu, cuda, or cuda:N for GPU N",
                    text ? "device" : "QDR_DEVICE", name);
}

qdr_status qdri_context_take_opts(const qdr_context_opts *given, qdr_context_opts *opts, qdri_watch_opts *watch)
{
    device_choice device;
    *opts = (qdr_context_opts){QDR_INIT(qdr_context_opts)};
    QDR_TRY(qdr_environment_check());
    qdri_log_read_level();
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_CHECK, &watch->check));
    QDR_TRY(qdri_environment_number(QDRI_VARIABLE_TIMEOUT, &watch->timeout_secs));
    if (given) QDR_TRY(QDRI_TAKE(qdr_context_opts, given, opts));
    if (opts->n_threads < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "context: n_threads is %d; use 1 or more, or 0 to choose", opts->n_threads);
    return read_device(opts, &device);
}

/* All existing contexts, so that memory of a destroyed one can be recognised. */
static struct {
    pthread_mutex_t lock;
    qdr_context *first;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void context_end(qdri_life *life);

/* Frees what prepare created. Accepts NULL. */
static void discard(qdr_context **ctx)
{
    if (!*ctx) return;
    pthread_mutex_lock(&all.lock);
    qdr_context **link = &all.first;
    while (*link && *link != *ctx) link = &(*link)->next;
    if (*link) *link = (*ctx)->next;
    pthread_mutex_unlock(&all.lock);
    qdri_stream_destroy(&(*ctx)->stream);
    qdri_dev_destroy(&(*ctx)->dev);
    qdri_dev_destroy(&(*ctx)->host_dev);
    free((*ctx)->machine_name);
    free(*ctx);
    *ctx = NULL;
}

qdr_status qdri_context_prepare(const qdr_context_opts *given, int n_node_ranks, int node_rank,
                                qdri_wake_event *wake_events, qdr_context **ctx)
{
    qdr_context *made = NULL;
    *ctx = NULL;
    qdri_watch_opts watch;
    qdr_context_opts opts;
    device_choice device;
    qdr_status status;
    QDR_TRY_OUT(status, qdri_context_take_opts(given, &opts, &watch));
    QDR_TRY_OUT(status, qdri_dev_check_address_space(1));
    QDR_TRY_OUT(status, QDRI_NEW(1, "a context", &made));
    qdri_life_begin(&made->life, context_end);
    pthread_mutex_lock(&all.lock);
    made->next = all.first;
    all.first = made;
    pthread_mutex_unlock(&all.lock);
    made->watch = watch;
    if (opts.machine) QDR_TRY_OUT(status, qdri_strdup(opts.machine, &made->machine_name));
    made->n_threads = opts.n_threads;
    if (made->n_threads == 0) {
        QDR_TRY_OUT(status, qdri_topo_cores(&made->n_threads));
        made->n_threads = made->n_threads > n_node_ranks ? made->n_threads / n_node_ranks : 1;
    }
    QDR_TRY_OUT(status, read_device(&opts, &device));
    if (device.is_cuda) {
        QDR_TRY_OUT(status, qdri_dev_create_cuda(device.gpu, node_rank, &made->dev));
    } else {
        QDR_TRY_OUT(status, qdri_dev_create_cpu(made->n_threads, &made->dev));
        if (wake_events) qdri_dev_use_wake_events(made->dev, wake_events);
    }
    QDR_TRY_OUT(status, qdri_stream_create(made->dev, QDRI_STREAM_COMPUTE, &made->stream));
    *ctx = made;
    return QDR_OK;
out:
    discard(&made);
    return status;
}

/* The other ranks receive the message of the failure. */
static void give_up_world(void *user)
{
    const qdr_context *ctx = user;
    (void)qdri_dev_raise(ctx->dev);
    qdri_comm_abort(ctx->world);
}

qdr_status qdri_context_join(qdr_context *ctx, qdri_comm *world)
{
    ctx->world = world;
    QDR_TRY(qdri_context_watch_begin(ctx));
    qdri_dev_on_poison(ctx->dev, give_up_world, ctx);
    qdri_context_trace_begin(ctx);
    if (qdri_comm_rank(world) == 0) qdri_environment_warn();
    return QDR_OK;
}

/* Frees what prepare created, and the world if the context has not joined it: the world before the device to which it
 * is bound, but after the stream, whose thread may be asleep on the world's wake events. Both may be NULL. */
static void abandon(qdr_context **ctx, qdri_comm **world)
{
    if (*ctx) qdri_stream_destroy(&(*ctx)->stream);
    qdri_comm_destroy(world);
    discard(ctx);
}

qdr_status qdri_context_complete(qdr_status status, qdr_context *made, qdri_comm *world, qdri_context_join_fn join,
                                 qdr_context **ctx)
{
    QDR_TRY_OUT(status, qdri_comm_agree(world, status));
    QDR_TRY_OUT(status, join(made, &world));
    *ctx = made;
    return QDR_OK;
out:
    abandon(&made, &world);
    return status;
}

qdr_status qdr_context_create_local(qdr_local_world *world, int rank, const qdr_context_opts *opts, qdr_context **ctx)
{
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the result pointer is NULL");
    *ctx = NULL;
    if (!world) return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the world is NULL; qdr_local_run() makes one");
    const int size = qdri_local_world_size(world);
    if (rank < 0 || rank >= size)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "context: rank %d is not in 0 … %d", rank, size - 1);
    qdr_context *made = NULL;
    qdri_comm *comm = NULL;
    qdri_pairing pairing;
    qdr_status status = qdri_context_prepare(opts, size, rank, NULL, &made);
    if (status == QDR_OK) qdri_local_world_set_timeout(world, made->watch.timeout_secs);
    QDR_TRY_OUT(status, qdri_local_world_agree(world, rank, status));
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): agreed, so it was made */
    QDR_TRY_OUT(status, qdri_comm_create_local(world, rank, made->dev, &comm));
    QDR_TRY_OUT(status, qdri_context_greet(made, comm));
    if (!qdri_dev_runs_work(made->dev)) /* the same on all ranks */
        QDR_TRY_OUT(status, qdri_pair(&comm, made->dev, QDRI_PAIR_LOCAL, &pairing));
    QDR_TRY_OUT(status, qdri_context_join(made, comm));
    *ctx = made;
    return QDR_OK;
out:
    abandon(&made, &comm);
    return status;
}

qdr_status qdr_context_create_self(const qdr_context_opts *opts, qdr_context **ctx)
{
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "context: the result pointer is NULL");
    QDR_TRY(qdri_context_prepare(opts, 1, 0, NULL, ctx));
    const qdr_status status = qdri_comm_create_self((*ctx)->dev, &(*ctx)->world);
    if (status != QDR_OK)
        discard(ctx);
    else
        qdri_environment_warn();
    return status;
}

/* ---- destroying ---- */

/* Called when the context and everything that needed it have been destroyed. */
static void context_end(qdri_life *life)
{
    qdr_context *ctx = (qdr_context *)life;
    qdri_stream_destroy(&ctx->stream);
    while (ctx->pieces) {
        qdri_mem_piece *piece = ctx->pieces;
        ctx->pieces = piece->next;
        qdri_mem_free(ctx->dev, &piece->data);
        free(piece);
    }
    qdri_context_trace_end(ctx);
    qdri_dev_on_poison(ctx->dev, NULL, NULL);
    qdri_comm_destroy(&ctx->world);
    discard(&ctx);
}

void qdr_context_destroy(qdr_context **ctx)
{
    if (!ctx || !*ctx) return;
    qdr_context *old = *ctx;
    *ctx = NULL;
    qdri_context_end_record(old);
    const qdr_status status = qdri_stream_synchronize(old->stream);
    (void)status; /* there is no one to report it to */
    qdri_life_drop(&old->life);
}

void qdri_context_leave(qdr_context **ctx)
{
    if (!*ctx) return;
    qdri_context_end_record(*ctx);
    /* Others may be in collectives with objects that this rank has not destroyed. They complete those that it has
     * launched, in its memory, before that is freed, and wait for no others. */
    if (qdri_comm_leave((*ctx)->world)) qdri_dev_drain((*ctx)->dev);
    qdri_stream_destroy(&(*ctx)->stream);
    qdri_dev_stop((*ctx)->dev); /* before the memory is freed that its threads share with other ranks */
    context_end(&(*ctx)->life);
    *ctx = NULL;
}

/* ---- for higher modules ---- */

qdri_life *qdri_context_life(qdr_context *ctx) { return &ctx->life; }
qdri_dev *qdri_context_dev(const qdr_context *ctx) { return ctx->dev; }
qdri_comm *qdri_context_world(const qdr_context *ctx) { return ctx->world; }
qdr_stack **qdri_context_stacks(qdr_context *ctx) { return &ctx->stacks; }

int qdr_context_rank(const qdr_context *ctx) { return ctx ? qdri_comm_rank(ctx->world) : -1; }
int qdr_context_size(const qdr_context *ctx) { return ctx ? qdri_comm_size(ctx->world) : 0; }
int qdr_context_node(const qdr_context *ctx, int rank)
{
    return rank >= 0 && rank < qdr_context_size(ctx) ? qdri_comm_node_of(ctx->world, rank) : -1;
}

int qdr_context_gpu(const qdr_context *ctx) { return ctx ? qdri_dev_gpu(ctx->dev) : -1; }
double qdr_measure_waits(const qdr_context *ctx) { return ctx ? 1e-9 * (double)qdri_dev_waited_ns(ctx->dev) : 0; }
int qdr_context_threads(const qdr_context *ctx) { return ctx ? ctx->n_threads : 0; }
qdr_stream *qdr_context_stream(qdr_context *ctx) { return ctx ? ctx->stream : NULL; }
qdr_status qdr_context_status(const qdr_context *ctx)
{
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "status: the context is NULL");
    return qdri_dev_status(ctx->dev);
}

/* ---- collective calls ---- */

static qdr_status check_context(const qdr_context *ctx, const char *who)
{
    if (!ctx) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the context is NULL", who);
    return qdri_dev_raise(ctx->dev);
}

qdr_status qdr_barrier(qdr_context *ctx)
{
    QDR_TRY(check_context(ctx, "barrier"));
    return qdri_comm_agree(ctx->world, QDR_OK);
}

qdr_status qdr_agree(qdr_context *ctx, qdr_status mine)
{
    QDR_TRY(check_context(ctx, "agree"));
    return qdri_comm_agree(ctx->world, mine);
}

/* Ranks also agree: a message of another length, or from elsewhere, would be taken by the wrong call. */
qdr_status qdr_broadcast(qdr_context *ctx, int root, void *data, size_t bytes)
{
    char text[160];
    qdri_facts facts = {.text = text, .capacity = sizeof text}; /* long enough: no memory is needed */
    QDR_TRY(check_context(ctx, "broadcast"));
    const int size = qdri_comm_size(ctx->world);
    qdr_status status = QDR_OK;
    if (root < 0 || root >= size)
        status = QDR_FAIL(QDR_ERR_ARGUMENT, "broadcast: root %d is not in 0 … %d", root, size - 1);
    else if (!data && bytes > 0)
        status = QDR_FAIL(QDR_ERR_ARGUMENT, "broadcast: data is NULL for %zu bytes", bytes);
    qdri_facts_add_int(&facts, "the call", "root", root);
    qdri_facts_add_int(&facts, "the call", "bytes", (int64_t)bytes);
    QDR_TRY(qdri_comm_agree_same(ctx->world, status, &facts, "broadcast", "pass the same on all ranks"));
    return qdri_comm_broadcast(ctx->world, root, data, bytes);
}

/* ---- memory ---- */

qdr_status qdr_mem_alloc(qdr_context *ctx, size_t bytes, void **data)
{
    QDR_TRY(QDRI_CLEAR_POINTER("memory", data));
    QDR_TRY(check_context(ctx, "memory"));
    qdri_mem_piece *piece = NULL;
    QDR_TRY(QDRI_NEW(1, "a piece of memory", &piece));
    const qdr_status status = qdri_mem_alloc(ctx->dev, bytes, data);
    if (status != QDR_OK) {
        free(piece);
        return status;
    }
    *piece = (qdri_mem_piece){*data, ctx->pieces};
    ctx->pieces = piece;
    return QDR_OK;
}

void qdr_mem_free(qdr_context *ctx, void **data)
{
    if (!data || !*data) return;
    pthread_mutex_lock(&all.lock);
    const qdr_context *listed = all.first;
    while (listed && listed != ctx) listed = listed->next;
    pthread_mutex_unlock(&all.lock);
    qdri_mem_piece **link = listed ? &ctx->pieces : NULL; /* otherwise it was freed with its context */
    while (link && *link && (*link)->data != *data) link = &(*link)->next;
    *data = NULL;
    if (!link || !*link) return;
    qdri_mem_piece *piece = *link;
    *link = piece->next;
    qdri_mem_free(ctx->dev, &piece->data);
    free(piece);
}

void qdr_mem_usage(const qdr_context *ctx, size_t *bytes_now, size_t *bytes_peak)
{
    size_t now = 0, peak = 0;
    if (ctx) qdri_mem_usage(ctx->dev, &now, &peak);
    if (bytes_now) *bytes_now = now;
    if (bytes_peak) *bytes_peak = peak;
}

void qdr_mem_reset_peak(qdr_context *ctx)
{
    if (ctx) qdri_mem_reset_peak(ctx->dev);
}

qdr_status qdr_copy(qdr_context *ctx, void *dst, const void *src, size_t bytes, qdr_stream *stream)
{
    QDR_TRY(check_context(ctx, "copy"));
    if (bytes == 0) return QDR_OK;
    if (!dst || !src) return QDR_FAIL(QDR_ERR_ARGUMENT, "copy: NULL for %zu bytes", bytes);
    QDR_TRY(QDRI_RANGES_CHECK("copy", {.what = "src", .begin = src, .bytes = bytes},
                              {.what = "dst", .begin = dst, .bytes = bytes, .writes = 1, .in_place = 1}));
    return qdri_copy(stream ? stream : ctx->stream, dst, src, bytes);
}

/* ---- streams and events ---- */

qdr_status qdr_stream_create(qdr_context *ctx, qdr_stream **stream)
{
    QDR_TRY(QDRI_CLEAR_POINTER("stream", stream));
    QDR_TRY(check_context(ctx, "stream"));
    QDR_TRY(qdri_stream_create(ctx->dev, QDRI_STREAM_COMPUTE, stream));
    qdri_stream_keep(*stream, &ctx->life);
    return QDR_OK;
}

qdr_status qdr_stream_wrap_cuda(qdr_context *ctx, struct CUstream_st *cuda_stream, qdr_stream **stream)
{
    QDR_TRY(QDRI_CLEAR_POINTER("stream", stream));
    QDR_TRY(check_context(ctx, "stream"));
    QDR_TRY(qdri_stream_wrap(ctx->dev, cuda_stream, stream));
    qdri_stream_keep(*stream, &ctx->life);
    return QDR_OK;
}

struct CUstream_st *qdr_stream_cuda(qdr_stream *stream) { return stream ? qdri_stream_native(stream) : NULL; }

void qdr_stream_destroy(qdr_stream **stream)
{
    if (stream && *stream) qdri_stream_destroy(stream);
}

static qdr_status check_stream(const qdr_stream *stream, const char *who)
{
    if (!stream) return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the stream is NULL", who);
    return qdri_dev_raise(qdri_stream_dev(stream));
}

qdr_status qdr_stream_synchronize(qdr_stream *stream)
{
    if (!stream) return QDR_FAIL(QDR_ERR_ARGUMENT, "stream synchronize: the stream is NULL");
    return qdri_stream_synchronize(stream);
}

typedef struct call {
    void (*fn)(void *user);
    void *user;
} call;

static qdr_status run_call(void *args)
{
    const call *wanted = args;
    wanted->fn(wanted->user);
    return QDR_OK;
}

qdr_status qdr_stream_call(qdr_stream *stream, void (*fn)(void *user), void *user)
{
    QDR_TRY(check_stream(stream, "stream call"));
    if (!fn) return QDR_FAIL(QDR_ERR_ARGUMENT, "stream call: the function is NULL");
    const call wanted = {fn, user};
    return qdri_work(stream, run_call, &wanted, sizeof wanted);
}

qdr_status qdr_stream_stamp(qdr_stream *stream, int64_t *nanosecs)
{
    QDR_TRY(check_stream(stream, "stream stamp"));
    if (!nanosecs) return QDR_FAIL(QDR_ERR_ARGUMENT, "stream stamp: the pointer for the time is NULL");
    return qdri_stamp(stream, nanosecs);
}

qdr_status qdr_event_create(qdr_context *ctx, qdr_event **event)
{
    QDR_TRY(QDRI_CLEAR_POINTER("event", event));
    QDR_TRY(check_context(ctx, "event"));
    QDR_TRY(qdri_event_create(ctx->dev, event));
    qdri_event_keep(*event, &ctx->life);
    return QDR_OK;
}

void qdr_event_destroy(qdr_event **event)
{
    if (event && *event) qdri_event_destroy(event);
}

qdr_status qdr_event_record(qdr_event *event, qdr_stream *stream)
{
    QDR_TRY(check_stream(stream, "event record"));
    if (!event) return QDR_FAIL(QDR_ERR_ARGUMENT, "event record: the event is NULL");
    return qdri_event_record(event, stream);
}

qdr_status qdr_stream_wait(qdr_stream *stream, qdr_event *event)
{
    QDR_TRY(check_stream(stream, "stream wait"));
    if (!event) return QDR_FAIL(QDR_ERR_ARGUMENT, "stream wait: the event is NULL");
    return qdri_stream_wait(stream, event);
}
