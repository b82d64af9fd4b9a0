/* SPDX-License-Identifier: Apache-2.0 */
/* Memory that a rank needs in addition to what the model counts: of libraries, and of cuDNN's attention. */
#include <sys/resource.h>

#include "calibrate/calibrate.h"
#include "common/planning.h"

enum { HIDDEN = 64, CONTEXT = 16 };
/* Attention that records have (docs/gpu.md): cuDNN computes it wherever it may compute anything. */
enum { N_HEADS = 4, HEAD_SIZE = 128, ATTENTION_CONTEXT = 2048 };

/* ---- libraries ---- */

/* Of rank 0: what its GPU does not have free, or this process's share of its resident memory. Other arrays are small,
 * so far. */
static int find_used(const calibration *c, int ranks_per_process, double *bytes, failure *why)
{
    qdr_gpu gpu = {QDR_INIT(qdr_gpu)};
    struct rusage used;
    if (c->is_on_gpu) {
        if (!calibrate_find_gpu(c, &gpu, why)) *bytes = (double)(gpu.bytes - gpu.bytes_free);
        return why->code;
    }
    (void)getrusage(RUSAGE_SELF, &used); /* of itself a process may always ask */
    *bytes = 1024.0 * (double)used.ru_maxrss / ranks_per_process;
    return EXIT_OK;
}

/* What a layer on all ranks has loaded: kernels, and communicators of weights and of their gradients. */
static int measure_libraries(calibration *c, int ranks_per_process, failure *why)
{
    const int n_ranks = qdr_context_size(c->ctx);
    const qdr_network network = planning_network("layers", 1, HIDDEN, 1, CONTEXT);
    const transformer_desc desc = {.network = &network,
                                   .n_layers = 1,
                                   .n_sequences = n_ranks,
                                   .sequence = CONTEXT,
                                   .dtype = c->is_on_gpu ? QDR_BF16 : QDR_F32,
                                   .n_panels = 1,
                                   .n_batch_parts = 1,
                                   .overlap = QDR_OVERLAP_ALL};
    qdr_grid *grid = NULL;
    transformer made = {0};
    qdr_status status = grid_make(c->ctx, (grid_size){1, 1, n_ranks, 1}, NULL, &grid);
    if (status >= 0) status = transformer_create(grid, &desc, &made);
    if (status >= 0) status = transformer_fill_gradient(&made);
    if (status >= 0) status = qdr_stack_forward(made.stack);
    if (status >= 0) status = qdr_stack_backward(made.stack, 0, 1);
    if (status >= 0) status = qdr_stream_synchronize(qdr_context_stream(c->ctx));
    fail_status(why, status);
    if (!fail_together(why, c->ctx)) find_used(c, ranks_per_process, &c->machine.software.fixed_bytes, why);
    qdr_stack_destroy(&made.stack);
    qdr_grid_destroy(&grid);
    return why->code;
}

/* ---- attention ---- */

/* The library's own memory for attention alone, of a stack that is not bound to memory. */
static qdr_status find_device_bytes(const calibration *c, qdr_dtype dtype, double *bytes)
{
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = ATTENTION_CONTEXT, .row_unit = ATTENTION_CONTEXT,
                                 .dtype = dtype, .caller_memory = 1};
    const qdr_block heads = {(int64_t)N_HEADS * HEAD_SIZE, HEAD_SIZE};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {heads, heads, heads}, .col_axis = QDR_Y};
    const qdr_attention_desc attention = {QDR_INIT(qdr_attention_desc), .name = "attention", .head_size = HEAD_SIZE,
                                          .context = ATTENTION_CONTEXT};
    qdr_stack *stack = NULL;
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    qdr_edge in, out;
    qdr_status status = qdr_stack_create(c->self, &opts, &stack);
    if (status >= 0) status = qdr_stack_add_input(stack, "qkv", &input, 1, &in);
    if (status >= 0) status = qdr_stack_add_attention(stack, &attention, in, &out);
    if (status >= 0) status = qdr_stack_build(stack);
    if (status >= 0) status = qdr_stack_get_sizes(stack, &sizes);
    *bytes = (double)sizes.device;
    qdr_stack_destroy(&stack);
    return status;
}

/* The library's own kernels need none, nor does any attention of f32. */
static int find_score_bytes(calibration *c, failure *why)
{
    const double n_scores = (double)N_HEADS * ATTENTION_CONTEXT * ATTENTION_CONTEXT;
    double with = 0, without = 0;
    if (c->is_on_gpu && !fail_status(why, find_device_bytes(c, QDR_BF16, &with)))
        fail_status(why, find_device_bytes(c, QDR_F32, &without));
    c->machine.software.attention_score_bytes = (with - without) / n_scores;
    return fail_together(why, c->ctx);
}

int calibrate_memory(calibration *c, int ranks_per_process, failure *why)
{
    calibrate_show(c, "memory");
    return find_score_bytes(c, why) ? why->code : measure_libraries(c, ranks_per_process, why);
}
