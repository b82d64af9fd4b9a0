/* SPDX-License-Identifier: Apache-2.0 */
/* Uses structs of all kinds, and prints what comes of it. Built with the headers of other releases (other_release.py),
 * it must print the same: releases.py compares. NEWER: with a member `newer`, which this library does not have. */
#include <quadrille/quadrille.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 8, IN = 6, OUT = 4 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        if ((call) != QDR_OK) {                                                                                        \
            fprintf(stderr, "%d: %s: %s\n", __LINE__, #call, qdr_last_error());                                        \
            exit(1);                                                                                                   \
        }                                                                                                              \
    } while (0)

/* Memory in which no struct ends with zeros by chance. */
#define BEGIN(type, name)                                                                                              \
    struct {                                                                                                           \
        type of;                                                                                                       \
        unsigned char behind[64];                                                                                      \
    } name##_all;                                                                                                      \
    memset(&name##_all, 0xee, sizeof name##_all);                                                                      \
    name##_all.of = (type){QDR_INIT(type)};                                                                            \
    type *const name = &name##_all.of

static void print_sizes(void)
{
    printf("sizes %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu %zu\n", sizeof(qdr_context_opts),
           sizeof(qdr_grid_opts), sizeof(qdr_stack_opts), sizeof(qdr_edge_desc), sizeof(qdr_linear_desc),
           sizeof(qdr_adamw_opts), sizeof(qdr_matrix), sizeof(qdr_owned), sizeof(qdr_stack_sizes),
           sizeof(qdr_parameter), sizeof(qdr_traffic), sizeof(qdr_plan), sizeof(qdr_plan_result));
}

static qdr_status double_it(const qdr_op_call *call, void *user)
{
    (void)user;
    CHECK(qdr_stream_synchronize(call->stream));
    for (int64_t i = 0; i < call->n_rows * call->out_cols; i++) ((float *)call->out)[i] = 2 * ((float *)call->in[0])[i];
    return QDR_OK;
}

static qdr_status double_gradient(const qdr_op_call *call, void *user)
{
    (void)user;
    CHECK(qdr_stream_synchronize(call->stream));
    for (int64_t i = 0; i < call->n_rows * call->out_cols; i++)
        ((float *)call->d_in[0])[i] = 2 * ((float *)call->d_out)[i];
    return QDR_OK;
}

static void fill(qdr_context *ctx, void *data, int64_t n)
{
    CHECK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    for (int64_t i = 0; i < n; i++) ((float *)data)[i] = (float)(i % 5) - 2;
}

static void add_nodes(qdr_stack *stack, qdr_edge edges[3])
{
    BEGIN(qdr_edge_desc, input);
    BEGIN(qdr_linear_desc, layer);
    BEGIN(qdr_op_desc, op);
    input->cols[0] = (qdr_block){IN, 1};
    layer->name = "fc";
    layer->in[0] = (qdr_block){IN, 1};
    layer->out[0] = (qdr_block){OUT, 1};
    layer->bias = 1;
    op->name = "double";
    op->n_in = 1;
    op->forward = double_it;
    op->backward = double_gradient;
    CHECK(qdr_stack_add_input(stack, "x", input, 1, &edges[0]));
    CHECK(qdr_stack_add_linear(stack, layer, edges[0], &edges[1], NULL));
    op->in[0] = edges[1];
    CHECK(qdr_stack_add_op(stack, op, &edges[2]));
}

static void train(qdr_context *ctx, qdr_grid *grid)
{
    BEGIN(qdr_stack_opts, opts);
    BEGIN(qdr_adamw_opts, adam);
    BEGIN(qdr_stack_sizes, sizes);
    BEGIN(qdr_parameter, w);
    BEGIN(qdr_traffic, traffic);
    BEGIN(qdr_matrix, matrix);
    BEGIN(qdr_owned, owned);
    qdr_stack *stack;
    qdr_adamw *optimizer;
    qdr_edge edges[3];
    float full[IN * OUT];
    void *x, *dy;
    opts->n_rows = ROWS;
    adam->weight_decay = 0.1;
    CHECK(qdr_stack_create(grid, opts, &stack));
    add_nodes(stack, edges);
    CHECK(qdr_stack_build(stack));
    CHECK(qdr_stack_init(stack, 1, 0.5));
    CHECK(qdr_adamw_create(stack, adam, &optimizer));
    CHECK(qdr_stack_edge_value(stack, edges[0], &x));
    CHECK(qdr_stack_edge_gradient(stack, edges[2], &dy));
    fill(ctx, x, ROWS * IN / 2);
    CHECK(qdr_stack_forward(stack));
    fill(ctx, dy, ROWS * OUT);
    CHECK(qdr_stack_backward(stack, 0, 1));
    CHECK(qdr_adamw_step(optimizer, 0.01));
    CHECK(qdr_stack_get_sizes(stack, sizes));
    CHECK(qdr_stack_parameter(stack, 0, w));
    CHECK(qdr_stack_edge_matrix(stack, edges[0], matrix));
    CHECK(qdr_matrix_owned(grid, matrix, 1, owned));
    CHECK(qdr_stack_gather_parameter(stack, 0, QDR_PARAMETER_VALUE, full));
    CHECK(qdr_grid_traffic(grid, QDR_CHANNEL_X_REDUCE, QDR_ALL_REDUCE, traffic));
    if (qdr_context_rank(ctx) == 0) {
        printf("parameters %zu, gradients %zu\n", sizes->parameters, sizes->gradients);
        printf("%s has %lld of %lld\n", w->name, (long long)w->n_elems, (long long)w->n_global);
        printf("rank 1 has columns %lld to %lld\n", (long long)owned->cols[0].begin, (long long)owned->cols[0].end);
        printf("%lld calls, %lld bytes\n", (long long)traffic->n_calls, (long long)traffic->bytes_sent);
        for (int i = 0; i < IN * OUT; i++) printf("%.9g\n", (double)full[i]);
    }
    qdr_adamw_destroy(&optimizer);
    qdr_stack_destroy(&stack);
}

static int run_rank(qdr_context *ctx, void *user)
{
    BEGIN(qdr_grid_opts, opts);
    qdr_grid *grid;
    (void)user;
    opts->x = 2;
    opts->y = opts->z = opts->d = 1;
    CHECK(qdr_grid_create(ctx, opts, &grid));
    train(ctx, grid);
    qdr_grid_destroy(&grid);
#ifdef NEWER
    opts->newer = opts;
    if (qdr_grid_create(ctx, opts, &grid) != QDR_ERR_UNSUPPORTED || !strstr(qdr_last_error(), "newer library")) {
        fprintf(stderr, "a member that the library does not have: %s\n", qdr_last_error());
        return 1;
    }
#endif
    return 0;
}

static void predict(void)
{
    BEGIN(qdr_network, network);
    BEGIN(qdr_machine, machine);
    BEGIN(qdr_network_counts, counts);
    BEGIN(qdr_plan, plan);
    BEGIN(qdr_plan_result, result);
    BEGIN(qdr_search_opts, wanted);
    BEGIN(qdr_search_result, found);
    qdr_model *model;
    network->layers = 2;
    network->hidden = 64;
    network->heads = network->kv_heads = 2;
    network->head_size = 32;
    network->ffn = 256;
    network->vocab = 100;
    network->context = network->positions = 32;
    network->norms_per_layer = 2;
    plan->x = 2;
    plan->y = plan->z = plan->d = 1;
    plan->batch = 4;
    wanted->n_ranks = 2;
    wanted->batch = 4;
    CHECK(qdr_machine_load("laptop", machine));
    CHECK(qdr_network_params(network, counts));
    CHECK(qdr_model_create(machine, network, &model));
    CHECK(qdr_model_predict(model, plan, result));
    printf("a layer has %lld parameters, a step takes %.17g s\n", (long long)counts->layer, result->secs);
    CHECK(qdr_model_search(model, wanted, found));
    CHECK(qdr_model_best(model, 0, plan, result));
    printf("of %d the best is %dx%dx%dx%d, %.17g s\n", found->n_best, plan->x, plan->y, plan->z, plan->d, result->secs);
    qdr_model_destroy(&model);
}

int main(void)
{
    BEGIN(qdr_context_opts, opts);
    int code = 1;
    opts->n_threads = 1;
    print_sizes();
    predict();
    CHECK(qdr_launch(2, opts, run_rank, NULL, &code));
    return code;
}
