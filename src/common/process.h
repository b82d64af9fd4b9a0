/* SPDX-License-Identifier: Apache-2.0 */
/* The first and last steps of a program: signals, standard streams, the library's log. */
#ifndef QUADRILLE_SRC_COMMON_PROCESS_H
#define QUADRILLE_SRC_COMMON_PROCESS_H

/* To be called first. `name` is printed in messages and stays in use. If MPI keeps this process waiting for longer than
 * QDR_TIMEOUT, it says so and ends. */
void process_begin(const char *name);
/* Called on a thread of the library where this process waits inside MPI for ranks that do not come, and cannot leave:
 * prints the sentence and ends it. For qdr_launch_watch(); user is not used. */
void process_end_stuck(const char *sentence, void *user);
/* Checks that everything printed was written. Returns the exit code, EXIT_FAILED instead of EXIT_OK if not; where a
 * reader has left (failure.h), that of a program which SIGPIPE has ended. */
int process_end(int code);
/* Seconds since some point in the past. */
double process_secs(void);

#endif
