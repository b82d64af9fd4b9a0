/* SPDX-License-Identifier: Apache-2.0 */
/* Loading a checkpoint: the mirror of saving. Each rank reads the part that it would write, and sends it to the ranks
 * that have a copy. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "checkpoint/crc.h"
#include "checkpoint/places.h"
#include "checkpoint/rows.h"
#include "checkpoint/save.h"
#include "core/group.h"
#include "core/size.h"
#include "core/sized.h"
#include "dev/cpu/narrow.h"
#include "linear/describe.h"
#include "quadrille/coll.h"

enum {
    READ_BYTES = 256 << 10, /* which the cache still has when they are summed */
    SMALL_BYTES = 4096, /* shorter rows share their pages with those of other ranks */
    MOST_APART = 8
};

typedef struct loading {
    qdr_stack *stack;
    qdr_adamw *optimizer;
    const char *path, *first_rows;
    qdri_contents contents;
    qdri_places places;
    uint32_t *shares; /* of checksums, by tensor */
    int64_t n_read; /* bytes */
    char *elements, *converted, *band, *window; /* host memory: of pieces, of transposed shards, of short rows */
} loading;

static qdr_grid *grid_of(const loading *self) { return self->stack->grid; }
static qdr_context *context_of(const loading *self) { return qdr_grid_context(self->stack->grid); }
static qdri_comm *world_of(const loading *self) { return qdri_context_world(context_of(self)); }
static int on_host(const loading *self) { return qdri_dev_runs_work(qdri_context_dev(context_of(self))); }

/* ---- reading ---- */

typedef struct source {
    const qdri_tensor_file *file;
    const qdri_place *place;
    int64_t n_bytes; /* of the tensor */
    int64_t *n_read; /* bytes */
    char *window; /* READ_BYTES of the tensor from byte window_at on, of which it has window_n */
    int64_t window_at, window_n, last; /* last: where the last row began */
} source;

/* Short rows that are near to each other are taken from one that is read with all between them: a call for each would
 * take longer. */
static qdr_status read_bytes(source *from, int64_t at, size_t n_bytes, void *to)
{
    const int64_t n = (int64_t)n_bytes, apart = at - from->last;
    from->last = at;
    if (n >= SMALL_BYTES || apart <= 0 || apart > MOST_APART * n)
        return qdri_tensor_file_read(from->file, from->place->at + at, n_bytes, to);
    if (at < from->window_at || at + n > from->window_at + from->window_n) {
        const int64_t left = from->n_bytes - at;
        from->window_at = at;
        from->window_n = left < READ_BYTES ? left : READ_BYTES;
        QDR_TRY(qdri_tensor_file_read(from->file, from->place->at + at, (size_t)from->window_n, from->window));
    }
    memcpy(to, from->window + (at - from->window_at), n_bytes);
    return QDR_OK;
}

static qdr_status read_row(void *user, int64_t at, void *bytes, size_t n_bytes, uint32_t *crc)
{
    source *from = user;
    for (size_t done = 0, n = 0; done < n_bytes; done += n) {
        char *next = (char *)bytes + done;
        n = n_bytes - done < READ_BYTES ? n_bytes - done : READ_BYTES;
        QDR_TRY(read_bytes(from, at + (int64_t)done, n, next));
        if (from->place->has_crc) *crc = qdri_crc(*crc, next, n);
    }
    *from->n_read += (int64_t)n_bytes;
    return QDR_OK;
}

/* To an array of the device, from elements of the file's type. */
static qdr_status put(const loading *self, void *to, qdr_dtype as, qdr_dtype type, int64_t n)
{
    qdr_stream *stream = qdr_context_stream(context_of(self));
    if (on_host(self)) {
        qdri_convert(as, to, type, self->elements, n);
        return QDR_OK;
    }
    qdri_convert(as, self->converted, type, self->elements, n);
    QDR_TRY(qdri_copy(stream, to, self->converted, (size_t)n * qdr_dtype_bytes(as)));
    return qdri_stream_synchronize(stream);
}

/* What this rank reads of a tensor. *failed: what reading has failed with; then only the others read. Collective, see
 * qdri_rows_move(). */
static qdr_status read_tensor(loading *self, int index, qdr_status *failed)
{
    const qdri_saved *saved = &self->contents.saved[index];
    const qdri_place *place = &self->places.places[index];
    const qdr_dtype type = (qdr_dtype)place->dtype;
    source from = {.file = &self->places.files[place->file],
                   .place = place,
                   .n_bytes = self->contents.tensors[index].n_elems * (int64_t)qdr_dtype_bytes(type),
                   .n_read = &self->n_read,
                   .window = self->window};
    qdri_rows rows = {.parameter = qdri_contents_parameter(&self->contents, index),
                      .elem_bytes = qdr_dtype_bytes(type),
                      .is_reading = 1,
                      .band = self->band,
                      .move = read_row,
                      .user = &from,
                      .status = *failed};
    qdr_status status = QDR_OK;
    if (qdri_rows_exchange(self->stack, rows.parameter, &rows.axis)) rows.grid = self->stack->grid;
    if (on_host(self) && type == saved->dtype && !saved->master) {
        status = qdri_rows_move(&rows, saved->begin, saved->n, saved->values);
    } else {
        for (int64_t first = 0, n = 0; first < saved->n && status == QDR_OK; first += n) {
            n = qdri_least(saved->n - first, QDRI_PIECE_ELEMS);
            char *values = (char *)saved->values + (size_t)first * qdr_dtype_bytes(saved->dtype);
            status = qdri_rows_move(&rows, saved->begin + first, n, self->elements);
            if (status == QDR_OK) status = put(self, values, saved->dtype, type, n);
            if (status == QDR_OK && saved->master) status = put(self, (float *)saved->master + first, QDR_F32, type, n);
        }
    }
    self->shares[index] = rows.share;
    *failed = rows.status;
    return status;
}

/* Checks the sums over all ranks; a file of another program may have none. */
static qdr_status check_sums(const loading *self, const uint32_t *shares)
{
    const qdr_tensor *damaged = NULL;
    uint32_t is = 0, should_be = 0;
    int n = 0;
    for (int i = 0; i < self->contents.n; i++) {
        const qdri_place *place = &self->places.places[i];
        const qdr_tensor *tensor = &self->contents.tensors[i];
        const int64_t n_bytes = tensor->n_elems * (int64_t)qdr_dtype_bytes((qdr_dtype)place->dtype);
        const uint32_t crc = qdri_crc_of_shares(shares[i], n_bytes);
        if (!place->has_crc || crc == place->crc) continue;
        if (n++ == 0) damaged = tensor, is = crc, should_be = place->crc;
    }
    if (n == 0) return QDR_OK;
    char others[48] = "";
    if (n > 1) snprintf(others, sizeof others, ", and %d more tensor%s", n - 1, n == 2 ? "" : "s");
    return QDR_FAIL(QDR_ERR_IO,
                    "%s: tensor %s is damaged: its checksum is %08" PRIx32 ", not %08" PRIx32
                    "%s; use another copy of the file",
                    qdri_shown(self->path).text, qdri_shown(damaged->name).text, is, should_be, others);
}

/* ---- to the other ranks ---- */

/* The elements that a rank updates, of which it has read its share. */
static qdr_status gather_copies(const loading *self, const qdri_parameter *p, void *all, int64_t n, qdr_dtype dtype)
{
    const int has_levels = qdri_has_levels(qdri_grid_position(grid_of(self)));
    qdri_comm *comm = qdri_grid_comm(grid_of(self), has_levels ? QDR_CHANNEL_D_COPIES : QDR_CHANNEL_D_STAT);
    const qdri_coll coll = {.kind = QDR_ALL_GATHER,
                            .dtype = dtype,
                            .recv = all,
                            .count = n,
                            .split_unit = 1,
                            .label = "loading a checkpoint"};
    return p->n_copies > 1 ? qdri_comm_launch(comm, &coll, qdr_context_stream(context_of(self))) : QDR_OK;
}

/* A small parameter, from the rank that has read it. */
static qdr_status broadcast_copies(const loading *self, const qdri_parameter *p, void *all, int64_t n, qdr_dtype dtype)
{
    for (int axis = QDR_X; axis < QDR_N_AXES; axis++)
        if (!(p->split_axes & 1 << axis))
            QDR_TRY(qdr_grid_broadcast(grid_of(self), (qdr_axis)axis, 0, all, n, dtype, NULL));
    return QDR_OK;
}

static qdr_status spread(const loading *self, int index)
{
    const qdri_saved *saved = &self->contents.saved[index];
    const qdri_parameter *p = qdri_contents_parameter(&self->contents, index);
    const int64_t n = qdri_parameter_updates(p), before = saved->begin - p->state_begin;
    char *values = (char *)saved->values - (size_t)before * qdr_dtype_bytes(saved->dtype);
    char *master = saved->master ? (char *)saved->master - (size_t)before * sizeof(float) : NULL;
    if (n == 0) return QDR_OK;
    QDR_TRY((p->flat_over_z ? gather_copies : broadcast_copies)(self, p, values, n, saved->dtype));
    if (!master) return QDR_OK;
    return (p->flat_over_z ? gather_copies : broadcast_copies)(self, p, master, n, QDR_F32);
}

/* ---- together ---- */

/* Copies of a tensor travel while the next one is read, and while it is in the cache. A rank that cannot read spreads
 * what it has, so that no other waits for it: all hear of it afterwards. */
static qdr_status read_and_spread(loading *self)
{
    qdr_status failed = QDR_OK, sent = QDR_OK;
    qdri_file_event reading = qdri_file_event_begin(context_of(self), "read");
    for (int i = 0; i < self->contents.n && sent == QDR_OK; i++) {
        sent = read_tensor(self, i, &failed);
        if (sent == QDR_OK) sent = spread(self, i);
    }
    qdri_file_event_end(&reading);
    qdri_file_event_add(context_of(self), self->path, &reading, self->n_read);
    const qdr_status arrived = qdri_stream_synchronize(qdr_context_stream(context_of(self)));
    return failed != QDR_OK ? failed : sent != QDR_OK ? sent : arrived;
}

static qdr_status fill(loading *self)
{
    int64_t unused = 0;
    qdr_status status = qdri_comm_agree(world_of(self), read_and_spread(self));
    QDR_TRY(status);
    QDR_TRY(qdri_combine(grid_of(self), self->shares, self->contents.n, &unused));
    status = check_sums(self, self->shares);
    if (status == QDR_OK && self->optimizer)
        status = qdri_adamw_set_steps(self->optimizer, self->places.n_begun, self->places.n_steps);
    return qdri_comm_agree(world_of(self), status);
}

static qdr_status allocate(loading *self)
{
    const size_t piece = QDRI_PIECE_ELEMS * sizeof(double);
    int needs_band = 0;
    qdr_axis axis;
    for (int i = 0; i < self->contents.n; i++) {
        const qdri_parameter *parameter = qdri_contents_parameter(&self->contents, i);
        needs_band |= parameter->storage == QDR_IN_OUT || qdri_rows_exchange(self->stack, parameter, &axis);
    }
    QDR_TRY(QDRI_NEW(self->contents.n, "the checksums of a checkpoint", &self->shares));
    QDR_TRY(qdri_calloc(piece, 1, "a piece of a checkpoint", (void **)&self->elements));
    QDR_TRY(qdri_calloc(READ_BYTES, 1, "a piece of a checkpoint", (void **)&self->window));
    if (!on_host(self)) QDR_TRY(qdri_calloc(piece, 1, "a piece of a checkpoint", (void **)&self->converted));
    return needs_band ? qdri_calloc(QDRI_BAND_BYTES, 1, "a piece of a checkpoint", (void **)&self->band) : QDR_OK;
}

static qdr_status begin(loading *self, const qdr_checkpoint_load_opts *given, qdr_checkpoint_loaded *loaded)
{
    qdr_checkpoint_load_opts opts = {QDR_INIT(qdr_checkpoint_load_opts)};
    if (given) QDR_TRY(QDRI_TAKE(qdr_checkpoint_load_opts, given, &opts));
    self->first_rows = opts.first_rows;
    if (loaded) QDR_TRY(QDRI_CLEAR(qdr_checkpoint_loaded, loaded));
    QDR_TRY(qdri_stack_ready(self->stack, "checkpoint"));
    QDR_TRY(qdri_stack_owns(self->stack, "load a checkpoint"));
    QDR_TRY(qdri_context_check_runs(context_of(self), "checkpoint"));
    if (!self->path) return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: the path is NULL; name a file");
    QDR_TRY(qdri_contents_make(self->stack, self->optimizer, &self->contents));
    QDR_TRY(allocate(self));
    return qdri_stream_synchronize(qdr_context_stream(context_of(self)));
}

static qdr_status run(loading *self, qdr_checkpoint_loaded *loaded)
{
    char sentence[QDRI_ERROR_BYTES];
    QDR_TRY(qdri_places_find(&self->contents, self->optimizer != NULL, self->first_rows, self->path, &self->places));
    const qdr_status status = fill(self);
    if (status != QDR_OK) {
        snprintf(sentence, sizeof sentence, "%.460s; values are undefined now", qdr_last_error());
        (qdr_last_error_is_shared() ? qdri_set_shared_error : qdri_set_last_error)(sentence);
        return status;
    }
    qdri_stack_set_updated(self->stack);
    if (!loaded) return QDR_OK;
    const qdr_checkpoint_loaded own = {.n_tensors = self->contents.n,
                                       .n_ignored = self->places.n_ignored,
                                       .has_optimizer = self->places.has_optimizer,
                                       .n_steps = self->places.n_steps,
                                       .note = self->places.note};
    QDRI_GIVE(qdr_checkpoint_loaded, loaded, &own);
    self->places.note = NULL; /* the caller's now */
    return QDR_OK;
}

qdr_status qdr_checkpoint_load_with(qdr_stack *stack, qdr_adamw *optimizer, const char *path,
                                    const qdr_checkpoint_load_opts *opts, qdr_checkpoint_loaded *loaded)
{
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: the stack is NULL");
    loading self = {.stack = stack, .optimizer = optimizer, .path = path};
    qdri_facts facts = {0};
    qdr_status status = begin(&self, opts, loaded);
    if (status == QDR_OK) {
        qdri_facts_add(&facts, "qdr_checkpoint_load", "path", path);
        qdri_facts_add(&facts, "qdr_checkpoint_load", "first_rows", self.first_rows ? self.first_rows : "none");
        qdri_facts_add_int(&facts, "qdr_checkpoint_load", "optimizer", optimizer != NULL);
    }
    status = qdri_context_agree_same(context_of(&self), status, &facts, "checkpoint", QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    if (status == QDR_OK) status = run(&self, loaded);
    qdri_contents_free(&self.contents);
    qdri_places_free(&self.places);
    free(self.shares);
    free(self.elements);
    free(self.converted);
    free(self.band);
    free(self.window);
    return status;
}

qdr_status qdr_checkpoint_load(qdr_stack *stack, qdr_adamw *optimizer, const char *path, qdr_checkpoint_loaded *loaded)
{
    return qdr_checkpoint_load_with(stack, optimizer, path, NULL, loaded);
}

void qdr_checkpoint_loaded_free(qdr_checkpoint_loaded *loaded)
{
    if (!loaded) return;
    free(loaded->note);
    if (QDRI_CLEAR(qdr_checkpoint_loaded, loaded) != QDR_OK) loaded->note = NULL;
}
