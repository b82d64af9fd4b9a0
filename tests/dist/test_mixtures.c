/* SPDX-License-Identifier: Apache-2.0 */
/* Networks that mix all options at random, on random grids: loss and gradients of a step compared with one process that
 * uses plain loops (tests/reference/network_serial.h), which says, too, how far they may be off. */
#include "../reference/network_serial.h"
#include "dist.h"
#include "linear/internal.h"
#include "schedule/network.h"
#include "schedule/ops/op.h"

enum { MOST_CONTEXT = 7, MOST_SEQUENCES = 6, MOST_ROWS = MOST_CONTEXT * MOST_SEQUENCES, MOST_PASSES = 2 };

static const double loss_scale = 0.25;

static int below(uint64_t *seed, int n) { return (int)dist_below(seed, n); }

/* [1, n] */
static int up_to(uint64_t *seed, int n) { return 1 + below(seed, n); }

/* Half of the time 0, which is a default, else the number. */
static double maybe(uint64_t *seed, double number) { return below(seed, 2) * number; }

/* ---- mixtures ---- */

static void choose_rotary(uint64_t *seed, int64_t head_size, qdr_rotary *rotary)
{
    const int whole = head_size % 2 == 0 && below(seed, 2);
    rotary->columns = whole ? 0 : up_to(seed, (int)head_size / 2 * 2);
    rotary->interleaved = below(seed, 2);
    rotary->theta = maybe(seed, 50);
    rotary->magnitude = maybe(seed, 0.75);
    rotary->kind = below(seed, 2) ? QDR_ROTARY_LINEAR : QDR_ROTARY_DEFAULT;
    rotary->factor = 3;
}

static void choose_positions(uint64_t *seed, int context, qdr_network *n)
{
    const int has_kinds = below(seed, 3) > 0;
    n->positions = below(seed, 3) ? 0 : context;
    n->window = below(seed, 2) ? up_to(seed, context + 1) : 0;
    n->window_layers = n->window ? below(seed, (int)n->layers + 1) : 0;
    if (n->head_size > 1) choose_rotary(seed, n->head_size, &n->rotary);
    if (n->head_size > 1) choose_rotary(seed, n->head_size, &n->local_rotary);
    for (int i = 0; has_kinds && i < n->layers; i++) n->layer_kinds[i] = (unsigned char)below(seed, 8);
    for (int i = 0; n->head_size == 1 && i < n->layers; i++) n->layer_kinds[i] |= QDR_LAYER_UNROTATED;
    int is_any = 0, n_windows = 0;
    for (int i = 0; i < n->layers; i++) is_any |= n->layer_kinds[i], n_windows += n->layer_kinds[i] & QDR_LAYER_WINDOW;
    if (is_any) n->window_layers = n_windows;
}

static qdr_network choose(uint64_t *seed, int context)
{
    static const char *const activations[] = {"gelu", "gelu_new", "silu", "relu", "relu2"};
    const int kv_heads = up_to(seed, 3);
    qdr_network n = {QDR_INIT(qdr_network),
                     .name = "mixture",
                     .layers = up_to(seed, 3),
                     .hidden = up_to(seed, 14),
                     .heads = kv_heads * up_to(seed, 3),
                     .kv_heads = kv_heads,
                     .head_size = up_to(seed, 5),
                     .ffn = up_to(seed, 14),
                     .vocab = up_to(seed, 20),
                     .context = context,
                     .gated = below(seed, 2),
                     .qkv_bias = below(seed, 2),
                     .out_bias = below(seed, 2),
                     .mlp_bias = below(seed, 2),
                     .norm = (qdr_norm_kind)below(seed, 2),
                     .norm_no_beta = below(seed, 2),
                     .norm_one_plus = below(seed, 2),
                     .norm_epsilon = maybe(seed, 0.01),
                     .tied = below(seed, 2),
                     .parallel_residual = below(seed, 2),
                     .norm_place = (qdr_norm_place)below(seed, 3),
                     .head_norm = (qdr_head_norm)below(seed, 3),
                     .attention_scale = maybe(seed, 0.75),
                     .attention_cap = maybe(seed, 1.5),
                     .logits_cap = maybe(seed, 2),
                     .embedding_factor = maybe(seed, 1.75),
                     .branch_factor = maybe(seed, 0.7),
                     .logits_factor = maybe(seed, 1.3)};
    if (n.norm != QDR_NORM_LAYER) n.norm_no_beta = 0;
    strcpy(n.activation, activations[below(seed, 5)]);
    n.norms_per_layer = n.parallel_residual && n.norm_place == QDR_NORM_BEFORE ? below(seed, 2) : 0;
    choose_positions(seed, context, &n);
    return n;
}

/* A mixture with numbers for its parameters, all of which every type has exactly. */
static serial_network make_oracle(uint64_t *seed)
{
    const int context = up_to(seed, MOST_CONTEXT);
    const qdr_network network = choose(seed, context);
    const int sinks = below(seed, 3) == 0;
    serial_network oracle = serial_network_make(&network, context, sinks);
    const uint64_t values = dist_random(seed);
    oracle.z_loss = maybe(seed, 0.25);
    for (int i = 0; i < oracle.n_tensors; i++)
        for (int64_t k = 0; k < oracle.tensors[i].n; k++)
            oracle.tensors[i].value[k] = (strstr(oracle.tensors[i].name, "gamma") && !network.norm_one_plus) +
                                         0.5 * dist_value(values, i, k);
    return oracle;
}

static void choose_tokens(uint64_t *seed, const serial_network *oracle, int n_rows, int32_t *tokens, int32_t *targets)
{
    const int vocab = (int)oracle->network.vocab;
    for (int i = 0; i < n_rows; i++) {
        tokens[i] = below(seed, 12) ? below(seed, vocab) : -1;
        targets[i] = below(seed, 6) ? below(seed, vocab) : -1;
    }
}

/* Half of the time there are documents: in each sequence a row begins another one every now and then. */
static const int32_t *choose_documents(uint64_t *seed, const serial_network *oracle, int n_rows, int32_t *first_keys)
{
    for (int i = 0; i < n_rows; i++) {
        const int row = i % oracle->context;
        first_keys[i] = row && below(seed, 3) ? first_keys[i - 1] : row;
    }
    return below(seed, 2) ? first_keys : NULL;
}

/* ---- the oracle ---- */

static double run(serial_network *oracle, int n_rows, const int32_t *tokens, const int32_t *targets)
{
    return serial_network_backprop(oracle, n_rows / oracle->context, tokens, targets, 1, (serial_noise){0});
}

/* The loss, with `step` times a direction, drawn from the seed, added to a tensor. */
static double loss_along(serial_network *oracle, serial_tensor *tensor, double step, uint64_t direction, int n_rows,
                         const int32_t *tokens, const int32_t *targets)
{
    for (int64_t k = 0; k < tensor->n; k++) tensor->value[k] += step * dist_value(direction, k, 0);
    const double loss = run(oracle, n_rows, tokens, targets);
    for (int64_t k = 0; k < tensor->n; k++) tensor->value[k] -= step * dist_value(direction, k, 0);
    return loss;
}

/* Central differences err by h²/6 times the third derivative, so that those of 2h and h differ by three times the error
 * of h; and by the roundings of a loss of some hundred operations, over h. */
static void check_tensor(serial_network *oracle, serial_tensor *tensor, uint64_t direction, int n_rows,
                         const int32_t *tokens, const int32_t *targets)
{
    const double h = 1e-5, gradient_error = 1e3 * 0x1p-53 * n_rows / h;
    double slope = 0, differences[2];
    (void)run(oracle, n_rows, tokens, targets);
    for (int64_t k = 0; k < tensor->n; k++) slope += tensor->gradient[k] * dist_value(direction, k, 0);
    for (int i = 0; i < 2; i++)
        differences[i] = (loss_along(oracle, tensor, (i + 1) * h, direction, n_rows, tokens, targets) -
                          loss_along(oracle, tensor, -(i + 1) * h, direction, n_rows, tokens, targets)) /
                         (2 * (i + 1) * h);
    const double bound = fabs(differences[1] - differences[0]) + gradient_error;
    DIST_CHECK(fabs(slope - differences[0]) <= bound, "%s: %.12g by the notes, %.12g by differences, ± %.2g",
               tensor->name, slope, differences[0], bound);
}

DIST_TEST(oracle_by_differences)
{
    int32_t tokens[MOST_ROWS], targets[MOST_ROWS], first_keys[MOST_ROWS];
    for (int round = 0; qdr_context_rank(ctx) == 0 && round < 10; round++) {
        serial_network oracle = make_oracle(&seed);
        const int n_rows = 2 * oracle.context;
        /* Where a slope jumps, differences are between both. */
        if (strcmp(oracle.network.activation, "relu") == 0) strcpy(oracle.network.activation, "relu2");
        choose_tokens(&seed, &oracle, n_rows, tokens, targets);
        oracle.first_keys = choose_documents(&seed, &oracle, n_rows, first_keys);
        for (int i = 0; i < oracle.n_tensors; i++)
            check_tensor(&oracle, &oracle.tensors[i], dist_random(&seed), n_rows, tokens, targets);
        serial_network_free(&oracle);
    }
}

/* ---- the library ---- */

typedef struct mixture {
    serial_network oracle;
    qdr_grid *grid;
    qdr_stack *stack;
    void *memory;
    qdr_dtype dtype;
    qdr_layout layout;
    int n_rows, n_passes; /* gradients are sums over several passes */
    qdr_edge tokens_at, targets_at, first_keys_at;
    /* of one pass after the other */
    int32_t tokens[MOST_PASSES * MOST_ROWS], targets[MOST_PASSES * MOST_ROWS], first_keys[MOST_PASSES * MOST_ROWS];
} mixture;

/* As qdr_stack_add_network() does, but attention may have sinks, which no member of a network says. */
static qdr_status add_node(void *user, const qdri_node_desc *desc, int64_t layer, qdr_edge *edge)
{
    const mixture *m = user;
    char name[64];
    qdri_node_desc named = *desc;
    if (layer >= 0 && layer < m->oracle.network.layers) {
        snprintf(name, sizeof name, "block%d.%s", (int)layer, desc->name);
        named.name = name;
    }
    if (desc->kind == QDRI_NODE_ATTENTION) named.u.attention.sinks = m->oracle.sinks;
    qdri_network_enter(&m->stack->net, layer, m->oracle.network.layers);
    return qdri_stack_add_node(m->stack, &named, edge);
}

static int reads(const qdr_stack *stack, int node, qdri_ref what)
{
    const qdri_schedule *backward = &stack->lists.backward[0];
    int n = 0;
    for (int t = 0; t < backward->n_tasks; t++)
        for (int i = 0; backward->tasks[t].node == node && i < backward->tasks[t].n_reads; i++)
            n += backward->tasks[t].reads[i].buffer == what.buffer;
    return n > 0;
}

/* A backward reads of what the forward left, if there is any on this rank, what qdri_op.backward_needs says; but where
 * key heads are gathered, a copy of its input. */
static void check_needs(const qdr_stack *stack)
{
    const qdri_net *net = &stack->net;
    for (int i = 0; i < net->n_nodes; i++) {
        const qdri_node *node = &net->nodes[i];
        const int needs = qdri_node_is_layer(node) ? 0 : qdri_op_backward_needs(node->kind);
        for (int k = 0; needs && k < node->n_in + 2; k++) {
            const int edge = k < node->n_in ? node->in[k] : node->out, is_saved = k > node->n_in;
            const int bit = k < node->n_in ? QDRI_NEEDS_INPUT << k : is_saved ? QDRI_NEEDS_SAVED : QDRI_NEEDS_OUTPUT;
            const qdri_ref what = is_saved ? node->saved : edge < 0 ? QDRI_NO_REF : net->edges[edge].value;
            if (what.buffer < 0 || (k == 0 && node->keys.gathered)) continue;
            DIST_CHECK(reads(stack, i, what) == ((needs & bit) > 0),
                       "the backward of %s reads %d of what bit %x of %x says", node->name, reads(stack, i, what),
                       (unsigned)bit, (unsigned)needs);
        }
    }
}

static void make_stack(uint64_t *seed, mixture *m)
{
    const int context = m->oracle.context;
    const qdr_edge *first_keys = m->oracle.first_keys ? &m->first_keys_at : NULL;
    const qdri_network_part part = {.network = &m->oracle.network,
                                    .context = context,
                                    .layout = m->layout,
                                    .first_keys = first_keys,
                                    .z_loss = m->oracle.z_loss,
                                    .n_layers = m->oracle.network.layers,
                                    .has_ends = 1,
                                    .n_ranks_y = qdr_grid_size(m->grid, QDR_Y)};
    const qdr_network_desc desc = {QDR_INIT(qdr_network_desc), .context = context, .layout = m->layout,
                                   .first_keys = first_keys, .z_loss = m->oracle.z_loss};
    m->stack = dist_stack(m->grid, (qdr_stack_opts){.recompute = (qdr_recompute)(m->n_rows % 4),
                                                    .recompute_every = m->n_rows / 4 % 3,
                                                    .n_rows = m->n_rows,
                                                    .row_unit = context,
                                                    .dtype = m->dtype,
                                                    .overlap = below(seed, QDR_OVERLAP_NONE + 1),
                                                    .prefetch = below(seed, 4),
                                                    .panels = below(seed, 5),
                                                    .batch_parts = below(seed, 4),
                                                    .caller_memory = 1});
    DIST_OK(qdr_stack_add_tokens(m->stack, "tokens", &m->tokens_at));
    if (first_keys) DIST_OK(qdr_stack_add_tokens(m->stack, "first keys", &m->first_keys_at));
    if (m->oracle.sinks)
        DIST_OK(qdri_network_add(&part, add_node, m, m->tokens_at, &m->targets_at));
    else
        DIST_OK(qdr_stack_add_network(m->stack, part.network, &desc, m->tokens_at, &m->targets_at));
    m->memory = dist_build_in_nan(m->stack);
    check_needs(m->stack);
}

static void fill(const mixture *m, qdr_edge edge, const int32_t *values)
{
    const qdr_owned owned = dist_edge_owned(m->stack, edge);
    memcpy(dist_edge_value(m->stack, edge), values + owned.rows.begin, (size_t)owned.n_rows * sizeof *values);
}

typedef struct seen {
    const qdr_stack *stack;
    int n;
} seen;

static void see(const qdr_network_parameter *listed, void *user)
{
    seen *s = user;
    const qdr_parameter p = dist_parameter(s->stack, s->n++);
    DIST_CHECK(strcmp(p.name, listed->name) == 0 && p.n_rows == listed->n_rows && p.n_cols == listed->n_cols,
               "%s of %d rows is listed as %s of %d", p.name, (int)p.n_rows, listed->name, (int)listed->n_rows);
}

static void load(const mixture *m)
{
    const int n = qdr_stack_n_parameters(m->stack);
    seen listed = {m->stack, 0};
    if (!m->oracle.sinks) {
        DIST_OK(qdr_network_parameters(&m->oracle.network, see, &listed));
        DIST_CHECK(listed.n == n, "%d parameters, %d listed", n, listed.n);
    }
    DIST_CHECK(n == m->oracle.n_tensors, "%d parameters, not %d", n, m->oracle.n_tensors);
    for (int i = 0; i < n; i++) {
        const qdr_parameter p = dist_parameter(m->stack, i);
        const serial_tensor *tensor = &m->oracle.tensors[i];
        DIST_CHECK(strcmp(p.name, tensor->name) == 0 && tensor->n == p.n_global, "%s of %d elements, not %s of %d",
                   p.name, (int)p.n_global, tensor->name, (int)tensor->n);
        void *full = malloc((size_t)p.n_global * qdr_dtype_bytes(m->dtype));
        DIST_CHECK(full != NULL, "memory");
        for (int64_t k = 0; k < tensor->n; k++) dist_set(full, m->dtype, k, tensor->value[k]);
        DIST_OK(qdr_stack_load_parameter(m->stack, i, full));
        free(full);
    }
}

static void check_gradient(const mixture *m, int index, const char *where)
{
    const qdr_parameter p = dist_parameter(m->stack, index);
    const serial_tensor *tensor = &m->oracle.tensors[index];
    const int is_root = qdr_context_rank(qdr_grid_context(m->grid)) == 0;
    double *full = malloc((size_t)p.n_global * sizeof *full);
    DIST_CHECK(full != NULL, "memory");
    DIST_OK(qdr_stack_gather_parameter(m->stack, index, QDR_PARAMETER_GRADIENT, is_root ? full : NULL));
    for (int64_t k = p.n_global - 1; is_root && k >= 0; k--)
        full[k] = dist_get(full, m->dtype, k); /* wider, from the end */
    const double distance = is_root ? serial_tensor_distance(tensor, full) : 0;
    DIST_CHECK(!is_root || distance <= tensor->off, "%s: the gradient of %s is off by %.2g, more than %.2g", where,
               p.name, distance, tensor->off);
    free(full);
}

static void step_and_check(mixture *m, uint64_t seed, const char *where)
{
    qdr_context *ctx = qdr_grid_context(m->grid);
    const int is_root = qdr_context_rank(ctx) == 0;
    double loss = 0, expected = 0;
    int64_t n_valid = 0;
    for (int pass = 0; pass < m->n_passes; pass++) {
        double sum;
        int64_t n;
        const int flags = (pass ? QDR_ACCUMULATE : 0) | (pass + 1 < m->n_passes ? QDR_DEFER_SYNC : 0);
        fill(m, m->tokens_at, m->tokens + pass * m->n_rows);
        fill(m, m->targets_at, m->targets + pass * m->n_rows);
        if (m->oracle.first_keys) fill(m, m->first_keys_at, m->first_keys + pass * m->n_rows);
        DIST_OK(qdr_stack_forward(m->stack));
        DIST_OK(qdr_stack_backward(m->stack, flags, loss_scale));
        DIST_OK(qdr_stack_loss(m->stack, &sum, &n));
        loss += sum;
        n_valid += n;
    }
    dist_synchronize(ctx);
    for (int row = 0; row < m->n_passes * m->n_rows; row++) n_valid -= m->targets[row] >= 0;
    DIST_CHECK(n_valid == 0, "%s: %d rows too many counted", where, (int)n_valid);
    if (is_root)
        expected = serial_network_expect(&m->oracle, m->n_passes * m->n_rows / m->oracle.context, m->tokens, m->targets,
                                         loss_scale, dist_roundoff(m->dtype), seed);
    DIST_CHECK(!is_root || fabs(loss - expected) <= m->oracle.loss_off, "%s: the loss is %.17g, not %.17g ± %.2g",
               where, loss, expected, m->oracle.loss_off);
    for (int i = 0; i < m->oracle.n_tensors; i++) check_gradient(m, i, where);
}

DIST_TEST(mixtures)
{
    for (int round = 0, n = dist_rounds(20); round < n; round++) {
        mixture m = {.grid = dist_random_grid(ctx, &seed), .dtype = below(&seed, 2) ? QDR_F64 : QDR_F32};
        m.oracle = make_oracle(&seed);
        m.layout = (qdr_layout)below(&seed, 2);
        m.n_rows = m.oracle.context * below(&seed, MOST_SEQUENCES + 1);
        m.n_passes = up_to(&seed, MOST_PASSES);
        choose_tokens(&seed, &m.oracle, m.n_passes * m.n_rows, m.tokens, m.targets);
        m.oracle.first_keys = choose_documents(&seed, &m.oracle, m.n_passes * m.n_rows, m.first_keys);
        make_stack(&seed, &m);
        load(&m);
        char where[120];
        snprintf(where, sizeof where, "mixture %d, %dx%dx%dx%d %s %s", round, qdr_grid_size(m.grid, QDR_X),
                 qdr_grid_size(m.grid, QDR_Y), qdr_grid_size(m.grid, QDR_Z), qdr_grid_size(m.grid, QDR_D),
                 m.layout ? "scattered" : "replicated", qdr_dtype_name(m.dtype));
        step_and_check(&m, dist_random(&seed), where);
        qdr_stack_destroy(&m.stack);
        qdr_mem_free(ctx, &m.memory);
        qdr_grid_destroy(&m.grid);
        serial_network_free(&m.oracle);
    }
}
