/* SPDX-License-Identifier: Apache-2.0 */
/* What fuzz targets share. */
#ifndef QUADRILLE_TESTS_FUZZ_H
#define QUADRILLE_TESTS_FUZZ_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The target. Aborts where a reader breaks a promise. */
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

static inline void require(int holds)
{
    if (!holds) abort();
}

/* One line of printable ASCII. */
static inline void check_printable(const char *sentence)
{
    require(*sentence != '\0');
    for (const char *letter = sentence; *letter; letter++) require(*letter >= ' ' && *letter <= '~');
}

/* A scratch file that holds these bytes, for readers that take a path; the same one at each call, gone at exit. `ending`
 * is the same at each call. */
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
