/* SPDX-License-Identifier: Apache-2.0 */
/* The device on which a rank computes. */
#ifndef QDRI_CONTEXT_DEVICE_H
#define QDRI_CONTEXT_DEVICE_H

#include "core/status.h"

typedef struct qdri_device_choice {
    int is_cuda;
    int gpu; /* its number; -1: the rank's number on its node */
} qdri_device_choice;

/* Reads "cpu", "cuda" or "cuda:N"; NULL: the value of QDR_DEVICE, or the CPU if that is not set.
 * @retval QDR_ERR_ARGUMENT  none of these */
QDR_NODISCARD qdr_status qdri_device_read(const char *text, qdri_device_choice *choice);

#endif
