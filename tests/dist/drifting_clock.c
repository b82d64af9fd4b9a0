/* SPDX-License-Identifier: Apache-2.0 */
/* A program to be traced, under mpiexec: a layer, forward and backward, on ranks whose clocks show different times and
 * run at different speeds, as those of different machines do. The linker replaces the system's clock_gettime() by the
 * one in this file; MPI keeps the original. */
#include <time.h>

#include "dist.h"

enum { ROWS = 64, IN = 32, OUT = 48, ITERATIONS = 12 };

/* The linker gives these names; they are reserved for that. */
int __real_clock_gettime(clockid_t clock, struct timespec *now);
int __wrap_clock_gettime(clockid_t clock, struct timespec *now);

#define NS INT64_C(1000000000)
static int64_t origin_ns; /* 0: the clock is the system's */
static int number; /* as the launcher counts ranks */

/* Starts at 5 s for each rank before this one, and gains a tenth of a second a second for each. All clocks stay behind
 * the system's: what sleeps until a time wakes too early, not too late. */
int __wrap_clock_gettime(clockid_t clock, struct timespec *now)
{
    const int code = __real_clock_gettime(clock, now);
    if (code != 0 || clock != CLOCK_MONOTONIC || origin_ns == 0) return code;
    const int64_t passed_ns = (int64_t)now->tv_sec * NS + now->tv_nsec - origin_ns;
    const int64_t shown_ns = NS + 5 * NS * number + passed_ns + passed_ns / 10 * number;
    *now = (struct timespec){.tv_sec = shown_ns / NS, .tv_nsec = shown_ns % NS};
    return 0;
}

static int begin_clock(void)
{
    const char *rank = getenv("PMI_RANK");
    struct timespec now;
    if (!rank) rank = getenv("OMPI_COMM_WORLD_RANK");
    if (!rank || clock_gettime(CLOCK_MONOTONIC, &now) != 0) return 0;
    number = atoi(rank);
    origin_ns = (int64_t)now.tv_sec * NS + now.tv_nsec;
    return 1;
}

DIST_TEST(run_layer)
{
    const struct timespec pause = {.tv_nsec = NS / 20};
    qdr_linear *layer;
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = 2, .y = 2, .z = 1, .d = 1});
    qdr_stack *net = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS, .dtype = QDR_F32});
    const qdr_edge x = dist_input(net, "x", (qdr_edge_desc){.cols = {{IN, 1}}, .col_axis = QDR_X}, 1);
    dist_linear(net, (qdr_linear_desc){.name = "a \"layer\"", .in = {{IN, 1}}, .out = {{OUT, 1}}}, x, &layer);
    DIST_OK(qdr_stack_build(net));
    DIST_OK(qdr_linear_init(layer, seed, 0.5));
    for (int i = 0; i < ITERATIONS; i++) {
        DIST_OK(qdr_stack_forward(net));
        DIST_OK(qdr_stack_backward(net, 0, 1));
        dist_synchronize(ctx);
        nanosleep(&pause, NULL); /* so that clocks drift apart */
    }
    qdr_stack_destroy(&net);
    qdr_grid_destroy(&grid);
}

int main(int argc, char **argv)
{
    if (!begin_clock()) {
        printf("skipped: the launcher does not number its ranks in PMI_RANK\n");
        return 77;
    }
    return dist_main(argc, argv, NULL);
}
