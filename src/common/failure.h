/* SPDX-License-Identifier: Apache-2.0 */
/* What went wrong in a command: an exit code and one sentence with the numbers and a remedy. */
#ifndef QUADRILLE_SRC_COMMON_FAILURE_H
#define QUADRILLE_SRC_COMMON_FAILURE_H

#include <quadrille/launch.h>
#include <stdatomic.h>

/* The end of a noun in messages. */
#define PLURAL(n) ((n) == 1 ? "" : "s")

/* Leaves the calling function with the status of a failed call. */
#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status try_status_ = (call);                                                                         \
        if (try_status_ < 0) return try_status_;                                                                       \
    } while (0)

/* Exit codes of all commands. */
enum { EXIT_OK = 0, EXIT_FAILED = 1, EXIT_USAGE = 2, EXIT_NOTHING_FITS = 3, EXIT_MISMATCH = 4 };

typedef struct failure {
    int code; /* EXIT_OK while nothing has failed */
    int is_shared; /* known to all ranks: none is left waiting */
    int is_peers; /* only says that another rank failed, whose own message says more */
    int is_timeout; /* ranks are missing */
    int is_own; /* perhaps of this rank alone: it lacks memory, a thread or a file */
    char sentence[768];
} failure;

/* Records the first failure only (later ones follow from it) and returns its code. */
int fail(failure *why, int code, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* The same for host memory: "topo: out of memory for 8 ranks", to which the remedy is added. */
int fail_memory(failure *why, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a status of the library, with the library's message. QDR_OK is no failure. */
int fail_status(failure *why, qdr_status status);
/* The same where all but running out of memory is the fault of a name or file that the user gave. */
int fail_loading(failure *why, qdr_status status);
/* The exit code for a status. */
int exit_code_of(qdr_status status);
/* Gives all ranks the failure of the lowest rank that has one; returns its code. Collective. */
int fail_together(failure *why, qdr_context *ctx);
/* How this program is named in messages: "quadrille", unless it is set. */
extern const char *program_name;
/* Output went to a pipe whose reader has left, as `head` does: nothing is said of that. */
extern atomic_int program_lost_reader;
/* Prints "quadrille: sentence" to standard error, unless it is quiet. Returns the code. */
int fail_print(const failure *why);
/* The same, printed by rank 0 for all ranks; by each rank if ranks are missing, since rank 0 may be one of them; and by
 * a rank of what it alone may know. */
int fail_print_rank(const failure *why, qdr_context *ctx);
/* 1: other ranks may not know of the last error: this one lacks memory, a thread or a file. */
int fail_is_own(qdr_status status);
/* Prints "quadrille: rank N: sentence", without the number for rank 0 and for numbers below. Ranks that are threads of
 * one process do not say the same again, nor what only repeats the first of them. */
void fail_say(int rank, const char *sentence);
/* Before ranks begin: what earlier ones of this process said counts no more. */
void fail_say_anew(void);

#endif
