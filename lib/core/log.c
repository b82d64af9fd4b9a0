/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver of the library's log. */
#include "core/log.h"

#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>

#include "core/environment.h"
#include "core/status.h"

/* The only place where the library itself prints. */
static void print_line(int level, const char *line, void *user)
{
    static const char *const words[] = {"error: ", "warning: "};
    (void)user;
    fprintf(stderr, "quadrille: %s%s\n", level <= QDRI_LOG_WARNING ? words[level] : "", line);
}

static qdr_log_fn receiver = print_line;
static void *receiver_user;
static atomic_int highest_level = -1; /* not known yet */

/* Invalid values are rejected when a context is created. */
void qdri_log_read_level(void)
{
    int level = QDRI_LOG_WARNING;
    const char *text = qdri_environment_text(QDRI_VARIABLE_DEBUG);
    if (text && text[0] >= '0' && text[0] <= '3' && !text[1]) level = text[0] - '0';
    atomic_store(&highest_level, level);
}

static int is_logged(int level)
{
    if (!receiver) return 0;
    if (atomic_load(&highest_level) < 0) qdri_log_read_level();
    return level <= atomic_load(&highest_level);
}

void qdr_set_log(qdr_log_fn log, void *user)
{
    qdri_log_read_level();
    receiver_user = user;
    receiver = log;
}

static void pass_to_receiver(int level, const char *line)
{
    if (is_logged(level)) receiver(level, line, receiver_user);
}

static qdri_log_fn pass_on = pass_to_receiver;

void qdri_share_log(qdri_log_fn log) { pass_on = log; }
qdri_log_fn qdri_log_function(void) { return pass_on; }

void qdri_log(int level, const char *format, ...)
{
    if (pass_on == pass_to_receiver && !is_logged(level)) return;
    char line[2 * QDRI_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    pass_on(level, line);
}
