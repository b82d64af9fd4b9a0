/* SPDX-License-Identifier: Apache-2.0 */
/* The receiver of the library's talk. */
#include "core/log.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "core/status.h"

static qdr_log_fn receiver;
static void *receiver_user;
static int highest_level = QDRI_LOG_WARNING;

static int level_from_environment(void)
{
    const char *text = getenv("QDR_DEBUG");
    if (!text || text[0] < '0' || text[0] > '3' || text[1]) return QDRI_LOG_WARNING;
    return text[0] - '0';
}

void qdr_set_log(qdr_log_fn log, void *user)
{
    highest_level = level_from_environment();
    receiver_user = user;
    receiver = log;
}

static void pass_to_receiver(int level, const char *line)
{
    if (receiver && level <= highest_level) receiver(level, line, receiver_user);
}

static qdri_log_fn pass_on = pass_to_receiver;

void qdri_share_log(qdri_log_fn log) { pass_on = log; }
qdri_log_fn qdri_log_function(void) { return pass_on; }

void qdri_log(int level, const char *format, ...)
{
    if (pass_on == pass_to_receiver && (!receiver || level > highest_level)) return;
    char line[2 * QDRI_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(line, sizeof line, format, args);
    va_end(args);
    pass_on(level, line);
}
