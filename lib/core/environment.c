/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables: their values, and what is wrong with them. */
#include "core/environment.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "core/sized.h"
#include "core/variables.h"
#include "quadrille_private/names.h"

extern char **environ;

#define PREFIX "QDR_"
#define TEST_PREFIX "QDR_TEST_"
enum { MOST_GPUS = 1024 };

qdri_device_kind qdri_device_name_read(const char *name, int *gpu)
{
    char *end = NULL;
    *gpu = -1;
    if (strcmp(name, "cpu") == 0) return QDRI_DEVICE_CPU;
    if (strcmp(name, "cuda") == 0) return QDRI_DEVICE_CUDA;
    if (strncmp(name, "cuda:", 5) != 0 || name[5] < '0' || name[5] > '9') return QDRI_DEVICE_UNKNOWN;
    const long number = strtol(name + 5, &end, 10);
    if (*end || number >= MOST_GPUS) return QDRI_DEVICE_UNKNOWN;
    *gpu = (int)number;
    return QDRI_DEVICE_CUDA;
}

/* ---- reading ---- */

static const char *in_force(qdri_variable variable)
{
    const char *text = qdri_environment_text(variable);
    return text ? text : qdri_variables[variable].initial;
}

static int find_word(const qdri_variable_entry *e, const char *text)
{
    for (int i = 0; e->words[i]; i++)
        if (strcmp(e->words[i], text) == 0) return i;
    return -1;
}

/* Must begin with a digit: strtod() also accepts blanks, signs, hexadecimal numbers, "inf" and "nan". */
static int read_number(const qdri_variable_entry *e, const char *text, double *number)
{
    char *end = NULL;
    const size_t n_digits = strspn(text, "0123456789");
    const size_t length = strspn(text, "0123456789.eE+-");
    if (n_digits == 0 || text[e->kind == QDRI_VARIABLE_IS_INTEGER ? n_digits : length]) return 0;
    *number = strtod(text, &end);
    return !*end && *number >= e->least && *number <= e->most;
}

static int is_understood(const qdri_variable_entry *e, const char *text)
{
    double number = 0;
    int gpu = 0;
    switch (e->kind) {
    case QDRI_VARIABLE_IS_WORD: return find_word(e, text) >= 0;
    case QDRI_VARIABLE_IS_INTEGER:
    case QDRI_VARIABLE_IS_NUMBER: return read_number(e, text, &number);
    case QDRI_VARIABLE_IS_DEVICE: return qdri_device_name_read(text, &gpu) != QDRI_DEVICE_UNKNOWN;
    default: return 1;
    }
}

static qdr_status check(qdri_variable variable)
{
    const qdri_variable_entry *e = &qdri_variables[variable];
    const char *text = qdri_environment_text(variable);
    if (!text || is_understood(e, text)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "environment: %s is \"%.40s\"; use %s, or unset it (%s)", e->name, text,
                    e->values, e->meaning);
}

qdr_status qdri_environment_choice(qdri_variable variable, int *choice)
{
    *choice = 0;
    QDR_TRY(check(variable));
    *choice = find_word(&qdri_variables[variable], in_force(variable));
    return QDR_OK;
}

qdr_status qdri_environment_number(qdri_variable variable, double *number)
{
    *number = 0;
    QDR_TRY(check(variable));
    (void)read_number(&qdri_variables[variable], in_force(variable), number);
    return QDR_OK;
}

qdr_status qdr_environment_check(void)
{
    for (int i = 0; i < QDRI_N_VARIABLES; i++) QDR_TRY(check((qdri_variable)i));
    return QDR_OK;
}

/* ---- the table for callers ---- */

int qdr_environment_size(void) { return QDRI_N_VARIABLES; }

qdr_status qdr_environment_variable(int number, qdr_variable *variable)
{
    QDR_TRY(QDRI_CLEAR(qdr_variable, variable));
    if (number < 0 || number >= QDRI_N_VARIABLES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "environment: there is no variable %d; use 0 to %d", number,
                        QDRI_N_VARIABLES - 1);
    const qdri_variable_entry *e = &qdri_variables[number];
    const char *text = qdri_environment_text((qdri_variable)number);
    const qdr_variable own = {.name = e->name,
                              .values = e->values,
                              .initial = e->initial,
                              .room = e->room,
                              .meaning = e->meaning,
                              .value = text ? text : e->initial,
                              .is_set = text != NULL,
                              .is_understood = !text || is_understood(e, text)};
    QDRI_GIVE(qdr_variable, variable, &own);
    return QDR_OK;
}

static int find_name(const char *name, size_t letters)
{
    for (int i = 0; i < QDRI_N_VARIABLES; i++)
        if (strlen(qdri_variables[i].name) == letters && strncmp(qdri_variables[i].name, name, letters) == 0) return i;
    return -1;
}

const char *qdr_environment_value(const char *name)
{
    const int number = name ? find_name(name, strlen(name)) : -1;
    return number < 0 ? NULL : in_force((qdri_variable)number);
}

/* ---- unknown variables ---- */

static int is_unknown(const char *variable)
{
    if (strncmp(variable, PREFIX, strlen(PREFIX)) != 0) return 0;
    if (strncmp(variable, TEST_PREFIX, strlen(TEST_PREFIX)) == 0) return 0;
    return find_name(variable, strcspn(variable, "=")) < 0;
}

int qdr_environment_unknown(int number, char *sentence, size_t bytes)
{
    char name[64], nearest[64];
    /* Compared without the prefix that all share, which would make all names similar. */
    const char *names[QDRI_N_VARIABLES];
    for (int i = 0; i < QDRI_N_VARIABLES; i++) names[i] = qdri_variables[i].name + strlen(PREFIX);
    if (sentence && bytes) *sentence = '\0';
    for (char **variable = environ; variable && *variable; variable++) {
        if (!is_unknown(*variable) || number-- > 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*variable, "="), *variable);
        (void)qdr_names_nearest(name + strlen(PREFIX), names, QDRI_N_VARIABLES, 1, nearest, sizeof nearest);
        if (sentence && bytes)
            snprintf(sentence, bytes, "%s is not a variable of Quadrille%s%s%see quadrille env", name,
                     *nearest ? "; did you mean " PREFIX : "", nearest, *nearest ? "? S" : "; s");
        return 1;
    }
    return 0;
}

void qdri_environment_warn(void)
{
    static _Atomic uint64_t last;
    char sentence[256];
    uint64_t hash = 0; /* FNV-1a of the unknown ones; 0 if there are none */
    for (char **variable = environ; variable && *variable; variable++) {
        if (!is_unknown(*variable)) continue;
        uint64_t own = UINT64_C(14695981039346656037);
        for (const char *c = *variable; *c && *c != '='; c++) own = (own ^ (unsigned char)*c) * UINT64_C(1099511628211);
        hash += own;
    }
    if (atomic_exchange(&last, hash) == hash) return;
    for (int i = 0; qdr_environment_unknown(i, sentence, sizeof sentence); i++)
        qdri_log(QDRI_LOG_WARNING, "environment: %s", sentence);
}
