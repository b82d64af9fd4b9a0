/* SPDX-License-Identifier: Apache-2.0 */
/* Stacks that share parameters: while the owner trains, a stack with a different number of rows gives, bit for bit, the
 * results of a stack with its own copy of the parameters; its sizes; what it refuses; destroying in any order. And
 * stacks with caller_activations. */
#include "dist.h"
#include "nodes.h"

enum { CONTEXT = 4, HEAD = 2, HIDDEN = 6 * HEAD, INNER = 20, VOCABULARY = 17, STEPS = 3 };

typedef struct model {
    qdr_stack *stack;
    qdr_edge tokens, targets;
    qdr_linear *inner;
} model;

/* What may differ between stacks that share. */
typedef struct variant {
    int64_t n_sequences;
    qdr_layout layout;
    qdr_storage storage[2]; /* of up and down */
    int panels, batch_parts, caller_memory;
    qdr_dtype dtype;
} variant;

static void describe(qdr_grid *grid, const variant *v, model *m)
{
    const qdr_embedding_desc table = {QDR_INIT(qdr_embedding_desc), .name = "table",    .vocab = {VOCABULARY, 1},
                                      .features = {HIDDEN, HEAD},   .context = CONTEXT, .layout = v->layout};
    const qdr_linear_desc up = {QDR_INIT(qdr_linear_desc),   .name = "up", .in = {{HIDDEN, HEAD}},
                                .out = {{INNER, 1}, {8, 4}}, .bias = 1,    .out_layout = v->layout,
                                .storage = v->storage[0]};
    /* Without a bias, so that a W is the last of all parameters. */
    const qdr_linear_desc down = {QDR_INIT(qdr_linear_desc), .name = "down",          .in = {{INNER, 1}, {8, 4}},
                                  .out = {{HIDDEN, HEAD}},   .out_layout = v->layout, .transposed = 1,
                                  .storage = v->storage[1]};
    qdr_linear *embedding;
    qdr_edge edge, residual;
    m->stack = dist_stack(grid, (qdr_stack_opts){.n_rows = v->n_sequences * CONTEXT,
                                                 .row_unit = CONTEXT,
                                                 .dtype = v->dtype,
                                                 .panels = v->panels,
                                                 .batch_parts = v->batch_parts,
                                                 .caller_memory = v->caller_memory});
    DIST_OK(qdr_stack_add_tokens(m->stack, "tokens", &m->tokens));
    DIST_OK(qdr_stack_add_embedding(m->stack, &table, m->tokens, &residual, &embedding));
    DIST_OK(test_add_norm(m->stack, "norm", 1e-5, residual, &edge));
    DIST_OK(qdr_stack_add_linear(m->stack, &up, edge, &edge, &m->inner));
    DIST_OK(qdr_stack_add_gelu(m->stack, "gelu", edge, &edge));
    DIST_OK(qdr_stack_add_linear(m->stack, &down, edge, &edge, NULL));
    DIST_OK(qdr_stack_add_residual(m->stack, "sum", residual, edge, &edge));
    DIST_OK(test_add_tied_head(m->stack, "head", embedding, v->layout, edge, &edge));
    DIST_OK(qdr_stack_add_cross_entropy(m->stack, "loss", edge, &m->targets));
}

static void make(qdr_grid *grid, const variant *v, qdr_stack *owner, model *m)
{
    describe(grid, v, m);
    if (owner) DIST_OK(qdr_stack_share_parameters(m->stack, owner));
    DIST_OK(qdr_stack_build(m->stack));
}

static void fill(const qdr_stack *stack, qdr_edge edge, uint64_t seed)
{
    const qdr_owned owned = dist_edge_owned(stack, edge);
    int32_t *ids = dist_edge_value(stack, edge);
    for (int64_t i = 0; i < owned.n_rows; i++) {
        uint64_t state = seed + (uint64_t)(owned.rows.begin + i);
        ids[i] = (int32_t)(dist_random(&state) % VOCABULARY);
    }
}

/* The loss of one forward: a sum of all rows, so that any wrong parameter shows. */
static double loss_of(const model *m, uint64_t seed)
{
    double loss = 0;
    int64_t n = 0;
    dist_synchronize(qdr_grid_context(qdr_stack_grid(m->stack)));
    fill(m->stack, m->tokens, seed);
    fill(m->stack, m->targets, seed + 99);
    DIST_OK(qdr_stack_forward(m->stack));
    DIST_OK(qdr_stack_loss(m->stack, &loss, &n));
    return loss;
}

static void train(const model *m, qdr_adamw *optimizer, uint64_t seed)
{
    (void)loss_of(m, seed);
    DIST_OK(qdr_stack_backward(m->stack, 0, 0.1));
    DIST_OK(qdr_adamw_step(optimizer, 0.05));
}

/* By value, through the whole parameters. */
static void copy_parameters(qdr_stack *to, qdr_stack *from)
{
    for (int i = 0; i < qdr_stack_n_parameters(from); i++) {
        const qdr_parameter parameter = dist_parameter(from, i);
        void *whole = malloc((size_t)parameter.n_global * sizeof(double));
        DIST_CHECK(whole, "no memory");
        DIST_OK(qdr_stack_gather_parameter(from, i, 0, whole));
        DIST_OK(qdr_stack_load_parameter(to, i, whole));
        free(whole);
    }
}

/* Through the sharing stack as through its owner. */
static void check_gathered(qdr_stack *stack, qdr_stack *owner)
{
    for (int i = 0; i < qdr_stack_n_parameters(owner); i++) {
        double got[VOCABULARY * HIDDEN + 28 * HIDDEN], wanted[VOCABULARY * HIDDEN + 28 * HIDDEN];
        qdr_parameter parameter = {QDR_INIT(qdr_parameter)}, owners = {QDR_INIT(qdr_parameter)};
        DIST_OK(qdr_stack_parameter(stack, i, &parameter));
        DIST_OK(qdr_stack_parameter(owner, i, &owners));
        DIST_CHECK(parameter.shared == 1 && parameter.gradient == NULL && owners.shared == 0, "%s", owners.name);
        DIST_CHECK(parameter.data == owners.data && parameter.storage == owners.storage, "%s", owners.name);
        DIST_OK(qdr_stack_gather_parameter(stack, i, 0, got));
        DIST_OK(qdr_stack_gather_parameter(owner, i, 0, wanted));
        const size_t bytes = (size_t)owners.n_global * qdr_dtype_bytes(qdr_stack_dtype(owner));
        DIST_CHECK(memcmp(got, wanted, bytes) == 0, "%s", owners.name);
    }
}

static void check_sizes(const model *shared, const model *copy)
{
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)}, whole = {QDR_INIT(qdr_stack_sizes)};
    DIST_OK(qdr_stack_get_sizes(shared->stack, &sizes));
    DIST_OK(qdr_stack_get_sizes(copy->stack, &whole));
    DIST_CHECK(sizes.parameters == 0 && sizes.gradients == 0, "%zu and %zu bytes", sizes.parameters, sizes.gradients);
    DIST_CHECK(sizes.activations + sizes.workspace <= whole.activations + whole.workspace, "more than a copy");
}

typedef struct round_seed {
    uint64_t *seed;
} round_seed;

static variant random_variant(uint64_t *seed, qdr_dtype dtype)
{
    return (variant){.n_sequences = 1 + dist_below(seed, 9),
                     .layout = (qdr_layout)dist_below(seed, 2),
                     .panels = 1 + (int)dist_below(seed, 2),
                     .batch_parts = 1 + (int)dist_below(seed, 2),
                     .dtype = dtype};
}

/* Owner and sharer in turn; the copy is filled by value before each comparison. */
static void check_grid(qdr_grid *grid, void *user)
{
    static const qdr_dtype dtypes[] = {QDR_F64, QDR_F32, QDR_BF16, QDR_F16};
    uint64_t *seed = ((round_seed *)user)->seed;
    const qdr_dtype dtype = dtypes[dist_below(seed, 4)];
    variant of_owner = random_variant(seed, dtype), other = random_variant(seed, dtype);
    model owner, shared, copy;
    qdr_adamw *optimizer = NULL;
    for (int i = 0; i < 2; i++) of_owner.storage[i] = dist_below(seed, 2) ? QDR_IN_OUT : QDR_OUT_IN;
    make(grid, &of_owner, NULL, &owner);
    DIST_OK(qdr_stack_init(owner.stack, 5, 0.3));
    double before = NAN;
    make(grid, &other, owner.stack, &shared); /* no parameter becomes zero */
    memcpy(other.storage, of_owner.storage, sizeof other.storage);
    make(grid, &other, NULL, &copy);
    check_sizes(&shared, &copy);
    DIST_OK(qdr_adamw_create(owner.stack, NULL, &optimizer));
    for (int step = 0; step < STEPS; step++) {
        const uint64_t data = dist_random(seed);
        copy_parameters(copy.stack, owner.stack);
        const double got = loss_of(&shared, 7), wanted = loss_of(&copy, 7);
        DIST_CHECK(got == wanted && isfinite(got), "step %d: the loss is %.17g, not %.17g", step, got, wanted);
        DIST_CHECK(got != before, "step %d: the loss is %.17g as before", step, got);
        before = got;
        check_gathered(shared.stack, owner.stack);
        train(&owner, optimizer, data);
    }
    qdr_adamw_destroy(&optimizer);
    if (dist_below(seed, 2)) { /* the owner goes first, and its parameters stay */
        copy_parameters(copy.stack, owner.stack);
        qdr_stack_destroy(&owner.stack);
        DIST_CHECK(loss_of(&shared, 8) == loss_of(&copy, 8), "without its owner");
    }
    qdr_stack_destroy(&shared.stack);
    qdr_stack_destroy(&owner.stack);
    qdr_stack_destroy(&copy.stack);
}

DIST_TEST(sharing_is_like_copying)
{
    round_seed round = {&seed};
    const int n = dist_rounds(3);
    for (int i = 0; i < n; i++) dist_every_grid(ctx, 1, check_grid, &round);
}

/* ---- refusals ---- */

static void forward_only(const model *shared)
{
    qdr_adamw *optimizer = NULL;
    double norm, whole[VOCABULARY * HIDDEN];
    void *gradient;
    DIST_FAILS(qdr_stack_backward(shared->stack, 0, 1), QDR_ERR_STATE, "runs forward only");
    DIST_FAILS(qdr_linear_backward(shared->inner, NULL, NULL, NULL, 0, NULL), QDR_ERR_STATE, "runs forward only");
    DIST_FAILS(qdr_stack_init(shared->stack, 1, 1), QDR_ERR_STATE, "shares the parameters");
    DIST_FAILS(qdr_linear_init(shared->inner, 1, 1), QDR_ERR_STATE, "shares the parameters");
    DIST_FAILS(qdr_stack_load_parameter(shared->stack, 0, whole), QDR_ERR_STATE, "shares the parameters");
    DIST_FAILS(qdr_stack_gather_parameter(shared->stack, 0, 1, whole), QDR_ERR_STATE, "gather a gradient");
    DIST_FAILS(qdr_stack_edge_gradient(shared->stack, 1, &gradient), QDR_ERR_STATE, "runs forward only");
    DIST_FAILS(qdr_adamw_create(shared->stack, NULL, &optimizer), QDR_ERR_STATE, "belongs to another stack");
    DIST_FAILS(qdr_grad_norm(shared->stack, &norm), QDR_ERR_STATE, "belongs to another stack");
}

static void others_are_refused(qdr_grid *grid, const model *owner, const model *shared)
{
    static const variant unlike = {.n_sequences = 3, .storage = {QDR_IN_OUT}, .dtype = QDR_F32};
    static const variant other_type = {.n_sequences = 3, .storage = {QDR_OUT_IN}, .dtype = QDR_F64};
    model m;
    describe(grid, &unlike, &m);
    DIST_FAILS(qdr_stack_share_parameters(m.stack, NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_share_parameters(NULL, owner->stack), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_share_parameters(m.stack, m.stack), QDR_ERR_STATE, "not built");
    DIST_FAILS(qdr_stack_share_parameters(m.stack, shared->stack), QDR_ERR_STATE, "those of a third one");
    DIST_FAILS(qdr_stack_share_parameters(shared->stack, owner->stack), QDR_ERR_STATE, "already built");
    DIST_OK(qdr_stack_share_parameters(m.stack, owner->stack));
    DIST_FAILS(qdr_stack_share_parameters(m.stack, owner->stack), QDR_ERR_STATE, "already");
    DIST_FAILS(qdr_stack_build(m.stack), QDR_ERR_SHAPE, "up.weight is stored differently");
    qdr_stack_destroy(&m.stack);
    describe(grid, &other_type, &m);
    DIST_OK(qdr_stack_share_parameters(m.stack, owner->stack));
    DIST_FAILS(qdr_stack_build(m.stack), QDR_ERR_DTYPE, "a stack of f64");
    qdr_stack_destroy(&m.stack);
}

/* One layer in front of another, with the names and widths given. */
static void make_small(qdr_grid *grid, const char *name, int64_t width, int bias, qdr_stack **stack)
{
    *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 2});
    qdr_edge edge = dist_input(*stack, "x", (qdr_edge_desc){.cols = {{8, 1}}, .col_axis = QDR_X}, 0);
    edge = dist_linear(*stack, (qdr_linear_desc){.name = name, .in = {{8, 1}}, .out = {{width, 1}}, .bias = bias}, edge,
                       NULL);
}

static void differences_are_named(qdr_grid *grid)
{
    static const struct {
        const char *name, *words;
        int64_t width;
        int bias;
    } others[] = {{"other", "other.weight here and a.weight", 6, 1},
                  {"a", "is 7x8 here and 6x8", 7, 1},
                  {"a", "has 1 and the one that owns them 2", 6, 0}};
    qdr_stack *owner = NULL, *stack = NULL;
    make_small(grid, "a", 6, 1, &owner);
    DIST_OK(qdr_stack_build(owner));
    for (int i = 0; i < 3; i++) {
        make_small(grid, others[i].name, others[i].width, others[i].bias, &stack);
        DIST_OK(qdr_stack_share_parameters(stack, owner));
        DIST_FAILS(qdr_stack_build(stack), QDR_ERR_SHAPE, others[i].words);
        qdr_stack_destroy(&stack);
    }
    make_small(grid, "a", 6, 1, &stack); /* on one rank alone */
    if (qdr_context_rank(qdr_grid_context(grid)) == 0) DIST_OK(qdr_stack_share_parameters(stack, owner));
    if (qdr_context_size(qdr_grid_context(grid)) > 1)
        DIST_FAILS(qdr_stack_build(stack), QDR_ERR_ARGUMENT, "rank 1 did not call");
    qdr_stack_destroy(&stack);
    qdr_stack_destroy(&owner);
}

DIST_TEST(what_cannot_be_is_refused)
{
    static const variant of_owner = {.n_sequences = 4, .storage = {QDR_OUT_IN}, .dtype = QDR_F32};
    qdr_grid *grid = dist_random_grid(ctx, &seed), *another = dist_random_grid(ctx, &seed);
    model owner, shared, elsewhere;
    make(grid, &of_owner, NULL, &owner);
    make(grid, &of_owner, owner.stack, &shared);
    forward_only(&shared);
    others_are_refused(grid, &owner, &shared);
    differences_are_named(grid);
    describe(another, &of_owner, &elsewhere);
    DIST_FAILS(qdr_stack_share_parameters(elsewhere.stack, owner.stack), QDR_ERR_ARGUMENT, "different grids");
    qdr_stack_destroy(&elsewhere.stack);
    qdr_stack_destroy(&owner.stack);
    qdr_stack_destroy(&shared.stack);
    qdr_grid_destroy(&grid);
    qdr_grid_destroy(&another);
}

/* Memory of the caller's: none for parameters and gradients. */
DIST_TEST(callers_memory)
{
    static _Alignas(64) char any_memory[64];
    static const variant of_owner = {.n_sequences = 4, .storage = {QDR_OUT_IN}, .dtype = QDR_F32};
    variant other = {.n_sequences = 2, .dtype = QDR_F32, .caller_memory = 1};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_stack_memory memory = {QDR_INIT(qdr_stack_memory)};
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    model owner, shared;
    make(grid, &of_owner, NULL, &owner);
    DIST_OK(qdr_stack_init(owner.stack, 5, 0.3));
    const double wanted = loss_of(&owner, 3);
    make(grid, &other, owner.stack, &shared);
    memory.gradients = any_memory;
    DIST_FAILS(qdr_stack_bind(shared.stack, &memory), QDR_ERR_ARGUMENT, "leave memory for parameters");
    DIST_OK(qdr_stack_get_sizes(shared.stack, &sizes));
    memory.gradients = NULL;
    DIST_OK(qdr_mem_alloc(ctx, sizes.activations, &memory.activations));
    DIST_OK(qdr_mem_alloc(ctx, sizes.workspace, &memory.workspace));
    DIST_OK(qdr_stack_bind(shared.stack, &memory));
    DIST_CHECK(isfinite(loss_of(&shared, 3)), "it runs");
    DIST_CHECK(loss_of(&owner, 3) == wanted, "the owner's parameters stay");
    qdr_stack_destroy(&shared.stack);
    qdr_stack_destroy(&owner.stack);
    qdr_mem_free(ctx, &memory.activations);
    qdr_mem_free(ctx, &memory.workspace);
    qdr_grid_destroy(&grid);
}
