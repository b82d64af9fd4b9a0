/* SPDX-License-Identifier: Apache-2.0 */
/* Linked into a program with --wrap=qdr_launch: its local ranks are connected by callbacks, as boot.h describes. */
#include "boot.h"

qdr_status __real_qdr_launch(int n_local, const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code);
qdr_status __wrap_qdr_launch(int n_local, const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code);

qdr_status __wrap_qdr_launch(int n_local, const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code)
{
    return (n_local > 0 ? boot_launch : __real_qdr_launch)(n_local, opts, fn, user, exit_code);
}
