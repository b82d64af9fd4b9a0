/* SPDX-License-Identifier: Apache-2.0 */
/* Whether all ranks know the thread's last error. */
#ifndef QDRI_CORE_SHARED_ERROR_H
#define QDRI_CORE_SHARED_ERROR_H

#include "quadrille/shared_error.h"

/* Replaces the thread's message by one that all ranks of the world have. */
void qdri_set_shared_error(const char *sentence);

#endif
