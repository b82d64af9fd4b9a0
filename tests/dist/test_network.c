/* SPDX-License-Identifier: Apache-2.0 */
/* Networks as parts of stacks: what is added, how it is named, what is refused. That the lists are those that plans are
 * priced by is tested in test_planned.c; what they compute, in test_mixtures.c and test_models.c. */
#include "dist.h"

enum { CONTEXT = 4 };

static qdr_network random_network(uint64_t *seed)
{
    const int64_t heads = 1 + dist_below(seed, 4), size = 2 + 2 * dist_below(seed, 3);
    return (qdr_network){QDR_INIT(qdr_network),
                         .name = "random",
                         .layers = 1 + dist_below(seed, 3),
                         .hidden = heads * size,
                         .heads = heads,
                         .kv_heads = heads,
                         .head_size = size,
                         .ffn = 3 + dist_below(seed, 40),
                         .vocab = 5 + dist_below(seed, 50),
                         .context = CONTEXT,
                         .positions = CONTEXT,
                         .qkv_bias = (int)dist_below(seed, 2),
                         .out_bias = (int)dist_below(seed, 2),
                         .mlp_bias = (int)dist_below(seed, 2),
                         .norm = (qdr_norm_kind)dist_below(seed, 2),
                         .norm_no_beta = (int)dist_below(seed, 2),
                         .norms_per_layer = 2,
                         .tied = (int)dist_below(seed, 2),
                         .parallel_residual = (int)dist_below(seed, 2),
                         .gated = (int)dist_below(seed, 2)};
}

static qdr_stack *new_stack(qdr_grid *grid, qdr_edge *tokens)
{
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 6 * CONTEXT, .row_unit = CONTEXT});
    DIST_OK(qdr_stack_add_tokens(stack, "tokens", tokens));
    return stack;
}

/* As many elements as the closed form counts, on any grid. */
DIST_TEST(parameters_are_the_networks)
{
    for (int round = 0, n = dist_rounds(20); round < n; round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const qdr_network network = random_network(&seed);
        const qdr_network_desc desc = {QDR_INIT(qdr_network_desc), .context = CONTEXT,
                                       .layout = dist_below(&seed, 2) ? QDR_SCATTERED : QDR_REPLICATED};
        qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
        qdr_edge tokens, targets;
        qdr_stack *stack = new_stack(grid, &tokens);
        DIST_OK(qdr_stack_add_network(stack, &network, &desc, tokens, &targets));
        DIST_OK(qdr_stack_build(stack));
        DIST_OK(qdr_network_params(&network, &counts));
        int64_t n_elems = 0;
        for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
            const qdr_parameter parameter = dist_parameter(stack, i);
            n_elems += parameter.n_global;
        }
        DIST_CHECK(n_elems == counts.total, "%lld parameters, not %lld", (long long)n_elems, (long long)counts.total);
        qdr_stack_destroy(&stack);
        qdr_grid_destroy(&grid);
    }
}

DIST_TEST(parts_have_names)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_network network = random_network(&seed);
    const qdr_network_desc desc = {QDR_INIT(qdr_network_desc), .context = CONTEXT, .n_layers = 2};
    network.layers = 5;
    qdr_edge tokens, targets;
    qdr_matrix matrix = {QDR_INIT(qdr_matrix)};
    qdr_stack *stack = new_stack(grid, &tokens);
    DIST_OK(qdr_stack_add_network(stack, &network, &desc, tokens, &targets));
    DIST_CHECK(qdr_stack_find_layer(stack, "block1.fc2") != NULL, "no block1.fc2");
    DIST_CHECK(qdr_stack_find_layer(stack, "embedding") != NULL, "no embedding");
    DIST_CHECK(qdr_stack_find_layer(stack, "block2.qkv") == NULL, "a third of two layers");
    DIST_CHECK(qdr_stack_find_layer(stack, "block0.gelu") == NULL, "a layer that is none");
    DIST_CHECK(qdr_stack_find_layer(stack, NULL) == NULL && qdr_stack_find_edge(NULL, "loss") == -1, "NULL");
    DIST_CHECK(qdr_stack_find_edge(stack, "loss") == targets, "other targets");
    DIST_CHECK(qdr_stack_find_edge(stack, "tokens") == -1, "no node makes an input");
    DIST_OK(qdr_stack_edge_matrix(stack, qdr_stack_find_edge(stack, "head"), &matrix));
    DIST_CHECK(matrix.cols[0].width == network.vocab, "%lld logits", (long long)matrix.cols[0].width);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}

DIST_TEST(what_the_library_lacks_is_refused)
{
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    qdr_network_desc desc = {QDR_INIT(qdr_network_desc), .context = CONTEXT};
    const qdr_network good = random_network(&seed);
    qdr_network network = good;
    qdr_edge tokens, out;
    qdr_stack *stack = new_stack(grid, &tokens);
    network = good, strcpy(network.activation, "quick_gelu");
    DIST_FAILS(qdr_stack_add_network(stack, &network, &desc, tokens, &out), QDR_ERR_UNSUPPORTED, "it has quick_gelu");
    network = good, network.kv_heads = 0;
    DIST_FAILS(qdr_stack_add_network(stack, &network, &desc, tokens, &out), QDR_ERR_SHAPE, "key heads");
    network = good, network.head_norm = (qdr_head_norm)7;
    DIST_FAILS(qdr_stack_add_network(stack, &network, &desc, tokens, &out), QDR_ERR_ARGUMENT, "head_norm is 7");
    network = good, network.layer_kinds[0] = 8;
    DIST_FAILS(qdr_stack_add_network(stack, &network, &desc, tokens, &out), QDR_ERR_ARGUMENT, "kind 8 for layer 0");
    network = good, network.window_layers = network.layers + 1;
    DIST_FAILS(qdr_stack_add_network(stack, &network, &desc, tokens, &out), QDR_ERR_SHAPE, "layers with a window");
    desc.n_layers = good.layers + 1;
    DIST_FAILS(qdr_stack_add_network(stack, &good, &desc, tokens, &out), QDR_ERR_ARGUMENT, "which has");
    desc.n_layers = 0;
    network = good, network.size = 0;
    DIST_FAILS(qdr_stack_add_network(stack, &network, &desc, tokens, &out), QDR_ERR_ARGUMENT, "QDR_INIT");
    DIST_FAILS(qdr_stack_add_network(stack, NULL, &desc, tokens, &out), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_add_network(stack, &good, &desc, tokens, NULL), QDR_ERR_ARGUMENT, "edge pointer");
    desc.stand_ins = 2;
    DIST_FAILS(qdr_stack_add_network(stack, &good, &desc, tokens, &out), QDR_ERR_ARGUMENT, "stand_ins");
    desc.stand_ins = 0, desc.n_layers = -1;
    DIST_FAILS(qdr_stack_add_network(stack, &good, &desc, tokens, &out), QDR_ERR_ARGUMENT, "-1 layers");
    DIST_CHECK(out == -1, "an edge after an error");
    desc = (qdr_network_desc){QDR_INIT(qdr_network_desc), .context = CONTEXT, .stand_ins = 1};
    network = good, strcpy(network.activation, "quick_gelu");
    DIST_OK(qdr_stack_add_network(stack, &network, &desc, tokens, &out));
    DIST_OK(qdr_stack_build(stack));
    DIST_OK(qdr_stack_forward(stack)); /* of zeros */
    DIST_OK(qdr_stack_backward(stack, 0, 1));
    dist_synchronize(ctx);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
}
