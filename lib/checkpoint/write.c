/* SPDX-License-Identifier: Apache-2.0 */
/* This rank's part of a save: from device memory to the file. */
#include <string.h>

#include "checkpoint/crc.h"
#include "checkpoint/internal.h"
#include "checkpoint/rows.h"
#include "checkpoint/save.h"
#include "core/size.h"
#include "dev/cpu/narrow.h"
#include "files/at.h"

enum { WRITE_BYTES = 256 << 10 /* which the cache still has after they were summed */ };

static qdri_dev *dev_of(const qdr_stack *stack) { return qdri_context_dev(qdr_grid_context(stack->grid)); }

/* ---- host memory ---- */

qdri_host_plan qdri_host_plan_of(const qdri_contents *contents, int background)
{
    const qdr_stack *stack = contents->stack;
    const int on_host = qdri_dev_runs_work(dev_of(stack));
    const size_t each = qdr_dtype_bytes(contents->dtype);
    qdri_host_plan plan = {0};
    int64_t most = 0; /* elements of a piece */
    int needs_band = 0, has_masters = 0;
    qdr_axis axis;
    for (int i = 0; i < contents->n; i++) {
        const qdri_saved *saved = &contents->saved[i];
        if (saved->n > most) most = saved->n;
        const qdri_parameter *parameter = qdri_contents_parameter(contents, i);
        if (saved->n && parameter->storage == QDR_IN_OUT) needs_band = 1;
        if (saved->n && !background && qdri_rows_exchange(stack, parameter, &axis)) needs_band = 1;
        if (contents->dtype != saved->dtype) has_masters = 1;
    }
    if (most > QDRI_PIECE_ELEMS) most = QDRI_PIECE_ELEMS;
    if (background) plan.copy = qdri_align_bytes((size_t)contents->own_bytes, 64);
    if (!background && (has_masters || !on_host)) plan.elements = qdri_align_bytes((size_t)most * each, 64);
    if (has_masters && !on_host) plan.parameters = qdri_align_bytes((size_t)most * sizeof(uint16_t), 64);
    if (needs_band) plan.band = QDRI_BAND_BYTES;
    return plan;
}

qdr_status qdri_host_block_make(const qdri_host_plan *plan, qdri_host_block *block)
{
    *block = (qdri_host_block){0};
    const size_t bytes = qdri_host_plan_bytes(plan);
    if (bytes == 0) return QDR_OK;
    QDR_TRY(qdri_calloc(bytes, 1, "a checkpoint", (void **)&block->memory));
    char *at = block->memory;
    if (plan->copy) block->copy = at;
    at += plan->copy;
    if (plan->elements) block->elements = at;
    at += plan->elements;
    if (plan->parameters) block->parameters = at;
    at += plan->parameters;
    if (plan->band) block->band = at;
    return QDR_OK;
}

/* Makes each F32 master, in place, the parameter that it is not rounded to: one that was set since the last step. */
static void follow_parameters(qdr_dtype type, float *masters, const uint16_t *parameters, int64_t n)
{
    for (int64_t i = 0; i < n; i++)
        if (qdri_narrow_round(type, masters[i]) != parameters[i]) masters[i] = qdri_narrow_load(type, parameters[i]);
}

/* ---- from the device ---- */

/* Elements [first, first + n) of what this rank has of a tensor, as they are in the file; at most a piece. */
static qdr_status fetch(const qdr_checkpoint *self, const qdri_saved *saved, int64_t first, int64_t n, void *to)
{
    const qdr_stack *stack = self->stack;
    const int on_host = qdri_dev_runs_work(dev_of(stack));
    qdr_stream *stream = qdr_context_stream(qdr_grid_context(stack->grid));
    const size_t each = qdr_dtype_bytes(self->contents.dtype);
    const char *from = (const char *)(saved->master ? saved->master : saved->values) + (size_t)first * each;
    const uint16_t *parameters = saved->master ? (const uint16_t *)saved->values + first : NULL;
    if (on_host) {
        memcpy(to, from, (size_t)n * each);
    } else {
        QDR_TRY(qdri_copy(stream, to, from, (size_t)n * each));
        if (parameters) QDR_TRY(qdri_copy(stream, self->host.parameters, parameters, (size_t)n * sizeof *parameters));
        QDR_TRY(qdri_stream_synchronize(stream));
        if (parameters) parameters = (const uint16_t *)self->host.parameters;
    }
    if (parameters) follow_parameters(saved->dtype, to, parameters, n);
    return QDR_OK;
}

qdr_status qdri_checkpoint_copy(qdr_checkpoint *self)
{
    const size_t each = qdr_dtype_bytes(self->contents.dtype);
    char *to = self->host.copy;
    for (int i = 0; i < self->contents.n; i++) {
        const qdri_saved *saved = &self->contents.saved[i];
        for (int64_t first = 0, n = 0; first < saved->n; first += n, to += (size_t)n * each) {
            n = qdri_least(saved->n - first, QDRI_PIECE_ELEMS);
            QDR_TRY(fetch(self, saved, first, n, to));
        }
    }
    return QDR_OK;
}

/* ---- to the file ---- */

typedef struct target {
    qdr_checkpoint *checkpoint;
    int64_t at; /* byte of the file at which the tensor begins */
} target;

static qdr_status write_row(void *user, int64_t at, void *bytes, size_t n_bytes, uint32_t *crc)
{
    const target *to = user;
    for (size_t done = 0, n = 0; done < n_bytes; done += n) {
        const char *next = (const char *)bytes + done;
        n = n_bytes - done < WRITE_BYTES ? n_bytes - done : WRITE_BYTES;
        *crc = qdri_crc(*crc, next, n);
        const int error = qdri_write_at(to->checkpoint->descriptor, to->at + at + (int64_t)done, next, n);
        if (error) return qdri_partial_fail(to->checkpoint->path, error);
        if (n == WRITE_BYTES) qdri_write_soon(to->checkpoint->descriptor, to->at + at + (int64_t)done, n);
    }
    to->checkpoint->n_written += (int64_t)n_bytes;
    return QDR_OK;
}

/* What this rank has of a tensor; copy: that of the background, NULL: from the device. *failed: what writing has failed
 * with; then only the others write. Without a copy collective, see qdri_rows_move(). */
static qdr_status write_tensor(qdr_checkpoint *self, int index, char *copy, qdr_status *failed)
{
    const qdri_saved *saved = &self->contents.saved[index];
    target to = {self, self->data_at + self->contents.tensors[index].begin};
    qdri_rows rows = {.parameter = qdri_contents_parameter(&self->contents, index),
                      .elem_bytes = qdr_dtype_bytes(self->contents.dtype),
                      .band = self->host.band,
                      .move = write_row,
                      .user = &to,
                      .status = *failed};
    qdr_status status = QDR_OK;
    if (!copy && qdri_rows_exchange(self->stack, rows.parameter, &rows.axis)) rows.grid = self->stack->grid;
    if (!self->host.elements) {
        status = qdri_rows_move(&rows, saved->begin, saved->n, copy ? copy : saved->values);
    } else {
        for (int64_t first = 0, n = 0; first < saved->n && status == QDR_OK; first += n) {
            n = qdri_least(saved->n - first, QDRI_PIECE_ELEMS);
            status = fetch(self, saved, first, n, self->host.elements);
            if (status == QDR_OK) status = qdri_rows_move(&rows, saved->begin + first, n, self->host.elements);
        }
    }
    self->shares[index] = rows.share;
    *failed = rows.status;
    return status;
}

qdr_status qdri_checkpoint_write(qdr_checkpoint *self)
{
    const qdri_contents *contents = &self->contents;
    char *copy = self->host.copy;
    const int64_t file_bytes = self->data_at + qdri_tensors_bytes(contents->tensors, contents->n);
    int error = self->partial ? qdri_reserve(self->descriptor, file_bytes) : 0;
    qdr_status failed = error ? qdri_partial_fail(self->path, error) : QDR_OK;
    for (int i = 0; i < contents->n; i++) {
        QDR_TRY(write_tensor(self, i, copy, &failed));
        if (copy) copy += (size_t)contents->saved[i].n * qdr_dtype_bytes(contents->dtype);
    }
    QDR_TRY(failed);
    error = qdri_sync_data(self->descriptor);
    return error ? qdri_partial_fail(self->path, error) : QDR_OK;
}
