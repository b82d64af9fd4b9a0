/* SPDX-License-Identifier: Apache-2.0 */
/* How W is stored: with the other storage W has the same numbers in other places, all ranks take the same choices from
 * QDR_TUNE's file or measure them together, and without it nothing changes. That products with either storage are right
 * is shown by test_linear. */
#include <unistd.h>

#include "core/block.h"
#include "core/size.h"
#include "dist.h"
#include "linear/tune.h"

/* Two layers, normal and transposed, of sizes that few grids divide. */
enum { N_LAYERS = 2, ROWS = 22, IN = 13, MIDDLE = 17, OUT = 11, MOST = 512 };

typedef struct net {
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_edge x, y;
    qdr_linear *layers[N_LAYERS];
} net;

static net describe(qdr_grid *grid, qdr_layout layout, int64_t scale, const qdr_storage storage[2])
{
    net n = {.grid = grid};
    qdr_edge middle;
    const qdr_edge_desc x = {QDR_INIT(qdr_edge_desc), .cols = {{IN * scale, 1}}, .col_axis = QDR_X, .layout = layout};
    const qdr_linear_desc first = {QDR_INIT(qdr_linear_desc), .name = "first",
                                   .in = {{IN * scale, 1}},   .out = {{5, 1}, {MIDDLE * scale - 5, 1}},
                                   .out_layout = layout,      .storage = storage[0]};
    const qdr_linear_desc second = {
        QDR_INIT(qdr_linear_desc), .name = "second", .in = {{5, 1}, {MIDDLE * scale - 5, 1}},
        .out = {{OUT * scale, 1}}, .transposed = 1,  .out_layout = layout,
        .storage = storage[1]};
    n.stack = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS * scale, .dtype = scale == 1 ? QDR_F64 : QDR_F32});
    DIST_OK(qdr_stack_add_input(n.stack, "x", &x, 1, &n.x));
    DIST_OK(qdr_stack_add_linear(n.stack, &first, n.x, &middle, &n.layers[0]));
    DIST_OK(qdr_stack_add_linear(n.stack, &second, middle, &n.y, &n.layers[1]));
    return n;
}

static net make(qdr_grid *grid, qdr_layout layout, int64_t scale, const qdr_storage storage[2])
{
    net n = describe(grid, layout, scale, storage);
    DIST_OK(qdr_stack_build(n.stack));
    return n;
}

static const qdr_storage none_asked[2] = {QDR_STORAGE_AUTO, QDR_STORAGE_AUTO};

static uint64_t hash(uint64_t bits, const void *data, size_t bytes)
{
    const unsigned char *at = data;
    for (size_t i = 0; i < bytes; i++) bits = (bits ^ at[i]) * 0x100000001b3u;
    return bits;
}

static uint64_t hash_edge(const net *n, qdr_edge edge, const void *data, uint64_t bits)
{
    const qdr_owned owned = dist_edge_owned(n->stack, edge);
    return hash(bits, data, (size_t)(owned.n_rows * owned.n_cols) * qdr_dtype_bytes(qdr_stack_dtype(n->stack)));
}

/* Both passes; a number of all bits of y, dx, every dW, and the parameters. */
static uint64_t run(const net *n, uint64_t seed)
{
    qdr_context *ctx = qdr_grid_context(n->grid);
    void *x = dist_edge_value(n->stack, n->x);
    void *y = dist_edge_value(n->stack, n->y);
    void *dx = dist_edge_gradient(n->stack, n->x);
    void *dy = dist_edge_gradient(n->stack, n->y);
    dist_fill_edge(n->stack, n->x, x, seed); /* in 2^-6: two layers are exact in f64 */
    DIST_OK(qdr_stack_forward(n->stack));
    dist_synchronize(ctx);
    dist_fill_edge(n->stack, n->y, dy, seed + 1);
    DIST_OK(qdr_stack_backward(n->stack, 0, 1));
    dist_synchronize(ctx);
    uint64_t bits = hash_edge(n, n->x, dx, hash_edge(n, n->y, y, 0xcbf29ce484222325u));
    for (int i = 0; i < 2 * N_LAYERS; i++) {
        const qdr_parameter p = dist_parameter(n->stack, i / 2);
        const size_t bytes = (size_t)p.n_global * qdr_dtype_bytes(qdr_stack_dtype(n->stack));
        void *full = malloc(bytes);
        DIST_CHECK(full, "no memory");
        DIST_OK(qdr_stack_gather_parameter(n->stack, i / 2, (qdr_parameter_data)(i % 2), full));
        bits = hash(bits, full, bytes);
        free(full);
    }
    return bits;
}

/* Whole W of dist_value() by global index. */
static void load(const net *n, uint64_t seed)
{
    for (int i = 0; i < N_LAYERS; i++) {
        const qdr_parameter p = dist_parameter(n->stack, i);
        const qdr_dtype dtype = qdr_stack_dtype(n->stack);
        void *full = malloc((size_t)p.n_global * qdr_dtype_bytes(dtype));
        DIST_CHECK(full, "no memory");
        for (int64_t j = 0; j < p.n_global; j++) dist_set(full, dtype, j, dist_value(seed + 7 + (uint64_t)i, j, 0));
        DIST_OK(qdr_stack_load_parameter(n->stack, i, full));
        free(full);
    }
}

/* ---- the environment and its file, which only rank 0 looks at ---- */

static char folder[64], path[96];

static void set_tune(qdr_context *ctx, const char *value)
{
    DIST_OK(qdr_barrier(ctx));
    if (qdr_context_rank(ctx) == 0) {
        if (value)
            setenv("QDR_TUNE", value, 1);
        else
            unsetenv("QDR_TUNE");
    }
    DIST_OK(qdr_barrier(ctx));
}

static void begin_file(qdr_context *ctx)
{
    if (qdr_context_rank(ctx) == 0) {
        strcpy(folder, "/tmp/qdr_tune_XXXXXX");
        DIST_CHECK(mkdtemp(folder), "no folder in /tmp");
        snprintf(path, sizeof path, "%s/tune.json", folder);
    }
    set_tune(ctx, path);
}

static void end_file(qdr_context *ctx)
{
    set_tune(ctx, NULL);
    if (qdr_context_rank(ctx) != 0) return;
    remove(path);
    DIST_CHECK(rmdir(folder) == 0, "something was left in %s", folder);
}

static void write_file(qdr_context *ctx, const char *text)
{
    DIST_OK(qdr_barrier(ctx));
    if (qdr_context_rank(ctx) == 0) {
        FILE *file = fopen(path, "w");
        DIST_CHECK(file && fputs(text, file) >= 0 && fclose(file) == 0, "%s", path);
    }
    DIST_OK(qdr_barrier(ctx));
}

/* Choices for both layers of a net, for this machine or another. */
static void write_choices(const net *n, const qdr_storage storage[2], const char *machine)
{
    qdr_context *ctx = qdr_grid_context(n->grid);
    qdri_tune_table table = {0};
    DIST_OK(qdr_barrier(ctx));
    for (int i = 0; i < N_LAYERS && qdr_context_rank(ctx) == 0; i++) {
        qdr_linear_storage s = {QDR_INIT(qdr_linear_storage)};
        DIST_OK(qdr_linear_get_storage(n->layers[i], &s));
        qdri_tune_choice choice = {.key = {.n_threads = qdr_context_threads(ctx),
                                           .dtype = qdr_stack_dtype(n->stack),
                                           .m = s.m,
                                           .n = s.n,
                                           .k = s.k},
                                   .storage = storage[i]};
        DIST_OK(qdri_tune_machine(ctx, choice.key.machine));
        if (machine) snprintf(choice.key.machine, sizeof choice.key.machine, "%s", machine);
        DIST_OK(qdri_tune_add(&table, &choice));
    }
    if (qdr_context_rank(ctx) == 0) DIST_OK(qdri_tune_store(path, &table));
    qdri_tune_free(&table);
    DIST_OK(qdr_barrier(ctx));
}

/* Rank 0's is everybody's. */
static qdr_linear_storage storage_of(qdr_context *ctx, const qdr_linear *layer)
{
    qdr_linear_storage mine = {QDR_INIT(qdr_linear_storage)}, first = {QDR_INIT(qdr_linear_storage)};
    DIST_OK(qdr_linear_get_storage(layer, &mine));
    first = mine;
    DIST_OK(qdr_broadcast(ctx, 0, &first, sizeof first));
    DIST_CHECK(mine.storage == first.storage && mine.reason == first.reason,
               "storage %d, reason %d, but %d, %d on rank 0", (int)mine.storage, (int)mine.reason, (int)first.storage,
               (int)first.reason);
    DIST_CHECK(mine.m == first.m && mine.n == first.n && mine.k == first.k, "sizes differ from those of rank 0");
    for (int i = 0; i < 2 * QDRI_N_PRODUCTS; i++)
        DIST_CHECK(mine.secs[i / 3][i % 3] == first.secs[i / 3][i % 3], "time %d differs", i);
    return mine;
}

static void check_storage(const net *n, int layer, qdr_storage storage, qdr_storage_reason reason)
{
    const qdr_linear_storage s = storage_of(qdr_grid_context(n->grid), n->layers[layer]);
    DIST_CHECK(s.storage == storage && s.reason == reason, "layer %d: storage %d, reason %d; %d and %d were right",
               layer, (int)s.storage, (int)s.reason, (int)storage, (int)reason);
    const int turned = storage == QDR_IN_OUT;
    DIST_CHECK(strcmp(s.modes[0], turned ? "NN" : "NT") == 0, "Y is %s", s.modes[0]);
    DIST_CHECK(strcmp(s.modes[1], turned ? "NT" : "NN") == 0, "dX is %s", s.modes[1]);
    DIST_CHECK(strcmp(s.modes[2], "TN") == 0, "dW is %s", s.modes[2]);
    const qdr_parameter p = dist_parameter(n->stack, layer);
    DIST_CHECK(p.storage == storage, "the parameter's storage is %d", (int)p.storage);
}

/* ---- what a turned W holds ---- */

/* Element i of a shard is where the header says. */
static void check_places(const net *n, qdr_storage storage, int64_t n_out, int64_t n_in)
{
    int64_t out, out_end, in, in_end;
    double full[MIDDLE * IN];
    for (int64_t i = 0; i < n_out * n_in; i++) full[i] = (double)i;
    DIST_OK(qdr_stack_load_parameter(n->stack, 1, full));
    const qdr_parameter p = dist_parameter(n->stack, 1);
    qdri_split(n_out, 1, qdr_grid_size(n->grid, QDR_X), qdr_grid_coordinate(n->grid, QDR_X), &out, &out_end);
    qdri_split(n_in, 1, qdr_grid_size(n->grid, QDR_Y), qdr_grid_coordinate(n->grid, QDR_Y), &in, &in_end);
    const int64_t k = in_end - in, rows = out_end - out;
    const int n_parts = qdr_grid_parts(n->grid, QDR_LEVEL_OPTIMIZER) / qdr_grid_parts(n->grid, QDR_LEVEL_WEIGHTS);
    const int64_t shard = qdri_round_up(qdri_ceil_div(rows * k, qdr_grid_size(n->grid, QDR_Z)), 2 * (int64_t)n_parts);
    for (int64_t i = 0; i < p.n_elems; i++) {
        const int64_t flat = shard * qdr_grid_coordinate(n->grid, QDR_Z) + i;
        const int64_t row = storage == QDR_IN_OUT ? flat % rows : flat / k,
                      col = storage == QDR_IN_OUT ? flat / rows : flat % k;
        const double wanted = (double)((out + row) * n_in + in + col);
        DIST_CHECK(((double *)p.data)[i] == wanted, "element %d is %g, not %g", (int)i, ((double *)p.data)[i], wanted);
    }
}

static net one_block(qdr_grid *grid, qdr_storage storage)
{
    net n = {.grid = grid};
    const qdr_edge_desc x = {QDR_INIT(qdr_edge_desc), .cols = {{IN, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc first = {QDR_INIT(qdr_linear_desc), .name = "first", .in = {{IN, 1}}, .out = {{MIDDLE, 1}},
                                   .storage = storage};
    const qdr_linear_desc second = {QDR_INIT(qdr_linear_desc), .name = "second", .in = {{MIDDLE, 1}},
                                    .out = {{OUT, 1}},         .transposed = 1,  .storage = storage};
    qdr_edge middle;
    n.stack = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS, .dtype = QDR_F64});
    DIST_OK(qdr_stack_add_input(n.stack, "x", &x, 1, &n.x));
    DIST_OK(qdr_stack_add_linear(n.stack, &first, n.x, &middle, &n.layers[0]));
    DIST_OK(qdr_stack_add_linear(n.stack, &second, middle, &n.y, &n.layers[1]));
    DIST_OK(qdr_stack_build(n.stack));
    return n;
}

DIST_TEST(elements_lie_where_the_header_says)
{
    for (int round = 0; round < dist_rounds(6); round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        for (int i = 0; i < 2; i++) {
            const qdr_storage storage = i ? QDR_IN_OUT : QDR_OUT_IN;
            net n = one_block(grid, storage);
            check_places(&n, storage, OUT, MIDDLE);
            qdr_stack_destroy(&n.stack);
        }
        qdr_grid_destroy(&grid);
    }
}

/* First values, gathering and loading do not know about storage; nor do exact results. */
DIST_TEST(storage_changes_no_number)
{
    for (int round = 0; round < dist_rounds(6); round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const qdr_layout layout = round % 2 ? QDR_SCATTERED : QDR_REPLICATED;
        uint64_t bits[4][2];
        for (int i = 0; i < 4; i++) {
            const qdr_storage storage[2] = {i % 2 ? QDR_IN_OUT : QDR_OUT_IN, i / 2 ? QDR_IN_OUT : QDR_OUT_IN};
            net n = make(grid, layout, 1, storage);
            for (int j = 0; j < N_LAYERS; j++) check_storage(&n, j, storage[j], QDR_STORAGE_ASKED);
            double first[2][MOST];
            DIST_OK(qdr_stack_init(n.stack, 3, 0.5));
            for (int j = 0; j < N_LAYERS; j++) DIST_OK(qdr_stack_gather_parameter(n.stack, j, 0, first[j]));
            bits[i][0] = hash(hash(1, first[0], sizeof(double) * MIDDLE * IN), first[1], sizeof(double) * OUT * MIDDLE);
            load(&n, seed);
            bits[i][1] = run(&n, seed);
            qdr_stack_destroy(&n.stack);
            DIST_CHECK(memcmp(bits[i], bits[0], sizeof bits[0]) == 0, "round %d, storage %d %d: other numbers", round,
                       (int)storage[0], (int)storage[1]);
        }
        qdr_grid_destroy(&grid);
    }
}

/* An optimizer's state lies as the parameter does. Its arithmetic is the same at each element, but may use other
 * instructions at a shard's end: 8 roundings of numbers below 1. */
DIST_TEST(a_step_changes_the_same_elements)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    double values[2][N_LAYERS][MOST];
    for (int i = 0; i < 2; i++) {
        const qdr_storage storage = i ? QDR_IN_OUT : QDR_OUT_IN;
        net n = make(grid, QDR_REPLICATED, 1, (qdr_storage[]){storage, storage});
        qdr_adamw *optimizer = NULL;
        load(&n, seed);
        run(&n, seed);
        DIST_OK(qdr_adamw_create(n.stack, NULL, &optimizer));
        DIST_OK(qdr_adamw_step(optimizer, 0.125));
        dist_synchronize(ctx);
        for (int j = 0; j < N_LAYERS; j++) DIST_OK(qdr_stack_gather_parameter(n.stack, j, 0, values[i][j]));
        qdr_adamw_destroy(&optimizer);
        qdr_stack_destroy(&n.stack);
    }
    for (int j = 0; j < N_LAYERS; j++)
        for (int64_t e = 0; e < (j ? OUT * MIDDLE : MIDDLE * IN); e++)
            DIST_CHECK(fabs(values[0][j][e] - values[1][j][e]) <= 8 * dist_roundoff(QDR_F64),
                       "element %d of layer %d: %.17g and %.17g", (int)e, j, values[0][j][e], values[1][j][e]);
    qdr_grid_destroy(&grid);
}

/* ---- choices ---- */

DIST_TEST(stored_choices_are_taken)
{
    begin_file(ctx);
    for (int round = 0; round < dist_rounds(8); round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const qdr_layout layout = round % 2 ? QDR_SCATTERED : QDR_REPLICATED;
        const qdr_storage storage[2] = {round / 2 % 2 ? QDR_IN_OUT : QDR_OUT_IN,
                                        round / 4 % 2 ? QDR_OUT_IN : QDR_IN_OUT};
        set_tune(ctx, "off");
        net plain = make(grid, layout, 1, none_asked);
        load(&plain, seed);
        const uint64_t wanted = run(&plain, seed);
        write_choices(&plain, storage, NULL);
        set_tune(ctx, path);
        net tuned = make(grid, layout, 1, none_asked);
        for (int i = 0; i < N_LAYERS; i++) {
            check_storage(&plain, i, QDR_OUT_IN, QDR_STORAGE_FIXED);
            check_storage(&tuned, i, storage[i], QDR_STORAGE_STORED);
        }
        load(&tuned, seed);
        DIST_CHECK(run(&tuned, seed) == wanted, "round %d: other numbers", round);
        qdr_stack_destroy(&plain.stack);
        qdr_stack_destroy(&tuned.stack);
        qdr_grid_destroy(&grid);
    }
    end_file(ctx);
}

/* What is asked for in the description needs no file and heeds none. */
DIST_TEST(who_asks_gets_it)
{
    static const qdr_storage turned[2] = {QDR_IN_OUT, QDR_IN_OUT};
    static const qdr_storage asked[2] = {QDR_OUT_IN, QDR_STORAGE_AUTO};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    begin_file(ctx);
    net plain = make(grid, QDR_REPLICATED, 1, turned);
    write_choices(&plain, turned, NULL);
    net tuned = make(grid, QDR_REPLICATED, 1, asked);
    check_storage(&tuned, 0, QDR_OUT_IN, QDR_STORAGE_ASKED);
    check_storage(&tuned, 1, QDR_IN_OUT, QDR_STORAGE_STORED);
    qdr_stack_destroy(&plain.stack);
    qdr_stack_destroy(&tuned.stack);
    end_file(ctx);
    qdr_grid_destroy(&grid);
}

/* Another machine's choices stay in the file, and are not taken; these products are too small to be timed. */
DIST_TEST(other_machines_do_not_count)
{
    static const qdr_storage turned[2] = {QDR_IN_OUT, QDR_IN_OUT};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    begin_file(ctx);
    net plain = make(grid, QDR_REPLICATED, 1, turned);
    write_choices(&plain, turned, "another machine");
    net tuned = make(grid, QDR_REPLICATED, 1, none_asked);
    for (int i = 0; i < N_LAYERS; i++) check_storage(&tuned, i, QDR_OUT_IN, QDR_STORAGE_FIXED);
    qdr_stack_destroy(&plain.stack);
    qdr_stack_destroy(&tuned.stack);
    end_file(ctx);
    qdr_grid_destroy(&grid);
}

/* Products large enough to be timed: measured once, kept, and taken from then on; the same bits. */
DIST_TEST(measured_choices_are_kept)
{
    enum { SCALE = 24 };
    uint64_t bits[3];
    qdr_linear_storage s[3][N_LAYERS];
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    begin_file(ctx);
    for (int i = 0; i < 3; i++) {
        net n = make(grid, QDR_REPLICATED, SCALE, none_asked);
        for (int j = 0; j < N_LAYERS; j++) {
            s[i][j] = storage_of(ctx, n.layers[j]);
            check_storage(&n, j, s[0][j].storage, i ? QDR_STORAGE_STORED : QDR_STORAGE_MEASURED);
            qdri_tune_choice choice = {0};
            memcpy(choice.secs, s[i][j].secs, sizeof choice.secs);
            for (int t = 0; t < 2 * QDRI_N_PRODUCTS; t++)
                DIST_CHECK(s[i][j].secs[t / 3][t % 3] > 0, "time %d is %g", t, s[i][j].secs[t / 3][t % 3]);
            qdri_tune_choose(&choice);
            DIST_CHECK(i > 0 || choice.storage == s[i][j].storage, "not what the times say");
        }
        load(&n, seed);
        bits[i] = run(&n, seed);
        DIST_CHECK(bits[i] == bits[0], "run %d: other bits", i);
        qdr_stack_destroy(&n.stack);
    }
    end_file(ctx);
    qdr_grid_destroy(&grid);
}

/* Unset, empty and "off" are one and the same, to the bit, and what [out, in] is. */
DIST_TEST(off_changes_nothing)
{
    static const char *const values[] = {NULL, "", "off", "off"};
    static const qdr_storage fixed[2] = {QDR_OUT_IN, QDR_OUT_IN};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    uint64_t bits[4];
    for (int i = 0; i < 4; i++) {
        set_tune(ctx, values[i]);
        net n = make(grid, QDR_SCATTERED, 3, i == 3 ? fixed : none_asked);
        for (int j = 0; j < N_LAYERS; j++)
            check_storage(&n, j, QDR_OUT_IN, i == 3 ? QDR_STORAGE_ASKED : QDR_STORAGE_FIXED);
        DIST_OK(qdr_stack_init(n.stack, seed, 0.3)); /* numbers whose sums are rounded */
        bits[i] = run(&n, seed);
        DIST_CHECK(bits[i] == bits[0], "case %d: other bits", i);
        qdr_stack_destroy(&n.stack);
    }
    set_tune(ctx, NULL);
    qdr_grid_destroy(&grid);
}

/* All ranks get the sentence of rank 0, and the stack can still be built. */
DIST_TEST(mistaken_files_are_named)
{
    static const char *const texts[] = {"hello", "{\"quadrille_tune\": 2, \"choices\": [{\"mach"};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    net n = describe(grid, QDR_REPLICATED, 1, none_asked);
    begin_file(ctx);
    for (int i = 0; i < 2; i++) {
        write_file(ctx, texts[i]);
        DIST_FAILS(qdr_stack_build(n.stack), QDR_ERR_ARGUMENT, "tune.json, line 1");
    }
    set_tune(ctx, "/");
    DIST_FAILS(qdr_stack_build(n.stack), QDR_ERR_IO, "/ cannot be read");
    set_tune(ctx, "/none/tune.json");
    net large = describe(grid, QDR_REPLICATED, 24, none_asked);
    DIST_FAILS(qdr_stack_build(large.stack), QDR_ERR_ARGUMENT, "/none/tune.json: cannot be written");
    qdr_stack_destroy(&large.stack);
    write_file(ctx, ""); /* as mktemp leaves it */
    set_tune(ctx, path);
    DIST_OK(qdr_stack_build(n.stack));
    check_storage(&n, 0, QDR_OUT_IN, QDR_STORAGE_FIXED);
    qdr_stack_destroy(&n.stack);
    end_file(ctx);
    qdr_grid_destroy(&grid);
}

DIST_TEST(arguments_are_checked)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    net n = describe(grid, QDR_REPLICATED, 1, none_asked);
    qdr_linear_storage s = {QDR_INIT(qdr_linear_storage)};
    qdr_edge out;
    const qdr_linear_desc wrong = {QDR_INIT(qdr_linear_desc), .name = "wrong", .in = {{OUT, 1}}, .out = {{3, 1}},
                                   .storage = (qdr_storage)3};
    DIST_FAILS(qdr_stack_add_linear(n.stack, &wrong, n.y, &out, NULL), QDR_ERR_ARGUMENT, "wrong: 3 is not a storage");
    DIST_FAILS(qdr_linear_get_storage(NULL, &s), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_linear_get_storage(n.layers[0], NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_OK(qdr_linear_get_storage(n.layers[0], &s)); /* not known before the stack is built */
    DIST_CHECK(s.storage == QDR_STORAGE_AUTO && !*s.modes[0], "storage %d", (int)s.storage);
    qdr_stack_destroy(&n.stack);
    qdr_grid_destroy(&grid);
}

/* A line for each layer. */
DIST_TEST(the_choice_can_be_printed)
{
    static const qdr_storage asked[2] = {QDR_IN_OUT, QDR_OUT_IN};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    net n = make(grid, QDR_REPLICATED, 1, asked);
    char *text = NULL;
    size_t bytes;
    FILE *file = open_memstream(&text, &bytes);
    DIST_CHECK(file, "no memory");
    DIST_OK(qdr_stack_print_storage(n.stack, file));
    fclose(file);
    const char *second = strchr(text, '\n');
    DIST_CHECK(strstr(text, "first") == text && strstr(text, " in-out Y NN dX NT dW TN m=") && second &&
                   strstr(second, "\nsecond") == second && strstr(second, " out-in Y NT dX NN dW TN m=") &&
                   strstr(second, "asked for\n"),
               "it says %s", text);
    free(text);
    qdr_stack_destroy(&n.stack);
    qdr_grid_destroy(&grid);
}
