/* SPDX-License-Identifier: Apache-2.0 */
/* Calls that would compute something other than intended: values that are not whole numbers, factors that are none,
 * gradients that ranks computed differently, and buffers that overlap. */
#include "dist.h"
#include "nodes.h"

enum { ROWS = 16, COLS = 8, BYTES = 1 << 16 };

/* ---- values that are not whole ---- */

/* x, a layer with a bias, a norm, logits, and a loss if wanted. */
static qdr_stack *make_stack(qdr_grid *grid, int with_loss, qdr_edge *x, qdr_edge *last, qdr_linear **layer)
{
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS, .dtype = QDR_F64});
    *x = dist_input(stack, "x", (qdr_edge_desc){.cols = {{COLS, 1}}, .col_axis = QDR_X}, 0);
    qdr_edge y = dist_linear(stack, (qdr_linear_desc){.name = "fc", .in = {{COLS, 1}}, .out = {{COLS, 1}}, .bias = 1},
                             *x, layer);
    DIST_OK(test_add_norm(stack, "norm", 0, y, last));
    if (with_loss) DIST_OK(qdr_stack_add_cross_entropy(stack, "loss", *last, &y));
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_init(stack, 1, 0.3));
    return stack;
}

static void each_gathers(qdr_stack *stack, qdr_status wanted, const char *words)
{
    double full[COLS * COLS];
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        DIST_OK(qdr_stack_gather_parameter(stack, i, 0, full));
        if (wanted == QDR_OK)
            DIST_OK(qdr_stack_gather_parameter(stack, i, 1, full));
        else
            DIST_FAILS(qdr_stack_gather_parameter(stack, i, 1, full), wanted, words);
    }
}

static void on_grid(qdr_grid *grid, void *user)
{
    double norm;
    qdr_edge x, y;
    qdr_stack *stack = make_stack(grid, 0, &x, &y, NULL);
    (void)user;
    each_gathers(stack, QDR_OK, "");
    dist_step(stack, x, 1, y, 2, QDR_DEFER_SYNC);
    each_gathers(stack, QDR_ERR_STATE, "lacks sums that QDR_DEFER_SYNC left out");
    DIST_FAILS(qdr_grad_norm(stack, &norm), QDR_ERR_STATE, "lacks sums");
    dist_step(stack, x, 1, y, 2, QDR_ACCUMULATE);
    each_gathers(stack, QDR_OK, "");
    qdr_stack_destroy(&stack);
}

DIST_TEST(deferred_gradients_are_not_gathered) { dist_every_grid(ctx, 0, on_grid, NULL); }

DIST_TEST(nothing_before_a_forward)
{
    double sum;
    int64_t n_valid;
    qdr_edge x, y;
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_stack *stack = make_stack(grid, 1, &x, &y, NULL);
    DIST_FAILS(qdr_stack_loss(stack, &sum, &n_valid), QDR_ERR_STATE, "no forward");
    DIST_FAILS(qdr_stack_backward(stack, 0, 1), QDR_ERR_STATE, "no forward");
    DIST_OK(qdr_stack_forward(stack));
    DIST_OK(qdr_stack_loss(stack, &sum, &n_valid));
    DIST_OK(qdr_stack_backward(stack, 0, 1));
    dist_synchronize(ctx);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}

/* ---- codecs ---- */

static void expect_codecs(const qdr_stack *stack, const char *text)
{
    qdr_codecs codecs;
    char has[128];
    DIST_OK(qdr_stack_get_codecs(stack, &codecs));
    qdr_codecs_text(&codecs, has, sizeof has);
    DIST_CHECK(strcmp(has, text) == 0, "the codecs are %s, not %s", has, text);
}

static qdr_codecs parse(const char *text)
{
    qdr_codecs codecs;
    DIST_OK(qdr_codecs_parse(text, &codecs));
    return codecs;
}

/* The stack runs with the codecs that it had. */
DIST_TEST(codecs_are_refused)
{
    const int p = qdr_context_size(ctx);
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{COLS, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc fc = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{COLS, 1}}, .out = {{COLS, 1}}};
    const qdr_codecs int8 = parse("int8,inside,least=1"), fed = parse("int8,d.gradient=int8+feedback,inside,least=1");
    qdr_codecs wrong = int8, none;
    qdr_stack *doubles;
    qdr_edge x, y;
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = 1, .y = 1, .z = 1, .d = p});
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS, .codecs = &int8});
    DIST_FAILS(qdr_stack_set_codecs(stack, &int8), QDR_ERR_STATE, "not built");
    DIST_FAILS(qdr_stack_get_codecs(stack, &none), QDR_ERR_STATE, "not built");
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 0, &x));
    DIST_OK(qdr_stack_add_linear(stack, &fc, x, &y, NULL));
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_init(stack, 1, 0.3));
    DIST_FAILS(qdr_stack_codec_report(stack, NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_codec_report(NULL, stderr), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_codec_report(stack, stderr), QDR_ERR_STATE, "QDR_CODEC_CHECK=1");
    DIST_FAILS(qdr_stack_set_codecs(NULL, &int8), QDR_ERR_ARGUMENT, "set codecs: the stack is NULL");
    wrong.size = 7;
    DIST_FAILS(qdr_stack_set_codecs(stack, &wrong), QDR_ERR_ARGUMENT, "size is 7");
    wrong = int8;
    wrong.of[QDR_X][QDR_TRAFFIC_WEIGHT].block = 31;
    DIST_FAILS(qdr_stack_set_codecs(stack, &wrong), QDR_ERR_ARGUMENT, "31");
    if (p > 1) DIST_FAILS(qdr_stack_set_codecs(stack, &fed), QDR_ERR_STATE, "fc.weight would need");
    dist_step(stack, x, 1, y, 2, 0);
    expect_codecs(stack, "int8/128,least=1,inside");
    DIST_OK(qdr_stack_set_codecs(stack, NULL));
    expect_codecs(stack, "none");
    dist_step(stack, x, 1, y, 2, 0);
    qdr_stack_destroy(&stack);
    doubles = make_stack(grid, 0, &x, &y, NULL);
    DIST_FAILS(qdr_stack_set_codecs(doubles, &int8), QDR_ERR_ARGUMENT, "f64");
    DIST_OK(qdr_stack_set_codecs(doubles, NULL));
    qdr_stack_destroy(&doubles);
    qdr_grid_destroy(&grid);
}

/* ---- factors ---- */

DIST_TEST(factors_are_refused)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS});
    qdr_embedding_desc embedding = {QDR_INIT(qdr_embedding_desc), .name = "embedding", .vocab = {COLS, 1},
                                    .features = {COLS, 1}, .factor = (double)NAN};
    qdr_residual_desc residual = {QDR_INIT(qdr_residual_desc), .name = "residual", .factor = (double)INFINITY};
    qdr_cross_entropy_desc loss = {QDR_INIT(qdr_cross_entropy_desc), .name = "loss", .cap = -30};
    qdr_edge tokens, out;
    const qdr_edge x = dist_input(stack, "x", (qdr_edge_desc){.cols = {{COLS, 1}}, .col_axis = QDR_Y}, 0);
    DIST_OK(qdr_stack_add_tokens(stack, "tokens", &tokens));
    DIST_FAILS(qdr_stack_add_embedding(stack, &embedding, tokens, &out, NULL), QDR_ERR_ARGUMENT, "factor is nan");
    DIST_FAILS(qdr_stack_add_residual_with(stack, &residual, x, x, &out), QDR_ERR_ARGUMENT, "factor is inf");
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, &loss, x, &out), QDR_ERR_ARGUMENT, "cap of logits is -30");
    loss.cap = (double)NAN;
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, &loss, x, &out), QDR_ERR_ARGUMENT, "cap of logits is nan");
    loss.cap = 0, loss.factor = (double)NAN;
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, &loss, x, &out), QDR_ERR_ARGUMENT, "factor is nan");
    residual.size = loss.size = 0;
    DIST_FAILS(qdr_stack_add_residual_with(stack, &residual, x, x, &out), QDR_ERR_ARGUMENT, "QDR_INIT");
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, &loss, x, &out), QDR_ERR_ARGUMENT, "QDR_INIT");
    DIST_FAILS(qdr_stack_add_residual_with(stack, NULL, x, x, &out), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_add_cross_entropy_with(stack, NULL, x, &out), QDR_ERR_ARGUMENT, "NULL");
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}

/* ---- flags that differ ---- */

/* Rank 1 alone adds to the gradients of a layer. */
DIST_TEST(flags_of_layers_are_compared)
{
    static const char words[] = "the last backward of fc.weight has flags";
    const int size = qdr_context_size(ctx), rank = qdr_context_rank(ctx);
    double norm, full[COLS * COLS];
    qdr_linear *fc;
    qdr_edge x, y;
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = 1, .y = 1, .z = 1, .d = size});
    qdr_stack *stack = make_stack(grid, 0, &x, &y, &fc);
    void *memory = dist_memory(ctx, (int64_t)2 * ROWS * COLS, QDR_F64);
    memset(memory, 0, sizeof(double) * 2 * ROWS * COLS);
    const double *dy = (const double *)memory + ROWS * COLS;
    DIST_OK(qdr_linear_backward(fc, dy, memory, NULL, QDR_NO_DX, NULL));
    each_gathers(stack, QDR_OK, "");
    DIST_OK(qdr_linear_backward(fc, dy, memory, NULL, QDR_NO_DX | (rank == 1 ? QDR_ACCUMULATE : 0), NULL));
    if (size > 1) {
        DIST_FAILS(qdr_stack_gather_parameter(stack, 0, 1, full), QDR_ERR_ARGUMENT, words);
        DIST_FAILS(qdr_grad_norm(stack, &norm), QDR_ERR_ARGUMENT, words);
        DIST_OK(qdr_stack_gather_parameter(stack, 0, 0, full));
    }
    DIST_OK(qdr_linear_backward(fc, dy, memory, NULL, QDR_NO_DX | QDR_ACCUMULATE, NULL));
    each_gathers(stack, QDR_OK, "");
    DIST_OK(qdr_linear_backward(fc, dy, memory, NULL, QDR_NO_DX | (rank == 1 ? QDR_ACCUMULATE : 0), NULL));
    dist_step(stack, x, 1, y, 2, 0); /* writes all of them anew */
    each_gathers(stack, QDR_OK, "");
    DIST_OK(qdr_grad_norm(stack, &norm));
    qdr_mem_free(ctx, &memory);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}

/* ---- buffers that overlap ---- */

/* Two arrays with `apart` bytes between their begins, for each case. */
typedef struct place {
    qdr_grid *grid;
    qdr_context *ctx;
    qdr_linear *layer; /* of COLS × COLS, on a grid of one */
    qdr_stack *stack;
    void *value; /* of the layer's output */
    char *memory;
    const char *x; /* at its begin; y: some bytes on */
    char *y;
} place;

static char *far(const place *p, int i) { return p->memory + BYTES / 2 + i * (BYTES / 32); }

static const qdr_matrix matrix = {QDR_INIT(qdr_matrix), .n_rows = 4, .cols = {{8, 1}}};

#define CASES(X)                                                                                                       \
    X(linear_forward, 0, qdr_linear_forward(p->layer, p->x, p->y, 0, NULL))                                            \
    X(linear_backward_dx_x, 0, qdr_linear_backward(p->layer, far(p, 0), p->x, p->y, 0, NULL))                          \
    X(linear_backward_dx_dy, 0, qdr_linear_backward(p->layer, p->x, far(p, 0), p->y, 0, NULL))                         \
    X(copy, 1, qdr_copy(p->ctx, p->y, p->x, 64, NULL))                                                                 \
    X(redistribute, 0, qdr_redistribute(p->grid, &matrix, p->x, &matrix, p->y, QDR_F32, NULL))                         \
    X(all_gather, 1, qdr_all_gather(p->grid, QDR_X, p->y, (void *)(uintptr_t)p->x, 16, NULL, QDR_F32, NULL))           \
    X(reduce_scatter, 1, qdr_reduce_scatter(p->grid, QDR_X, QDR_SUM, p->x, p->y, 16, NULL, QDR_F32, NULL))             \
    X(all_to_all, 0, qdr_all_to_all(p->grid, QDR_X, p->x, NULL, p->y, NULL, 16, QDR_F32, NULL))                        \
    X(send_recv, 0, qdr_send_recv(p->grid, QDR_X, 0, p->x, 16, 0, p->y, 16, QDR_F32, NULL))

#define FUNCTION(name, may_be_same, call)                                                                              \
    static qdr_status call_##name(const place *p) { return call; }
CASES(FUNCTION)

static const struct overlap_case {
    const char *name;
    int may_be_same; /* exactly the same memory is right */
    qdr_status (*call)(const place *p);
} cases[] = {
#define CASE(name, may_be_same, call) {#name, may_be_same, call_##name},
    CASES(CASE)};

static void check_case(place *p, const struct overlap_case *c)
{
    for (int apart = 0; apart <= 24; apart += 8) { /* alignment of every type */
        p->x = p->memory;
        p->y = p->memory + apart;
        const qdr_status status = c->call(p);
        const int right = apart == 0 && c->may_be_same;
        DIST_CHECK(status == (right ? QDR_OK : QDR_ERR_ARGUMENT), "%s, %d bytes apart: %s: %s", c->name, apart,
                   qdr_status_name(status), qdr_last_error());
        if (!right) dist_sentence("overlap", __FILE__, __LINE__);
        dist_synchronize(p->ctx);
        memset(p->memory, 0, BYTES);
    }
    p->y = p->memory + BYTES / 4;
    DIST_OK(c->call(p)); /* it is the overlap that is refused */
    dist_synchronize(p->ctx);
    memset(p->memory, 0, BYTES);
}

/* The layer's own memory. */
static void check_own(const place *p)
{
    const qdr_parameter w = dist_parameter(p->stack, 0);
    DIST_FAILS(qdr_linear_forward(p->layer, p->memory, w.data, 0, NULL), QDR_ERR_ARGUMENT, "the stack's parameters");
    DIST_FAILS(qdr_linear_forward(p->layer, p->memory, w.gradient, 0, NULL), QDR_ERR_ARGUMENT, "the stack's gradients");
    DIST_FAILS(qdr_linear_backward(p->layer, w.gradient, p->memory, far(p, 0), 0, NULL), QDR_ERR_ARGUMENT,
               "the stack's gradients");
    void *const values[] = {w.data, (float *)w.data + 1, w.gradient, p->value};
    for (int i = 0; i < 4; i++) {
        DIST_FAILS(qdr_stack_gather_parameter(p->stack, 0, 0, values[i]), QDR_ERR_ARGUMENT, "gather: full");
        DIST_FAILS(qdr_stack_load_parameter(p->stack, 0, values[i]), QDR_ERR_ARGUMENT, "load: full");
        dist_sentence("overlap", __FILE__, __LINE__);
    }
    DIST_OK(qdr_stack_load_parameter(p->stack, 0, p->memory));
}

/* A stack of one layer, described; owner: may be NULL. */
static qdr_stack *describe_layer(const place *p, int caller_memory, qdr_stack *owner, qdr_linear **layer, qdr_edge *y)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{COLS, 1}}, .col_axis = QDR_X};
    qdr_edge x;
    qdr_stack *stack = dist_stack(p->grid, (qdr_stack_opts){.n_rows = 4, .caller_memory = caller_memory});
    if (owner) DIST_OK(qdr_stack_share_parameters(stack, owner));
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 0, &x));
    *y = dist_linear(stack, (qdr_linear_desc){.name = "fc", .in = {{COLS, 1}}, .out = {{COLS, 1}}}, x, layer);
    DIST_OK(qdr_stack_build(stack));
    return stack;
}

/* The memory of a stack that exists. */
static void check_bind_others(const place *p, qdr_stack **first, const qdr_stack_memory *firsts)
{
    qdr_edge y;
    qdr_stack *stack = describe_layer(p, 1, NULL, NULL, &y);
    qdr_stack_memory memory = {QDR_INIT(qdr_stack_memory), .gradients = firsts->parameters};
    DIST_FAILS(qdr_stack_bind(stack, &memory), QDR_ERR_ARGUMENT, "another stack's parameters");
    const qdr_parameter w = dist_parameter(p->stack, 0);
    memory = (qdr_stack_memory){QDR_INIT(qdr_stack_memory), .gradients = w.data};
    DIST_FAILS(qdr_stack_bind(stack, &memory), QDR_ERR_ARGUMENT, "another stack's parameters");
    memory = (qdr_stack_memory){QDR_INIT(qdr_stack_memory), .parameters = firsts->parameters};
    DIST_FAILS(qdr_stack_bind(stack, &memory), QDR_ERR_ARGUMENT, "another stack's parameters");
    memory = (qdr_stack_memory){QDR_INIT(qdr_stack_memory), .parameters = firsts->activations};
    DIST_FAILS(qdr_stack_bind(stack, &memory), QDR_ERR_ARGUMENT, "another stack's activations");
    memory = (qdr_stack_memory){QDR_INIT(qdr_stack_memory), .activations = (char *)firsts->gradients + 64};
    DIST_FAILS(qdr_stack_bind(stack, &memory), QDR_ERR_ARGUMENT, "another stack's gradients");
    memory.activations = firsts->activations; /* in turn */
    memory.parameters = p->memory + BYTES / 8;
    DIST_OK(qdr_stack_bind(stack, &memory));
    qdr_stack_destroy(&stack);
    qdr_stack_destroy(first);
    stack = describe_layer(p, 1, NULL, NULL, &y);
    DIST_OK(qdr_stack_bind(stack, firsts));
    qdr_stack_destroy(&stack);
}

static void check_bind(const place *p)
{
    qdr_stack_memory memory = {QDR_INIT(qdr_stack_memory), .parameters = p->memory, .gradients = p->memory + 64,
                               .activations = p->memory + BYTES / 4};
    qdr_edge y;
    qdr_stack *stack = describe_layer(p, 1, NULL, NULL, &y);
    DIST_FAILS(qdr_stack_bind(stack, &memory), QDR_ERR_ARGUMENT, "parameters");
    DIST_FAILS(qdr_stack_bind(stack, &memory), QDR_ERR_ARGUMENT, "overlap");
    memory.gradients = p->memory + BYTES / 2;
    DIST_OK(qdr_stack_bind(stack, &memory));
    check_bind_others(p, &stack, &memory);
}

/* The memory of the stack that owns the parameters, also after it was destroyed. */
static void check_sharing(place *p)
{
    qdr_linear *layer;
    qdr_edge y;
    qdr_stack *stack = describe_layer(p, 0, p->stack, &layer, &y);
    const qdr_parameter w = dist_parameter(p->stack, 0);
    void *value = dist_edge_value(stack, y);
    DIST_FAILS(qdr_linear_forward(layer, p->memory, w.data, 0, NULL), QDR_ERR_ARGUMENT, "the stack's parameters");
    DIST_FAILS(qdr_linear_forward(layer, p->memory, w.gradient, 0, NULL), QDR_ERR_ARGUMENT,
               "another stack's gradients");
    DIST_FAILS(qdr_stack_gather_parameter(stack, 0, 0, w.data), QDR_ERR_ARGUMENT, "the stack's parameters");
    DIST_FAILS(qdr_stack_gather_parameter(stack, 0, 0, w.gradient), QDR_ERR_ARGUMENT, "another stack's gradients");
    DIST_FAILS(qdr_stack_gather_parameter(stack, 0, 0, p->value), QDR_ERR_ARGUMENT, "another stack's activations");
    DIST_FAILS(qdr_stack_gather_parameter(p->stack, 0, 0, value), QDR_ERR_ARGUMENT, "another stack's activations");
    DIST_OK(qdr_linear_forward(layer, w.gradient, p->memory, 0, NULL)); /* reading is right */
    dist_synchronize(p->ctx);
    qdr_stack_destroy(&p->stack);
    DIST_FAILS(qdr_linear_forward(layer, p->memory, w.data, 0, NULL), QDR_ERR_ARGUMENT, "the stack's parameters");
    qdr_stack_destroy(&stack);
}

/* Each rank by itself: whether ranges overlap is for each rank to see. */
DIST_TEST(overlaps_are_refused)
{
    place p = {.memory = NULL};
    void *memory;
    qdr_edge y;
    DIST_OK(qdr_context_create_self(NULL, &p.ctx));
    p.grid = dist_grid(p.ctx, (qdr_grid_opts){.x = 1, .y = 1, .z = 1, .d = 1});
    p.stack = describe_layer(&p, 0, NULL, &p.layer, &y);
    p.value = dist_edge_value(p.stack, y);
    memory = dist_memory(p.ctx, BYTES, QDR_U8);
    p.memory = memory;
    memset(memory, 0, BYTES);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) check_case(&p, &cases[i]);
    check_own(&p);
    check_bind(&p);
    check_sharing(&p);
    qdr_mem_free(p.ctx, &memory);
    qdr_stack_destroy(&p.stack);
    qdr_grid_destroy(&p.grid);
    qdr_context_destroy(&p.ctx);
}
