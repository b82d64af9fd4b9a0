/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of commands: recorded once, and printed. */
#include "common/failure.h"

#include <stdarg.h>
#include <stdio.h>

const char *program_name = "quadrille";

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

int fail_status(failure *why, qdr_status status)
{
    if (status == QDR_OK) return EXIT_OK;
    const char *sentence = qdr_last_error();
    if (!why->code) {
        why->is_peers = status == QDR_ERR_PEER;
        why->is_timeout = status == QDR_ERR_TIMEOUT;
    }
    return fail(why, exit_code_of(status), "%s", *sentence ? sentence : qdr_status_text(status));
}

int fail_loading(failure *why, qdr_status status)
{
    if (status == QDR_OK) return EXIT_OK;
    return fail(why, status == QDR_ERR_MEMORY ? EXIT_NOTHING_FITS : EXIT_USAGE, "%s", qdr_last_error());
}

int fail_print(const failure *why)
{
    fprintf(stderr, "%s: %s\n", program_name, why->sentence);
    return why->code;
}
