/* SPDX-License-Identifier: Apache-2.0 */
/* The lists of random stacks, run on symbols: what is in memory is a number for each four bytes, made of the task that
 * wrote it and of all that the task read. Tasks run in any order that their waits allow. If each read sees the right
 * version of the right value, gradients are the same numbers whatever is kept, passes, or is made again. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/group.h"
#include "core/operands.h"
#include "qdr_test.h"
#include "schedule/net.h"

enum { WIDTH = 12, WIDE = 20, MOST_NODES = 64 };

typedef struct stack {
    qdri_net net;
    char names[MOST_NODES][8];
    qdri_schedule forward, backward;
    uint64_t **memory; /* by buffer */
    size_t *n;
} stack;

static uint64_t mix(uint64_t a, uint64_t b)
{
    uint64_t h = (a ^ (b + 0x9e3779b97f4a7c15u + (a << 6) + (a >> 2))) * 0xff51afd7ed558ccdu;
    return h ^ h >> 33;
}

/* ---- a stack ---- */

static qdr_edge add(stack *s, qdri_node_desc desc, qdr_edge a, qdr_edge b)
{
    qdr_edge out;
    char *name = s->names[s->net.n_nodes];
    snprintf(name, sizeof *s->names, "%d", s->net.n_nodes);
    desc.name = name;
    desc.in[0] = a;
    desc.in[1] = b;
    CHECK_OK(qdri_net_add(&s->net, &desc, &out));
    return out;
}

static qdr_edge add_layer(stack *s, uint64_t *seed, int n, int k, int transposed, qdr_layout layout, qdr_edge in)
{
    const qdr_linear_desc desc = {.in = {{k, 1}},
                                  .out = {{n, 1}},
                                  .bias = test_between(seed, 0, 1) == 1,
                                  .transposed = transposed,
                                  .out_layout = layout,
                                  .drop_gathered = test_between(seed, 0, 1) == 1 && test_between(seed, 0, 1) == 1};
    return add(s, (qdri_node_desc){QDRI_NODE_LINEAR, .u.linear = {desc, 0}}, in, -1);
}

static qdr_edge add_norm(stack *s, uint64_t *seed, qdr_edge in)
{
    return add(
        s,
        (qdri_node_desc){QDRI_NODE_NORM, .u.norm.kind = test_between(seed, 0, 1) == 1 ? QDR_NORM_RMS : QDR_NORM_LAYER},
        in, -1);
}

static qdr_edge add_block(stack *s, uint64_t *seed, qdr_layout layout, qdr_edge in)
{
    qdr_edge out = test_between(seed, 0, 1) == 1 ? add_norm(s, seed, in) : in;
    const qdri_node_desc sum = {.kind = QDRI_NODE_RESIDUAL}, gelu = {.kind = QDRI_NODE_ACTIVATION},
                         caller = {QDRI_NODE_CALLER, .u.caller = {.n_in = 1,
                                                                  .saved_bytes = test_between(seed, 0, 1) == 1 ? 64 : 0,
                                                                  .may_repeat = test_between(seed, 0, 1) == 1}};
    if (test_between(seed, 0, 3) == 0) qdri_net_begin_segment(&s->net);
    out = add_layer(s, seed, WIDE, WIDTH, 0, layout, out);
    if (test_between(seed, 0, 1) == 1) out = add(s, gelu, out, -1);
    if (test_between(seed, 0, 5) == 0) out = add(s, caller, out, -1);
    out = add_layer(s, seed, WIDTH, WIDE, 1, layout, out);
    if (test_between(seed, 0, 5) == 0) out = add(s, caller, out, -1);
    if (test_between(seed, 0, 5) == 0) out = add_norm(s, seed, out);
    if (test_between(seed, 0, 1) == 1) out = add(s, sum, in, out);
    if (test_between(seed, 0, 1) == 1) qdri_net_begin_segment(&s->net);
    if (test_between(seed, 0, 7) == 0) qdri_net_end_segment(&s->net);
    return out;
}

/* The same stack for each seed, whatever it repeats. */
static void build(stack *s, uint64_t seed, qdr_recompute recompute)
{
    static const int sizes[][QDR_N_AXES] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 1, 2, 1},
                                            {1, 1, 2, 2}, {2, 2, 1, 2}, {2, 2, 2, 1}, {3, 1, 2, 1}};
    qdri_position position = {.near = 1, .far = 1};
    const int *size = sizes[test_between(&seed, 0, 7)];
    for (int axis = 0; axis < QDR_N_AXES; axis++) {
        position.size[axis] = size[axis];
        position.coordinate[axis] = (int)test_between(&seed, 0, size[axis] - 1);
    }
    const qdr_layout layout = test_between(&seed, 0, 1) == 1 ? QDR_SCATTERED : QDR_REPLICATED;
    const int replicated = layout == QDR_REPLICATED; /* rows that are gathered again have no panels */
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),
                                 .n_rows = test_between(&seed, 1, 24),
                                 .prefetch = (int)test_between(&seed, 1, 6),
                                 .panels = replicated ? (int)test_between(&seed, 1, 3) : 1,
                                 .batch_parts = replicated ? (int)test_between(&seed, 1, 3) : 1,
                                 .recompute = recompute};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{WIDTH, 1}}, .col_axis = QDR_X, .layout = layout};
    qdr_edge edge;
    CHECK_OK(qdri_net_begin(&s->net, &position, &opts));
    CHECK_OK(qdri_net_add_input(&s->net, "x", &input, 1, &edge));
    qdri_net_begin_segment(&s->net);
    edge = add_layer(s, &seed, WIDTH, WIDTH, 0, layout, add_norm(s, &seed, edge)); /* the norm at least is repeated */
    edge = add_layer(s, &seed, WIDTH, WIDTH, 1, layout, edge);
    for (int64_t i = test_between(&seed, 1, 5); i > 0; i--) edge = add_block(s, &seed, layout, edge);
    CHECK_OK(qdri_net_place(&s->net));
    CHECK_OK(qdri_net_forward(&s->net, 0, &s->forward));
    CHECK_OK(qdri_net_backward(&s->net, QDRI_GRADIENT_OVERWRITE, 0, &s->backward));
}

/* ---- running ---- */

static void begin_memory(stack *s)
{
    const qdri_buffers *buffers = &s->net.buffers;
    s->memory = calloc((size_t)buffers->n, sizeof *s->memory);
    s->n = calloc((size_t)buffers->n, sizeof *s->n);
    assert_non_null(s->memory);
    assert_non_null(s->n);
    for (int i = 0; i < buffers->n; i++) {
        s->n[i] = (buffers->items[i].bytes + 3) / 4;
        s->memory[i] = malloc((s->n[i] + 1) * sizeof **s->memory);
        assert_non_null(s->memory[i]);
        for (size_t k = 0; k < s->n[i]; k++) s->memory[i][k] = mix(k, (uint64_t)(uintptr_t)s->memory[i]); /* garbage */
    }
}

/* Known at the beginning: parameters, the input, the gradient of the output. */
static void set(stack *s, qdri_ref ref, uint64_t what)
{
    for (size_t k = 0; ref.buffer >= 0 && k < (ref.bytes + 3) / 4; k++)
        s->memory[ref.buffer][ref.offset / 4 + k] = mix(what, k);
}

static uint64_t content(const stack *s, qdri_ref ref, uint64_t hash)
{
    if (ref.buffer < 0) return mix(hash, 1);
    assert_true((ref.offset + ref.bytes + 3) / 4 <= s->n[ref.buffer]);
    for (size_t k = 0; k < (ref.bytes + 3) / 4; k++) hash = mix(hash, s->memory[ref.buffer][ref.offset / 4 + k]);
    return hash;
}

/* Whether the old content of what it writes matters. */
static int reads_target(const qdri_task *task, int number)
{
    const qdri_operand *operands = NULL;
    if (task->kind == QDRI_TASK_COLLECTIVE) return task->n_reads == 0 || task->coll == QDR_ALL_REDUCE;
    if (task->kind != QDRI_TASK_KERNEL) return task->accumulate;
    int n = qdri_kernel_operands(task->kernel.kind, &operands);
    while (n > 0 && operands->use == QDRI_OPERAND_READ) operands++, n--;
    if (number >= n) return task->accumulate;
    return operands[number].use == QDRI_OPERAND_UPDATED ||
           (operands[number].use == QDRI_OPERAND_SUMMED && task->accumulate);
}

/* Of a gather in place: the other parts come from other ranks. */
static qdri_ref own_part(const stack *s, const qdri_task *task, qdri_ref whole)
{
    if (task->kind != QDRI_TASK_COLLECTIVE || task->coll != QDR_ALL_GATHER) return whole;
    const qdri_channel_group group = qdri_channel_group_of(&s->net.position, task->channel);
    const size_t bytes = whole.bytes / (size_t)group.size;
    return qdri_slice(whole, (size_t)group.index * bytes, bytes);
}

static void run_task(stack *s, const qdri_task *task)
{
    uint64_t hash = mix((uint64_t)task->kind << 32 | (uint64_t)task->kernel.kind, (uint64_t)(task->node + 2));
    hash = mix(mix(hash, (uint64_t)task->m), mix((uint64_t)task->n, (uint64_t)task->k));
    hash = mix(mix(hash, (uint64_t)task->coll), mix((uint64_t)task->count, (uint64_t)task->channel));
    for (int i = 0; i < task->n_reads; i++) hash = content(s, task->reads[i], hash);
    for (int i = 0; i < task->n_writes; i++)
        if (reads_target(task, i)) hash = content(s, own_part(s, task, task->writes[i]), hash);
    for (int i = 0; i < task->n_writes; i++) set(s, task->writes[i], mix(hash, (uint64_t)i));
}

/* In a random order of those that are possible. */
static void run_list(stack *s, const qdri_schedule *list, uint64_t *seed)
{
    int next[QDRI_N_STREAMS] = {0}, n_done = 0;
    unsigned char *done = calloc((size_t)list->n_tasks + 1, 1);
    assert_non_null(done);
    while (n_done < list->n_tasks) {
        const int stream = (int)test_between(seed, 0, QDRI_N_STREAMS - 1);
        int i = next[stream], is_ready = 1;
        while (i < list->n_tasks && (list->tasks[i].stream != stream || done[i])) i++;
        next[stream] = i;
        if (i == list->n_tasks) continue;
        for (int k = 0; k < list->tasks[i].n_waits; k++) is_ready &= done[list->tasks[i].waits[k]];
        if (!is_ready) continue;
        run_task(s, &list->tasks[i]);
        done[i] = 1;
        n_done++;
    }
    free(done);
}

static void run(stack *s, uint64_t *seed)
{
    const qdri_net *net = &s->net;
    begin_memory(s);
    for (int i = 0; i < net->n_parameters; i++) set(s, net->parameters[i].data, 1000 + (uint64_t)i);
    set(s, net->edges[0].value, 1);
    run_list(s, &s->forward, seed);
    const int workspace = net->workspace.buffer; /* holds nothing between passes */
    for (size_t k = 0; k < s->n[workspace]; k++) s->memory[workspace][k] = mix(k, 3);
    set(s, net->edges[net->nodes[net->n_nodes - 1].out].gradient, 2);
    run_list(s, &s->backward, seed);
}

static int same(const stack *a, const stack *b)
{
    for (int i = 0; i < a->net.n_parameters; i++)
        if (content(a, a->net.parameters[i].gradient, 0) != content(b, b->net.parameters[i].gradient, 0)) return 0;
    return content(a, a->net.edges[0].gradient, 0) == content(b, b->net.edges[0].gradient, 0);
}

static void drop(stack *s)
{
    for (int i = 0; s->memory && i < s->net.buffers.n; i++) free(s->memory[i]);
    free(s->memory);
    free(s->n);
    qdri_schedule_free(&s->forward);
    qdri_schedule_free(&s->backward);
    qdri_net_free(&s->net);
    memset(s, 0, sizeof *s);
}

static int n_rounds(void) { return getenv("QDR_TEST_LONG") ? 10000 : 2000; }

TEST(reads_see_what_they_should)
{
    uint64_t seed = test_seed();
    static stack kept, other;
    for (int round = 0; round < n_rounds(); round++) {
        const uint64_t stack_seed = test_random(&seed);
        build(&kept, stack_seed, QDR_RECOMPUTE_NONE);
        run(&kept, &seed);
        for (int i = 0; i < 2; i++) {
            build(&other, stack_seed, i ? QDR_RECOMPUTE_FULL : QDR_RECOMPUTE_OPERATIONS);
            run(&other, &seed);
            if (!same(&kept, &other)) fail_msg("round %d: results differ if %s", round, i ? "segments" : "operations");
            drop(&other);
        }
        drop(&kept);
    }
}

/* A task that is repeated at the wrong time, or not at all, is found: so it was needed. */
TEST(faults_are_found)
{
    uint64_t seed = test_seed();
    static stack kept, other;
    int n_faults = 0, n_found = 0;
    for (int round = 0; round < n_rounds() / 4; round++) {
        const uint64_t stack_seed = test_random(&seed);
        build(&kept, stack_seed, QDR_RECOMPUTE_NONE);
        run(&kept, &seed);
        build(&other, stack_seed, QDR_RECOMPUTE_FULL);
        qdri_schedule *list = &other.backward;
        const int at = (int)test_between(&seed, 0, list->n_tasks - 1);
        const int has_rows = other.net.opts.n_rows >= 12; /* without, a rank repeats only for the others */
        if (has_rows && list->tasks[at].again && list->tasks[at].n_writes && list->tasks[at].writes[0].bytes) {
            n_faults++;
            if (round % 2 || !list->tasks[at].n_reads)
                list->tasks[at].n_writes = 0; /* it is left out */
            else
                list->tasks[at].reads[0] = list->tasks[at].writes[0]; /* it reads what is not there yet */
            run(&other, &seed);
            n_found += !same(&kept, &other);
        }
        drop(&other);
        drop(&kept);
    }
    print_message("%d of %d faults found\n", n_found, n_faults);
    assert_true(n_faults > 0);
    assert_int_equal(n_found, n_faults);
}
