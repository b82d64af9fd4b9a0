/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that commands print. */
#include "common/json.h"

#include <stdio.h>

int write_json(json_t *object, size_t flags, const char *command, failure *why)
{
    if (!why->code && (!object || json_dumpf(object, stdout, flags) != 0 || putchar('\n') == EOF))
        fail(why, EXIT_FAILED, "%s: the answer could not be written as JSON", command);
    json_decref(object);
    return why->code;
}

json_t *json_text(const char *text)
{
    json_t *string = json_string(text);
    return string ? string : json_string("");
}
