/* SPDX-License-Identifier: Apache-2.0 */
/* Going on with the run of a checkpoint, or beginning with its parameters. */
#include <stdio.h>
#include <string.h>

#include "training.h"

enum { DATA_BYTES = 320 };

/* Data, and where documents end in them, in words; name NULL: a note of an older release, which does not say. */
static void write_data(char *words, const char *name, const char *documents, double n_tokens, const char *crc)
{
    const int n = snprintf(words, DATA_BYTES, "%.150s (%.0f tokens, checksum %s", name ? name : "another text",
                           n_tokens, crc);
    if (name && documents)
        snprintf(words + n, DATA_BYTES - (size_t)n, ", documents %.20s)", documents);
    else
        snprintf(words + n, DATA_BYTES - (size_t)n, name ? ", no documents)" : ")");
}

/* Other data have other tokens at the position; what tokens are must be the same. */
static qdr_status compare_data(const training *run, int64_t step, double n_tokens, const char *crc)
{
    const json_t *note = run->saved.note;
    const char *kind = json_string_value(json_object_get(note, "tokens")), *own = training_tokens(run);
    char before[DATA_BYTES], now[DATA_BYTES], here[16];
    snprintf(here, sizeof here, "%08lx", (unsigned long)run->text.crc);
    if ((int64_t)n_tokens == run->text.info.n_tokens && strcmp(crc, here) == 0) return QDR_OK;
    if (kind && strcmp(kind, own) != 0)
        return REFUSE(
            run->sentence,
            "--resume %.300s: its tokens are %.20s, but those of %s are %s: give such data, or use --load for "
            "the parameters alone",
            run->set->resume, kind, run->text.name, own);
    write_data(before, json_string_value(json_object_get(note, "text")),
               json_string_value(json_object_get(note, "documents")), n_tokens, crc);
    write_data(now, run->set->data ? run->set->data : run->text.name, run->set->documents,
               (double)run->text.info.n_tokens, here);
    if (run->talks)
        fprintf(stderr, "warning: --resume %s: until step %lld the run read %s; from now on it reads %s\n",
                run->set->resume, (long long)step, before, now);
    return QDR_OK;
}

/* The position in the data. */
static qdr_status take_position(training *run)
{
    static const saved_range positions = {0, 1e15, 1, "use --load for its parameters alone"};
    const saved_run *saved = &run->saved;
    double step = -1, sequences = -1, n_tokens = -1;
    char crc[16] = "";
    TRY(saved_run_number(saved, "step", &positions, &step, run->sentence));
    TRY(saved_run_number(saved, "sequences", &positions, &sequences, run->sentence));
    TRY(saved_run_number(saved, "text_bytes", &positions, &n_tokens, run->sentence)); /* its older name */
    TRY(saved_run_number(saved, "n_tokens", &positions, &n_tokens, run->sentence));
    TRY(saved_run_word(saved, "text_crc32", crc, sizeof crc, run->sentence));
    if (step < 0 || sequences < 0 || n_tokens < 0 || !*crc)
        return REFUSE(run->sentence,
                      "--resume %.300s: the file does not say how far its run was; use --load for its parameters alone",
                      run->set->resume);
    TRY(compare_data(run, (int64_t)step, n_tokens, crc));
    if (run->set->n_steps > 0 && run->set->n_steps < (int64_t)step)
        return REFUSE(run->sentence,
                      "--resume %.300s: it has %.0f steps already, more than --steps %lld; give a larger --steps to "
                      "train on, or --steps 0 to validate and sample",
                      run->set->resume, step, (long long)run->set->n_steps);
    run->first_step = (int64_t)step;
    run->first_sequence = (int64_t)sequences;
    return QDR_OK;
}

/* What a new run takes of the file, and what it does not. */
static void tell(const training *run, int n_tensors)
{
    const settings *set = run->set;
    const saved_network *own = &run->saved.own;
    const json_t *note = run->saved.note;
    fprintf(stderr, "parameters: %d tensors of %s\n", n_tensors, set->load);
    if (set->how.context < own->network.positions)
        fprintf(stderr, "positions: the first %lld of its %lld\n", (long long)set->how.context,
                (long long)own->network.positions);
    if (!own->is_whole && !json_object_get(note, "epsilon") && !json_object_get(note, "program"))
        fprintf(stderr, "it does not say the epsilon of norms; taken is %g\n", set->network.norm_epsilon);
}

qdr_status training_load(training *run)
{
    const settings *set = run->set;
    const char *path = set->resume ? set->resume : set->load;
    const qdr_checkpoint_load_opts opts = {QDR_INIT(qdr_checkpoint_load_opts),
                                           .first_rows = set->load ? "embedding.positions" : NULL};
    qdr_checkpoint_loaded loaded = {QDR_INIT(qdr_checkpoint_loaded)};
    if (!path) return QDR_OK;
    if (set->resume) TRY(take_position(run));
    const qdr_status status = qdr_checkpoint_load_with(run->model.stack, set->resume ? run->optimizer : NULL, path,
                                                       &opts, &loaded);
    run->load_failed = status == QDR_ERR_IO;
    TRY(status);
    if (run->talks && set->resume)
        fprintf(stderr, "continuing after step %lld of %s\n", (long long)run->first_step, path);
    if (run->talks && !set->resume) tell(run, loaded.n_tensors);
    if (run->talks && *run->saved.own.others) fprintf(stderr, "not loaded: %s\n", run->saved.own.others);
    qdr_checkpoint_loaded_free(&loaded);
    return QDR_OK;
}
