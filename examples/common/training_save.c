/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a run, and ending it with a save where that was asked for. */
#include <stdio.h>
#include <stdlib.h>

#include "src/common/json.h"
#include "src/common/network_note.h"
#include "stopping.h"
#include "training.h"

int64_t training_sequences(const training *run, int64_t step)
{
    return run->first_sequence + (step - run->first_step) * run->set->how.batch;
}

/* As the checkpoint that the run began with says it, if this is the same network, else by all its members. */
static json_t *describe_network(const training *run)
{
    const qdr_network *network = &run->set->network;
    json_t *loaded = json_object_get(run->saved.note, NOTE_CONFIG);
    if (loaded && !qdr_network_differ(network, &run->saved.own.network, NULL)) return json_incref(loaded);
    const size_t bytes = qdr_network_text(network, NULL, 0);
    char *text = bytes ? malloc(bytes + 1) : NULL;
    json_t *described = text && qdr_network_text(network, text, bytes + 1) ? json_loads(text, 0, NULL) : NULL;
    free(text);
    return described;
}

const char *training_tokens(const training *run) { return run->text.info.is_text ? "bytes" : "numbers"; }

json_t *training_note(const training *run, int64_t n_steps)
{
    char crc[16];
    snprintf(crc, sizeof crc, "%08lx", (unsigned long)run->text.crc);
    const settings *set = run->set;
    json_t *note = json_pack("{s:s, s:I, s:I, s:s, s:s, s:I, s:s, s:s, s:o}", "program", "train", "step",
                             (json_int_t)n_steps, "sequences", (json_int_t)training_sequences(run, n_steps), "text",
                             set->data ? set->data : run->text.name, "tokens", training_tokens(run), "n_tokens",
                             (json_int_t)run->text.info.n_tokens, "text_crc32", crc, NOTE_NETWORK,
                             set->network.architecture, NOTE_CONFIG, describe_network(run));
    json_t *more = settings_note(set);
    int bad = !note || !more || json_object_update(note, more);
    if (set->documents) bad |= json_object_set_new(note, "documents", json_string(set->documents));
    json_decref(more);
    if (!bad) return note;
    json_decref(note);
    return NULL;
}

qdr_status training_begin_save(training *run, int64_t n_steps)
{
    json_t *note = training_note(run, n_steps);
    char *text = note ? json_dumps(note, JSON_COMPACT | JSON_REAL_PRECISION(json_digits(note))) : NULL;
    qdr_status status = qdr_agree(run->ctx, text ? QDR_OK : QDR_ERR_MEMORY);
    if (status >= 0) status = saver_begin(&run->save, n_steps, text);
    free(text);
    json_decref(note);
    return status;
}

qdr_status training_look(training *run)
{
    int stops = 0;
    if (run->set->save) TRY(stop_is_requested(run->ctx, &stops));
    run->stops |= stops;
    return QDR_OK;
}

qdr_status training_save_step(training *run, const progress *line, int64_t n_steps)
{
    const settings *set = run->set;
    const int is_last = n_steps == run->n_steps;
    if (!set->save) return QDR_OK;
    TRY(training_look(run));
    run->stops |= n_steps - run->first_step == set->stop_after && !is_last;
    const int is_due = set->save_every && n_steps % set->save_every == 0;
    if (run->talks && (is_due || is_last || run->stops || run->save.pending)) progress_end(line);
    TRY(saver_poll(&run->save));
    if (!is_due && !is_last && !run->stops) return QDR_OK;
    TRY(training_begin_save(run, n_steps));
    return is_last || run->stops ? saver_finish(&run->save) : QDR_OK;
}
