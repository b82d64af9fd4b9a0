/* SPDX-License-Identifier: Apache-2.0 */
/* States in which some runs are slower, by hand from docs/model.md. */
#include "eight_layers.h"
#include "price/price.h"

/* A fifth of the runs of four nodes stall, and three tenths are in a state that costs nothing here; on two nodes half
 * as many; the rest is normal. With nearly full memory as many stall as on 64 nodes, also on one. */
TEST(states)
{
    const qdr_machine_state stalled = {.of_pipelines = 1, .shares = {0, 0.2, 0.6, 0.9}},
                            waiting = {.of_pipelines = 1, .shares = {0, 0.3, 0.6, 0.3}};
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of(12, 2);
    for (int n = 2; n <= 4; n += 2) {
        plan.pipeline = n;
        const double stage = 2.0 * LAYERS / n * (3 * layer + 3.5 * scores), last = stage + 2 * 3 * head;
        const double stall = 2 * last, calm = 6 * last + (n - 1) * stage;
        const double slow = n == 2 ? 6 * (last + stall) + stage + stall
                                   : 6 * (stage + 2 * stall) + stage + stall + last + stall + stage + 2 * stall;
        const double share = n == 2 ? 0.1 : 0.2, others = n == 2 ? 0.15 : 0.3;
        machine.n_states = 2;
        machine.states[0] = stalled;
        machine.states[0].stage_secs = stall;
        machine.states[1] = waiting;
        qdr_plan_result r = predict(&machine, &network, &plan);
        assert_int_equal(r.n_states, 3);
        const double secs[] = {calm, slow, calm}, shares[] = {1 - share - others, share, others};
        for (int i = 0; i < 3; i++) {
            assert_near("secs", r.state_secs[i], secs[i]);
            assert_near("share", r.state_shares[i], shares[i]);
        }
        assert_near("mean", r.secs, share * slow + (1 - share) * calm);
        double sum = 0;
        for (int t = 0; t < QDR_N_TIME_TERMS; t++) sum += r.time[t];
        assert_near("terms", sum, r.secs);
        machine.states[0].of_pipelines = 0; /* of others */
        assert_near("other runs", predict(&machine, &network, &plan).secs, calm);
        machine.states[0] = stalled;
        machine.states[0].stage_secs = stall;
        machine.states[0].memory_share = 1e-6;
        machine.ranks_per_node = 8;
        r = predict(&machine, &network, &plan);
        assert_near("full memory", r.secs, 0.9 * slow + 0.1 * calm);
        assert_int_equal(r.n_states, 2);
        machine.states[0].memory_share = 1;
        assert_int_equal(predict(&machine, &network, &plan).n_states, 1); /* one node */
        machine.ranks_per_node = 1;
    }
    machine.n_states = 0;
    assert_int_equal(predict(&machine, &network, &plan).n_states, 1);
    /* On more nodes than 64 as on these; together there are not more than all. */
    double shares_of[QDR_MAX_STATES + 1];
    machine.n_states = 3;
    machine.states[0] = stalled;
    machine.states[1] = (qdr_machine_state){.of_pipelines = 1, .shares = {1, 1, 1, 1}};
    machine.states[2] = waiting;
    const qdr_plan many = {.x = 16, .y = 1, .z = 1, .d = 1, .pipeline = 16}; /* 256 nodes */
    qdri_state_shares(&machine, &many, 0, shares_of);
    assert_near("most", shares_of[1], 0.9);
    assert_near("the rest", shares_of[2], 0.1);
    assert_true(fabs(shares_of[0]) < 1e-12 && fabs(shares_of[3]) < 1e-12);
}
