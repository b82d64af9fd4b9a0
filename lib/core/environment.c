/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables. */
#define _GNU_SOURCE /* secure_getenv */
#include "core/environment.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/log.h"
#include "quadrille/names.h"

extern char **environ;

#define PREFIX "QDR_"
#define TEST_PREFIX "QDR_TEST_"
enum { MOST_WORDS = 4, MOST_GPUS = 1024 };

typedef enum kind { TEXT, WORD, INTEGER, NUMBER, DEVICE } kind;

typedef struct entry {
    const char *name, *initial, *room, *meaning;
    kind kind;
    const char *values;
    const char *words[MOST_WORDS + 1]; /* WORD */
    double least, most; /* INTEGER and NUMBER */
} entry;

#define FLAG WORD, "0 or 1", .words = {"0", "1"}

static const entry table[QDRI_N_VARIABLES] = {
    [QDRI_VARIABLE_ATTENTION] = {"QDR_ATTENTION", "auto", "GPU",
                                 "the kernels that compute attention; auto is cuDNN where records show it to be faster",
                                 WORD, "auto, own or cudnn", .words = {"auto", "own", "cudnn"}},
    [QDRI_VARIABLE_CHECK] = {"QDR_CHECK", "0", "context",
                             "ranks compare each collective before it runs; rank 0's value applies", FLAG},
    [QDRI_VARIABLE_CODEC] = {"QDR_CODEC", "none", "stack",
                             "how stacks whose options name no codecs shorten messages between nodes; rank 0's value "
                             "applies",
                             TEXT, .values = "a preset or codecs, as for qdr_codecs_parse()"},
    [QDRI_VARIABLE_CODEC_CHECK] = {"QDR_CODEC_CHECK", "0", "stack",
                                   "on CPUs, what codecs send is decoded and compared with their bounds, and members "
                                   "compare what they receive; applies where any rank sets it; GPUs refuse codecs then",
                                   FLAG},
    [QDRI_VARIABLE_CUDA_COMM] = {"QDR_CUDA_COMM", "auto", "GPU",
                                 "how the GPUs of a context communicate; rank 0's value applies", WORD,
                                 "auto, nccl, mpi or local", .words = {"auto", "nccl", "mpi", "local"}},
    [QDRI_VARIABLE_CUDA_MEMORY] = {"QDR_CUDA_MEMORY", "device", "GPU",
                                   "managed: the host can read a GPU's memory too; slower, for tests", WORD,
                                   "device or managed", .words = {"device", "managed"}},
    [QDRI_VARIABLE_CUDA_PLUGIN] = {"QDR_CUDA_PLUGIN", "", "GPU",
                                   "the CUDA plugin; if not set, libquadrille_cuda.so is searched for", TEXT,
                                   .values = "a file"},
    [QDRI_VARIABLE_CUDNN] = {"QDR_CUDNN", "", "GPU", "cuDNN's library; if not set, libcudnn.so.9 is searched for", TEXT,
                             .values = "a file"},
    [QDRI_VARIABLE_DATA_PATH] = {"QDR_DATA_PATH", "", "model",
                                 "searched for models, machines and maps before the installed ones", TEXT,
                                 .values = "folders separated by colons"},
    [QDRI_VARIABLE_DEBUG] = {"QDR_DEBUG", "1", "log",
                             "the highest level that is logged: 0 errors, 1 warnings, 2 information, 3 details",
                             INTEGER, "a whole number from 0 to 3", .most = 3},
    [QDRI_VARIABLE_DEVICE] = {"QDR_DEVICE", "cpu", "context", "the device of contexts whose options name none", DEVICE,
                              .values = "cpu, cuda, or cuda:N for GPU N"},
    [QDRI_VARIABLE_FUSE_GELU] = {"QDR_FUSE_GELU", "1", "GPU", "products compute the GELU that follows them", FLAG},
    [QDRI_VARIABLE_KERNELS] =
        {"QDR_KERNELS", "best", "CPU",
         "the highest instruction set that the library's CPU kernels may use (not those of BLAS); results "
         "may differ in their last bits",
         WORD, "best, avx2 or base", .words = {"best", "avx2", "base"}},
    [QDRI_VARIABLE_MACHINE] = {"QDR_MACHINE", "here", "model",
                               "the machine for which grids and panels are chosen and QDR_REPORT predicts; rank 0's "
                               "value applies; here is what quadrille calibrate left for this host, else laptop",
                               TEXT, .values = "a machine's name or file"},
    [QDRI_VARIABLE_NCCL_MAX_CTAS] =
        {"QDR_NCCL_MAX_CTAS", "", "GPU",
         "thread blocks of each NCCL communicator; if not set, as many as fit; rank 0's value applies", INTEGER,
         "a whole number from 1 to 64", .least = 1, .most = 64},
    [QDRI_VARIABLE_NCCL_REGISTER] = {"QDR_NCCL_REGISTER", "1", "GPU",
                                     "NCCL allocates and registers the memory of stacks", FLAG},
    [QDRI_VARIABLE_NVTX] = {"QDR_NVTX", "0", "GPU", "named ranges for profilers, even if none is attached", FLAG},
    [QDRI_VARIABLE_REPORT] = {"QDR_REPORT", "0", "stack", "rank 0 prints predicted and measured times of each stack",
                              FLAG},
    [QDRI_VARIABLE_TF32] = {"QDR_TF32", "0", "GPU", "products of f32 may round their operands to TF32", FLAG},
    [QDRI_VARIABLE_TIMEOUT] = {"QDR_TIMEOUT", "0", "context",
                               "how long a rank waits for others; 0: no limit; rank 0's value applies; quadrille and "
                               "its examples wait 600 s if it is not set",
                               NUMBER, "seconds from 0 to 1000000", .most = 1e6},
    [QDRI_VARIABLE_TRACE] = {"QDR_TRACE", "", "context",
                             "each rank writes FILE.RANK with the times of its tasks; rank 0's value applies", TEXT,
                             .values = "a file"},
    [QDRI_VARIABLE_TUNE] = {"QDR_TUNE", "off", "stack",
                            "the file of measured choices of weight storage; rank 0's value applies", TEXT,
                            .values = "a file, or off"},
};

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

const char *qdri_environment_text(qdri_variable variable)
{
    const char *text = secure_getenv(table[variable].name);
    return text && *text ? text : NULL;
}

int qdri_environment_user_data(char *folder, size_t bytes)
{
    const char *data = secure_getenv("XDG_DATA_HOME"), *home = secure_getenv("HOME");
    int n = 0;
    if (data && data[0] == '/') /* a relative one is to be ignored, says its specification */
        n = snprintf(folder, bytes, "%s/quadrille", data);
    else if (home && home[0] == '/')
        n = snprintf(folder, bytes, "%s/.local/share/quadrille", home);
    return n > 0 && (size_t)n < bytes;
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

int qdr_environment_unknown(int number, char *sentence, size_t bytes)
{
    char name[64], nearest[64];
    /* Compared without the prefix that all share, which would make all names similar. */
    const char *names[QDRI_N_VARIABLES];
    for (int i = 0; i < QDRI_N_VARIABLES; i++) names[i] = table[i].name + strlen(PREFIX);
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
