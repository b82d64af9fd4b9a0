/* SPDX-License-Identifier: Apache-2.0 */
/* Public structs begin with their size, which callers set with QDR_INIT(): programs that were built with other headers
 * have shorter or longer ones. Public functions copy such a struct into one of this library before they read it, and
 * write results from one. */
#ifndef QDRI_CORE_SIZED_H
#define QDRI_CORE_SIZED_H

#include "core/status.h"

/* *own = *given, with zeros for what the caller's struct does not have.
 * @retval QDR_ERR_ARGUMENT     given is NULL, or has no size
 * @retval QDR_ERR_UNSUPPORTED  it sets members that this library does not have */
#define QDRI_TAKE(type, given, own) qdri_take((const type *){given}, (type *){own}, sizeof(type), #type)
QDR_NODISCARD qdr_status qdri_take(const void *given, void *own, size_t bytes, const char *type);

/* As much of *own as the caller's struct has; its size stays. A struct without a size stays as it is: begin with
 * QDRI_CLEAR(), which refuses it. */
#define QDRI_GIVE(type, given, own) qdri_give((type *){given}, (const type *){own}, sizeof(type))
void qdri_give(void *given, const void *own, size_t bytes);

/* Zeros in the members of a result, up to those of this library.
 * @retval QDR_ERR_ARGUMENT  given is NULL, or has no size */
#define QDRI_CLEAR(type, given) qdri_clear((type *){given}, sizeof(type), #type)
QDR_NODISCARD qdr_status qdri_clear(void *given, size_t bytes, const char *type);

/* Item i of a caller's array: all are as large as the first says. */
void *qdri_sized_item(const void *items, int i);

#endif
