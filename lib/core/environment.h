/* SPDX-License-Identifier: Apache-2.0 */
/* The environment variables: one table, and the only module that reads them. */
#ifndef QDRI_CORE_ENVIRONMENT_H
#define QDRI_CORE_ENVIRONMENT_H

#include "core/status.h"
#include "quadrille/environment.h"

/* Names of devices, as in QDR_DEVICE and in options. */
typedef enum qdri_device_kind { QDRI_DEVICE_UNKNOWN, QDRI_DEVICE_CPU, QDRI_DEVICE_CUDA } qdri_device_kind;
/* Reads "cpu", "cuda" or "cuda:N". *gpu: N, or -1. */
qdri_device_kind qdri_device_name_read(const char *name, int *gpu);

/* In the order of the table: alphabetical. */
typedef enum qdri_variable {
    QDRI_VARIABLE_ATTENTION,
    QDRI_VARIABLE_CHECK,
    QDRI_VARIABLE_CODEC,
    QDRI_VARIABLE_CODEC_CHECK,
    QDRI_VARIABLE_CUDA_COMM,
    QDRI_VARIABLE_CUDA_MEMORY,
    QDRI_VARIABLE_CUDA_PLUGIN,
    QDRI_VARIABLE_CUDNN,
    QDRI_VARIABLE_DATA_PATH,
    QDRI_VARIABLE_DEBUG,
    QDRI_VARIABLE_DEVICE,
    QDRI_VARIABLE_FUSE_GELU,
    QDRI_VARIABLE_KERNELS,
    QDRI_VARIABLE_MACHINE,
    QDRI_VARIABLE_NCCL_MAX_CTAS,
    QDRI_VARIABLE_NCCL_REGISTER,
    QDRI_VARIABLE_NVTX,
    QDRI_VARIABLE_REPORT,
    QDRI_VARIABLE_TF32,
    QDRI_VARIABLE_TIMEOUT,
    QDRI_VARIABLE_TRACE,
    QDRI_VARIABLE_TUNE,
    QDRI_N_VARIABLES
} qdri_variable;

/* The variable's text; NULL if it is not set, or empty. */
const char *qdri_environment_text(qdri_variable variable);
/* The user's folder for data of this library, which may not exist: in XDG_DATA_HOME, else in ~/.local/share. 0: neither
 * is known, or it is too long. */
int qdri_environment_user_data(char *folder, size_t bytes);
/* The index of the value among the words that the table lists ("0" and "1" for a flag); that of the default if the
 * variable is not set.
 * @retval QDR_ERR_ARGUMENT  it is none of them */
QDR_NODISCARD qdr_status qdri_environment_choice(qdri_variable variable, int *choice);
/* The number; the default if the variable is not set.
 * @retval QDR_ERR_ARGUMENT  it is not a number, or out of range */
QDR_NODISCARD qdr_status qdri_environment_number(qdri_variable variable, double *number);
/* Logs a warning about unknown variables, unless the previous call did. */
void qdri_environment_warn(void);

#endif
