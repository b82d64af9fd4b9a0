/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of commands: recorded once, and printed. */
#include "failure.h"

#include <stdarg.h>
#include <stdio.h>

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

int fail_print(const failure *why)
{
    fprintf(stderr, "quadrille: %s\n", why->sentence);
    return why->code;
}
