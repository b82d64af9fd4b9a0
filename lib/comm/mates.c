/* SPDX-License-Identifier: Apache-2.0 */
/* The other processes of a job on this node: children of the same process, with a rank in their environment. */
#include "comm/mates.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_NAMED = 4, PATH_BYTES = 320 };

static const char *const rank_variables[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK",
                                             "SLURM_PROCID"};
enum { N_RANK_VARIABLES = sizeof rank_variables / sizeof *rank_variables };

int qdri_mates_rank(void)
{
    for (int i = 0; i < N_RANK_VARIABLES; i++) {
        const char *value = getenv(rank_variables[i]);
        if (value && *value) return (int)strtol(value, NULL, 10);
    }
    return -1;
}

/* ---- what /proc says of a process ---- */

/* Its state's letter and its parent; 0: there is none. */
static char read_state(const char *process, long *parent)
{
    char path[PATH_BYTES], line[512] = "";
    snprintf(path, sizeof path, "/proc/%s/stat", process);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    (void)!fgets(line, sizeof line, file);
    fclose(file);
    const char *end = strrchr(line, ')'); /* the name before it may contain anything */
    if (!end || end[1] != ' ' || !end[2]) return 0;
    *parent = strtol(end + 3, NULL, 10);
    return end[2];
}

/* Its rank; -1: its launcher gave it none. */
static int read_rank(const char *process)
{
    char path[PATH_BYTES], *line = NULL;
    size_t capacity = 0;
    int rank = -1;
    snprintf(path, sizeof path, "/proc/%s/environ", process);
    FILE *file = fopen(path, "r");
    while (file && rank < 0 && getdelim(&line, &capacity, '\0', file) > 0)
        for (int i = 0; i < N_RANK_VARIABLES; i++) {
            const size_t length = strlen(rank_variables[i]);
            if (strncmp(line, rank_variables[i], length) == 0 && line[length] == '=')
                rank = (int)strtol(line + length + 1, NULL, 10);
        }
    free(line);
    if (file) fclose(file);
    return rank;
}

static int has_thread(const char *process, const char *name)
{
    char path[PATH_BYTES], line[32];
    int found = 0;
    snprintf(path, sizeof path, "/proc/%s/task", process);
    DIR *folder = opendir(path);
    for (struct dirent *entry; !found && folder && (entry = readdir(folder));) {
        snprintf(path, sizeof path, "/proc/%s/task/%.20s/comm", process, entry->d_name);
        FILE *file = fopen(path, "r");
        if (!file) continue;
        if (fgets(line, sizeof line, file)) {
            line[strcspn(line, "\n")] = '\0';
            found = strcmp(line, name) == 0;
        }
        fclose(file);
    }
    if (folder) closedir(folder);
    return found;
}

/* What keeps it from the others; NULL: nothing, or it is none of the job. */
static const char *find_trouble(const char *process, const char *thread)
{
    long parent = 0;
    const char state = read_state(process, &parent);
    if (parent != (long)getppid() || strtol(process, NULL, 10) == (long)getpid()) return NULL;
    if (state == 'T' || state == 't') return "is stopped";
    if (state == 'Z') return "has ended";
    return thread && !has_thread(process, thread) ? "is elsewhere" : NULL;
}

int qdri_mates_missing(const char *thread, char *text, size_t bytes)
{
    int n = 0;
    size_t used = 0;
    DIR *folder = opendir("/proc");
    text[0] = '\0';
    for (struct dirent *entry; folder && (entry = readdir(folder));) {
        const char *process = entry->d_name;
        const char *trouble = *process >= '1' && *process <= '9' ? find_trouble(process, thread) : NULL;
        const int rank = trouble ? read_rank(process) : -1;
        if (rank < 0 || ++n > MOST_NAMED) continue;
        snprintf(text + used, bytes - used, "%srank %d (process %.20s) %s", n > 1 ? ", " : "", rank, process, trouble);
        used = strlen(text);
    }
    if (folder) closedir(folder);
    if (n > MOST_NAMED) snprintf(text + used, bytes - used, " and %d more", n - MOST_NAMED);
    return n;
}
