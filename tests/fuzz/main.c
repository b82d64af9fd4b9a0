/* SPDX-License-Identifier: Apache-2.0 */
/* Replays a corpus through a fuzz target where no fuzzing engine is linked: each file of each folder named, whole, cut
 * short at every length up to 256, and with each of its first 256 bytes changed. usage: TARGET FOLDER... */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes);

#define MAX_BYTES 65536

/* In an allocation of its own, so that a sanitizer sees any step beyond the end. */
static void run_once(const uint8_t *bytes, size_t n_bytes)
{
    uint8_t *exact = malloc(n_bytes ? n_bytes : 1);
    if (!exact) exit(1);
    memcpy(exact, bytes, n_bytes);
    LLVMFuzzerTestOneInput(exact, n_bytes);
    free(exact);
}

static void run_variants(uint8_t *bytes, size_t n_bytes)
{
    static const uint8_t changes[] = {0x01, 0x10, 0x80, 0xff};
    const size_t n_places = n_bytes < 256 ? n_bytes : 256;
    run_once(bytes, n_bytes);
    for (size_t i = 0; i < n_places; i++) {
        run_once(bytes, i);
        for (size_t j = 0; j < sizeof changes; j++) {
            bytes[i] ^= changes[j];
            run_once(bytes, n_bytes);
            bytes[i] ^= changes[j];
        }
    }
}

static int replay_file(const char *folder, const char *name)
{
    static uint8_t bytes[MAX_BYTES];
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "rb");
    if (!file) return 0;
    const size_t n_bytes = fread(bytes, 1, sizeof bytes, file);
    fclose(file);
    run_variants(bytes, n_bytes);
    return 1;
}

static int replay_folder(const char *folder)
{
    int n_files = 0;
    DIR *dir = opendir(folder);
    if (!dir) return 0;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;)
        if (entry->d_name[0] != '.') n_files += replay_file(folder, entry->d_name);
    closedir(dir);
    return n_files;
}

int main(int argc, char **argv)
{
    int n_files = 0;
    for (int i = 1; i < argc; i++) n_files += replay_folder(argv[i]);
    printf("%d files replayed\n", n_files);
    return n_files > 0 ? 0 : 1; /* an empty corpus is a mistake */
}
