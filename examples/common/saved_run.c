/* SPDX-License-Identifier: Apache-2.0 */
#define _XOPEN_SOURCE 700 /* realpath */
#include "saved_run.h"

#include <math.h>
#include <quadrille_private/input.h>
#include <quadrille_private/output.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

/* ---- what a file says ---- */

enum { MOST_NOTE_BYTES = 1 << 20 };

/* What rank 0 reads for all. */
typedef struct saved_header {
    saved_run saved;
    size_t note_bytes; /* 0: it has no run's note */
    char sentence[PROBLEM_BYTES];
} saved_header;

/* *note: to be freed. */
static qdr_status read_header(const char *path, const qdr_network *model, saved_header *header, char **note)
{
    qdr_safetensors *file;
    TRY(qdr_safetensors_open(path, &file));
    const char *text = qdr_safetensors_metadata(file, "note");
    qdr_status status = QDR_OK;
    header->note_bytes = text && text[strspn(text, " \t\n\r")] == '{' ? strlen(text) : 0;
    if (header->note_bytes > MOST_NOTE_BYTES)
        status = REFUSE(header->sentence, "%.300s: its note has %zu bytes; that of a run has at most %d", path,
                        header->note_bytes, MOST_NOTE_BYTES);
    if (status >= 0 && header->note_bytes && !(*note = strdup(text))) status = QDR_ERR_MEMORY;
    if (status >= 0) status = saved_network_read(file, path, model, &header->saved.own, header->sentence);
    qdr_safetensors_discard(&file);
    return status;
}

static qdr_status parse_note(const char *text, size_t bytes, saved_run *saved)
{
    char name[SAVED_PATH_BYTES];
    snprintf(name, sizeof name, "%s: its note", saved->path);
    return qdr_json_read(text, bytes, name, &saved->note);
}

static qdr_status share(qdr_context *ctx, const char *path, const qdr_network *model, saved_header *read, char **note)
{
    const qdr_status status = qdr_context_rank(ctx) == 0 ? read_header(path, model, read, note) : QDR_OK;
    TRY(qdr_broadcast(ctx, 0, read, sizeof *read));
    TRY(qdr_agree(ctx, status));
    if (!read->note_bytes) return QDR_OK;
    if (!*note) *note = malloc(read->note_bytes + 1);
    TRY(qdr_agree(ctx, *note ? QDR_OK : QDR_ERR_MEMORY));
    return qdr_broadcast(ctx, 0, *note, read->note_bytes + 1);
}

qdr_status saved_run_read(qdr_context *ctx, const char *path, const qdr_network *model, saved_run *saved,
                          char sentence[PROBLEM_BYTES])
{
    saved_header read = {.note_bytes = 0};
    char *note = NULL;
    qdr_status status = share(ctx, path, model, &read, &note);
    memcpy(sentence, read.sentence, PROBLEM_BYTES);
    *saved = read.saved;
    saved->path = path;
    if (status >= 0 && note) status = qdr_agree(ctx, parse_note(note, read.note_bytes, saved));
    free(note);
    return status;
}

void saved_run_free(saved_run *saved)
{
    json_decref(saved->note);
    saved->note = NULL;
}

static int is_broken(const char *path)
{
    qdr_safetensors *file;
    FILE *plain = fopen(path, "rb");
    if (!plain) return 0;
    fclose(plain);
    qdr_status status = qdr_safetensors_open(path, &file);
    if (status == QDR_ERR_ARGUMENT || status == QDR_ERR_IO) return 1;
    if (status < 0) return 0;
    for (int i = 0; i < qdr_safetensors_count(file) && (status >= 0 || status == QDR_ERR_UNSUPPORTED); i++)
        status = qdr_safetensors_verify(file, i); /* UNSUPPORTED: it has no checksum */
    qdr_safetensors_discard(&file);
    return status == QDR_ERR_IO;
}

int saved_run_is_broken(qdr_context *ctx, const char *path)
{
    int broken = qdr_context_rank(ctx) == 0 && is_broken(path);
    return qdr_broadcast(ctx, 0, &broken, sizeof broken) >= 0 && broken;
}

int saved_run_is_there(qdr_context *ctx, const char *path, int number, char name[SAVED_PATH_BYTES])
{
    struct stat info;
    char *behind_links = lstat(path, &info) == 0 && S_ISLNK(info.st_mode) ? realpath(path, NULL) : NULL;
    char ending[16] = "";
    int is_there = 0;
    if (number) snprintf(ending, sizeof ending, ".%d", number);
    snprintf(name, SAVED_PATH_BYTES, "%s%s", behind_links && number ? behind_links : path, ending);
    free(behind_links);
    if (qdr_context_rank(ctx) == 0) is_there = qdr_output_replaces(name);
    return qdr_broadcast(ctx, 0, &is_there, sizeof is_there) >= 0 && is_there;
}

qdr_status saved_run_number(const saved_run *saved, const char *key, const saved_range *range, double *value,
                            char sentence[PROBLEM_BYTES])
{
    const json_t *member = json_object_get(saved->note, key);
    const double number = json_is_number(member) ? json_number_value(member) : NAN; /* NAN: another type */
    if (!member) return QDR_OK;
    if (!(number >= range->min && number <= range->max && (!range->is_whole || floor(number) == number)))
        return REFUSE(sentence, "%.300s: the note has \"%s\": %.17g, but that is a%s number from %.15g to %.15g; %s",
                      saved->path, key, number, range->is_whole ? " whole" : "", range->min, range->max, range->remedy);
    *value = number;
    return QDR_OK;
}

qdr_status saved_run_word(const saved_run *saved, const char *key, char *word, size_t bytes,
                          char sentence[PROBLEM_BYTES])
{
    const json_t *member = json_object_get(saved->note, key);
    const char *value = json_string_value(member);
    if (!member) return QDR_OK;
    if (!value || strlen(value) >= bytes)
        return REFUSE(sentence, "%.300s: \"%s\" of the note is not a word of at most %zu bytes", saved->path, key,
                      bytes - 1);
    snprintf(word, bytes, "%s", value);
    return QDR_OK;
}

/* ---- saving ---- */

/* Of a save that has ended; what concerns only the file does not end the run. */
static qdr_status tell(saver *self, qdr_status status)
{
    const int goes_on = status >= 0 || status == QDR_ERR_IO || status == QDR_ERR_ARGUMENT || status == QDR_ERR_MEMORY ||
                        status == QDR_ERR_THREAD;
    self->has_failed = status < 0;
    if (!goes_on) return status;
    if (self->talks && status < 0)
        fprintf(stderr, "warning: step %lld was not saved: %s\n", (long long)self->step, qdr_last_error());
    else if (self->talks)
        fprintf(stderr, "saved step %lld in %s\n", (long long)self->step, self->path);
    return QDR_OK;
}

qdr_status saver_begin(saver *self, int64_t step, const char *note)
{
    const qdr_checkpoint_opts opts = {QDR_INIT(qdr_checkpoint_opts), .note = note, .background = self->background,
                                      .keep = self->keep};
    TRY(saver_finish(self));
    self->step = step;
    const qdr_status status = qdr_checkpoint_save(self->stack, self->optimizer, self->path, &opts, &self->pending);
    return self->pending ? QDR_OK : tell(self, status);
}

qdr_status saver_poll(saver *self)
{
    const qdr_status status = self->pending ? qdr_checkpoint_poll(self->pending) : QDR_PENDING;
    return status == QDR_PENDING ? QDR_OK : saver_finish(self);
}

qdr_status saver_finish(saver *self)
{
    return self->pending ? tell(self, qdr_checkpoint_finish(&self->pending)) : QDR_OK;
}
