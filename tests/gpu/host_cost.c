/* SPDX-License-Identifier: Apache-2.0 */
/* The host's cost of enqueuing: the forward pass of one layer without panels, and each further task, as the slope over
 * stacks of 1 and of N_LAYERS layers. Products are small, so that the GPU is never behind. */
#include <stdio.h>
#include <string.h>

#include "gpu.h"

enum { N_SAMPLES = 401, WARM_SAMPLES = 50, N_LAYERS = 33, WIDTH = 256, ROWS = 128 };

typedef struct chain {
    qdr_stack *stack;
    qdr_linear *first;
    qdr_edge in, out;
    int n_tasks; /* of a forward */
} chain;

/* One line of the printed schedule for each task; what begins with # or is empty is none. */
static int count_tasks(const qdr_stack *stack)
{
    char line[512];
    int n = 0;
    FILE *file = tmpfile();
    if (!file) gpu_leave("no temporary file");
    OK(qdr_stack_print(stack, QDR_LIST_FORWARD, file));
    rewind(file);
    while (fgets(line, sizeof line, file)) n += line[0] != '#' && line[0] != '\n';
    fclose(file);
    return n;
}

static chain make_chain(const gpu_place *place, int n_layers)
{
    chain c;
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = ROWS, .dtype = QDR_BF16};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{WIDTH, 1}}, .col_axis = QDR_X};
    OK(qdr_stack_create(place->grid, &opts, &c.stack));
    OK(qdr_stack_add_input(c.stack, "x", &input, 0, &c.in));
    c.out = c.in;
    for (int i = 0; i < n_layers; i++) {
        const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer",     .in = {{WIDTH, 1}},
                                      .out = {{WIDTH, 1}},       .transposed = i % 2, .panels = 1};
        qdr_linear *layer;
        OK(qdr_stack_add_linear(c.stack, &desc, c.out, &c.out, &layer));
        if (i == 0) c.first = layer;
    }
    OK(qdr_stack_build(c.stack));
    OK(qdr_stack_init(c.stack, 1, 0.05));
    void *x;
    OK(qdr_stack_edge_value(c.stack, c.in, &x));
    gpu_fill(place, x, ROWS * WIDTH, QDR_BF16, 1);
    c.n_tasks = count_tasks(c.stack);
    return c;
}

static double time_stack(const gpu_place *place, const chain *c)
{
    gpu_wait(place);
    const double began = gpu_now();
    OK(qdr_stack_forward(c->stack));
    return gpu_now() - began;
}

static double time_layer(const gpu_place *place, const chain *c, const void *x, void *y)
{
    gpu_wait(place);
    const double began = gpu_now();
    OK(qdr_linear_forward(c->first, x, y, 0, NULL));
    return gpu_now() - began;
}

int main(void)
{
    double layer[N_SAMPLES], one[N_SAMPLES], many[N_SAMPLES], each[N_SAMPLES];
    gpu_place place = gpu_open();
    chain single = make_chain(&place, 1), longer = make_chain(&place, N_LAYERS);
    void *x = gpu_random(&place, ROWS * WIDTH, QDR_BF16, 1);
    void *y = gpu_memory(&place, ROWS * WIDTH, QDR_BF16);
    const int more = longer.n_tasks - single.n_tasks;
    if (more < N_LAYERS - 1) gpu_leave("%d layers have only %d tasks more", N_LAYERS, more);
    for (int i = -WARM_SAMPLES; i < N_SAMPLES; i++) {
        const int at = i < 0 ? 0 : i;
        layer[at] = time_layer(&place, &single, x, y);
        one[at] = time_stack(&place, &single);
        many[at] = time_stack(&place, &longer);
        each[at] = (many[at] - one[at]) / more;
    }
    gpu_wait(&place);
    gpu_report *all = gpu_report_begin("host cost", "128 rows, 256x256, bf16");
    gpu_report_samples(all, "a layer's forward, us", layer, N_SAMPLES);
    gpu_report_samples(all, "a stack of one layer, us", one, N_SAMPLES);
    gpu_report_samples(all, "each further task, us", each, N_SAMPLES);
    gpu_report_limit(all, "a layer's forward, us", 20);
    gpu_report_limit(all, "each further task, us", 6);
    gpu_report_end(all);
    qdr_mem_free(place.ctx, &x);
    qdr_mem_free(place.ctx, &y);
    qdr_stack_destroy(&longer.stack);
    qdr_stack_destroy(&single.stack);
    gpu_close(&place);
    return 0;
}
