/* SPDX-License-Identifier: Apache-2.0 */
#include "linear_make.h"

layer layer_make(gpu_place *place, int64_t m, int64_t n, int64_t k, qdr_product_type products)
{
    layer l = {.place = place, .m = m, .n = n, .k = k};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = m, .dtype = QDR_BF16, .product_type = products};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{k, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{k, 1}}, .out = {{n, 1}}};
    qdr_edge x, y;
    OK(qdr_stack_create(place->grid, &opts, &l.stack));
    OK(qdr_stack_add_input(l.stack, "x", &input, 1, &x));
    OK(qdr_stack_add_linear(l.stack, &desc, x, &y, &l.linear));
    OK(qdr_stack_build(l.stack));
    OK(qdr_linear_init(l.linear, 1, 0.02));
    l.x = gpu_random(place, m * k, QDR_BF16, 1);
    l.dy = gpu_random(place, m * n, QDR_BF16, 1);
    l.y = gpu_memory(place, m * n, QDR_BF16);
    l.dx = gpu_memory(place, m * k, QDR_BF16);
    return l;
}

void layer_free(layer *l)
{
    void **all[] = {&l->x, &l->y, &l->dy, &l->dx};
    for (int i = 0; i < 4; i++) qdr_mem_free(l->place->ctx, all[i]);
    qdr_stack_destroy(&l->stack);
}

void layer_forward(const layer *l) { OK(qdr_linear_forward(l->linear, l->x, l->y, 0, NULL)); }

void layer_backward(const layer *l) { OK(qdr_linear_backward(l->linear, l->dy, l->x, l->dx, 0, NULL)); }
