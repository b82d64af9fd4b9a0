/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run: JSON Lines, the first one about the run, the others about a step each. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "src/common/json.h"
#include "src/common/network_note.h"
#include "src/common/process.h"
#include "training.h"

enum { LINE_BYTES = 8192 }; /* at least those of a line */

/* ---- the log that this one follows ---- */

/* The object of a line, the first or the last whole one of a file; NULL: there is none. */
static json_t *read_line(const char *path, int is_last)
{
    char text[LINE_BYTES + 1];
    FILE *file = fopen(path, "rb");
    if (!file) return NULL;
    if (is_last && fseek(file, -LINE_BYTES, SEEK_END) != 0) rewind(file); /* it is shorter */
    const size_t n_bytes = fread(text, 1, LINE_BYTES, file);
    fclose(file);
    text[n_bytes] = '\0';
    char *end = is_last ? strrchr(text, '\n') : strchr(text, '\n');
    if (!end) return NULL;
    *end = '\0';
    char *before = is_last ? strrchr(text, '\n') : NULL;
    return json_loads(before ? before + 1 : text, 0, NULL);
}

static int64_t whole(const json_t *object, const char *key) { return json_integer_value(json_object_get(object, key)); }

/* The last step that an older log says was run, after which no step of this run is a repetition. That log may itself
 * follow others. 0: it is of another run, or says nothing. */
static int64_t last_step_of(const training *run, const char *path)
{
    json_t *first = read_line(path, 0), *last = read_line(path, 1);
    const json_t *about = json_object_get(first, "run");
    char crc[16];
    snprintf(crc, sizeof crc, "%08lx", (unsigned long)run->text.crc);
    const char *theirs = json_string_value(json_object_get(about, "text_crc32"));
    const int is_other = about && (!theirs || strcmp(theirs, crc) != 0 || whole(about, "seed") != run->set->seed ||
                                   whole(about, "hidden") != run->set->network.hidden ||
                                   whole(about, "layers") != run->set->network.layers);
    const int64_t step = whole(last, "step"), earlier = whole(about, "again_to");
    json_decref(first);
    json_decref(last);
    return is_other ? 0 : step > earlier ? step : earlier;
}

/* ---- what is written ---- */

/* The first failure ends the log; all ranks hear of it when they agree next. */
static void write_line(training *run, json_t *object)
{
    FILE *file = qdr_output_file(run->log);
    if (object && json_dumpf(object, file, JSON_COMPACT | JSON_PRESERVE_ORDER) == 0 && fputc('\n', file) != EOF &&
        fflush(file) == 0)
        return;
    run->log_status = qdr_output_finish(run->log);
    const int is_told = run->log_status < 0;
    if (!is_told) run->log_status = QDR_ERR_MEMORY;
    snprintf(run->sentence, PROBLEM_BYTES, "%s",
             is_told ? qdr_last_error() : "--log: out of memory for a line; use fewer ranks per node");
}

/* The run's numbers, as in a checkpoint's note, and what else a reader of the log would ask. */
static json_t *describe(const training *run, const char *older)
{
    const settings *set = run->set;
    const choice *how = &set->how;
    const qdr_network *network = &set->network;
    char codecs[512] = "none", started[32];
    const char *peak_of = how->machine ? how->machine : "products at the start";
    qdr_codecs used;
    const time_t now = time(NULL);
    struct tm utc;
    strftime(started, sizeof started, "%Y-%m-%dT%H:%M:%SZ", gmtime_r(&now, &utc));
    if (qdr_stack_get_codecs(run->model.stack, &used) == QDR_OK) (void)qdr_codecs_text(&used, codecs, sizeof codecs);
    json_t *all = training_note(run, run->first_step);
    json_t *more = json_pack(
        "{s:s, s:s, s:i, s:i, s:s, s:s, s:i, s:i, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:b, s:I, "
        "s:I, s:s}",
        "version", qdr_get_versions()->quadrille, "started", started, "ranks", qdr_context_size(run->ctx), "threads",
        qdr_context_threads(run->ctx), "grid", grid_words(how->grid).text, "order", how->order, "gradient_parts",
        qdr_grid_parts(run->grid, QDR_LEVEL_GRADIENTS), "optimizer_parts",
        qdr_grid_parts(run->grid, QDR_LEVEL_OPTIMIZER), "layout", layout_word((qdr_layout)how->layout), "recompute",
        recompute_word((qdr_recompute)how->recompute), "codec", codecs, "overlap", how->serial ? "off" : "on", "model",
        network->name, "layers", (json_int_t)network->layers, "hidden", (json_int_t)network->hidden, "heads",
        (json_int_t)network->heads, "kv_heads", (json_int_t)network->kv_heads, "ffn", (json_int_t)network->ffn, "vocab",
        (json_int_t)network->vocab, "tied", network->tied, "sequences_per_forward",
        (json_int_t)run->model.config.n_sequences, "parameters", (json_int_t)gpt_n_parameters(&run->model), "text",
        run->text.name);
    if (!isnan(run->peak_flops))
        json_object_update_new(more, json_pack("{s:f, s:s}", "peak_flops", run->peak_flops, "peak_of", peak_of));
    int bad = json_object_del(all, "step") | json_object_del(all, NOTE_CONFIG) |
              json_object_set_new(all, "continues_after", json_integer(run->first_step));
    if (run->again_to > run->first_step) bad |= json_object_set_new(all, "again_to", json_integer(run->again_to));
    if (set->resume) bad |= json_object_set_new(all, "resumed", json_string(set->resume));
    if (*older) bad |= json_object_set_new(all, "older_log", json_string(older));
    bad |= json_object_update(all, more);
    json_decref(more);
    json_t *line = bad ? NULL : json_pack("{s:O}", "run", all);
    json_decref(all);
    return line;
}

static qdr_status open_log(training *run)
{
    const char *path = run->set->log;
    const qdr_status opened = qdr_output_open("--log", path, QDR_OUTPUT_LOG, &run->log);
    if (opened != QDR_OK) {
        snprintf(run->sentence, PROBLEM_BYTES, "%s", qdr_last_error());
        return opened == QDR_ERR_MEMORY ? opened : QDR_ERR_ARGUMENT;
    }
    const char *older = qdr_output_kept(run->log);
    if (*older) fprintf(stderr, "--log %s: the older one is kept as %s\n", path, older);
    if (*older && run->set->resume) run->again_to = last_step_of(run, older);
    json_t *line = describe(run, older);
    write_line(run, json_has_failed() ? NULL : line); /* perhaps while the older one was read */
    json_decref(line);
    return run->log_status;
}

qdr_status training_open_log(training *run)
{
    const qdr_status status = run->talks && run->set->log ? open_log(run) : QDR_OK;
    TRY(qdr_agree(run->ctx, status));
    run->log_is_stream = run->log && !qdr_output_replaces(run->set->log);
    return qdr_broadcast(run->ctx, 0, &run->log_is_stream, sizeof run->log_is_stream);
}

qdr_status training_log_step(training *run, const training_step *step)
{
    size_t now, peak;
    double norm = 0;
    int64_t n_skipped = 0;
    if (!run->log || run->log_status < 0) return QDR_OK;
    TRY(qdr_adamw_norm(run->optimizer, &norm));
    TRY(qdr_adamw_skipped(run->optimizer, &n_skipped));
    qdr_mem_usage(run->ctx, &now, &peak);
    const double share = training_peak_share(run, step->tokens_per_s);
    json_t *line = json_pack("{s:I, s:o, s:f, s:f, s:f, s:o, s:I, s:I, s:I, s:I}", "step", (json_int_t)step->number,
                             "loss", json_finite(step->loss), "tokens_per_s", floor(step->tokens_per_s), "lr", step->lr,
                             "secs", process_secs() - run->began, "gradient_norm", json_finite(norm), "skipped",
                             (json_int_t)n_skipped, "memory", (json_int_t)now, "memory_peak", (json_int_t)peak,
                             "bytes_sent", (json_int_t)step->bytes_sent);
    int bad = 0;
    if (step->number <= run->again_to) bad |= json_object_set_new(line, "again", json_true());
    if (!isnan(share)) bad |= json_object_set_new(line, "peak_share", json_real(share));
    if (!isnan(step->exposed)) bad |= json_object_set_new(line, "exposed", json_real(step->exposed));
    if (!isnan(run->memory)) bad |= json_object_set_new(line, "memory_most", json_integer((json_int_t)run->memory));
    if (!isnan(step->val_loss)) bad |= json_object_set_new(line, "val_loss", json_finite(step->val_loss));
    write_line(run, bad ? NULL : line);
    json_decref(line);
    return QDR_OK;
}

void training_log_validation(training *run, double loss)
{
    if (!run->log || run->log_status < 0) return;
    json_t *line = json_pack("{s:I, s:f, s:o}", "step", (json_int_t)run->n_steps, "secs", process_secs() - run->began,
                             "val_loss", json_finite(loss));
    write_line(run, line);
    json_decref(line);
}
