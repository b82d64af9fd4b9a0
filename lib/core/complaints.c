/* SPDX-License-Identifier: Apache-2.0 */
#include "core/complaints.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { MOST_NAMED = 5 };

void qdri_complain(qdri_complaints *all, const char *format, ...)
{
    char what[200];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(what, sizeof what, format, arguments);
    va_end(arguments);
    const size_t length = strlen(all->text);
    if (all->n == all->n_named && all->n < MOST_NAMED && length + strlen(what) + 3 <= sizeof all->text) {
        snprintf(all->text + length, sizeof all->text - length, "%s%s", length ? ", " : "", what);
        all->n_named++;
    }
    if (++all->n > all->n_named) snprintf(all->more, sizeof all->more, ", and %d more", all->n - all->n_named);
}
