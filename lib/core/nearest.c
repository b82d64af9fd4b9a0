/* SPDX-License-Identifier: Apache-2.0 */
/* The names closest to what was typed. */
#include "core/nearest.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "quadrille_private/names.h"

static int smaller(int a, int b) { return a < b ? a : b; }

static int same_letter(char a, char b) { return tolower((unsigned char)a) == tolower((unsigned char)b); }

static int length_of(const char *name) { return (int)strnlen(name, QDRI_NEAREST_BYTES); }

/* The least cost of turning a into b, where to insert a letter of b costs `insert`, and to remove, replace or swap
 * letters `other`. */
static int cost_of_edits(const char *a, const char *b, int insert, int other)
{
    /* rows[i % 3][j]: cost between the first i characters of a and the first j of b. */
    int rows[3][QDRI_NEAREST_BYTES + 1];
    const int n_a = length_of(a), n_b = length_of(b);
    for (int j = 0; j <= n_b; j++) rows[0][j] = insert * j;
    for (int i = 1; i <= n_a; i++) {
        int *row = rows[i % 3];
        const int *above = rows[(i - 1) % 3], *before = rows[(i + 1) % 3];
        row[0] = other * i;
        for (int j = 1; j <= n_b; j++) {
            const int differs = !same_letter(a[i - 1], b[j - 1]);
            row[j] = smaller(smaller(row[j - 1] + insert, above[j] + other), above[j - 1] + other * differs);
            if (i > 1 && j > 1 && same_letter(a[i - 1], b[j - 2]) && same_letter(a[i - 2], b[j - 1]))
                row[j] = smaller(row[j], before[j - 2] + other);
        }
    }
    return rows[n_a % 3][n_b];
}

int qdri_edit_distance(const char *a, const char *b) { return cost_of_edits(a, b, 1, 1); }

/* Without case, dashes, dots, underscores and blanks, by which spellings of a name differ. */
typedef struct plain_name {
    char text[QDRI_NEAREST_BYTES + 1];
} plain_name;

static plain_name plain(const char *name)
{
    plain_name made = {""};
    for (int n = 0; *name && n < QDRI_NEAREST_BYTES; name++)
        if (!strchr("-._ ", *name)) made.text[n++] = (char)tolower((unsigned char)*name);
    return made;
}

int qdri_name_is_same(const char *typed, const char *name)
{
    return length_of(typed) < QDRI_NEAREST_BYTES && length_of(name) < QDRI_NEAREST_BYTES &&
           strcmp(plain(typed).text, plain(name).text) == 0;
}

static const char *next_word(const char *at, size_t *letters)
{
    while (*at && !isalnum((unsigned char)*at)) at++;
    *letters = 0;
    while (isalnum((unsigned char)at[*letters])) (*letters)++;
    return at;
}

/* Whether each typed word begins a word of the name, in the same order. */
static int words_begin(const char *typed, const char *name)
{
    size_t wanted, has;
    int n_words = 0;
    name = next_word(name, &has);
    for (typed = next_word(typed, &wanted); wanted; typed = next_word(typed + wanted, &wanted)) {
        while (has && (has < wanted || strncasecmp(typed, name, wanted) != 0)) name = next_word(name + has, &has);
        if (!has) return 0;
        name = next_word(name + has, &has);
        n_words++;
    }
    return n_words > 0;
}

int qdri_name_begins(const char *typed, const char *name)
{
    return *typed && (strncasecmp(typed, name, strlen(typed)) == 0 || words_begin(typed, name));
}

/* Letters are left out more often than replaced: "llama70b" is nearer to llama-2-70b than to llama-30b. */
enum { LEFT_OUT = 1, REPLACED = 2 };

enum { SAME, BEGUN }; /* nearer than any with an edit */

static int distance(const char *typed, const char *name)
{
    if (qdri_name_is_same(typed, name)) return SAME;
    if (qdri_name_begins(typed, name)) return BEGUN;
    return BEGUN + cost_of_edits(plain(typed).text, plain(name).text, LEFT_OUT, REPLACED);
}

/* Names at this distance, or farther, are not similar. */
static int far_from(const char *typed) { return BEGUN + REPLACED * (2 + length_of(typed) / 3); }

int qdri_name_is_near(const char *typed, const char *name) { return distance(typed, name) < far_from(typed); }

/* The first of the closest names whose distance is greater than `near`, or equal and that follow the name `last`;
 * *away: its distance. */
static int next_nearest(const char *typed, const char *const names[], int n_names, int near, int last, int *away)
{
    int best = -1;
    *away = INT_MAX;
    for (int i = 0; i < n_names; i++) {
        const int far = distance(typed, names[i]);
        if (far < near || (far == near && i <= last) || far >= *away) continue;
        *away = far;
        best = i;
    }
    return best;
}

int qdr_names_nearest(const char *typed, const char *const names[], int n_names, int most, char *text, size_t bytes)
{
    size_t used = 0;
    int n = 0, away = -1, last = -1;
    if (!text || !bytes) return 0;
    text[0] = '\0';
    if (!typed || !*typed) return 0;
    int far = far_from(typed);
    while (n < most) {
        last = next_nearest(typed, names, n_names, away, last, &away);
        if (last < 0 || away >= far) break;
        if (away <= BEGUN) far = BEGUN + 1; /* a typed prefix needs no guess */
        far = smaller(far, away + REPLACED);
        const char *comma = n ? ", " : "";
        if (used + strlen(comma) + strlen(names[last]) >= bytes) break;
        used += (size_t)snprintf(text + used, bytes - used, "%s%s", comma, names[last]);
        n++;
    }
    return n;
}
