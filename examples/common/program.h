/* SPDX-License-Identifier: Apache-2.0 */
/* How an example program starts and exits: one message for a failure, printed once, and an exit code. */
#ifndef EXAMPLES_PROGRAM_H
#define EXAMPLES_PROGRAM_H

#include <quadrille/quadrille.h>
#include <stdio.h>

#define PROBLEM_BYTES 768

/* Leaves the calling function with the status of a failed call. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status try_status_ = (call);                                                                         \
        if (try_status_ < 0) return try_status_;                                                                       \
    } while (0)

/* Sets the sentence, as printf does; gives QDR_ERR_ARGUMENT. */
#define REFUSE(sentence, ...) ((void)snprintf(sentence, PROBLEM_BYTES, __VA_ARGS__), QDR_ERR_ARGUMENT)

/* The function that each rank runs. All ranks return the same status. If a failure does not come from the library,
 * `sentence` is set. */
typedef qdr_status (*program_fn)(qdr_context *ctx, const void *settings, char sentence[PROBLEM_BYTES]);

typedef struct program {
    const char *name, *usage; /* usage: one line, or two */
    const char *text; /* what it does */
    const struct option_spec *options;
    const char **operand; /* where the name of the text to read is stored; NULL: no operand is allowed */
    const char *examples; /* one per line */
    void (*begin)(const void *settings); /* once per process, before there are ranks; NULL: nothing */
    program_fn run;
} program;

struct choice;
/* Reads the command line into the settings, which begin with `given`; starts the ranks (threads of this process with
 * --local, otherwise those of mpiexec), calls `run` on each of them, prints on rank 0 what went wrong, and returns the
 * exit code. */
int program_start(const program *about, int argc, char **argv, struct choice *given);

/* Allocates zeroed memory, to be freed: on every rank, or NULL on all of them (QDR_ERR_MEMORY). Collective. */
void *program_new(qdr_context *ctx, int64_t n_items, size_t item_bytes);
/* *any: whether it is so on some rank. Collective. */
qdr_status program_any(qdr_context *ctx, int mine, int *any);

#endif
