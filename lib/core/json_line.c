/* SPDX-License-Identifier: Apache-2.0 */
/* The position of a value in a JSON text, which the parser does not record. */
#include <string.h>

#include "core/json.h"

/* Stops at the end of the text, wherever that is. */
typedef struct cursor {
    const char *at, *end;
} cursor;

static int more(const cursor *c) { return c->at < c->end; }

static int is_blank(char letter) { return letter == ' ' || letter == '\t' || letter == '\r' || letter == '\n'; }

static int ends_word(char letter) { return is_blank(letter) || letter == ',' || letter == ']' || letter == '}'; }

static void skip_blanks(cursor *c)
{
    while (more(c) && is_blank(*c->at)) c->at++;
}

/* Skips from an opening quote past the closing one. */
static void skip_string(cursor *c)
{
    c->at++;
    while (more(c) && *c->at != '"') c->at += *c->at == '\\' && c->at + 1 < c->end ? 2 : 1;
    if (more(c)) c->at++;
}

/* Counts brackets outside strings. */
static int depth_step(cursor *c)
{
    const char letter = *c->at;
    if (letter == '"') {
        skip_string(c);
        return 0;
    }
    c->at++;
    return (letter == '{' || letter == '[') - (letter == '}' || letter == ']');
}

static void skip_value(cursor *c)
{
    int depth = 0;
    skip_blanks(c);
    if (more(c) && (*c->at == '{' || *c->at == '[' || *c->at == '"')) {
        do depth += depth_step(c);
        while (more(c) && depth > 0);
        return;
    }
    while (more(c) && !ends_word(*c->at)) c->at++;
}

/* Skips a comma, if there is one. */
static int next_item(cursor *c)
{
    skip_blanks(c);
    if (!more(c) || *c->at != ',') return 0;
    c->at++;
    return 1;
}

static int begins(cursor *c, char bracket)
{
    skip_blanks(c);
    if (!more(c) || *c->at != bracket) return 0;
    c->at++;
    return 1;
}

static int enter_member(cursor *c, const char *key)
{
    const size_t key_bytes = strlen(key);
    if (!begins(c, '{')) return 0;
    do {
        skip_blanks(c);
        if (!more(c) || *c->at != '"') return 0;
        const char *word = c->at + 1;
        skip_string(c);
        const size_t word_bytes = (size_t)(c->at - word) - 1;
        skip_blanks(c);
        if (!more(c) || *c->at++ != ':') return 0;
        if (word_bytes == key_bytes && memcmp(word, key, key_bytes) == 0) return 1;
        skip_value(c);
    } while (next_item(c));
    return 0;
}

static int enter_item(cursor *c, size_t index)
{
    if (!begins(c, '[')) return 0;
    for (size_t i = 0; i < index; i++) {
        skip_value(c);
        if (!next_item(c)) return 0;
    }
    return 1;
}

static int line_of(const char *text, const char *place)
{
    int line = 1;
    for (; text < place; text++) line += *text == '\n';
    return line;
}

int qdri_json_line(const char *text, size_t bytes, const qdri_json_step *steps, int n_steps)
{
    cursor c = {text, text + bytes};
    for (int i = 0; i < n_steps; i++)
        if (!(steps[i].key ? enter_member(&c, steps[i].key) : enter_item(&c, steps[i].index))) return 0;
    skip_blanks(&c);
    return more(&c) ? line_of(text, c.at) : 0;
}

int qdri_json_too_deep(const char *text, size_t bytes, int max_depth)
{
    cursor c = {text, text + bytes};
    int depth = 0;
    while (more(&c)) {
        const char *place = c.at;
        depth += depth_step(&c);
        if (depth > max_depth) return line_of(text, place);
    }
    return 0;
}
