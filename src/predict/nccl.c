/* SPDX-License-Identifier: Apache-2.0 */
/* The output of nccl-tests: comments that say what was measured, and rows of numbers. */
#include "predict/nccl.h"

#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { LINE_BYTES = 1024, MAX_WORDS = 32 };

typedef struct nccl_reader {
    const char *at, *end;
    char line[LINE_BYTES]; /* truncated if longer */
    char *words[MAX_WORDS];
    int n_words;
    const nccl_told *told;
    char collective[32]; /* "": not known yet */
    int ranks; /* from the comments; 0: not known yet */
    int behind_time; /* words of the header from the first time column on */
    FILE *table;
    failure *why;
} nccl_reader;

/* ---- lines ---- */

static int next_line(nccl_reader *r)
{
    if (r->at == r->end) return 0;
    const size_t left = (size_t)(r->end - r->at);
    const char *line_end = memchr(r->at, '\n', left);
    const size_t bytes = line_end ? (size_t)(line_end - r->at) : left;
    const size_t kept = bytes < LINE_BYTES ? bytes : LINE_BYTES - 1;
    memcpy(r->line, r->at, kept);
    r->line[kept] = '\0';
    r->at += line_end ? bytes + 1 : bytes;
    return 1;
}

static void split(nccl_reader *r)
{
    char *rest = NULL;
    r->n_words = 0;
    for (char *word = strtok_r(r->line, " \t\r", &rest); word && r->n_words < MAX_WORDS;
         word = strtok_r(NULL, " \t\r", &rest))
        r->words[r->n_words++] = word;
}

static int is_header(const char *line)
{
    line += strspn(line, " \t");
    return *line == '#' && strstr(line, "count") && strstr(line, "type") && strstr(line, "time") &&
           strstr(line, "algbw") && strstr(line, "busbw");
}

int nccl_is_output(const char *bytes, size_t n_bytes)
{
    nccl_reader r = {.at = bytes, .end = bytes + n_bytes};
    while (next_line(&r))
        if (is_header(r.line)) return 1;
    return 0;
}

/* ---- what was measured ---- */

/* "all_reduce_perf", after a path or a colon. */
static void find_collective(nccl_reader *r)
{
    const char *end = strstr(r->line, "_perf");
    const char *begin = end;
    if (!end) return;
    while (begin > r->line && (isalpha((unsigned char)begin[-1]) || begin[-1] == '_')) begin--;
    if (begin == end || (size_t)(end - begin) >= sizeof r->collective) return;
    memcpy(r->collective, begin, (size_t)(end - begin));
    r->collective[end - begin] = '\0';
    r->ranks = 0;
}

static void find_ranks(nccl_reader *r)
{
    static const char *const before[] = {"nRanks", "Rank"};
    for (size_t i = 0; i < sizeof before / sizeof *before; i++) {
        const char *word = strstr(r->line, before[i]);
        if (!word) continue;
        word += strlen(before[i]);
        word += strspn(word, " :=\t");
        if (!isdigit((unsigned char)*word)) continue;
        const long number = strtol(word, NULL, 10), ranks = number + (i == 1);
        if (number < 1000000 && ranks > r->ranks) r->ranks = (int)ranks;
        return;
    }
}

static void read_header(nccl_reader *r)
{
    split(r);
    for (int i = 0; i < r->n_words; i++)
        if (strcmp(r->words[i], "time") == 0) {
            r->behind_time = r->n_words - i;
            return;
        }
}

static int write_row(nccl_reader *r)
{
    const nccl_told *told = r->told;
    const char *collective = told->collective ? told->collective : r->collective;
    const int ranks = told->ranks ? told->ranks : r->ranks ? r->ranks : told->machine_ranks;
    const int time = r->n_words - r->behind_time;
    if (!*collective)
        return fail(r->why, EXIT_USAGE,
                    "%.300s: it does not say which collective was measured; add --collective "
                    "all_reduce, or another",
                    told->name);
    if (!ranks)
        return fail(r->why, EXIT_USAGE, "%.300s: it does not say how many ranks there were; add --ranks or --machine",
                    told->name);
    fprintf(r->table, "%s,%d,%s,%s", collective, ranks, r->words[0],
            time > 0 && isdigit((unsigned char)r->words[time][0]) ? r->words[time] : "");
    return EXIT_OK;
}

/* A row has as many words as the header, or fewer if two columns are blank. */
static int is_row(const nccl_reader *r)
{
    if (!r->behind_time || r->n_words <= r->behind_time || strpbrk(r->words[0], ",\"")) return 0;
    for (int i = 0; i < r->n_words; i++)
        if (strpbrk(r->words[i], ",\"")) return 0;
    return isdigit((unsigned char)r->words[0][0]);
}

static int read_line(nccl_reader *r)
{
    if (is_header(r->line)) {
        read_header(r);
        return EXIT_OK;
    }
    find_collective(r);
    if (r->line[strspn(r->line, " \t")] == '#') {
        find_ranks(r);
        return EXIT_OK;
    }
    split(r);
    return is_row(r) ? write_row(r) : EXIT_OK;
}

int nccl_table(const char *bytes, size_t n_bytes, const nccl_told *told, char **table, size_t *table_bytes,
               failure *why)
{
    nccl_reader r = {.at = bytes, .end = bytes + n_bytes, .told = told, .why = why};
    *table = NULL;
    r.table = open_memstream(table, table_bytes);
    if (!r.table) return fail(why, EXIT_NOTHING_FITS, "%.300s: out of memory for its rows", told->name);
    fputs("collective,gpus,bytes,time_us", r.table);
    for (int is_first = 1; !why->code && next_line(&r); is_first = 0) {
        if (!is_first) putc('\n', r.table);
        read_line(&r);
    }
    putc('\n', r.table);
    if (fclose(r.table) != 0) return fail(why, EXIT_NOTHING_FITS, "%.300s: out of memory for its rows", told->name);
    return why->code;
}
