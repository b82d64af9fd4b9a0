/* SPDX-License-Identifier: Apache-2.0 */
/* Templates compared with nets: the extents that a role gives for a task are those that the builders give for the same
 * network at its own size; and few layers represent many. */
#include "price/template.h"

#include <math.h>

#include "price/price.h"
#include "quadrille/perf.h"
#include "random_model.h"

static void free_net(qdri_net *net, qdri_schedule lists[QDRI_N_LIST_KINDS])
{
    for (int i = 0; i < QDRI_N_LIST_KINDS; i++) qdri_schedule_free(&lists[i]);
    qdri_net_free(net);
}

/* The lists of a network with n_layers on the rank that has most. */
static void build(const qdr_network *network, const qdr_plan *plan, int n_layers, qdri_net *net,
                  qdri_schedule lists[QDRI_N_LIST_KINDS])
{
    int *layer_of = test_calloc((size_t)QDRI_NODES_OF(n_layers), sizeof *layer_of);
    const qdri_place place = {.size = {plan->x, plan->y, plan->z, plan->d}};
    const qdr_stack_opts opts = {.version = QDR_OPTS_INIT,
                                 .n_rows = plan->batch * network->context,
                                 .row_unit = network->context,
                                 .dtype = plan->dtype,
                                 .overlap = plan->overlap,
                                 .panels = 1};
    qdri_net_lists all = {.single = {0}};
    memset(net, 0, sizeof *net);
    memset(lists, 0, QDRI_N_LIST_KINDS * sizeof *lists);
    CHECK_OK(qdri_describe(net, network, &place, &opts, network->context, plan->layout, n_layers, layer_of));
    CHECK_OK(qdri_net_build(net, &all));
    qdri_net_lists_free(&all);
    CHECK_OK(qdri_net_forward(net, &lists[QDRI_LIST_FORWARD]));
    CHECK_OK(qdri_net_backward(net, QDRI_GRADIENT_OVERWRITE, 0, &lists[QDRI_LIST_BACKWARD_ONLY]));
    CHECK_OK(qdri_net_backward(net, QDRI_GRADIENT_ADD_TO_PARTIAL, 1, &lists[QDRI_LIST_BACKWARD_BEFORE]));
    CHECK_OK(qdri_net_backward(net, QDRI_GRADIENT_ADD_TO_PARTIAL, 0, &lists[QDRI_LIST_BACKWARD_LAST]));
    test_free(layer_of);
}

/* ---- every structure has a template ---- */

static void check_structure(const qdri_structure *s)
{
    qdri_template *made = NULL;
    CHECK_OK(qdri_template_make(s, &made));
    assert_true(made->n_roles > 10);
    for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) {
        const qdri_template_list *list = &made->lists[kind];
        assert_true(list->schedule.n_tasks > 10);
        for (int layer = 0; layer < QDRI_TEMPLATE_LAYERS; layer++)
            assert_true(list->last_of_layer[layer][QDRI_STREAM_OF_COMPUTE] >= 0);
    }
    qdri_template_free(made);
}

/* Bits of `code` as flags; 0 where they contradict one another. */
static int structure_of_code(unsigned code, qdri_structure *s)
{
    memset(s, 0, sizeof *s);
    unsigned char *const flags[] = {&s->wide[0],       &s->wide[1],       &s->wide[2],  &s->wide[3], &s->scattered,
                                    &s->few_sequences, &s->few_key_heads, &s->gated,    &s->tied,    &s->positions,
                                    &s->parallel,      &s->qkv_bias,      &s->out_bias, &s->mlp_bias};
    for (size_t i = 0; i < sizeof flags / sizeof *flags; i++) *flags[i] = (unsigned char)(code >> i & 1);
    s->overlap = QDR_OVERLAP_ALL;
    if (s->scattered && !s->wide[QDR_X] && !s->wide[QDR_Y]) return 0;
    if (s->few_sequences && !(s->scattered && s->wide[QDR_X])) return 0;
    return !s->few_key_heads || s->wide[QDR_Y];
}

enum { N_CODES = 1 << 14 };

static void structures(void **state)
{
    (void)state;
    const unsigned step = getenv("QDR_TEST_LONG") ? 1 : 7;
    uint64_t seed = test_seed();
    int n = 0;
    for (unsigned code = (unsigned)(test_random(&seed) % step); code < N_CODES; code += step) {
        qdri_structure s;
        if (!structure_of_code(code, &s)) continue;
        if (random_flag(&seed)) s.overlap = (unsigned char)test_between(&seed, 0, QDR_OVERLAP_ALL);
        check_structure(&s);
        n++;
    }
    print_message("%d structures\n", n);
}

/* ---- the extents of tasks ---- */

static void check_collective(const qdri_task *task, const qdri_role *role, const qdri_sizes *s, const qdr_plan *plan)
{
    const int size[QDR_N_AXES] = {plan->x, plan->y, plan->z, plan->d};
    const int g = size[qdr_channel_axis(task->channel)];
    const double count = s->of[role->m] * s->of[role->n];
    const double elems = count * (role->per_member ? g : 1);
    const double sent = qdr_perf_coll_elems(task->coll, g, elems) *
                        (role->is_gradient ? s->gradient_bytes : s->elem_bytes);
    assert_int_equal(role->coll, task->coll);
    assert_int_equal(role->channel, task->channel);
    if ((double)task->count != count)
        fail_msg("%s of %s: count %g, but %g", qdri_task_name(task), task->name, (double)task->count, count);
    if (fabs((double)task->bytes_sent - sent) > 1e-9 * sent + 16 * g)
        fail_msg("%s of %s sends %g bytes, but %g", qdri_task_name(task), task->name, (double)task->bytes_sent, sent);
}

static void check_task(const qdri_task *task, const qdri_role *role, const qdri_sizes *s, const qdr_plan *plan)
{
    const double m = s->of[role->m], n = s->of[role->n], k = s->of[role->k];
    assert_int_equal(role->kind, task->kind);
    if (task->kind == QDRI_TASK_COLLECTIVE) {
        check_collective(task, role, s, plan);
        return;
    }
    const int runs = task->kind == QDRI_TASK_FORWARD || task->kind == QDRI_TASK_BACKWARD;
    const int is_product = task->kind == QDRI_TASK_PRODUCT;
    if ((double)task->m != m || (!runs && (double)task->n != n) || (is_product && (double)task->k != k))
        fail_msg("%s of %s: %g x %g x %g, but %g x %g x %g", qdri_task_name(task), task->name, (double)task->m,
                 (double)task->n, (double)task->k, m, n, k);
    if (is_product) assert_true(fabs(task->flops - 2 * m * n * k) <= 1e-9 * task->flops);
}

static void check_network(const qdr_network *network, const qdr_plan *plan)
{
    const qdri_structure structure = qdri_structure_of(network, plan);
    qdri_schedule lists[QDRI_N_LIST_KINDS];
    qdri_template *made = NULL;
    qdri_sizes sizes;
    qdri_net net;
    CHECK_OK(qdri_template_make(&structure, &made));
    qdri_sizes_make(network, plan, QDRI_TEMPLATE_LAYERS, &sizes);
    build(network, plan, QDRI_TEMPLATE_LAYERS, &net, lists);
    for (int kind = 0; kind < QDRI_N_LIST_KINDS; kind++) {
        const qdri_template_list *t = &made->lists[kind];
        assert_int_equal(t->schedule.n_tasks, lists[kind].n_tasks);
        for (int i = 0; i < lists[kind].n_tasks; i++) {
            const qdri_task *task = &lists[kind].tasks[i], *same = &t->schedule.tasks[i];
            assert_int_equal(task->stream, same->stream);
            assert_int_equal(task->node, same->node);
            check_task(task, &made->roles[t->role[i]], &sizes, plan);
        }
    }
    free_net(&net, lists);
    qdri_template_free(made);
}

static void extents(void **state)
{
    (void)state;
    uint64_t seed = test_seed();
    for (int trial = 0; trial < 300; trial++) {
        const qdr_network network = random_network(&seed, QDRI_TEMPLATE_LAYERS);
        const qdr_plan plan = random_grid(&seed);
        if (trial < 5 || getenv("QDR_TEST_SAY"))
            print_message("%dx%dx%dx%d %s: hidden %d, heads %d, %d key heads, batch %d of %d\n", plan.x, plan.y, plan.z,
                          plan.d, plan.layout ? "S" : "R", (int)network.hidden, (int)network.heads,
                          (int)network.kv_heads, (int)plan.batch, (int)network.context);
        check_network(&network, &plan);
    }
}

/* ---- many layers ---- */

enum { N_LAYERS = 12, MOST_NODES = QDRI_NODES_OF(N_LAYERS), MOST_TASKS = 4000, N_TRIALS = 60 };

/* The node of a template's net that a node of a long one is like: of the first, a middle, or the last layer. */
static int like_node(int node, int n_first, int per_layer)
{
    const int layer = (node - n_first) / per_layer;
    if (node < n_first + per_layer) return node;
    if (layer >= N_LAYERS - 1) return node - (N_LAYERS - QDRI_TEMPLATE_LAYERS) * per_layer;
    return node - (layer - 1) * per_layer;
}

/* The n-th task of a node. */
static int find_task(const qdri_schedule *list, int node, int n)
{
    for (int i = 0; i < list->n_tasks; i++)
        if (list->tasks[i].node == node && n-- == 0) return i;
    fail_msg("node %d has too few tasks", node);
    return -1;
}

/* When a list of all layers ends, with the prices of the template's roles. */
static double long_secs(const qdri_template_list *few, const qdri_schedule *all, const qdri_role_price *roles,
                        const qdri_template *made, int n_first, int per_layer, const qdr_machine *machine)
{
    static qdri_price prices[MOST_TASKS];
    static int next[MOST_TASKS];
    int n_seen[1 + MOST_NODES] = {0}; /* of what is no node's, and of nodes */
    qdri_sim_list sim;
    qdri_sim_times times;
    const qdri_sim_slowdown slow = {machine->processor_slowdown, machine->transfer_slowdown};
    assert_true(all->n_tasks <= MOST_TASKS);
    for (int i = 0; i < all->n_tasks; i++) {
        const int node = all->tasks[i].node;
        const int like = find_task(&few->schedule, like_node(node, n_first, per_layer), n_seen[1 + node]++);
        assert_int_equal(made->roles[few->role[like]].kind, all->tasks[i].kind);
        prices[i] = roles[few->role[like]].price;
    }
    qdri_sim_list_make(all, next, &sim);
    qdri_simulate(&sim, prices, &slow, &times, NULL);
    return times.end_secs;
}

/* A network of usual proportions. */
static qdr_network usual_network(uint64_t *seed)
{
    static const int64_t hidden[] = {1536, 3072, 6144};
    qdr_network n = {.version = QDR_OPTS_INIT, .name = "usual", .layers = N_LAYERS};
    n.hidden = random_of(seed, hidden, 3);
    n.heads = 24;
    n.kv_heads = random_flag(seed) ? 24 : 12;
    n.head_size = n.hidden / 24;
    n.gated = random_flag(seed);
    n.ffn = n.gated ? n.hidden / 24 * 64 : 4 * n.hidden;
    n.vocab = random_flag(seed) ? 50304 : 128256;
    n.context = 2048;
    n.positions = random_flag(seed) ? n.context : 0;
    n.tied = random_flag(seed);
    n.parallel_residual = random_flag(seed);
    n.qkv_bias = n.out_bias = n.mlp_bias = random_flag(seed);
    n.norms_per_layer = 2;
    return n;
}

/* A step of all layers, list by list. */
static double exact_secs(const qdr_machine *machine, const qdr_network *network, const qdr_plan *plan)
{
    const qdri_structure structure = qdri_structure_of(network, plan);
    static qdri_role_price roles[QDRI_MAX_ROLES];
    qdri_schedule lists[QDRI_N_LIST_KINDS];
    qdri_template *made = NULL;
    qdri_pricing pricing;
    qdri_net few, all;
    double secs = 0;
    CHECK_OK(qdri_template_make(&structure, &made));
    qdri_pricing_make(machine, network, plan, N_LAYERS, &pricing);
    for (int r = 0; r < made->n_roles; r++) roles[r] = qdri_role_price_of(&pricing, &made->roles[r]);
    build(network, plan, QDRI_TEMPLATE_LAYERS, &few, lists);
    const int n_few = few.n_nodes;
    free_net(&few, lists);
    build(network, plan, N_LAYERS, &all, lists);
    const int per_layer = (all.n_nodes - n_few) / (N_LAYERS - QDRI_TEMPLATE_LAYERS);
    for (int kind = 0; kind <= QDRI_LIST_BACKWARD_ONLY; kind++)
        secs += long_secs(&made->lists[kind], &lists[kind], roles, made, 1, per_layer, machine);
    free_net(&all, lists);
    qdri_template_free(made);
    return secs;
}

static void layers(void **state)
{
    (void)state;
    static const char *const machines[] = {"dgx-a100", "perlmutter", "laptop"};
    uint64_t seed = test_seed();
    double worst = 0;
    int n_off = 0, n_far = 0;
    for (int trial = 0; trial < N_TRIALS; trial++) {
        const qdr_network network = usual_network(&seed);
        qdr_plan plan = random_grid(&seed);
        qdr_machine machine;
        qdr_model *model = NULL;
        qdr_plan_result result;
        CHECK_OK(qdr_machine_load(machines[trial % 3], &machine));
        machine.software = (qdr_machine_software){.launch_secs = 4e-6};
        if (machine.bf16.peak_flops > 0)
            plan.dtype = QDR_BF16;
        else
            plan.dtype = QDR_F32;
        random_order(&seed, plan.order);
        CHECK_OK(qdr_model_create(&machine, &network, &model));
        CHECK_OK(qdr_model_predict(model, &plan, &result));
        const double exact = exact_secs(&machine, &network, &plan);
        const double error = (result.secs - result.time[QDR_TIME_OPTIMIZER]) / exact - 1;
        if (fabs(error) > worst) worst = fabs(error);
        n_off += fabs(error) > 0.01;
        n_far += fabs(error) > 0.08;
        if (fabs(error) > 0.01)
            print_message("%s %dx%dx%dx%d %s %s hidden %d%s%s: %+.2f %%\n", machines[trial % 3], plan.x, plan.y, plan.z,
                          plan.d, plan.order, plan.layout ? "S" : "R", (int)network.hidden,
                          network.gated ? " gated" : "", network.tied ? " tied" : "", error * 100);
        qdr_model_destroy(&model);
    }
    /* If gradients pile up on slow links, four layers do not reach a steady state. Of 6600 trials (110
     * seeds) the worst was off by 12.6 %; of half of them 8 % were off by more than 1 %, and 0.3 % by more than 8 %. */
    print_message("%d of %d off by more than 1 %%, %d by more than 8 %%, the worst by %.2f %%\n", n_off, N_TRIALS,
                  n_far, worst * 100);
    assert_true(n_off <= N_TRIALS / 4);
    assert_true(n_far <= N_TRIALS / 20);
    assert_true(worst <= 0.15);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(structures), cmocka_unit_test(extents),
                                       cmocka_unit_test(layers)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
