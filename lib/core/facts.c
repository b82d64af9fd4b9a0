/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that ranks compare: one text with one line per fact, whose three parts are separated by a character that occurs
 * in no name. */
#include "core/facts.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"

#define PART_END '\x1f'
#define LINE_END '\n'

static void append(qdri_facts *facts, const char *part, char end)
{
    for (; *part; part++) facts->text[facts->bytes++] = (unsigned char)*part < ' ' ? '?' : *part;
    facts->text[facts->bytes++] = end;
}

void qdri_facts_add(qdri_facts *facts, const char *who, const char *option, const char *value)
{
    const size_t needed = facts->bytes + strlen(who) + strlen(option) + strlen(value) + 3;
    if (facts->status != QDR_OK) return;
    if (needed > facts->capacity) {
        char *larger = NULL;
        facts->status = qdri_calloc(2 * needed, 1, "a description to compare", (void **)&larger);
        if (facts->status != QDR_OK) return;
        if (facts->bytes) memcpy(larger, facts->text, facts->bytes);
        free(facts->text);
        facts->text = larger;
        facts->capacity = 2 * needed;
    }
    append(facts, who, PART_END);
    append(facts, option, PART_END);
    append(facts, value, LINE_END);
}

/* Pieces end with whole characters of UTF-8. */
void qdri_facts_add_text(qdri_facts *facts, const char *who, const char *option, const char *text)
{
    enum { PIECE_BYTES = 64, MOST_OF_ONE = 4 };
    size_t at = 0;
    if (!text) return;
    do {
        char where[96], piece[PIECE_BYTES + 3];
        size_t bytes = strnlen(text + at, PIECE_BYTES);
        while (bytes > PIECE_BYTES - MOST_OF_ONE && ((unsigned char)text[at + bytes] & 0xc0) == 0x80) bytes--;
        snprintf(where, sizeof where, "%.48s with, from byte %zu on,", option, at);
        snprintf(piece, sizeof piece, "'%.*s'", (int)bytes, text + at);
        qdri_facts_add(facts, who, where, piece);
        at += bytes;
    } while (text[at]);
    /* Control characters, which are not shown, may differ. */
    qdri_facts_add_int(facts, who, "a text of digest", (int64_t)qdri_digest_of(text, at));
}

void qdri_facts_add_int(qdri_facts *facts, const char *who, const char *option, int64_t value)
{
    char text[32];
    snprintf(text, sizeof text, "%" PRId64, value);
    qdri_facts_add(facts, who, option, text);
}

void qdri_real_text(double value, int least_digits, char text[QDRI_REAL_BYTES])
{
    for (int digits = least_digits; digits <= 17; digits++) {
        snprintf(text, QDRI_REAL_BYTES, "%.*g", digits, value);
        if (strtod(text, NULL) == value) return;
    }
}

void qdri_facts_add_real(qdri_facts *facts, const char *who, const char *option, double value)
{
    char text[QDRI_REAL_BYTES];
    qdri_real_text(value, 1, text);
    qdri_facts_add(facts, who, option, text);
}

void qdri_facts_add_blocks(qdri_facts *facts, const char *who, const char *option, const qdr_block *blocks, int n)
{
    char text[QDR_MAX_BLOCKS * 48] = "none";
    size_t at = 0;
    for (int i = 0; i < n && blocks[i].width != 0; i++) {
        const int64_t unit = blocks[i].unit ? blocks[i].unit : 1;
        at += (size_t)snprintf(text + at, sizeof text - at, "%s%" PRId64 "/%" PRId64, i ? " " : "", blocks[i].width,
                               unit);
    }
    qdri_facts_add(facts, who, option, text);
}

void qdri_facts_free(qdri_facts *facts)
{
    free(facts->text);
    *facts = (qdri_facts){0};
}

/* FNV-1a. */
uint64_t qdri_digest_of(const void *data, size_t n_bytes)
{
    const unsigned char *bytes = data;
    uint64_t digest = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n_bytes; i++) digest = (digest ^ bytes[i]) * UINT64_C(0x100000001b3);
    return digest;
}

uint64_t qdri_facts_digest(const qdri_facts *facts)
{
    const uint64_t digest = qdri_digest_of(facts->text, facts->bytes);
    return digest ? digest : 1;
}

/* ---- comparing ---- */

/* The part at *at, which is moved past it. */
static const char *take_part(const char **at, char end, int *bytes)
{
    const char *begin = *at;
    while (**at != end) (*at)++;
    *bytes = (int)(*at - begin);
    (*at)++;
    return begin;
}

/* The line at *at. */
static qdri_fact take_line(const char **at, const char *end)
{
    qdri_fact fact = {.who = NULL};
    if (*at == end) return fact;
    fact.who = take_part(at, PART_END, &fact.who_bytes);
    fact.option = take_part(at, PART_END, &fact.option_bytes);
    fact.value = take_part(at, LINE_END, &fact.value_bytes);
    return fact;
}

int qdri_facts_differ(const qdri_facts *a, const qdri_facts *b, qdri_fact *first, qdri_fact *second)
{
    const char *at_a = a->text, *at_b = b->text;
    const char *const end_a = a->text + a->bytes, *const end_b = b->text + b->bytes;
    while (at_a != end_a || at_b != end_b) {
        const char *begin_a = at_a, *begin_b = at_b;
        *first = take_line(&at_a, end_a);
        *second = take_line(&at_b, end_b);
        if (at_a - begin_a != at_b - begin_b || memcmp(begin_a, begin_b, (size_t)(at_a - begin_a)) != 0) return 1;
    }
    return 0;
}
