/* SPDX-License-Identifier: Apache-2.0 */
/* Runs a fuzz target without a fuzzing engine. usage:
 *
 *   TARGET FOLDER...             replays each file: whole, truncated to every length up to 256, and with each of its
 *                                first 256 bytes changed
 *   TARGET --random N FOLDER...  runs N random changes of these files; QDR_TEST_SEED repeats them, QDR_TEST_FIRST skips
 *
 * An input that takes more than a second of CPU time, or that does not return at all, is a failure, like a crash; its
 * number is printed. */
#include "fuzz.h"

#include <dirent.h>
#include <signal.h>
#include <time.h>

enum { MAX_BYTES = 65536, MAX_FILES = 256, HANG_SECS = 60 };

/* ---- the corpus ---- */

typedef struct entry {
    uint8_t *bytes;
    size_t n_bytes;
} entry;

static entry corpus[MAX_FILES];
static int n_files;

static void load_file(const char *folder, const char *name)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file || n_files == MAX_FILES) exit(1);
    entry *to = &corpus[n_files++];
    to->bytes = malloc(MAX_BYTES);
    if (!to->bytes) exit(1);
    to->n_bytes = fread(to->bytes, 1, MAX_BYTES, file);
    fclose(file);
}

static void load_folder(const char *folder)
{
    struct dirent **entries;
    const int n = scandir(folder, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        if (entries[i]->d_name[0] != '.') load_file(folder, entries[i]->d_name);
        free(entries[i]);
    }
    if (n >= 0) free(entries);
}

/* ---- one input ---- */

static long long number; /* of the input that runs */
static unsigned long long seed;
static double slowest_secs;

static double processor_secs(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static void report(int which)
{
    char text[128];
    const int n = snprintf(text, sizeof text, "input %lld, QDR_TEST_SEED=%llu: %s\n", number, seed,
                           which == SIGALRM ? "it hangs" : "it crashed");
    if (write(STDERR_FILENO, text, (size_t)n) < 0) _exit(1);
    signal(which, SIG_DFL);
    raise(which == SIGALRM ? SIGABRT : which);
}

/* In an allocation of its own, so that a sanitizer sees any step beyond the end. */
static void run_once(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *exact = malloc(n_bytes ? n_bytes : 1);
    if (!exact) exit(1);
    memcpy(exact, bytes, n_bytes);
    const double began = processor_secs();
    LLVMFuzzerTestOneInput(exact, n_bytes);
    const double secs = processor_secs() - began;
    free(exact);
    if (secs > slowest_secs) slowest_secs = secs;
    if (secs > 1) {
        printf("input %lld, QDR_TEST_SEED=%llu: took %.2f s of processor time\n", number, seed, secs);
        exit(1);
    }
    if (number++ % 256 == 0) alarm(HANG_SECS);
}

/* ---- replayed ---- */

static void run_variants(entry *file)
{
    static const uint8_t changes[] = {0x01, 0x10, 0x80, 0xff};
    const size_t n_places = file->n_bytes < 256 ? file->n_bytes : 256;
    run_once(file->bytes, file->n_bytes);
    for (size_t i = 0; i < n_places; i++) {
        run_once(file->bytes, i);
        for (size_t j = 0; j < sizeof changes; j++) {
            file->bytes[i] ^= changes[j];
            run_once(file->bytes, file->n_bytes);
            file->bytes[i] ^= changes[j];
        }
    }
}

/* ---- changed at random ---- */

static uint64_t state;

/* splitmix64 */
static uint64_t next_random(void)
{
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static size_t below(size_t n) { return n ? (size_t)(next_random() % n) : 0; }

/* A place in the bytes: mostly anywhere, often near the beginning, where headers are. */
static size_t place(size_t n_bytes) { return below(below(3) ? n_bytes : n_bytes < 64 ? n_bytes : 64); }

static const char *const tokens[] = {"0",
                                     "-1",
                                     "1",
                                     "2147483647",
                                     "2147483648",
                                     "-9223372036854775808",
                                     "9223372036854775807",
                                     "18446744073709551616",
                                     "1e308",
                                     "1e-308",
                                     "1e999",
                                     "-0.0",
                                     "0.1",
                                     "NaN",
                                     "Infinity",
                                     "null",
                                     "true",
                                     "\"\"",
                                     "{}",
                                     "[]",
                                     "[[[[[[[[",
                                     "{\"a\":",
                                     "\\u0000",
                                     "\\ud800",
                                     "\xff",
                                     "\xc3\xa9",
                                     "\n",
                                     "\r\n",
                                     ",",
                                     ":",
                                     "\"",
                                     "}",
                                     "]",
                                     "(",
                                     ")",
                                     "<",
                                     "/>",
                                     "&#0;",
                                     "&lt;",
                                     "x",
                                     "xyzd",
                                     "0x1p-3",
                                     "%s%n",
                                     "'<f4'",
                                     "(1, )",
                                     "True"};

/* Puts `n` bytes in the place of `n_gone` ones at `at`. */
static size_t splice(uint8_t *bytes, size_t n_bytes, size_t at, size_t n_gone, const uint8_t *with, size_t n)
{
    static uint8_t copy[MAX_BYTES];
    if (n_gone > n_bytes - at) n_gone = n_bytes - at;
    if (n_bytes - n_gone + n > MAX_BYTES) return n_bytes;
    memcpy(copy, with, n);
    memmove(bytes + at + n, bytes + at + n_gone, n_bytes - at - n_gone);
    memcpy(bytes + at, copy, n);
    return n_bytes - n_gone + n;
}

static int is_number(uint8_t letter) { return (letter >= '0' && letter <= '9') || strchr("+-.eE", letter); }

/* Another number, or something else, in the place of a number. */
static size_t change_number(uint8_t *bytes, size_t n_bytes)
{
    const char *token = tokens[below(sizeof tokens / sizeof *tokens)];
    size_t at = place(n_bytes), n = 0;
    while (at < n_bytes && !(bytes[at] >= '0' && bytes[at] <= '9')) at++;
    while (at + n < n_bytes && bytes[at + n] && is_number(bytes[at + n])) n++;
    return splice(bytes, n_bytes, at, n, (const uint8_t *)token, strlen(token));
}

static size_t change(uint8_t *bytes, size_t n_bytes)
{
    const size_t at = place(n_bytes), n = 1 + below(below(4) ? 8 : 512);
    const entry *other = &corpus[below((size_t)n_files)];
    const char *token = tokens[below(sizeof tokens / sizeof *tokens)];
    const size_t from = below(other->n_bytes), left = other->n_bytes - from;
    switch (below(9)) {
    case 0: return n_bytes ? (bytes[at] ^= (uint8_t)(1u << below(8)), n_bytes) : 0;
    case 1: return n_bytes ? (bytes[at] = (uint8_t)next_random(), n_bytes) : 0;
    case 2: return splice(bytes, n_bytes, at, n, bytes, 0);
    case 3: return splice(bytes, n_bytes, at, 0, bytes + at, n < n_bytes - at ? n : n_bytes - at);
    case 4: return splice(bytes, n_bytes, at, 0, (const uint8_t *)token, strlen(token));
    case 5: return splice(bytes, n_bytes, at, n, other->bytes + from, n < left ? n : left);
    case 6: return below(8) ? n_bytes : at;
    default: return change_number(bytes, n_bytes);
    }
}

/* Each input follows from the seed and its number alone; QDR_TEST_FIRST begins at another than the first. */
static void run_random(void)
{
    static uint8_t bytes[MAX_BYTES];
    state = seed + 0x632be59bd9b4e019u * (uint64_t)number;
    const entry *file = &corpus[below((size_t)n_files)];
    size_t n_bytes = file->n_bytes;
    memcpy(bytes, file->bytes, n_bytes);
    for (size_t n = 1 + below(6); n > 0; n--) n_bytes = change(bytes, n_bytes);
    run_once(bytes, n_bytes);
}

int main(int argc, char **argv)
{
    const int is_random = argc > 3 && strcmp(argv[1], "--random") == 0;
    const long long n_random = is_random ? atoll(argv[2]) : 0;
    const char *text = getenv("QDR_TEST_SEED");
    seed = text ? strtoull(text, NULL, 10) : (unsigned long long)time(NULL);
    for (int i = is_random ? 3 : 1; i < argc; i++) load_folder(argv[i]);
    const int signals[] = {SIGALRM, SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) signal(signals[i], report);
    if (is_random) {
        printf("QDR_TEST_SEED=%llu\n", seed);
        const char *first = getenv("QDR_TEST_FIRST");
        for (number = first ? atoll(first) : 0; n_files && number < n_random;) run_random();
    } else {
        for (int i = 0; i < n_files; i++) run_variants(&corpus[i]);
    }
    printf("%d files, %lld inputs, the slowest %.3f s of processor time\n", n_files, number, slowest_secs);
    for (int i = 0; i < n_files; i++) free(corpus[i].bytes);
    return n_files > 0 ? 0 : 1; /* an empty corpus is a mistake */
}
