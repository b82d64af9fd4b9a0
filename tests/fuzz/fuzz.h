/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the fuzz targets. */
#ifndef QUADRILLE_TESTS_FUZZ_H
#define QUADRILLE_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The target. Aborts where a reader breaks a promise. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

/* Aborts, and says what does not hold. */
#define require(holds) ((holds) ? (void)0 : fuzz_fail(#holds, __FILE__, __LINE__))

static inline void fuzz_fail(const char *what, const char *file, int line)
{
    fprintf(stderr, "%s:%d: %s does not hold\n", file, line, what);
    abort();
}

/* One line; names of files and the like may hold more than ASCII. */
static inline void check_line(const char *sentence)
{
    require(*sentence != '\0');
    for (const char *letter = sentence; *letter; letter++) require((unsigned char)*letter >= ' ' && *letter != 0x7f);
}

/* One line of printable ASCII. */
static inline void check_printable(const char *sentence)
{
    check_line(sentence);
    for (const char *letter = sentence; *letter; letter++) require(*letter <= '~' && *letter >= ' ');
}

/* A scratch file that holds these bytes, for readers that take a path: the same at each call, gone at exit. `ending`
 * does not change either. */
static char fuzz_path[64];

static inline void fuzz_remove_file(void) { unlink(fuzz_path); }

static inline const char *fuzz_file(const uint8_t *bytes, size_t n_bytes, const char *ending)
{
    if (!*fuzz_path) {
        snprintf(fuzz_path, sizeof fuzz_path, "/tmp/qdr_fuzz_%ld%s", (long)getpid(), ending);
        atexit(fuzz_remove_file);
    }
    FILE *file = fopen(fuzz_path, "wb");
    require(file && fwrite(bytes, 1, n_bytes, file) == n_bytes && fclose(file) == 0);
    return fuzz_path;
}

#endif
