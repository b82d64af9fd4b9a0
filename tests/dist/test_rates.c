/* SPDX-License-Identifier: Apache-2.0 */
/* One rank takes a step of AdamW at another rate than the others, by one bit: all are told so, without QDR_CHECK, and
 * parameters stay as they were. Each case ends its context; under mpiexec there is only one, whose grid is the number
 * `case`.
 *
 *   test_rates --local P     mpiexec -n P test_rates case */
#include "dist.h"

enum { ROWS = 16, COLS = 8, MOST_BYTES = 4096, N_GRIDS = 8 };

static qdr_grid_opts grid_of(int number, int p)
{
    const int half = p % 2 ? 1 : p / 2;
    const qdr_grid_opts all[N_GRIDS] = {
        {.x = p, .y = 1, .z = 1, .d = 1},           {.x = 1, .y = p, .z = 1, .d = 1},
        {.x = 1, .y = 1, .z = p, .d = 1},           {.x = 1, .y = 1, .z = 1, .d = p, .optimizer_parts = p},
        {.x = p / half, .y = half, .z = 1, .d = 1}, {.x = 1, .y = 1, .z = p / half, .d = half, .optimizer_parts = p},
        {.x = 1, .y = 1, .z = 1, .d = p},           {.x = 1, .y = half, .z = 1, .d = p / half},
    };
    return all[number];
}

static size_t copy_parameters(const qdr_stack *stack, char *copy)
{
    size_t bytes = 0;
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        const size_t n = (size_t)p.n_elems * sizeof(float);
        DIST_CHECK(bytes + n <= MOST_BYTES, "%s does not fit", p.name);
        memcpy(copy + bytes, p.data, n);
        bytes += n;
    }
    return bytes;
}

/* Rates that are the same, 0 and -0 among them; the first two steps change nothing. */
static void good_steps(qdr_context *ctx, qdr_stack *stack, qdr_adamw *optimizer)
{
    char before[MOST_BYTES], after[MOST_BYTES];
    double norm;
    const size_t bytes = copy_parameters(stack, before);
    DIST_OK(qdr_adamw_step(optimizer, qdr_context_rank(ctx) ? -0.0 : 0.0));
    DIST_OK(qdr_adamw_step_as_set(optimizer));
    DIST_OK(qdr_adamw_norm(optimizer, &norm));
    DIST_CHECK(copy_parameters(stack, after) == bytes && !memcmp(before, after, bytes),
               "a step at rate 0 did something");
    for (int i = 0; i < 3; i++) DIST_OK(i ? qdr_adamw_step_as_set(optimizer) : qdr_adamw_step(optimizer, 0.1));
    DIST_OK(qdr_adamw_norm(optimizer, &norm));
    copy_parameters(stack, after);
    DIST_CHECK(norm > 0 && (bytes == 0 || memcmp(before, after, bytes) != 0), "steps did nothing");
}

static void bad_step(qdr_stack *stack, qdr_adamw *optimizer, double lr)
{
    char before[MOST_BYTES], after[MOST_BYTES], own[64];
    double norm;
    const size_t bytes = copy_parameters(stack, before);
    qdr_status status = qdr_adamw_step(optimizer, lr);
    if (status == QDR_OK) status = qdr_adamw_norm(optimizer, &norm);
    snprintf(own, sizeof own, "this rank's step is %.17g, and", lr);
    DIST_CHECK(status == QDR_ERR_ARGUMENT || status == QDR_ERR_PEER, "%s: %s", qdr_status_name(status),
               qdr_last_error());
    dist_sentence(status == QDR_ERR_ARGUMENT ? own : "this rank's step is", __FILE__, __LINE__);
    dist_sentence("give every rank the same", __FILE__, __LINE__);
    DIST_CHECK(copy_parameters(stack, after) == bytes && !memcmp(before, after, bytes),
               "a refused step changed a parameter");
}

static int run(qdr_context *ctx, void *user)
{
    const int number = *(const int *)user, p = qdr_context_size(ctx), odd = number % p;
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{COLS, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc fc = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{COLS, 1}}, .out = {{COLS, 1}},
                                .bias = 1};
    qdr_grid *grid = dist_grid(ctx, grid_of(number, p));
    qdr_adamw *optimizer = NULL;
    qdr_edge x, y;
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS});
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 0, &x));
    DIST_OK(qdr_stack_add_linear(stack, &fc, x, &y, NULL));
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_init(stack, 1, 0.3));
    DIST_OK(qdr_adamw_create(stack, NULL, &optimizer));
    dist_step(stack, x, 1, y, 2, 0);
    good_steps(ctx, stack, optimizer);
    bad_step(stack, optimizer, qdr_context_rank(ctx) == odd ? nextafter(0.1, 1) : 0.1);
    qdr_adamw_destroy(&optimizer);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    return 0;
}

int main(int argc, char **argv)
{
    const int n_local = argc == 3 ? atoi(argv[2]) : 0;
    int exit_code = 1, number = argc == 2 ? atoi(argv[1]) : 0;
    do {
        if (qdr_launch(n_local, NULL, run, &number, &exit_code) != QDR_OK)
            fprintf(stderr, "launch: %s\n", qdr_last_error());
        number++;
    } while (exit_code == 0 && n_local && number < N_GRIDS);
    return exit_code;
}
