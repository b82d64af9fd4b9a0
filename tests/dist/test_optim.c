/* SPDX-License-Identifier: Apache-2.0 */
/* AdamW and the gradient norm on a stack with parameters of every kind, on random grids, compared with plain loops in
 * f64.
 *
 * Gradients are multiples of 2^-6 below 1, so Σg² is exact in any order and the norm must be right to the last bit.
 * Bounds for a parameter, with u the roundoff of the moments' type: the relative error of the scaled gradient is 2u;
 * the error after t steps of a moment is (4t + 2)·u (v: (4t + 4)·u) of the same recursion on absolute values; that of
 * m̂/(sqrt(v̂) + ε) is that of m, plus half that of v, plus 6u. Each step rounds lr, the decay and the parameter, 4u of
 * their sizes. BF16 and F16 round what they store, but not the master copy, which loading replaces. Dividing by a
 * scale of the loss is exact. */
#include "dist.h"
#include "narrow.h"
#include "nodes.h"

enum { MAX_PARAMETERS = 32, N_STEPS = 3, ROOM = 1 << 14 };
/* Edges in the order that add_layers() makes them. */
enum { TOKENS = 0, UP_IN = 2, UP_OUT = 3, LOGITS = 6 };
static const qdr_dtype types[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
static const double lr = 0.01;

/* One parameter as it is on one process. */
typedef struct serial {
    int64_t n;
    double *p, *g, *m, *v;
    double *m_size; /* the recursion of m on |g| */
    double *error; /* of p */
} serial;

typedef struct optim_case {
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_dtype dtype;
    qdr_adamw_opts opts;
    int n_parameters;
    serial parameters[MAX_PARAMETERS];
    void *full; /* room for one parameter */
    qdr_linear *up;
} optim_case;

static double *new_doubles(int64_t n)
{
    double *numbers = calloc((size_t)n + 1, sizeof *numbers);
    DIST_CHECK(numbers, "no memory for %lld numbers", (long long)n);
    return numbers;
}

/* Embedding with positions, norm, two linear layers with biases, norm, tied head. Nothing divides anything. */
static void add_layers(optim_case *c, qdr_layout layout)
{
    qdr_stack *stack = c->stack;
    const qdr_block wide = {10, 2}, inner = {9, 3};
    qdr_edge at = 0, tokens = 0;
    qdr_linear *table = NULL, *layer = NULL;
    DIST_OK(qdr_stack_add_tokens(stack, "tokens", &tokens));
    const qdr_embedding_desc embedding = {QDR_INIT(qdr_embedding_desc), "embedding", {13, 1}, wide, 2, layout};
    DIST_OK(qdr_stack_add_embedding(stack, &embedding, tokens, &at, &table));
    DIST_OK(test_add_norm(stack, "norm", 0, at, &at));
    const qdr_linear_desc up = {QDR_INIT(qdr_linear_desc), .name = "up", .in = {wide}, .out = {inner}, .bias = 1,
                                .out_layout = layout};
    DIST_OK(qdr_stack_add_linear(stack, &up, at, &at, &c->up));
    const qdr_linear_desc down = {
        QDR_INIT(qdr_linear_desc), .name = "down",      .in = {inner}, .out = {wide}, .bias = 1,
        .transposed = 1,           .out_layout = layout};
    DIST_OK(qdr_stack_add_linear(stack, &down, at, &at, &layer));
    DIST_OK(test_add_norm(stack, "last norm", 0, at, &at));
    DIST_OK(test_add_tied_head(stack, "head", table, layout, at, &at));
}

/* Takes the grid. */
static optim_case case_make(qdr_grid *grid, uint64_t *seed, qdr_dtype dtype)
{
    optim_case c = {.ctx = qdr_grid_context(grid), .grid = grid, .dtype = dtype};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = 10, .row_unit = 2, .dtype = dtype};
    int64_t most = 0;
    c.opts = (qdr_adamw_opts){QDR_INIT(qdr_adamw_opts), .weight_decay = 0.1};
    if (dist_below(seed, 2)) c.opts.clip_norm = 1;
    if (dist_below(seed, 2)) c.opts.grad_scale = 1024;
    DIST_OK(qdr_stack_create(c.grid, &opts, &c.stack));
    add_layers(&c, dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED);
    DIST_OK(qdr_stack_keep_value(c.stack, UP_IN));
    DIST_OK(qdr_stack_keep_value(c.stack, UP_OUT));
    DIST_OK(qdr_stack_build(c.stack));
    c.n_parameters = qdr_stack_n_parameters(c.stack);
    DIST_CHECK(c.n_parameters > 0 && c.n_parameters <= MAX_PARAMETERS, "%d", c.n_parameters);
    for (int i = 0; i < c.n_parameters; i++) {
        const qdr_parameter parameter = dist_parameter(c.stack, i);
        serial *s = &c.parameters[i];
        s->n = parameter.n_global;
        s->p = new_doubles(s->n);
        s->g = new_doubles(s->n);
        s->m = new_doubles(s->n);
        s->v = new_doubles(s->n);
        s->m_size = new_doubles(s->n);
        s->error = new_doubles(s->n);
        if (s->n > most) most = s->n;
    }
    c.full = new_doubles(most);
    return c;
}

static void case_free(optim_case *c)
{
    for (int i = 0; i < c->n_parameters; i++) {
        serial *s = &c->parameters[i];
        double *all[] = {s->p, s->g, s->m, s->v, s->m_size, s->error};
        for (int j = 0; j < 6; j++) free(all[j]);
    }
    free(c->full);
    qdr_stack_destroy(&c->stack);
    qdr_grid_destroy(&c->grid);
}

static void load(optim_case *c, int index, const double *values)
{
    for (int64_t j = 0; j < c->parameters[index].n; j++) dist_set(c->full, c->dtype, j, values[j]);
    DIST_OK(qdr_stack_load_parameter(c->stack, index, c->full));
}

static double scale_of(const optim_case *c) { return c->opts.grad_scale > 0 ? c->opts.grad_scale : 1; }

static int has_state(const qdr_parameter *p, int64_t j)
{
    return j >= p->state_begin && j < p->state_begin + p->n_state;
}

/* A gradient is laid out like its parameter: it is loaded as one, and copied over; `keep` gets the parameter out of the
 * way. With levels only some of its elements are complete, and nothing may read the others. */
static void set_gradient(optim_case *c, int index, uint64_t seed)
{
    serial *s = &c->parameters[index];
    qdr_parameter p = dist_parameter(c->stack, index);
    const size_t bytes = (size_t)p.n_elems * qdr_dtype_bytes(c->dtype);
    void *keep = malloc(bytes + 1);
    DIST_CHECK(keep, "no memory");
    for (int64_t j = 0; j < s->n; j++) s->g[j] = dist_value(seed, index, j);
    memcpy(keep, p.data, bytes);
    load(c, index, s->g);
    for (int64_t j = p.gradient_begin; j < p.gradient_begin + p.n_gradient; j++)
        dist_set(p.gradient, dist_sum_type(c->dtype), j - p.gradient_begin,
                 has_state(&p, j) ? scale_of(c) * dist_get(p.data, c->dtype, j) : NAN);
    memcpy(p.data, keep, bytes);
    free(keep);
}

static double serial_norm(const optim_case *c)
{
    double sum = 0;
    for (int i = 0; i < c->n_parameters; i++)
        for (int64_t j = 0; j < c->parameters[i].n; j++) sum += c->parameters[i].g[j] * c->parameters[i].g[j];
    return sqrt(sum);
}

static void serial_element(const optim_case *c, serial *s, int64_t j, double clip, double decay, int step)
{
    const double u = dist_roundoff(dist_sum_type(c->dtype)), t = step;
    const double g = s->g[j] * clip, beta1 = 0.9, beta2 = 0.95;
    s->m[j] = beta1 * s->m[j] + (1 - beta1) * g;
    s->m_size[j] = beta1 * s->m_size[j] + (1 - beta1) * fabs(g);
    s->v[j] = beta2 * s->v[j] + (1 - beta2) * g * g;
    const double root = sqrt(s->v[j] / (1 - pow(beta2, t))) + 1e-8;
    const double ratio = s->m[j] / (1 - pow(beta1, t)) / root;
    const double ratio_size = s->m_size[j] / (1 - pow(beta1, t)) / root;
    const double ratio_error = u * ((4 * t + 2) * ratio_size + (2 * t + 8) * fabs(ratio));
    const double old = s->p[j];
    s->p[j] = old - lr * (ratio + decay * old);
    s->error[j] += lr * (ratio_error + 4 * u * (fabs(ratio) + decay * fabs(old))) + u * (fabs(s->p[j]) + s->error[j]);
}

static void serial_step(optim_case *c, int step)
{
    const double norm = serial_norm(c), most = c->opts.clip_norm;
    const double clip = most > 0 && norm > most ? most / norm : 1;
    for (int i = 0; i < c->n_parameters; i++) {
        const qdr_parameter p = dist_parameter(c->stack, i);
        for (int64_t j = 0; j < c->parameters[i].n; j++)
            serial_element(c, &c->parameters[i], j, clip, p.decay ? c->opts.weight_decay : 0, step);
    }
}

/* What is gathered is near the serial value, and every copy has its bits. */
static void check_parameter(optim_case *c, int index)
{
    const serial *s = &c->parameters[index];
    const double stored = is_narrow(c->dtype) ? dist_roundoff(c->dtype) : 0;
    const qdr_parameter p = dist_parameter(c->stack, index);
    const size_t bytes = (size_t)p.n_elems * qdr_dtype_bytes(c->dtype);
    void *mine = malloc(bytes + 1);
    DIST_CHECK(mine, "no memory");
    memcpy(mine, p.data, bytes);
    DIST_OK(qdr_stack_gather_parameter(c->stack, index, 0, c->full));
    for (int64_t j = 0; j < s->n; j++) {
        const double got = dist_get(c->full, c->dtype, j);
        const double bound = s->error[j] + stored * (fabs(s->p[j]) + s->error[j]) + dist_least(c->dtype);
        DIST_CHECK(fabs(got - s->p[j]) <= bound, "%s[%lld] is %.17g, not %.17g ± %g", p.name, (long long)j, got,
                   s->p[j], bound);
    }
    DIST_OK(qdr_stack_load_parameter(c->stack, index, c->full));
    DIST_CHECK(memcmp(mine, p.data, bytes) == 0, "copies of %s differ", p.name);
    free(mine);
}

/* This rank's parameters, one after the other. Returns their bytes. */
static size_t copy_parameters(const optim_case *c, char *copy)
{
    size_t bytes = 0;
    for (int i = 0; i < c->n_parameters; i++) {
        const qdr_parameter p = dist_parameter(c->stack, i);
        const size_t n = (size_t)p.n_elems * qdr_dtype_bytes(c->dtype);
        memcpy(copy + bytes, p.data, n);
        bytes += n;
    }
    return bytes;
}

/* Whether matrices that have been updated in parts are known to be; nothing else ever is. */
static void check_stale(const optim_case *c, int updated)
{
    const int parts = qdr_grid_parts(c->grid, QDR_LEVEL_OPTIMIZER) > qdr_grid_parts(c->grid, QDR_LEVEL_WEIGHTS);
    for (int i = 0; i < c->n_parameters; i++) {
        const qdr_parameter p = dist_parameter(c->stack, i);
        DIST_CHECK(p.stale == (updated && parts && p.decay), "%s: stale is %d", p.name, p.stale);
    }
}

/* An overflow on any rank: the step does nothing on all of them, and is not counted. */
static void bad_step(optim_case *c, qdr_adamw *optimizer, uint64_t seed)
{
    char before[ROOM], after[ROOM];
    const size_t bytes = copy_parameters(c, before);
    int64_t n_before = 0, n_skipped = 0;
    double norm = 0;
    for (int i = 0; i < c->n_parameters; i++) set_gradient(c, i, seed);
    const qdr_parameter p = dist_parameter(c->stack, 0);
    if (p.n_state)
        dist_set(p.gradient, dist_sum_type(c->dtype), p.state_begin - p.gradient_begin, seed % 2 ? NAN : INFINITY);
    DIST_OK(qdr_adamw_skipped(optimizer, &n_before));
    DIST_OK(qdr_adamw_step(optimizer, lr));
    DIST_OK(qdr_adamw_norm(optimizer, &norm));
    DIST_CHECK(!isfinite(norm), "the norm is %g", norm);
    DIST_OK(qdr_adamw_skipped(optimizer, &n_skipped));
    DIST_CHECK(n_skipped == n_before + 1, "%lld steps were skipped", (long long)n_skipped);
    DIST_CHECK(copy_parameters(c, after) == bytes && !memcmp(before, after, bytes),
               "a skipped step changed a parameter");
}

static void one_step(optim_case *c, qdr_adamw *optimizer, uint64_t seed, int step)
{
    double norm = 0, again = 0;
    for (int i = 0; i < c->n_parameters; i++) set_gradient(c, i, seed);
    DIST_OK(qdr_grad_norm(c->stack, &norm));
    norm /= scale_of(c);
    DIST_CHECK(norm == serial_norm(c), "the norm is %.17g, not %.17g", norm, serial_norm(c));
    if (step % 3 == 0) DIST_OK(qdr_adamw_set_rate(optimizer, lr)); /* the rate stays */
    DIST_OK(step % 3 == 1 ? qdr_adamw_step(optimizer, lr) : qdr_adamw_step_as_set(optimizer));
    DIST_OK(qdr_adamw_norm(optimizer, &again));
    DIST_CHECK(again == norm, "the step saw %.17g, not %.17g", again, norm);
    serial_step(c, step);
    check_stale(c, 1);
    DIST_OK(qdr_stack_refresh(c->stack));
    dist_synchronize(c->ctx);
    check_stale(c, 0);
    for (int i = 0; i < c->n_parameters; i++) check_parameter(c, i);
    check_stale(c, 0);
}

/* What replaces an element of a parameter, and how far its master may then be from it: not at all, unless the master
 * rounds to the new value, too, and stays. */
static void load_element(const optim_case *c, serial *s, int64_t j, double value)
{
    const double apart = fabs(s->p[j] - value) + s->error[j];
    const double rounded = dist_roundoff(c->dtype) * fabs(value) + dist_least(c->dtype) + 2 * s->error[j];
    s->error[j] = is_narrow(c->dtype) && apart <= rounded ? apart : 0;
    s->p[j] = value;
}

/* New values for the stack and its serial copy, before the first step or between two. */
static void load_all(optim_case *c, uint64_t seed)
{
    for (int i = 0; i < c->n_parameters; i++) {
        serial *s = &c->parameters[i];
        for (int64_t j = 0; j < s->n; j++) load_element(c, s, j, dist_value(seed, i, j));
        load(c, i, s->p);
    }
}

DIST_TEST(steps)
{
    for (int round = 0, n = dist_rounds(12); round < n; round++) {
        qdr_grid *grid = round == 0 ? dist_levels_grid(ctx, &seed) : dist_random_grid(ctx, &seed);
        optim_case c = case_make(grid, &seed, types[round % 4]);
        const uint64_t data_seed = dist_random(&seed);
        size_t before = 0, after = 0, peak = 0, bytes = 0;
        qdr_adamw *optimizer = NULL;
        qdr_mem_usage(ctx, &before, &peak);
        DIST_OK(qdr_adamw_size(c.stack, &bytes));
        DIST_OK(qdr_adamw_create(c.stack, &c.opts, &optimizer));
        qdr_mem_usage(ctx, &after, &peak);
        DIST_CHECK(after - before == bytes, "took %zu bytes, not %zu", after - before, bytes);
        load_all(&c, data_seed);
        for (int step = 1; step <= N_STEPS; step++) {
            if (step == N_STEPS) load_all(&c, data_seed + N_STEPS + 1);
            if (c.dtype == QDR_F16) bad_step(&c, optimizer, data_seed + (uint64_t)step);
            one_step(&c, optimizer, data_seed + (uint64_t)step, step);
        }
        qdr_adamw_destroy(&optimizer);
        DIST_CHECK(!optimizer, "destroy sets NULL");
        case_free(&c);
    }
}

/* All tokens 0, a gradient of ones. */
static void backward(optim_case *c, int flags)
{
    qdr_owned owned = dist_edge_owned(c->stack, TOKENS);
    void *tokens = dist_edge_value(c->stack, TOKENS);
    memset(tokens, 0, (size_t)owned.n_rows * sizeof(int32_t));
    DIST_OK(qdr_stack_forward(c->stack));
    DIST_OK(qdr_stack_edge_owned(c->stack, LOGITS, &owned));
    void *gradient = dist_edge_gradient(c->stack, LOGITS);
    dist_synchronize(c->ctx);
    for (int64_t i = 0; i < owned.n_rows * owned.n_cols; i++) dist_set(gradient, c->dtype, i, 0.5);
    DIST_OK(qdr_stack_backward(c->stack, flags, 1));
    dist_synchronize(c->ctx);
}

static void check_refused(optim_case *c, qdr_adamw *optimizer, const char *name)
{
    char before[ROOM], after[ROOM];
    double norm = 1;
    const size_t bytes = copy_parameters(c, before);
    DIST_FAILS(qdr_adamw_step(optimizer, lr), QDR_ERR_STATE, "QDR_DEFER_SYNC");
    dist_sentence(name, __FILE__, __LINE__);
    DIST_FAILS(qdr_grad_norm(c->stack, &norm), QDR_ERR_STATE, "QDR_DEFER_SYNC");
    dist_synchronize(c->ctx);
    DIST_CHECK(copy_parameters(c, after) == bytes && !memcmp(before, after, bytes),
               "a refused step changed a parameter");
    DIST_FAILS(qdr_adamw_norm(optimizer, &norm), QDR_ERR_STATE, "no step");
}

/* Gradients whose last sum is missing are not stepped with, on any rank; those of one layer neither, and they are not
 * added to together with complete ones. */
DIST_TEST(deferred_sums_are_missed)
{
    optim_case c = case_make(dist_random_grid(ctx, &seed), &seed, QDR_F32);
    qdr_adamw *optimizer = NULL;
    double norm = 0;
    DIST_OK(qdr_stack_init(c.stack, 3, 0.1));
    DIST_OK(qdr_adamw_create(c.stack, &c.opts, &optimizer));
    backward(&c, QDR_DEFER_SYNC);
    check_refused(&c, optimizer, "embedding.weight");
    backward(&c, QDR_ACCUMULATE);
    DIST_OK(qdr_grad_norm(c.stack, &norm));
    void *x = dist_edge_value(c.stack, UP_IN);
    void *dy = dist_edge_value(c.stack, UP_OUT);
    DIST_OK(qdr_linear_backward(c.up, dy, x, NULL, QDR_DEFER_SYNC | QDR_NO_DX, NULL));
    check_refused(&c, optimizer, "up.weight");
    DIST_FAILS(qdr_stack_backward(c.stack, QDR_ACCUMULATE, 1), QDR_ERR_STATE, "up.weight");
    DIST_OK(qdr_linear_backward(c.up, dy, x, NULL, QDR_ACCUMULATE | QDR_NO_DX, NULL));
    DIST_OK(qdr_adamw_step(optimizer, lr));
    DIST_OK(qdr_adamw_norm(optimizer, &norm));
    qdr_adamw_destroy(&optimizer);
    case_free(&c);
}

DIST_TEST(refusals)
{
    optim_case c = case_make(dist_random_grid(ctx, &seed), &seed, QDR_F32);
    qdr_adamw_opts bad = c.opts;
    qdr_adamw *optimizer = NULL;
    double norm = 1;
    size_t bytes = 0;
    DIST_FAILS(qdr_adamw_size(NULL, &bytes), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_grad_norm(NULL, &norm), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_adamw_create(NULL, NULL, &optimizer), QDR_ERR_ARGUMENT, "stack");
    bad.beta2 = 1;
    DIST_FAILS(qdr_adamw_create(c.stack, &bad, &optimizer), QDR_ERR_ARGUMENT, "beta2 1");
    bad = c.opts, bad.clip_norm = NAN;
    DIST_FAILS(qdr_adamw_create(c.stack, &bad, &optimizer), QDR_ERR_ARGUMENT, "clip_norm");
    bad = c.opts, bad.grad_scale = -2;
    DIST_FAILS(qdr_adamw_create(c.stack, &bad, &optimizer), QDR_ERR_ARGUMENT, "grad_scale -2");
    bad = c.opts, bad.size = 3;
    DIST_FAILS(qdr_adamw_create(c.stack, &bad, &optimizer), QDR_ERR_ARGUMENT, "size is 3");
    DIST_CHECK(!optimizer, "no optimizer after an error");
    DIST_OK(qdr_adamw_create(c.stack, NULL, &optimizer));
    DIST_FAILS(qdr_adamw_norm(optimizer, &norm), QDR_ERR_STATE, "no step");
    DIST_FAILS(qdr_adamw_step(optimizer, -1), QDR_ERR_ARGUMENT, "-1");
    DIST_FAILS(qdr_adamw_step(NULL, lr), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_adamw_step_as_set(optimizer), QDR_ERR_STATE, "no learning rate");
    DIST_FAILS(qdr_adamw_step_as_set(NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_adamw_set_rate(optimizer, NAN), QDR_ERR_ARGUMENT, "nan");
    DIST_FAILS(qdr_adamw_set_rate(NULL, lr), QDR_ERR_ARGUMENT, "NULL");
    qdr_adamw_destroy(&optimizer);
    qdr_adamw_destroy(&optimizer);
    case_free(&c);
}

/* One rank's wrong option fails on all; a stack that is not built is named. */
DIST_TEST(ranks_agree)
{
    optim_case c = case_make(dist_random_grid(ctx, &seed), &seed, QDR_F64);
    qdr_adamw_opts opts = c.opts;
    qdr_adamw *optimizer = NULL;
    if (qdr_context_rank(ctx) == qdr_context_size(ctx) - 1) opts.beta1 = -1;
    DIST_FAILS(qdr_adamw_create(c.stack, &opts, &optimizer), QDR_ERR_ARGUMENT, "beta1 -1");
    DIST_CHECK(!optimizer, "no rank has an optimizer");
    qdr_stack *empty = dist_stack(c.grid, (qdr_stack_opts){.n_rows = 10, .row_unit = 2});
    qdr_stack *built = c.stack;
    c.stack = empty;
    add_layers(&c, QDR_REPLICATED);
    c.stack = built;
    DIST_FAILS(qdr_adamw_create(empty, NULL, &optimizer), QDR_ERR_STATE, "qdr_stack_build");
    qdr_stack_destroy(&empty);
    case_free(&c);
}
