/* SPDX-License-Identifier: Apache-2.0 */
/* Devices as seen by higher modules: every argument is checked and every byte counted here; a backend only
 * translates. */
#include "dev/dev.h"

#include <stdio.h>
#include <string.h>

#include "dev/device.h"

void qdri_dev_init(qdri_dev *dev, const qdri_dev_table *table)
{
    memset(dev, 0, sizeof *dev);
    dev->table = table;
    dev->wake_events = dev->own_wake_events;
    pthread_mutex_init(&dev->lock, NULL);
}

void qdri_dev_use_wake_events(qdri_dev *dev, qdri_wake_event *wake_events) { dev->wake_events = wake_events; }

void qdri_dev_use_memory(qdri_dev *dev, qdri_mem_source source) { dev->source = source; }

void qdri_dev_finish(qdri_dev *dev) { pthread_mutex_destroy(&dev->lock); }

void qdri_dev_drain(qdri_dev *dev)
{
    if (dev->table->drain) dev->table->drain(dev);
}

void qdri_dev_stop(qdri_dev *dev)
{
    if (dev->table->stop) dev->table->stop(dev);
}

void qdri_dev_destroy(qdri_dev **dev)
{
    if (!dev || !*dev) return;
    (*dev)->table->destroy(*dev);
    *dev = NULL;
}

qdr_status qdri_dev_status(const qdri_dev *dev)
{
    return (qdr_status)atomic_load_explicit(&dev->status, memory_order_acquire);
}

qdr_status qdri_dev_raise(const qdri_dev *dev)
{
    const qdr_status status = qdri_dev_status(dev);
    if (status != QDR_OK) qdri_set_last_error(dev->sentence);
    return status;
}

void qdri_dev_poison(qdri_dev *dev, qdr_status status, const char *sentence)
{
    if (!dev || status >= QDR_OK) return;
    pthread_mutex_lock(&dev->lock);
    const int first = qdri_dev_status(dev) == QDR_OK;
    if (first) {
        snprintf(dev->sentence, sizeof dev->sentence, "%s", sentence ? sentence : "");
        atomic_store_explicit(&dev->status, (int)status, memory_order_release);
    }
    void (*hook)(void *user) = dev->on_poison;
    void *user = dev->on_poison_user;
    pthread_mutex_unlock(&dev->lock);
    if (!first) return;
    if (dev->table->wake_all) dev->table->wake_all(dev);
    if (hook) hook(user);
}

void qdri_dev_on_poison(qdri_dev *dev, void (*hook)(void *user), void *user)
{
    pthread_mutex_lock(&dev->lock);
    dev->on_poison = hook;
    dev->on_poison_user = user;
    pthread_mutex_unlock(&dev->lock);
}

static double gib(size_t bytes) { return (double)bytes / (1 << 30); }

static qdr_status fail_memory(qdri_dev *dev, const char *what, size_t bytes)
{
    const size_t now = atomic_load(&dev->bytes_now);
    size_t bytes_free = 0, bytes_all = 0;
    if (dev->table->free_bytes) dev->table->free_bytes(dev, &bytes_free, &bytes_all);
    if (bytes_all == 0)
        return QDR_FAIL(QDR_ERR_MEMORY,
                        "device memory for %s: %zu bytes (%.2f GiB) could not be allocated while "
                        "%zu bytes are in use; use more machines, a smaller batch or a smaller model",
                        what, bytes, gib(bytes), now);
    return QDR_FAIL(QDR_ERR_MEMORY,
                    "device memory for %s: %zu bytes (%.2f GiB) are needed, %zu (%.2f GiB) are "
                    "free of %zu (%.2f GiB) in all, while %zu bytes are in use here; " QDRI_GPU_MEMORY_REMEDY,
                    what, bytes, gib(bytes), bytes_free, gib(bytes_free), bytes_all, gib(bytes_all), now);
}

static qdr_status allocate(qdri_dev *dev, int is_shared, const char *what, size_t bytes, void **data)
{
    QDR_TRY(QDRI_CLEAR_POINTER("device memory", data));
    if (!dev) return QDR_FAIL(QDR_ERR_ARGUMENT, "device memory: the device is NULL");
    QDR_TRY(qdri_dev_raise(dev));
    const qdr_status status = dev->table->mem_alloc(dev, is_shared, bytes, data);
    if (status == QDR_ERR_MEMORY) return fail_memory(dev, what, bytes);
    if (status != QDR_OK) return status;
    const size_t now = atomic_fetch_add(&dev->bytes_now, bytes) + bytes;
    size_t peak = atomic_load(&dev->bytes_peak);
    while (peak < now && !atomic_compare_exchange_weak(&dev->bytes_peak, &peak, now)) {}
    return QDR_OK;
}

qdr_status qdri_mem_alloc_for(qdri_dev *dev, const char *what, size_t bytes, void **data)
{
    return allocate(dev, 0, what, bytes, data);
}

qdr_status qdri_mem_alloc_shared(qdri_dev *dev, const char *what, size_t bytes, void **data)
{
    return allocate(dev, 1, what, bytes, data);
}

qdr_status qdri_mem_alloc(qdri_dev *dev, size_t bytes, void **data)
{
    return qdri_mem_alloc_for(dev, "an array", bytes, data);
}

void qdri_mem_free(qdri_dev *dev, void **data)
{
    if (!dev || !data || !*data) return;
    atomic_fetch_sub(&dev->bytes_now, dev->table->mem_free(dev, *data));
    *data = NULL;
}

void qdri_mem_usage(const qdri_dev *dev, size_t *bytes_now, size_t *bytes_peak)
{
    if (bytes_now) *bytes_now = atomic_load(&dev->bytes_now);
    if (bytes_peak) *bytes_peak = atomic_load(&dev->bytes_peak);
}

void qdri_mem_reset_peak(qdri_dev *dev) { atomic_store(&dev->bytes_peak, atomic_load(&dev->bytes_now)); }

size_t qdri_dev_fixed_bytes(const qdri_dev *dev, qdr_dtype dtype) { return dev->table->fixed_bytes(dev, dtype); }

int qdri_dev_runs_work(const qdri_dev *dev) { return dev->table->runs_work; }

int64_t qdri_dev_waited_ns(const qdri_dev *dev) { return atomic_load_explicit(&dev->waited_ns, memory_order_relaxed); }

int qdri_dev_gpu(const qdri_dev *dev) { return dev->table->gpu ? dev->table->gpu(dev) : -1; }

const char *qdri_dev_bus(const qdri_dev *dev) { return dev->table->bus ? dev->table->bus(dev) : NULL; }

int qdri_dev_fuses(const qdri_dev *dev, const qdri_gemm *gemm)
{
    return dev->table->fuses && dev->table->fuses(dev, gemm);
}

int qdri_dev_open_to(qdri_dev *dev, int gpu) { return !dev->table->open_to || dev->table->open_to(dev, gpu); }

qdr_status qdri_dev_check_memory(qdri_dev *dev, const void *data, size_t elem_bytes, const char *what)
{
    if (!data) return QDR_OK;
    if (elem_bytes && (uintptr_t)data % elem_bytes)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "%s: the address %p is not a multiple of %zu, the bytes of an element; start at a whole "
                        "element of memory from qdr_mem_alloc()",
                        what, data, elem_bytes);
    return dev->table->check_memory ? dev->table->check_memory(dev, data, what) : QDR_OK;
}

qdr_status qdri_dev_check_argument(qdri_dev *dev, const void *data, size_t elem_bytes, const char *who,
                                   const char *what)
{
    char name[128];
    if (qdri_dev_check_memory(dev, data, elem_bytes, who) == QDR_OK) return QDR_OK;
    snprintf(name, sizeof name, "%s: %s", who, what);
    return qdri_dev_check_memory(dev, data, elem_bytes, name);
}

int qdri_dev_wants_ranges(const qdri_dev *dev) { return dev->table->wants_ranges && dev->table->wants_ranges(dev); }

void qdri_range_begin(qdri_dev *dev, const char *name)
{
    if (dev->table->range_begin) dev->table->range_begin(dev, name);
}

void qdri_range_end(qdri_dev *dev)
{
    if (dev->table->range_end) dev->table->range_end(dev);
}

const char *qdri_dev_products(const qdri_dev *dev) { return dev->table->products(dev); }

/* Whether work may be enqueued: the stream exists and its device has not failed. */
static qdr_status stream_check(const qdr_stream *stream)
{
    if (!stream) return QDR_FAIL(QDR_ERR_ARGUMENT, "stream: the stream is NULL");
    return qdri_dev_raise(stream->dev);
}

/* Passes on the result of enqueuing work. If the device has failed, the other ranks are told why, since their
 * collectives wait for those of this one, and memory is freed only when earlier work has ended. */
static qdr_status taken(qdr_stream *stream, qdr_status status)
{
    const qdri_dev_table *table = stream->dev->table;
    if (status < QDR_OK && table->is_failure && table->is_failure(stream, status))
        qdri_dev_poison(stream->dev, status, qdr_last_error());
    return status;
}

static qdr_status pair_check(const qdr_stream *stream, const qdr_event *event)
{
    if (!event) return QDR_FAIL(QDR_ERR_ARGUMENT, "event: the event is NULL");
    QDR_TRY(stream_check(stream));
    if (event->dev != stream->dev)
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "event: the event and the stream belong to different devices; create both with the same context");
    return QDR_OK;
}

size_t qdri_product_bytes(qdr_stream *stream, const qdri_gemm *gemm)
{
    const qdri_dev_table *table = stream->dev->table;
    if (!table->product_bytes || gemm->m == 0 || gemm->n == 0 || gemm->k == 0) return 0;
    return table->product_bytes(stream, gemm);
}

qdr_status qdri_reserve_product(qdr_stream *stream, size_t bytes)
{
    const qdri_dev_table *table = stream->dev->table;
    return table->reserve_product ? table->reserve_product(stream, bytes) : QDR_OK;
}

size_t qdri_kernel_bytes(qdr_stream *stream, const qdri_kernel *kernel)
{
    const qdri_dev_table *table = stream->dev->table;
    return table->kernel_bytes ? table->kernel_bytes(stream, kernel) : 0;
}

void qdri_reserve_kernel(qdr_stream *stream, size_t bytes)
{
    if (stream->dev->table->reserve_kernel && bytes > 0) stream->dev->table->reserve_kernel(stream, bytes);
}

qdr_status qdri_stream_create(qdri_dev *dev, qdri_stream_kind kind, qdr_stream **stream)
{
    QDR_TRY(QDRI_CLEAR_POINTER("stream", stream));
    if (!dev) return QDR_FAIL(QDR_ERR_ARGUMENT, "stream: the device is NULL");
    QDR_TRY(qdri_dev_raise(dev));
    return dev->table->stream_create(dev, kind, stream);
}

qdr_status qdri_stream_wrap(qdri_dev *dev, void *native, qdr_stream **stream)
{
    if (!dev->table->stream_wrap)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "stream: the context computes on the %s, which does not support external streams; create it "
                        "with .device = \"cuda\"",
                        dev->table->name);
    return dev->table->stream_wrap(dev, native, stream);
}

void *qdri_stream_native(qdr_stream *stream)
{
    return stream->dev->table->stream_native ? stream->dev->table->stream_native(stream) : NULL;
}

qdr_status qdri_pin(qdri_dev *dev, void *memory, size_t bytes) { return dev->table->pin(dev, memory, bytes); }

void qdri_unpin(qdri_dev *dev, void *memory) { dev->table->unpin(dev, memory); }

qdr_status qdri_flag_raise(qdr_stream *stream, uint32_t *flag, uint32_t value)
{
    QDR_TRY(stream_check(stream));
    return taken(stream, stream->dev->table->flag_raise(stream, flag, value));
}

qdr_status qdri_flag_wait(qdr_stream *stream, uint32_t *flag, uint32_t value)
{
    QDR_TRY(stream_check(stream));
    return taken(stream, stream->dev->table->flag_wait(stream, flag, value));
}

qdr_status qdri_record_begin(qdr_stream *stream)
{
    QDR_TRY(stream_check(stream));
    if (!stream->dev->table->record_begin)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "graph: the %s cannot record work; create the context with .device = \"cuda\"",
                        stream->dev->table->name);
    return stream->dev->table->record_begin(stream);
}

qdr_status qdri_record_end(qdr_stream *stream, void **record)
{
    *record = NULL;
    if (!stream->dev->table->record_end)
        return QDR_FAIL(QDR_ERR_STATE, "graph: nothing is being recorded; call qdr_graph_begin() first");
    return stream->dev->table->record_end(stream, record);
}

int qdri_record_is_lost(qdr_stream *stream)
{
    const qdri_dev_table *table = stream->dev->table;
    return table->record_is_lost && table->record_is_lost(stream);
}

qdr_status qdri_record_check(qdr_stream *stream)
{
    if (!qdri_record_is_lost(stream)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "graph: work enqueued earlier cannot be recorded, so the recording is lost; "
                                         "call qdr_graph_end(), and see graph.h for what cannot be recorded");
}

qdr_status qdri_record_run(qdr_stream *stream, void *record)
{
    QDR_TRY(stream_check(stream));
    return taken(stream, stream->dev->table->record_run(stream, record));
}

void qdri_record_free(qdri_dev *dev, void *record)
{
    if (record) dev->table->record_free(dev, record);
}

void qdri_stream_destroy(qdr_stream **stream)
{
    if (!stream || !*stream) return;
    qdri_life *needs = (*stream)->needs;
    (*stream)->dev->table->stream_destroy(*stream);
    *stream = NULL;
    qdri_life_drop(needs);
}

void qdri_stream_keep(qdr_stream *stream, qdri_life *needs) { stream->needs = qdri_life_keep(needs); }

qdr_status qdri_stream_synchronize(qdr_stream *stream)
{
    if (!stream) return QDR_FAIL(QDR_ERR_ARGUMENT, "stream: the stream is NULL");
    QDR_TRY(stream->dev->table->stream_synchronize(stream));
    return qdri_dev_raise(stream->dev);
}

qdri_dev *qdri_stream_dev(const qdr_stream *stream) { return stream->dev; }

qdr_status qdri_event_create(qdri_dev *dev, qdr_event **event)
{
    QDR_TRY(QDRI_CLEAR_POINTER("event", event));
    if (!dev) return QDR_FAIL(QDR_ERR_ARGUMENT, "event: the device is NULL");
    QDR_TRY(qdri_dev_raise(dev));
    return dev->table->event_create(dev, event);
}

void qdri_event_destroy(qdr_event **event)
{
    if (!event || !*event) return;
    qdri_life *needs = (*event)->needs;
    (*event)->dev->table->event_destroy(*event);
    *event = NULL;
    qdri_life_drop(needs);
}

void qdri_event_keep(qdr_event *event, qdri_life *needs) { event->needs = qdri_life_keep(needs); }

qdr_status qdri_event_record(qdr_event *event, qdr_stream *stream)
{
    QDR_TRY(pair_check(stream, event));
    return taken(stream, stream->dev->table->event_record(event, stream));
}

qdr_status qdri_stream_wait(qdr_stream *stream, qdr_event *event)
{
    QDR_TRY(pair_check(stream, event));
    return taken(stream, stream->dev->table->stream_wait(stream, event));
}

qdr_status qdri_stream_wait_across(qdr_stream *stream, qdr_event *event)
{
    QDR_TRY(stream_check(stream));
    return taken(stream, stream->dev->table->stream_wait(stream, event));
}

int qdri_event_reached(qdr_event *event) { return event->dev->table->event_reached(event); }

qdr_status qdri_stamp(qdr_stream *stream, int64_t *nanosecs)
{
    QDR_TRY(stream_check(stream));
    return taken(stream, stream->dev->table->stamp(stream, nanosecs));
}

static qdr_status work_check(const qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes)
{
    QDR_TRY(stream_check(stream));
    if (!fn || (bytes && !args)) return QDR_FAIL(QDR_ERR_ARGUMENT, "work: the function or its arguments are NULL");
    if (bytes > QDRI_WORK_BYTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "work: %zu bytes of arguments, at most %d fit", bytes, QDRI_WORK_BYTES);
    return QDR_OK;
}

qdr_status qdri_work(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes)
{
    QDR_TRY(work_check(stream, fn, args, bytes));
    return taken(stream, stream->dev->table->work(stream, fn, args, bytes));
}

qdr_status qdri_work_anywhere(qdr_stream *stream, qdri_work_fn fn, const void *args, size_t bytes)
{
    QDR_TRY(work_check(stream, fn, args, bytes));
    const qdri_dev_table *table = stream->dev->table;
    return taken(stream, (table->work_anywhere ? table->work_anywhere : table->work)(stream, fn, args, bytes));
}

qdr_status qdri_dev_check_rounding(const qdri_dev *dev)
{
    return dev->table->check_rounding ? dev->table->check_rounding(dev) : QDR_OK;
}

qdr_status qdri_gemm_list_algorithms(qdr_stream *stream, const qdri_gemm *gemm, int most, int algorithms[], int *n)
{
    const qdri_dev_table *table = stream->dev->table;
    QDR_TRY(qdri_gemm_check(gemm));
    algorithms[0] = 0;
    *n = 1;
    return table->list_algorithms ? table->list_algorithms(stream, gemm, most, algorithms, n) : QDR_OK;
}

qdr_status qdri_gemm_run(qdr_stream *stream, const qdri_gemm *gemm)
{
    QDR_TRY(stream_check(stream));
    QDR_TRY(qdri_gemm_check(gemm));
    if (gemm->m == 0 || gemm->n == 0) return QDR_OK;
    if ((gemm->bias || gemm->gelu || gemm->gelu_of) && !qdri_dev_fuses(stream->dev, gemm))
        return QDR_FAIL(
            QDR_ERR_UNSUPPORTED,
            "product: the %s cannot fuse this bias or GELU with a product of %s; run a separate kernel after it",
            stream->dev->table->name, qdr_dtype_name(gemm->dtype));
    if (gemm->round_a) QDR_TRY(qdri_dev_check_rounding(stream->dev));
    return taken(stream, stream->dev->table->gemm(stream, gemm));
}

qdr_status qdri_copy(qdr_stream *stream, void *dst, const void *src, size_t bytes)
{
    QDR_TRY(stream_check(stream));
    if (bytes == 0 || dst == src) return QDR_OK;
    if (!dst || !src) return QDR_FAIL(QDR_ERR_ARGUMENT, "copy: %zu bytes from or to NULL", bytes);
    return taken(stream, stream->dev->table->copy(stream, dst, src, bytes));
}

qdr_status qdri_fill_zero(qdr_stream *stream, void *dst, size_t bytes)
{
    QDR_TRY(stream_check(stream));
    if (bytes == 0) return QDR_OK;
    if (!dst) return QDR_FAIL(QDR_ERR_ARGUMENT, "fill: %zu bytes at NULL", bytes);
    return taken(stream, stream->dev->table->fill_zero(stream, dst, bytes));
}

qdr_status qdri_kernel_run(qdr_stream *stream, const qdri_kernel *kernel)
{
    QDR_TRY(stream_check(stream));
    QDR_TRY(qdri_kernel_check(kernel));
    if (kernel->kind == QDRI_K_COPY)
        return qdri_copy(stream, kernel->u.block.y, kernel->u.block.x, kernel->u.block.row_bytes);
    if (kernel->kind == QDRI_K_ZERO) return qdri_fill_zero(stream, kernel->u.block.y, kernel->u.block.row_bytes);
    return taken(stream, stream->dev->table->kernel(stream, kernel));
}
