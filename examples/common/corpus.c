/* SPDX-License-Identifier: Apache-2.0 */
/* The text to train on. */
#include "corpus.h"

#include <dirent.h>
#include <quadrille_private/input.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "program.h"
#include "src/common/reference.h"

#define LICENSES "/usr/share/common-licenses"
#define BIBLE "echo 'gen1:1-rev22:21' | bible -f 2>/dev/null"
#define MAX_BYTES ((int64_t)1 << 31)

/* Appends all of `file` to the text. 0: out of memory, or more than 2 GiB. */
static int append(corpus *text, FILE *file)
{
    size_t capacity = (size_t)text->n_bytes, n = capacity;
    for (;;) {
        if (n == capacity) {
            capacity = capacity < 65536 ? 65536 : 2 * capacity;
            uint8_t *bigger = n < (size_t)MAX_BYTES ? realloc(text->bytes, capacity) : NULL;
            if (bigger == NULL) return 0;
            text->bytes = bigger;
        }
        const size_t got = fread(text->bytes + n, 1, capacity - n, file);
        n += got;
        if (got == 0) break;
    }
    text->n_bytes = (int64_t)n;
    return 1;
}

/* The bible program prints a message before its first answer and a prompt after the last: this removes everything up to
 * the first prompt's line, and every later line that begins with a prompt. */
static void drop_talk(corpus *text)
{
    static const char prompt[] = "bible(";
    const uint8_t *from = text->bytes, *end = text->bytes + text->n_bytes;
    uint8_t *to = text->bytes;
    int begun = 0;
    while (from < end) {
        const uint8_t *newline = memchr(from, '\n', (size_t)(end - from));
        const size_t length = newline ? (size_t)(newline - from) + 1 : (size_t)(end - from);
        const int talk = length >= sizeof prompt - 1 && memcmp(from, prompt, sizeof prompt - 1) == 0;
        if (begun && !talk) {
            memmove(to, from, length);
            to += length;
        }
        begun |= talk;
        from += length;
    }
    text->n_bytes = to - text->bytes;
}

static int read_bible(corpus *text)
{
    FILE *pipe = popen(BIBLE, "r");
    if (pipe == NULL) return 0;
    const int good = append(text, pipe);
    pclose(pipe);
    drop_talk(text);
    snprintf(text->name, sizeof text->name, "King James Bible");
    return good && text->n_bytes > 0;
}

static int regular_names(const struct dirent *entry) { return entry->d_name[0] != '.'; }

/* All the licences, in the order of their names; links would repeat a text. */
static void read_licenses(corpus *text)
{
    struct dirent **entries = NULL;
    const int n = scandir(LICENSES, &entries, regular_names, alphasort);
    text->n_bytes = 0;
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

static qdr_status read_file(const char *path, corpus *text, char sentence[PROBLEM_BYTES])
{
    char *bytes;
    size_t n_bytes;
    const char *slash = strrchr(path, '/');
    const qdr_status status = qdr_input_read(path, MAX_BYTES, &bytes, &n_bytes);
    if (status == QDR_ERR_MEMORY) return (void)REFUSE(sentence, "text %s: %s", path, qdr_last_error()), status;
    if (status != QDR_OK) {
        return REFUSE(sentence,
                      "text %s; give a readable file of at most 2 GiB, or no file to train on an installed text",
                      qdr_last_error());
    }
    text->bytes = (uint8_t *)bytes;
    text->n_bytes = (int64_t)n_bytes;
    snprintf(text->name, sizeof text->name, "%.80s", slash ? slash + 1 : path);
    return QDR_OK;
}

static qdr_status read_on_root(const char *path, int64_t context, corpus *text, char sentence[PROBLEM_BYTES])
{
    if (path != NULL)
        TRY(read_file(path, text, sentence));
    else if (!read_bible(text))
        read_licenses(text);
    if (context == 0 && text->n_bytes < 2)
        return REFUSE(sentence, "text %s has %lld byte%s; --eval needs two, of which it scores the second", path,
                      (long long)text->n_bytes, text->n_bytes == 1 ? "" : "s");
    const int64_t needed = 10 * (context + 1);
    if (context > 0 && text->n_bytes < needed) {
        return REFUSE(
            sentence,
            "text %s has %lld bytes, but --ctx %lld needs %lld: the last tenth, used for validation, must hold "
            "one context plus one byte; use a longer text or a shorter context",
            path ? path : text->name, (long long)text->n_bytes, (long long)context, (long long)needed);
    }
    return QDR_OK;
}

typedef struct announcement {
    qdr_status status;
    int64_t n_bytes;
    char name[96], sentence[PROBLEM_BYTES];
} announcement;

qdr_status corpus_read(qdr_context *ctx, const char *path, int64_t context, corpus *text, char sentence[PROBLEM_BYTES])
{
    announcement news = {0};
    *text = (corpus){0};
    const int root = qdr_context_rank(ctx) == 0;
    if (root) {
        news.status = read_on_root(path, context, text, news.sentence);
        news.n_bytes = text->n_bytes;
        memcpy(news.name, text->name, sizeof news.name);
    }
    TRY(qdr_broadcast(ctx, 0, &news, sizeof news));
    memcpy(sentence, news.sentence, PROBLEM_BYTES);
    TRY(qdr_agree(ctx, root ? news.status : QDR_OK));

    if (!root) text->bytes = malloc((size_t)news.n_bytes);
    if (text->bytes == NULL)
        snprintf(sentence, PROBLEM_BYTES, "out of memory for a text of %lld bytes; use fewer ranks per node",
                 (long long)news.n_bytes);
    TRY(qdr_agree(ctx, text->bytes ? QDR_OK : QDR_ERR_MEMORY));
    TRY(qdr_broadcast(ctx, 0, text->bytes, (size_t)news.n_bytes));
    text->n_bytes = news.n_bytes;
    text->n_train = context > 0 ? news.n_bytes - news.n_bytes / 10 : 0;
    memcpy(text->name, news.name, sizeof text->name);
    return QDR_OK;
}

void corpus_free(corpus *text)
{
    free(text->bytes);
    *text = (corpus){0};
}

/* Element i of a permutation of 0 … n - 1 that depends on the key: four Feistel rounds, repeated until the result is
 * below n. */
static uint64_t shuffled(uint64_t i, uint64_t n, uint64_t key)
{
    int bits = 1; /* of each half */
    while (bits < 31 && UINT64_C(1) << 2 * bits < n) bits++;
    const uint64_t mask = (UINT64_C(1) << bits) - 1;
    do {
        uint64_t left = i >> bits, right = i & mask;
        for (uint64_t round = 0; round < 4; round++) {
            const uint64_t next = left ^ (mix_bits(key ^ mix_bits(4 * right + round)) & mask);
            left = right;
            right = next;
        }
        i = left << bits | right;
    } while (i >= n);
    return i;
}

int64_t corpus_train_window(const corpus *text, int64_t context, uint64_t seed, int64_t number)
{
    int64_t n = (text->n_train - context) / context;
    if (n < 1) n = 1;
    const uint64_t key = mix_bits(mix_bits(seed) + (uint64_t)(number / n)); /* of this pass */
    const int64_t first = (int64_t)(key % (uint64_t)(text->n_train - n * context));
    return first + context * (int64_t)shuffled((uint64_t)(number % n), (uint64_t)n, key);
}

int64_t corpus_validation_windows(const corpus *text, int64_t context)
{
    const int64_t n_targets = text->n_bytes - text->n_train - 1;
    return n_targets / context;
}

int64_t corpus_validation_window(const corpus *text, int64_t context, int64_t index, int64_t n)
{
    const int64_t places = text->n_bytes - text->n_train - context;
    return text->n_train + (n > 1 ? (places - 1) * index / (n - 1) : 0);
}

double corpus_uniform(uint64_t seed, uint64_t counter)
{
    return (double)(mix_bits(mix_bits(seed) + counter) >> 11) * 0x1p-53;
}

uint32_t corpus_crc(const corpus *text)
{
    uint32_t crc = UINT32_MAX, of_byte[256];
    for (uint32_t i = 0; i < 256; i++) {
        of_byte[i] = i;
        for (int bit = 0; bit < 8; bit++) of_byte[i] = of_byte[i] >> 1 ^ (of_byte[i] & 1 ? 0xedb88320u : 0);
    }
    for (int64_t i = 0; i < text->n_bytes; i++) crc = crc >> 8 ^ of_byte[(crc ^ text->bytes[i]) & 255];
    return ~crc;
}
