/* SPDX-License-Identifier: Apache-2.0 */
/* The log of a run: JSON Lines. */
#include "run_log.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <string.h>

FILE *run_log_open(const char *path, char sentence[PROBLEM_BYTES])
{
    FILE *log = fopen(path, "w");
    if (log == NULL)
        snprintf(sentence, PROBLEM_BYTES,
                 "log %.300s: %s; name a file in a folder that exists and is writable", path,
                 strerror(errno));
    return log;
}

/* JSON has no infinities: a loss that blew up is written as null. */
static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

int run_log_step(FILE *log, int64_t step, double loss, double tokens_per_s, double val_loss)
{
    json_t *line = json_object();
    int bad = json_object_set_new(line, "step", json_integer(step));
    bad |= json_object_set_new(line, "loss", number(loss));
    bad |= json_object_set_new(line, "tokens_per_s", json_real(floor(tokens_per_s)));
    if (!isnan(val_loss)) bad |= json_object_set_new(line, "val_loss", number(val_loss));
    if (!bad)
        bad = json_dumpf(line, log, JSON_COMPACT | JSON_PRESERVE_ORDER) != 0 ||
              fputc('\n', log) == EOF || fflush(log) != 0;
    json_decref(line);
    return !bad;
}

int run_log_close(FILE *log) { return log == NULL || fclose(log) == 0; }
