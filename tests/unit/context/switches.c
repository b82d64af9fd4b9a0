/* SPDX-License-Identifier: Apache-2.0 */
/* Options that are 0 or 1 are refused by name with any other value, wherever they enter. */
#include "qdr_test.h"
#include "quadrille/quadrille.h"

static qdr_context *ctx;
static qdr_grid *grid;

/* What is called with an option struct; its switches, by their places. */
typedef qdr_status (*use_fn)(const void *options);
typedef struct option {
    const char *name;
    size_t offset;
} option;
#define OPTION(type, name)                                                                                             \
    {                                                                                                                  \
#name, offsetof(type, name)                                                                                    \
    }

/* The options are right as they are, also with 1 where `ones`, and wrong with 7 or -1 in any of the switches. */
static void check_all(const void *options, size_t bytes, use_fn use, const option *switches, int n, int ones)
{
    char *changed = malloc(bytes), words[128];
    assert_non_null(changed);
    CHECK_OK(use(options));
    for (int i = 0; i < n; i++) {
        static const int wrong[] = {7, -1, 2};
        int *const value = (int *)(void *)(changed + switches[i].offset);
        for (int j = 0; j < 3; j++) {
            memcpy(changed, options, bytes);
            *value = wrong[j];
            snprintf(words, sizeof words, "%s is %d; use 0 or 1", switches[i].name, wrong[j]);
            CHECK_FAILS(use(changed), QDR_ERR_ARGUMENT, words);
        }
        *value = 1;
        if (ones) CHECK_OK(use(changed));
    }
    free(changed);
}
#define CHECK_ALL(options, use, ones, ...)                                                                             \
    check_all(&(options), sizeof(options), use, (const option[]){__VA_ARGS__},                                         \
              (int)(sizeof((const option[]){__VA_ARGS__}) / sizeof(option)), ones)

/* ---- stacks ---- */

static qdr_status use_stack(const void *options)
{
    qdr_stack *stack = NULL;
    const qdr_status status = qdr_stack_create(grid, options, &stack);
    qdr_stack_destroy(&stack);
    return status;
}

static const qdr_stack_opts stack_opts = {QDR_INIT(qdr_stack_opts), .n_rows = 4};
static const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{4, 1}}};

static qdr_status use_layer(const void *options)
{
    const qdr_linear_desc *desc = options;
    qdr_edge_desc in = input;
    qdr_stack *stack = NULL;
    qdr_edge x, y;
    CHECK_OK(qdr_stack_create(grid, &stack_opts, &stack));
    in.col_axis = desc->transposed ? QDR_Y : QDR_X;
    CHECK_OK(qdr_stack_add_input(stack, "x", &in, 1, &x));
    const qdr_status status = qdr_stack_add_linear(stack, desc, x, &y, NULL);
    qdr_stack_destroy(&stack);
    return status;
}

static qdr_status use_input(const void *options)
{
    qdr_stack *stack = NULL;
    qdr_edge x;
    CHECK_OK(qdr_stack_create(grid, &stack_opts, &stack));
    const qdr_status status = qdr_stack_add_input(stack, "x", &input, *(const int *)options, &x);
    qdr_stack_destroy(&stack);
    return status;
}

/* Of a codec that is not used. */
static qdr_status use_codecs(const void *options)
{
    qdr_stack_opts with = stack_opts;
    with.codecs = options;
    return use_stack(&with);
}

TEST(stacks)
{
    static const int none = 0;
    const qdr_linear_desc layer = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{4, 1}}, .out = {{4, 1}}};
    const qdr_codecs codecs = {QDR_INIT(qdr_codecs)};
    CHECK_ALL(stack_opts, use_stack, 1, OPTION(qdr_stack_opts, caller_memory),
              OPTION(qdr_stack_opts, caller_activations));
    CHECK_ALL(layer, use_layer, 1, OPTION(qdr_linear_desc, bias), OPTION(qdr_linear_desc, transposed),
              OPTION(qdr_linear_desc, drop_gathered));
    CHECK_ALL(none, use_input, 1, {"with_gradient", 0});
    CHECK_ALL(codecs, use_codecs, 1, OPTION(qdr_codecs, inside));
}

/* ---- matrices, codecs, checkpoints ---- */

static qdr_status use_matrix(const void *options)
{
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    return qdr_matrix_owned(grid, options, 0, &owned);
}

enum { N = 8 };

static qdr_status use_add(const void *options)
{
    const qdr_codec codec = {QDR_CODEC_INT8, 0, 0, 0};
    float y[N] = {0};
    uint32_t wire[8] = {0};
    const qdr_status status = qdr_codec_decode(ctx, &codec, QDR_F32, wire, 4 + N, N, *(const int *)options, y, NULL);
    return status == QDR_OK ? qdr_stream_synchronize(qdr_context_stream(ctx)) : status;
}

static qdr_status use_size(const void *options)
{
    const qdr_linear_desc layer = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{4, 1}}, .out = {{4, 1}}};
    size_t host_bytes;
    qdr_stack *stack = NULL;
    qdr_edge x, y;
    CHECK_OK(qdr_stack_create(grid, &stack_opts, &stack));
    CHECK_OK(qdr_stack_add_input(stack, "x", &input, 1, &x));
    CHECK_OK(qdr_stack_add_linear(stack, &layer, x, &y, NULL));
    CHECK_OK(qdr_stack_build(stack));
    const qdr_status status = qdr_checkpoint_size(stack, NULL, *(const int *)options, &host_bytes, NULL);
    qdr_stack_destroy(&stack);
    return status;
}

TEST(others)
{
    static const int none = 0;
    const qdr_matrix matrix = {QDR_INIT(qdr_matrix), .n_rows = 4, .cols = {{4, 1}}, .col_axis = QDR_X,
                               .scatter_axis = QDR_Y};
    CHECK_ALL(matrix, use_matrix, 1, OPTION(qdr_matrix, split_cols), OPTION(qdr_matrix, split_cells),
              OPTION(qdr_matrix, scatter_rows));
    CHECK_ALL(none, use_add, 1, {"add", 0});
    CHECK_ALL(none, use_size, 1, {"background", 0});
}

/* ---- the model ---- */

static qdr_status use_network(const void *options)
{
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    return qdr_network_params(options, &counts);
}

TEST(models)
{
    qdr_network network = {QDR_INIT(qdr_network), .layers = 1, .hidden = 4, .heads = 1,   .kv_heads = 1,
                           .head_size = 4,        .ffn = 4,    .vocab = 4,  .context = 4, .norms_per_layer = 2};
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    CHECK_ALL(network, use_network, 1, OPTION(qdr_network, gated), OPTION(qdr_network, qkv_bias),
              OPTION(qdr_network, out_bias), OPTION(qdr_network, mlp_bias), OPTION(qdr_network, tied),
              OPTION(qdr_network, parallel_residual));
    network.norm = (qdr_norm_kind)2;
    CHECK_FAILS(qdr_network_params(&network, &counts), QDR_ERR_ARGUMENT, "norm is 2");
}

FIXTURE(set_up)
{
    CHECK_OK(qdr_context_create_self(NULL, &ctx));
    CHECK_OK(qdr_grid_create(ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = 1}, &grid));
    return 0;
}

FIXTURE(tear_down)
{
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    return 0;
}

int main(void) { return run_all_tests(set_up, tear_down); }
