/* SPDX-License-Identifier: Apache-2.0 */
/* The library's log: lines for the function set by qdr_set_log(), up to the level set by QDR_DEBUG. */
#ifndef QDRI_CORE_LOG_H
#define QDRI_CORE_LOG_H

enum { QDRI_LOG_ERROR = 0, QDRI_LOG_WARNING = 1, QDRI_LOG_INFO = 2, QDRI_LOG_DEBUG = 3 };
void qdri_log(int level, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Reads QDR_DEBUG again. */
void qdri_log_read_level(void);

/* For a plugin, which contains a second copy of this module: where to send complete lines. */
typedef void (*qdri_log_fn)(int level, const char *line);
qdri_log_fn qdri_log_function(void);
void qdri_share_log(qdri_log_fn log);

#endif
