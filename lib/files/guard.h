/* SPDX-License-Identifier: Apache-2.0 */
/* Writing beyond a limit on the size of files (SIGXFSZ), or to a reader that left (SIGPIPE), fails without ending the
 * process: around the calls of the system, these signals are blocked for the calling thread. */
#ifndef QDRI_FILES_GUARD_H
#define QDRI_FILES_GUARD_H

#include <signal.h>

typedef struct qdri_guard {
    sigset_t mask_before, pending_before;
} qdri_guard;

void qdri_guard_begin(qdri_guard *guard);
/* error: an errno value, with which the calls ended; 0: none. Takes the signal that belongs to it. Keeps errno. */
void qdri_guard_end(const qdri_guard *guard, int error);

#endif
