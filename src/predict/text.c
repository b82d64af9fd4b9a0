/* SPDX-License-Identifier: Apache-2.0 */
/* Finds numbers in notes. */
#include "predict/text.h"

#include <ctype.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

void text_append(char *text, size_t bytes, const char *more)
{
    size_t used = strlen(text);
    for (; *more && used + 1 < bytes; more++) text[used++] = (char)tolower((unsigned char)*more);
    text[used] = '\0';
}

void text_words(char *text)
{
    char *end = text, last = '\0';
    for (; *text; text++) {
        const char letter = strchr("_-=:", *text) ? ' ' : *text;
        if (letter != ' ' || last != ' ') *end++ = letter;
        last = letter;
    }
    *end = '\0';
}

int text_has(const char *text, const char *const *words)
{
    for (; *words; words++)
        if (strstr(text, *words)) return 1;
    return 0;
}

static int is_digit(char letter) { return isdigit((unsigned char)letter) != 0; }

static const char *number_at(const char *at, double *value)
{
    char *end;
    for (int i = 0; i < 2 && *at && strchr(" ,:=-", *at); i++) at++;
    if (!is_digit(*at)) return NULL;
    *value = strtod(at, &end);
    return isfinite(*value) ? end : NULL;
}

const char *text_number_after(const char *text, const char *const *words, double *value)
{
    for (; *words; words++)
        for (const char *at = text; (at = strstr(at, *words)) != NULL; at++) {
            if (at > text && isalpha((unsigned char)at[-1])) continue;
            const char *end = number_at(at + strlen(*words), value);
            if (end) return end;
        }
    return NULL;
}

const char *text_number_before(const char *text, const char *unit, double *value)
{
    for (const char *at = text; (at = strstr(at, unit)) != NULL; at++) {
        const char *begin = at, *end;
        double factor = 1;
        while (begin > text && begin[-1] == ' ') begin--;
        if (begin > text && begin[-1] == 'k') factor = 1e3, begin--;
        end = begin;
        while (begin > text && (is_digit(begin[-1]) || begin[-1] == '.')) begin--;
        if (begin == end || !is_digit(*begin)) continue;
        *value = factor * strtod(begin, NULL);
        if (isfinite(*value)) return at + strlen(unit);
    }
    return NULL;
}
