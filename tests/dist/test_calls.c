/* SPDX-License-Identifier: Apache-2.0 */
/* Checks which collectives each rank calls for one linear layer: channel, kind, type, elements, and the participating
 * ranks of the world. They are compared with the table in docs/design.md, "One layer", which is written down again here
 * for shapes that every grid divides evenly. The test uses no part of the library's own schedule: coordinates are
 * computed from the order, extents from the table. The participants are found by an all-gather of rank numbers over
 * each channel.
 *
 * On every grid of P ranks, each in a different order; normal and transposed layers; both layouts of both edges; X kept
 * and gathered again; all types:
 *
 *   test_calls [--local P]     mpiexec -n P test_calls */
#include <quadrille/launch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/layer_case.h"
#include "grid/internal.h"

enum { MAX_RANKS = 16, MAX_CALLS = 32, MAX_GRIDS = 256 };

/* Only numbers without padding: compared as bytes. */
typedef struct call {
    int32_t channel, kind, dtype, n_members;
    int64_t n_elems;
    int32_t members[MAX_RANKS]; /* ranks of the world, in the order of the group */
} call;

typedef struct call_list {
    int64_t n;
    call calls[MAX_CALLS];
} call_list;

static void append(call_list *list, const call *added)
{
    if (list->n < MAX_CALLS) list->calls[list->n] = *added;
    list->n++;
}

/* ---- what the table says ---- */

typedef struct expectation {
    const char *order;
    int size[QDR_N_AXES], rank;
    call_list *list;
} expectation;

/* The rank at `place` on `axis` and at this rank's coordinates elsewhere: the order names the axes from the fastest. */
static int rank_on(const expectation *e, qdr_axis axis, int place)
{
    int stride = 1;
    for (const char *letter = e->order; (qdr_axis)(strchr("xyzd", *letter) - "xyzd") != axis; letter++)
        stride *= e->size[strchr("xyzd", *letter) - "xyzd"];
    const int mine = e->rank / stride % e->size[axis];
    return e->rank + (place - mine) * stride;
}

static void expect(const expectation *e, qdr_channel channel, qdr_axis axis, qdr_coll_kind kind, int64_t n_elems,
                   qdr_dtype dtype)
{
    call c = {.channel = (int32_t)channel,
              .kind = (int32_t)kind,
              .dtype = (int32_t)dtype,
              .n_members = e->size[axis],
              .n_elems = n_elems};
    if (c.n_members == 1) return; /* a group of one copies nothing */
    for (int i = 0; i < c.n_members; i++) c.members[i] = rank_on(e, axis, i);
    append(e->list, &c);
}

/* A layer's extents on this rank, and the names of its axes: in_axis splits K, out_axis splits N. */
typedef struct extents {
    int64_t m, k, n;
    qdr_axis in_axis, out_axis;
    qdr_channel sum_in, gather_in, sum_out, gather_out;
    qdr_dtype dtype, gradient_dtype;
} extents;

static extents extents_of(const layer_case *c, const int size[QDR_N_AXES])
{
    extents e = {.m = 0,
                 .in_axis = QDR_X,
                 .out_axis = QDR_Y,
                 .sum_in = QDR_CHANNEL_X_REDUCE,
                 .gather_in = QDR_CHANNEL_X_GATHER,
                 .sum_out = QDR_CHANNEL_Y_REDUCE,
                 .gather_out = QDR_CHANNEL_Y_GATHER,
                 .dtype = c->dtype,
                 .gradient_dtype = c->dtype == QDR_F64 ? QDR_F64 : QDR_F32};
    if (c->transposed) {
        e.in_axis = QDR_Y;
        e.out_axis = QDR_X;
        e.sum_in = QDR_CHANNEL_Y_REDUCE;
        e.gather_in = QDR_CHANNEL_Y_GATHER;
        e.sum_out = QDR_CHANNEL_X_REDUCE;
        e.gather_out = QDR_CHANNEL_X_GATHER;
    }
    e.m = c->m / size[QDR_D] / size[QDR_Z];
    e.k = layer_case_k(c) / size[e.in_axis];
    e.n = layer_case_n(c) / size[e.out_axis];
    return e;
}

static void expect_forward(const expectation *e, const layer_case *c)
{
    const extents l = extents_of(c, e->size);
    expect(e, QDR_CHANNEL_Z_GATHER, QDR_Z, QDR_ALL_GATHER, l.n * l.k, l.dtype);
    if (c->in_layout == QDR_SCATTERED) expect(e, l.gather_out, l.out_axis, QDR_ALL_GATHER, l.m * l.k, l.dtype);
    expect(e, l.sum_in, l.in_axis, c->out_layout == QDR_SCATTERED ? QDR_REDUCE_SCATTER : QDR_ALL_REDUCE, l.m * l.n,
           l.dtype);
}

static void expect_backward(const expectation *e, const layer_case *c)
{
    const extents l = extents_of(c, e->size);
    const int64_t block = l.n * l.k;
    expect(e, QDR_CHANNEL_Z_GATHER, QDR_Z, QDR_ALL_GATHER, block, l.dtype);
    if (c->out_layout == QDR_SCATTERED) expect(e, l.gather_in, l.in_axis, QDR_ALL_GATHER, l.m * l.n, l.dtype);
    expect(e, l.sum_out, l.out_axis, c->in_layout == QDR_SCATTERED ? QDR_REDUCE_SCATTER : QDR_ALL_REDUCE, l.m * l.k,
           l.dtype);
    if (c->in_layout == QDR_SCATTERED && c->drop_gathered)
        expect(e, l.gather_out, l.out_axis, QDR_ALL_GATHER, l.m * l.k, l.dtype);
    expect(e, QDR_CHANNEL_Z_REDUCE, QDR_Z, QDR_REDUCE_SCATTER, block, l.gradient_dtype);
    expect(e, QDR_CHANNEL_D_REDUCE, QDR_D, QDR_ALL_REDUCE, block / e->size[QDR_Z], l.gradient_dtype);
    if (!c->bias) return; /* from rows that are gathered or whole: over z and d only */
    expect(e, QDR_CHANNEL_Z_REDUCE, QDR_Z, QDR_ALL_REDUCE, l.n, l.gradient_dtype);
    expect(e, QDR_CHANNEL_D_REDUCE, QDR_D, QDR_ALL_REDUCE, l.n, l.gradient_dtype);
}

/* ---- what is called ---- */

typedef struct listener {
    int channel, n_members;
    int32_t members[MAX_RANKS];
    call_list *list;
} listener;

static void record(const qdri_comm *comm, const qdri_coll *coll, void *user)
{
    const listener *heard = user;
    const int is_whole = coll->kind == QDR_ALL_REDUCE || coll->split_unit > 0;
    call made = {.channel = heard->channel,
                 .kind = (int32_t)coll->kind,
                 .dtype = (int32_t)coll->dtype,
                 .n_members = qdri_comm_size(comm)};
    for (int i = 0; i < made.n_members; i++)
        made.n_elems += coll->counts ? coll->counts[i] : is_whole ? 0 : coll->count;
    if (is_whole) made.n_elems = coll->count;
    memcpy(made.members, heard->members, sizeof made.members);
    append(heard->list, &made);
}

/* Learns who the members of each channel are. */
static qdr_status find_members(qdr_grid *grid, listener listeners[QDR_N_CHANNELS])
{
    qdr_context *ctx = qdr_grid_context(grid);
    const int32_t rank = qdr_context_rank(ctx);
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        listener *l = &listeners[channel];
        qdri_comm *comm = qdri_grid_comm(grid, (qdr_channel)channel);
        *l = (listener){.channel = channel, .n_members = qdri_comm_size(comm)};
        if (l->n_members > MAX_RANKS) return QDR_ERR_ARGUMENT;
        const qdri_coll coll = {
            .kind = QDR_ALL_GATHER, .dtype = QDR_I32, .send = &rank, .recv = l->members, .count = 1};
        const qdr_status status = qdri_comm_launch(comm, &coll, qdr_context_stream(ctx));
        if (status != QDR_OK) return status;
    }
    return qdr_stream_synchronize(qdr_context_stream(ctx));
}

static void listen_to(qdr_grid *grid, listener listeners[QDR_N_CHANNELS], call_list *list)
{
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        listeners[channel].list = list;
        qdri_comm_set_observer(qdri_grid_comm(grid, (qdr_channel)channel), list ? record : NULL, &listeners[channel]);
    }
}

/* ---- the comparison ---- */

typedef struct check {
    qdr_grid *grid;
    const layer_case *the_case;
    const char *order;
    listener listeners[QDR_N_CHANNELS];
    call_list made;
    int n_bad;
} check;

static void print_list(const char *title, const call_list *list)
{
    fprintf(stderr, "  %s\n", title);
    for (int64_t i = 0; i < list->n && i < MAX_CALLS; i++) {
        const call *c = &list->calls[i];
        fprintf(stderr, "    %s, %s of %lld %s, ranks", qdr_channel_name((qdr_channel)c->channel),
                qdr_coll_kind_name((qdr_coll_kind)c->kind), (long long)c->n_elems, qdr_dtype_name((qdr_dtype)c->dtype));
        for (int j = 0; j < c->n_members; j++) fprintf(stderr, " %d", c->members[j]);
        fputc('\n', stderr);
    }
}

static void complain(check *k, const char *what, const call_list *expected)
{
    char text[512];
    layer_case_text(k->the_case, text, sizeof text);
    fprintf(stderr, "rank %d of %dx%dx%dx%d %s: %s: %s\n", qdr_context_rank(qdr_grid_context(k->grid)),
            qdr_grid_size(k->grid, QDR_X), qdr_grid_size(k->grid, QDR_Y), qdr_grid_size(k->grid, QDR_Z),
            qdr_grid_size(k->grid, QDR_D), k->order, what, text);
    print_list("expected:", expected);
    print_list("called:", &k->made);
    k->n_bad++;
}

/* The calls of one channel, in their order. */
static call_list on_channel(const call_list *list, int channel)
{
    call_list part = {0};
    for (int64_t i = 0; i < list->n && i < MAX_CALLS; i++)
        if (list->calls[i].channel == channel) append(&part, &list->calls[i]);
    return part;
}

static int are_equal(const call_list *a, const call_list *b)
{
    return a->n == b->n && a->n <= MAX_CALLS && memcmp(a->calls, b->calls, (size_t)a->n * sizeof *a->calls) == 0;
}

/* Channels do not wait for each other, so the order is compared within each. */
static void compare_with_table(check *k, layer_stage stage)
{
    call_list expected = {0};
    const expectation e = {.order = k->order,
                           .size = {qdr_grid_size(k->grid, QDR_X), qdr_grid_size(k->grid, QDR_Y),
                                    qdr_grid_size(k->grid, QDR_Z), qdr_grid_size(k->grid, QDR_D)},
                           .rank = qdr_context_rank(qdr_grid_context(k->grid)),
                           .list = &expected};
    if (stage == STAGE_FORWARD) expect_forward(&e, k->the_case);
    if (stage == STAGE_BACKWARD) expect_backward(&e, k->the_case);
    int equal = expected.n == k->made.n;
    for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
        const call_list want = on_channel(&expected, channel), got = on_channel(&k->made, channel);
        equal = equal && are_equal(&want, &got);
    }
    if (!equal) complain(k, "calls differ from the table", &expected);
}

/* One issue order over all channels on all ranks: but for who takes part, rank 0's. */
static void compare_with_first(check *k)
{
    call_list first = k->made;
    if (qdr_broadcast(qdr_grid_context(k->grid), 0, &first, sizeof first) != QDR_OK) k->n_bad++;
    int equal = first.n == k->made.n && first.n <= MAX_CALLS;
    for (int64_t i = 0; i < first.n && equal; i++) {
        memcpy(first.calls[i].members, k->made.calls[i].members, sizeof k->made.calls[i].members);
        equal = memcmp(&first.calls[i], &k->made.calls[i], sizeof *first.calls) == 0;
    }
    if (!equal) complain(k, "calls are in another order than on rank 0", &first);
}

static void watch(layer_stage stage, qdr_grid *grid, qdr_stack *stack, void *user)
{
    check *k = user;
    (void)grid;
    (void)stack;
    if (stage != STAGE_BUILT) {
        compare_with_table(k, stage);
        compare_with_first(k);
    }
    k->made = (call_list){0};
}

/* Which of the combinations, and a type and a bias that go with it. */
static layer_case case_of(int p, int grid_index, int which)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    const int unit = 8 * p; /* parts of 16 bytes, whatever the grid */
    return (layer_case){.seed = 7,
                        .m = 2 * unit,
                        .in = {{unit, 1}},
                        .out = {{unit, 2}, {unit, 1}},
                        .row_unit = 1,
                        .dtype = dtypes[(grid_index + which) % 4],
                        .in_layout = (qdr_layout)(which % 2),
                        .out_layout = (qdr_layout)(which / 2 % 2),
                        .transposed = which / 4 % 2,
                        .drop_gathered = which / 8 % 2,
                        .bias = (grid_index + which) / 3 % 2,
                        .n_calls = 1,
                        .only_run = 1,
                        .overlap = QDR_OVERLAP_ALL};
}

static int check_grid(qdr_grid *grid, const char *order, int grid_index)
{
    qdr_context *ctx = qdr_grid_context(grid);
    check k = {.grid = grid, .order = order};
    if (find_members(grid, k.listeners) != QDR_OK) return 1;
    for (int which = 0; which < 16 && !k.n_bad; which++) {
        const layer_case c = case_of(qdr_context_size(ctx), grid_index, which);
        failure why = {0};
        layer_errors errors;
        k.the_case = &c;
        listen_to(grid, k.listeners, &k.made);
        if (layer_case_run(grid, &c, watch, &k, &errors, &why)) k.n_bad += fail_print(&why);
        listen_to(grid, k.listeners, NULL);
        if (qdr_agree(ctx, k.n_bad ? QDR_ERR_STATE : QDR_OK) != QDR_OK) return 1;
    }
    return k.n_bad;
}

static int run_rank(qdr_context *ctx, void *user)
{
    static const char *const orders[] = {"xyzd", "dzyx", "yxdz", "zdxy"};
    grid_size sizes[MAX_GRIDS];
    const int n_sizes = list_grids(qdr_context_size(ctx), sizes, MAX_GRIDS);
    int n_bad = 0;
    (void)user;
    for (int i = 0; i < n_sizes && !n_bad; i++) {
        qdr_grid *grid;
        const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = sizes[i].x, .y = sizes[i].y,
                                    .z = sizes[i].z,         .d = sizes[i].d, .order = orders[i % 4]};
        if (qdr_grid_create(ctx, &opts, &grid) != QDR_OK) return 1;
        n_bad = check_grid(grid, orders[i % 4], i);
        qdr_grid_destroy(&grid);
    }
    if (qdr_context_rank(ctx) == 0 && !n_bad)
        printf("%d ranks: %d grids, 16 layers each\n", qdr_context_size(ctx), n_sizes);
    return n_bad != 0;
}

int main(int argc, char **argv)
{
    const int n_local = argc == 3 && strcmp(argv[1], "--local") == 0 ? atoi(argv[2]) : 0;
    int code = 1;
    if (argc != 1 && (argc != 3 || n_local < 1)) return 2;
    const qdr_status status = qdr_launch(n_local, NULL, run_rank, NULL, &code);
    if (status != QDR_OK) fprintf(stderr, "%s\n", qdr_last_error());
    return status == QDR_OK ? code : 1;
}
