/* SPDX-License-Identifier: Apache-2.0 */
/* Training with completely recorded steps, including AdamW, compared with training with enqueued steps: the same bits
 * of losses, norms and parameters, with a different rate and a different input in each step, from the first step on.
 * After some steps a forward that is not recorded validates, before the next step, or instead of it. Before, one rank
 * gives up recording.
 *
 *   graph_train GRID[:G,S] f32|bf16|f16 SCALE    G,S: levels; SCALE: of the loss; if it is too large for f16, all
 *                                          steps are skipped, and counted */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "small_gpt.h"

enum { STEPS = 6 };

typedef struct trained {
    double losses[STEPS], norms[STEPS], validations[STEPS];
    int64_t n_skipped;
    unsigned char *parameters;
    size_t parameter_bytes;
} trained;

typedef struct task {
    small_gpt model;
    double scale;
    int skips;
} task;

static double rate(int step) { return 1e-2 / (step + 1); }

static qdr_status enqueue(small_gpt *m, double scale)
{
    TRY(qdr_stack_forward(m->gpt.stack));
    TRY(qdr_stack_backward(m->gpt.stack, 0, scale / (double)(m->config.n_sequences * SMALL_CONTEXT)));
    return qdr_adamw_step_as_set(m->optimizer);
}

/* Records what `pass` enqueues. */
static qdr_status record_pass(qdr_context *ctx, qdr_status (*pass)(small_gpt *, double), small_gpt *m, double scale,
                              qdr_graph **graph)
{
    TRY(qdr_graph_begin(ctx));
    return small_gpt_end_graph(ctx, pass(m, scale), graph);
}

static qdr_status forward_only(small_gpt *m, double scale)
{
    (void)scale;
    return qdr_stack_forward(m->gpt.stack);
}

/* One rank stops recording before the step, so nobody runs that record. What they record and run then is the same, and
 * so must be what is stale. */
static qdr_status give_up_once(qdr_context *ctx, const task *t, small_gpt *m)
{
    const int is_last = qdr_context_rank(ctx) == qdr_context_size(ctx) - 1;
    qdr_graph *graph = NULL;
    qdr_parameter p = {QDR_INIT(qdr_parameter)};
    TRY(record_pass(ctx, is_last ? forward_only : enqueue, m, t->scale, &graph));
    qdr_graph_destroy(&graph);
    TRY(record_pass(ctx, forward_only, m, t->scale, &graph));
    TRY(qdr_graph_launch(graph, NULL));
    qdr_graph_destroy(&graph);
    TRY(qdr_stack_parameter(m->gpt.stack, 0, &p));
    int first = p.stale;
    TRY(qdr_broadcast(ctx, 0, &first, sizeof first));
    if (p.stale != first)
        fprintf(stderr, "rank %d: %s is stale: %d, on rank 0 %d\n", qdr_context_rank(ctx), p.name, p.stale, first);
    return qdr_agree(ctx, p.stale == first ? QDR_OK : QDR_ERR_STATE);
}

/* NCCL connects ranks at their first collective of a kind, for which it waits on the host: also in a recording, which
 * a rank may give up. */
static qdr_status connect(qdr_context *ctx, qdr_grid *grid)
{
    void *sum = NULL;
    const float one = 1;
    qdr_stream *stream = qdr_context_stream(ctx);
    TRY(qdr_mem_alloc(ctx, sizeof one, &sum));
    qdr_status status = qdr_copy(ctx, sum, &one, sizeof one, NULL);
    for (int axis = 0; axis < QDR_N_AXES && status == QDR_OK; axis++)
        status = qdr_all_reduce(grid, (qdr_axis)axis, QDR_SUM, sum, 1, QDR_F32, stream);
    if (status == QDR_OK) status = qdr_stream_synchronize(stream);
    qdr_mem_free(ctx, &sum);
    return status;
}

/* The rest of the library has run once by then, but no step of AdamW. */
static qdr_status record(qdr_context *ctx, const task *t, small_gpt *m, qdr_graph **graph)
{
    TRY(small_gpt_fill(m, 0));
    TRY(qdr_stack_forward(m->gpt.stack));
    TRY(small_gpt_backward(m, 0));
    TRY(qdr_stream_synchronize(qdr_context_stream(ctx)));
    TRY(connect(ctx, m->grid));
    TRY(give_up_once(ctx, t, m));
    return record_pass(ctx, enqueue, m, t->scale, graph);
}

static qdr_status read_parameters(qdr_context *ctx, qdr_stack *stack, trained *result)
{
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        qdr_parameter p = {QDR_INIT(qdr_parameter)};
        TRY(qdr_stack_parameter(stack, i, &p));
        const size_t bytes = (size_t)p.n_elems * qdr_dtype_bytes(qdr_stack_dtype(stack));
        unsigned char *more = realloc(result->parameters, result->parameter_bytes + bytes + 1);
        if (!more) return QDR_ERR_MEMORY;
        result->parameters = more;
        TRY(qdr_copy(ctx, more + result->parameter_bytes, p.data, bytes, NULL));
        TRY(qdr_stream_synchronize(qdr_context_stream(ctx)));
        result->parameter_bytes += bytes;
    }
    return QDR_OK;
}

static qdr_status train(qdr_context *ctx, const task *t, small_gpt *m, qdr_graph **graph, trained *result)
{
    const qdr_adamw_opts opts = {QDR_INIT(qdr_adamw_opts), .clip_norm = 1, .weight_decay = 0.1, .grad_scale = t->scale};
    int64_t n_valid;
    TRY(small_gpt_create(ctx, m));
    TRY(gpt_init(&m->gpt, 1, 0.1));
    TRY(qdr_adamw_create(m->gpt.stack, &opts, &m->optimizer));
    TRY(qdr_adamw_set_rate(m->optimizer, 0)); /* so that nothing but the next ones are seen */
    if (graph) TRY(record(ctx, t, m, graph));
    for (int step = 0; step < STEPS; step++) {
        TRY(small_gpt_fill(m, step));
        TRY(qdr_adamw_set_rate(m->optimizer, rate(step)));
        TRY(graph ? qdr_graph_launch(*graph, NULL) : enqueue(m, t->scale));
        TRY(qdr_stack_loss(m->gpt.stack, &result->losses[step], &n_valid));
        TRY(qdr_adamw_norm(m->optimizer, &result->norms[step]));
        if (step % 3 == 0) continue;
        TRY(small_gpt_fill(m, 9));
        TRY(qdr_stack_forward(m->gpt.stack));
        TRY(qdr_stack_loss(m->gpt.stack, &result->validations[step], &n_valid));
    }
    TRY(qdr_adamw_skipped(m->optimizer, &result->n_skipped));
    TRY(qdr_stack_refresh(m->gpt.stack));
    return read_parameters(ctx, m->gpt.stack, result);
}

static qdr_status train_once(qdr_context *ctx, const task *t, int is_recorded, trained *result)
{
    small_gpt m = t->model;
    qdr_graph *graph = NULL;
    const qdr_status status = train(ctx, t, &m, is_recorded ? &graph : NULL, result);
    qdr_graph_destroy(&graph);
    small_gpt_destroy(&m);
    return status;
}

static int is_same(const trained *a, const trained *b)
{
    return memcmp(a->losses, b->losses, sizeof a->losses) == 0 && memcmp(a->norms, b->norms, sizeof a->norms) == 0 &&
           memcmp(a->validations, b->validations, sizeof a->validations) == 0 && a->n_skipped == b->n_skipped &&
           a->parameter_bytes == b->parameter_bytes && memcmp(a->parameters, b->parameters, a->parameter_bytes) == 0;
}

static int check(qdr_context *ctx, const task *t, const trained *want, const trained *got)
{
    const int is_right = t->skips ? got->n_skipped == STEPS
                                  : got->n_skipped == 0 && got->losses[STEPS - 1] < got->losses[0];
    if (qdr_context_rank(ctx) == 0)
        printf("losses %.9g … %.9g, norm %.9g, %lld skipped\n", got->losses[0], got->losses[STEPS - 1],
               got->norms[STEPS - 1], (long long)got->n_skipped);
    if (is_same(want, got) && is_right) return 0;
    for (int step = 0; step < STEPS; step++)
        fprintf(stderr, "rank %d, step %d: loss %.17g, norm %.17g; enqueued: %.17g, %.17g\n", qdr_context_rank(ctx),
                step, got->losses[step], got->norms[step], want->losses[step], want->norms[step]);
    fprintf(stderr, "rank %d: %lld skipped, enqueued %lld\n", qdr_context_rank(ctx), (long long)got->n_skipped,
            (long long)want->n_skipped);
    return 1;
}

static int run_rank(qdr_context *ctx, void *user)
{
    const task *t = user;
    trained want = {0}, got = {0};
    qdr_status status = train_once(ctx, t, 0, &want);
    if (status == QDR_OK) status = train_once(ctx, t, 1, &got);
    const int exit_code = small_gpt_leave(ctx, status);
    const int n_bad = exit_code ? 1 : check(ctx, t, &want, &got);
    free(want.parameters);
    free(got.parameters);
    return n_bad;
}

int main(int argc, char **argv)
{
    task t = {.model = {.config = {.network.hidden = 16, .n_sequences = 4, .layout = QDR_SCATTERED}}};
    const int n = argc == 4 ? small_gpt_read_shape(&t.model, argv[1]) : 0;
    if (!n) return 2;
    t.model.config.dtype = strcmp(argv[2], "f16") == 0 ? QDR_F16 : strcmp(argv[2], "bf16") == 0 ? QDR_BF16 : QDR_F32;
    t.scale = atof(argv[3]);
    t.skips = t.scale > 65504; /* the largest number of f16 */
    return small_gpt_launch(n, run_rank, &t);
}
