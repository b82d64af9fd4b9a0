/* SPDX-License-Identifier: Apache-2.0 */
#include "checkpoint/places.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/crc.h"
#include "core/complaints.h"
#include "core/dtype.h"
#include "core/input.h"
#include "core/size.h"
#include "files/at.h"

enum { PATH_BYTES = 4608 };

/* ---- rank 0 ---- */

static void shape_words(const qdr_tensor *tensor, char *text, size_t bytes)
{
    size_t length = (size_t)snprintf(text, bytes, "[");
    for (int i = 0; i < tensor->n_dims && length < bytes; i++)
        length += (size_t)snprintf(text + length, bytes - length, "%s%" PRId64, i ? "," : "", tensor->shape[i]);
    if (length < bytes) snprintf(text + length, bytes - length, "]");
}

static int is_same_shape(const qdr_tensor *a, const qdr_tensor *b)
{
    return a->n_dims == b->n_dims && memcmp(a->shape, b->shape, (size_t)a->n_dims * sizeof *a->shape) == 0;
}

/* 1: the first rows of what was found are what is wanted. */
static int is_longer(const qdr_tensor *wanted, const qdr_tensor *found)
{
    qdr_tensor cut = *found;
    cut.shape[0] = wanted->shape[0];
    return found->n_dims > 0 && found->shape[0] > wanted->shape[0] && is_same_shape(wanted, &cut);
}

/* Finds one tensor; what is wrong with it goes to the complaints. */
static void look_up(const qdr_safetensors *file, const qdr_tensor *wanted, int may_be_longer, qdri_place *place,
                    qdri_complaints *all)
{
    char here[64], there[64];
    const int index = qdr_safetensors_find(file, wanted->name);
    const qdr_tensor *found = qdr_safetensors_tensor(file, index);
    const qdri_shown_name name = qdri_shown(wanted->name);
    if (!found) {
        qdri_complain(all, "%.80s is missing", name.text);
        return;
    }
    if (!is_same_shape(wanted, found) && !(may_be_longer && is_longer(wanted, found))) {
        shape_words(wanted, here, sizeof here);
        shape_words(found, there, sizeof there);
        qdri_complain(all, "%.60s is %.40s, not %.40s", name.text, there, here);
        return;
    }
    if (!qdri_is_float((qdr_dtype)found->dtype)) {
        qdri_complain(all, "%.80s is of type %.20s", name.text, found->type);
        return;
    }
    const qdri_tensor_file *in = file->entries[index].file;
    *place = (qdri_place){.at = in->data_at + found->begin,
                          .file = (int)(in - file->files),
                          .dtype = found->dtype,
                          .has_crc = found->has_crc,
                          .crc = found->crc};
}

/* The checksum of a tensor says nothing of its first rows: it is compared here. */
static qdr_status check_whole(const qdr_safetensors *file, const qdr_tensor *wanted, qdri_place *place)
{
    const int index = qdr_safetensors_find(file, wanted->name);
    if (!place->has_crc || is_same_shape(wanted, qdr_safetensors_tensor(file, index))) return QDR_OK;
    place->has_crc = 0;
    return qdr_safetensors_verify(file, index);
}

static qdr_status look_up_all(const qdr_safetensors *file, const qdri_contents *contents, const char *first_rows,
                              const char *path, qdri_places *self)
{
    qdri_complaints all = {.n = 0};
    for (int i = 0; i < contents->n; i++) {
        const qdr_tensor *wanted = &contents->tensors[i];
        look_up(file, wanted, first_rows && strcmp(first_rows, wanted->name) == 0, &self->places[i], &all);
    }
    self->n_ignored = qdr_safetensors_count(file) - contents->n;
    for (int i = 0; i < contents->n && all.n == 0; i++)
        QDR_TRY(check_whole(file, &contents->tensors[i], &self->places[i]));
    if (all.n == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s does not fit this network: %s%s; load the file of this network",
                    qdri_shown(path).text, all.text, all.more);
}

static qdr_status read_optimizer(const qdr_safetensors *file, int needs_one, const char *path, qdri_places *self)
{
    const char *text = qdr_safetensors_metadata(file, QDRI_CHECKPOINT_OPTIMIZER);
    self->has_optimizer = text != NULL;
    if (!needs_one) return text ? qdri_optimizer_read(text, path, &self->n_begun, &self->n_steps) : QDR_OK;
    if (text) return qdri_optimizer_read(text, path, &self->n_begun, &self->n_steps);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has no optimizer's state, only tensors; load its parameters alone",
                    qdri_shown(path).text);
}

/* What a file says of itself, by which ranks know that they have the same: another run may replace it meanwhile. */
typedef struct identity {
    int64_t header_bytes, header_crc, n_bytes, changed_secs;
} identity;

static qdr_status identify(const qdri_tensor_file *file, int64_t header_bytes, identity *found)
{
    char chunk[4096];
    struct stat info;
    memset(found, 0, sizeof *found);
    if (fstat(file->descriptor, &info) != 0)
        return QDR_FAIL(QDR_ERR_IO, "%s cannot be read (%s); %s", qdri_shown(file->path).text, strerror(errno),
                        qdri_read_remedy(errno));
    found->header_bytes = header_bytes;
    found->n_bytes = info.st_size;
    found->changed_secs = info.st_mtime;
    for (int64_t at = 0, n = 0; at < header_bytes && at < info.st_size; at += n) {
        const int64_t left = (header_bytes < info.st_size ? header_bytes : info.st_size) - at;
        n = left < (int64_t)sizeof chunk ? left : (int64_t)sizeof chunk;
        QDR_TRY(qdri_tensor_file_read(file, at, (size_t)n, chunk));
        found->header_crc = qdri_crc((uint32_t)found->header_crc, chunk, (size_t)n);
    }
    return QDR_OK;
}

/* The file that is open, not one that has its name by now. */
static qdr_status keep_open(const qdri_tensor_file *from, qdri_tensor_file *file)
{
    if (strlen(from->path) >= PATH_BYTES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: the path is too long; move the file", qdri_shown(from->path).text);
    QDR_TRY(qdri_strdup(from->path, &file->path));
    file->data_at = from->data_at;
    file->descriptor = fcntl(from->descriptor, F_DUPFD_CLOEXEC, 0);
    if (file->descriptor >= 0) return QDR_OK;
    return qdri_cannot_open(qdri_shown(from->path).text, qdri_read_remedy(errno));
}

static qdr_status look(const qdr_safetensors *file, const qdri_contents *contents, int needs_optimizer,
                       const char *first_rows, const char *path, qdri_places *self)
{
    QDR_TRY(read_optimizer(file, needs_optimizer, path, self));
    QDR_TRY(look_up_all(file, contents, first_rows, path, self));
    const char *note = qdr_safetensors_metadata(file, QDRI_CHECKPOINT_NOTE);
    if (note) QDR_TRY(qdri_strdup(note, &self->note));
    self->n_files = file->n_files;
    QDR_TRY(QDRI_NEW(self->n_files, "the files of a checkpoint", &self->files));
    for (int i = 0; i < self->n_files; i++) self->files[i].descriptor = -1;
    for (int i = 0; i < self->n_files; i++) QDR_TRY(keep_open(&file->files[i], &self->files[i]));
    return QDR_OK;
}

/* ---- all ranks ---- */

/* Numbers that all ranks need before the rest. */
typedef struct summary {
    int n_files, n_ignored, has_optimizer;
    int64_t n_begun, n_steps, note_bytes; /* note_bytes: with its end; 0: none */
} summary;

static qdr_status receive(const summary *from, qdri_places *self)
{
    self->n_files = from->n_files;
    self->n_ignored = from->n_ignored;
    self->has_optimizer = from->has_optimizer;
    self->n_begun = from->n_begun;
    self->n_steps = from->n_steps;
    QDR_TRY(QDRI_NEW(self->n_files, "the files of a checkpoint", &self->files));
    for (int i = 0; i < self->n_files; i++) self->files[i].descriptor = -1;
    return from->note_bytes ? qdri_calloc((size_t)from->note_bytes, 1, "a checkpoint's note", (void **)&self->note)
                            : QDR_OK;
}

static qdr_status tell(qdri_comm *world, int n_tensors, qdri_places *self)
{
    const int is_root = qdri_comm_rank(world) == 0;
    summary all = {self->n_files, self->n_ignored, self->has_optimizer,
                   self->n_begun, self->n_steps,   self->note ? (int64_t)strlen(self->note) + 1 : 0};
    QDR_TRY(qdri_comm_broadcast(world, 0, &all, sizeof all));
    QDR_TRY(qdri_comm_agree(world, is_root ? QDR_OK : receive(&all, self)));
    QDR_TRY(qdri_comm_broadcast(world, 0, self->places, (size_t)n_tensors * sizeof *self->places));
    if (all.note_bytes) QDR_TRY(qdri_comm_broadcast(world, 0, self->note, (size_t)all.note_bytes));
    return QDR_OK;
}

/* The name of a file, and what it is on rank 0. */
typedef struct file_words {
    char path[PATH_BYTES];
    identity is;
} file_words;

static qdr_status open_same(int rank, const file_words *words, qdri_tensor_file *file)
{
    identity found;
    QDR_TRY(qdri_strdup(words->path, &file->path));
    file->descriptor = open(words->path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    if (file->descriptor < 0)
        return QDR_FAIL(QDR_ERR_IO, "%s cannot be opened on rank %d (%s); %s", qdri_shown(words->path).text, rank,
                        strerror(errno),
                        errno == ENOENT ? "put the file into a folder that all ranks see" : qdri_read_remedy(errno));
    QDR_TRY(identify(file, words->is.header_bytes, &found));
    if (memcmp(&found, &words->is, sizeof found) == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_IO,
                    "%s on rank %d is another file than on rank 0; load it again if a run has saved to it meanwhile, "
                    "else put it into a folder that all ranks see",
                    qdri_shown(words->path).text, rank);
}

static qdr_status open_files(qdri_comm *world, qdri_places *self)
{
    const int rank = qdri_comm_rank(world);
    for (int i = 0; i < self->n_files; i++) {
        file_words words;
        qdri_tensor_file *file = &self->files[i];
        qdr_status status = QDR_OK;
        memset(&words, 0, sizeof words);
        if (rank == 0) {
            snprintf(words.path, sizeof words.path, "%s", file->path);
            status = identify(file, file->data_at, &words.is);
        }
        QDR_TRY(qdri_comm_agree(world, status));
        QDR_TRY(qdri_comm_broadcast(world, 0, &words, sizeof words));
        QDR_TRY(qdri_comm_agree(world, rank ? open_same(rank, &words, file) : QDR_OK));
    }
    return QDR_OK;
}

qdr_status qdri_places_find(const qdri_contents *contents, int needs_optimizer, const char *first_rows,
                            const char *path, qdri_places *places)
{
    qdri_comm *world = qdri_context_world(qdr_grid_context(contents->stack->grid));
    const int rank = qdri_comm_rank(world);
    qdr_safetensors *file = NULL;
    *places = (qdri_places){0};
    qdr_status status = QDRI_NEW(contents->n, "the places of tensors", &places->places);
    if (status == QDR_OK && rank == 0) status = qdr_safetensors_open(path, &file);
    if (file) status = look(file, contents, needs_optimizer, first_rows, path, places);
    qdr_safetensors_discard(&file);
    status = qdri_comm_agree(world, status);
    if (status == QDR_OK) status = tell(world, contents->n, places);
    if (status == QDR_OK) status = open_files(world, places);
    if (status != QDR_OK) qdri_places_free(places);
    return status;
}

void qdri_places_free(qdri_places *places)
{
    for (int i = 0; i < places->n_files && places->files; i++) {
        if (places->files[i].descriptor >= 0) close(places->files[i].descriptor);
        free(places->files[i].path);
    }
    free(places->files);
    free(places->places);
    free(places->note);
    *places = (qdri_places){0};
}
