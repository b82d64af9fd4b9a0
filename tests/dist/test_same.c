/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 1 passes something different from the others: for each member of each description, and each argument of the
 * calls that create, fill and train a stack, all ranks fail with one message, which names it. descriptions.py compares
 * the list with the public headers, so that a new member must be varied here, or excused.
 *
 *   test_same [--local P] [--seed N]     mpiexec -n P test_same
 *   test_same --list                     what is varied, and what is not and why
 *
 * With QDR_CHECK=1 also the arguments of each step. */
#include <unistd.h>

#include "dist.h"
#include "nodes.h"

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

/* ---- the calls; the first status that is not QDR_OK ends them ---- */

static qdr_status redistribute(const subject *s, qdr_grid *grid)
{
    void *from = dist_memory(qdr_grid_context(grid), 2 * ROWS * 16, QDR_F64);
    void *to = dist_memory(qdr_grid_context(grid), 2 * ROWS * 16, QDR_F64);
    qdr_status status = qdr_redistribute(grid, &s->from, from, &s->to, to, s->moved, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(qdr_grid_context(grid)));
    qdr_mem_free(qdr_grid_context(grid), &from);
    qdr_mem_free(qdr_grid_context(grid), &to);
    return status;
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

static qdr_status build(const subject *s, qdr_grid *grid)
{
    qdr_stack *stack = NULL;
    qdr_stack_opts opts = s->stack;
    opts.codecs = s->without_codecs ? NULL : &s->codecs;
    qdr_status status = qdr_stack_create(grid, &opts, &stack);
    if (status == QDR_OK) {
        describe(s, stack);
        status = qdr_stack_build(stack);
    }
    qdr_stack_destroy(&stack);
    return status;
}

/* x, a layer, logits, a loss. */
typedef struct small {
    qdr_stack *stack;
    qdr_edge x, targets;
    qdr_linear *fc;
} small;

static small make_small(qdr_grid *grid)
{
    const qdr_linear_desc fc = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{8, 2}}, .out = {{8, 2}},
                                .transposed = 1};
    const qdr_linear_desc head = {QDR_INIT(qdr_linear_desc), .name = "head", .in = {{8, 2}}, .out = {{16, 2}}};
    small m;
    qdr_edge h, logits;
    m.stack = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS, .row_unit = UNIT});
    m.x = dist_input(m.stack, "x", (qdr_edge_desc){.cols = {{8, 2}}, .col_axis = QDR_Y}, 0);
    DIST_OK(qdr_stack_add_linear(m.stack, &fc, m.x, &h, &m.fc));
    DIST_OK(qdr_stack_add_linear(m.stack, &head, h, &logits, NULL));
    DIST_OK(qdr_stack_add_cross_entropy(m.stack, "loss", logits, &m.targets));
    DIST_OK(qdr_stack_build(m.stack));
    void *data = dist_edge_value(m.stack, m.x);
    dist_fill_edge(m.stack, m.x, data, 3);
    data = dist_edge_value(m.stack, m.targets);
    const qdr_owned owned = dist_edge_owned(m.stack, m.targets);
    memset(data, 0, (size_t)owned.n_rows * sizeof(int32_t));
    return m;
}

static qdr_status fill(const subject *s, const small *m)
{
    float full[MOST_ELEMS];
    qdr_codecs later = {QDR_INIT(qdr_codecs), .inside = s->later_inside};
    qdr_status status = qdr_stack_set_codecs(m->stack, &later);
    if (status == QDR_OK) status = qdr_stack_init(m->stack, s->seed, s->stddev);
    if (status == QDR_OK) status = qdr_linear_init(m->fc, s->layer_seed, s->layer_stddev);
    for (int i = 0; i < MOST_ELEMS; i++) full[i] = (float)s->loaded;
    if (status == QDR_OK) status = qdr_stack_load_parameter(m->stack, s->load_index, full);
    return status;
}

static qdr_status layer_alone(const subject *s, const small *m)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(m->stack));
    void *memory[4];
    for (int i = 0; i < 4; i++) {
        memory[i] = dist_memory(ctx, MOST_ELEMS, QDR_F32);
        memset(memory[i], 0, MOST_ELEMS * sizeof(float));
    }
    qdr_status status = qdr_linear_forward(m->fc, memory[0], memory[1], s->forward_flags, NULL);
    if (status == QDR_OK)
        status = qdr_linear_backward(m->fc, memory[2], memory[0], memory[3], s->linear_backward_flags, NULL);
    /* A forward may be running when the backward was refused. */
    const qdr_status finished = qdr_stream_synchronize(qdr_context_stream(ctx));
    float full[MOST_ELEMS];
    if (status == QDR_OK) status = qdr_stack_gather_parameter(m->stack, 0, 1, full);
    for (int i = 0; i < 4; i++) qdr_mem_free(ctx, &memory[i]);
    return status != QDR_OK ? status : finished;
}

static qdr_status step(const subject *s, const small *m, qdr_adamw *adamw)
{
    double norm;
    float full[MOST_ELEMS];
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(m->stack));
    qdr_status status = qdr_stack_forward(m->stack);
    if (status == QDR_OK) status = qdr_stack_backward(m->stack, s->backward_flags, s->loss_scale);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    if (status == QDR_OK) status = qdr_grad_norm(m->stack, &norm);
    if (status == QDR_OK) status = qdr_stack_gather_parameter(m->stack, s->index, (qdr_parameter_data)s->which, full);
    if (status == QDR_OK) status = qdr_adamw_step(adamw, s->lr);
    if (status == QDR_OK) status = qdr_adamw_set_rate(adamw, s->set_lr);
    if (status == QDR_OK) status = qdr_adamw_step_as_set(adamw);
    if (status == QDR_OK) status = qdr_adamw_backward(adamw, s->joined_flags, s->joined_scale);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    return status;
}

static qdr_status save(const subject *s, const small *m, qdr_adamw *adamw)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(m->stack));
    char path[64];
    long pid = (long)getpid(); /* another test may run at the same time */
    qdr_checkpoint *pending = NULL;
    qdr_status status = qdr_broadcast(ctx, 0, &pid, sizeof pid);
    snprintf(path, sizeof path, "/tmp/quadrille_same_%ld%s", pid, s->other_path ? ".other" : "");
    if (status == QDR_OK) status = qdr_checkpoint_save(m->stack, adamw, path, &s->save, &pending);
    if (status == QDR_OK) status = qdr_checkpoint_finish(&pending);
    if (status == QDR_OK) status = qdr_checkpoint_load_with(m->stack, adamw, path, &s->load, NULL);
    if (qdr_context_rank(ctx) == 0) (void)unlink(path);
    return status;
}

static qdr_status train(const subject *s, qdr_grid *grid)
{
    const small m = make_small(grid);
    qdr_stack *stack = m.stack;
    qdr_adamw *adamw = NULL;
    qdr_status status = fill(s, &m);
    if (status == QDR_OK) status = qdr_adamw_create(stack, &s->adamw, &adamw);
    if (status == QDR_OK) status = layer_alone(s, &m);
    if (status == QDR_OK) status = step(s, &m, adamw);
    if (status == QDR_OK) status = save(s, &m, adamw);
    qdr_adamw_destroy(&adamw);
    qdr_stack_destroy(&stack);
    return status;
}

static qdr_status run(const subject *s, qdr_context *ctx)
{
    qdr_grid *grid = NULL;
    qdr_status status = qdr_grid_create(ctx, &s->grid, &grid);
    if (status == QDR_OK) status = redistribute(s, grid);
    if (status == QDR_OK) status = build(s, grid);
    if (status == QDR_OK) status = train(s, grid);
    qdr_grid_destroy(&grid);
    return status;
}

/* ---- what rank 1 passes ---- */

typedef struct variation {
    const char *what; /* "struct.member" or "function(parameter)" */
    void (*vary)(subject *s);
    const char *words; /* of the sentence */
    int checked; /* only with QDR_CHECK=1 */
} variation;

#include "same_cases.h"

DIST_TEST(each_is_named)
{
    const char *check = getenv("QDR_CHECK");
    const int is_checked = check && strcmp(check, "1") == 0, rank = qdr_context_rank(ctx);
    const subject same = usual(ctx);
    DIST_OK(run(&same, ctx));
    if (qdr_context_size(ctx) < 2) return;
    for (int i = 0; i < N_VARIATIONS; i++) {
        const variation *v = &variations[i];
        subject s = usual(ctx);
        if (v->checked && !is_checked) continue;
        if (rank == 1) v->vary(&s);
        const qdr_status status = run(&s, ctx);
        DIST_CHECK(status == QDR_ERR_ARGUMENT, "%s gave %s: %s", v->what, qdr_status_name(status), qdr_last_error());
        DIST_CHECK(strstr(qdr_last_error(), v->words), "%s: \"%s\" is not in \"%s\"", v->what, v->words,
                   qdr_last_error());
        DIST_CHECK(strstr(qdr_last_error(), "rank 1"), "%s: rank 1 is not in \"%s\"", v->what, qdr_last_error());
        DIST_OK(qdr_barrier(ctx)); /* the context works on */
    }
}

static int list(void)
{
    for (int i = 0; i < N_VARIATIONS; i++) puts(variations[i].what);
    for (int i = 0; i < N_EXCUSES; i++) printf("%s: %s\n", excuses[i].what, excuses[i].why);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) return list();
    return dist_main(argc, argv, NULL);
}
