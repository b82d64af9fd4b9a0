/* SPDX-License-Identifier: Apache-2.0 */
/* The findings of `quadrille doctor`: a list of results, each with a remedy if one is needed. */
#ifndef QUADRILLE_SRC_DOCTOR_DOCTOR_H
#define QUADRILLE_SRC_DOCTOR_DOCTOR_H

#include <quadrille/environment.h>
#include <quadrille/gpu.h>
#include <quadrille/topo.h>
#include <stdint.h>
#include <stdio.h>

#include "common/failure.h"

typedef enum doctor_state {
    DOCTOR_GOOD, /* nothing to do */
    DOCTOR_NOTE, /* works, but could be better */
    DOCTOR_BROKEN, /* present on this machine, but does not work */
    DOCTOR_NONE /* not there and not needed, or not tried */
} doctor_state;

typedef struct doctor_finding {
    const char *group; /* defined in doctor_*.c */
    char name[40];
    doctor_state state;
    char text[640], remedy[512]; /* remedy "": none */
    double secs; /* of what was tried; < 0: nothing was tried */
} doctor_finding;

typedef struct doctor_report {
    int n;
    int64_t capacity;
    int is_short; /* out of memory: findings are missing */
    doctor_finding *findings;
    qdr_gpu_report gpus;
    qdr_gpu gpu[QDR_MAX_GPUS]; /* by number */
    qdr_topo *topo; /* NULL: cannot be read */
    char **variables; /* "NAME=VALUE" at the start of the doctor, sorted by name, ending with NULL */
} doctor_report;

/* Adds a finding without a time. The pointer is valid until the next finding is added. If out of memory, returns a
 * dummy that is never shown. */
doctor_finding *doctor_add(doctor_report *report, const char *group, const char *name, doctor_state state,
                           const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Sets the remedy. */
void doctor_advise(doctor_finding *finding, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The same for a message of the library: what follows its first semicolon is the remedy. */
void doctor_add_sentence(doctor_report *report, const char *group, const char *name, doctor_state state,
                         const char *sentence);

/* gpus.c: driver, GPUs, links, libraries. */
void doctor_find_gpus(doctor_report *report);
/* try.c: small products and sums, also with NCCL. Replaces the library's log function. */
void doctor_try_all(doctor_report *report);

/* Whether the library can compute on the GPU with this number. */
int doctor_can_use(const doctor_report *report, int number);

/* "ok", "note", "broken", "none" */
const char *doctor_state_name(doctor_state state);
int doctor_count(const doctor_report *report, doctor_state state);
/* "80.0 GiB", "64 KiB"; without decimals if it is whole. */
void doctor_bytes_text(double bytes, char text[24]);

#endif
