/* SPDX-License-Identifier: Apache-2.0 */
/* A run of training that can be stopped and continued: what its checkpoint says of it, and saving it from time to
 * time. */
#ifndef EXAMPLES_SAVED_RUN_H
#define EXAMPLES_SAVED_RUN_H

#include <jansson.h>

#include "program.h"
#include "saved_network.h"

enum { SAVED_PATH_BYTES = 4096 };

/* What a checkpoint says before its tensors are loaded. */
typedef struct saved_run {
    json_t *note; /* an object; NULL: the file has none */
    const char *path; /* the caller's */
    saved_network own; /* what its tensors are */
} saved_run;

/* Reads the header of a checkpoint on rank 0, whose note all ranks keep until saved_run_free(). model: as in
 * saved_network_read(). A note that is not JSON
 * is refused; one that does not begin with '{' is some other program's and none of a run. Collective, ranks agree. If
 * the failure does not come from the library, `sentence` is set. */
qdr_status saved_run_read(qdr_context *ctx, const char *path, const qdr_network *model, saved_run *saved,
                          char sentence[PROBLEM_BYTES]);
void saved_run_free(saved_run *saved);
/* Whether a file that could not be loaded is itself at fault: rank 0 can open it, but it is no safetensors file, or a
 * checksum differs. If memory or open files are missing, say, it is not. Changes qdr_last_error(). Collective. */
int saved_run_is_broken(qdr_context *ctx, const char *path);
/* Whether there is an older save of `path`, number 1, 2 ..., or, 0, the newest; and the name of its file. Follows a
 * link, as saving does. Collective. */
int saved_run_is_there(qdr_context *ctx, const char *path, int number, char name[SAVED_PATH_BYTES]);
/* What a number of a note may be, and what helps if it is not. */
typedef struct saved_range {
    double min, max;
    int is_whole;
    const char *remedy;
} saved_range;

/* A number of the note by its key; stays as it is if there is none. */
qdr_status saved_run_number(const saved_run *saved, const char *key, const saved_range *range, double *value,
                            char sentence[PROBLEM_BYTES]);
/* A word of the note, of fewer than `bytes` bytes; stays as it is if there is none. */
qdr_status saved_run_word(const saved_run *saved, const char *key, char *word, size_t bytes,
                          char sentence[PROBLEM_BYTES]);

/* Saves a run. All functions are collective. */
typedef struct saver {
    const char *path; /* NULL: nothing is saved */
    int keep, background, talks;
    qdr_stack *stack;
    qdr_adamw *optimizer;
    qdr_checkpoint *pending;
    int64_t step; /* of the save that is pending, or was the last */
    int has_failed; /* the last one; a warning says why */
} saver;

/* Begins a save; one that is still pending is waited for. Only failures that end the run are errors: others become a
 * warning, and the next save tries again. */
qdr_status saver_begin(saver *self, int64_t step, const char *note);
/* Looks after a save in the background, and says when it is complete; finish: waits for it. */
qdr_status saver_poll(saver *self);
qdr_status saver_finish(saver *self);

#endif
