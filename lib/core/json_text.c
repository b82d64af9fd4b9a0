/* SPDX-License-Identifier: Apache-2.0 */
#include "core/json_text.h"

#include <errno.h>
#include <locale.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const char *at, *end;
    int line, depth;
    char *word; /* the last string or number, as long as the text at most */
    size_t n_word;
    int lacks_memory;
    qdri_json_mistake *mistake;
} reader;

/* ---- what is wrong ---- */

/* Returns NULL. near: the first byte of what is shown, up to the next blank. */
static json_t *refuse(reader *r, const char *what, const char *near)
{
    size_t n = 0;
    while (n < 24 && near + n < r->end && !strchr(" \t\r\n", near[n])) n++; /* a zero byte ends it, too */
    if (n > 1 && strchr("[]{}:,", near[0])) n = 1;
    if (near < r->end)
        snprintf(r->mistake->why, sizeof r->mistake->why, "%s near '%.*s'", what, (int)n, near);
    else
        snprintf(r->mistake->why, sizeof r->mistake->why, "%s near end of file", what);
    r->mistake->line = r->line;
    return NULL;
}

static json_t *checked(reader *r, json_t *made)
{
    r->lacks_memory |= !made;
    return made;
}

static int is_blank(char byte) { return byte == ' ' || byte == '\t' || byte == '\r' || byte == '\n'; }

static void skip_blanks(reader *r)
{
    for (; r->at < r->end && is_blank(*r->at); r->at++) r->line += *r->at == '\n';
}

static int take(reader *r, char byte)
{
    if (r->at == r->end || *r->at != byte) return 0;
    r->at++;
    return 1;
}

/* ---- strings ---- */

size_t qdri_utf8_bytes(const unsigned char *at, const unsigned char *end)
{
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const size_t n = *at < 0x80 ? 1 : *at >> 5 == 6 ? 2 : *at >> 4 == 14 ? 3 : *at >> 3 == 30 ? 4 : 0;
    if (n < 2 || (size_t)(end - at) < n) return n == 1;
    uint32_t code = *at & (0x7fu >> n);
    for (size_t i = 1; i < n; i++) {
        if (at[i] >> 6 != 2) return 0;
        code = code << 6 | (at[i] & 0x3fu);
    }
    return code < least[n] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000) ? 0 : n;
}

/* Four hexadecimal digits; -1: they are not. */
static int32_t hexadecimal(reader *r)
{
    static const char digits[] = "0123456789abcdef0123456789ABCDEF";
    int32_t code = 0;
    if (r->end - r->at < 4) return -1;
    for (int i = 0; i < 4; i++) {
        const char *found = memchr(digits, r->at[i], sizeof digits - 1);
        if (!found) return -1;
        code = code << 4 | (int32_t)((found - digits) & 15);
    }
    r->at += 4;
    return code;
}

static void put_code(reader *r, uint32_t code)
{
    char *to = r->word + r->n_word;
    const int n = code < 0x80 ? 1 : code < 0x800 ? 2 : code < 0x10000 ? 3 : 4;
    static const unsigned first[] = {0, 0, 0xc0, 0xe0, 0xf0};
    for (int i = n; i-- > 1; code >>= 6) to[i] = (char)(0x80 | (code & 0x3f));
    to[0] = (char)(first[n] | code);
    r->n_word += (size_t)n;
}

/* After the backslash. */
static int take_escape(reader *r)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found = r->at < r->end ? memchr(from, *r->at, sizeof from - 1) : NULL;
    if (found) {
        r->at++;
        r->word[r->n_word++] = to[found - from];
        return 1;
    }
    if (!take(r, 'u')) return 0;
    int32_t code = hexadecimal(r);
    if (code >= 0xd800 && code < 0xdc00) { /* the first half of a pair */
        const int32_t low = take(r, '\\') && take(r, 'u') ? hexadecimal(r) : -1;
        code = low >= 0xdc00 && low < 0xe000 ? 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00) : -1;
    }
    if (code <= 0 || (code >= 0xdc00 && code < 0xe000)) return 0;
    put_code(r, (uint32_t)code);
    return 1;
}

/* After the quote; into the word. */
static int take_string(reader *r)
{
    char why[40];
    r->n_word = 0;
    while (r->at < r->end && *r->at != '"') {
        const char *begin = r->at;
        if (take(r, '\\')) {
            if (!take_escape(r)) return refuse(r, "invalid escape", begin) != NULL;
            continue;
        }
        const size_t n = qdri_utf8_bytes((const unsigned char *)r->at, (const unsigned char *)r->end);
        if (n == 0 || (unsigned char)*r->at < ' ') {
            snprintf(why, sizeof why, n ? "control character 0x%x" : "unable to decode byte 0x%x",
                     (unsigned)(unsigned char)*r->at);
            return refuse(r, why, r->at) != NULL;
        }
        memcpy(r->word + r->n_word, r->at, n);
        r->n_word += n;
        r->at += n;
    }
    if (!take(r, '"')) return refuse(r, "a string has no end", r->at) != NULL;
    r->word[r->n_word] = '\0';
    return 1;
}

/* ---- numbers ---- */

static size_t take_digits(reader *r)
{
    const char *begin = r->at;
    while (r->at < r->end && *r->at >= '0' && *r->at <= '9') r->at++;
    return (size_t)(r->at - begin);
}

static json_t *take_real(reader *r, const char *begin)
{
    char *point = strchr(r->word, '.');
    if (point) *point = *localeconv()->decimal_point; /* a program may have set another locale */
    const double value = strtod(r->word, NULL);
    return isfinite(value) ? checked(r, json_real(value)) : refuse(r, "real number overflow", begin);
}

static json_t *take_number(reader *r)
{
    const char *begin = r->at;
    int is_real = 0;
    (void)take(r, '-');
    int good = take(r, '0') || take_digits(r);
    if (good && take(r, '.')) good = take_digits(r) > 0, is_real = 1;
    if (good && (take(r, 'e') || take(r, 'E'))) {
        if (!take(r, '+')) (void)take(r, '-');
        good = take_digits(r) > 0, is_real = 1;
    }
    if (!good || take_digits(r)) return refuse(r, "invalid token", begin);
    const size_t n = (size_t)(r->at - begin);
    memcpy(r->word, begin, n);
    r->word[n] = '\0';
    if (is_real) return take_real(r, begin);
    errno = 0;
    const long long value = strtoll(r->word, NULL, 10);
    return errno ? refuse(r, "too big integer", begin) : checked(r, json_integer(value));
}

/* ---- values ---- */

static json_t *take_value(reader *r);

/* After the bracket; the list is given back by the caller. */
static int take_items(reader *r, json_t *list)
{
    skip_blanks(r);
    if (take(r, ']')) return 1;
    do {
        json_t *item = take_value(r);
        if (!item) return 0;
        r->lacks_memory |= json_array_append_new(list, item) != 0;
        if (r->lacks_memory) return 0;
        skip_blanks(r);
    } while (take(r, ','));
    return take(r, ']') || refuse(r, "']' expected", r->at);
}

static int take_member(reader *r, json_t *object)
{
    skip_blanks(r);
    const char *begin = r->at;
    if (!take(r, '"')) return refuse(r, "string or '}' expected", r->at) != NULL;
    if (!take_string(r)) return 0;
    if (json_object_get(object, r->word)) return refuse(r, "duplicate object key", begin) != NULL;
    char *key = strdup(r->word); /* which the value replaces */
    r->lacks_memory |= !key;
    skip_blanks(r);
    json_t *value = NULL;
    if (key && !take(r, ':'))
        (void)refuse(r, "':' expected", r->at);
    else if (key)
        value = take_value(r);
    if (value && json_object_set_new_nocheck(object, key, value) != 0) r->lacks_memory = 1;
    free(key);
    return value && !r->lacks_memory;
}

static int take_members(reader *r, json_t *object)
{
    skip_blanks(r);
    if (take(r, '}')) return 1;
    do {
        if (!take_member(r, object)) return 0;
        skip_blanks(r);
    } while (take(r, ','));
    return take(r, '}') || refuse(r, "'}' expected", r->at);
}

static json_t *take_list_or_object(reader *r, int is_list)
{
    if (r->depth == QDRI_JSON_MAX_DEPTH) return refuse(r, "maximum parsing depth reached", r->at);
    r->at++;
    r->depth++;
    json_t *made = checked(r, is_list ? json_array() : json_object());
    const int is_whole = made && (is_list ? take_items(r, made) : take_members(r, made));
    r->depth--;
    if (is_whole) return made;
    json_decref(made);
    return NULL;
}

static json_t *take_literal(reader *r)
{
    static const char *const words[] = {"true", "false", "null"};
    json_t *const values[] = {json_true(), json_false(), json_null()};
    for (int i = 0; i < 3; i++) {
        const size_t n = strlen(words[i]);
        if ((size_t)(r->end - r->at) < n || memcmp(r->at, words[i], n) != 0) continue;
        r->at += n;
        return values[i];
    }
    return refuse(r, r->at < r->end ? "invalid token" : "a value is expected", r->at);
}

static json_t *take_value(reader *r)
{
    skip_blanks(r);
    const char first = r->at < r->end ? *r->at : '\0';
    if (first == '{' || first == '[') return take_list_or_object(r, first == '[');
    if (first == '-' || (first >= '0' && first <= '9')) return take_number(r);
    if (!take(r, '"')) return take_literal(r);
    return take_string(r) ? checked(r, json_stringn_nocheck(r->word, r->n_word)) : NULL;
}

qdr_status qdri_json_text_read(const char *text, size_t bytes, json_t **root, qdri_json_mistake *mistake)
{
    reader r = {.at = text, .end = text + bytes, .line = 1, .word = malloc(bytes + 1), .mistake = mistake};
    *root = NULL;
    *mistake = (qdri_json_mistake){0};
    r.lacks_memory = !r.word;
    skip_blanks(&r);
    if (r.word && r.at < r.end && (*r.at == '{' || *r.at == '['))
        *root = take_value(&r);
    else if (r.word)
        (void)refuse(&r, "'[' or '{' expected", r.at);
    skip_blanks(&r);
    if (*root && r.at < r.end) {
        (void)refuse(&r, "end of file expected", r.at);
        json_decref(*root);
        *root = NULL;
    }
    free(r.word);
    return *root ? QDR_OK : r.lacks_memory ? QDR_ERR_MEMORY : QDR_ERR_ARGUMENT;
}
