/* SPDX-License-Identifier: Apache-2.0 */
/* Ranks connected by callbacks, on the CPU: one alone works; several are skipped, since they need GPUs. */
#include <stdio.h>

#include "boot.h"

static int count(qdr_context *ctx, void *user)
{
    return qdr_context_size(ctx) == 1 && qdr_barrier(ctx) == QDR_OK ? *(const int *)user : 1;
}

static int expect(int n, int result, int wanted)
{
    const qdr_context_opts on_cpu = {QDR_INIT(qdr_context_opts), .device = "cpu"};
    int code = -1;
    const qdr_status status = boot_launch(n, &on_cpu, count, &result, &code);
    if (status == QDR_OK && code == wanted) return 0;
    fprintf(stderr, "%d ranks: exit code %d, not %d\n", n, code, wanted);
    return 1;
}

int main(void) { return expect(1, 0, 0) + expect(1, 3, 3) + expect(3, 0, BOOT_SKIP); }
