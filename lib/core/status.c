/* SPDX-License-Identifier: Apache-2.0 */
/* Names of statuses, and the calling thread's last error. */
#include "core/status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/log.h"

static _Thread_local char own_error[QDRI_ERROR_BYTES];
static _Thread_local int is_shared;
static char *find_own_error(void) { return own_error; }
/* In a plugin: the library's, so that a thread has only one last error. */
static char *(*find_last_error)(void) = find_own_error;

void qdri_share_last_error(char *(*find)(void)) { find_last_error = find; }
char *qdri_last_error_buffer(void) { return find_last_error(); }

const char *qdr_status_name(qdr_status status)
{
    switch (status) {
#define NAME(name, value, text)                                                                                        \
    case QDR_##name: return "QDR_" #name;
        QDR_STATUS_MAP(NAME)
#undef NAME
    }
    return "QDR_UNKNOWN";
}

const char *qdr_status_text(qdr_status status)
{
    switch (status) {
#define TEXT(name, value, text)                                                                                        \
    case QDR_##name: return text;
        QDR_STATUS_MAP(TEXT)
#undef TEXT
    }
    return "unknown status";
}

const char *qdr_last_error(void) { return find_last_error(); }

int qdr_last_error_is_shared(void) { return is_shared; }

void qdri_set_shared_error(const char *sentence)
{
    qdri_set_last_error(sentence);
    is_shared = 1;
}

void qdri_set_last_error(const char *sentence)
{
    char *place = find_last_error();
    is_shared = 0;
    if (sentence != place) snprintf(place, QDRI_ERROR_BYTES, "%s", sentence);
}

/* Copies no more than there is: work on a stream keeps it at each wait. */
void qdri_keep_last_error(qdri_kept_error *kept)
{
    const char *sentence = find_last_error();
    kept->is_shared = is_shared;
    memcpy(kept->sentence, sentence, strlen(sentence) + 1);
}

void qdri_restore_last_error(const qdri_kept_error *kept)
{
    qdri_set_last_error(kept->sentence);
    is_shared = kept->is_shared;
}

qdr_status qdri_fail(qdr_status status, const char *file, int line, const char *format, ...)
{
    /* Arguments may point into the old message. */
    char sentence[QDRI_ERROR_BYTES];
    va_list args;
    va_start(args, format);
    vsnprintf(sentence, sizeof sentence, format, args);
    va_end(args);
    /* Makes it one line, whatever a file's or a caller's name contained. */
    for (char *letter = sentence; *letter; letter++)
        if ((unsigned char)*letter < ' ' || *letter == 0x7f) *letter = '?';
    qdri_set_last_error(sentence);
    qdri_log(QDRI_LOG_DEBUG, "%s:%d: %s: %s", file, line, qdr_status_name(status), sentence);
    return status;
}

qdr_status qdri_check_switch(const char *who, const char *option, int value)
{
    if (value == 0 || value == 1) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s is %d; use 0 or 1", who, option, value);
}
