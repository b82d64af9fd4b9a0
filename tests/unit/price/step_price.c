/* SPDX-License-Identifier: Apache-2.0 */
/* The terms of a step, by hand from docs/model.md. */
#include "eight_layers.h"

/* ---- one stage ---- */

/* Backward takes twice the products, and 2.5 times the attention. */
TEST(terms)
{
    const qdr_machine machine = machine_of();
    const qdr_plan whole = plan_of(6, 0), parts = plan_of(6, 2);
    for (int i = 0; i < 2; i++) {
        const qdr_plan_result r = predict(&machine, &network, i ? &parts : &whole);
        assert_near("micro-batches", r.n_micro, i ? 3 : 1);
        assert_near("products", r.time[QDR_TIME_PRODUCTS], 6 * LAYERS * 3 * layer);
        assert_near("attention", r.time[QDR_TIME_ATTENTION], 6 * LAYERS * 3.5 * scores);
        assert_near("ends", r.time[QDR_TIME_ENDS], 6 * 3 * head);
        assert_near("all", r.secs, 6 * (LAYERS * (3 * layer + 3.5 * scores) + 3 * head));
        /* Narayanan et al. 2021, 72·B·s·l·H²·(1 + s/6H + V/12lH). */
        assert_near("flops", r.flops,
                    72.0 * 6 * CONTEXT * LAYERS * H * H * (1 + CONTEXT / (6.0 * H) + V / (12.0 * LAYERS * H)));
    }
}

TEST(recomputed)
{
    const qdr_machine machine = machine_of();
    qdr_plan plan = plan_of(6, 2);
    plan.recompute = QDR_RECOMPUTE_FULL; /* but the last product, which no backward needs */
    qdr_plan_result r = predict(&machine, &network, &plan);
    const double again = layer - 2.0 * CONTEXT * H * F / PRODUCTS + scores;
    assert_near("full", r.time[QDR_TIME_RECOMPUTE], 6 * LAYERS * again);
    assert_near("all", r.secs, 6 * (LAYERS * (3 * layer + 3.5 * scores + again) + 3 * head));
    plan.recompute = QDR_RECOMPUTE_OPERATIONS; /* which take no time on this machine */
    assert_near("operations", predict(&machine, &network, &plan).secs,
                6 * (LAYERS * (3 * layer + 3.5 * scores) + 3 * head));
    plan.recompute = QDR_RECOMPUTE_LAYERS;
    r = predict(&machine, &network, &plan);
    assert_near("layers", r.time[QDR_TIME_RECOMPUTE], 6 * LAYERS * (layer + scores));
    assert_near("all", r.secs, 6 * (LAYERS * (4 * layer + 4.5 * scores) + 3 * head));
    plan.recompute = QDR_RECOMPUTE_ATTENTION;
    r = predict(&machine, &network, &plan);
    assert_near("attention", r.time[QDR_TIME_RECOMPUTE], 6 * LAYERS * scores);
    assert_near("all", r.secs, 6 * (LAYERS * (3 * layer + 4.5 * scores) + 3 * head));
}

/* 32 bytes of each parameter and its state (64 in f64), or what a framework moves; or 12 flops. A rank updates a part
 * of each matrix, and whole norms and positions. */
TEST(optimizers)
{
    const double matrices = LAYERS * (4.0 * H * H + 2.0 * H * F) + (double)V * H;
    const double small = (2 * LAYERS + 1) * 2.0 * H + (double)CONTEXT * H;
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of(16, 0);
    machine.memory_bytes_per_sec = 1e12;
    machine.memory_efficiency = 0.5;
    assert_near("f32", predict(&machine, &network, &plan).time[QDR_TIME_OPTIMIZER], 32 * (matrices + small) / 0.5e12);
    plan.z = 2;
    plan.d = 8;
    plan.optimizer_parts = 8;
    assert_near("parts", predict(&machine, &network, &plan).time[QDR_TIME_OPTIMIZER],
                32 * (matrices / 8 + small) / 0.5e12);
    plan.gradient_parts = 4; /* near and far */
    assert_near("levels", predict(&machine, &network, &plan).time[QDR_TIME_OPTIMIZER],
                32 * (matrices / 8 + small) / 0.5e12);
    plan.gradient_parts = plan.optimizer_parts = 0;
    assert_near("shards", predict(&machine, &network, &plan).time[QDR_TIME_OPTIMIZER],
                32 * (matrices / 2 + small) / 0.5e12);
    plan.dtype = QDR_F64;
    assert_near("f64", predict(&machine, &network, &plan).time[QDR_TIME_OPTIMIZER],
                64 * (matrices / 2 + small) / 0.5e12);
    machine.software.optimizer_bytes = 40;
    assert_near("framework", predict(&machine, &network, &plan).time[QDR_TIME_OPTIMIZER],
                40 * (matrices / 2 + small) / 0.5e12);
    machine.kernel_flops = 1e9;
    assert_near("flops", predict(&machine, &network, &plan).time[QDR_TIME_OPTIMIZER],
                12 * (matrices / 2 + small) / 1e9);
}

/* A head of its own is as large as the embedding: updated by the same rank, unless it is on another stage. */
TEST(optimizer_of_untied)
{
    const double table = (double)V * H, blocks = LAYERS * (4.0 * H * H + 2.0 * H * F);
    const double norms = 2.0 * H, small = (2 * LAYERS + 1) * norms + (double)CONTEXT * H;
    qdr_machine machine = machine_of();
    qdr_network untied = network;
    qdr_plan plan = plan_of(16, 0);
    machine.memory_bytes_per_sec = 1e12;
    untied.tied = 0;
    assert_near("untied", predict(&machine, &untied, &plan).time[QDR_TIME_OPTIMIZER],
                32 * (blocks + 2 * table + small) / 1e12);
    plan.z = 4;
    assert_near("shards", predict(&machine, &untied, &plan).time[QDR_TIME_OPTIMIZER],
                32 * ((blocks + 2 * table) / 4 + small) / 1e12);
    assert_near("tied", predict(&machine, &network, &plan).time[QDR_TIME_OPTIMIZER],
                32 * ((blocks + table) / 4 + small) / 1e12);
    plan.pipeline = 2;
    plan.micro_batch = 1;
    for (int i = 0; i < 2; i++)
        assert_near("stages", predict(&machine, i ? &network : &untied, &plan).time[QDR_TIME_OPTIMIZER],
                    32 * ((blocks / 2 + table) / 4 + small - (LAYERS / 2 * 2 + 1) * norms) / 1e12);
}

/* One after the other, the host adds what it takes to enqueue; each micro-batch and each step also take some. */
TEST(hosts)
{
    qdr_machine machine = machine_of();
    const qdr_plan plan = plan_of(6, 2), two = plan_of(4, 2), one = plan_of(2, 2);
    const double without = predict(&machine, &network, &plan).secs;
    machine.software.step_secs = 700 * USEC;
    machine.software.microbatch_secs = 40 * USEC;
    qdr_plan_result r = predict(&machine, &network, &plan);
    assert_near("step", r.time[QDR_TIME_HOST], 700 * USEC); /* the device never waits */
    machine.software.host_power = 1;
    r = predict(&machine, &network, &plan);
    assert_near("micro-batches", r.time[QDR_TIME_HOST], (700 + 3 * 40) * USEC);
    machine.software.host_secs = 3 * USEC;
    const double three = predict(&machine, &network, &plan).time[QDR_TIME_HOST] - (700 + 3 * 40) * USEC,
                 of_two = predict(&machine, &network, &two).time[QDR_TIME_HOST] - (700 + 2 * 40) * USEC,
                 of_one = predict(&machine, &network, &one).time[QDR_TIME_HOST] - (700 + 40) * USEC;
    const double of_step = 2 * of_one - of_two;
    /* Squares and updates of four W, four vectors of norms, in each layer; of the table, positions, the last norm. */
    assert_near("of the step", of_step, (2 * (LAYERS * 8 + 4) + 2) * 3 * USEC);
    assert_true(of_one > LAYERS * 3 * 4 * 3 * USEC); /* four products a layer, forward, and eight backward */
    assert_near("of each", three - of_two, of_two - of_one);
    machine.software.host_secs = 6 * USEC;
    r = predict(&machine, &network, &plan);
    assert_near("twice", r.time[QDR_TIME_HOST], (700 + 3 * 40) * USEC + 2 * three);
    assert_near("all", r.secs, without + r.time[QDR_TIME_HOST]);
}

/* ---- axes ---- */

static void assert_axis(const char *what, const qdr_plan_result *r, int axis, double wanted, double tolerance)
{
    if (!(fabs(r->busy[axis] - wanted) <= tolerance * wanted))
        fail_msg("%s: %.9g s of transfers, not %.9g", what, r->busy[axis], wanted);
    assert_near(what, r->time[(int)QDR_TIME_X + axis], r->busy[axis]); /* nothing hides them */
    for (int other = 0; other < QDR_N_AXES; other++)
        if (other != axis) assert_true(r->busy[other] <= 0 && r->time[(int)QDR_TIME_X + other] <= 0);
}

/* Between two ranks a sum for all takes as many bytes as it has, a gather half. Normal layers sum over x forward, and
 * over y backward; transposed ones, and the table of the embedding, the other way round. Statistics of norms and of the
 * loss take less than a hundredth of it. */
TEST(axes)
{
    const double table = (double)V * H, matrices = LAYERS * (4.0 * H * H + 2.0 * H * F) + table;
    const double small = (2 * LAYERS + 1) * 2.0 * H + (double)CONTEXT * H, secs = 4 / 1e9;
    qdr_machine machine = machine_of();
    qdr_plan x = plan_of(1, 0), y = x, z = plan_of(2, 0), d = z;
    machine.links[0].rank_bytes_per_sec = 1e9;
    x.overlap = y.overlap = z.overlap = d.overlap = QDR_OVERLAP_NONE;
    x.x = y.y = z.z = d.d = 2;
    qdr_plan_result r = predict(&machine, &network, &x);
    assert_axis("x", &r, QDR_X, CONTEXT * (LAYERS * (3.0 * H + F + H + F) + V) * secs, 0.01);
    r = predict(&machine, &network, &y);
    assert_axis("y", &r, QDR_Y, CONTEXT * (LAYERS * 4.0 * H + 2.0 * H) * secs, 0.01);
    r = predict(&machine, &network, &z); /* of the table three gathers and two sums */
    assert_axis("z", &r, QDR_Z, (3 * matrices + 2 * table) / 2 * secs + small * secs, 1e-6);
    r = predict(&machine, &network, &d);
    assert_axis("d", &r, QDR_D, (matrices + small) * secs, 1e-6);
}

/* The forward's sums again, with recomputation; and the host enqueues its kernels again. */
TEST(recomputed_transfers)
{
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of(1, 0);
    machine.links[0].rank_bytes_per_sec = 1e9;
    plan.x = 2;
    const double before = predict(&machine, &network, &plan).busy[QDR_X];
    plan.recompute = QDR_RECOMPUTE_LAYERS;
    double more = predict(&machine, &network, &plan).busy[QDR_X] - before;
    const double sums = CONTEXT * LAYERS * (3.0 * H + F) * 4 / 1e9;
    if (!(more >= sums && more <= 1.01 * sums)) fail_msg("%g s more, not %g", more, sums);
    plan.recompute = QDR_RECOMPUTE_FULL; /* norms use the statistics that they have saved */
    more = predict(&machine, &network, &plan).busy[QDR_X] - before;
    assert_near("full", more, sums);
    plan.y = 2; /* of the products that are summed over y only the first is needed again */
    const double over_y = predict(&machine, &network, &plan).busy[QDR_Y];
    plan.recompute = QDR_RECOMPUTE_NONE;
    assert_near("full, y", over_y - predict(&machine, &network, &plan).busy[QDR_Y],
                CONTEXT * LAYERS * H / 2.0 * 4 / 1e9);
    plan.y = 1;
    machine.software.host_power = 1;
    machine.software.host_secs = 3 * USEC;
    double host[3];
    for (int i = 0; i < 3; i++) {
        plan.recompute = (qdr_recompute[]){QDR_RECOMPUTE_NONE, QDR_RECOMPUTE_ATTENTION, QDR_RECOMPUTE_LAYERS}[i];
        host[i] = predict(&machine, &network, &plan).time[QDR_TIME_HOST];
    }
    assert_true(host[1] >= host[0] + 0.99 * LAYERS * 3 * USEC); /* one kernel of attention a layer, or more */
    assert_true(host[2] >= host[0] + LAYERS * 5 * 3 * USEC); /* four products, too */
    assert_true(host[2] <= 1.6 * host[0]); /* less than half of all, as backward has more */
}

/* Transfers that take ten times as long as all work, one after the other on one link: a step ends when they do,
 * whatever hides behind them; the sums of no levels begin after the forward. */
TEST(slow_networks)
{
    static const int levels[][2] = {{0, 0}, {2, 8}, {8, 8}, {1, 8}};
    const double table = (double)V * H, matrices = LAYERS * (4.0 * H * H + 2.0 * H * F) + table;
    const double small = (2 * LAYERS + 1) * 2.0 * H + (double)CONTEXT * H;
    const double forward = LAYERS * (layer + scores) + head, all = LAYERS * (3 * layer + 3.5 * scores) + 3 * head;
    qdr_machine machine = machine_of();
    for (int i = 0; i < 4; i++) {
        qdr_plan plan = plan_of(8, 0);
        plan.d = 8;
        plan.gradient_parts = levels[i][0];
        plan.optimizer_parts = levels[i][1];
        const double near = levels[i][0] > 1 ? levels[i][0] : 1;
        const double twice = (near - 1) / near * table; /* near ranks sum both uses of the table */
        const double bytes = (2 * 7 / 8.0 * (matrices + small) + twice) * 4, sums = 10 * all;
        machine.links[0].rank_bytes_per_sec = bytes / sums;
        const qdr_plan_result r = predict(&machine, &network, &plan);
        assert_near("busy", r.busy[QDR_D], sums);
        const double rest = all + r.time[QDR_TIME_OPTIMIZER]; /* the norm's sums, too, are slow */
        if (!(r.secs >= sums + (i ? 0 : forward) && r.secs <= sums + rest))
            fail_msg("levels %d, %d: %g s; transfers %g, work %g", levels[i][0], levels[i][1], r.secs, sums, rest);
        assert_near("waiting", r.time[QDR_TIME_D], r.secs - rest);
    }
}

/* ---- lists that a model keeps ---- */

/* Plans of which each differs from the first in one thing on which its lists depend. */
static qdr_plan changed_plan(int i)
{
    qdr_plan p = plan_of(128, 2);
    p.x = p.y = p.z = 2;
    p.d = 8;
    p.gradient_parts = 4; /* two near and two far */
    p.optimizer_parts = 8;
    memcpy(p.order, "xyzd", 5);
    CHECK_OK(qdr_codecs_parse("none", &p.codecs));
    switch (i) {
    case 1: p.x = 4; break;
    case 2: p.y = 4; break;
    case 3: p.z = 4, p.gradient_parts = 8, p.optimizer_parts = 16; break;
    case 4: p.d = 16; break;
    case 5: p.gradient_parts = 8, p.optimizer_parts = 16; break; /* near alone */
    case 6: p.optimizer_parts = 16; break; /* far alone */
    case 7: p.layout = QDR_SCATTERED; break;
    case 8: p.dtype = QDR_BF16; break;
    case 9: p.batch = 96; break;
    case 10: p.micro_batch = 4; break;
    case 11: p.sequence = CONTEXT / 2; break;
    case 12: p.overlap = QDR_OVERLAP_NONE; break;
    case 13: p.panels = 4; break;
    case 14: p.batch_parts = 2; break;
    case 15: p.pipeline = 2; break;
    case 16: CHECK_OK(qdr_codecs_parse("int8,least=1K", &p.codecs)); break;
    default: break;
    }
    return p;
}
enum { N_CHANGED = 17 };

static void assert_same_result(int from, int to, const qdr_plan_result *a, const qdr_plan_result *b)
{
    const int same = a->secs == b->secs && a->memory_bytes == b->memory_bytes && a->n_micro == b->n_micro &&
                     a->tokens_per_sec == b->tokens_per_sec && a->peak_share == b->peak_share &&
                     memcmp(a->time, b->time, sizeof a->time) == 0 && memcmp(a->busy, b->busy, sizeof a->busy) == 0 &&
                     memcmp(a->memory, b->memory, sizeof a->memory) == 0;
    if (!same) fail_msg("after plan %d, plan %d takes %.9g s, not %.9g", from, to, a->secs, b->secs);
}

/* A model that has predicted another plan says the same as a new one. */
TEST(used_models)
{
    qdr_machine machine = machine_of();
    machine.ranks_per_node = 2;
    machine.memory_bytes_per_sec = 1e11;
    machine.links[0].rank_bytes_per_sec = 1e9;
    machine.links[0].step_secs = USEC;
    for (int i = 1; i < 2 * N_CHANGED; i++) {
        /* Also the order of axes, on which what is coded depends. */
        qdr_plan plans[2] = {changed_plan(i < N_CHANGED ? 0 : 16), changed_plan(i % N_CHANGED)};
        if (i == N_CHANGED) {
            plans[1] = plans[0];
            memcpy(plans[1].order, "dxyz", 5);
        }
        for (int first = 0; first < 2; first++) {
            const qdr_plan_result wanted = predict(&machine, &network, &plans[!first]);
            qdr_plan_result other = {QDR_INIT(qdr_plan_result)}, result = {QDR_INIT(qdr_plan_result)};
            qdr_model *model = NULL;
            CHECK_OK(qdr_model_create(&machine, &network, &model));
            CHECK_OK(qdr_model_predict(model, &plans[first], &other));
            CHECK_OK(qdr_model_predict(model, &plans[!first], &result));
            assert_same_result(first ? i : 0, first ? 0 : i, &result, &wanted);
            qdr_model_destroy(&model);
        }
    }
}

/* ---- windows ---- */

/* Of 8 layers, three whose tokens see at most the last w: of a context of C, on average w - w(w - 1)/2C, elsewhere
 * (C + 1)/2. */
TEST(windows)
{
    const qdr_machine machine = machine_of();
    const double all = (CONTEXT + 1) / 2.0;
    static const struct {
        int64_t window, layers;
    } cases[] = {{32, 3}, {32, LAYERS}, {1, 2}, {CONTEXT, 5}, {4 * CONTEXT, 5}};
    for (int i = 0; i < 2 * (int)(sizeof cases / sizeof *cases); i++) {
        qdr_network some = network;
        qdr_plan plan = plan_of(6, 2);
        some.window = cases[i / 2].window;
        some.window_layers = cases[i / 2].layers;
        plan.sequence = i % 2 ? CONTEXT / 2 : 0;
        const double context = i % 2 ? CONTEXT / 2 : CONTEXT, w = fmin(context, (double)some.window);
        const double inside = w - w * (w - 1) / (2 * context), outside = (context + 1) / 2;
        const double mean = ((double)some.window_layers * inside + (double)(LAYERS - some.window_layers) * outside) /
                            LAYERS;
        const qdr_plan_result r = predict(&machine, &some, &plan);
        assert_near("attention", r.time[QDR_TIME_ATTENTION],
                    6 * LAYERS * 3.5 * scores * (context / CONTEXT) * (mean / all));
        /* Flops count whole squares, and tokens are those of the sequences. */
        const double seen = (double)some.window_layers * w + (double)(LAYERS - some.window_layers) * context;
        assert_near("flops", r.flops,
                    3 * 6 * context * (LAYERS * 2.0 * (4.0 * H * H + 2.0 * H * F) + 2.0 * V * H + 4.0 * H * seen));
        assert_near("tokens", r.tokens_per_sec * r.secs, 6 * context);
    }
}

/* ---- norms and rotations of heads ---- */

enum {
    TURNED = CONTEXT * 2 * H,
    ROTARY = 32
}; /* elements of queries and keys of a sequence; columns of a head of 64 */

static double attention_secs(const qdr_machine *machine, const qdr_network *of)
{
    const qdr_plan plan = plan_of(1, 0);
    return predict(machine, of, &plan).time[QDR_TIME_ATTENTION];
}

/* In five of the layers half of the columns are rotated; or heads have norms, in all; or both. Passes are added to the
 * scores, which take the same time with each of the machines. */
TEST(turns)
{
    for (int i = 1; i < 4; i++) {
        const double rotated = i & 1 ? 5 : 0, normed = i & 2 ? LAYERS : 0;
        const double layers = fmax(rotated, normed),
                     passes = 6 * layers + normed; /* bytes: forward 2, backward 4 or 5 */
        qdr_network some = network;
        some.positions = 0;
        some.rotary.columns = ROTARY;
        for (int64_t j = 0; j < LAYERS; j++) some.layer_kinds[j] = j % 3 == 1 || !(i & 1) ? QDR_LAYER_UNROTATED : 0;
        some.head_norm = i & 2 ? QDR_HEAD_NORM_EACH : QDR_HEAD_NORM_NONE;
        qdr_machine machine = machine_of();
        assert_near("no cost", attention_secs(&machine, &some), LAYERS * 3.5 * scores);
        machine.software.launch_secs = USEC;
        assert_near("launches", attention_secs(&machine, &some),
                    LAYERS * (3.5 * scores + 4 * USEC) + (6 * layers + 2 * normed) * USEC);
        machine = machine_of();
        machine.kernel_flops = 1e9;
        assert_near("flops", attention_secs(&machine, &some),
                    LAYERS * 3.5 * scores + (9 * rotated * TURNED * ROTARY / 64 + 20 * normed * TURNED) / 1e9);
        machine = machine_of();
        machine.memory_bytes_per_sec = 1e11;
        assert_near("bytes", attention_secs(&machine, &some),
                    LAYERS * 3.5 * scores + (4 * passes * TURNED + 4 * 3 * rotated * CONTEXT * ROTARY) / 1e11);
    }
}

/* A score that is capped takes 8 flops, and 10 backward. */
TEST(caps)
{
    qdr_machine machine = machine_of();
    qdr_network some = network;
    machine.kernel_flops = 1e9;
    some.attention_cap = 50;
    const double n_scores = 4.0 * CONTEXT * (CONTEXT + 1) / 2;
    assert_near("caps", attention_secs(&machine, &some), LAYERS * (3.5 * scores + 18 * n_scores / 1e9));
}

/* Of the peak of all ranks, those of all stages too. */
TEST(shares_of_the_peak)
{
    const qdr_machine machine = machine_of();
    for (int i = 0; i < 4; i++) {
        qdr_plan plan = plan_of(24, 0);
        if (i & 1) plan.pipeline = 4;
        if (i & 2) plan.d = 3, plan.z = 2;
        const double n_ranks = (i & 1 ? 4 : 1) * (i & 2 ? 6 : 1);
        const qdr_plan_result r = predict(&machine, &network, &plan);
        assert_near("share", r.peak_share, r.flops / (n_ranks * 2 * PRODUCTS * r.secs));
    }
}

/* ---- sums that lag ---- */

/* All sums of gradients, of four matrices a layer and of the table, take ten times as long as all work, in steps: they
 * lag further with each layer, and the step ends with them. Parameters that return over near or far take as long in the
 * forward pass. */
TEST(sums_that_lag)
{
    static const struct {
        int z, d, gradient_parts, optimizer_parts;
        int n_steps; /* of one sum on the slowest channel */
        int has_returns; /* on that channel */
    } cases[] = {
        {8, 1, 0, 0, 7, 0}, /* z */
        {1, 8, 0, 0, 14, 0}, /* d */
        {1, 8, 8, 8, 7, 1}, /* near */
        {1, 8, 1, 8, 7, 1}, /* far */
        {1, 8, 2, 2, 6, 0}, /* copies of two near: four of them */
    };
    const double all = LAYERS * (3 * layer + 3.5 * scores) + 3 * head;
    enum { N_SUMS = 4 * LAYERS + 1 };
    for (int i = 0; i < (int)(sizeof cases / sizeof *cases); i++) {
        qdr_machine machine = machine_of();
        qdr_plan plan = plan_of(8, 0);
        plan.z = cases[i].z;
        plan.d = cases[i].d;
        plan.gradient_parts = cases[i].gradient_parts;
        plan.optimizer_parts = cases[i].optimizer_parts;
        const double sums = 10 * all;
        machine.links[0].step_secs = sums / (N_SUMS * cases[i].n_steps);
        const double secs = predict(&machine, &network, &plan).secs;
        if (!(secs >= (1 + cases[i].has_returns) * sums))
            fail_msg("case %d: %g s, but its sums take %g", i, secs, sums);
    }
}

/* ---- stages ---- */

/* The slowest stage, the last with the head, runs all micro-batches; the others, and the sends between them, while the
 * pipeline fills and drains. Messages: a micro-batch's rows and their gradients, at 1 GB/s and 7 us. */
TEST(stages)
{
    qdr_machine machine = machine_of();
    const double message = 7 * USEC + 2 * CONTEXT * H * 4 / 1e9;
    machine.links[0].rank_bytes_per_sec = 1e9;
    machine.links[0].step_secs = 7 * USEC;
    for (int i = 0; i < 6; i++) {
        static const int counts[] = {2, 4, 8};
        const int n = counts[i % 3], v = 1 + i / 3;
        qdr_plan plan = plan_of(12, 2);
        plan.pipeline = n;
        plan.interleave = v > 1 ? v : 0;
        const double stage = 2.0 * LAYERS / n * (3 * layer + 3.5 * scores), last = stage + 2 * 3 * head;
        const qdr_plan_result r = predict(&machine, &network, &plan);
        const double others = (n - 1) * stage + (n - 1) * 2 * message * v;
        assert_near("bubble", r.time[QDR_TIME_BUBBLE], 6 * 2 * message * v + others / v);
        assert_near("all", r.secs, 6 * last + r.time[QDR_TIME_BUBBLE]);
        assert_near("ends", r.time[QDR_TIME_ENDS], 6 * 2 * 3 * head);
    }
}

/* A first stage of n begins at most n micro-batches before the backward pass of its first (Narayanan et al. 2021, 2.2):
 * more of them need no more memory, and fewer need less. */
TEST(memory_of_stages)
{
    const qdr_machine machine = machine_of();
    for (int n = 2; n <= 8; n *= 2) {
        double bytes[4];
        for (int i = 0; i < 4; i++) {
            qdr_plan plan = plan_of(2 * (n - 1 + i), 2); /* n - 1 micro-batches or more */
            plan.pipeline = n;
            bytes[i] = predict(&machine, &network, &plan).memory[QDR_MEMORY_ACTIVATIONS];
        }
        assert_true(bytes[0] < bytes[1]);
        assert_near("one more", bytes[2], bytes[1]);
        assert_near("two more", bytes[3], bytes[1]);
    }
}

/* Of two ranks of y each sends half of the rows, which the receivers gather unless they are scattered. */
TEST(messages_of_stages)
{
    qdr_machine machine = machine_of();
    const double whole = 2.0 * CONTEXT * H * 4;
    qdr_plan few = plan_of(4, 2), many = plan_of(14, 2), one = plan_of(2, 2);
    machine.links[0].rank_bytes_per_sec = 1e9;
    machine.links[0].step_secs = 7 * USEC;
    few.y = many.y = one.y = 2;
    few.pipeline = many.pipeline = 2;
    double more = predict(&machine, &network, &many).time[QDR_TIME_BUBBLE] -
                  predict(&machine, &network, &few).time[QDR_TIME_BUBBLE];
    assert_near("gathered", more, 5 * 2 * (7 * USEC + whole / 2 / 1e9 + 7 * USEC + whole / 2 / 1e9));
    few.layout = many.layout = QDR_SCATTERED;
    more = predict(&machine, &network, &many).time[QDR_TIME_BUBBLE] -
           predict(&machine, &network, &few).time[QDR_TIME_BUBBLE];
    assert_near("scattered", more, 5 * 2 * (7 * USEC + whole / 2 / 1e9));
}

/* On many nodes, or with nearly full memory, blocks are freed and allocated again for each neighbour. */
TEST(stalls)
{
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of(12, 2);
    for (int n = 2; n <= 4; n += 2) {
        plan.pipeline = n;
        const double stage = 2.0 * LAYERS / n * (3 * layer + 3.5 * scores), last = stage + 2 * 3 * head;
        const double stall = 2 * last; /* so that a middle stage is the slowest */
        const double stalled = n == 2 ? 6 * (last + stall) + stage + stall
                                      : 6 * (stage + 2 * stall) + stage + stall + last + stall + stage + 2 * stall;
        const double calm = 6 * last + (n - 1) * stage;
        machine.software.stall_secs = stall;
        assert_near("never", predict(&machine, &network, &plan).secs, calm);
        machine.software.stall_nodes = n + 1;
        assert_near("fewer nodes", predict(&machine, &network, &plan).secs, calm);
        machine.software.stall_nodes = n;
        assert_near("nodes", predict(&machine, &network, &plan).secs, stalled);
        machine.software.stall_nodes = 0;
        machine.software.stall_memory_share = 1e-6;
        assert_near("memory", predict(&machine, &network, &plan).secs, stalled);
        machine.software.stall_memory_share = 1;
        assert_near("less memory", predict(&machine, &network, &plan).secs, calm);
        machine.software.stall_memory_share = 0;
    }
}

/* ---- returns ---- */

/* d = 8: updated parts return over near = 2 and far = 4, hidden by nothing if the step has ended. Sums and returns
 * together are as many bytes as the sums of the whole without levels. */
TEST(returns)
{
    const double matrices = LAYERS * (4.0 * H * H + 2.0 * H * F) + (double)V * H;
    const double small = (2 * LAYERS + 1) * 2.0 * H + (double)CONTEXT * H;
    const double computed = LAYERS * (3 * layer + 3.5 * scores) + 3 * head;
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of(8, 0);
    plan.d = 8;
    machine.links[0].rank_bytes_per_sec = 1e9;
    plan.overlap = QDR_OVERLAP_NONE;
    const double sums = 2 * 7 / 8.0 * (matrices + small) * 4 / 1e9;
    const double norm = 2 * 7 / 8.0 * 8 / 1e9; /* of each number that its sum has */
    assert_near("no levels", predict(&machine, &network, &plan).secs, computed + sums + 8 * norm);
    plan.gradient_parts = 2;
    plan.optimizer_parts = 8;
    const double tied_again = 1 / 2.0 * V * H * 4 / 1e9; /* near sums both uses of the table */
    const double step = computed + sums + tied_again + 9 * norm;
    assert_near("first forward", predict(&machine, &network, &plan).secs, step);
    machine.software.returns_after_step = 1;
    const qdr_plan_result after = predict(&machine, &network, &plan);
    assert_near("after the step", after.secs, step);
    assert_near("busy", after.busy[QDR_D], sums + tied_again);
}
