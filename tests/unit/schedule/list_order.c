/* SPDX-License-Identifier: Apache-2.0 */
/* Lists of random networks, grids, panels and parts, checked pair by pair without the library's own bookkeeping: tasks
 * that touch the same bytes, one of them writing, are ordered by streams and waits; values that are in use at the same
 * time have different places. A wait that is taken away is missed. */
#include "network/describe.h"
#include "quadrille/linear.h"
#include "random_model.h"

enum { MOST_LAYERS = 3, WORD_BITS = 64 };

/* ---- order ---- */

/* before[i]: a bit for each task that has ended when task i begins. */
typedef struct order {
    uint64_t *before;
    int n_words;
} order;

static uint64_t *row(const order *o, int i) { return o->before + (size_t)i * (size_t)o->n_words; }
static int is_before(const order *o, int i, int j) { return row(o, j)[i / WORD_BITS] >> i % WORD_BITS & 1; }

static void put_before(const order *o, int i, int j)
{
    for (int w = 0; w < o->n_words; w++) row(o, j)[w] |= row(o, i)[w];
    row(o, j)[i / WORD_BITS] |= UINT64_C(1) << i % WORD_BITS;
}

/* Without wait number `left_out` of task `of`; of -1: with all of them. */
static void find_order(const qdri_schedule *list, int of, int left_out, order *o)
{
    int last[QDRI_N_STREAMS];
    memset(last, -1, sizeof last);
    memset(o->before, 0, (size_t)list->n_tasks * (size_t)o->n_words * sizeof *o->before);
    for (int i = 0; i < list->n_tasks; i++) {
        const qdri_task *task = &list->tasks[i];
        if (last[task->stream] >= 0) put_before(o, last[task->stream], i);
        for (int w = 0; w < task->n_waits; w++) {
            assert_true(task->waits[w] >= 0 && task->waits[w] < i);
            assert_true(list->tasks[task->waits[w]].signals);
            if (i != of || w != left_out) put_before(o, task->waits[w], i);
        }
        last[task->stream] = i;
    }
}

/* ---- conflicts ---- */

static int share_bytes(const qdri_ref *a, const qdri_ref *b)
{
    const size_t begin = a->offset > b->offset ? a->offset : b->offset;
    const size_t a_end = a->offset + a->bytes, b_end = b->offset + b->bytes, end = a_end < b_end ? a_end : b_end;
    return a->buffer >= 0 && a->buffer == b->buffer && end > begin;
}

static int touch(int n, const qdri_ref *a, int m, const qdri_ref *b)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < m; j++)
            if (share_bytes(&a[i], &b[j])) return 1;
    return 0;
}

static int conflict(const qdri_task *a, const qdri_task *b)
{
    return touch(a->n_writes, a->writes, b->n_writes, b->writes) ||
           touch(a->n_reads, a->reads, b->n_writes, b->writes) || touch(a->n_writes, a->writes, b->n_reads, b->reads);
}

/* The number of conflicting pairs on different streams in no order. */
static int n_races(const qdri_schedule *list, const order *o)
{
    int n = 0;
    for (int j = 0; j < list->n_tasks; j++)
        for (int i = 0; i < j; i++)
            n += list->tasks[i].stream != list->tasks[j].stream && !is_before(o, i, j) &&
                 conflict(&list->tasks[i], &list->tasks[j]);
    return n;
}

/* A few waits are taken away, one at a time; *n_missed counts those that nothing else replaces. All waits are for
 * conflicts if everything may overlap. */
static void take_waits_away(const qdri_schedule *list, uint64_t *seed, order *o, int *n_missed)
{
    for (int trial = 0; trial < 8; trial++) {
        const int i = (int)test_between(seed, 0, list->n_tasks - 1);
        if (list->tasks[i].n_waits == 0) continue;
        const int w = (int)test_between(seed, 0, list->tasks[i].n_waits - 1);
        find_order(list, i, w, o);
        const int is_needed = !is_before(o, list->tasks[i].waits[w], i);
        assert_int_equal(n_races(list, o) > 0, is_needed);
        *n_missed += is_needed;
    }
}

static void check_order(const qdri_schedule *list, int overlaps_all, uint64_t *seed, int *n_missed)
{
    order o = {.n_words = (list->n_tasks + WORD_BITS - 1) / WORD_BITS};
    o.before = calloc((size_t)list->n_tasks * (size_t)o.n_words, sizeof *o.before);
    assert_non_null(o.before);
    find_order(list, -1, 0, &o);
    assert_int_equal(n_races(list, &o), 0);
    if (overlaps_all) take_waits_away(list, seed, &o, n_missed);
    free(o.before);
}

/* ---- places ---- */

typedef struct use {
    int first, last;
} use;

static void note_uses(const qdri_schedule *tasks, int number, int n, const qdri_ref *refs, use *uses)
{
    for (int i = 0; i < n; i++) {
        const int value = refs[i].buffer - tasks->first_value;
        if (value < 0 || refs[i].buffer < 0 || refs[i].bytes == 0) continue;
        assert_true(value < tasks->n_values);
        assert_true(refs[i].offset + refs[i].bytes <= tasks->values[value].bytes);
        if (uses[value].first < 0) uses[value].first = number;
        uses[value].last = number;
    }
}

/* tasks: the same list before its values had places. */
static void check_places(const qdri_schedule *tasks, const qdri_schedule *list)
{
    use *uses = calloc((size_t)tasks->n_values + 1, sizeof *uses);
    assert_non_null(uses);
    assert_int_equal(tasks->n_tasks, list->n_tasks);
    assert_int_equal(tasks->n_values, list->n_values);
    memset(uses, -1, (size_t)tasks->n_values * sizeof *uses);
    for (int i = 0; i < tasks->n_tasks; i++) {
        const qdri_task *task = &tasks->tasks[i];
        assert_true(task->kind == list->tasks[i].kind && task->node == list->tasks[i].node);
        note_uses(tasks, i, task->n_reads, task->reads, uses);
        note_uses(tasks, i, task->n_writes, task->writes, uses);
    }
    for (int i = 0; i < list->n_values; i++) {
        const qdri_value *a = &list->values[i];
        if (uses[i].first < 0) continue;
        assert_true(a->offset % QDRI_BUFFER_ALIGN == 0 && a->offset + a->bytes <= list->workspace_bytes);
        for (int j = 0; j < i; j++) {
            const qdri_value *b = &list->values[j];
            const int apart = a->offset + a->bytes <= b->offset || b->offset + b->bytes <= a->offset;
            const int together = uses[j].first >= 0 && uses[i].first <= uses[j].last && uses[j].first <= uses[i].last;
            if (together && !apart) fail_msg("values %d and %d are in the same place", j, i);
        }
    }
    free(uses);
}

static void move(const qdri_schedule *tasks, const qdri_schedule *list, int n, const qdri_ref *before,
                 const qdri_ref *refs)
{
    for (int i = 0; i < n; i++) {
        const int value = before[i].buffer - tasks->first_value, is_value = before[i].buffer >= 0 && value >= 0;
        assert_int_equal(refs[i].bytes, before[i].bytes);
        assert_int_equal(refs[i].offset, before[i].offset + (is_value ? list->values[value].offset : 0));
    }
}

/* Operands are where their values are. */
static void check_operands(const qdri_schedule *tasks, const qdri_schedule *list)
{
    for (int i = 0; i < list->n_tasks; i++) {
        move(tasks, list, list->tasks[i].n_reads, tasks->tasks[i].reads, list->tasks[i].reads);
        move(tasks, list, list->tasks[i].n_writes, tasks->tasks[i].writes, list->tasks[i].writes);
    }
}

/* ---- random lists ---- */

typedef struct scene {
    qdri_net net;
    qdri_net_lists lists;
    qdri_schedule tasks, list;
    uint64_t seed;
    int n_missed;
} scene;

static void describe(scene *s)
{
    const int n_layers = (int)test_between(&s->seed, 1, MOST_LAYERS);
    const qdr_network network = random_network(&s->seed, n_layers);
    const qdr_plan plan = random_grid(&s->seed);
    qdri_position position = {.size = {plan.x, plan.y, plan.z, plan.d}};
    const qdr_stack_opts opts = {
        QDR_INIT(qdr_stack_opts),
        .n_rows = plan.batch * test_between(&s->seed, 1, 3) * network.context,
        .row_unit = network.context,
        .dtype = plan.dtype,
        .overlap = random_flag(&s->seed) ? 0 : (int)test_between(&s->seed, 1, QDR_OVERLAP_ALL | QDR_OVERLAP_NONE),
        .prefetch = (int)test_between(&s->seed, 0, 4),
        .panels = (int)test_between(&s->seed, 1, 5),
        .batch_parts = (int)test_between(&s->seed, 1, 4)};
    int layer_of[QDRI_NODES_OF(MOST_LAYERS)];
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        position.coordinate[axis] = (int)test_between(&s->seed, 0, position.size[axis] - 1);
    CHECK_OK(qdri_describe(&s->net, &network, &position, &opts, network.context, plan.layout, n_layers, layer_of));
}

static void check_list(scene *s, const qdri_schedule *list)
{
    assert_true(list->n_tasks > 0 && list->n_tasks <= s->net.most_tasks);
    assert_true(list->workspace_bytes <= s->net.buffers.region_bytes[QDRI_WORKSPACE]);
    assert_true(list->least_bytes <= list->workspace_bytes);
    check_order(list, (s->net.opts.overlap & QDR_OVERLAP_ALL) == QDR_OVERLAP_ALL, &s->seed, &s->n_missed);
}

/* Each list that runs fits into the memory of the net. */
static void check_layers(scene *s)
{
    for (int i = 0; i < s->net.n_nodes; i++) {
        if (s->net.nodes[i].kind != QDRI_NODE_LINEAR) continue;
        const int dx = (int)test_between(&s->seed, 0, 2);
        const int flags = (dx == 1   ? QDR_DX_ACCUMULATE
                           : dx == 2 ? QDR_NO_DX
                                     : 0) |
                          (random_flag(&s->seed) ? QDR_DEFER_SYNC : 0);
        const qdri_gradient_mode mode = (qdri_gradient_mode)test_between(&s->seed, 0, 2);
        const qdri_schedule *list = NULL, *again = NULL;
        CHECK_OK(qdri_net_list_layer_forward(&s->net, &s->lists, i, random_flag(&s->seed), &list));
        check_list(s, list);
        CHECK_OK(qdri_net_list_layer_backward(&s->net, &s->lists, i, flags, mode, &list));
        check_list(s, list);
        CHECK_OK(qdri_net_list_layer_backward(&s->net, &s->lists, i, flags, mode, &again));
        assert_ptr_equal(list, again);
    }
}

static void check_whole(scene *s)
{
    const int backward = (int)test_between(&s->seed, 0, QDRI_N_BACKWARDS - 1);
    CHECK_OK(qdri_net_forward_tasks(&s->net, 0, &s->tasks));
    CHECK_OK(qdri_net_forward(&s->net, 0, &s->list));
    check_places(&s->tasks, &s->list);
    check_operands(&s->tasks, &s->list);
    check_list(s, &s->lists.forward);
    CHECK_OK(qdri_net_backward_tasks(&s->net, (qdri_gradient_mode)(backward / 2), backward % 2, &s->tasks));
    CHECK_OK(qdri_net_backward(&s->net, (qdri_gradient_mode)(backward / 2), backward % 2, &s->list));
    check_places(&s->tasks, &s->list);
    check_operands(&s->tasks, &s->list);
    check_list(s, &s->lists.backward[backward]);
}

TEST(tasks_on_the_same_bytes_are_ordered)
{
    const int n_trials = getenv("QDR_TEST_LONG") ? 20000 : 400;
    scene s;
    memset(&s, 0, sizeof s);
    s.seed = test_seed();
    for (int trial = 0; trial < n_trials; trial++) {
        describe(&s);
        CHECK_OK(qdri_net_build(&s.net, &s.lists));
        check_whole(&s);
        check_layers(&s);
    }
    print_message("%d waits missed\n", s.n_missed);
    assert_true(s.n_missed >= n_trials);
    qdri_schedule_free(&s.tasks);
    qdri_schedule_free(&s.list);
    qdri_net_lists_free(&s.lists);
    qdri_net_free(&s.net);
}
