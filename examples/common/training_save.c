/* SPDX-License-Identifier: Apache-2.0 */
/* Saving a run, and ending it with a save where that was asked for. */
#include <stdio.h>

#include "stopping.h"
#include "training.h"

int64_t training_sequences(const training *run, int64_t step)
{
    return run->first_sequence + (step - run->first_step) * run->set->how.batch;
}

void training_note(const training *run, int64_t n_steps, char note[SAVED_NOTE_BYTES])
{
    char crc[16];
    note[0] = '\0';
    snprintf(crc, sizeof crc, "%08lx", (unsigned long)run->text_crc);
    saved_note_word(note, "program", "train_gpt");
    saved_note_number(note, "step", (double)n_steps);
    saved_note_number(note, "sequences", (double)training_sequences(run, n_steps));
    saved_note_number(note, "text_bytes", (double)run->text.n_bytes);
    saved_note_word(note, "text_crc32", crc);
    settings_note(run->set, note);
    saved_note_end(note);
}

qdr_status training_begin_save(training *run, int64_t n_steps)
{
    char note[SAVED_NOTE_BYTES];
    training_note(run, n_steps, note);
    return saver_begin(&run->save, n_steps, note);
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
