/* SPDX-License-Identifier: Apache-2.0 */
/* How errors are recorded once, where they occur, and passed on. See docs/design.md, "Errors". */
#ifndef QDRI_CORE_STATUS_H
#define QDRI_CORE_STATUS_H

#include <inttypes.h>

#include "quadrille/status.h"

/* The longest message, including its terminating zero. */
#define QDRI_ERROR_BYTES 512

/* Records a message (printf format) in the calling thread and returns `status`. Use QDR_FAIL. */
qdr_status qdri_fail(qdr_status status, const char *file, int line, const char *format, ...)
    __attribute__((format(printf, 4, 5)));
/* Replaces the thread's message, for errors that are passed between threads or ranks. */
void qdri_set_last_error(const char *sentence);
/* The same by a message that all ranks of the world have. */
void qdri_set_shared_error(const char *sentence);
/* The thread's message, and whether all ranks have it, for calls in between that must not change them. */
typedef struct qdri_kept_error {
    int is_shared;
    char sentence[QDRI_ERROR_BYTES];
} qdri_kept_error;
void qdri_keep_last_error(qdri_kept_error *kept);
void qdri_restore_last_error(const qdri_kept_error *kept);
/* The address of the calling thread's message, of QDRI_ERROR_BYTES; and, for a plugin, which contains a second copy of
 * this module: makes it use the library's storage instead of its own. */
char *qdri_last_error_buffer(void);
void qdri_share_last_error(char *(*find)(void));

/* code must be a negative constant, otherwise this does not compile: no error path can return success, and static
 * analyzers know that. */
#define QDR_FAIL(code, ...)                                                                                            \
    ((void)sizeof(struct {                                                                                             \
         _Static_assert((code) < 0, "QDR_FAIL takes an error");                                                        \
         int unused;                                                                                                   \
     }),                                                                                                               \
     (void)qdri_fail((code), __FILE__, __LINE__, __VA_ARGS__), (code))

/* Passes an error (or "not finished") on to the caller. */
#define QDR_TRY(expression)                                                                                            \
    do {                                                                                                               \
        const qdr_status try_status_ = (expression);                                                                   \
        if (try_status_ != QDR_OK) return try_status_;                                                                 \
    } while (0)
/* Stores it in `status` and jumps to the label `out` if it is an error. */
#define QDR_TRY_OUT(status, expression)                                                                                \
    do {                                                                                                               \
        (status) = (expression);                                                                                       \
        if ((status) != QDR_OK) goto out;                                                                              \
    } while (0)

/* *result = NULL, which it stays after an error. @retval QDR_ERR_ARGUMENT  result is NULL */
#define QDRI_CLEAR_POINTER(who, result)                                                                                \
    ((result) ? (*(result) = NULL, QDR_OK) : QDR_FAIL(QDR_ERR_ARGUMENT, who ": the result pointer is NULL"))

/* @retval QDR_ERR_ARGUMENT  an option that is 0 or 1 is neither */
QDR_NODISCARD qdr_status qdri_check_switch(const char *who, const char *option, int value);

#endif
