/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables. */
#define _GNU_SOURCE /* secure_getenv */
#include "core/environment.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/device_name.h"
#include "core/log.h"
#include "quadrille/names.h"

extern char **environ;

#define PREFIX "QDR_"
#define TEST_PREFIX "QDR_TEST_"
enum { MOST_WORDS = 4 };

typedef enum kind { TEXT, WORD, INTEGER, NUMBER, DEVICE } kind;

typedef struct entry {
    const char *name;
    kind kind;
    const char *values, *initial, *room, *meaning;
    const char *words[MOST_WORDS + 1]; /* WORD */
    double least, most; /* INTEGER and NUMBER */
} entry;

#define FLAG .kind = WORD, .values = "0 or 1", .words = {"0", "1"}

static const entry table[QDRI_N_VARIABLES] = {
    [QDRI_VARIABLE_ATTENTION] = {.name = "QDR_ATTENTION",
                                 .kind = WORD,
                                 .values = "auto, own or cudnn",
                                 .initial = "auto",
                                 .room = "GPU",
                                 .meaning = "the kernels that compute attention; auto is own",
                                 .words = {"auto", "own", "cudnn"}},
    [QDRI_VARIABLE_CHECK] = {.name = "QDR_CHECK",
                             FLAG,
                             .initial = "0",
                             .room = "context",
                             .meaning = "ranks compare each collective before it runs; rank 0's value applies"},
    [QDRI_VARIABLE_CUDA_COMM] = {.name = "QDR_CUDA_COMM",
                                 .kind = WORD,
                                 .values = "auto, nccl, mpi or local",
                                 .initial = "auto",
                                 .room = "GPU",
                                 .meaning = "how the GPUs of a context communicate; rank 0's value applies",
                                 .words = {"auto", "nccl", "mpi", "local"}},
    [QDRI_VARIABLE_CUDA_MEMORY] = {.name = "QDR_CUDA_MEMORY",
                                   .kind = WORD,
                                   .values = "device or managed",
                                   .initial = "device",
                                   .room = "GPU",
                                   .meaning = "managed: the host can read a GPU's memory too; slower, for tests",
                                   .words = {"device", "managed"}},
    [QDRI_VARIABLE_CUDA_PLUGIN] = {.name = "QDR_CUDA_PLUGIN",
                                   .kind = TEXT,
                                   .values = "a file",
                                   .initial = "",
                                   .room = "GPU",
                                   .meaning = "the CUDA plugin; if not set, libquadrille_cuda.so is searched for"},
    [QDRI_VARIABLE_CUDNN] = {.name = "QDR_CUDNN",
                             .kind = TEXT,
                             .values = "a file",
                             .initial = "",
                             .room = "GPU",
                             .meaning = "cuDNN's library; if not set, libcudnn.so.9 is searched for"},
    [QDRI_VARIABLE_DATA_PATH] = {.name = "QDR_DATA_PATH",
                                 .kind = TEXT,
                                 .values = "folders separated by colons",
                                 .initial = "",
                                 .room = "model",
                                 .meaning = "searched for models and machines before the installed ones"},
    [QDRI_VARIABLE_DEBUG] = {.name = "QDR_DEBUG",
                             .kind = INTEGER,
                             .values = "a whole number from 0 to 3",
                             .initial = "1",
                             .room = "log",
                             .meaning =
                                 "the highest level that is logged: 0 errors, 1 warnings, 2 information, 3 details",
                             .least = 0,
                             .most = 3},
    [QDRI_VARIABLE_DEVICE] = {.name = "QDR_DEVICE",
                              .kind = DEVICE,
                              .values = "cpu, cuda, or cuda:N for GPU N",
                              .initial = "cpu",
                              .room = "context",
                              .meaning = "the device of contexts whose options name none"},
    [QDRI_VARIABLE_FUSE_GELU] = {.name = "QDR_FUSE_GELU",
                                 FLAG,
                                 .initial = "1",
                                 .room = "GPU",
                                 .meaning = "products compute the GELU that follows them"},
    [QDRI_VARIABLE_MACHINE] =
        {.name = "QDR_MACHINE",
         .kind = TEXT,
         .values = "a machine's name or file",
         .initial = "laptop",
         .room = "model",
         .meaning = "the machine for which a grid is chosen and QDR_REPORT predicts; rank 0's value applies"},
    [QDRI_VARIABLE_NCCL_MAX_CTAS] =
        {.name = "QDR_NCCL_MAX_CTAS",
         .kind = INTEGER,
         .values = "a whole number from 1 to 64",
         .initial = "",
         .room = "GPU",
         .meaning = "thread blocks of each NCCL communicator; if not set, as many as fit; rank 0's value applies",
         .least = 1,
         .most = 64},
    [QDRI_VARIABLE_NCCL_REGISTER] = {.name = "QDR_NCCL_REGISTER",
                                     FLAG,
                                     .initial = "1",
                                     .room = "GPU",
                                     .meaning = "NCCL allocates and registers the memory of stacks"},
    [QDRI_VARIABLE_NVTX] = {.name = "QDR_NVTX",
                            FLAG,
                            .initial = "0",
                            .room = "GPU",
                            .meaning = "named ranges for profilers, even if none is attached"},
    [QDRI_VARIABLE_REPORT] = {.name = "QDR_REPORT",
                              FLAG,
                              .initial = "0",
                              .room = "stack",
                              .meaning = "rank 0 prints predicted and measured times of each stack"},
    [QDRI_VARIABLE_TF32] = {.name = "QDR_TF32",
                            FLAG,
                            .initial = "0",
                            .room = "GPU",
                            .meaning = "products of f32 may round their operands to TF32"},
    [QDRI_VARIABLE_TIMEOUT] = {.name = "QDR_TIMEOUT",
                               .kind = NUMBER,
                               .values = "seconds from 0 to 1000000",
                               .initial = "0",
                               .room = "context",
                               .meaning = "how long a rank waits for others; 0: no limit; rank 0's value applies",
                               .least = 0,
                               .most = 1e6},
    [QDRI_VARIABLE_TRACE] = {.name = "QDR_TRACE",
                             .kind = TEXT,
                             .values = "a file",
                             .initial = "",
                             .room = "context",
                             .meaning =
                                 "each rank writes FILE.RANK with the times of its tasks; rank 0's value applies"},
    [QDRI_VARIABLE_TUNE] = {.name = "QDR_TUNE",
                            .kind = TEXT,
                            .values = "a file, or off",
                            .initial = "off",
                            .room = "stack",
                            .meaning = "the file of measured choices of weight storage; rank 0's value applies"},
};

/* ---- reading ---- */

const char *qdri_environment_text(qdri_variable variable)
{
    const char *text = secure_getenv(table[variable].name);
    return text && *text ? text : NULL;
}

static const char *in_force(qdri_variable variable)
{
    const char *text = qdri_environment_text(variable);
    return text ? text : table[variable].initial;
}

static int find_word(const entry *e, const char *text)
{
    for (int i = 0; e->words[i]; i++)
        if (strcmp(e->words[i], text) == 0) return i;
    return -1;
}

/* Must begin with a digit: strtod() also accepts blanks, signs, hexadecimal numbers, "inf" and "nan". */
static int read_number(const entry *e, const char *text, double *number)
{
    char *end = NULL;
    const size_t n_digits = strspn(text, "0123456789");
    const size_t length = strspn(text, "0123456789.eE+-");
    if (n_digits == 0 || text[e->kind == INTEGER ? n_digits : length]) return 0;
    *number = strtod(text, &end);
    return !*end && *number >= e->least && *number <= e->most;
}

static int is_understood(const entry *e, const char *text)
{
    double number = 0;
    int gpu = 0;
    switch (e->kind) {
    case WORD: return find_word(e, text) >= 0;
    case INTEGER:
    case NUMBER: return read_number(e, text, &number);
    case DEVICE: return qdri_device_name_read(text, &gpu) != QDRI_DEVICE_UNKNOWN;
    default: return 1;
    }
}

static qdr_status check(qdri_variable variable)
{
    const entry *e = &table[variable];
    const char *text = qdri_environment_text(variable);
    if (!text || is_understood(e, text)) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "environment: %s is \"%.40s\"; use %s, or unset it (%s)", e->name, text,
                    e->values, e->meaning);
}

qdr_status qdri_environment_choice(qdri_variable variable, int *choice)
{
    *choice = 0;
    QDR_TRY(check(variable));
    *choice = find_word(&table[variable], in_force(variable));
    return QDR_OK;
}

qdr_status qdri_environment_number(qdri_variable variable, double *number)
{
    *number = 0;
    QDR_TRY(check(variable));
    (void)read_number(&table[variable], in_force(variable), number);
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
    if (!variable) return QDR_FAIL(QDR_ERR_ARGUMENT, "environment: the variable pointer is NULL");
    *variable = (qdr_variable){0};
    if (number < 0 || number >= QDRI_N_VARIABLES)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "environment: there is no variable %d; use 0 to %d", number,
                        QDRI_N_VARIABLES - 1);
    const entry *e = &table[number];
    const char *text = qdri_environment_text((qdri_variable)number);
    *variable = (qdr_variable){.name = e->name,
                               .values = e->values,
                               .initial = e->initial,
                               .room = e->room,
                               .meaning = e->meaning,
                               .value = text ? text : e->initial,
                               .is_set = text != NULL,
                               .is_understood = !text || is_understood(e, text)};
    return QDR_OK;
}

static int find_name(const char *name, size_t letters)
{
    for (int i = 0; i < QDRI_N_VARIABLES; i++)
        if (strlen(table[i].name) == letters && strncmp(table[i].name, name, letters) == 0) return i;
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

/* Compares without the prefix that all share, which would make all names similar. */
static void find_nearest(const char *name, char *nearest, size_t bytes)
{
    const char *names[QDRI_N_VARIABLES];
    for (int i = 0; i < QDRI_N_VARIABLES; i++) names[i] = table[i].name + strlen(PREFIX);
    (void)qdr_names_nearest(name + strlen(PREFIX), names, QDRI_N_VARIABLES, 1, nearest, bytes);
}

int qdr_environment_unknown(int number, char *sentence, size_t bytes)
{
    char name[64], nearest[64];
    if (sentence && bytes) *sentence = '\0';
    for (char **variable = environ; variable && *variable; variable++) {
        if (!is_unknown(*variable) || number-- > 0) continue;
        snprintf(name, sizeof name, "%.*s", (int)strcspn(*variable, "="), *variable);
        find_nearest(name, nearest, sizeof nearest);
        if (sentence && bytes)
            snprintf(sentence, bytes, "%s is not a variable of Quadrille%s%s%see quadrille env", name,
                     *nearest ? "; did you mean " PREFIX : "", nearest, *nearest ? "? S" : "; s");
        return 1;
    }
    return 0;
}

/* FNV-1a; 0 if there are none. */
static uint64_t hash_unknown(void)
{
    uint64_t hash = 0;
    for (char **variable = environ; variable && *variable; variable++) {
        if (!is_unknown(*variable)) continue;
        uint64_t own = UINT64_C(14695981039346656037);
        for (const char *c = *variable; *c && *c != '='; c++) own = (own ^ (unsigned char)*c) * UINT64_C(1099511628211);
        hash += own;
    }
    return hash;
}

void qdri_environment_warn(void)
{
    static _Atomic uint64_t last;
    char sentence[256];
    const uint64_t hash = hash_unknown();
    if (atomic_exchange(&last, hash) == hash) return;
    for (int i = 0; qdr_environment_unknown(i, sentence, sizeof sentence); i++)
        qdri_log(QDRI_LOG_WARNING, "environment: %s", sentence);
}
