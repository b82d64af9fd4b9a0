/* SPDX-License-Identifier: Apache-2.0 */
/* Grids: coordinates, groups, sums over axes, traffic, invalid options.
 *
 *   test_grid nodes     only groups, on as many ranks as several nodes have */
#include "dist.h"
#include "grid/internal.h"

static const char *const orders[] = {"xyzd", "dzyx", "zxdy", "yxzd", NULL};

static int axis_of(char letter) { return (int)(strchr("xyzd", letter) - "xyzd"); }

/* Along the fastest axis the rank grows by 1, along each slower one by the size of all faster. */
static void check_coordinates(const qdr_grid *grid, const char *order)
{
    const int size = qdr_context_size(qdr_grid_context(grid));
    for (int rank = 0; rank < size; rank++) {
        int c[QDR_N_AXES], rest = rank;
        DIST_OK(qdr_grid_coordinates_of(grid, rank, c));
        for (int i = 0; i < QDR_N_AXES; i++) {
            const qdr_axis axis = (qdr_axis)axis_of(order ? order[i] : "xyzd"[i]);
            DIST_CHECK(c[axis] == rest % qdr_grid_size(grid, axis), "rank %d axis %d", rank, (int)axis);
            rest /= qdr_grid_size(grid, axis);
        }
        DIST_CHECK(qdr_grid_rank_at(grid, c) == rank, "rank %d", rank);
    }
    DIST_FAILS(qdr_grid_coordinates_of(grid, size, (int[QDR_N_AXES]){0}), QDR_ERR_ARGUMENT, "rank");
    DIST_CHECK(qdr_grid_rank_at(grid, (const int[]){0, 0, -1, 0}) == -1, "outside");
    DIST_CHECK(qdr_grid_rank_at(grid, (const int[]){0, qdr_grid_size(grid, QDR_Y), 0, 0}) == -1, "outside");
}

static void check_neighbours(const qdr_grid *grid)
{
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const int size = qdr_grid_size(grid, (qdr_axis)axis);
        for (int step = -2 * size - 1; step <= 2 * size + 1; step++) {
            int mine[QDR_N_AXES], theirs[QDR_N_AXES];
            const int rank = qdr_grid_neighbour(grid, (qdr_axis)axis, step);
            DIST_OK(qdr_grid_coordinates_of(grid, rank, theirs));
            for (int other = 0; other < QDR_N_AXES; other++) mine[other] = qdr_grid_coordinate(grid, (qdr_axis)other);
            mine[axis] = ((mine[axis] + step) % size + size) % size;
            DIST_CHECK(memcmp(mine, theirs, sizeof mine) == 0, "axis %d step %d", axis, step);
        }
    }
}

/* The step along a channel's axis from one member to the next, and the number of members. With levels d is divided,
 * fastest first, into near, far and copies. */
static int step_of(const qdr_grid *grid, qdr_channel channel, int *n_members)
{
    const int z = qdr_grid_size(grid, QDR_Z), d = qdr_grid_size(grid, QDR_D);
    const int gradients = qdr_grid_parts(grid, QDR_LEVEL_GRADIENTS), state = qdr_grid_parts(grid, QDR_LEVEL_OPTIMIZER);
    switch (channel) {
    case QDR_CHANNEL_D_NEAR: *n_members = gradients / z; return 1;
    case QDR_CHANNEL_D_FAR: *n_members = state / gradients; return gradients / z;
    case QDR_CHANNEL_D_COPIES: *n_members = state > z ? z * d / state : 1; return state / z;
    default: *n_members = qdr_grid_size(grid, qdr_channel_axis(channel)); return 1;
    }
}

/* Members of a channel differ only in its axis and stand in the order of that coordinate. */
static void check_channels(const qdr_grid *grid)
{
    static const char axes[QDR_N_CHANNELS + 1] = "xxyyzzdddd"
                                                 "xyzd";
    const int rank = qdr_context_rank(qdr_grid_context(grid));
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        const qdr_axis axis = (qdr_axis)axis_of(axes[channel]);
        qdri_comm *comm = qdri_grid_comm(grid, (qdr_channel)channel);
        qdr_stream *stream = qdri_stream_or_default(grid, qdri_grid_stream(grid, (qdr_channel)channel));
        int32_t *ranks = dist_memory(qdr_grid_context(grid), 64, QDR_I32);
        int n_members = 0;
        const int step = step_of(grid, (qdr_channel)channel, &n_members);
        const int index = qdr_grid_coordinate(grid, axis) / step % n_members;
        DIST_CHECK(qdri_comm_size(comm) == n_members, "channel %d", channel);
        DIST_CHECK(qdr_grid_channel_size(grid, (qdr_channel)channel) == n_members, "channel %d", channel);
        DIST_CHECK(qdri_comm_rank(comm) == index, "channel %d", channel);
        ranks[qdri_comm_rank(comm)] = rank;
        const qdri_coll coll = {.kind = QDR_ALL_GATHER, .dtype = QDR_I32, .recv = ranks, .count = 1};
        DIST_OK(qdri_comm_launch(comm, &coll, stream));
        DIST_OK(qdr_stream_synchronize(stream));
        for (int j = 0; j < n_members; j++)
            DIST_CHECK(ranks[j] == qdr_grid_neighbour(grid, axis, (j - index) * step), "channel %d member %d", channel,
                       j);
        const qdr_traffic traffic = dist_traffic(grid, (qdr_channel)channel, QDR_ALL_GATHER);
        DIST_CHECK(traffic.bytes_sent == 4 * (qdri_comm_size(comm) - 1), "bytes");
        DIST_CHECK(traffic.n_calls == (qdri_comm_size(comm) > 1), "calls");
        const int may_be_untimed = qdr_context_gpu(qdr_grid_context(grid)) >= 0;
        DIST_CHECK((traffic.secs > 0) == (traffic.n_calls > 0) || (may_be_untimed && traffic.secs == 0), "seconds");
        qdr_mem_free(qdr_grid_context(grid), (void **)&ranks);
    }
}

/* By node where members stand node by node, as many on each of several; otherwise all are counterparts. */
static void check_coded_groups(const qdr_grid *grid)
{
    const qdr_context *ctx = qdr_grid_context(grid);
    for (int channel = 0; channel < (int)QDR_CHANNEL_X_STAT; channel++) {
        const qdr_axis axis = qdr_channel_axis((qdr_channel)channel);
        int n = 0, nodes[64], n_alike = 0, per_node = 1;
        const int step = step_of(grid, (qdr_channel)channel, &n), index = qdr_grid_coordinate(grid, axis) / step % n;
        for (int j = 0; j < n; j++) {
            nodes[j] = qdr_context_node(ctx, qdr_grid_neighbour(grid, axis, (j - index) * step));
            n_alike += nodes[j] == nodes[0];
        }
        for (int each = 2; each < n; each++) {
            int is_by_node = n % each == 0;
            for (int i = 0; i < n * n; i++)
                is_by_node &= (nodes[i / n] == nodes[i % n]) == (i / n / each == i % n / each);
            if (is_by_node) per_node = each;
        }
        const qdri_coded_group wanted = {n / per_node, per_node, index / per_node, index % per_node, n_alike == n};
        qdri_coded_group group;
        DIST_OK(qdri_grid_coded_group(grid, (qdr_channel)channel, &group));
        DIST_CHECK(memcmp(&group, &wanted, sizeof group) == 0, "channel %d: %d nodes of %d, not %d of %d", channel,
                   group.n_nodes, group.per_node, wanted.n_nodes, wanted.per_node);
    }
}

/* The parts of a level are those of the level before, divided; ranks with the same part are copies. */
static void check_levels(qdr_grid *grid, const qdr_grid_opts *opts)
{
    const int z = opts->z, gradients = opts->gradient_parts, state = opts->optimizer_parts;
    const int wanted[QDR_N_LEVELS] = {z, gradients ? gradients : z, state ? state : gradients ? gradients : z};
    int part[QDR_N_LEVELS];
    for (int level = 0; level < QDR_N_LEVELS; level++) {
        part[level] = qdr_grid_part(grid, (qdr_level)level);
        DIST_CHECK(qdr_grid_parts(grid, (qdr_level)level) == wanted[level], "level %d", level);
        DIST_CHECK(part[level] >= 0 && part[level] < wanted[level], "level %d: part %d", level, part[level]);
        if (level) DIST_CHECK(part[level] / (wanted[level] / wanted[level - 1]) == part[level - 1], "level %d", level);
    }
    DIST_CHECK(part[0] == qdr_grid_coordinate(grid, QDR_Z), "weights");
    double *counts = dist_memory(qdr_grid_context(grid), 64, QDR_F64);
    for (int i = 0; i < 64; i++) counts[i] = i == part[QDR_LEVEL_OPTIMIZER];
    DIST_OK(qdr_all_reduce(grid, QDR_Z, QDR_SUM, counts, 64, QDR_F64, NULL));
    DIST_OK(qdr_all_reduce(grid, QDR_D, QDR_SUM, counts, 64, QDR_F64, NULL));
    dist_synchronize(qdr_grid_context(grid));
    const int n_copies = z * opts->d / wanted[QDR_LEVEL_OPTIMIZER];
    for (int i = 0; i < wanted[QDR_LEVEL_OPTIMIZER]; i++)
        DIST_CHECK(counts[i] == n_copies, "%g ranks have part %d", counts[i], i);
    qdr_mem_free(qdr_grid_context(grid), (void **)&counts);
    DIST_CHECK(qdr_grid_parts(grid, QDR_N_LEVELS) == 0 && qdr_grid_part(grid, QDR_N_LEVELS) == -1, "no such level");
    DIST_CHECK(qdr_grid_parts(NULL, QDR_LEVEL_WEIGHTS) == 0 && qdr_grid_part(NULL, QDR_LEVEL_WEIGHTS) == -1, "NULL");
    DIST_CHECK(qdr_grid_channel_size(grid, QDR_N_CHANNELS) == 0 && qdr_grid_channel_size(NULL, 0) == 0, "no channel");
}

/* The lowest rank of a node stands for all of its ranks, which are as many as the library has it. */
static void check_nodes(const qdr_context *ctx)
{
    const int mine = qdr_context_node(ctx, qdr_context_rank(ctx)), p = qdr_context_size(ctx);
    int n_here = 0;
    for (int rank = 0; rank < p; rank++) {
        const int node = qdr_context_node(ctx, rank);
        DIST_CHECK(node >= 0 && node <= rank && qdr_context_node(ctx, node) == node, "rank %d", rank);
        n_here += node == mine;
    }
    DIST_CHECK(n_here == qdri_comm_node_size(qdri_context_world(ctx)), "%d on this node", n_here);
    DIST_CHECK(qdr_context_node(ctx, -1) == -1 && qdr_context_node(ctx, p) == -1, "outside");
    DIST_CHECK(qdr_context_node(NULL, 0) == -1, "no context");
}

/* With each way to nest levels, if there are several. */
static void check_grid(qdr_context *ctx, qdr_grid_opts opts)
{
    const int all = opts.z * opts.d;
    for (int gradients = 0; gradients <= all; gradients += opts.z)
        for (int state = 0; state <= all; state += gradients ? gradients : all) {
            qdr_grid *grid = NULL;
            opts.gradient_parts = gradients;
            opts.optimizer_parts = state;
            if ((gradients && all % gradients) || (state && all % state)) {
                DIST_FAILS(qdr_grid_create(ctx, &opts, &grid), QDR_ERR_ARGUMENT, "that divides z*d");
                continue;
            }
            DIST_OK(qdr_grid_create(ctx, &opts, &grid));
            check_coordinates(grid, opts.order);
            check_neighbours(grid);
            check_channels(grid);
            check_coded_groups(grid);
            check_levels(grid, &opts);
            qdr_grid_destroy(&grid);
            DIST_CHECK(grid == NULL, "destroy");
        }
}

DIST_TEST(every_grid)
{
    const int p = qdr_context_size(ctx);
    check_nodes(ctx);
    for (int x = 1; x <= p; x++)
        for (int y = 1; x * y <= p; y++)
            for (int z = 1; z <= p / (x * y); z++)
                if (p % (x * y * z) == 0)
                    check_grid(ctx, (qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = x, .y = y, .z = z,
                                                    .d = p / (x * y * z), .order = orders[(x + 2 * y + 3 * z) % 5]});
}

/* Some that have groups of several members on each node: all of them take long there. */
DIST_TEST_APART(groups_on_nodes)
{
    const int p = qdr_context_size(ctx), parts[][2] = {{2, p}, {2, 2}, {p / 2, p}};
    check_nodes(ctx);
    for (int i = 0; i < 3; i++) {
        const qdr_grid_opts opts = {
            QDR_INIT(qdr_grid_opts),       .x = 1, .y = 1, .z = 1, .d = p, .gradient_parts = parts[i][0],
            .optimizer_parts = parts[i][1]};
        qdr_grid *grid;
        DIST_OK(qdr_grid_create(ctx, &opts, &grid));
        check_channels(grid);
        check_coded_groups(grid);
        qdr_grid_destroy(&grid);
    }
}

/* The sum of everyone's value is exact in all types; the maximum and minimum, too. */
DIST_TEST(sums_over_axes)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    for (int trial = 0; trial < 12; trial++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const qdr_axis axis = (qdr_axis)dist_below(&seed, QDR_N_AXES);
        const qdr_dtype dtype = dtypes[dist_below(&seed, 4)];
        const qdr_reduce op = (qdr_reduce)dist_below(&seed, 3);
        const int64_t n = dist_below(&seed, 200);
        const int size = qdr_grid_size(grid, axis);
        void *data = dist_memory(ctx, n + 1, dtype);
        for (int64_t i = 0; i < n; i++)
            dist_set(data, dtype, i, (double)((i + qdr_grid_coordinate(grid, axis)) % 7) - 3);
        DIST_OK(qdr_all_reduce(grid, axis, op, data, n, dtype, NULL));
        dist_synchronize(ctx);
        for (int64_t i = 0; i < n; i++) {
            double want = (double)(i % 7) - 3;
            for (int j = 1; j < size; j++) {
                const double next = (double)((i + j) % 7) - 3;
                if (op == QDR_SUM) want += next;
                if (op == QDR_MAX && next > want) want = next;
                if (op == QDR_MIN && next < want) want = next;
            }
            DIST_CHECK(dist_get(data, dtype, i) == want, "element %d: %g, not %g", (int)i, dist_get(data, dtype, i),
                       want);
        }
        qdr_mem_free(ctx, &data);
        qdr_grid_destroy(&grid);
    }
}

DIST_TEST(traffic_is_exact)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const int64_t g = qdr_grid_size(grid, (qdr_axis)axis), n = 12 * g;
        double *data = dist_memory(ctx, n, QDR_F64);
        const qdr_channel channel = (qdr_channel)(QDR_CHANNEL_X_STAT + axis);
        DIST_OK(qdr_all_reduce(grid, (qdr_axis)axis, QDR_MAX, data, n, QDR_F64, NULL));
        DIST_OK(qdr_all_reduce(grid, (qdr_axis)axis, QDR_MAX, data, n, QDR_F64, NULL));
        dist_synchronize(ctx);
        const qdr_traffic traffic = dist_traffic(grid, channel, QDR_ALL_REDUCE);
        DIST_CHECK(traffic.bytes_sent == 2 * 8 * 2 * (g - 1) * n / g, "%lld bytes on %s", (long long)traffic.bytes_sent,
                   qdr_channel_name(channel));
        DIST_CHECK(traffic.n_calls == (g > 1 ? 2 : 0), "calls");
        qdr_mem_free(ctx, (void **)&data);
    }
    qdr_grid_reset_traffic(grid);
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        const qdr_channel channel = (qdr_channel)(QDR_CHANNEL_X_STAT + axis);
        const qdr_traffic traffic = dist_traffic(grid, channel, QDR_ALL_REDUCE);
        DIST_CHECK(traffic.bytes_sent == 0 && traffic.n_calls == 0, "reset");
    }
    qdr_grid_destroy(&grid);
}

DIST_TEST(bad_options)
{
    const int p = qdr_context_size(ctx), rank = qdr_context_rank(ctx);
    char words[96];
    qdr_grid *grid = NULL;
    snprintf(words, sizeof words, "product is %d", p);
    DIST_FAILS(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = p, .y = 2, .z = 1, .d = 1}, &grid),
               QDR_ERR_ARGUMENT, words);
    DIST_FAILS(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = p, .y = 0, .z = 1, .d = 1}, &grid),
               QDR_ERR_ARGUMENT, "axis y");
    DIST_FAILS(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = p, .y = 1, .z = 1, .d = -4}, &grid),
               QDR_ERR_ARGUMENT, "axis d");
    DIST_FAILS(
        qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = p, .y = 1, .z = 1, .d = 1, .order = "xyz"},
                        &grid),
        QDR_ERR_ARGUMENT, "\"xyz\"");
    DIST_FAILS(
        qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = p, .y = 1, .z = 1, .d = 1, .order = "xxzd"},
                        &grid),
        QDR_ERR_ARGUMENT, "order");
    DIST_FAILS(qdr_grid_create(ctx, &(qdr_grid_opts){.x = p, .y = 1, .z = 1, .d = 1}, &grid), QDR_ERR_ARGUMENT,
               "QDR_INIT");
    DIST_FAILS(qdr_grid_create(
                   ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 1 << 30, .y = 1 << 30, .z = 9, .d = 9}, &grid),
               QDR_ERR_ARGUMENT, words);
    DIST_FAILS(qdr_grid_create(ctx, NULL, &grid), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_grid_create(NULL, NULL, &grid), QDR_ERR_ARGUMENT, "NULL");
    /* one rank alone is wrong, or differs: all learn of it */
    const qdr_grid_opts good = {QDR_INIT(qdr_grid_opts), .x = p, .y = 1, .z = 1, .d = 1, .order = "xyzd"};
    qdr_grid_opts other = good;
    if (rank == p - 1) other.x = p + 1;
    DIST_FAILS(qdr_grid_create(ctx, &other, &grid), QDR_ERR_ARGUMENT, words);
    other = good;
    if (rank == p - 1) other.order = "yxzd";
    if (p > 1) DIST_FAILS(qdr_grid_create(ctx, &other, &grid), QDR_ERR_ARGUMENT, "must ask for the same");
    if (p > 1) {
        other = (qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = p};
        other.optimizer_parts = rank == p - 1 ? p : 1;
        snprintf(words, sizeof words, "levels 1,%d", p);
        DIST_FAILS(qdr_grid_create(ctx, &other, &grid), QDR_ERR_ARGUMENT, words);
    }
    other = (qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = p, .gradient_parts = p + 1};
    snprintf(words, sizeof words, "gradients in %d parts; use a number that divides z*d = %d", p + 1, p);
    DIST_FAILS(qdr_grid_create(ctx, &other, &grid), QDR_ERR_ARGUMENT, words);
    other.gradient_parts = p;
    other.optimizer_parts = -1;
    DIST_FAILS(qdr_grid_create(ctx, &other, &grid), QDR_ERR_ARGUMENT, "optimizer state in -1 parts");
    DIST_CHECK(grid == NULL, "a grid was made");
    DIST_OK(qdr_grid_create(ctx, &good, &grid));
    DIST_FAILS(qdr_all_reduce(grid, (qdr_axis)4, QDR_SUM, NULL, 0, QDR_F32, NULL), QDR_ERR_ARGUMENT, "axis");
    DIST_FAILS(qdr_all_reduce(grid, QDR_X, QDR_SUM, NULL, 3, QDR_F32, NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_all_reduce(grid, QDR_X, QDR_SUM, words, 1, QDR_U8, NULL), QDR_ERR_DTYPE, "u8");
    DIST_OK(qdr_context_status(ctx));
    qdr_grid_destroy(&grid);
    qdr_grid_destroy(&grid);
    qdr_grid_destroy(NULL);
}

int main(int argc, char **argv)
{
    const int on_nodes = argc > 1 && strcmp(argv[1], "nodes") == 0;
    return dist_main(argc - on_nodes, argv + on_nodes, on_nodes ? "groups_on_nodes" : NULL);
}
