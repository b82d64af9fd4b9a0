/* SPDX-License-Identifier: Apache-2.0 */
/* Memory of frameworks, of recomputation and of stages, by hand from docs/model.md and quadrille/machine.h. */
#include "eight_layers.h"

/* The grid is 2x2x2x2; each cell has ROWS of one step, of as many sequences. */
enum { SEQUENCES = 4, ROWS = SEQUENCES * CONTEXT, H_X = H / 2, Q = H / 2, QKV = 3 * Q, F_Y = F / 2, V_Y = V / 2 };

static qdr_plan plan_of_16(int64_t micro_batch)
{
    qdr_plan plan = plan_of((int64_t)4 * SEQUENCES, micro_batch);
    plan.x = plan.y = plan.z = plan.d = 2;
    return plan;
}

static double term(const qdr_machine *machine, const qdr_network *of, const qdr_plan *plan, qdr_memory_term which)
{
    return predict(machine, of, plan).memory[which];
}

static double activations(const qdr_machine *machine, const qdr_plan *plan)
{
    return term(machine, &network, plan, QDR_MEMORY_ACTIVATIONS);
}

/* Edges of the hidden size, q, k, v and what attention makes of them, the MLP's two; two numbers for each row of two
 * norms, and one for each row and head. Of rows, of which a rank has `stream` between and `wide` inside the halves. */
static double bytes_with(int n_edges, double stream, double wide)
{
    return 4 * (n_edges * stream * H_X + wide * (QKV + Q + 2 * F_Y)) + 4 * (4 * stream + 2 * wide);
}

/* Two norms and two sums; what the halves add to these passes. */
static double layer_bytes(double stream, double wide) { return bytes_with(4, stream, wide); }

/* As frameworks, and stages of a pipeline, are counted: all six. */
static double framework_bytes(double stream, double wide) { return bytes_with(6, stream, wide); }

/* Tokens and targets, two numbers for each row of the last norm and of the loss, its sums of two parts; attention on a
 * CPU works with two blocks of scores, of 64 rows. */
static double other_bytes(double rows, double stream, double wide)
{
    return 4 * (rows + wide) + 4 * (2 * stream + 2 * wide) + 64 + 4.0 * CONTEXT * 2 * 64;
}

static const double end_edges = 4.0 * ROWS * (H_X + H_X + V_Y); /* the embedding's edge, the last norm's, logits */

TEST(layers)
{
    const double others = other_bytes(ROWS, ROWS, ROWS), replicated = end_edges + others;
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of_16(0);
    assert_near("replicated", activations(&machine, &plan), LAYERS * layer_bytes(ROWS, ROWS) + replicated);
    const qdr_plan more = plan_of_16(64); /* than there are */
    assert_near("all at once", activations(&machine, &more), activations(&machine, &plan));
    machine.software.saved_ffn = 1.5;
    assert_near("copies", activations(&machine, &plan),
                LAYERS * (layer_bytes(ROWS, ROWS) + 1.5 * 4 * ROWS * F_Y) + replicated);
    machine.software.saved_ffn = 0;
    machine.attention_efficiency = 0; /* softmax, mask and its result: 4 + 4 + 1 bytes a score */
    machine.software.score_bytes = 20;
    assert_near("scores", activations(&machine, &plan),
                LAYERS * (layer_bytes(ROWS, ROWS) + 9.0 * ROWS * 2 * CONTEXT) + replicated);
    plan.dtype = QDR_BF16;
    const double numbers = 4 * (4.0 * ROWS + 2.0 * ROWS); /* of four bytes */
    assert_near("of bf16", activations(&machine, &plan),
                LAYERS * ((layer_bytes(ROWS, ROWS) - numbers) / 2 + numbers + 5.0 * ROWS * 2 * CONTEXT) +
                    end_edges / 2 + others + 4.0 * CONTEXT * 7 * (H / 4.0)); /* and with seven panels of a head */
}

/* Two blocks of scores, of 64 rows, for each thread but the first, and in f16 seven panels of a head; for all threads
 * three blocks of 512 by 512 in which f16 is converted. */
TEST(threads)
{
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of_16(0);
    const double panels = 3 * 512 * 512 * 4.0, attention = 4.0 * CONTEXT * 2 * 64;
    const double of_f16 = attention + 4.0 * CONTEXT * 7 * (H / 4.0);
    assert_near("of one thread", term(&machine, &network, &plan, QDR_MEMORY_DEVICE), 0);
    const double of_one = predict(&machine, &network, &plan).memory_bytes;
    plan.threads = 3;
    assert_near("of three", term(&machine, &network, &plan, QDR_MEMORY_DEVICE), 2 * attention);
    assert_near("in all", predict(&machine, &network, &plan).memory_bytes, of_one + 2 * attention);
    plan.dtype = QDR_BF16;
    assert_near("of bf16", term(&machine, &network, &plan, QDR_MEMORY_DEVICE), 2 * of_f16);
    plan.dtype = QDR_F16;
    assert_near("of f16", term(&machine, &network, &plan, QDR_MEMORY_DEVICE), 3 * panels + 2 * of_f16);
    machine.is_gpu = 1;
    assert_near("of GPUs", term(&machine, &network, &plan, QDR_MEMORY_DEVICE), 0);
    plan.threads = 1;
    machine.is_gpu = 0;
    assert_near("of f16 alone", term(&machine, &network, &plan, QDR_MEMORY_DEVICE), panels);
    qdr_model *model = NULL;
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    CHECK_OK(qdr_model_create(&machine, &network, &model));
    plan.threads = -1;
    CHECK_FAILS(qdr_model_predict(model, &plan, &result), QDR_ERR_ARGUMENT,
                "plan: -1 threads of a rank; use 1 to 65536");
    plan.threads = 65537;
    CHECK_FAILS(qdr_model_predict(model, &plan, &result), QDR_ERR_ARGUMENT, "plan: 65537 threads of a rank");
    qdr_model_destroy(&model);
}

/* With scattered edges, gathered rows are kept for the gradients of weights: over y twice, over x of the MLP, and of
 * attention, if there are sequences for each rank of x. Some frameworks gather again. */
TEST(gathered_rows)
{
    qdr_machine machine = machine_of();
    for (int i = 0; i < 8; i++) {
        const double sequences = i & 1 ? 1 : SEQUENCES, rows = sequences * CONTEXT;
        qdr_plan plan = plan_of_16(i & 1);
        plan.layout = QDR_SCATTERED;
        machine.software.gathers_again = (i & 2) != 0;
        if (i & 4) plan.recompute = QDR_RECOMPUTE_LAYERS;
        const double half = rows / 2, attended = sequences > 1 ? half : rows;
        const double gathered = 4 * (2 * rows * H_X + rows * F_Y + (sequences > 1 ? rows * Q : 0));
        const double n_edges = i & 2 ? 4 : 2, n_wide = i & 2 ? 2 : 1; /* what was gathered passes */
        const double layer_of_rows = 4 * (n_edges * half * H_X + attended * (QKV + Q) + half * n_wide * F_Y) +
                                     4 * (4 * half + 2 * attended) + (i & 2 ? 0 : gathered);
        const double ends = 4 * (half * H_X + rows * H_X + half * V_Y);
        const double layers = i & 4 ? LAYERS * 4 * half * H_X + layer_of_rows : LAYERS * layer_of_rows;
        assert_near("scattered", activations(&machine, &plan), layers + ends + other_bytes(rows, half, half));
    }
}

/* Frameworks that can gather again do so if memory is too small. */
TEST(gathered_if_they_fit)
{
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of_16(0);
    plan.layout = QDR_SCATTERED;
    const qdr_plan_result plenty = predict(&machine, &network, &plan);
    const double gathered = LAYERS * 4.0 * (2 * ROWS * H_X + ROWS * F_Y + ROWS * Q);
    const double passing = LAYERS * 4.0 * ROWS / 2 * (2 * H_X + F_Y); /* while gathered rows are kept */
    for (int i = 0; i < 4; i++) {
        machine.memory_bytes = plenty.memory_bytes - (i & 1);
        machine.software.staged_rank_secs = i & 2 ? 5 * USEC : 0;
        assert_near("kept", activations(&machine, &plan),
                    plenty.memory[QDR_MEMORY_ACTIVATIONS] - (i == 3 ? gathered - passing : 0));
    }
}

/* Of each layer its input, and one layer whole, or, where it is repeated by lists, what its norms save; or, without
 * scores, all but those of one. */
TEST(recomputed)
{
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of_16(0);
    const double layer_of_rows = layer_bytes(ROWS, ROWS), scores_bytes = 9.0 * ROWS * 2 * CONTEXT,
                 replicated = end_edges + other_bytes(ROWS, ROWS, ROWS);
    for (int unfused = 0; unfused < 2; unfused++) {
        const double more = unfused ? scores_bytes : 0;
        if (unfused) {
            machine.attention_efficiency = 0;
            machine.software.score_bytes = 20;
        }
        plan.recompute = QDR_RECOMPUTE_LAYERS;
        assert_near("layers", activations(&machine, &plan),
                    LAYERS * 4.0 * ROWS * H_X + layer_of_rows + more + replicated);
        plan.recompute =
            QDR_RECOMPUTE_FULL; /* the layer that is repeated is in the workspace, but for unfused scores */
        assert_near("full", activations(&machine, &plan), LAYERS * 4.0 * ROWS * (H_X + 4) + more + replicated);
        plan.recompute = QDR_RECOMPUTE_ATTENTION;
        assert_near("attention", activations(&machine, &plan), LAYERS * layer_of_rows + more + replicated);
    }
}

/* ---- frameworks ---- */

/* Bytes that they need in addition. */
TEST(frameworks)
{
    qdr_machine machine = machine_of();
    qdr_plan plan = plan_of_16(0);
    const double parameters = term(&machine, &network, &plan, QDR_MEMORY_PARAMETERS),
                 gradients = term(&machine, &network, &plan, QDR_MEMORY_GRADIENTS);
    machine.software.send_bytes = 6;
    assert_near("to send", term(&machine, &network, &plan, QDR_MEMORY_GRADIENTS), gradients + parameters / 4 * 6);
    plan.z = 4;
    plan.d = 1;
    assert_near("no d", term(&machine, &network, &plan, QDR_MEMORY_GRADIENTS),
                term(&machine, &network, &plan, QDR_MEMORY_PARAMETERS));
    plan = plan_of_16(0);
    machine.software.fixed_bytes = 3e9;
    machine.software.fragment_share = 0.25;
    assert_near("reserve", term(&machine, &network, &plan, QDR_MEMORY_RESERVE),
                3e9 + 0.25 * activations(&machine, &plan));
    machine.software.attention_score_bytes = 2; /* in types of two bytes, in pieces of at most 2.25 GiB */
    assert_near("no scores", term(&machine, &network, &plan, QDR_MEMORY_RESERVE),
                3e9 + 0.25 * activations(&machine, &plan));
    plan.dtype = QDR_BF16;
    assert_near("scores", term(&machine, &network, &plan, QDR_MEMORY_RESERVE),
                3e9 + 0.25 * activations(&machine, &plan) + 2.0 * ROWS * 2 * CONTEXT);
    machine.software.attention_score_bytes = 1e5;
    assert_near("pieces", term(&machine, &network, &plan, QDR_MEMORY_RESERVE),
                3e9 + 0.25 * activations(&machine, &plan) + 2.25 * (1 << 30));
    machine.software.attention_score_bytes = 0;
    plan.dtype = QDR_F32;
    machine.software.logit_memory_bytes = 16; /* instead of logits and their gradients */
    assert_near("no logits", activations(&machine, &plan), LAYERS * framework_bytes(ROWS, ROWS) + 4.0 * ROWS * 2 * H_X);
    assert_near("logits", term(&machine, &network, &plan, QDR_MEMORY_WORKSPACE), 16.0 * ROWS * V_Y);
    machine.software.logit_memory_bytes = 1; /* less than a layer: two of the hidden size, and the MLP's */
    const double of_layer = 4.0 * ROWS * (2 * H_X + 2 * F_Y);
    assert_near("a layer", term(&machine, &network, &plan, QDR_MEMORY_WORKSPACE), of_layer);
    qdr_network gated = network;
    gated.gated = 1;
    assert_near("gates", term(&machine, &gated, &plan, QDR_MEMORY_WORKSPACE), of_layer + 4.0 * ROWS * F_Y);
    machine.software.live_hidden = 3;
    assert_near("alive", term(&machine, &network, &plan, QDR_MEMORY_WORKSPACE), of_layer + 3 * 4.0 * ROWS * H_X);
    plan.x = 4;
    plan.y = 1;
    machine.software.logit_memory_bytes = 1e-3;
    assert_near("no y", term(&machine, &network, &plan, QDR_MEMORY_WORKSPACE), 4.0 * ROWS * (2 * H / 4 + 2 * F));
}

/* Two whole weights where there is z, two whole gradients where z or near parts them, and a shard where both do: those
 * of the largest matrix, the table or one of the MLP's. */
TEST(gathered_weights)
{
    static const struct {
        int z, d, gradient_parts;
        double weights, gradients, shards;
    } cases[] = {
        {2, 2, 0, 2, 2, 0}, {1, 4, 0, 0, 0, 0}, {1, 4, 2, 0, 2, 0}, {2, 2, 4, 2, 2, 1 / 2.0}, {4, 1, 0, 2, 2, 0}};
    qdr_machine machine = machine_of();
    machine.software.logit_memory_bytes = 1;
    for (int i = 0; i < 4 * (int)(sizeof cases / sizeof *cases); i++) {
        const int at = i / 4;
        qdr_network of = network;
        qdr_plan plan = plan_of_16(0);
        plan.z = cases[at].z;
        plan.d = cases[at].d;
        plan.gradient_parts = cases[at].gradient_parts;
        plan.dtype = i & 1 ? QDR_BF16 : QDR_F32;
        of.vocab = i & 2 ? 3 * F : V;
        const double largest = i & 2 ? H_X * 3 * F_Y : H_X * F_Y;
        assert_near("gathered", term(&machine, &of, &plan, QDR_MEMORY_GATHERED),
                    largest * (cases[at].weights * (i & 1 ? 2 : 4) + 4 * (cases[at].gradients + cases[at].shards)));
    }
}

/* ---- stages ---- */

/* A rank of the first stage keeps two micro-batches of one sequence of two stages, and the embedding's edge; one of the
 * last keeps one, the last norm's edge and logits. Both have a table, also if it is one. */
TEST(two_stages)
{
    const qdr_machine machine = machine_of();
    enum { SMALL = 4000, LARGE = 200000 }; /* logits of more than a layer's bytes */
    for (int i = 0; i < 8; i++) {
        const double vocab = i & 1   ? LARGE
                             : i & 4 ? V
                                     : SMALL,
                     n_layers = LAYERS / 2, of_layer = framework_bytes(CONTEXT, CONTEXT);
        qdr_network of = network;
        qdr_plan plan = plan_of_16(1);
        of.vocab = (int64_t)vocab;
        of.tied = (i & 2) != 0;
        of.positions = 0;
        plan.pipeline = 2;
        if (i & 4) plan.recompute = QDR_RECOMPUTE_FULL;
        const double turns = 4.0 * CONTEXT * (double)of.head_size, whole = of_layer, input = 4.0 * CONTEXT * H_X;
        const double n_kept = i & 1 ? 1 : 2;
        const double layers = i & 4 ? n_kept * n_layers * input + whole : n_kept * n_layers * whole;
        const double ends = i & 1 ? input + 4 * CONTEXT * vocab / 2 : input;
        const qdr_plan_result r = predict(&machine, &of, &plan);
        assert_near("activations", r.memory[QDR_MEMORY_ACTIVATIONS], layers + ends + turns);
        const double matrices = n_layers * (4.0 * H * H + 2.0 * H * F) + vocab * H,
                     norms = (2 * n_layers + 1) * 2 * H_X;
        assert_near("parameters", r.memory[QDR_MEMORY_PARAMETERS], 4 * (matrices / 8 + norms));
        const double logits = i & 1 ? 4 * (CONTEXT * vocab / 2 + 2 * CONTEXT * H_X) : 0;
        assert_near("workspace", r.memory[QDR_MEMORY_WORKSPACE], fmax(logits, 4.0 * CONTEXT * (2 * H_X + 2 * F_Y)));
    }
}

/* The head counts as 1.5 layers: of 9.5 the first of three stages has 4, the second 3, the last one. */
TEST(balanced_stages)
{
    qdr_machine machine = machine_of();
    qdr_network of = network;
    qdr_plan plan = plan_of(6, 1);
    const double slot = 3 * layer + 3.5 * scores;
    machine.software.balanced_stages = 1;
    of.vocab = 3 * (4 * H + 2 * F) / 2;
    plan.pipeline = 3;
    const double of_head = 3 * head * (double)of.vocab / V;
    const qdr_plan_result r = predict(&machine, &of, &plan);
    assert_near("all", r.secs, 6 * 4 * slot + 3 * slot + slot + of_head);
    /* As many stages as layers, and more: the last may have none. */
    of.vocab = 2 * (4 * H + 2 * F);
    plan.pipeline = 5;
    assert_near("five", predict(&machine, &of, &plan).secs, (6 + 3) * 2 * slot + 3 * head * (double)of.vocab / V);
}

/* A gated layer of one key head has q, k, v and o of 2·256 + 2·64 columns, and three matrices of the MLP: the head
 * counts as 2.05 or 1.95 of them, of which the first of two stages has half, rounded up. */
TEST(balanced_by_parameters)
{
    static const int64_t vocab[] = {7610, 7238};
    qdr_machine machine = machine_of();
    qdr_network of = network;
    const double n_columns = 2 * H + 2 * H / 4.0 + 3 * F;
    const double slot = 3 * 2.0 * CONTEXT * H * n_columns / PRODUCTS + 3.5 * scores;
    machine.software.balanced_stages = 1;
    of.gated = 1;
    of.kv_heads = 1;
    for (int i = 0; i < 2; i++) {
        qdr_plan plan = plan_of(6, 1);
        const double n_first = i ? 5 : 6;
        plan.pipeline = 2;
        of.vocab = vocab[i];
        assert_near("all", predict(&machine, &of, &plan).secs,
                    6 * n_first * slot + (LAYERS - n_first) * slot + 3 * head * (double)of.vocab / V);
    }
}
