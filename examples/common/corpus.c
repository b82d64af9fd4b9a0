/* SPDX-License-Identifier: Apache-2.0 */
/* What to train on. */
#include "corpus.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "src/common/process.h"
#include "src/common/reference.h"

#define LICENSES "/usr/share/common-licenses"
#define BIBLE "echo 'gen1:1-rev22:21' | bible -f 2>/dev/null"

/* ---- texts that are installed ---- */

/* Appends all of `file` to the text. 0: out of memory. */
static int append(corpus *text, FILE *file)
{
    char some[65536];
    for (size_t n; (n = fread(some, 1, sizeof some, file)) > 0; text->text_bytes += (int64_t)n) {
        char *longer = realloc(text->text, (size_t)text->text_bytes + n);
        if (!longer) return 0;
        text->text = longer;
        memcpy(longer + text->text_bytes, some, n);
    }
    return 1;
}

/* The bible program prints a message before its first answer and a prompt after the last: this removes everything up to
 * the first prompt's line, and every later line that begins with a prompt. */
static void drop_talk(corpus *text)
{
    static const char prompt[] = "bible(";
    const char *from = text->text, *end = from + text->text_bytes;
    char *to = text->text;
    int begun = 0;
    while (from < end) {
        const char *newline = memchr(from, '\n', (size_t)(end - from));
        const size_t length = newline ? (size_t)(newline - from) + 1 : (size_t)(end - from);
        const int talk = length >= sizeof prompt - 1 && memcmp(from, prompt, sizeof prompt - 1) == 0;
        if (begun && !talk) {
            memmove(to, from, length);
            to += length;
        }
        begun |= talk;
        from += length;
    }
    text->text_bytes = to - text->text;
}

static int read_bible(corpus *text)
{
    FILE *pipe = popen(BIBLE, "r");
    if (pipe == NULL) return 0;
    const int good = append(text, pipe);
    pclose(pipe);
    drop_talk(text);
    snprintf(text->name, sizeof text->name, "King James Bible");
    return good && text->text_bytes > 0;
}

static int regular_names(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* All the licences, in the order of their names; links would repeat a text. */
static void read_licenses(corpus *text)
{
    struct dirent **entries = NULL;
    const int n = scandir(LICENSES, &entries, regular_names, alphasort);
    text->text_bytes = 0;
    for (int i = 0; i < n; i++) {
        char path[512];
        struct stat info;
        snprintf(path, sizeof path, LICENSES "/%s", entries[i]->d_name);
        FILE *file = lstat(path, &info) == 0 && S_ISREG(info.st_mode) ? fopen(path, "rb") : NULL;
        if (file != NULL) {
            (void)append(text, file);
            fclose(file);
        }
        free(entries[i]);
    }
    free(entries);
    snprintf(text->name, sizeof text->name, "the licences in " LICENSES);
}

/* ---- opening ---- */

/* Of the lowest bytes of each number; a CRC-32 before its last step, that of zlib and gzip. */
static uint32_t add_crc(uint32_t crc, const int32_t *numbers, int64_t n, int bytes_each)
{
    uint32_t of_byte[256];
    for (uint32_t i = 0; i < 256; i++) {
        of_byte[i] = i;
        for (int bit = 0; bit < 8; bit++) of_byte[i] = of_byte[i] >> 1 ^ (of_byte[i] & 1 ? 0xedb88320u : 0);
    }
    for (int64_t i = 0; i < n * bytes_each; i++)
        crc = crc >> 8 ^ of_byte[(crc ^ (uint32_t)numbers[i / bytes_each] >> 8 * (i % bytes_each)) & 255];
    return crc;
}

/* Of text; of more than 4 million tokens of 256 pieces, from the first to the last. */
static qdr_status take_crc(corpus *text)
{
    enum { SOME = 16384, N_PIECES = 256 };
    int32_t tokens[SOME];
    const int64_t n = text->info.n_tokens;
    const int is_whole = text->info.is_text || n <= (int64_t)SOME * N_PIECES;
    for (int64_t i = 0; i < (is_whole ? (n + SOME - 1) / SOME : N_PIECES); i++) {
        const int64_t first = is_whole ? SOME * i : (n - SOME) * i / (N_PIECES - 1);
        const int64_t some = n - first < SOME ? n - first : SOME;
        TRY(qdr_tokens_read(text->tokens, first, some, tokens));
        text->crc = add_crc(text->crc, tokens, some, text->info.is_text ? 1 : 4);
    }
    text->crc = ~text->crc;
    return QDR_OK;
}

/* "a.bin:3": a path, and a weight if a number follows the last colon. */
static qdr_token_source take_source(char *words)
{
    char *colon = strrchr(words, ':'), *end = NULL;
    const double weight = colon ? strtod(colon + 1, &end) : 1;
    if (!colon || end == colon + 1 || *end)
        return (qdr_token_source){QDR_INIT(qdr_token_source), .path = words, .weight = 1};
    *colon = '\0';
    return (qdr_token_source){QDR_INIT(qdr_token_source), .path = words, .weight = weight};
}

/* Whether a comma lacks a name on one of its sides. */
static int has_gap(const char *data)
{
    return !*data || *data == ',' || strstr(data, ",,") || data[strlen(data) - 1] == ',';
}

static qdr_status open_list(const char *data, const qdr_tokens_opts *opts, corpus *text)
{
    int n = 0, n_most = 1;
    for (const char *at = data; *at; at++) n_most += *at == ',';
    char *words = strdup(data), *rest = NULL;
    qdr_token_source *sources = calloc((size_t)n_most, sizeof *sources);
    qdr_status status = words && sources ? QDR_OK : QDR_ERR_MEMORY;
    for (char *word = status < 0 ? NULL : strtok_r(words, ",", &rest); word; word = strtok_r(NULL, ",", &rest))
        sources[n++] = take_source(word);
    if (status >= 0) status = qdr_tokens_open(sources, n, opts, &text->tokens);
    for (int i = 0; status >= 0 && i < n && n > 1; i++) { /* other weights are another order */
        int32_t weight[2];
        memcpy(weight, &sources[i].weight, sizeof weight);
        text->crc = add_crc(text->crc, weight, 2, 4);
    }
    snprintf(text->name, sizeof text->name, "%.80s", data);
    free(sources);
    free(words);
    return status;
}

static qdr_status open_text(const char *file, const qdr_tokens_opts *opts, corpus *text)
{
    const char *slash = file ? strrchr(file, '/') : NULL;
    if (file)
        snprintf(text->name, sizeof text->name, "%.80s", slash ? slash + 1 : file);
    else if (!read_bible(text))
        read_licenses(text);
    const qdr_token_source source = {QDR_INIT(qdr_token_source), file ? file : text->name, 1, text->text,
                                     text->text_bytes};
    return qdr_tokens_open(&source, 1, opts, &text->tokens);
}

static int is_idx(const settings *set) { return set->documents && strcmp(set->documents, "idx") == 0; }

static qdr_status open_on_root(const settings *set, corpus *text, char sentence[PROBLEM_BYTES])
{
    const int is_own = set->eval && strcmp(set->eval, "val") != 0; /* a text of its own */
    const qdr_tokens_opts opts = {QDR_INIT(qdr_tokens_opts),
                                  .context = set->how.context,
                                  .seed = set->seed,
                                  .vocab = set->network.vocab,
                                  .format = set->tokens || set->data ? (qdr_token_format)set->tokens
                                                                     : QDR_TOKENS_OR_TEXT,
                                  .documents = !set->documents ? QDR_DOCUMENTS_NONE
                                               : is_idx(set)   ? QDR_DOCUMENTS_INDEX
                                                               : QDR_DOCUMENTS_TOKEN,
                                  .document_token = text->document_token,
                                  .only_validation = is_own};
    if (set->documents && !is_idx(set) && (!*set->documents || set->documents[strspn(set->documents, "0123456789")]))
        return REFUSE(sentence, "--documents %.80s: give the number of the token that ends a document, or idx",
                      set->documents);
    if (set->data && has_gap(set->data))
        return REFUSE(sentence, "--data '%.200s': a name is missing beside a comma", set->data);
    qdr_status status = set->data ? open_list(set->data, &opts, text)
                                  : open_text(is_own ? set->eval : set->file, &opts, text);
    if (status >= 0) status = qdr_tokens_get_info(text->tokens, &text->info);
    if (status >= 0 && text->info.is_text && opts.vocab < N_BYTES)
        return REFUSE(sentence,
                      "%.300s has a vocabulary of %lld, but text is read byte by byte, and a byte is one of %d tokens; "
                      "take a network of bytes, or a larger vocabulary",
                      set->source ? set->source : "--vocab", (long long)opts.vocab, N_BYTES);
    for (const char *at = set->documents; at && *at; at++) text->crc = add_crc(text->crc, &(const int32_t){*at}, 1, 1);
    if (status >= 0 && (set->save || set->resume || set->log)) status = take_crc(text);
    if (status >= 0) return QDR_OK;
    snprintf(sentence, PROBLEM_BYTES, "%s", status == QDR_ERR_MEMORY ? "out of memory for data" : qdr_last_error());
    return status == QDR_ERR_MEMORY ? status : QDR_ERR_ARGUMENT;
}

typedef struct announcement {
    qdr_status status;
    qdr_tokens_info info;
    uint32_t crc;
    char name[96], sentence[PROBLEM_BYTES];
} announcement;

qdr_status corpus_open(qdr_context *ctx, const settings *set, corpus *text, char sentence[PROBLEM_BYTES])
{
    announcement news = {0};
    *text = (corpus){.ctx = ctx,
                     .context = set->how.context,
                     .has_documents = set->documents != NULL,
                     .document_token = set->documents && !is_idx(set) ? atoll(set->documents) : -1,
                     .info = {QDR_INIT(qdr_tokens_info)},
                     .crc = UINT32_MAX};
    if (qdr_context_rank(ctx) == 0) {
        news.status = open_on_root(set, text, news.sentence);
        news.info = text->info, news.crc = text->crc;
        memcpy(news.name, text->name, sizeof news.name);
    }
    TRY(qdr_broadcast(ctx, 0, &news, sizeof news));
    memcpy(sentence, news.sentence, PROBLEM_BYTES);
    text->info = news.info, text->crc = news.crc;
    memcpy(text->name, news.name, sizeof text->name);
    return news.status;
}

/* Numbers of so many sequences: tokens, targets, first keys where there are documents. */
static int64_t n_numbers(const corpus *text, int64_t n_sequences)
{
    return (2 + text->has_documents) * n_sequences * text->context;
}

qdr_status corpus_reserve(corpus *text, int64_t n_sequences)
{
    const int64_t n = n_numbers(text, n_sequences) + 1;
    text->numbers = program_new(text->ctx, n, sizeof *text->numbers);
    text->next = text->numbers ? program_new(text->ctx, text->tokens ? n : 1, sizeof *text->next) : NULL;
    return text->next ? QDR_OK : QDR_ERR_MEMORY;
}

static void join(corpus *text)
{
    if (text->has_thread) pthread_join(text->thread, NULL);
    text->has_thread = 0;
}

void corpus_close(corpus *text)
{
    join(text);
    qdr_tokens_close(&text->tokens);
    free(text->text);
    free(text->numbers);
    free(text->next);
    *text = (corpus){0};
}

/* ---- reading ---- */

static qdr_token_rows rows_of(const corpus *text, int32_t *numbers, int64_t n_sequences)
{
    const int64_t n = n_sequences * text->context;
    return (qdr_token_rows){QDR_INIT(qdr_token_rows), numbers, numbers + n,
                            text->has_documents ? numbers + 2 * n : NULL};
}

static void read_part(corpus *text, corpus_part part, int32_t *numbers)
{
    const qdr_token_rows rows = rows_of(text, numbers, part.n_rooms);
    const int64_t used = part.n * text->context, left = part.n_rooms * text->context - used;
    const qdr_status status = part.is_training
                                  ? qdr_tokens_train(text->tokens, part.first, part.n, &rows)
                                  : qdr_tokens_validate(text->tokens, part.first, part.n, part.n_all, &rows);
    memset(rows.tokens + used, 0, (size_t)left * sizeof *numbers);
    memset(rows.targets + used, -1, (size_t)left * sizeof *numbers);
    if (rows.first_keys) memset(rows.first_keys + used, 0, (size_t)left * sizeof *numbers);
    numbers[n_numbers(text, part.n_rooms)] = status;
    if (status < 0) snprintf(text->problem, PROBLEM_BYTES, "%s", qdr_last_error());
}

static void *read_ahead(void *user)
{
    corpus *text = user;
    read_part(text, text->ahead, text->next);
    return NULL;
}

/* What the thread has read, if that is it, which a validation in between leaves as it is. */
static void take_on_root(corpus *text, corpus_part part)
{
    int32_t *next = text->next;
    join(text);
    if (!part.is_training || !text->has_ahead || part.first != text->ahead.first)
        read_part(text, part, text->numbers);
    else
        text->next = text->numbers, text->numbers = next;
    text->has_ahead &= !part.is_training;
}

qdr_status corpus_take(corpus *text, corpus_part part, char sentence[PROBLEM_BYTES])
{
    const double began = process_secs();
    const int64_t n = n_numbers(text, part.n_rooms);
    if (text->tokens) take_on_root(text, part);
    const double read = process_secs();
    TRY(qdr_broadcast(text->ctx, 0, text->numbers, (size_t)(n + 1) * sizeof *text->numbers));
    if (part.is_training) text->waited_secs += read - began, text->sent_secs += process_secs() - read;
    const qdr_status status = (qdr_status)text->numbers[n];
    if (status < 0) TRY(qdr_broadcast(text->ctx, 0, text->problem, PROBLEM_BYTES));
    if (status < 0) return memcpy(sentence, text->problem, PROBLEM_BYTES), status;
    text->rows = rows_of(text, text->numbers, part.n_rooms);
    if (!text->tokens || !part.is_training) return QDR_OK;
    text->ahead = part;
    text->ahead.first += part.n;
    text->has_thread = pthread_create(&text->thread, NULL, read_ahead, text) == 0;
    text->has_ahead = text->has_thread; /* else it is read when it is due */
    return QDR_OK;
}

double corpus_uniform(uint64_t seed, uint64_t counter)
{
    return (double)(mix_bits(mix_bits(seed) + counter) >> 11) * 0x1p-53;
}
