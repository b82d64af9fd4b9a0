/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of commands: recorded once, and printed. */
#include "common/failure.h"

#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *program_name = "quadrille";
atomic_int program_lost_reader;

int fail(failure *why, int code, const char *format, ...)
{
    if (why->code) return why->code;
    why->code = code;
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(why->sentence, sizeof why->sentence, format, arguments);
    va_end(arguments);
    return code;
}

int fail_memory(failure *why, const char *format, ...)
{
    char what[sizeof why->sentence - 16];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    return fail(why, EXIT_NOTHING_FITS, "%s; free some", what);
}

int exit_code_of(qdr_status status)
{
    switch (status) {
    case QDR_ERR_ARGUMENT:
    case QDR_ERR_SHAPE:
    case QDR_ERR_DTYPE: return EXIT_USAGE;
    case QDR_ERR_MEMORY: return EXIT_NOTHING_FITS;
    default: return status < 0 ? EXIT_FAILED : EXIT_OK;
    }
}

int fail_is_own(qdr_status status)
{
    const int is_resource = status == QDR_ERR_MEMORY || status == QDR_ERR_THREAD || status == QDR_ERR_IO;
    return is_resource && !qdr_last_error_is_shared();
}

int fail_status(failure *why, qdr_status status)
{
    if (status == QDR_OK) return EXIT_OK;
    const char *sentence = qdr_last_error();
    if (!why->code) {
        why->is_peers = status == QDR_ERR_PEER;
        why->is_timeout = status == QDR_ERR_TIMEOUT;
        why->is_own = fail_is_own(status);
    }
    return fail(why, exit_code_of(status), "%s", *sentence ? sentence : qdr_status_text(status));
}

int fail_loading(failure *why, qdr_status status)
{
    if (status == QDR_OK) return EXIT_OK;
    if (!why->code) why->is_own = fail_is_own(status);
    return fail(why, status == QDR_ERR_MEMORY ? EXIT_NOTHING_FITS : EXIT_USAGE, "%s", qdr_last_error());
}

/* Whether a failure is, or follows from, a pipe that nobody reads. */
static int is_quiet(const char *sentence)
{
    char words[64];
    snprintf(words, sizeof words, "could not be written (%s)", strerror(EPIPE));
    if (strstr(sentence, words)) program_lost_reader = 1;
    return program_lost_reader;
}

int fail_print(const failure *why)
{
    if (!is_quiet(why->sentence)) fprintf(stderr, "%s: %s\n", program_name, why->sentence);
    return why->code;
}

int fail_together(failure *why, qdr_context *ctx)
{
    /* The cheap agreement comes first: messages are sent only if some rank has one. */
    const qdr_status all = qdr_agree(ctx, why->code ? QDR_ERR_STATE : QDR_OK);
    if (all == QDR_OK) return EXIT_OK;
    for (int rank = 0; rank < qdr_context_size(ctx); rank++) {
        failure theirs = *why;
        const qdr_status status = qdr_broadcast(ctx, rank, &theirs, sizeof theirs);
        if (status != QDR_OK) return fail_status(why, status);
        if (!theirs.code) continue;
        *why = theirs;
        why->is_shared = 1;
        return why->code;
    }
    return fail_status(why, all);
}

static pthread_mutex_t said_lock = PTHREAD_MUTEX_INITIALIZER;
static char said_first[sizeof((failure *)NULL)->sentence];

void fail_say_anew(void)
{
    pthread_mutex_lock(&said_lock);
    *said_first = '\0';
    pthread_mutex_unlock(&said_lock);
}

void fail_say(int rank, const char *sentence)
{
    char number[24] = "";
    if (rank > 0) snprintf(number, sizeof number, "rank %d: ", rank);
    pthread_mutex_lock(&said_lock);
    const int is_new = !*said_first || (!strstr(sentence, said_first) && !strstr(said_first, sentence));
    if (is_new && !is_quiet(sentence)) fprintf(stderr, "%s: %s%s\n", program_name, number, sentence);
    if (!*said_first) snprintf(said_first, sizeof said_first, "%s", sentence);
    pthread_mutex_unlock(&said_lock);
}

int fail_print_rank(const failure *why, qdr_context *ctx)
{
    const int rank = qdr_context_rank(ctx), is_late = why->is_timeout && !why->is_shared;
    if (rank == 0 || is_late || (why->is_own && !why->is_shared)) fail_say(is_late ? 0 : rank, why->sentence);
    return why->code;
}
