/* SPDX-License-Identifier: Apache-2.0 */
/* How a program starts and ends. */
#include "common/process.h"

#include <errno.h>
#include <fcntl.h>
#include <quadrille/status.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/failure.h"
#include "common/json.h"

static void print_log(int level, const char *line, void *user)
{
    (void)user;
    fprintf(stderr, "%s%s\n", level == 1 ? "warning: " : "", line);
}

static void take_no_notice(int number) { (void)number; }

/* A file at its size limit (ulimit -f) and a closed pipe are reported as write errors; by default their signals end the
 * process. A handler is used because programs started from here then have the default action again. */
static void keep_running(int number)
{
    struct sigaction old, handler = {.sa_handler = take_no_notice, .sa_flags = SA_RESTART};
    if (sigaction(number, NULL, &old) == 0 && old.sa_handler == SIG_DFL) (void)sigaction(number, &handler, NULL);
}

/* Long enough for other ranks to say their sentences, too: the launcher ends them when this one has ended. */
enum { GRACE_SECS = 2 };

void process_end_stuck(const char *sentence, void *user)
{
    (void)user;
    fprintf(stderr, "%s: %s\n", program_name, sentence);
    nanosleep(&(struct timespec){.tv_sec = GRACE_SECS}, NULL);
    if (ftrylockfile(stdout) == 0) fflush(stdout);
    _Exit(EXIT_FAILED);
}

void process_begin(const char *name)
{
    program_name = name;
    json_begin();
    /* Open standard streams that are closed, so that no file, pipe or socket takes their numbers. Reading from standard
     * input and writing to the others still fails. */
    for (int number = STDIN_FILENO; number <= STDERR_FILENO; number++)
        if (fcntl(number, F_GETFD) < 0) (void)open("/dev/null", number == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    keep_running(SIGPIPE);
    keep_running(SIGXFSZ);
    qdr_set_log(print_log, NULL);
    qdr_launch_watch(process_end_stuck, NULL);
}

int process_end(int code)
{
    struct rlimit limit;
    errno = 0;
    if (fflush(stdout) != 0 || ferror(stdout)) { /* a full disk or a closed pipe must not look like success */
        /* Where the first failure was inside a printf(), stdio has forgotten its cause; another write fails for the
         * same one. The text is incomplete already, so that an end of line does no harm if it does not fail. */
        int error = errno;
        if (!error && write(STDOUT_FILENO, "\n", 1) < 0) error = errno;
        if (error == EPIPE)
            program_lost_reader = 1;
        else
            fprintf(stderr, "%s: standard output cannot be written%s%s%s\n", program_name, error ? " (" : "",
                    error ? strerror(error) : "", error ? ")" : "");
        code = code ? code : EXIT_FAILED;
    }
    if (program_lost_reader) code = 128 + SIGPIPE;
    /* With a limit on address space (ulimit -v), OpenBLAS's own threads may wait for memory forever, and exit() for
     * them. */
    if (getrlimit(RLIMIT_AS, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
        fflush(NULL);
        _Exit(code);
    }
    return code;
}

double process_secs(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}
