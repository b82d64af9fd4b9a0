/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that are made to fail. */
#include <stdio.h>
#include <string.h>

#include "internal.h"

enum { PLANNED_MOST = 16 };

typedef struct planned {
    char kind[16];
    long long left; /* calls until it fails */
} planned;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static planned plan[PLANNED_MOST];
static int n_planned;

void fake_plan_failures(const char *text)
{
    fake_mutex_lock(&lock);
    n_planned = 0;
    while (text && *text && n_planned < PLANNED_MOST) {
        planned *next = &plan[n_planned];
        if (sscanf(text, "%15[^:,]:%lld", next->kind, &next->left) == 2) n_planned++;
        text = strchr(text, ',');
        if (text) text++;
    }
    fake_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) void fake_fail(const char *text)
{
    (void)fake_get_settings(); /* which plans, too */
    fake_plan_failures(text);
}

int fake_take_failure(const char *kind)
{
    int fails = 0;
    (void)fake_get_settings();
    fake_mutex_lock(&lock);
    for (int i = 0; i < n_planned; i++) {
        if (strcmp(plan[i].kind, kind) == 0 && --plan[i].left == 0) fails = 1;
    }
    fake_mutex_unlock(&lock);
    return fails;
}

cudaError_t fake_take_launch_failure(void)
{
    if (fake_take_failure("illegal")) fake_break(cudaErrorIllegalAddress);
    if (fake_broken() != cudaSuccess) return fake_note(fake_broken());
    return fake_take_failure("launch") ? fake_note(cudaErrorLaunchFailure) : cudaSuccess;
}
