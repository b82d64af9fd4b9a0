/* SPDX-License-Identifier: Apache-2.0 */
/* What `quadrille doctor` finds: a list, each with what to do next if anything is. */
#ifndef QUADRILLE_SRC_DOCTOR_H
#define QUADRILLE_SRC_DOCTOR_H

#include <quadrille/environment.h>
#include <quadrille/gpu.h>
#include <quadrille/topo.h>
#include <stdio.h>

typedef enum doctor_state {
    DOCTOR_GOOD, /* nothing to do */
    DOCTOR_NOTE, /* it works, and could be better */
    DOCTOR_BROKEN /* this machine has it, and it does not work */
} doctor_state;

typedef struct doctor_finding {
    const char *group; /* a word of doctor_*.c */
    char name[40];
    doctor_state state;
    char text[640], remedy[512]; /* remedy "": none */
    double secs; /* of what was tried; < 0: nothing was */
} doctor_finding;

typedef struct doctor_report {
    int n, capacity;
    int is_short; /* of memory: findings are missing */
    doctor_finding *findings;
    qdr_gpu_report gpus;
    qdr_topo *topo; /* NULL: it cannot be read */
    char **variables; /* "NAME=VALUE" as the doctor found them, by name, up to NULL */
} doctor_report;

/* Adds a finding of no time; it is the list's until the next is added. Without memory it is one that nobody sees. */
doctor_finding *doctor_add(doctor_report *report, const char *group, const char *name, doctor_state state,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));
/* What to do about it. Returns the finding. */
doctor_finding *doctor_advise(doctor_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same with a sentence of the library: what is behind its first semicolon is the remedy. */
doctor_finding *doctor_add_sentence(doctor_report *report, const char *group, const char *name, doctor_state state,
                                    const char *sentence);

/* doctor_build.c: what this build is made of. */
void doctor_find_build(doctor_report *report);
/* doctor_gpus.c: driver, GPUs, links, libraries. */
void doctor_find_gpus(doctor_report *report);
/* doctor_machine.c: cores, memory, limits. */
void doctor_find_machine(doctor_report *report);
/* doctor_environment.c: variables, as they are now. */
void doctor_find_environment(doctor_report *report);
/* doctor_try.c: small products and sums. */
void doctor_try_all(doctor_report *report);
/* The sum of two ranks. @return whether it was tried, and is right */
int doctor_try_sum(doctor_report *report, const char *device, const char *name);
/* doctor_nccl.c: two ranks with a GPU each. Takes the library's log for itself. */
void doctor_try_nccl(doctor_report *report);

/* Whether the library computes on a GPU of this number. */
int doctor_can_use(const qdr_gpu_report *gpus, int number);

/* A limit of this process, by a name of its own. */
typedef struct doctor_limit {
    const char *name, *text; /* of the JSON object; as people call it */
    int resource; /* of getrlimit() */
    double unit; /* that `ulimit` counts in; 1: things */
    double least; /* below it there is a remedy */
    const char *remedy;
} doctor_limit;
extern const doctor_limit doctor_limits[]; /* up to name = NULL */
/* The limit that holds now; INFINITY: none; < 0: unknown. */
double doctor_limit_now(const doctor_limit *limit);

/* Calls `see` for each variable that was found and matters, in alphabetical order. */
void doctor_for_variables(const doctor_report *report, void (*see)(const char *name, const char *value, void *user),
                          void *user);

/* doctor_text.c, doctor_json.c: whether all could be written. */
int doctor_print(FILE *file, const doctor_report *report);
int doctor_write_json(FILE *file, const doctor_report *report);
int doctor_count(const doctor_report *report, doctor_state state);
const char *doctor_state_name(doctor_state state); /* "ok", "note", "broken" */
/* "80.0 GiB", "64 KiB"; whole if it is. */
void doctor_bytes_text(double bytes, char text[24]);

#endif
