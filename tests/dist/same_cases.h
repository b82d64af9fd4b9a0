/* SPDX-License-Identifier: Apache-2.0 */
/* What all ranks pass in test_same.c, and the values that rank 1 passes: one line for each member of each description
 * and each argument. */
#ifndef TEST_DIST_SAME_CASES_H
#define TEST_DIST_SAME_CASES_H

#include "dist.h"
#include "nodes.h"

/* ---- what all pass ---- */

enum { ROWS = 16, UNIT = 4, MOST_ELEMS = 16 * 16 };

/* 64 bytes, after which notes differ. */
#define SAME_NOTE "{\"steps\": 1000000, \"warmup\": 2000, \"batch\": 32, \"seed\": 17, \"r\":"

static const double angles[] = {1, 0.5, 0.25};
static const qdr_edge same_edges[] = {1}; /* of tokens */

/* The arguments of all calls, in the order in which they are made. */
typedef struct subject {
    qdr_grid_opts grid;
    qdr_matrix from, to;
    qdr_dtype moved;
    qdr_stack_opts stack;
    qdr_codecs codecs;
    int without_codecs, later_inside;
    /* Of the large description, which is only built: */
    const char *tokens_name, *input_name, *head_name, *gelu_name, *residual_name, *ce_name;
    qdr_edge_desc input;
    int with_gradient, tokens, gelu_twice, more;
    qdr_embedding_desc embedding;
    int other_table, head_in;
    qdr_layout head_layout;
    qdr_linear_desc linear;
    int linear_in, norm_in, heads_in, gelu_in, residual_a, residual_b, logits;
    qdr_norm_desc norm;
    qdr_attention_desc attention;
    qdr_activation_desc activation;
    int activation_in, scaled_a, scaled_b, capped_logits;
    qdr_residual_desc residual;
    qdr_cross_entropy_desc capped;
    qdr_op_desc op;
    int op_in;
    /* Of the small one, which runs: */
    uint64_t seed, layer_seed;
    double stddev, layer_stddev;
    qdr_adamw_opts adamw;
    int index, which, load_index, forward_flags, backward_flags, linear_backward_flags, joined_flags;
    double loaded, loss_scale, lr, set_lr, joined_scale;
    qdr_checkpoint_opts save;
    qdr_checkpoint_load_opts load;
    int other_path;
} subject;

static qdr_status nothing(const qdr_op_call *call, void *user)
{
    (void)call;
    (void)user;
    return QDR_OK;
}

static subject usual(const qdr_context *ctx)
{
    const int p = qdr_context_size(ctx), x = p % 2 ? 1 : 2;
    const qdr_matrix matrix = {QDR_INIT(qdr_matrix), .n_rows = ROWS,        .row_unit = 2,
                               .cols = {{8, 2}},     .split_cols = 1,       .col_axis = QDR_X,
                               .split_cells = 1,     .scatter_axis = QDR_Y, .scatter_unit = 1};
    subject s = {
        .grid = {QDR_INIT(qdr_grid_opts), .x = x, .y = p / x, .z = 1, .d = 1},
        .from = matrix,
        .to = matrix,
        .stack = {QDR_INIT(qdr_stack_opts), .n_rows = ROWS, .row_unit = UNIT, .panels = 1},
        .codecs = {QDR_INIT(qdr_codecs)},
        .tokens_name = "t",
        .input_name = "a",
        .head_name = "head",
        .gelu_name = "gelu",
        .residual_name = "sum",
        .ce_name = "loss",
        .input = {QDR_INIT(qdr_edge_desc), .cols = {{8, 2}}, .col_axis = QDR_X},
        .embedding = {QDR_INIT(qdr_embedding_desc), .name = "emb", .vocab = {16, 2}, .features = {8, 2}, .context = 4},
        .linear = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{8, 2}}, .out = {{16, 2}}, .bias = 1},
        .norm = {QDR_INIT(qdr_norm_desc), .name = "norm", .epsilon = 1e-3, .kind = QDR_NORM_RMS},
        .attention = {QDR_INIT(qdr_attention_desc), .name = "attention", .head_size = 4, .context = 4,
                      .rotary_columns = 2, .frequencies = angles},
        .activation = {QDR_INIT(qdr_activation_desc), .name = "act"},
        .residual = {QDR_INIT(qdr_residual_desc), .name = "scaled"},
        .capped = {QDR_INIT(qdr_cross_entropy_desc), .name = "capped"},
        .op = {QDR_INIT(qdr_op_desc), .name = "op", .n_in = 1, .forward = nothing, .backward = nothing},
        .seed = 1,
        .layer_seed = 2,
        .stddev = 0.5,
        .layer_stddev = 0.25,
        .adamw = {QDR_INIT(qdr_adamw_opts)},
        .loaded = 1,
        .loss_scale = 1,
        .lr = 0.125,
        .set_lr = 0.25,
        .joined_scale = 1,
        .save = {QDR_INIT(qdr_checkpoint_opts), .note = SAME_NOTE "0.1}"},
        .load = {QDR_INIT(qdr_checkpoint_load_opts)},
    };
    s.to.scatter_rows = 1;
    return s;
}

/* Nothing of it needs to run. Adding is local, and right on each rank. */
static void describe(const subject *s, qdr_stack *stack)
{
    const qdr_edge_desc on_y = {QDR_INIT(qdr_edge_desc), .cols = {{8, 2}}, .col_axis = QDR_Y};
    const qdr_edge_desc heads4 = {QDR_INIT(qdr_edge_desc), .cols = {{16, 4}, {16, 4}, {16, 4}}, .col_axis = QDR_Y};
    const qdr_edge_desc heads2 = {QDR_INIT(qdr_edge_desc), .cols = {{8, 2}, {8, 2}, {8, 2}}, .col_axis = QDR_Y};
    const qdr_edge_desc gates = {QDR_INIT(qdr_edge_desc), .cols = {{8, 2}, {8, 2}}, .col_axis = QDR_X};
    const qdr_edge_desc plain = {QDR_INIT(qdr_edge_desc), .cols = {{8, 2}}, .col_axis = QDR_X};
    qdr_embedding_desc other = {QDR_INIT(qdr_embedding_desc), .name = "emb2", .vocab = {16, 2}, .features = {8, 2}};
    const qdr_linear_desc logits = {QDR_INIT(qdr_linear_desc), .name = "logits", .in = {{8, 2}}, .out = {{16, 2}}};
    qdr_edge tokens[2], a, b[2], y, heads[3], out, fc, l[4], act, gate[2];
    qdr_linear *tables[2];
    DIST_OK(qdr_stack_add_tokens(stack, s->tokens_name, &tokens[0]));
    DIST_OK(qdr_stack_add_tokens(stack, "t2", &tokens[1]));
    DIST_OK(qdr_stack_add_input(stack, s->input_name, &s->input, s->with_gradient, &a));
    DIST_OK(qdr_stack_add_input(stack, "b", &plain, 0, &b[0]));
    DIST_OK(qdr_stack_add_input(stack, "b2", &plain, 0, &b[1]));
    DIST_OK(qdr_stack_add_input(stack, "y", &on_y, 0, &y));
    DIST_OK(qdr_stack_add_input(stack, "heads", &heads4, 0, &heads[0]));
    DIST_OK(qdr_stack_add_input(stack, "more heads", &heads4, 0, &heads[1]));
    DIST_OK(qdr_stack_add_input(stack, "small heads", &heads2, 0, &heads[2]));
    DIST_OK(qdr_stack_add_input(stack, "gates", &gates, 0, &gate[0]));
    DIST_OK(qdr_stack_add_input(stack, "more gates", &gates, 0, &gate[1]));
    DIST_OK(qdr_stack_add_embedding(stack, &s->embedding, tokens[s->tokens], &out, NULL));
    DIST_OK(qdr_stack_add_embedding(stack, &other, tokens[0], &out, &tables[0]));
    other.name = "emb3";
    DIST_OK(qdr_stack_add_embedding(stack, &other, tokens[0], &out, &tables[1]));
    DIST_OK(test_add_tied_head(stack, s->head_name, tables[s->other_table], s->head_layout, b[s->head_in], &out));
    DIST_OK(qdr_stack_add_linear(stack, &s->linear, s->linear.transposed ? y : b[s->linear_in], &fc, NULL));
    for (int i = 0; i < 4; i++) DIST_OK(qdr_stack_add_linear(stack, &logits, b[0], &l[i], NULL));
    DIST_OK(qdr_stack_add_norm(stack, &s->norm, b[s->norm_in], &out));
    DIST_OK(qdr_stack_add_attention(stack, &s->attention, heads[s->heads_in], &out));
    DIST_OK(qdr_stack_add_activation(stack, &s->activation, gate[s->activation_in], &out));
    DIST_OK(qdr_stack_add_gelu(stack, s->gelu_name, b[s->gelu_in], &act));
    for (int i = 0; i < s->gelu_twice; i++) DIST_OK(qdr_stack_add_gelu(stack, "twice", act, &act));
    DIST_OK(qdr_stack_add_residual(stack, s->residual_name, b[s->residual_a], b[s->residual_b], &out));
    DIST_OK(qdr_stack_add_residual_with(stack, &s->residual, b[s->scaled_a], b[s->scaled_b], &out));
    qdr_op_desc op = s->op;
    for (int i = 0; i < op.n_in; i++) op.in[i] = b[s->op_in];
    DIST_OK(qdr_stack_add_op(stack, &op, &out));
    DIST_OK(qdr_stack_add_cross_entropy(stack, s->ce_name, l[s->logits], &out));
    DIST_OK(qdr_stack_add_cross_entropy_with(stack, &s->capped, l[2 + s->capped_logits], &out));
    if (s->more) DIST_OK(qdr_stack_add_gelu(stack, "more", act, &act));
}

/* ---- what rank 1 passes ---- */

typedef struct variation {
    const char *what; /* "struct.member" or "function(parameter)" */
    void (*vary)(subject *s);
    const char *words; /* of the sentence */
    int checked; /* only with QDR_CHECK=1 */
} variation;

/* name; what is passed; words of the sentence */
#define CASES(X)                                                                                                       \
    X(qdr_grid_opts, x, swap_axes(s), "grid")                                                                          \
    X(qdr_grid_opts, y, swap_axes(s), "grid")                                                                          \
    X(qdr_grid_opts, z, move_to(s, &s->grid.z), "grid")                                                                \
    X(qdr_grid_opts, d, move_to(s, &s->grid.d), "grid")                                                                \
    X(qdr_grid_opts, order, s->grid.order = "dzyx", "order dzyx")                                                      \
    X(qdr_matrix, n_rows, s->from.n_rows = s->to.n_rows = 32, "the source has n_rows 16 on rank 0 and 32")             \
    X(qdr_matrix, row_unit, s->to.row_unit = 4, "the target has row_unit 2 on rank 0 and 4 on rank 1")                 \
    X(qdr_matrix, cols, s->from.cols[0].unit = 1, "the source has cols 8/2 on rank 0 and 8/1")                         \
    X(qdr_matrix, spread, s->to.spread = QDR_SPREAD_ROOT, "the target has spread 0 on rank 0 and 2")                   \
    X(qdr_matrix, split_cols, s->from.split_cols = 0, "the source has split_cols 1 on rank 0 and 0")                   \
    X(qdr_matrix, col_axis, s->from.col_axis = QDR_Y, "the source has col_axis 0 on rank 0 and 1")                     \
    X(qdr_matrix, split_cells, s->from.split_cells = 0, "the source has split_cells 1 on rank 0 and 0")                \
    X(qdr_matrix, scatter_rows, s->to.scatter_rows = 0, "the target has scatter_rows 1 on rank 0 and 0")               \
    X(qdr_matrix, scatter_axis, s->from.scatter_axis = QDR_X, "the source has scatter_axis 1 on rank 0 and 0")         \
    X(qdr_matrix, scatter_unit, s->to.scatter_unit = 2, "the target has scatter_unit 1 on rank 0 and 2")               \
    X(qdr_stack_opts, n_rows, s->stack.n_rows = 32, "qdr_stack_opts has n_rows 16 on rank 0 and 32 on rank 1")         \
    X(qdr_stack_opts, row_unit, s->stack.row_unit = 8, "qdr_stack_opts has row_unit 4 on rank 0 and 8 on rank 1")      \
    X(qdr_stack_opts, dtype, s->stack.dtype = QDR_BF16, "qdr_stack_opts has dtype f32 on rank 0 and bf16 on rank 1")   \
    X(qdr_stack_opts, overlap, s->stack.overlap = QDR_OVERLAP_NONE, "overlap 7 on rank 0 and 8 on rank 1")             \
    X(qdr_stack_opts, prefetch, s->stack.prefetch = 2, "qdr_stack_opts has prefetch 0 on rank 0 and 2 on rank 1")      \
    X(qdr_stack_opts, panels, s->stack.panels = 2, "qdr_stack_opts has panels 1 on rank 0 and 2 on rank 1")            \
    X(qdr_stack_opts, caller_memory, s->stack.caller_memory = 1, "caller_memory 0 on rank 0 and 1 on rank 1")          \
    X(qdr_stack_opts, caller_activations, s->stack.caller_activations = 1, "caller_activations 0 on rank 0 and 1")     \
    X(qdr_stack_opts, prefetch_bytes, s->stack.prefetch_bytes = 4096, "prefetch_bytes 0 on rank 0 and 4096")           \
    X(qdr_stack_opts, batch_parts, s->stack.batch_parts = 2, "batch_parts 0 on rank 0 and 2 on rank 1")                \
    X(qdr_stack_opts, recompute_every, s->stack.recompute_every = 2, "recompute_every 1 on rank 0 and 2")              \
    X(qdr_stack_opts, recompute, s->stack.recompute = QDR_RECOMPUTE_OPERATIONS, "recompute 0 on rank 0 and 3")         \
    X(qdr_stack_opts, product_type, s->stack.product_type = QDR_PRODUCT_FP8, "QDR_PRODUCT_FP8 on rank 1")              \
    X(qdr_stack_opts, codecs, s->without_codecs = 1, "qdr_stack_opts has codecs given on rank 0 and NULL on rank 1")   \
    X(qdr_codecs, of, s->codecs.of[QDR_D][3].kind = QDR_CODEC_INT8, "codec d.gradient raw on rank 0 and int8/128")     \
    X(qdr_codecs, least_bytes, s->codecs.least_bytes = 4, "codecs' least_bytes 0 on rank 0 and 4 on rank 1")           \
    X(qdr_codecs, inside, s->codecs.inside = 1, "codecs' inside 0 on rank 0 and 1 on rank 1")                          \
    X(qdr_edge_desc, cols, s->input.cols[0].unit = 1, "input 'a' has cols 8/2 on rank 0 and 8/1 on rank 1")            \
    X(qdr_edge_desc, col_axis, s->input.col_axis = QDR_Y, "input 'a' has col_axis QDR_X on rank 0 and QDR_Y")          \
    X(qdr_edge_desc, layout, s->input.layout = QDR_SCATTERED, "input 'a' has layout QDR_REPLICATED on rank 0")         \
    X(qdr_edge_desc, scatter_unit, s->input.scatter_unit = 2, "input 'a' has scatter_unit 1 on rank 0 and 2")          \
    X(qdr_embedding_desc, name, s->embedding.name = "e", "embedding 'emb' on rank 0 and embedding 'e' on rank 1")      \
    X(qdr_embedding_desc, vocab, s->embedding.vocab.unit = 1, "embedding 'emb' has vocab 16/2 on rank 0 and 16/1")     \
    X(qdr_embedding_desc, features, s->embedding.features.unit = 1, "features 8/2 on rank 0 and 8/1 on rank 1")        \
    X(qdr_embedding_desc, context, s->embedding.context = 2, "embedding 'emb' has context 4 on rank 0 and 2")          \
    X(qdr_embedding_desc, factor, s->embedding.factor = 2, "embedding 'emb' has factor 1 on rank 0 and 2")             \
    X(qdr_embedding_desc, round_factor, s->embedding.round_factor = 1, "has round_factor 0 on rank 0 and 1")           \
    X(qdr_embedding_desc, layout, s->embedding.layout = QDR_SCATTERED, "embedding 'emb' has layout QDR_REPLICATED")    \
    X(qdr_linear_desc, name, s->linear.name = "fc2", "layer 'fc' on rank 0 and layer 'fc2' on rank 1")                 \
    X(qdr_linear_desc, out, s->linear.out[0].unit = 4, "layer 'fc' has out 16/2 on rank 0 and 16/4 on rank 1")         \
    X(qdr_linear_desc, bias, s->linear.bias = 0, "layer 'fc' has bias 1 on rank 0 and 0 on rank 1; describe the same") \
    X(qdr_linear_desc, transposed, s->linear.transposed = 1, "layer 'fc' has transposed 0 on rank 0 and 1 on rank 1")  \
    X(qdr_linear_desc, out_layout, s->linear.out_layout = QDR_SCATTERED, "layer 'fc' has out_layout QDR_REPLICATED")   \
    X(qdr_linear_desc, out_row_unit, s->linear.out_row_unit = 4, "layer 'fc' has out_row_unit 1 on rank 0 and 4")      \
    X(qdr_linear_desc, panels, s->linear.panels = 2, "layer 'fc' has panels 0 on rank 0 and 2 on rank 1")              \
    X(qdr_linear_desc, drop_gathered, s->linear.drop_gathered = 1, "layer 'fc' has drop_gathered 0 on rank 0 and 1")   \
    X(qdr_linear_desc, storage, s->linear.storage = QDR_IN_OUT, "QDR_STORAGE_AUTO on rank 0 and QDR_IN_OUT on rank 1") \
    X(qdr_linear_desc, product_type, s->linear.product_type = QDR_PRODUCT_FP8, "layer 'fc' has product_type QDR_")     \
    X(qdr_tied_head_desc, name, s->head_name = "top", "tied head 'head' on rank 0 and tied head 'top'")                \
    X(qdr_tied_head_desc, table, s->other_table = 1, "tied head 'head' has table emb2 on rank 0 and emb3")             \
    X(qdr_tied_head_desc, out_layout, s->head_layout = QDR_SCATTERED, "tied head 'head' has out_layout")               \
    X(qdr_norm_desc, name, s->norm.name = "n", "norm 'norm' on rank 0 and norm 'n' on rank 1")                         \
    X(qdr_norm_desc, epsilon, s->norm.epsilon = 0, "norm 'norm' has epsilon 0.001 on rank 0 and 1e-05 on rank 1")      \
    X(qdr_norm_desc, kind, s->norm.kind = QDR_NORM_LAYER, "norm 'norm' has kind 1 on rank 0 and 0 on rank 1")          \
    X(qdr_norm_desc, no_beta, s->norm.no_beta = 1, "norm 'norm' has no_beta 0 on rank 0 and 1 on rank 1")              \
    X(qdr_norm_desc, one_plus, s->norm.one_plus = 1, "norm 'norm' has one_plus 0 on rank 0 and 1 on rank 1")           \
    X(qdr_norm_desc, n_blocks, s->norm.n_blocks = 1, "norm 'norm' has n_blocks 0 on rank 0 and 1 on rank 1")           \
    X(qdr_attention_desc, name, s->attention.name = "at", "attention 'attention' on rank 0")                           \
    X(qdr_attention_desc, head_size, s->attention.head_size = 2; s->heads_in = 2, "head_size 4 on rank 0 and 2")       \
    X(qdr_attention_desc, scale, s->attention.scale = 0.25, "attention 'attention' has scale 0.5 on rank 0 and 0.25")  \
    X(qdr_attention_desc, cap, s->attention.cap = 2, "attention 'attention' has cap 0 on rank 0 and 2 on rank 1")      \
    X(qdr_attention_desc, window, s->attention.window = 3, "attention 'attention' has window 4 on rank 0 and 3")       \
    X(qdr_attention_desc, rotary_columns, s->attention.rotary_columns = 4, "has rotary_columns 2 on rank 0 and 4")     \
    X(qdr_attention_desc, interleaved, s->attention.interleaved = 1, "has interleaved 0 on rank 0 and 1 on rank 1")    \
    X(qdr_attention_desc, frequencies, s->attention.frequencies = angles + 1, "has frequency 1 on rank 0 and")         \
    X(qdr_attention_desc, magnitude, s->attention.magnitude = 2, "has magnitude 1 on rank 0 and 2 on rank 1")          \
    X(qdr_attention_desc, head_norm, s->attention.head_norm = 1, "has head_norm 0 on rank 0 and 1 on rank 1")          \
    X(qdr_attention_desc, one_plus, s->attention.one_plus = 1, "has one_plus 0 on rank 0 and 1 on rank 1")             \
    X(qdr_attention_desc, epsilon, s->attention.epsilon = 0.5, "has epsilon 1e-05 on rank 0 and 0.5 on rank 1")        \
    X(qdr_attention_desc, sinks, s->attention.sinks = 1, "attention 'attention' has sinks 0 on rank 0 and 1")          \
    X(qdr_attention_desc, first_keys, s->attention.first_keys = same_edges, "has first_keys -1 on rank 0 and 1")       \
    X(qdr_attention_desc, context, s->attention.context = 2, "attention 'attention' has context 4 on rank 0 and 2")    \
    X(qdr_activation_desc, name, s->activation.name = "silu", "activation 'act' on rank 0 and activation 'silu'")      \
    X(qdr_activation_desc, function, s->activation.function = QDR_SILU, "'act' has function 0 on rank 0 and 2")        \
    X(qdr_activation_desc, gated, s->activation.gated = 1, "activation 'act' has gated 0 on rank 0 and 1 on rank 1")   \
    X(qdr_residual_desc, name, s->residual.name = "s", "residual 'scaled' on rank 0 and residual 's'")                 \
    X(qdr_residual_desc, factor, s->residual.factor = 0.5, "residual 'scaled' has factor 1 on rank 0 and 0.5")         \
    X(qdr_cross_entropy_desc, name, s->capped.name = "c", "cross-entropy 'capped' on rank 0 and cross-entropy 'c'")    \
    X(qdr_cross_entropy_desc, factor, s->capped.factor = 2, "cross-entropy 'capped' has factor 1 on rank 0 and 2")     \
    X(qdr_cross_entropy_desc, z_loss, s->capped.z_loss = 0.5, "cross-entropy 'capped' has z_loss 0 on rank 0 and 0.5") \
    X(qdr_cross_entropy_desc, cap, s->capped.cap = 5, "cross-entropy 'capped' has cap 0 on rank 0 and 5")              \
    X(qdr_op_desc, name, s->op.name = "op2", "operation 'op' on rank 0 and operation 'op2' on rank 1")                 \
    X(qdr_op_desc, n_in, s->op.n_in = 2, "operation 'op' has n_in 1 on rank 0 and 2 on rank 1")                        \
    X(qdr_op_desc, in, s->op_in = 1, "operation 'op' has input edge 3 on rank 0 and 4 on rank 1")                      \
    X(qdr_op_desc, may_repeat, s->op.may_repeat = 1, "operation 'op' has may_repeat 0 on rank 0 and 1")                \
    X(qdr_op_desc, out, s->op.out[0] = ((qdr_block){16, 2}), "operation 'op' has out none on rank 0 and 16/2")         \
    X(qdr_adamw_opts, beta1, s->adamw.beta1 = 0.5, "qdr_adamw_opts has beta1 0.9 on rank 0 and 0.5 on rank 1")         \
    X(qdr_adamw_opts, beta2, s->adamw.beta2 = 0.5, "qdr_adamw_opts has beta2 0.95 on rank 0 and 0.5 on rank 1")        \
    X(qdr_adamw_opts, epsilon, s->adamw.epsilon = 1e-6, "qdr_adamw_opts has epsilon 1e-08 on rank 0 and 1e-06")        \
    X(qdr_adamw_opts, weight_decay, s->adamw.weight_decay = 0.5, "weight_decay 0 on rank 0 and 0.5 on rank 1")         \
    X(qdr_adamw_opts, clip_norm, s->adamw.clip_norm = 2, "qdr_adamw_opts has clip_norm 0 on rank 0 and 2 on rank 1")   \
    X(qdr_adamw_opts, grad_scale, s->adamw.grad_scale = 2, "qdr_adamw_opts has grad_scale 1 on rank 0 and 2")          \
    X(qdr_adamw_opts, decay_positions, s->adamw.decay_positions = 1, "decay_positions 0 on rank 0 and 1 on rank 1")    \
    X(qdr_checkpoint_opts, note, s->save.note = SAME_NOTE "0.2}",                                                      \
      "qdr_checkpoint_save has a note with, from byte 64 on, '0.1}' on rank 0 and '0.2}' on rank 1")                   \
    X(qdr_checkpoint_opts, background, s->save.background = 1, "background 0 on rank 0 and 1 on rank 1")               \
    X(qdr_checkpoint_opts, keep, s->save.keep = 1, "qdr_checkpoint_save has keep 0 on rank 0 and 1 on rank 1")         \
    X(qdr_checkpoint_load_opts, first_rows, s->load.first_rows = "fc.weight",                                          \
      "qdr_checkpoint_load has first_rows none on rank 0 and fc.weight on rank 1")

/* function, parameter; what is passed; words; only with QDR_CHECK=1 */
#define CALLS(X)                                                                                                       \
    X(qdr_redistribute, dtype, s->moved = QDR_I32, "the call has dtype f32 on rank 0 and i32 on rank 1", 0)            \
    X(qdr_stack_add_input, name, s->input_name = "a2", "input 'a' on rank 0 and input 'a2' on rank 1", 0)              \
    X(qdr_stack_add_input, with_gradient, s->with_gradient = 1, "input 'a' has with_gradient 0 on rank 0 and 1", 0)    \
    X(qdr_stack_add_tokens, name, s->tokens_name = "t9", "entry 1 of the description is tokens 't' on rank 0", 0)      \
    X(qdr_stack_add_linear, in, s->linear_in = 1, "layer 'fc' has input edge 3 on rank 0 and 4 on rank 1", 0)          \
    X(qdr_stack_add_embedding, tokens, s->tokens = 1, "embedding 'emb' has input edge 0 on rank 0 and 1", 0)           \
    X(qdr_stack_add_tied_head, in, s->head_in = 1, "tied head 'head' has input edge 3 on rank 0 and 4", 0)             \
    X(qdr_stack_add_norm, in, s->norm_in = 1, "norm 'norm' has input edge 3 on rank 0 and 4 on rank 1", 0)             \
    X(qdr_stack_add_attention, in, s->heads_in = 1, "attention 'attention' has input edge 6 on rank 0 and 7", 0)       \
    X(qdr_stack_add_activation, in, s->activation_in = 1, "activation 'act' has input edge", 0)                        \
    X(qdr_stack_add_gelu, name, s->gelu_name = "act", "activation 'gelu' on rank 0 and activation 'act'", 0)           \
    X(qdr_stack_add_gelu, in, s->gelu_in = 1, "activation 'gelu' has input edge 3 on rank 0 and 4", 0)                 \
    X(qdr_stack_add_gelu, one_more, s->gelu_twice = 1, "is residual 'sum' on rank 0 and activation 'twice'", 0)        \
    X(qdr_stack_add_gelu, one_more_at_the_end, s->more = 1, "is nothing on rank 0 and activation 'more'", 0)           \
    X(qdr_stack_add_residual, name, s->residual_name = "r", "residual 'sum' on rank 0 and residual 'r'", 0)            \
    X(qdr_stack_add_residual, a, s->residual_a = 1, "residual 'sum' has input edge 3 on rank 0 and 4 on rank 1", 0)    \
    X(qdr_stack_add_residual, b, s->residual_b = 1, "residual 'sum' has a further input edge 3 on rank 0 and 4", 0)    \
    X(qdr_stack_add_residual_with, a, s->scaled_a = 1, "residual 'scaled' has input edge 3 on rank 0 and 4", 0)        \
    X(qdr_stack_add_residual_with, b, s->scaled_b = 1, "residual 'scaled' has a further input edge 3 on rank 0", 0)    \
    X(qdr_stack_add_cross_entropy_with, logits, s->capped_logits = 1, "cross-entropy 'capped' has input edge", 0)      \
    X(qdr_stack_add_cross_entropy, name, s->ce_name = "ce", "cross-entropy 'loss' on rank 0", 0)                       \
    X(qdr_stack_add_cross_entropy, logits, s->logits = 1, "cross-entropy 'loss' has input edge", 0)                    \
    X(qdr_stack_set_codecs, codecs, s->later_inside = 1, "set codecs has codecs' inside 0 on rank 0 and 1", 0)         \
    X(qdr_stack_init, seed, s->seed = 9, "qdr_stack_init has seed 1 on rank 0 and 9 on rank 1; pass the same", 0)      \
    X(qdr_stack_init, stddev, s->stddev = 1, "qdr_stack_init has stddev 0.5 on rank 0 and 1 on rank 1", 0)             \
    X(qdr_linear_init, seed, s->layer_seed = 9, "qdr_linear_init has seed 2 on rank 0 and 9 on rank 1", 0)             \
    X(qdr_linear_init, stddev, s->layer_stddev = 1, "qdr_linear_init has stddev 0.25 on rank 0 and 1 on rank 1", 0)    \
    X(qdr_stack_gather_parameter, index, s->index = 1, "qdr_stack_gather_parameter has index 0 on rank 0 and 1", 0)    \
    X(qdr_stack_gather_parameter, which, s->which = 1, "qdr_stack_gather_parameter has which 0 on rank 0 and 1", 0)    \
    X(qdr_stack_backward, flags, s->backward_flags = QDR_ACCUMULATE, "flags 0 on rank 0 and 1 on rank 1", 0)           \
    X(qdr_stack_backward, deferring, s->backward_flags = QDR_DEFER_SYNC, "flags 0 on rank 0 and 2 on rank 1", 0)       \
    X(qdr_stack_backward, loss_scale, s->loss_scale = 2, "loss_scale 1 on rank 0 and 2 on rank 1", 0)                  \
    X(qdr_stack_load_parameter, index, s->load_index = 1, "qdr_stack_load_parameter has index 0 on rank 0 and 1", 1)   \
    X(qdr_stack_load_parameter, full, s->loaded = 2, "fc.weight has a full value of digest", 1)                        \
    X(qdr_linear_forward, flags, s->forward_flags = QDR_Y_ACCUMULATE, "qdr_linear_forward has flags 0 on rank 0", 1)   \
    X(qdr_linear_backward, flags, s->linear_backward_flags = QDR_NO_DX, "qdr_linear_backward has flags 0", 1)          \
    X(qdr_linear_backward, adding, s->linear_backward_flags = QDR_ACCUMULATE, "flags 0 on rank 0 and 1 on rank 1", 0)  \
    X(qdr_adamw_step, lr, s->lr = 1, "the step has learning rate 0.125 on rank 0 and 1 on rank 1", 1)                  \
    X(qdr_adamw_set_rate, lr, s->set_lr = 1, "the step has learning rate 0.25 on rank 0 and 1 on rank 1", 1)           \
    X(qdr_adamw_backward, flags, s->joined_flags = QDR_ACCUMULATE, "backward has flags 0 on rank 0 and 1 on rank 1",   \
      1)                                                                                                               \
    X(qdr_adamw_backward, loss_scale, s->joined_scale = 2, "has loss_scale 1 on rank 0 and 2 on rank 1", 1)            \
    X(qdr_checkpoint_save, path, s->other_path = 1, "qdr_checkpoint_save has path /tmp/quadrille_same_", 0)

/* What no member and no number says. */
#define EXCUSES(X)                                                                                                     \
    X("*.size", "where it is wrong, the rank that passes it is told")                                                  \
    X("qdr_linear_desc.in", "it is that of the input edge, or refused; and that is compared")                          \
    X("qdr_op_desc.saved_bytes", "it is that of this rank's rows")                                                     \
    X("qdr_op_desc.forward_flops", "it is that of this rank's rows")                                                   \
    X("qdr_op_desc.backward_flops", "it is that of this rank's rows")                                                  \
    X("qdr_op_desc.forward_bytes", "it is that of this rank's rows")                                                   \
    X("qdr_op_desc.backward_bytes", "it is that of this rank's rows")                                                  \
    X("qdr_op_desc.forward", "functions lie elsewhere in each process")                                                \
    X("qdr_op_desc.backward", "functions lie elsewhere in each process")                                               \
    X("qdr_op_desc.user", "it is the rank's own")                                                                      \
    X("qdr_context_opts.n_threads", "ranks may have other numbers of cores")                                           \
    X("qdr_context_opts.machine", "rank 0's applies")                                                                  \
    X("qdr_context_opts.device", "each rank has a GPU of its own; kinds are compared when the context is made")        \
    X("qdr_stack_memory.*", "memory is the rank's own")                                                                \
    X("qdr_stack_keep_value(edge)", "memory is the rank's own")                                                        \
    X("qdr_grid_opts.gradient_parts", "one rank along z and d has no choice; see test_grid.c")                         \
    X("qdr_grid_opts.optimizer_parts", "one rank along z and d has no choice; see test_grid.c")                        \
    X("qdr_topo_opts.*", "no ranks")                                                                                   \
    X("qdr_sample.*", "no ranks")                                                                                      \
    X("qdr_tokens_opts.*", "no ranks")                                                                                 \
    X("qdr_token_source.*", "no ranks")                                                                                \
    X("qdr_token_rows.*", "no ranks")                                                                                  \
    X("qdr_machine.*", "no ranks; qdr_plan_auto() takes rank 0's")                                                     \
    X("qdr_software.*", "no ranks")                                                                                    \
    X("qdr_network.*", "no ranks, or the nodes that come of it are compared; qdr_plan_auto() takes rank 0's")          \
    X("qdr_network_parameter.*", "the library gives it")                                                               \
    X("qdr_network_desc.*", "the nodes that come of it are compared")                                                  \
    X("qdr_stack_add_network(in)", "it is the input of the first node, which is compared")                             \
    X("qdr_topo.*", "no ranks; the library makes it")                                                                  \
    X("qdr_plan.*", "no ranks; what comes of it, grid and stack, is compared")                                         \
    X("qdr_search_opts.*", "no ranks; qdr_plan_auto() takes rank 0's")                                                 \
    X("qdr_stored_plan.*", "no ranks; what comes of it, grid and stack, is compared")

/* All ranks of x and y on another axis. */
static void move_to(subject *s, int *axis)
{
    *axis = s->grid.x * s->grid.y;
    s->grid.x = s->grid.y = 1;
}

/* All ranks on y, or on x where that is how it was. */
static void swap_axes(subject *s)
{
    const int p = s->grid.x * s->grid.y;
    s->grid.x = s->grid.x == 1 ? p : 1;
    s->grid.y = p / s->grid.x;
}

#define MEMBER_FUNCTION(type, member, statement, words)                                                                \
    static void vary_##type##_##member(subject *s) { statement; }
#define CALL_FUNCTION(function, parameter, statement, words, checked)                                                  \
    static void pass_##function##_##parameter(subject *s) { statement; }
CASES(MEMBER_FUNCTION)
CALLS(CALL_FUNCTION)

#define MEMBER_CASE(type, member, statement, words) {#type "." #member, vary_##type##_##member, words, 0},
#define CALL_CASE(function, parameter, statement, words, checked)                                                      \
    {#function "(" #parameter ")", pass_##function##_##parameter, words, checked},
static const variation variations[] = {CASES(MEMBER_CASE) CALLS(CALL_CASE)};

#define EXCUSE(what, why) {what, why},
static const struct {
    const char *what, *why;
} excuses[] = {EXCUSES(EXCUSE)};

enum { N_VARIATIONS = sizeof variations / sizeof *variations, N_EXCUSES = sizeof excuses / sizeof *excuses };

#endif
