/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that commands read and print. */
#include "common/json.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static _Thread_local int n_failed;

/* Where jansson's buffers cannot grow it drops bytes and goes on; other failures become mistakes of the text. */
static void *counted(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) n_failed++;
    return memory;
}

void json_begin(void) { json_set_alloc_funcs(counted, free); }

int json_has_failed(void) { return n_failed > 0; }

json_t *json_read(const char *text, size_t bytes, size_t flags, json_error_t *error)
{
    const int before = n_failed;
    json_t *root = json_loadb(text, bytes, flags, error);
    if (n_failed == before) return root;
    json_decref(root);
    *error = (json_error_t){.line = -1, .text = "out of memory"};
    error->text[JSON_ERROR_TEXT_LENGTH - 1] = (char)json_error_out_of_memory; /* where json_error_code() looks */
    return NULL;
}

int write_json(json_t *object, size_t flags, const char *command, failure *why)
{
    if (!why->code && (!object || json_has_failed() || json_dumpf(object, stdout, flags) != 0 || putchar('\n') == EOF))
        fail(why, EXIT_FAILED, "%s: the answer could not be written as JSON", command);
    json_decref(object);
    return why->code;
}

json_t *json_text(const char *text)
{
    json_t *string = json_string(text);
    return string ? string : json_string("");
}
