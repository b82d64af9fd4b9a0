/* SPDX-License-Identifier: Apache-2.0 */
/* The harness for tests on ranks. */
#include "dist.h"

#include <stdarg.h>
#include <time.h>

#include "common/boot.h"
#include "narrow.h"

typedef struct dist_plan {
    const char *only;
    uint64_t seed;
} dist_plan;

/* By the lines of their file, which has 600 at most (tests/tools/check_style.py). */
static struct {
    const char *name;
    dist_test run;
    int is_apart;
} tests[601];

static _Thread_local int this_rank;
static int n_local; /* 0: processes */

int dist_rounds(int n) { return n_local ? n : (n + 2) / 3; }

void dist_fail(const char *file, int line, const char *what, const char *format, ...)
{
    va_list arguments;
    fprintf(stderr, "rank %d: %s:%d: %s: ", this_rank, file, line, what);
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    fflush(NULL);
    _Exit(1);
}

void dist_status(qdr_status got, qdr_status want, const char *file, int line, const char *what)
{
    if (got == want) return;
    dist_fail(file, line, what, "gave %s, not %s: %s", qdr_status_name(got), qdr_status_name(want), qdr_last_error());
}

void dist_sentence(const char *words, const char *file, int line)
{
    if (!strstr(qdr_last_error(), words)) dist_fail(file, line, words, "is not in \"%s\"", qdr_last_error());
}

uint64_t dist_random(uint64_t *seed)
{
    uint64_t z = *seed += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

int64_t dist_below(uint64_t *seed, int64_t n) { return (int64_t)(dist_random(seed) % (uint64_t)n); }

double dist_value(uint64_t seed, int64_t i, int64_t j)
{
    seed += (uint64_t)i * 0x2545f4914f6cdd1du + (uint64_t)j * 0x9e6c63d0876a9a47u;
    return (double)(dist_below(&seed, 128) - 64) / 64;
}

/* A multiple of inner that divides all, half of the time the least. */
static int random_parts(uint64_t *seed, int inner, int all)
{
    int parts = inner * (1 + (int)dist_below(seed, all / inner));
    if (dist_below(seed, 2)) return inner;
    while (parts % inner || all % parts) parts--;
    return parts;
}

qdr_grid *dist_grid(qdr_context *ctx, qdr_grid_opts opts)
{
    qdr_grid *grid = NULL;
    opts.size = sizeof opts;
    DIST_OK(qdr_grid_create(ctx, &opts, &grid));
    return grid;
}

qdr_grid *dist_random_grid(qdr_context *ctx, uint64_t *seed)
{
    int size[QDR_N_AXES] = {1, 1, 1, 1}, left = qdr_context_size(ctx);
    char order[QDR_N_AXES + 1] = "xyzd";
    for (int factor = 2; left > 1; factor++)
        for (; left % factor == 0; left /= factor) size[dist_below(seed, QDR_N_AXES)] *= factor;
    const int gradients = random_parts(seed, size[2], size[2] * size[3]);
    const int state = random_parts(seed, gradients, size[2] * size[3]);
    for (int i = QDR_N_AXES - 1; i > 0; i--) {
        const int64_t j = dist_below(seed, i + 1);
        const char letter = order[i];
        order[i] = order[j];
        order[j] = letter;
    }
    return dist_grid(ctx, (qdr_grid_opts){.x = size[0],
                                          .y = size[1],
                                          .z = size[2],
                                          .d = size[3],
                                          .order = order,
                                          .gradient_parts = gradients,
                                          .optimizer_parts = state});
}

qdri_position dist_position(const qdr_grid *grid)
{
    qdri_position position = {.near = qdr_grid_channel_size(grid, QDR_CHANNEL_D_NEAR),
                              .far = qdr_grid_channel_size(grid, QDR_CHANNEL_D_FAR)};
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        position.size[axis] = qdr_grid_size(grid, (qdr_axis)axis);
        position.coordinate[axis] = qdr_grid_coordinate(grid, (qdr_axis)axis);
    }
    return position;
}

static void check_one(qdr_context *ctx, const qdr_grid_opts *opts, void (*check)(qdr_grid *grid, void *user),
                      void *user)
{
    qdr_grid *grid;
    DIST_OK(qdr_grid_create(ctx, opts, &grid));
    check(grid, user);
    qdr_grid_destroy(&grid);
}

static void check_levels(qdr_context *ctx, qdr_grid_opts opts, void (*check)(qdr_grid *grid, void *user), void *user)
{
    const int all = opts.z * opts.d;
    for (int gradients = opts.z; gradients <= all; gradients += opts.z)
        for (int state = gradients; state <= all; state += gradients) {
            opts.gradient_parts = gradients;
            opts.optimizer_parts = state;
            if (all % gradients == 0 && all % state == 0) check_one(ctx, &opts, check, user);
        }
}

void dist_every_grid(qdr_context *ctx, int with_levels, void (*check)(qdr_grid *grid, void *user), void *user)
{
    const int p = qdr_context_size(ctx);
    for (int x = 1; x <= p; x++)
        for (int y = 1; y <= p; y++)
            for (int z = 1; z <= p; z++) {
                if (p % (x * y * z)) continue;
                const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = x, .y = y, .z = z, .d = p / (x * y * z)};
                if (with_levels)
                    check_levels(ctx, opts, check, user);
                else
                    check_one(ctx, &opts, check, user);
            }
}

int dist_group(const qdr_grid *grid, qdr_axis axis)
{
    int group = 0;
    for (int other = 0; other < QDR_N_AXES; other++)
        if (other != (int)axis)
            group = group * qdr_grid_size(grid, (qdr_axis)other) + qdr_grid_coordinate(grid, (qdr_axis)other);
    return group;
}

void dist_random_cuts(uint64_t *seed, int64_t width, int n, int64_t *cuts)
{
    cuts[0] = 0;
    for (int i = 1; i < n; i++) {
        const int64_t cut = dist_below(seed, width + 1);
        int place = i;
        for (; place > 1 && cuts[place - 1] > cut; place--) cuts[place] = cuts[place - 1];
        cuts[place] = cut;
    }
    cuts[n] = width;
}

void dist_random_blocks(uint64_t *seed, int64_t most_units, qdr_block blocks[QDR_MAX_BLOCKS])
{
    const int64_t n = 1 + dist_below(seed, 3);
    memset(blocks, 0, QDR_MAX_BLOCKS * sizeof *blocks);
    for (int64_t i = 0; i < n; i++) {
        blocks[i].unit = 1 + dist_below(seed, 4);
        blocks[i].width = blocks[i].unit * (1 + dist_below(seed, most_units));
    }
}

qdr_stack *dist_stack(qdr_grid *grid, qdr_stack_opts opts)
{
    qdr_stack *stack = NULL;
    opts.size = sizeof opts;
    DIST_OK(qdr_stack_create(grid, &opts, &stack));
    return stack;
}

qdr_edge dist_input(qdr_stack *stack, const char *name, qdr_edge_desc desc, int with_gradient)
{
    qdr_edge edge = -1;
    desc.size = sizeof desc;
    DIST_OK(qdr_stack_add_input(stack, name, &desc, with_gradient, &edge));
    return edge;
}

qdr_edge dist_linear(qdr_stack *stack, qdr_linear_desc desc, qdr_edge in, qdr_linear **layer)
{
    qdr_edge edge = -1;
    desc.size = sizeof desc;
    DIST_OK(qdr_stack_add_linear(stack, &desc, in, &edge, layer));
    return edge;
}

void *dist_edge_value(const qdr_stack *stack, qdr_edge edge)
{
    void *value = NULL;
    DIST_OK(qdr_stack_edge_value(stack, edge, &value));
    return value;
}

void *dist_edge_gradient(const qdr_stack *stack, qdr_edge edge)
{
    void *gradient = NULL;
    DIST_OK(qdr_stack_edge_gradient(stack, edge, &gradient));
    return gradient;
}

qdr_owned dist_edge_owned(const qdr_stack *stack, qdr_edge edge)
{
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    DIST_OK(qdr_stack_edge_owned(stack, edge, &owned));
    return owned;
}

qdr_parameter dist_parameter(const qdr_stack *stack, int index)
{
    qdr_parameter parameter = {QDR_INIT(qdr_parameter)};
    DIST_OK(qdr_stack_parameter(stack, index, &parameter));
    return parameter;
}

qdr_traffic dist_traffic(const qdr_grid *grid, qdr_channel channel, qdr_coll_kind kind)
{
    qdr_traffic traffic = {QDR_INIT(qdr_traffic)};
    DIST_OK(qdr_grid_traffic(grid, channel, kind, &traffic));
    return traffic;
}

void *dist_memory(qdr_context *ctx, int64_t n_elems, qdr_dtype dtype)
{
    const size_t bytes = (size_t)n_elems * qdr_dtype_bytes(dtype);
    void *data = NULL;
    DIST_OK(qdr_mem_alloc(ctx, bytes, &data));
    memset(data, 0xff, bytes);
    return data;
}

void dist_set(void *data, qdr_dtype dtype, int64_t i, double value)
{
    switch (dtype) {
    case QDR_F32: ((float *)data)[i] = (float)value; break;
    case QDR_F64: ((double *)data)[i] = value; break;
    case QDR_BF16:
    case QDR_F16: ((uint16_t *)data)[i] = narrow_bits(dtype, value); break;
    case QDR_I32: ((int32_t *)data)[i] = (int32_t)value; break;
    case QDR_U8: ((uint8_t *)data)[i] = (uint8_t)value; break;
    }
}

double dist_get(const void *data, qdr_dtype dtype, int64_t i)
{
    switch (dtype) {
    case QDR_F32: return (double)((const float *)data)[i];
    case QDR_F64: return ((const double *)data)[i];
    case QDR_I32: return ((const int32_t *)data)[i];
    case QDR_U8: return ((const uint8_t *)data)[i];
    case QDR_BF16:
    case QDR_F16: break;
    }
    return narrow_value(dtype, ((const uint16_t *)data)[i]);
}

void dist_fill_edge_along(const qdr_stack *stack, qdr_edge edge, void *data, uint64_t seed, double step,
                          uint64_t direction)
{
    int64_t at = 0;
    const qdr_owned owned = dist_edge_owned(stack, edge);
    for (int64_t r = owned.rows.begin; r < owned.rows.end; r++)
        for (int i = 0; i < owned.n_ranges; i++)
            for (int64_t c = owned.cols[i].begin; c < owned.cols[i].end; c++)
                dist_set(data, qdr_stack_dtype(stack), at++,
                         dist_value(seed, r, c) + step * dist_value(direction, r, c));
}

void dist_fill_edge(const qdr_stack *stack, qdr_edge edge, void *data, uint64_t seed)
{
    dist_fill_edge_along(stack, edge, data, seed, 0, 0);
}

int64_t dist_column(const qdr_owned *owned, int64_t local)
{
    int i = 0;
    for (; local >= owned->cols[i].end - owned->cols[i].begin; i++) local -= owned->cols[i].end - owned->cols[i].begin;
    return owned->cols[i].begin + local;
}

int64_t dist_place(const qdr_owned *owned, int64_t row, int64_t col)
{
    if (row < owned->rows.begin || row >= owned->rows.end) return -1;
    for (int64_t i = 0; i < owned->n_cols; i++)
        if (dist_column(owned, i) == col) return (row - owned->rows.begin) * owned->n_cols + i;
    return -1;
}

void *dist_build_in_nan(qdr_stack *stack)
{
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_get_sizes(stack, &sizes));
    const size_t kept = (sizes.activations + 63) / 64 * 64;
    char *memory = dist_memory(qdr_grid_context(qdr_stack_grid(stack)), (int64_t)(kept + sizes.workspace), QDR_U8);
    const qdr_stack_memory parts = {QDR_INIT(qdr_stack_memory), .activations = memory, .workspace = memory + kept};
    DIST_OK(qdr_stack_bind(stack, &parts));
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        if (p.gradient)
            memset(p.gradient, 0xff, (size_t)p.n_gradient * qdr_dtype_bytes(dist_sum_type(qdr_stack_dtype(stack))));
    }
    return memory;
}

void dist_step(qdr_stack *stack, qdr_edge x, uint64_t x_seed, qdr_edge y, uint64_t y_seed, int flags)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(stack));
    void *data = dist_edge_value(stack, x);
    dist_fill_edge(stack, x, data, x_seed);
    DIST_OK(qdr_stack_forward(stack));
    dist_synchronize(ctx);
    data = dist_edge_gradient(stack, y);
    dist_fill_edge(stack, y, data, y_seed);
    DIST_OK(qdr_stack_backward(stack, flags, 1));
    dist_synchronize(ctx);
}

int64_t dist_gather_gradients(qdr_stack *stack, void *gradients)
{
    const size_t bytes = qdr_dtype_bytes(dist_sum_type(qdr_stack_dtype(stack)));
    int64_t n = 0;
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter parameter = dist_parameter(stack, i);
        DIST_OK(qdr_stack_gather_parameter(stack, i, 1, (char *)gradients + (size_t)n * bytes));
        n += parameter.n_global;
    }
    return n;
}

void dist_synchronize(qdr_context *ctx) { DIST_OK(qdr_stream_synchronize(qdr_context_stream(ctx))); }

double dist_roundoff(qdr_dtype dtype)
{
    if (is_narrow(dtype)) return narrow_roundoff(dtype);
    return dtype == QDR_F64 ? 0x1p-52 : 0x1p-24;
}

double dist_least(qdr_dtype dtype) { return dtype == QDR_F16 ? narrow_least(dtype) : 0; }

qdr_dtype dist_sum_type(qdr_dtype dtype) { return dtype == QDR_F64 ? QDR_F64 : QDR_F32; }

/* ---- levels ---- */

qdr_grid *dist_levels_grid(qdr_context *ctx, uint64_t *seed)
{
    for (;;) {
        qdr_grid *grid = dist_random_grid(ctx, seed);
        if (dist_has_levels(grid) || qdr_context_size(ctx) == 1) return grid;
        qdr_grid_destroy(&grid);
    }
}

int dist_has_levels(const qdr_grid *grid)
{
    return qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER) > qdr_grid_parts(grid, QDR_LEVEL_WEIGHTS);
}

double dist_digest(const void *data, size_t n_bytes)
{
    uint64_t sum = 14695981039346656037u;
    for (size_t i = 0; i < n_bytes; i++) sum = (sum ^ ((const uint8_t *)data)[i]) * 1099511628211u;
    return (double)(sum >> 12);
}

void dist_check_digest(qdr_grid *grid, double digest, const char *when, const char *what)
{
    qdr_context *ctx = qdr_grid_context(grid);
    double *digests = dist_memory(ctx, 2, QDR_F64);
    digests[0] = digests[1] = digest;
    DIST_OK(qdr_all_reduce(grid, QDR_D, QDR_MAX, &digests[0], 1, QDR_F64, NULL));
    DIST_OK(qdr_all_reduce(grid, QDR_D, QDR_MIN, &digests[1], 1, QDR_F64, NULL));
    dist_synchronize(ctx);
    DIST_CHECK(digests[0] == digests[1], "%s: copies of %s differ", when, what);
    qdr_mem_free(ctx, (void **)&digests);
}

void dist_check_copies(qdr_stack *stack, const char *when)
{
    qdr_grid *grid = qdr_stack_grid(stack);
    dist_synchronize(qdr_grid_context(grid));
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        DIST_CHECK(!p.stale, "%s: %s is stale", when, p.name);
        const size_t bytes = (size_t)p.n_elems * qdr_dtype_bytes(qdr_stack_dtype(stack));
        dist_check_digest(grid, dist_digest(p.data, bytes), when, p.name);
    }
}

/* ---- running ---- */

static int run_rank(qdr_context *ctx, void *user)
{
    const dist_plan *plan = user;
    uint64_t seed = plan->seed;
    int n_run = 0;
    this_rank = qdr_context_rank(ctx);
    DIST_OK(qdr_broadcast(ctx, 0, &seed, sizeof seed));
    if (this_rank == 0) printf("%d ranks, --seed %llu\n", qdr_context_size(ctx), (unsigned long long)seed);
    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        if (!tests[i].run || (plan->only ? strcmp(tests[i].name, plan->only) != 0 : tests[i].is_apart)) continue;
        tests[i].run(ctx, seed);
        n_run++;
        DIST_OK(qdr_barrier(ctx));
        if (this_rank == 0) printf("ok %s\n", tests[i].name);
    }
    DIST_CHECK(n_run > 0, "there is no test %s", plan->only ? plan->only : "");
    return 0;
}

void dist_add(int line, const char *name, dist_test run, int is_apart)
{
    tests[line].name = name;
    tests[line].run = run;
    tests[line].is_apart = is_apart;
}

int dist_main(int argc, char **argv, const char *only)
{
    dist_plan plan = {only, (uint64_t)time(NULL)};
    int exit_code = 1;
    int n_boot = 0;
    for (int i = 1; i + 1 < argc; i += 2) {
        if (strcmp(argv[i], "--local") == 0) n_local = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--boot") == 0) n_boot = atoi(argv[i + 1]);
        if (strcmp(argv[i], "--seed") == 0) plan.seed = strtoull(argv[i + 1], NULL, 10);
    }
    const qdr_status status = n_boot ? boot_launch(n_boot, NULL, run_rank, &plan, &exit_code)
                                     : qdr_launch(n_local, NULL, run_rank, &plan, &exit_code);
    if (status == QDR_OK) return exit_code;
    fprintf(stderr, "launch: %s\n", qdr_last_error());
    return 1;
}

/* Of programs that have none of their own. */
__attribute__((weak)) int main(int argc, char **argv) { return dist_main(argc, argv, NULL); }
