/* SPDX-License-Identifier: Apache-2.0 */
/* NCCL, if there are GPUs for two ranks: whether it sums correctly, and whether it registers memory. */
#define _POSIX_C_SOURCE 200809L
#include <stdlib.h>
#include <string.h>

#include "doctor/doctor.h"

#define GROUP "works"

/* The library's message about memory that NCCL does not register; "": none. */
static char heard[512];

static void hear(int level, const char *line, void *user)
{
    (void)level, (void)user;
    if (strstr(line, "cannot register memory")) snprintf(heard, sizeof heard, "%s", line);
}

static int is_set_to(const char *name, const char *value) { return strcmp(qdr_environment_value(name), value) == 0; }

static void add_memory(doctor_report *report)
{
    if (*heard)
        doctor_add_sentence(report, GROUP, "NCCL memory", DOCTOR_NOTE, heard);
    else if (is_set_to("QDR_NCCL_REGISTER", "0"))
        doctor_add(report, GROUP, "NCCL memory", DOCTOR_GOOD, "is not registered, because of QDR_NCCL_REGISTER=0");
    else if (is_set_to("QDR_CUDA_MEMORY", "managed"))
        doctor_add(report, GROUP, "NCCL memory", DOCTOR_GOOD,
                   "is not registered, because it is managed (QDR_CUDA_MEMORY)");
    else
        doctor_add(report, GROUP, "NCCL memory", DOCTOR_GOOD, "is registered (QDR_NCCL_REGISTER=0 turns that off)");
}

void doctor_try_nccl(doctor_report *report)
{
    const qdr_gpu_report *gpus = &report->gpus;
    char old[64];
    if (!gpus->nccl || !doctor_can_use(gpus, 0) || !doctor_can_use(gpus, 1)) return;
    qdr_set_log(hear, NULL); /* this is the last test */
    snprintf(old, sizeof old, "%s", qdr_environment_value("QDR_CUDA_COMM"));
    setenv("QDR_CUDA_COMM", "nccl", 1);
    if (doctor_try_sum(report, "cuda", "all-reduce, NCCL")) add_memory(report);
    setenv("QDR_CUDA_COMM", old, 1);
}
