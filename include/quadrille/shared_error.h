/* SPDX-License-Identifier: Apache-2.0 */
/** @file shared_error.h  Who prints an error: for programs whose ranks each learn of it.
 *
 * Not included by quadrille.h. */
#ifndef QUADRILLE_SHARED_ERROR_H
#define QUADRILLE_SHARED_ERROR_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** 1: all ranks of the world have agreed on the calling thread's last error and have its sentence, so that one of them
 * may print it for all. 0: this rank alone may know of it. Local, thread-safe. */
QDR_API int qdr_last_error_is_shared(void);

#ifdef __cplusplus
}
#endif
#endif
