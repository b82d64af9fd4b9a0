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
        snprintf(sentence, PROBLEM_BYTES, "log %.300s: %s; name a file in a folder that exists and is writable", path,
                 strerror(errno));
    return log;
}

/* JSON has no infinities: a loss that blew up is written as null. */
static json_t *number(double value) { return isfinite(value) ? json_real(value) : json_null(); }

int run_log_step(FILE *log, const run_log_line *line)
{
    json_t *object = json_object();
    int bad = json_object_set_new(object, "step", json_integer(line->step));
    bad |= json_object_set_new(object, "loss", number(line->loss));
    bad |= json_object_set_new(object, "tokens_per_s", json_real(floor(line->tokens_per_s)));
    bad |= json_object_set_new(object, "lr", json_real(line->lr));
    if (!isnan(line->val_loss)) bad |= json_object_set_new(object, "val_loss", number(line->val_loss));
    if (!bad)
        bad = json_dumpf(object, log, JSON_COMPACT | JSON_PRESERVE_ORDER) != 0 || fputc('\n', log) == EOF ||
              fflush(log) != 0;
    json_decref(object);
    return !bad;
}

int run_log_close(FILE *log) { return log == NULL || fclose(log) == 0; }
