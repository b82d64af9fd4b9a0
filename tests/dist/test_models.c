/* SPDX-License-Identifier: Apache-2.0 */
/* Networks of config.json files against Hugging Face's transformers: loss, logits' gradients and steps of AdamW that
 * tests/reference/networks/oracle.py has computed in float64, on several grids, in both layouts.
 *
 *   test_models [--type f64|f32] [--grid XxYxZxD] [CASE ...]
 *
 * Parameters and tokens are functions of names and indices, so that expected.json is all that is read besides the
 * config.json. */
#include "core/json.h"
#include "dist.h"
#include "reference/model_tensors.h"

enum { N_SEQUENCES = 3, CONTEXT = 22, VOCAB = 67, N_STEPS = 20, N_ROWS = N_SEQUENCES * CONTEXT, N_SHORT = 4 };

/* How far results may be off: the loss, a gradient relative to its norm, losses of later steps. */
typedef struct tolerance {
    double loss, gradient, later;
} tolerance;

typedef struct run {
    const char *name;
    qdr_network network;
    qdr_dtype dtype;
    int size[QDR_N_AXES];
    qdr_layout layout;
    tolerance may_be_off;
    const qdri_json_node *expected;
    int n_bad;
} run;

static _Thread_local const run *at;

static void bad(const char *what, const char *name, double got, double expected, double off)
{
    fprintf(stderr, "%s, %dx%dx%dx%d %s %s: %s%s%s is %.17g, not %.17g: off by %.2g\n", at->name, at->size[0],
            at->size[1], at->size[2], at->size[3], at->layout ? "scattered" : "replicated", qdr_dtype_name(at->dtype),
            what, *name ? " of " : "", name, got, expected, off);
}

static double number(qdri_json_node node)
{
    double value = NAN;
    DIST_OK(qdri_json_number(node, -INFINITY, INFINITY, &value));
    return value;
}

/* ---- the stack ---- */

static qdr_stack *make_stack(qdr_grid *grid, qdr_edge *tokens, qdr_edge *targets)
{
    const qdr_network_desc desc = {QDR_INIT(qdr_network_desc), .context = CONTEXT, .layout = at->layout};
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = N_ROWS, .row_unit = CONTEXT, .dtype = at->dtype});
    DIST_OK(qdr_stack_add_tokens(stack, "tokens", tokens));
    DIST_OK(qdr_stack_add_network(stack, &at->network, &desc, *tokens, targets));
    DIST_OK(qdr_stack_build(stack));
    return stack;
}

static int32_t token(int64_t sequence, int64_t position)
{
    return (int32_t)((tensor_number("text", sequence * (CONTEXT + 1) + position) + 1) / 2 * VOCAB);
}

/* The rows that this rank reads, and those whose logits it has. */
static void fill(const qdr_stack *stack, qdr_edge edge, int is_target)
{
    const qdr_owned owned = dist_edge_owned(stack, edge);
    int32_t *values = dist_edge_value(stack, edge);
    for (int64_t i = 0; i < owned.n_rows; i++) {
        const int64_t row = owned.rows.begin + i, sequence = row / CONTEXT, position = row % CONTEXT;
        values[i] = token(sequence, position + is_target);
        if (is_target && ((sequence == 0 && position < 3) || (sequence == 2 && position == 5))) values[i] = -1;
    }
}

static void load_parameters(qdr_stack *stack, int index)
{
    const qdr_parameter p = dist_parameter(stack, index);
    void *full = malloc((size_t)p.n_global * qdr_dtype_bytes(at->dtype));
    tensor_list list;
    DIST_CHECK(full != NULL, "memory");
    DIST_CHECK(tensors_of(&at->network, p.name, &list), "%s is in no tensor of the model", p.name);
    for (int t = 0; t < list.n; t++) {
        const tensor *one = &list.of[t];
        for (int64_t i = 0; i < one->n_rows * one->n_cols; i++)
            dist_set(full, at->dtype, tensor_place(one, i), tensor_value(one, i));
    }
    DIST_OK(qdr_stack_load_parameter(stack, index, full));
    free(full);
}

/* ---- comparing ---- */

static int is_off(double got, double expected, double may_be_off) { return !(fabs(got - expected) <= may_be_off); }

/* Norm and three projections of each of the model's tensors that the parameter holds. */
static int check_gradient(qdr_stack *stack, int index, const qdri_json_node *gradients)
{
    static const char *const names[N_SHORT] = {"the norm", "projection 0", "projection 1", "projection 2"};
    const qdr_parameter p = dist_parameter(stack, index);
    const qdr_dtype type = dist_sum_type(at->dtype);
    void *full = malloc((size_t)p.n_global * qdr_dtype_bytes(type));
    tensor_list list;
    int n_bad = 0;
    DIST_CHECK(full != NULL, "memory");
    DIST_CHECK(tensors_of(&at->network, p.name, &list), "%s is in no tensor of the model", p.name);
    DIST_OK(qdr_stack_gather_parameter(stack, index, QDR_PARAMETER_GRADIENT, full));
    for (int t = 0; t < list.n; t++) {
        const tensor *one = &list.of[t];
        const qdri_json_node node = qdri_json_get(gradients, one->name);
        double got[N_SHORT] = {0}, squares = 0;
        for (int64_t i = 0; i < one->n_rows * one->n_cols; i++) {
            const double g = dist_get(full, type, tensor_place(one, i));
            squares += g * g;
            for (int k = 1; k < N_SHORT; k++) {
                const char dot[] = {'d', 'o', 't', (char)('0' + k - 1), '\0'};
                got[k] += g * tensor_number(dot, i);
            }
        }
        got[0] = sqrt(squares);
        const double norm = number(qdri_json_at(&node, 0));
        for (int k = 0; k < N_SHORT; k++) {
            const double expected = number(qdri_json_at(&node, (size_t)k));
            if (!is_off(got[k], expected, at->may_be_off.gradient * norm + 1e-15)) continue;
            if (qdr_context_rank(qdr_grid_context(qdr_stack_grid(stack))) == 0)
                bad(names[k], one->name, got[k], expected, fabs(got[k] - expected) / norm);
            n_bad++;
        }
    }
    free(full);
    return n_bad;
}

static double mean_loss(qdr_stack *stack)
{
    double sum = 0;
    int64_t n_valid = 0;
    DIST_OK(qdr_stack_loss(stack, &sum, &n_valid));
    return sum / (double)n_valid;
}

/* Gradients of the mean over the valid targets of all ranks. */
static const double valid_targets = N_ROWS - 4;

static int run_rank(qdr_local_world *world, int rank, void *user)
{
    run *r = user;
    qdr_context *ctx = NULL;
    qdr_grid *grid = NULL;
    qdr_adamw *optimizer = NULL;
    qdr_edge tokens, targets;
    int n_bad = 0;
    at = r;
    const qdr_context_opts one_thread = {QDR_INIT(qdr_context_opts), .n_threads = 1};
    DIST_OK(qdr_context_create_local(world, rank, &one_thread, &ctx));
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = r->size[0], .y = r->size[1], .z = r->size[2],
                                 .d = r->size[3]};
    DIST_OK(qdr_grid_create(ctx, &shape, &grid));
    qdr_stack *stack = make_stack(grid, &tokens, &targets);
    const qdr_adamw_opts opts = {QDR_INIT(qdr_adamw_opts), .weight_decay = 0.1, .decay_positions = 1};
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) load_parameters(stack, i);
    DIST_OK(qdr_adamw_create(stack, &opts, &optimizer));
    fill(stack, tokens, 0);
    fill(stack, targets, 1);
    const qdri_json_node losses = qdri_json_get(r->expected, "losses"),
                         gradients = qdri_json_get(r->expected, "gradients");
    for (int step = 0; step < N_STEPS; step++) {
        DIST_OK(qdr_stack_forward(stack));
        DIST_OK(qdr_stack_backward(stack, 0, 1 / valid_targets));
        const double loss = mean_loss(stack), expected = number(qdri_json_at(&losses, (size_t)step));
        if (is_off(loss, expected, step ? r->may_be_off.later : r->may_be_off.loss)) {
            char which[20];
            snprintf(which, sizeof which, "step %d", step);
            if (rank == 0) bad("the loss", which, loss, expected, fabs(loss - expected));
            n_bad++;
            break;
        }
        for (int i = 0; step == 0 && i < qdr_stack_n_parameters(stack); i++)
            n_bad += check_gradient(stack, i, &gradients);
        DIST_OK(qdr_adamw_step(optimizer, 1e-2));
    }
    if (rank == 0) r->n_bad += n_bad;
    qdr_adamw_destroy(&optimizer);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    return 0;
}

/* ---- cases ---- */

static const char *const cases[] = {"cohere2",
                                    "gemma",
                                    "gemma2",
                                    "glm4",
                                    "gpt2",
                                    "gpt_neox",
                                    "gpt_neox-serial",
                                    "granite",
                                    "llama",
                                    "llama-dynamic",
                                    "llama-linear",
                                    "llama-llama3",
                                    "llama-one-key-head",
                                    "llama-tied-biases",
                                    "llama-yarn",
                                    "mistral",
                                    "olmo2",
                                    "olmo3",
                                    "phi3",
                                    "phi3-long",
                                    "qwen2",
                                    "qwen2-window",
                                    "qwen3",
                                    "smollm3",
                                    "starcoder2"};

static const int grids[][QDR_N_AXES] = {{1, 1, 1, 1}, {2, 1, 1, 1}, {1, 2, 1, 1}, {1, 3, 1, 2},
                                        {1, 1, 2, 1}, {1, 1, 1, 2}, {2, 2, 2, 1}};

static int run_case(const char *name, qdr_dtype dtype, const int *only)
{
    char path[600];
    qdri_json *document;
    qdri_json_node root;
    run r = {.name = name, .dtype = dtype, .network = {QDR_INIT(qdr_network)}, .expected = &root};
    r.may_be_off = dtype == QDR_F64 ? (tolerance){1e-12, 1e-10, 1e-9} : (tolerance){1e-5, 1e-4, 1e-4};
    /* AdamW moves an element whose gradient is smaller than F32's errors by the whole rate, either way. */
    if (dtype == QDR_F32 && strcmp(name, "llama-dynamic") == 0) r.may_be_off.later = 1e-3;
    snprintf(path, sizeof path, "%s/%s/config.json", getenv("QDR_TEST_NETWORKS"), name);
    DIST_OK(qdr_network_load(path, &r.network));
    if (r.network.positions) r.network.positions = CONTEXT; /* the others are not learned from these tokens */
    snprintf(path, sizeof path, "%s/%s/expected.json", getenv("QDR_TEST_NETWORKS"), name);
    DIST_OK(qdri_json_load(path, &document));
    DIST_OK(qdri_json_root(document, &root));
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
        for (int layout = 0; layout < 2; layout++) {
            int failed = 0;
            memcpy(r.size, grids[g], sizeof r.size);
            r.layout = (qdr_layout)layout;
            if (only && memcmp(only, r.size, sizeof r.size) != 0) continue;
            DIST_OK(qdr_local_run(r.size[0] * r.size[1] * r.size[2] * r.size[3], run_rank, &r, &failed));
        }
    printf("%s %s: %s\n", name, qdr_dtype_name(dtype), r.n_bad ? "differs" : "as transformers");
    qdri_json_free(&document);
    return r.n_bad > 0;
}

int main(int argc, char **argv)
{
    int grid[QDR_N_AXES], *only = NULL, n_bad = 0, first = 1;
    qdr_dtype dtype = QDR_F64;
    for (; first + 1 < argc && strncmp(argv[first], "--", 2) == 0; first += 2) {
        if (strcmp(argv[first], "--type") == 0) dtype = strcmp(argv[first + 1], "f32") == 0 ? QDR_F32 : QDR_F64;
        if (strcmp(argv[first], "--grid") == 0 &&
            sscanf(argv[first + 1], "%dx%dx%dx%d", &grid[0], &grid[1], &grid[2], &grid[3]) == QDR_N_AXES)
            only = grid;
    }
    if (first < argc)
        for (int i = first; i < argc; i++) n_bad += run_case(argv[i], dtype, only);
    else
        for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) n_bad += run_case(cases[i], dtype, only);
    return n_bad > 0;
}
