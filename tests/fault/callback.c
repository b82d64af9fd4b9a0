/* SPDX-License-Identifier: Apache-2.0 */
/* A caller's operation that does not return QDR_OK on rank 1: the pass fails on all ranks, each with a message that
 * names the operation, the rank and the returned value.
 *
 *   fault_callback [--local P] CASE...     fault/cases.h */
#include <stdio.h>
#include <string.h>

#include "fault/cases.h"
#include "quadrille/quadrille.h"

enum { N = 12 };

static const struct fault {
    const char *name;
    int returned; /* by the operation on rank 1 */
    int in_backward, has_sentence;
    qdr_status status; /* of rank 1 */
    const char *words;
    int is_apart; /* a forward alone, in which no rank waits for another */
} faults[] = {
    {"pending", QDR_PENDING, 0, 0, QDR_ERR_ARGUMENT, "its forward returned 1 (QDR_PENDING) on rank 1", 0},
    {"apart", QDR_PENDING, 0, 0, QDR_ERR_ARGUMENT, "its forward returned 1 (QDR_PENDING) on rank 1", 1},
    {"positive", 77, 0, 0, QDR_ERR_ARGUMENT, "its forward returned 77 (QDR_UNKNOWN) on rank 1", 0},
    {"unknown", -77, 0, 0, QDR_ERR_ARGUMENT, "its forward returned -77 (QDR_UNKNOWN) on rank 1", 0},
    {"error", QDR_ERR_IO, 0, 0, QDR_ERR_IO, "its forward failed on rank 1 with QDR_ERR_IO", 0},
    {"own-sentence", QDR_ERR_ARGUMENT, 0, 1, QDR_ERR_ARGUMENT,
     "its forward failed on rank 1 with QDR_ERR_ARGUMENT: copy: NULL for 5 bytes", 0},
    {"pending-sentence", QDR_PENDING, 0, 1, QDR_ERR_ARGUMENT, "copy: NULL for 5 bytes", 0},
    {"backward", QDR_PENDING, 1, 0, QDR_ERR_ARGUMENT, "its backward returned 1 (QDR_PENDING) on rank 1", 0},
    {"backward-error", QDR_ERR_DEVICE, 1, 0, QDR_ERR_DEVICE, "its backward failed on rank 1 with QDR_ERR_DEVICE", 0},
    {"backward-sentence", QDR_ERR_SHAPE, 1, 1, QDR_ERR_SHAPE, "on rank 1 with QDR_ERR_SHAPE: copy: NULL for 5 bytes",
     0},
};

/* y = x, or what the case says, on rank 1. */
static qdr_status work(const qdr_op_call *call, const struct fault *fault, int backward)
{
    const size_t bytes = (size_t)(call->n_rows * call->out_cols) * sizeof(float);
    if (backward == fault->in_backward && qdr_context_rank(call->ctx) == 1) {
        /* The sentence is what counts. */
        if (fault->has_sentence) (void)!qdr_copy(call->ctx, NULL, call->in[0], 5, call->stream);
        return (qdr_status)fault->returned;
    }
    if (!backward) return qdr_copy(call->ctx, call->out, call->in[0], bytes, call->stream);
    return qdr_copy(call->ctx, call->d_in[0], call->d_out, bytes, call->stream);
}
static qdr_status forward(const qdr_op_call *call, void *user) { return work(call, user, 0); }
static qdr_status backward(const qdr_op_call *call, void *user) { return work(call, user, 1); }

static const qdr_stack_opts stack_opts = {QDR_INIT(qdr_stack_opts), .n_rows = N};

static qdr_status describe(qdr_stack *stack, const struct fault *fault)
{
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{N, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc first = {QDR_INIT(qdr_linear_desc), .name = "first", .in = {{N, 1}}, .out = {{N, 1}}};
    qdr_linear_desc second = first;
    qdr_op_desc op = {QDR_INIT(qdr_op_desc), .name = "silu",       .n_in = 1,
                      .forward = forward,    .backward = backward, .user = (void *)(uintptr_t)fault};
    qdr_edge x, y;
    second.name = "second";
    second.transposed = 1;
    qdr_status status = qdr_stack_add_input(stack, "x", &input, 0, &x);
    if (status == QDR_OK) status = qdr_stack_add_linear(stack, &first, x, &op.in[0], NULL);
    if (status == QDR_OK) status = qdr_stack_add_op(stack, &op, &y);
    if (status == QDR_OK) status = qdr_stack_add_linear(stack, &second, y, &y, NULL);
    if (status == QDR_OK) status = qdr_stack_build(stack);
    return status == QDR_OK ? qdr_stack_init(stack, 1, 0.1) : status;
}

/* A rank may hear of a failure at the next wait for others only. */
static qdr_status pass(qdr_context *ctx, qdr_stack *stack, const struct fault *fault)
{
    qdr_status status = qdr_stack_forward(stack);
    if (status == QDR_OK && !fault->is_apart) status = qdr_stack_backward(stack, 0, 1);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    return status == QDR_OK ? qdr_barrier(ctx) : status;
}

static int judge(int rank, qdr_status status, const struct fault *fault)
{
    const qdr_status wanted = rank == 1 ? fault->status : QDR_ERR_PEER;
    if (status == wanted && strstr(qdr_last_error(), "operation 'silu'") && strstr(qdr_last_error(), fault->words))
        return AS_EXPECTED;
    fprintf(stderr, "rank %d got %s: \"%s\"\n", rank, qdr_status_name(status), qdr_last_error());
    return WRONG;
}

static int rank_main(qdr_context *ctx, void *user)
{
    const struct fault *fault = user;
    qdr_grid *grid = NULL;
    qdr_stack *stack = NULL;
    const int size = qdr_context_size(ctx);
    const qdr_grid_opts shape = {QDR_INIT(qdr_grid_opts), .x = fault->is_apart ? 1 : size, .y = 1, .z = 1,
                                 .d = fault->is_apart ? size : 1};
    qdr_status status = qdr_grid_create(ctx, &shape, &grid);
    if (status == QDR_OK) status = qdr_stack_create(grid, &stack_opts, &stack);
    if (status == QDR_OK) status = describe(stack, fault);
    if (status == QDR_OK) status = pass(ctx, stack, fault);
    const int result = judge(qdr_context_rank(ctx), status, fault);
    qdr_stack_destroy(&stack);
    qdr_grid_destroy(&grid);
    return result;
}

static int run_case(const case_ranks *ranks, const char *name)
{
    enum { N_FAULTS = sizeof faults / sizeof *faults };
    int chosen = 0;
    while (chosen < N_FAULTS && strcmp(faults[chosen].name, name) != 0) chosen++;
    if (chosen == N_FAULTS) return 2;
    return case_launch(ranks, rank_main, (void *)(uintptr_t)&faults[chosen]);
}

int main(int argc, char **argv) { return cases_main(argc, argv, run_case); }
