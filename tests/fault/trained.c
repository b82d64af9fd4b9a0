/* SPDX-License-Identifier: Apache-2.0 */
#include "fault/trained.h"

#include "dist/dist.h"

void trained_step(trained *net, uint64_t seed)
{
    dist_step(net->stack, net->x, seed, net->y, seed + 1, 0);
    DIST_OK(qdr_adamw_step(net->optimizer, 0.01));
}

static void add_layer(const trained *net, int number, int64_t width, qdr_edge from, qdr_edge *to)
{
    char name[32];
    qdr_linear *layer;
    snprintf(name, sizeof name, "layer%d", number);
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),
                                  .name = name,
                                  .in = {{width, 1}},
                                  .out = {{width, 1}},
                                  .bias = 1,
                                  .transposed = number % 2,
                                  .storage = number % 2 ? QDR_IN_OUT : QDR_OUT_IN};
    DIST_OK(qdr_stack_add_linear(net->stack, &desc, from, to, &layer));
}

trained trained_create(qdr_context *ctx, int n_layers, int64_t width, qdr_dtype dtype)
{
    const int p = qdr_context_size(ctx), d = p >= 4 ? 2 : 1;
    trained net = {.grid = dist_grid(ctx, (qdr_grid_opts){.x = p / d, .y = 1, .z = 1, .d = d, .optimizer_parts = d})};
    net.stack = dist_stack(net.grid, (qdr_stack_opts){.n_rows = 8, .dtype = dtype, .panels = 1, .batch_parts = 1});
    net.x = dist_input(net.stack, "x", (qdr_edge_desc){.cols = {{width, 1}}, .col_axis = QDR_X}, 0);
    net.y = net.x;
    for (int i = 0; i < n_layers; i++) add_layer(&net, i, width, net.y, &net.y);
    DIST_OK(qdr_stack_build(net.stack));
    DIST_OK(qdr_stack_init(net.stack, 3, 0.5));
    DIST_OK(qdr_adamw_create(net.stack, NULL, &net.optimizer));
    trained_step(&net, 1);
    return net;
}

void trained_destroy(trained *net)
{
    qdr_adamw_destroy(&net->optimizer);
    qdr_stack_destroy(&net->stack);
    qdr_grid_destroy(&net->grid);
}

void trained_folder(char folder[TRAINED_FOLDER_BYTES])
{
    strcpy(folder, "/dev/shm/quadrille_fault_XXXXXX");
    if (mkdtemp(folder)) return;
    strcpy(folder, "/tmp/quadrille_fault_XXXXXX");
    DIST_CHECK(mkdtemp(folder), "no folder in /tmp");
}
