/* SPDX-License-Identifier: Apache-2.0 */
/* Tests on ranks that are connected by the callbacks of qdr_context_create_boot(), over memory that they share. */
#ifndef TESTS_COMMON_BOOT_H
#define TESTS_COMMON_BOOT_H

#include "quadrille/quadrille.h"

enum { BOOT_SKIP = 77 /* meson takes this exit code as "skipped" */ };

/* As qdr_launch(): runs fn on n ranks, each a process that is forked here, so nothing may have called CUDA before. They
 * are threads if QDR_TEST_BOOT is "threads": the fake CUDA connects no processes. Waits are limited by QDR_TIMEOUT, or
 * 60 s. Prints why a rank failed. What is left of a rank's objects ends with its process.
 * exit_code: of the first rank that failed; BOOT_SKIP if the library cannot connect such ranks here, as without GPUs */
qdr_status boot_launch(int n, const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code);
/* Whether the ranks are threads, and so share static variables. */
int boot_has_threads(void);

#endif
