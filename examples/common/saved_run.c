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

/* What rank 0 reads for all. */
typedef struct saved_header {
    saved_run saved;
    char note[SAVED_NOTE_BYTES];
    size_t note_bytes; /* of the file; 0: it has no run's */
    char sentence[PROBLEM_BYTES];
} saved_header;

static qdr_status read_header(const char *path, saved_header *header)
{
    qdr_safetensors *file;
    TRY(qdr_safetensors_open(path, &file));
    const char *note = qdr_safetensors_metadata(file, "note");
    header->note_bytes = note && note[strspn(note, " \t\n\r")] == '{' ? strlen(note) : 0;
    if (header->note_bytes && header->note_bytes < sizeof header->note) memcpy(header->note, note, header->note_bytes);
    const qdr_status status = saved_gpt_read(file, path, &header->saved.gpt, header->sentence);
    qdr_safetensors_discard(&file);
    return status;
}

static qdr_status parse_note(const saved_header *header, saved_run *saved, char sentence[PROBLEM_BYTES])
{
    char name[SAVED_PATH_BYTES];
    if (header->note_bytes == 0) return QDR_OK;
    if (header->note_bytes >= sizeof header->note)
        return REFUSE(sentence, "%.300s: its note has %zu bytes; that of a run has at most %zu", saved->path,
                      header->note_bytes, sizeof header->note - 1);
    snprintf(name, sizeof name, "%s: its note", saved->path);
    return qdr_json_read(header->note, header->note_bytes, name, &saved->note);
}

qdr_status saved_run_read(qdr_context *ctx, const char *path, saved_run *saved, char sentence[PROBLEM_BYTES])
{
    saved_header read = {0};
    *saved = (saved_run){0};
    const qdr_status status = qdr_context_rank(ctx) == 0 ? read_header(path, &read) : QDR_OK;
    TRY(qdr_broadcast(ctx, 0, &read, sizeof read));
    memcpy(sentence, read.sentence, PROBLEM_BYTES);
    TRY(qdr_agree(ctx, status));
    *saved = read.saved;
    saved->path = path;
    return qdr_agree(ctx, parse_note(&read, saved, sentence));
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

void saved_run_name(const char *path, int number, char name[SAVED_PATH_BYTES])
{
    struct stat info;
    char *behind_links = lstat(path, &info) == 0 && S_ISLNK(info.st_mode) ? realpath(path, NULL) : NULL;
    char ending[16] = "";
    if (number) snprintf(ending, sizeof ending, ".%d", number);
    snprintf(name, SAVED_PATH_BYTES, "%s%s", behind_links && number ? behind_links : path, ending);
    free(behind_links);
}

int saved_run_is_there(qdr_context *ctx, const char *path, int number, char name[SAVED_PATH_BYTES])
{
    int is_there = 0;
    saved_run_name(path, number, name);
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

/* ---- what a run says ---- */

static char *next_member(char note[SAVED_NOTE_BYTES], const char *key, size_t *left)
{
    const size_t used = strlen(note);
    *left = SAVED_NOTE_BYTES - used;
    const int n = snprintf(note + used, *left, "%s\"%s\":", used ? "," : "{", key);
    *left -= (size_t)n;
    return note + used + n;
}

void saved_note_number(char note[SAVED_NOTE_BYTES], const char *key, double value)
{
    size_t left;
    char *at = next_member(note, key, &left);
    for (int digits = 15; digits <= 17; digits++) { /* no more than are needed */
        snprintf(at, left, "%.*g", digits, value);
        if (strtod(at, NULL) == value) break;
    }
}

void saved_note_word(char note[SAVED_NOTE_BYTES], const char *key, const char *word)
{
    size_t left;
    char *at = next_member(note, key, &left);
    snprintf(at, left, "\"%s\"", word);
}

void saved_note_end(char note[SAVED_NOTE_BYTES]) { memcpy(note + strlen(note), "}", 2); }

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
