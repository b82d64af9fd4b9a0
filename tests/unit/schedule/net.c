/* SPDX-License-Identifier: Apache-2.0 */
/* A small GPT as a net, on grids that are only numbers: sizes compared with closed forms, calls compared with the table
 * in the design document, descriptions that are refused. */
#include "qdr_test.h"

#include <math.h>

#include "core/group.h"
#include "core/operands.h"
#include "core/size.h"
#include "gpt_net.h"
#include "schedule/ops/op.h"

/* Every axis below divides everything, so that all ranks have the same sizes. */
enum {
    HIDDEN = 64,
    HEADS = 8,
    CONTEXT = 8,
    VOCAB = 96,
    SEQUENCES = 32,
    ROWS = SEQUENCES * CONTEXT,
    N_LINEAR = 4 * GPT_NET_LAYERS /* but the head */
};
static const int grids[][QDR_N_AXES] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1}, {1, 1, 1, 2},
                                        {4, 1, 1, 2}, {1, 4, 2, 1}, {2, 2, 2, 2}, {4, 2, 1, 4}, {2, 4, 4, 1}};
enum { N_GRIDS = sizeof grids / sizeof grids[0] };

static gpt_net small_gpt(qdr_layout layout)
{
    return (gpt_net){.hidden = HIDDEN,
                     .n_heads = HEADS,
                     .context = CONTEXT,
                     .vocab = VOCAB,
                     .n_sequences = SEQUENCES,
                     .layout = layout,
                     .dtype = QDR_F32,
                     .tied = 1};
}

static int n_ranks(const int sizes[QDR_N_AXES]) { return sizes[QDR_X] * sizes[QDR_Y] * sizes[QDR_Z] * sizes[QDR_D]; }

static qdri_position position_of(const int sizes[QDR_N_AXES], int rank)
{
    qdri_position position = {.size = {0}};
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        position.size[axis] = sizes[axis];
        position.coordinate[axis] = rank % sizes[axis];
        rank /= sizes[axis];
    }
    return position;
}

typedef struct built {
    qdri_net net;
    qdri_net_lists lists;
} built;

static void build(built *b, const gpt_net *g, const int sizes[QDR_N_AXES], int rank)
{
    const qdri_position position = position_of(sizes, rank);
    CHECK_OK(gpt_net_describe(&b->net, g, &position));
    CHECK_OK(qdri_net_build(&b->net, &b->lists));
}

static void drop(built *b)
{
    qdri_net_lists_free(&b->lists);
    qdri_net_free(&b->net);
}

/* A buffer of n elements of four bytes. */
static size_t room(int64_t n_elems) { return qdri_align_bytes((size_t)n_elems * 4, QDRI_BUFFER_ALIGN); }

static size_t norm_room(const int *g) { return room(HIDDEN / g[QDR_X]); }

/* Matrices of 4H² (qkv and proj) and 8H² (fc and fc2), biases of 3H and 4H over y and of H over x, two norms of two
 * vectors; embedding and positions; the last norm. */
static size_t parameter_bytes(const int *g)
{
    const int64_t h = HIDDEN, x = g[QDR_X], y = g[QDR_Y], xyz = x * y * g[QDR_Z];
    const size_t layer = room(3 * h * h / xyz) + room(h * h / xyz) + 2 * room(4 * h * h / xyz) + room(3 * h / y) +
                         room(4 * h / y) + 2 * room(h / x) + 4 * norm_room(g);
    return GPT_NET_LAYERS * layer + room(VOCAB * h / xyz) + room(CONTEXT * h / x) + 2 * norm_room(g);
}

/* All small ones lie in one buffer. */
static size_t gradient_bytes(const int *g)
{
    const int64_t h = HIDDEN, x = g[QDR_X], y = g[QDR_Y], xyz = x * y * g[QDR_Z];
    const size_t layer = room(3 * h * h / xyz) + room(h * h / xyz) + 2 * room(4 * h * h / xyz);
    const int64_t n_small = GPT_NET_LAYERS * (7 * h / y + 2 * h / x + 4 * h / x) + CONTEXT * h / x + 2 * h / x;
    return GPT_NET_LAYERS * layer + room(VOCAB * h / xyz) + room(n_small);
}

/* Rows of edges whose columns are over x, and over y. */
typedef struct rows {
    int64_t cell, over_x, over_y;
} rows;

static rows rows_of(const int *g, qdr_layout layout)
{
    const int64_t cell = ROWS / (g[QDR_Z] * g[QDR_D]);
    const int scattered = layout == QDR_SCATTERED;
    return (rows){cell, scattered ? cell / g[QDR_Y] : cell, scattered ? cell / g[QDR_X] : cell};
}

/* X with all rows of the cell, kept for dW where it was gathered over the axis. */
static size_t gathered(const int *g, qdr_layout layout, qdr_axis axis, int64_t n_elems)
{
    return layout == QDR_SCATTERED && g[axis] > 1 ? room(n_elems) : 0;
}

static size_t layer_activations(const int *g, qdr_layout layout, const rows *m)
{
    const int64_t h = HIDDEN, x = g[QDR_X], y = g[QDR_Y];
    const size_t wide = room(m->over_y * 4 * h / y), stream = room(m->over_x * h / x);
    /* What products gather is kept as they gather it, and not as it was; what proj and fc2 make passes. */
    const int over_y = gathered(g, layout, QDR_Y, 1) > 0, over_x = gathered(g, layout, QDR_X, 1) > 0;
    const size_t edges = (size_t)(over_y ? 2 : 4) * stream /* residuals, norms */ +
                         room(m->over_y * 3 * h / y) /* qkv */ + room(m->over_y * h / y) /* attention */ +
                         (size_t)(over_x ? 1 : 2) * wide /* fc, gelu */;
    const size_t saved = 2 * room(2 * m->over_x) + room(HEADS / y * m->over_y);
    return edges + saved + 2 * gathered(g, layout, QDR_Y, m->cell * h / x) /* qkv, fc */ +
           gathered(g, layout, QDR_X, m->cell * h / y) /* proj */ +
           gathered(g, layout, QDR_X, m->cell * 4 * h / y) /* fc2 */;
}

static size_t activation_bytes(const int *g, qdr_layout layout)
{
    const rows m = rows_of(g, layout);
    const int64_t x = g[QDR_X], y = g[QDR_Y];
    const int n_ends = gathered(g, layout, QDR_Y, 1) ? 1 : 2; /* embedding, last norm */
    const size_t ends = room(m.cell) /* tokens */ + (size_t)n_ends * room(m.over_x * HIDDEN / x) +
                        room(m.over_y * VOCAB / y) + room(m.over_y) /* logits, targets */;
    const size_t saved = room(2 * m.over_x) + room(2 * m.over_y);
    size_t work = (size_t)(m.over_x * 3 * x) * 4; /* moments of all parts */
    const qdri_kernel heads = {
        .dtype = QDR_F32,
        .u.attention = {.n_rows = m.over_y, .context = CONTEXT, .n_heads = HEADS / y, .head_size = HIDDEN / HEADS}};
    const size_t attention = qdri_attention_work_bytes(&heads), entropy = room(m.over_y) + (size_t)(2 * m.over_y) * 4;
    if (work < attention) work = attention;
    if (work < entropy) work = entropy;
    return GPT_NET_LAYERS * layer_activations(g, layout, &m) + ends + saved +
           gathered(g, layout, QDR_Y, m.cell * HIDDEN / x) /* head */ + qdri_align_bytes(work, QDRI_BUFFER_ALIGN) +
           room(8) /* {sum, rows} in f64, twice */;
}

TEST(sizes_are_closed_forms)
{
    built b = {0}; /* one net after the other, in the same memory */
    for (int i = 0; i < 2 * N_GRIDS; i++) {
        const int *g = grids[i / 2];
        const qdr_layout layout = i % 2 ? QDR_SCATTERED : QDR_REPLICATED;
        const gpt_net gpt = small_gpt(layout);
        for (int rank = 0; rank < n_ranks(g); rank++) {
            build(&b, &gpt, g, rank);
            const size_t *bytes = b.net.buffers.region_bytes;
            assert_int_equal(bytes[QDRI_PARAMETERS], parameter_bytes(g));
            assert_int_equal(bytes[QDRI_GRADIENTS], gradient_bytes(g));
            assert_int_equal(bytes[QDRI_ACTIVATIONS], activation_bytes(g, layout));
        }
    }
    drop(&b);
}

/* Where nothing divides: what ranks count of a parameter is the parameter. */
TEST(parameters_are_whole)
{
    static const int sizes[QDR_N_AXES] = {3, 2, 5, 1};
    gpt_net gpt = small_gpt(QDR_SCATTERED);
    gpt.vocab = 101;
    built b = {0};
    int64_t counted = 0, whole = 0;
    for (int rank = 0; rank < n_ranks(sizes); rank++) {
        build(&b, &gpt, sizes, rank);
        whole = 0;
        for (int i = 0; i < b.net.n_parameters; i++) {
            const qdri_parameter *p = &b.net.parameters[i];
            whole += p->n_global;
            if (p->counted) counted += p->n_elems;
        }
    }
    assert_int_equal(counted, whole);
    assert_int_equal(whole, GPT_NET_LAYERS * (12 * HIDDEN * HIDDEN + 13 * HIDDEN) + (101 + CONTEXT + 2) * HIDDEN);
    drop(&b);
}

/* Whether a sum of small gradients over the axis has this one. */
static int is_summed(const qdri_schedule *backward, qdr_axis axis, qdri_ref gradient)
{
    int n = 0;
    for (int i = 0; i < backward->n_tasks; i++) {
        const qdri_task *task = &backward->tasks[i];
        const size_t begin = task->writes[0].offset, end = begin + task->writes[0].bytes;
        if (task->node >= 0 || task->channel != qdri_reduce_channel(axis)) continue;
        assert_int_equal(task->writes[0].buffer, gradient.buffer);
        assert_int_equal(task->count * 4, task->writes[0].bytes);
        n += begin <= gradient.offset && gradient.offset + gradient.bytes <= end;
    }
    assert_true(n <= 1);
    return n;
}

/* Whatever the order of the parameters, and whichever axes their gradients are summed over. */
TEST(small_gradients_are_summed_over_their_axes)
{
    static const int sizes[QDR_N_AXES] = {2, 2, 2, 2};
    const qdri_position position = position_of(sizes, 5);
    const gpt_net gpt = small_gpt(QDR_SCATTERED);
    built b = {0};
    CHECK_OK(gpt_net_describe(&b.net, &gpt, &position));
    for (int i = 0; i < b.net.n_parameters; i++) b.net.parameters[i].extra_sums = i % 4;
    CHECK_OK(qdri_net_build(&b.net, &b.lists));
    for (int i = 0; i < b.net.n_parameters; i++) {
        const qdri_parameter *p = &b.net.parameters[i];
        if (p->flat_over_z) continue;
        for (int axis = QDR_X; axis < QDR_N_AXES; axis++)
            assert_int_equal(is_summed(&b.lists.backward[0], (qdr_axis)axis, p->gradient),
                             axis > QDR_Y || p->extra_sums >> axis & 1);
    }
    drop(&b);
}

/* A vector that every rank stores, and whose rows are scattered over both axes: one of all ranks is the first copy. */
TEST(one_copy_is_the_first)
{
    static const int sizes[QDR_N_AXES] = {3, 2, 2, 2};
    static const qdr_block cols[QDR_MAX_BLOCKS] = {{12, 1}};
    const gpt_net gpt = small_gpt(QDR_SCATTERED);
    int n_first = 0, n_of_x = 0;
    for (int rank = 0; rank < n_ranks(sizes); rank++) {
        const qdri_position position = position_of(sizes, rank);
        qdri_parameter_desc desc = {.what = "gamma", .cols = cols, .extra_sums = 1 << QDR_X | 1 << QDR_Y};
        qdri_net net = {0};
        int both, over_x;
        CHECK_OK(gpt_net_describe(&net, &gpt, &position));
        CHECK_OK(qdri_parameter_add(&net, &desc, &both));
        desc.extra_sums = 1 << QDR_X;
        CHECK_OK(qdri_parameter_add(&net, &desc, &over_x));
        assert_int_equal(net.parameters[over_x].slot, net.parameters[both].slot + 1);
        n_first += net.parameters[both].first_copy;
        n_of_x += net.parameters[over_x].first_copy;
        qdri_net_free(&net);
    }
    assert_int_equal(n_first, 1);
    assert_int_equal(n_of_x, sizes[QDR_Y]);
}

static int n_calls(const qdri_schedule *schedule, qdr_channel channel, qdr_coll_kind kind)
{
    int n = 0;
    for (int i = 0; i < schedule->n_tasks; i++) {
        const qdri_task *task = &schedule->tasks[i];
        n += task->kind == QDRI_TASK_COLLECTIVE && task->channel == channel && task->coll == kind;
    }
    return n;
}

/* Normal layers are summed over x, transposed ones and the embedding over y; dX the other way round. All weights are
 * gathered over z; in backward all but E for the embedding, whose input has no gradient. dW of head and embedding is
 * summed over d once. */
TEST(replicated_calls_are_those_of_the_table)
{
    const gpt_net gpt = small_gpt(QDR_REPLICATED);
    built b = {0};
    for (int i = 0; i < N_GRIDS; i++) {
        const int *g = grids[i], x = g[QDR_X] > 1, y = g[QDR_Y] > 1, z = g[QDR_Z] > 1, d = g[QDR_D] > 1;
        const qdri_schedule *forward = &b.lists.forward, *backward = &b.lists.backward[0],
                            *deferred = &b.lists.backward[1];
        build(&b, &gpt, g, n_ranks(g) - 1);
        assert_int_equal(n_calls(forward, QDR_CHANNEL_Z_GATHER, QDR_ALL_GATHER), z * (N_LINEAR + 2));
        assert_int_equal(n_calls(forward, QDR_CHANNEL_X_REDUCE, QDR_ALL_REDUCE), x * (N_LINEAR / 2 + 1));
        assert_int_equal(n_calls(forward, QDR_CHANNEL_Y_REDUCE, QDR_ALL_REDUCE), y * (N_LINEAR / 2 + 1));
        assert_int_equal(n_calls(backward, QDR_CHANNEL_Z_GATHER, QDR_ALL_GATHER), z * (N_LINEAR + 1));
        assert_int_equal(n_calls(backward, QDR_CHANNEL_Y_REDUCE, QDR_ALL_REDUCE), y * (N_LINEAR / 2 + 1));
        assert_int_equal(n_calls(backward, QDR_CHANNEL_Z_REDUCE, QDR_REDUCE_SCATTER), z * (N_LINEAR + 2));
        assert_int_equal(n_calls(backward, QDR_CHANNEL_D_REDUCE, QDR_ALL_REDUCE),
                         d * (N_LINEAR + 1 + 1 /* small gradients */));
        assert_int_equal(n_calls(deferred, QDR_CHANNEL_D_REDUCE, QDR_ALL_REDUCE), 0);
    }
    drop(&b);
}

/* Returns are gathers of weights: what follows the last of them waits for it only if these may not overlap. Its W is
 * needed much later. */
TEST(returns_overlap_as_weights)
{
    const qdri_position position = {.size = {1, 1, 1, 2}, .near = 2, .far = 1};
    gpt_net gpt = small_gpt(QDR_REPLICATED);
    built b = {0};
    for (int overlap = QDR_OVERLAP_ALL; overlap >= 0; overlap--) {
        int last = 0, waits = 0;
        gpt.overlap = overlap ? overlap : QDR_OVERLAP_NONE;
        CHECK_OK(gpt_net_describe(&b.net, &gpt, &position));
        CHECK_OK(qdri_net_build(&b.net, &b.lists));
        const qdri_schedule *list = &b.lists.first_forward;
        assert_int_equal(n_calls(list, QDR_CHANNEL_D_NEAR, QDR_ALL_GATHER), N_LINEAR + 1);
        for (int i = 0; i < list->n_tasks; i++)
            if (list->tasks[i].channel == QDR_CHANNEL_D_NEAR) last = i;
        const qdri_task *next = &list->tasks[last + 1];
        for (int i = 0; i < next->n_waits; i++) waits |= next->waits[i] == last;
        assert_int_equal(waits, !(overlap & QDR_OVERLAP_WEIGHTS));
    }
    drop(&b);
}

/* To be freed. */
static char *text_of(const qdri_schedule *schedule)
{
    char *text = NULL;
    size_t n_chars = 0;
    FILE *file = open_memstream(&text, &n_chars);
    assert_non_null(file);
    qdri_schedule_print(schedule, file);
    fclose(file);
    return text;
}

/* A list made again, and one of another net in the same memory, is the same list. */
TEST(lists_are_functions_of_the_description)
{
    built used = {0};
    for (int i = 0; i < 2 * N_GRIDS; i++) {
        const gpt_net gpt = small_gpt(i % 2 ? QDR_SCATTERED : QDR_REPLICATED);
        const int *g = grids[i / 2], rank = n_ranks(g) / 2;
        built fresh = {0};
        build(&used, &gpt, g, rank);
        build(&fresh, &gpt, g, rank);
        char *before = text_of(&used.lists.backward[0]);
        CHECK_OK(qdri_net_forward(&used.net, 0, &used.lists.forward));
        CHECK_OK(qdri_net_backward(&used.net, QDRI_GRADIENT_OVERWRITE, 0, &used.lists.backward[0]));
        char *again = text_of(&used.lists.backward[0]), *other = text_of(&fresh.lists.backward[0]),
             *forward = text_of(&used.lists.forward), *first = text_of(&fresh.lists.forward);
        assert_non_null(strstr(forward, "block1.attention"));
        assert_string_equal(before, again);
        assert_string_equal(before, other);
        assert_string_equal(forward, first);
        char *const texts[] = {before, again, other, forward, first};
        for (size_t j = 0; j < sizeof texts / sizeof *texts; j++) free(texts[j]);
        drop(&fresh);
    }
    drop(&used);
}

/* The sentence names what is wrong, and the net is as before. */
TEST(refused_nodes_leave_nothing)
{
    const int64_t many = (int64_t)1 << 40, wide = (int64_t)1 << 24;
    const qdri_position position = {.size = {2, 2, 1, 1}, .coordinate = {1, 0, 0, 0}};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = many, .row_unit = 4};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{12, 4}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .in = {{12, 4}}, .out = {{18, 4}}, .bias = 1};
    const qdri_node_desc gelu = {.kind = QDRI_NODE_ACTIVATION, .name = "gelu", .in = {1}};
    qdri_node_desc linear = {QDRI_NODE_LINEAR, "fc", {0}, {.linear = {desc, 0}}};
    qdri_net net = {0};
    qdr_edge x, y;
    CHECK_FAILS(qdri_net_begin(&net, &position, &(qdr_stack_opts){QDR_INIT(qdr_stack_opts), .n_rows = -1}),
                QDR_ERR_SHAPE, "-1");
    CHECK_OK(qdri_net_begin(&net, &position, &opts));
    CHECK_OK(qdri_net_add_input(&net, "x", &input, 0, &x));
    CHECK_FAILS(qdri_net_add(&net, &linear, &y), QDR_ERR_SHAPE, "18");
    linear.u.linear.desc.out[0] = (qdr_block){wide, 1}; /* parameters fit, the output does not */
    CHECK_FAILS(qdri_net_add(&net, &linear, &y), QDR_ERR_SHAPE, "size");
    CHECK_FAILS(qdri_net_add(&net, &gelu, &y), QDR_ERR_ARGUMENT, "edge 1");
    assert_int_equal(net.n_nodes, 0);
    assert_int_equal(net.n_edges, 1);
    assert_int_equal(net.n_parameters, 0);
    assert_int_equal(net.edges[x].n_uses, 0);
    qdri_net_free(&net);
}

TEST(an_embedding_is_tied_once)
{
    static const int sizes[QDR_N_AXES] = {1, 1, 1, 1};
    const qdri_position position = position_of(sizes, 0);
    const gpt_net gpt = small_gpt(QDR_REPLICATED);
    const char *const words = "not tied yet";
    qdri_net net = {0};
    qdr_edge y;
    CHECK_OK(gpt_net_describe(&net, &gpt, &position));
    for (int table = -2; table <= net.n_nodes; table++) { /* among them the one that is tied */
        const qdri_node_desc head = {QDRI_NODE_LINEAR, "again", {1}, {.linear = {{.size = 0}, 1 + table}}};
        if (table != -1) CHECK_FAILS(qdri_net_add(&net, &head, &y), QDR_ERR_ARGUMENT, words);
    }
    qdri_net_free(&net);
}

/* Angles are computed in double: in f32 a cosine errs by its rounding alone, far from the first position, too. */
TEST(rotary_angles)
{
    const int64_t context = 1000001, step = 997;
    double frequencies[] = {1, 0.31622776601683794};
    const qdri_rotation rotation = {context, 2, 1.5, frequencies, QDRI_NO_REF};
    float *table = test_malloc((size_t)context * 4 * sizeof *table);
    qdri_rotation_fill(&rotation, QDR_F32, table);
    for (int64_t row = (context - 1) % step; row < context; row += step)
        for (int i = 0; i < 2; i++) {
            const long double angle = (long double)row * frequencies[i];
            assert_true(fabsl(table[4 * row + i] - 1.5L * cosl(angle)) < 1e-6L);
            assert_true(fabsl(table[4 * row + 2 + i] - 1.5L * sinl(angle)) < 1e-6L);
        }
    test_free(table);
}

/* Attentions that turn by the same angles share a table; older nets leave nothing. */
TEST(rotations_are_shared)
{
    static const int sizes[QDR_N_AXES] = {1, 1, 1, 1};
    const qdri_position position = position_of(sizes, 0);
    const gpt_net gpt = small_gpt(QDR_REPLICATED);
    const double frequencies[] = {1, 0.5, 0.25};
    qdri_net net = {0};
    for (int round = 0; round < 2; round++) {
        qdr_attention_desc desc = {.context = 8, .rotary_columns = 4, .frequencies = frequencies};
        int first = 0, same = 0, other = 0;
        CHECK_OK(gpt_net_describe(&net, &gpt, &position));
        assert_int_equal(net.n_rotations, 0);
        CHECK_OK(qdri_rotation_add(&net, &desc, &first));
        desc.magnitude = 1;
        CHECK_OK(qdri_rotation_add(&net, &desc, &same));
        desc.frequencies = frequencies + 1;
        CHECK_OK(qdri_rotation_add(&net, &desc, &other));
        assert_true(first == 1 && same == 1 && other == 2);
        CHECK_OK(qdri_net_place(&net));
        assert_int_equal(net.n_rotations, 2);
        assert_int_equal(net.rotations[1].table.bytes, 8 * 4 * sizeof(float));
    }
    qdri_net_free(&net);
}
