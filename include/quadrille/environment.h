/* SPDX-License-Identifier: Apache-2.0 */
/** @file environment.h  The environment variables that the library reads, from the one table in which it looks
 *  them up. `quadrille env` prints it.
 *
 *  A variable that is empty counts as not set, and in a setuid program none is read. The library reads a variable
 *  when it needs it, most of them when a context is made, and keeps no copy: a program may set them before. A value
 *  that is not understood is QDR_ERR_ARGUMENT on making any context. A variable that begins with QDR_ and is not in
 *  the table gets a warning (qdr_set_log()) when a context is made, from rank 0, once until such names
 *  change; those that begin with QDR_TEST_ are left to test programs.
 *
 *  Part of libquadrille_perf. All functions are local, and thread-safe while nobody changes the environment. */
#ifndef QUADRILLE_ENVIRONMENT_H
#define QUADRILLE_ENVIRONMENT_H

#include <stddef.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One variable. All texts but `value` live as long as the process. */
typedef struct qdr_variable {
    const char *name; /**< "QDR_CHECK" */
    const char *values; /**< what it may be: "0 or 1" */
    const char *initial; /**< what counts where it is not set; "": nothing */
    const char *room; /**< the part of the library that reads it: "context" */
    const char *meaning; /**< one line, without a full stop */
    const char *value; /**< in force now: the environment's, or `initial`; valid until the environment changes */
    int is_set; /**< 1: by the environment */
    int is_understood; /**< 0: contexts are refused for it */
} qdr_variable;

/** How many variables there are. */
QDR_API int qdr_environment_size(void);
/** Describes variable `number`, from 0, in alphabetical order.
 *  @param[out] variable  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  no such number, or NULL */
QDR_API QDR_NODISCARD qdr_status qdr_environment_variable(int number, qdr_variable *variable);
/** The value in force of the variable with this name, as in qdr_variable; NULL: the library reads no such variable. */
QDR_API const char *qdr_environment_value(const char *name);
/** Whether all variables that are set are understood.
 *  @retval QDR_ERR_ARGUMENT  one is not; the sentence names it, its value and what it may be */
QDR_API QDR_NODISCARD qdr_status qdr_environment_check(void);
/** A sentence about the `number`th variable of the environment, from 0, that begins with QDR_ and is not known, with
 *  the nearest name that is.
 *  @param[out] sentence  of `bytes` bytes with its end mark; "" where there is no such variable
 *  @return 1, or 0: there are not so many */
QDR_API int qdr_environment_unknown(int number, char *sentence, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
