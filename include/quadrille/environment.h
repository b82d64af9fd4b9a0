/* SPDX-License-Identifier: Apache-2.0 */
/** @file environment.h  The environment variables that the library reads, from the one table in which it looks
 * them up. `quadrille env` prints it.
 *
 * A variable that is empty counts as not set, and in a setuid program none is read. The library reads a variable when
 * it needs it, most of them when a context is made, and keeps no copy: a program may set them before that. A value that
 * is not understood makes the creation of any context fail with QDR_ERR_ARGUMENT. A variable that begins with QDR_ and
 * is not in the table gets a warning (qdr_set_log()) when a context is made, from rank 0, once until such names change;
 * those that begin with QDR_TEST_ are left to test programs.
 *
 * Part of libquadrille_perf. All functions are local, and thread-safe while nobody changes the environment. */
#ifndef QUADRILLE_ENVIRONMENT_H
#define QUADRILLE_ENVIRONMENT_H

#include <stddef.h>

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** One variable. All texts but `value` live as long as the process. */
typedef struct qdr_variable {
    size_t size; /**< QDR_INIT(qdr_variable) */
    const char *name; /**< "QDR_CHECK" */
    const char *values; /**< the allowed values: "0 or 1" */
    const char *initial; /**< the value in force if it is not set; "": none */
    const char *room; /**< the part of the library that reads it: "context" */
    const char *meaning; /**< one line, without a full stop */
    const char *value; /**< in force now: the environment's, or `initial`; valid until the environment changes */
    int is_set; /**< 1: the environment sets it */
    int is_understood; /**< 0: no context can be made with this value */
} qdr_variable;

/** How many variables there are. */
QDR_API int qdr_environment_size(void);
/** Describes variable `number`, from 0, in alphabetical order.
 *  @param[out] variable  all zero after an error
 *  @retval QDR_ERR_ARGUMENT  no such number, or NULL */
QDR_API QDR_NODISCARD qdr_status qdr_environment_variable(int number, qdr_variable *variable);
/** The value in force of the variable with this name, as in qdr_variable; NULL: the library reads no such variable. */
QDR_API const char *qdr_environment_value(const char *name);
/** Checks that the values of all variables that are set are understood.
 *  @retval QDR_ERR_ARGUMENT  one is not; the sentence names it, its value and the allowed values */
QDR_API QDR_NODISCARD qdr_status qdr_environment_check(void);
/** Writes a sentence about the `number`th unknown variable of the environment, from 0, whose name begins with QDR_,
 * with the nearest known name.
 *  @param[out] sentence  of `bytes` bytes including the terminating null; "" if there is no such variable
 *  @return 1, or 0 if there are not that many */
QDR_API int qdr_environment_unknown(int number, char *sentence, size_t bytes);

#ifdef __cplusplus
}
#endif
#endif
