/* SPDX-License-Identifier: Apache-2.0 */
/* Contexts over a team's meetings. */
#include "boot.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "team.h"

enum { GRACE_SECS = 5, ALL_SECS = 900 };

/* What all ranks run, and one of them. */
typedef struct work {
    const qdr_context_opts *opts;
    qdr_main_fn fn;
    void *user;
    int n;
} work;

typedef struct place {
    team *ours;
    int rank;
} place;

static int broadcast(void *data, size_t bytes, int root, void *user)
{
    const place *self = user;
    return team_copy(self->ours, self->rank, root, data, bytes);
}

static int barrier(void *user)
{
    const place *self = user;
    return team_meet(self->ours, self->rank);
}

static int run_rank(team *ours, int rank, void *user)
{
    const work *all = user;
    place self = {ours, rank};
    qdr_context *ctx = NULL;
    const qdr_boot boot = {QDR_INIT(qdr_boot), .broadcast = broadcast, .barrier = barrier, .user = &self};
    const qdr_status status = qdr_context_create_boot(rank, all->n, &boot, all->opts, &ctx);
    if (status != QDR_OK) {
        fprintf(stderr, "rank %d of %d: %s\n", rank, all->n, qdr_last_error());
        return status == QDR_ERR_UNSUPPORTED ? BOOT_SKIP : 1;
    }
    const int code = all->fn(ctx, all->user);
    if (code == 0) qdr_context_destroy(&ctx); /* would wait for ranks that have not failed */
    return code;
}

int boot_has_threads(void)
{
    const char *kind = getenv("QDR_TEST_BOOT");
    return kind && strcmp(kind, "threads") == 0;
}

qdr_status boot_launch(int n, const qdr_context_opts *opts, qdr_main_fn fn, void *user, int *exit_code)
{
    work all = {opts, fn, user, n};
    (void)setenv("QDR_TIMEOUT", "60", 0); /* a rank that fails cannot tell the others */
    const double secs = atof(getenv("QDR_TIMEOUT"));
    const team_opts made = {n, boot_has_threads(), secs > 0 ? secs : 60, GRACE_SECS, ALL_SECS};
    *exit_code = team_run(&made, run_rank, &all, NULL);
    return QDR_OK;
}
