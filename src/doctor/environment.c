/* SPDX-License-Identifier: Apache-2.0 */
/* Environment variables that affect the library. */
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor.h"

extern char **environ;

/* Names, and prefixes of names, which end in '_'. */
static const char *const wanted[] = {
    "QDR_",          "NCCL_", "MPICH_", "MPIR_CVAR_", "CUDA_",     "CUBLAS_", "CUBLASLT_",
    "HWLOC_",        "UCX_",  "FI_",    "OMP_",       "OPENBLAS_", "GOTO_",   "NVIDIA_VISIBLE_DEVICES",
    "SLURM_CPU_BIND"};
enum { N_WANTED = sizeof wanted / sizeof *wanted };

static int matters(const char *variable)
{
    for (int i = 0; i < N_WANTED; i++) {
        const size_t length = strlen(wanted[i]);
        if (strncmp(variable, wanted[i], length) != 0) continue;
        if (wanted[i][length - 1] == '_' || variable[length] == '=') return 1;
    }
    return 0;
}

static int by_name(const void *a, const void *b) { return strcmp(*(char *const *)a, *(char *const *)b); }

/* Keeps pointers only: nothing that the doctor sets or unsets later overwrites the strings. */
static void keep_variables(doctor_report *report)
{
    size_t n = 0;
    while (environ[n]) n++;
    report->variables = calloc(n + 1, sizeof *report->variables);
    if (!report->variables) {
        report->is_short = 1;
        return;
    }
    memcpy(report->variables, environ, n * sizeof *report->variables);
    qsort(report->variables, n, sizeof *report->variables, by_name);
}

void doctor_for_variables(const doctor_report *report, void (*see)(const char *name, const char *value, void *user),
                          void *user)
{
    char name[128];
    for (char **variable = report->variables; variable && *variable; variable++) {
        const char *value = strchr(*variable, '=');
        if (!value || !matters(*variable)) continue;
        snprintf(name, sizeof name, "%.*s", (int)(value - *variable), *variable);
        see(name, value + 1, user);
    }
}

typedef struct known_trouble {
    const char *name, *value; /* value NULL: any */
    const char *remedy;
} known_trouble;

static const known_trouble troubles[] = {
    {"CUDA_LAUNCH_BLOCKING", "1", "the host waits for each kernel: unset it except to find a fault"},
    {"MPICH_ASYNC_PROGRESS", "1",
     "its threads take cores from products, and the library makes progress without them: unset it"},
    {"NCCL_P2P_DISABLE", "1", "data between GPUs goes through the host instead of NVLink: unset it"},
    {"NCCL_IB_DISABLE", "1", "data between nodes goes over sockets instead of InfiniBand: unset it"},
    {"NCCL_LAUNCH_ORDER_IMPLICIT", "0",
     "NCCL's kernels start in any order, and may wait for each other forever: unset it"},
    {"NCCL_LOCAL_REGISTER", "0", "NCCL copies what it could read in place: unset it"},
    {"NCCL_CUMEM_ENABLE", "0", "NCCL copies what it could read in place: unset it"},
    {"QDR_NCCL_REGISTER", "0", "NCCL copies what it could read in place: unset it for timings"},
    {"QDR_CHECK", "1", "each collective is preceded by another: unset it for timings"},
    {"QDR_CUDA_MEMORY", "managed", "it is for tests, and slow: unset it for timings"},
    {"HWLOC_XMLFILE", NULL, "another machine is described instead of this one: unset it"},
    {"HWLOC_SYNTHETIC", NULL, "another machine is described instead of this one: unset it"},
};
enum { N_TROUBLES = sizeof troubles / sizeof *troubles };

/* Values for which contexts are refused, and variables without effect. */
static void add_trouble(doctor_finding *finding, const char *name)
{
    char sentence[256];
    for (int i = 0; i < qdr_environment_size(); i++) {
        qdr_variable variable;
        if (qdr_environment_variable(i, &variable) != QDR_OK || strcmp(variable.name, name) != 0) continue;
        if (variable.is_understood) return;
        finding->state = DOCTOR_BROKEN;
        doctor_advise(finding, "use %s, or unset it", variable.values);
    }
    for (int i = 0; qdr_environment_unknown(i, sentence, sizeof sentence); i++) {
        const size_t length = strcspn(sentence, " ");
        if (strlen(name) != length || strncmp(name, sentence, length) != 0) continue;
        finding->state = DOCTOR_NOTE;
        doctor_advise(finding, "%s", sentence);
    }
}

static void add_variable(const char *name, const char *value, void *user)
{
    doctor_finding *finding = doctor_add(user, "environment", name, DOCTOR_GOOD, "%s", *value ? value : "(empty)");
    add_trouble(finding, name);
    for (int i = 0; i < N_TROUBLES; i++) {
        if (strcmp(name, troubles[i].name) != 0) continue;
        if (troubles[i].value && strcmp(value, troubles[i].value) != 0) continue;
        finding->state = DOCTOR_NOTE;
        doctor_advise(finding, "%s", troubles[i].remedy);
    }
}

void doctor_find_environment(doctor_report *report)
{
    keep_variables(report);
    doctor_for_variables(report, add_variable, report);
}
