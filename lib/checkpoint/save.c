/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a checkpoint: what ranks do together. See quadrille/checkpoint.h. */
#include <stdlib.h>
#include <unistd.h>

#include "checkpoint/crc.h"
#include "checkpoint/internal.h"
#include "checkpoint/save.h"
#include "core/size.h"
#include "core/sized.h"
#include "files/at.h"
#include "linear/describe.h"

static qdr_context *context_of(const qdr_checkpoint *self) { return qdr_grid_context(self->stack->grid); }
static qdri_comm *world_of(const qdr_checkpoint *self) { return qdri_context_world(context_of(self)); }
static int is_root(const qdr_checkpoint *self) { return qdri_comm_rank(world_of(self)) == 0; }

/* ---- sizes ---- */

static void set_metadata(qdr_checkpoint *self, int has_optimizer)
{
    const char **next = self->metadata;
    *next++ = "format", *next++ = "pt"; /* other programs ask for it */
    *next++ = QDRI_CHECKPOINT_LAYOUT, *next++ = QDRI_CHECKPOINT_VERSION;
    if (has_optimizer) *next++ = QDRI_CHECKPOINT_OPTIMIZER, *next++ = self->optimizer;
    if (self->note) *next++ = QDRI_CHECKPOINT_NOTE, *next++ = self->note;
    *next = NULL;
}

/* Also checks names and note. The header's length does not depend on checksums. */
static qdr_status measure_header(qdr_checkpoint *self)
{
    char *header = NULL;
    size_t bytes;
    QDR_TRY(qdri_header_make(self->contents.tensors, self->contents.n, self->metadata, &header, &bytes));
    self->data_at = (int64_t)bytes;
    free(header);
    return QDR_OK;
}

static qdr_status measure(const qdr_stack *stack, const qdr_adamw *optimizer, int background, size_t *host_bytes,
                          int64_t *file_bytes)
{
    qdr_checkpoint self = {0};
    QDR_TRY(qdri_contents_make(stack, optimizer, &self.contents));
    const qdri_host_plan plan = qdri_host_plan_of(&self.contents, background);
    qdr_status status = optimizer ? qdri_optimizer_print(optimizer, self.optimizer) : QDR_OK;
    set_metadata(&self, optimizer != NULL);
    if (status == QDR_OK) status = measure_header(&self);
    if (status == QDR_OK && host_bytes) *host_bytes = qdri_host_plan_bytes(&plan);
    if (status == QDR_OK && file_bytes)
        *file_bytes = self.data_at + qdri_tensors_bytes(self.contents.tensors, self.contents.n);
    qdri_contents_free(&self.contents);
    return status;
}

qdr_status qdr_checkpoint_size(const qdr_stack *stack, const qdr_adamw *optimizer, int background, size_t *host_bytes,
                               int64_t *file_bytes)
{
    if (host_bytes) *host_bytes = 0;
    if (file_bytes) *file_bytes = 0;
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: the stack is NULL");
    if (!stack->built) return QDR_FAIL(QDR_ERR_STATE, "checkpoint: the stack is not built; call qdr_stack_build first");
    QDR_TRY(qdri_check_switch("checkpoint", "background", background));
    return measure(stack, optimizer, background, host_bytes, file_bytes);
}

/* ---- beginning ---- */

static qdr_status check(const qdr_stack *stack, const char *path, const qdr_checkpoint_opts *opts,
                        qdr_checkpoint **pending)
{
    QDR_TRY(qdri_stack_ready(stack, "checkpoint"));
    QDR_TRY(qdri_context_check_runs(qdr_grid_context(stack->grid), "checkpoint"));
    if (!path) return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: the path is NULL; name a file");
    if (opts->keep < 0)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: keep is %d; use 0 or more older files", opts->keep);
    QDR_TRY(qdri_check_switch("checkpoint", "background", opts->background));
    if (opts->background && !pending)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "checkpoint: pending is NULL; pass an address, for qdr_checkpoint_finish() to wait");
    if (stack->is_saving)
        return QDR_FAIL(QDR_ERR_STATE,
                        "checkpoint: another save of this stack is pending; call qdr_checkpoint_finish() first");
    return QDR_OK;
}

static qdr_status make(qdr_stack *stack, qdr_adamw *optimizer, const char *path, const qdr_checkpoint_opts *opts,
                       qdr_checkpoint **result)
{
    QDR_TRY(QDRI_NEW(1, "a checkpoint", result));
    qdr_checkpoint *self = *result;
    self->stack = stack;
    qdri_life_keep(qdri_stack_life(stack));
    self->descriptor = -1;
    self->keep = opts->keep;
    self->background = opts->background;
    QDR_TRY(qdri_strdup(path, &self->path));
    if (opts->note) QDR_TRY(qdri_strdup(opts->note, &self->note));
    QDR_TRY(qdri_contents_make(stack, optimizer, &self->contents));
    QDR_TRY(QDRI_NEW(self->contents.n, "the checksums of a checkpoint", &self->shares));
    QDR_TRY(qdri_stream_synchronize(qdr_context_stream(qdr_grid_context(stack->grid))));
    if (optimizer) QDR_TRY(qdri_optimizer_print(optimizer, self->optimizer));
    set_metadata(self, optimizer != NULL);
    QDR_TRY(measure_header(self));
    const qdri_host_plan plan = qdri_host_plan_of(&self->contents, opts->background);
    return qdri_host_block_make(&plan, &self->host);
}

static void describe(qdri_facts *facts, const qdr_adamw *optimizer, const char *path, const qdr_checkpoint_opts *opts)
{
    static const char who[] = "qdr_checkpoint_save";
    qdri_facts_add(facts, who, "path", path);
    qdri_facts_add_int(facts, who, "optimizer", optimizer != NULL);
    qdri_facts_add_int(facts, who, "background", opts->background);
    qdri_facts_add_int(facts, who, "keep", opts->keep);
    qdri_facts_add_text(facts, who, "a note", opts->note);
}

static void free_all(qdr_checkpoint *self)
{
    qdri_life *stack = qdri_stack_life(self->stack);
    if (self->descriptor >= 0 && !self->partial) close(self->descriptor);
    qdri_partial_discard(&self->partial);
    qdri_contents_free(&self->contents);
    free(self->host.memory);
    free(self->shares);
    free(self->note);
    free(self->path);
    free(self);
    qdri_life_drop(stack);
}

/* Rank 0 makes the file, and the others open it. */
static qdr_status open_file(qdr_checkpoint *self)
{
    qdri_partial_ticket ticket = {.name = ""};
    char who[32];
    qdr_status status = is_root(self) ? qdri_partial_create(self->path, &self->partial) : QDR_OK;
    if (self->partial) {
        self->descriptor = qdri_partial_descriptor(self->partial);
        ticket = qdri_partial_ticket_of(self->partial);
    }
    QDR_TRY(qdri_comm_agree(world_of(self), status));
    QDR_TRY(qdri_comm_broadcast(world_of(self), 0, &ticket, sizeof ticket));
    snprintf(who, sizeof who, "rank %d", qdri_comm_rank(world_of(self)));
    if (!is_root(self)) status = qdri_partial_join(&ticket, who, &self->descriptor);
    return qdri_comm_agree(world_of(self), status);
}

/* ---- ending ---- */

static qdr_status write_header(qdr_checkpoint *self)
{
    char *header = NULL;
    size_t bytes;
    for (int i = 0; i < self->contents.n; i++)
        self->contents.tensors[i].crc = qdri_crc_of_shares(self->shares[i], self->contents.tensors[i].bytes);
    QDR_TRY(qdri_header_make(self->contents.tensors, self->contents.n, self->metadata, &header, &bytes));
    const int error = qdri_write_at(self->descriptor, 0, header, bytes);
    free(header);
    return error ? qdri_partial_fail(self->path, error) : QDR_OK;
}

/* Each byte must have been written once. */
static qdr_status check_sum(const qdr_checkpoint *self, int64_t n_written)
{
    const int64_t expected = qdri_tensors_bytes(self->contents.tensors, self->contents.n);
    if (n_written == expected) return QDR_OK;
    return QDR_FAIL(QDR_ERR_STATE,
                    "%s was not saved: ranks have written %" PRId64 " bytes of %" PRId64
                    "; this is an error in the library: please report it, with the grid and its levels",
                    qdri_shown(self->path).text, n_written, expected);
}

/* All ranks end alike. mine: how this rank's part ended. */
static qdr_status complete(qdr_checkpoint *self, qdr_status mine)
{
    int64_t n_written = self->n_written;
    qdr_status status = qdri_comm_agree(world_of(self), mine);
    const int all_wrote = status == QDR_OK;
    if (all_wrote) status = qdri_combine(self->stack->grid, self->shares, self->contents.n, &n_written);
    if (status == QDR_OK) status = check_sum(self, n_written);
    if (self->partial) {
        if (status == QDR_OK) status = write_header(self);
        self->descriptor = -1; /* closed with the file */
        if (status == QDR_OK)
            status = qdri_partial_commit(&self->partial, self->keep);
        else
            qdri_partial_discard(&self->partial);
    }
    /* Once ranks are missing, an agreement would only hide the sentence that says which. */
    if (all_wrote && qdr_context_status(context_of(self)) >= 0) status = qdri_comm_agree(world_of(self), status);
    self->is_complete = 1;
    self->status = status;
    self->stack->is_saving = 0;
    return status;
}

/* ---- in the background ---- */

static void *write_in_thread(void *user)
{
    qdr_checkpoint *self = user;
    self->written = qdri_checkpoint_write(self);
    qdri_file_event_end(&self->writing);
    if (self->written != QDR_OK) snprintf(self->sentence, sizeof self->sentence, "%s", qdr_last_error());
    atomic_store(&self->has_written, 1);
    return NULL;
}

/* Waits for the thread. */
static qdr_status end_thread(qdr_checkpoint *self)
{
    if (!self->has_thread) return QDR_OK;
    pthread_join(self->thread, NULL);
    self->has_thread = 0;
    qdri_file_event_add(context_of(self), self->path, &self->writing, self->n_written);
    if (self->written != QDR_OK) qdri_set_last_error(self->sentence);
    return self->written;
}

static qdr_status begin_background(qdr_checkpoint *self)
{
    qdri_file_event copying = qdri_file_event_begin(context_of(self), "copy to host");
    qdr_status status = qdri_checkpoint_copy(self);
    qdri_file_event_end(&copying);
    qdri_file_event_add(context_of(self), self->path, &copying, self->contents.own_bytes);
    self->writing = qdri_file_event_begin(context_of(self), "write");
    if (status == QDR_OK && pthread_create(&self->thread, NULL, write_in_thread, self) != 0)
        status = QDR_FAIL(QDR_ERR_THREAD, "checkpoint: no thread could be started to write %s; save without background",
                          qdri_shown(self->path).text);
    self->has_thread = status == QDR_OK;
    const qdr_status agreed = qdri_comm_agree(world_of(self), status);
    if (agreed == QDR_OK) return QDR_OK;
    qdri_kept_error kept;
    qdri_keep_last_error(&kept);
    status = end_thread(self);
    (void)status; /* the reason is another one */
    qdri_restore_last_error(&kept);
    return agreed;
}

/* ---- the functions ---- */

static qdr_status write_now(qdr_checkpoint *self)
{
    self->writing = qdri_file_event_begin(context_of(self), "write");
    const qdr_status status = qdri_checkpoint_write(self);
    qdri_file_event_end(&self->writing);
    qdri_file_event_add(context_of(self), self->path, &self->writing, self->n_written);
    return status;
}

static qdr_status run(qdr_checkpoint *self)
{
    QDR_TRY(open_file(self));
    if (!self->background) return complete(self, write_now(self));
    QDR_TRY(begin_background(self));
    self->stack->is_saving = 1;
    return QDR_OK;
}

qdr_status qdr_checkpoint_save(qdr_stack *stack, qdr_adamw *optimizer, const char *path,
                               const qdr_checkpoint_opts *given, qdr_checkpoint **pending)
{
    qdr_checkpoint_opts opts = {QDR_INIT(qdr_checkpoint_opts)};
    if (pending) *pending = NULL;
    if (!stack) return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: the stack is NULL");
    qdri_facts facts = {0};
    qdr_checkpoint *self = NULL;
    qdr_status status = given ? QDRI_TAKE(qdr_checkpoint_opts, given, &opts) : QDR_OK;
    if (status == QDR_OK) status = check(stack, path, &opts, pending);
    if (status == QDR_OK) status = make(stack, optimizer, path, &opts, &self);
    if (status == QDR_OK) describe(&facts, optimizer, path, &opts);
    status = qdri_context_agree_same(qdr_grid_context(stack->grid), status, &facts, "checkpoint", QDRI_SAME_CALL);
    qdri_facts_free(&facts);
    if (!self) return status;
    if (status == QDR_OK) status = run(self);
    if (status == QDR_OK && opts.background)
        *pending = self;
    else
        free_all(self);
    return status;
}

/* Returns how it ended, with its sentence. */
static qdr_status ended(const qdr_checkpoint *self)
{
    if (self->status != QDR_OK) qdri_set_last_error(self->sentence);
    return self->status;
}

static qdr_status complete_background(qdr_checkpoint *self)
{
    if (self->is_complete) return ended(self);
    const qdr_status status = complete(self, end_thread(self));
    if (status != QDR_OK) snprintf(self->sentence, sizeof self->sentence, "%s", qdr_last_error());
    return status;
}

qdr_status qdr_checkpoint_poll(qdr_checkpoint *pending)
{
    if (!pending) return QDR_FAIL(QDR_ERR_ARGUMENT, "checkpoint: NULL is not pending");
    if (pending->is_complete) return ended(pending);
    const int is_writing = !atomic_load(&pending->has_written);
    if (qdri_comm_any(world_of(pending), is_writing) && qdr_context_status(context_of(pending)) >= 0)
        return QDR_PENDING;
    return complete_background(pending);
}

qdr_status qdr_checkpoint_finish(qdr_checkpoint **pending)
{
    if (!pending || !*pending) return QDR_OK;
    qdr_checkpoint *self = *pending;
    *pending = NULL;
    const qdr_status status = complete_background(self);
    free_all(self);
    return status;
}
