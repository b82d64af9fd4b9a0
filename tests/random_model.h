/* SPDX-License-Identifier: Apache-2.0 */
/* Random networks, machines, grids and plans for tests of the model. */
#ifndef QDR_TEST_RANDOM_MODEL_H
#define QDR_TEST_RANDOM_MODEL_H

#include "qdr_test.h"
#include "quadrille/plan.h"

static inline int random_flag(uint64_t *seed) { return (int)(test_random(seed) & 1); }

static inline int64_t random_of(uint64_t *seed, const int64_t *list, int64_t n)
{
    return list[test_between(seed, 0, n - 1)];
}

static inline qdr_model *named_model(const char *machine_name, const char *network_name)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_model *model = NULL;
    CHECK_OK(qdr_machine_load(machine_name, &machine));
    CHECK_OK(qdr_network_load(network_name, &network));
    CHECK_OK(qdr_model_create(&machine, &network, &model));
    return model;
}

/* A small network whose extents the axes (up to 4) divide. */
static inline qdr_network random_network(uint64_t *seed, int64_t layers)
{
    static const int64_t sizes[] = {4, 8, 16}, units[] = {48, 96, 144, 240};
    qdr_network n = {QDR_INIT(qdr_network), .name = "random", .layers = layers};
    n.hidden = random_of(seed, units, 4);
    n.heads = 12 * test_between(seed, 1, 2);
    n.kv_heads = random_flag(seed) ? n.heads : random_flag(seed) ? 12 : 1;
    n.head_size = random_of(seed, sizes, 3);
    n.ffn = random_of(seed, units, 4) * 4;
    n.vocab = 12 * test_between(seed, 20, 60);
    n.context = 12 * test_between(seed, 1, 4);
    n.positions = random_flag(seed) ? n.context : 0;
    n.gated = random_flag(seed);
    n.tied = random_flag(seed);
    n.parallel_residual = random_flag(seed);
    n.qkv_bias = random_flag(seed);
    n.out_bias = random_flag(seed);
    n.mlp_bias = random_flag(seed);
    n.norm = random_flag(seed) ? QDR_NORM_LAYER : QDR_NORM_RMS;
    n.norms_per_layer = 2;
    if (random_flag(seed)) {
        n.window = test_between(seed, 1, 2 * n.context);
        n.window_layers = test_between(seed, 1, layers);
    }
    return n;
}

/* A machine whose levels of links have other sizes and rates than its file. */
static inline qdr_machine random_machine(uint64_t *seed)
{
    static const char *const machines[] = {"dgx-a100", "frontier", "summit", "perlmutter", "dgx-h100", "laptop"};
    enum { N_MACHINES = sizeof machines / sizeof *machines };
    static const int64_t inner[] = {2, 3, 4}, factors[] = {2, 2, 3, 4};
    qdr_machine m = {QDR_INIT(qdr_machine)};
    CHECK_OK(qdr_machine_load(machines[test_between(seed, 0, N_MACHINES - 1)], &m));
    if (m.n_links < 2 || random_flag(seed)) return m;
    int n_ranks = (int)random_of(seed, inner, 3);
    for (int l = 0; l < m.n_links - 1; l++, n_ranks *= (int)random_of(seed, factors, 4)) {
        m.links[l].n_ranks = n_ranks;
        m.ranks_per_node = n_ranks;
        if (l > 0) m.links[l].n_adapters = n_ranks;
    }
    m.links[m.n_links - 1].n_adapters = (int)test_between(seed, 1, m.ranks_per_node);
    m.links[m.n_links - 1].adapter_bytes_per_sec *= (double)test_between(seed, 1, 20) / 10;
    CHECK_OK(qdr_machine_check(&m, m.name));
    return m;
}

/* Axes of 1 to 4 ranks, more of them 1 than not. */
static inline qdr_plan random_grid(uint64_t *seed)
{
    static const int64_t axes[] = {1, 1, 2, 3, 4};
    static const qdr_dtype types[] = {QDR_F32, QDR_BF16, QDR_F64, QDR_F16};
    qdr_plan p = {QDR_INIT(qdr_plan)};
    p.x = (int)random_of(seed, axes, 5);
    p.y = (int)random_of(seed, axes, 5);
    p.z = (int)random_of(seed, axes, 5);
    p.d = (int)random_of(seed, axes, 5);
    p.layout = random_flag(seed) ? QDR_SCATTERED : QDR_REPLICATED;
    p.dtype = types[test_between(seed, 0, 3)];
    /* Too few sequences to scatter, or as many for each rank. */
    p.batch = (int64_t)p.z * p.d * (random_flag(seed) ? p.x * test_between(seed, 1, 3) : 1);
    return p;
}

static inline int random_divisor(uint64_t *seed, int n)
{
    int divisor = (int)test_between(seed, 1, n);
    while (n % divisor) divisor--;
    return divisor;
}

/* Half of the time there are none. */
static inline void random_levels(uint64_t *seed, qdr_plan *plan)
{
    if (random_flag(seed)) return;
    plan->gradient_parts = plan->z * random_divisor(seed, plan->d);
    plan->optimizer_parts = plan->gradient_parts * random_divisor(seed, plan->z * plan->d / plan->gradient_parts);
}

static inline void random_order(uint64_t *seed, char order[8])
{
    memcpy(order, "xyzd", 5);
    for (int i = 3; i > 0; i--) {
        const int64_t j = test_between(seed, 0, i);
        const char letter = order[i];
        order[i] = order[j];
        order[j] = letter;
    }
}

#endif
