/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run: JSON Lines. */
#include "run_log.h"

#include <jansson.h>
#include <math.h>

qdr_output *run_log_open(const char *path, char sentence[PROBLEM_BYTES])
{
    qdr_output *log;
    if (qdr_output_open("--log", path, QDR_OUTPUT_LOG, &log) != QDR_OK)
        snprintf(sentence, PROBLEM_BYTES, "%s", qdr_last_error());
    else if (qdr_output_kept(log)[0])
        fprintf(stderr, "--log %s: the older one is kept as %s\n", path, qdr_output_kept(log));
    return log;
}

/* JSON has no infinities: a loss that is not finite is written as null. */
static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

int run_log_step(qdr_output *log, const run_log_line *line)
{
    FILE *file = qdr_output_file(log);
    json_t *object = json_object();
    int bad = json_object_set_new(object, "step", json_integer(line->step));
    bad |= json_object_set_new(object, "loss", number(line->loss));
    bad |= json_object_set_new(object, "tokens_per_s", json_real(floor(line->tokens_per_s)));
    bad |= json_object_set_new(object, "lr", json_real(line->lr));
    if (!isnan(line->val_loss)) bad |= json_object_set_new(object, "val_loss", number(line->val_loss));
    if (!bad)
        bad = json_dumpf(object, file, JSON_COMPACT | JSON_PRESERVE_ORDER) != 0 || fputc('\n', file) == EOF ||
              fflush(file) != 0;
    json_decref(object);
    return !bad;
}
