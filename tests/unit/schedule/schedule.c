/* SPDX-License-Identifier: Apache-2.0 */
/* Schedules: derived waits, prefetched weights, tasks of layers compared with the table in the design document. */
#include "qdr_test.h"
#include "quadrille/stack.h"
#include "schedule/linear.h"
#include "schedule/memory.h"
#include "schedule/waits.h"

enum { COMPUTE = QDRI_STREAM_OF_COMPUTE };

/* What a test builds with. */
typedef struct bench {
    qdri_buffers buffers;
    qdri_ref workspace;
    qdri_schedule schedule;
    qdri_hazards hazards;
    qdri_builder builder;
    int overlap;
} bench;

static const qdri_position all_two = {.size = {2, 2, 2, 2}, .coordinate = {0, 1, 1, 0}};

static void begin(bench *b, const qdri_position *position, int overlap, int prefetch)
{
    b->workspace = qdri_buffers_add(&b->buffers, QDRI_WORKSPACE, 0);
    qdri_builder_begin(&b->builder, &b->schedule, b->buffers.n, position, prefetch);
    b->overlap = overlap;
}

static void end(bench *b)
{
    assert_int_equal(qdri_builder_end(&b->builder), QDR_OK);
    assert_int_equal(qdri_schedule_allocate(&b->schedule, b->workspace), QDR_OK);
    assert_int_equal(qdri_schedule_set_waits(&b->schedule, &b->hazards, b->overlap), QDR_OK);
}

static void drop(bench *b)
{
    qdri_schedule_free(&b->schedule);
    qdri_buffers_free(&b->buffers);
    qdri_hazards_free(&b->hazards);
}

static qdri_task touch(int stream, qdri_ref read, qdri_ref write)
{
    return (qdri_task){
        .kind = QDRI_TASK_KERNEL, .stream = stream, .n_reads = 1, .reads = {read}, .n_writes = 1, .writes = {write}};
}

static void add(bench *b, qdri_task task) { qdri_schedule_add(&b->builder, &task); }

static int waits_for(const bench *b, int task, int earlier)
{
    for (int i = 0; i < b->schedule.tasks[task].n_waits; i++)
        if (b->schedule.tasks[task].waits[i] == earlier) return 1;
    return 0;
}

TEST(reads_wait_for_the_writer)
{
    bench b = {0};
    const qdri_ref p = qdri_buffers_add(&b.buffers, QDRI_WORKSPACE, 8);
    const qdri_ref q = qdri_buffers_add(&b.buffers, QDRI_WORKSPACE, 8);
    begin(&b, &all_two, QDR_OVERLAP_ALL, 1);
    add(&b, touch(COMPUTE, QDRI_NO_REF, p)); /* 0 writes p */
    add(&b, touch(1, p, q)); /* 1 reads p elsewhere */
    add(&b, touch(1, p, QDRI_NO_REF)); /* 2: its stream has waited already */
    add(&b, touch(COMPUTE, QDRI_NO_REF, p)); /* 3 overwrites what 1 and 2 read */
    add(&b, touch(COMPUTE, p, QDRI_NO_REF)); /* 4: the same stream needs no wait */
    end(&b);
    assert_true(waits_for(&b, 1, 0));
    assert_int_equal(b.schedule.tasks[2].n_waits, 0);
    assert_true(waits_for(&b, 3, 2));
    assert_int_equal(b.schedule.tasks[3].n_waits, 1);
    assert_int_equal(b.schedule.tasks[4].n_waits, 0);
    assert_true(b.schedule.tasks[0].signals && b.schedule.tasks[2].signals);
    drop(&b);
}

enum { BUFFER_BYTES = 12, N_RANDOM = 60, N_USED_STREAMS = 4 };

/* Whether both refer to the same byte. */
static int overlap(qdri_ref a, qdri_ref b)
{
    return a.buffer >= 0 && a.buffer == b.buffer && a.bytes && b.bytes && a.offset < b.offset + b.bytes &&
           b.offset < a.offset + a.bytes;
}

static int conflict(const qdri_task *a, const qdri_task *b)
{
    return overlap(a->writes[0], b->writes[0]) || overlap(a->reads[0], b->writes[0]) ||
           overlap(a->writes[0], b->reads[0]);
}

/* Task j runs after task i. */
static int is_ordered(const bench *b, int i, int j)
{
    char after[N_RANDOM] = {0};
    after[i] = 1;
    for (int t = i + 1; t <= j; t++) {
        for (int e = i; e < t; e++)
            after[t] |= after[e] && (b->schedule.tasks[e].stream == b->schedule.tasks[t].stream || waits_for(b, t, e));
    }
    return after[j];
}

static qdri_ref random_ref(const qdri_ref buffers[2])
{
    qdri_ref ref = buffers[rand() % 2];
    ref.offset = (size_t)(rand() % BUFFER_BYTES);
    ref.bytes -= ref.offset;
    if (rand() % 4) ref.bytes = (size_t)rand() % (ref.bytes + 1);
    return ref;
}

/* Tasks that touch the same bytes are ordered, and nobody waits for a task that touches others. */
TEST(only_the_same_bytes_are_waited_for)
{
    for (unsigned seed = 1; seed <= 200; seed++) {
        bench b = {0};
        qdri_ref buffers[2];
        srand(seed);
        for (int i = 0; i < 2; i++) buffers[i] = qdri_buffers_add(&b.buffers, QDRI_WORKSPACE, BUFFER_BYTES);
        begin(&b, &all_two, QDR_OVERLAP_ALL, 1);
        for (int i = 0; i < N_RANDOM; i++)
            add(&b, touch(rand() % N_USED_STREAMS, random_ref(buffers), random_ref(buffers)));
        end(&b);
        for (int j = 0; j < N_RANDOM; j++)
            for (int i = 0; i < j; i++) {
                const int same = conflict(&b.schedule.tasks[i], &b.schedule.tasks[j]);
                if (same ? !is_ordered(&b, i, j) : waits_for(&b, j, i))
                    fail_msg("seed %u: tasks %d and %d, same bytes %d", seed, i, j, same);
            }
        drop(&b);
    }
}

/* Without the overlap of a class its tasks run in order with those before and after. */
TEST(classes_can_stand_in_line)
{
    bench b = {0};
    const qdri_ref p = qdri_buffers_add(&b.buffers, QDRI_WORKSPACE, 8);
    const qdri_ref q = qdri_buffers_add(&b.buffers, QDRI_WORKSPACE, 8);
    qdri_task weights = touch(1, QDRI_NO_REF, q);
    weights.overlap_class = QDRI_CLASS_WEIGHTS;
    for (int overlap = 0; overlap < 2; overlap++) {
        begin(&b, &all_two, overlap ? QDR_OVERLAP_ALL : QDR_OVERLAP_ROWS, 1);
        add(&b, touch(COMPUTE, QDRI_NO_REF, p));
        add(&b, weights);
        add(&b, touch(COMPUTE, QDRI_NO_REF, p));
        end(&b);
        assert_int_equal(waits_for(&b, 1, 0), !overlap);
        assert_int_equal(waits_for(&b, 2, 1), !overlap);
    }
    drop(&b);
}

/* `prefetch` gathers run ahead, in memory for as many weights and one more, which is not refilled before its reader has
 * run. */
TEST(weights_are_gathered_ahead)
{
    enum { N = 5, AHEAD = 2 };
    bench b = {0};
    qdri_ref shards[N];
    for (int i = 0; i < N; i++) shards[i] = qdri_buffers_add(&b.buffers, QDRI_PARAMETERS, 64);
    begin(&b, &all_two, QDR_OVERLAP_ALL, AHEAD);
    for (int i = 0; i < N; i++) qdri_plan_weight(&b.builder, i, "w", shards[i], 16, QDR_F32);
    int product[N], gathers_before[N];
    for (int i = 0; i < N; i++) {
        const qdri_ref w = qdri_next_weight(&b.builder);
        product[i] = b.schedule.n_tasks;
        gathers_before[i] = product[i] - i;
        add(&b, touch(COMPUTE, w, QDRI_NO_REF));
    }
    end(&b);
    for (int i = 0; i < N; i++) {
        assert_int_equal(gathers_before[i], i + AHEAD + 1 < N ? i + AHEAD + 1 : N);
        for (int j = i + 1; j < N && j <= i + AHEAD; j++)
            assert_false(overlap(b.schedule.tasks[product[i]].reads[0], b.schedule.tasks[product[j]].reads[0]));
        assert_true(b.schedule.tasks[product[i]].n_waits <= 1);
    }
    /* The gather of use AHEAD + 1 refills the memory of use 0. */
    assert_int_equal(b.schedule.workspace_bytes, (AHEAD + 1) * 128);
    assert_true(waits_for(&b, product[1] - 1, product[0]));
    drop(&b);
}

typedef struct layer {
    qdri_layer_shape shape;
    qdri_layer_refs refs;
} layer;

/* A normal layer on 2x2x2x2: M = 32 rows in cells of 8, K = 12, N = 20; local 6 and 10. */
static layer layer_on(bench *b, int scattered)
{
    layer l = {.shape = {.name = "layer",
                         .in_axis = QDR_X,
                         .out_axis = QDR_Y,
                         .m = 8,
                         .in_rows = 8,
                         .out_rows = 8,
                         .k = 6,
                         .n = 10,
                         .in_unit = 1,
                         .out_unit = 1,
                         .shard_elems = 32,
                         .bias = 1,
                         .dtype = QDR_F32,
                         .grad_dtype = QDR_F32}};
    if (scattered) {
        l.shape.in_scattered = l.shape.out_scattered = 1;
        l.shape.in_rows = l.shape.out_rows = 4;
    }
    qdri_ref *refs[] = {&l.refs.x, &l.refs.y,  &l.refs.dx, &l.refs.dy,      &l.refs.w,
                        &l.refs.b, &l.refs.dw, &l.refs.db, &l.refs.gathered};
    for (size_t i = 0; i < sizeof refs / sizeof refs[0]; i++)
        *refs[i] = qdri_buffers_add(&b->buffers, QDRI_ACTIVATIONS, 512);
    return l;
}

static int64_t sent(const bench *b, qdr_channel channel, qdr_coll_kind kind)
{
    int64_t bytes = 0;
    for (int i = 0; i < b->schedule.n_tasks; i++) {
        const qdri_task *task = &b->schedule.tasks[i];
        if (task->kind == QDRI_TASK_COLLECTIVE && task->channel == channel && task->coll == kind)
            bytes += task->bytes_sent;
    }
    return bytes;
}

static void build_layer(bench *b, const layer *l, int backward)
{
    begin(b, &all_two, QDR_OVERLAP_ALL, 1);
    qdri_plan_weight(&b->builder, 0, "layer", l->refs.w, l->shape.shard_elems, QDR_F32);
    if (backward) {
        qdri_linear_backward_tasks(&b->builder, &l->shape, &l->refs, &(qdri_backward_mode){0});
    } else {
        const qdri_ref w = qdri_next_weight(&b->builder);
        qdri_linear_forward_product(&b->builder, &l->shape, &l->refs, 0, w, 0);
        qdri_linear_forward_bias(&b->builder, &l->shape, &l->refs, 0, 0);
    }
    end(b);
}

/* (g-1)/g·n elements of 4 bytes each, twice for an all-reduce; g = 2. The shard of W is padded to 32 elements. */
TEST(replicated_layers_send_what_the_table_says)
{
    bench b = {0};
    const layer l = layer_on(&b, 0);
    build_layer(&b, &l, 0);
    assert_int_equal(sent(&b, QDR_CHANNEL_Z_GATHER, QDR_ALL_GATHER), 32 * 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_X_REDUCE, QDR_ALL_REDUCE), 8 * 10 * 4);
    build_layer(&b, &l, 1);
    assert_int_equal(sent(&b, QDR_CHANNEL_Z_GATHER, QDR_ALL_GATHER), 32 * 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_Y_REDUCE, QDR_ALL_REDUCE), 8 * 6 * 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_Z_REDUCE, QDR_REDUCE_SCATTER), 32 * 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_D_REDUCE, QDR_ALL_REDUCE), 32 * 4);
    drop(&b);
}

TEST(scattered_layers_send_what_the_table_says)
{
    bench b = {0};
    layer l = layer_on(&b, 1);
    build_layer(&b, &l, 0);
    assert_int_equal(sent(&b, QDR_CHANNEL_Y_GATHER, QDR_ALL_GATHER), 4 * 6 * 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_X_REDUCE, QDR_REDUCE_SCATTER), 4 * 10 * 4);
    build_layer(&b, &l, 1);
    assert_int_equal(sent(&b, QDR_CHANNEL_X_GATHER, QDR_ALL_GATHER), 4 * 10 * 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_Y_REDUCE, QDR_REDUCE_SCATTER), 4 * 6 * 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_Y_GATHER, QDR_ALL_GATHER), 0);
    l.shape.drop_gathered = 1;
    build_layer(&b, &l, 1);
    assert_int_equal(sent(&b, QDR_CHANNEL_Y_GATHER, QDR_ALL_GATHER), 4 * 6 * 4);
    drop(&b);
}

/* The dW product does not wait for the sum of dX, which thereby overlaps with it. */
TEST(dx_is_summed_beside_the_dw_product)
{
    bench b = {0};
    const layer l = layer_on(&b, 0);
    build_layer(&b, &l, 1);
    int dx_sum = -1, dw_product = -1;
    for (int i = 0; i < b.schedule.n_tasks; i++) {
        if (b.schedule.tasks[i].channel == QDR_CHANNEL_Y_REDUCE && b.schedule.tasks[i].kind == QDRI_TASK_COLLECTIVE)
            dx_sum = i;
        if (b.schedule.tasks[i].kind == QDRI_TASK_PRODUCT && b.schedule.tasks[i].trans_a) dw_product = i;
    }
    assert_true(dx_sum >= 0 && dw_product > dx_sum);
    assert_false(waits_for(&b, dw_product, dx_sum));
    drop(&b);
}

/* If dX needs no sum it comes last, and the sum of dW over z overlaps with it, in order or not. */
TEST(dw_comes_first_where_dx_is_not_summed)
{
    static const qdri_position alone = {.size = {2, 1, 2, 2}, .coordinate = {0, 0, 1, 0}};
    for (int overlap = 0; overlap <= QDR_OVERLAP_ALL; overlap += QDR_OVERLAP_ALL) {
        bench b = {0};
        layer l = layer_on(&b, 0);
        begin(&b, &alone, overlap, 1);
        qdri_plan_weight(&b.builder, 0, "layer", l.refs.w, l.shape.shard_elems, QDR_F32);
        qdri_linear_backward_tasks(&b.builder, &l.shape, &l.refs, &(qdri_backward_mode){0});
        end(&b);
        const int last = b.schedule.n_tasks - 1;
        int dw_sum = -1;
        for (int i = 0; i < last; i++)
            if (b.schedule.tasks[i].channel == QDR_CHANNEL_Z_REDUCE) dw_sum = i;
        assert_true(dw_sum >= 0);
        assert_int_equal(b.schedule.tasks[last].kind, QDRI_TASK_PRODUCT);
        assert_int_equal(b.schedule.tasks[last].writes[0].buffer, l.refs.dx.buffer);
        assert_false(waits_for(&b, last, dw_sum));
        drop(&b);
    }
}

static const qdri_task *task_at(const bench *b, int i) { return &b->schedule.tasks[i]; }

static int is_collective(const bench *b, int i, qdr_channel channel)
{
    return task_at(b, i)->kind == QDRI_TASK_COLLECTIVE && task_at(b, i)->channel == channel;
}

/* Y in four panels: a product waits for no sum of another panel, and the bias of a panel waits for the sum of that one
 * alone. */
TEST(panels_are_summed_beside_products)
{
    bench b = {0};
    layer l = layer_on(&b, 0);
    l.shape.forward_panels = 4;
    build_layer(&b, &l, 0);
    int n_products = 0, n_sums = 0, n_biases = 0, sums[4];
    for (int i = 0; i < b.schedule.n_tasks; i++) {
        if (is_collective(&b, i, QDR_CHANNEL_X_REDUCE)) {
            assert_int_equal(task_at(&b, i)->count, 2 * 10);
            assert_true(waits_for(&b, i, i - 1)); /* its product */
            sums[n_sums++] = i;
        } else if (task_at(&b, i)->kind == QDRI_TASK_PRODUCT) {
            assert_int_equal(task_at(&b, i)->m, 2);
            for (int j = 0; j < n_sums; j++) assert_false(waits_for(&b, i, sums[j]));
            n_products++;
        } else if (qdri_task_runs(task_at(&b, i), QDRI_K_BIAS_ADD)) {
            assert_int_equal(task_at(&b, i)->n_waits, 1);
            assert_true(waits_for(&b, i, sums[n_biases++]));
        }
    }
    assert_int_equal(n_products, 4);
    assert_int_equal(n_sums, 4);
    assert_int_equal(n_biases, 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_X_REDUCE, QDR_ALL_REDUCE), 8 * 10 * 4);
    drop(&b);
}

/* Y of two halves of the rows: the product of the second waits for no sum, and the first's bias for the sum of the
 * first alone. */
TEST(parts_are_summed_beside_products)
{
    bench b = {0};
    const layer l = layer_on(&b, 0);
    int products[2], sums[2], biases[2], n_products = 0, n_sums = 0, n_biases = 0;
    begin(&b, &all_two, QDR_OVERLAP_ALL, 1);
    qdri_builder_cut_rows(&b.builder, l.shape.m, 2, 2);
    qdri_plan_weight(&b.builder, 0, "layer", l.refs.w, l.shape.shard_elems, QDR_F32);
    const qdri_ref w = qdri_next_weight(&b.builder);
    for (int part = 0; part < 2; part++) qdri_linear_forward_product(&b.builder, &l.shape, &l.refs, part, w, 0);
    for (int part = 0; part < 2; part++) qdri_linear_forward_bias(&b.builder, &l.shape, &l.refs, part, 0);
    end(&b);
    for (int i = 0; i < b.schedule.n_tasks; i++) {
        if (is_collective(&b, i, QDR_CHANNEL_X_REDUCE)) sums[n_sums++] = i;
        if (task_at(&b, i)->kind == QDRI_TASK_PRODUCT) products[n_products++] = i;
        if (qdri_task_runs(task_at(&b, i), QDRI_K_BIAS_ADD)) biases[n_biases++] = i;
    }
    assert_int_equal(n_products, 2);
    assert_int_equal(n_sums, 2);
    assert_int_equal(n_biases, 2);
    assert_true(sums[0] < products[1]);
    assert_false(waits_for(&b, products[1], sums[0]));
    assert_int_equal(task_at(&b, products[1])->reads[0].offset, 4 * 6 * 4);
    assert_int_equal(task_at(&b, products[1])->m, 4);
    assert_true(waits_for(&b, biases[0], sums[0]));
    assert_false(waits_for(&b, biases[0], sums[1]));
    assert_true(waits_for(&b, biases[1], sums[1]));
    assert_int_equal(sent(&b, QDR_CHANNEL_X_REDUCE, QDR_ALL_REDUCE), 8 * 10 * 4);
    drop(&b);
}

/* Part by part, in each the order of their coming; a value given back meanwhile keeps its user. */
TEST(held_tasks_come_part_by_part)
{
    const int parts[] = {1, QDRI_AFTER_PARTS, 0, 1, QDRI_BEFORE_PARTS, 0};
    const int order[] = {4, 2, 5, 0, 3, 1};
    for (int n_parts = 1; n_parts <= 2; n_parts++) {
        bench b = {0};
        begin(&b, &all_two, QDR_OVERLAP_ALL, 1);
        qdri_builder_cut_rows(&b.builder, 4, 1, n_parts);
        const qdri_ref value = qdri_builder_take(&b.builder, 64);
        qdri_builder_hold(&b.builder);
        for (int i = 0; i < 6; i++) {
            b.builder.part = parts[i];
            add(&b, (qdri_task){.kind = QDRI_TASK_KERNEL, .m = i});
        }
        qdri_builder_give(&b.builder, value);
        assert_int_equal(b.schedule.n_tasks, n_parts == 1 ? 6 : 0);
        assert_int_equal(qdri_builder_users(&b.builder, value), n_parts == 1 ? 0 : 1);
        qdri_builder_release(&b.builder);
        assert_int_equal(b.schedule.n_tasks, 6);
        assert_int_equal(qdri_builder_users(&b.builder, value), 0);
        for (int i = 0; i < 6; i++) assert_int_equal(task_at(&b, i)->m, n_parts == 1 ? i : order[i]);
        end(&b);
        drop(&b);
    }
}

/* Whole units, none of the parts empty: five sequences of three rows. */
TEST(rows_are_cut_into_whole_units)
{
    const int wanted[] = {0, 1, 2, 4, 5, 9}, got[] = {1, 1, 2, 4, 5, 5};
    for (size_t i = 0; i < sizeof wanted / sizeof wanted[0]; i++) {
        qdri_builder builder = {.n_parts = 1};
        int64_t begin, end, last = 0;
        qdri_builder_cut_rows(&builder, 15, 3, wanted[i]);
        assert_int_equal(builder.n_parts, got[i]);
        for (int part = 0; part < builder.n_parts; part++) {
            qdri_part_rows(&builder, part, 15, &begin, &end);
            assert_int_equal(begin, last);
            assert_true(end > begin && end % 3 == 0);
            last = end;
        }
        assert_int_equal(last, 15);
        qdri_builder_cut_rows(&builder, 0, 3, wanted[i]);
        assert_int_equal(builder.n_parts, 1);
    }
}

/* Scattered, two panels: the other member's rows are computed and sent first; own rows come last, while the others'
 * versions of them travel. Rows of X are multiplied as they come. */
TEST(panels_are_sent_to_their_owner)
{
    bench b = {0};
    layer l = layer_on(&b, 1);
    l.shape.forward_panels = 2;
    build_layer(&b, &l, 0);
    int n_products = 0, arrival = -1, exchange = -1;
    for (int i = 0; i < b.schedule.n_tasks; i++) {
        if (is_collective(&b, i, QDR_CHANNEL_Y_GATHER)) arrival = i;
        if (is_collective(&b, i, QDR_CHANNEL_X_REDUCE)) exchange = i;
        if (task_at(&b, i)->kind != QDRI_TASK_PRODUCT) continue;
        /* On x 0 member 1's rows 4 to 7 come first; on y 1 rows 0 to 3 of X come from afar. */
        assert_int_equal(task_at(&b, i)->reads[0].offset, n_products ? 0 : 4 * 6 * 4);
        assert_int_equal(waits_for(&b, i, arrival), n_products == 1);
        assert_true(exchange < 0 || !waits_for(&b, i, exchange));
        n_products++;
    }
    assert_int_equal(n_products, 2);
    assert_int_equal(task_at(&b, exchange)->peer, 1);
    assert_int_equal(sent(&b, QDR_CHANNEL_Y_GATHER, QDR_SEND_RECV), 4 * 6 * 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_X_REDUCE, QDR_SEND_RECV), 4 * 10 * 4);
    assert_int_equal(sent(&b, QDR_CHANNEL_X_REDUCE, QDR_REDUCE_SCATTER), 0);
    drop(&b);
}

/* ---- places ---- */

enum { N_VALUES = 20 };

/* Tasks on random streams, each of which writes a new value or a part of an old one, and reads one that has been
 * written. Some values are given back, some of those while they are still in use. */
static void add_random_tasks(bench *b)
{
    qdri_ref values[N_VALUES];
    for (int i = 0; i < N_VALUES; i++) {
        values[i] = qdri_builder_take(&b->builder, 1 + (size_t)rand() % 1000);
        add(b, touch(rand() % N_USED_STREAMS, i ? values[rand() % i] : QDRI_NO_REF, values[i]));
        const int oldest = i > 4 ? i - 4 : 0, j = oldest + rand() % (i - oldest + 1);
        add(b, touch(rand() % N_USED_STREAMS, values[oldest + rand() % (i - oldest + 1)],
                     (qdri_ref){values[j].buffer, 0, 1}));
        if (rand() % 2) qdri_builder_give(&b->builder, values[rand() % (i + 1)]);
    }
}

static void find_last_uses(const qdri_schedule *schedule, int last[N_VALUES], int of_task[2 * N_VALUES])
{
    for (int i = 0; i < schedule->n_tasks; i++) {
        const qdri_task *task = &schedule->tasks[i];
        of_task[i] = task->writes[0].buffer - schedule->first_value;
        last[of_task[i]] = i;
        if (task->reads[0].buffer >= 0) last[task->reads[0].buffer - schedule->first_value] = i;
    }
}

/* Between the first and the last use of a value nothing else writes its bytes, and tasks on the same bytes are ordered.
 * The workspace is not smaller than the bound, and not larger than all values together. */
TEST(places_are_used_by_one_value_at_a_time)
{
    for (unsigned seed = 1; seed <= 300; seed++) {
        bench b = {0};
        size_t sum = 0;
        int last[N_VALUES], of_task[2 * N_VALUES];
        srand(seed);
        begin(&b, &all_two, QDR_OVERLAP_ALL, 1);
        add_random_tasks(&b);
        find_last_uses(&b.schedule, last, of_task);
        end(&b);
        for (int i = 0; i < b.schedule.n_values; i++) sum += (b.schedule.values[i].bytes + 63) / 64 * 64;
        if (b.schedule.workspace_bytes < b.schedule.least_bytes || b.schedule.workspace_bytes > sum)
            fail_msg("seed %u: %zu bytes", seed, b.schedule.workspace_bytes);
        for (int j = 0; j < b.schedule.n_tasks; j++)
            for (int i = 0; i < j; i++) {
                const qdri_task *before = task_at(&b, i), *task = task_at(&b, j);
                if (conflict(before, task) && !is_ordered(&b, i, j)) fail_msg("seed %u: tasks %d, %d", seed, i, j);
                if (of_task[i] != of_task[j] && overlap(before->writes[0], task->writes[0]) && last[of_task[i]] >= j)
                    fail_msg("seed %u: task %d overwrites what task %d wrote", seed, j, i);
            }
        drop(&b);
    }
}
