/* SPDX-License-Identifier: Apache-2.0 */
/* A parser for the one kind of Python literal that begins a NumPy file. It never reads beyond the text. */
#include "common/npy_header.h"

#include <string.h>

typedef struct cursor {
    const char *text;
    size_t at, end;
    const char *wrong; /* the first error, or NULL */
} cursor;

static int wrong(cursor *c, const char *what)
{
    if (!c->wrong) c->wrong = what;
    return 0;
}

static void skip_blanks(cursor *c)
{
    while (c->at < c->end && c->text[c->at] && strchr(" \t\r\n", c->text[c->at])) c->at++;
}

/* Consumes `wanted` if it comes next. */
static int take(cursor *c, char wanted)
{
    skip_blanks(c);
    if (c->at >= c->end || c->text[c->at] != wanted) return 0;
    c->at++;
    return 1;
}

static int take_word(cursor *c, const char *word)
{
    const size_t n_chars = strlen(word);
    skip_blanks(c);
    if (c->end - c->at < n_chars || memcmp(c->text + c->at, word, n_chars) != 0) return 0;
    c->at += n_chars;
    return 1;
}

/* Reads 'text' or "text", truncated to the capacity. */
static int take_string(cursor *c, char *string, size_t capacity)
{
    const char quote = take(c, '\'') ? '\'' : take(c, '"') ? '"' : 0;
    if (!quote) return wrong(c, "a quoted string is missing");
    size_t n_chars = 0;
    while (c->at < c->end && c->text[c->at] != quote) {
        if (n_chars + 1 < capacity) string[n_chars++] = c->text[c->at];
        c->at++;
    }
    string[n_chars] = 0;
    return take(c, quote) || wrong(c, "a string is not closed");
}

/* The element type: a string, or a list for records, of which only the beginning is kept. */
static int take_descr(cursor *c, npy_header *header)
{
    skip_blanks(c);
    if (c->at >= c->end || c->text[c->at] != '[') return take_string(c, header->descr, sizeof header->descr);
    size_t n_chars = 0;
    for (int depth = 0; c->at < c->end; c->at++) {
        const char letter = c->text[c->at];
        if (n_chars + 1 < sizeof header->descr) header->descr[n_chars++] = letter;
        depth += (letter == '[') - (letter == ']');
        if (depth > 0) continue;
        header->descr[n_chars] = 0;
        c->at++;
        return 1;
    }
    return wrong(c, "a list is not closed");
}

static int take_boolean(cursor *c, int *value)
{
    *value = take_word(c, "True");
    return *value || take_word(c, "False") || wrong(c, "True or False is missing");
}

static int take_integer(cursor *c, int64_t *value)
{
    skip_blanks(c);
    const size_t begin = c->at;
    *value = 0;
    for (; c->at < c->end && c->text[c->at] >= '0' && c->text[c->at] <= '9'; c->at++) {
        const int64_t digit = c->text[c->at] - '0';
        if (*value > (INT64_MAX - digit) / 10) return wrong(c, "a dimension is beyond 2^63");
        *value = *value * 10 + digit;
    }
    if (c->at == begin) return wrong(c, "a dimension is not a whole number");
    take(c, 'L'); /* Python 2 wrote long integers this way */
    return 1;
}

/* (), (3,), (3, 4), … */
static int take_shape(cursor *c, npy_header *header)
{
    if (!take(c, '(')) return wrong(c, "the shape is not a tuple");
    header->n_dims = 0;
    int has_comma = 1;
    while (!take(c, ')')) {
        if (!has_comma) return wrong(c, "a comma is missing in the shape");
        if (header->n_dims == NPY_HEADER_MAX_DIMS) return wrong(c, "the shape has over 32 dimensions");
        if (!take_integer(c, &header->shape[header->n_dims])) return 0;
        header->n_dims++;
        has_comma = take(c, ',');
    }
    if (header->n_dims == 1 && !has_comma) return wrong(c, "the shape is not a tuple");
    return 1;
}

/* One "key: value". *seen has one bit for each key. */
static int take_entry(cursor *c, npy_header *header, unsigned *seen)
{
    static const char *const keys[] = {"descr", "fortran_order", "shape"};
    char key[32];
    if (!take_string(c, key, sizeof key)) return 0;
    unsigned index = 0;
    while (index < 3 && strcmp(key, keys[index]) != 0) index++;
    if (index == 3) return wrong(c, "a key is not descr, fortran_order or shape");
    if (*seen & 1u << index) return wrong(c, "a key occurs twice");
    *seen |= 1u << index;
    if (!take(c, ':')) return wrong(c, "a colon is missing");
    if (index == 0) return take_descr(c, header);
    return index == 1 ? take_boolean(c, &header->is_fortran) : take_shape(c, header);
}

static int take_dictionary(cursor *c, npy_header *header)
{
    unsigned seen = 0;
    int has_comma = 1;
    if (!take(c, '{')) return wrong(c, "it does not begin with {");
    while (!take(c, '}')) {
        if (c->at == c->end) return wrong(c, "the dictionary is not closed");
        if (!has_comma) return wrong(c, "a comma is missing");
        if (!take_entry(c, header, &seen)) return 0;
        has_comma = take(c, ',');
    }
    if (seen != 7u) return wrong(c, "descr, fortran_order or shape is missing");
    skip_blanks(c);
    return c->at == c->end || wrong(c, "something follows the dictionary");
}

const char *npy_header_parse(const char *text, size_t n_chars, npy_header *header, size_t *at)
{
    cursor c = {.text = text, .end = n_chars};
    memset(header, 0, sizeof *header);
    take_dictionary(&c, header);
    *at = c.at;
    return c.wrong;
}
