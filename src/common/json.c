/* SPDX-License-Identifier: Apache-2.0 */
/* JSON that commands print. */
#include "common/json.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

static _Thread_local int n_failed;

static void *counted(size_t bytes)
{
    void *memory = malloc(bytes);
    if (!memory) n_failed++;
    return memory;
}

void json_begin(void) { json_set_alloc_funcs(counted, free); }

int json_has_failed(void) { return n_failed > 0; }

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

size_t json_digits(json_t *value)
{
    const double real = json_real_value(value);
    size_t digits = 15, i;
    char text[40];
    const char *key;
    json_t *item;
    for (; json_is_real(value) && digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*g", (int)digits, real);
        const double read = strtod(text, NULL);
        if (read >= real && read <= real) break;
    }
    json_object_foreach(value, key, item) digits = larger(digits, json_digits(item));
    json_array_foreach(value, i, item) digits = larger(digits, json_digits(item));
    return digits;
}

int write_json(json_t *object, size_t flags, const char *command, failure *why)
{
    errno = 0;
    if (!why->code && json_has_failed()) fail_memory(why, "%s: out of memory for the answer as JSON", command);
    if (!why->code && (!object || json_dumpf(object, stdout, flags) != 0 || putchar('\n') == EOF)) {
        program_lost_reader |= errno == EPIPE;
        fail(why, EXIT_FAILED, "%s: the answer could not be written as JSON", command);
    }
    json_decref(object);
    return why->code;
}

json_t *json_finite(double number) { return isfinite(number) ? json_real(number) : json_null(); }

json_t *json_text(const char *text)
{
    json_t *string = json_string(text);
    return string ? string : json_string("");
}
