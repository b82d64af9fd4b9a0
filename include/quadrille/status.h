/* SPDX-License-Identifier: Apache-2.0 */
/** @file status.h  Status codes and the sentence that explains the last error.
 *
 * Every function that can fail returns a qdr_status: 0 done, > 0 not finished yet, < 0 error.
 * Results leave through the last parameters, which are NULL or 0 after an error. The library never
 * exits or aborts. It prints only the warnings and errors of its log, on standard error and until qdr_set_log() is
 * called, and the reports that QDR_REPORT and QDR_CODEC_CHECK request. */
#ifndef QUADRILLE_STATUS_H
#define QUADRILLE_STATUS_H

#include "types.h"

/* One list makes the enum, the names and the texts. */
#define QDR_STATUS_MAP(X)                                                                                              \
    X(OK, 0, "success")                                                                                                \
    X(PENDING, 1, "not finished yet")                                                                                  \
    X(ERR_ARGUMENT, -1, "an argument is wrong")                                                                        \
    X(ERR_SHAPE, -2, "shapes or sizes do not agree")                                                                   \
    X(ERR_DTYPE, -3, "the element type is wrong here")                                                                 \
    X(ERR_MEMORY, -4, "out of memory")                                                                                 \
    X(ERR_THREAD, -5, "a thread could not be started")                                                                 \
    X(ERR_STATE, -6, "called in the wrong order")                                                                      \
    X(ERR_PEER, -7, "another rank failed")                                                                             \
    X(ERR_MPI, -8, "MPI reported an error")                                                                            \
    X(ERR_DEVICE, -9, "the device reported an error")                                                                  \
    X(ERR_IO, -10, "a file could not be read or written")                                                              \
    X(ERR_UNSUPPORTED, -11, "not available in this build or on this machine")                                          \
    X(ERR_TIMEOUT, -12, "another rank did not come in time")

typedef enum qdr_status {
#define QDR_STATUS_ENUM(name, value, text) QDR_##name = value,
    QDR_STATUS_MAP(QDR_STATUS_ENUM)
#undef QDR_STATUS_ENUM
} qdr_status;

#ifdef __cplusplus
extern "C" {
#endif
/** The name of a status, "QDR_ERR_SHAPE"; "QDR_UNKNOWN" for any other value. Local, thread-safe. */
QDR_API const char *qdr_status_name(qdr_status status);
/** What a status means in general, in a few words. Local, thread-safe. */
QDR_API const char *qdr_status_text(qdr_status status);
/** The sentence about the last error of the calling thread, with its numbers and a remedy; "" if there was none. Valid
 * until the thread's next failing call. Local, thread-safe. */
QDR_API const char *qdr_last_error(void);
/** 1: all ranks of the world have agreed on the calling thread's last error and have its sentence, so that one of them
 * may print it for all. 0: this rank alone may know of it. Local, thread-safe. */
QDR_API int qdr_last_error_is_shared(void);

/** Receives one line of the library's log, without a newline. level: 0 error, 1 warning, 2 info, 3 debug. */
typedef void (*qdr_log_fn)(int level, const char *line, void *user);
/** Sets the receiver of the library's log for the whole process; NULL drops all lines. Until it is
 * called, lines go to standard error, as "quadrille: warning: LINE". The environment variable
 * QDR_DEBUG (0 to 3) sets the highest level that is passed on, default 1; it is read by this call
 * and whenever a context is made. Local; not thread-safe: call it first. */
QDR_API void qdr_set_log(qdr_log_fn log, void *user);
#ifdef __cplusplus
}
#endif
#endif
