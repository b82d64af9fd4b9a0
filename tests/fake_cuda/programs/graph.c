/* SPDX-License-Identifier: Apache-2.0 */
/* Recorded steps of a small GPT: they give the same bits as the step itself, for any input; and if recording is not
 * possible, that is reported and the step continues to run.
 *
 *   graph replay N            on N local ranks (0: those of mpiexec)
 *   graph refused N WORDS…    beginning fails with QDR_ERR_UNSUPPORTED and these words
 *   graph measured N          QDR_REPORT=1: the report covers the runs that are not recorded
 *   graph codecs N            a step keeps the codecs that it was recorded with
 *   graph left N              the context is destroyed while it records */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "served.h"
#include "small_gpt.h"

enum { N_INPUTS = 3, REPORT_BYTES = 512 };

/* What a step gave on this rank. */
typedef struct result {
    double loss;
    unsigned char *gradients;
} result;

typedef struct rank {
    char **words;
    qdr_context *ctx;
    small_gpt model;
    qdr_codecs codecs; /* version 0: none */
    size_t gradient_bytes;
    result expected[N_INPUTS], got;
    int n_bad;
} rank;

static void check(rank *self, int is_right, const char *format, ...)
{
    char what[256];
    va_list list;
    va_start(list, format);
    vsnprintf(what, sizeof what, format, list);
    va_end(list);
    if (is_right) return;
    fprintf(stderr, "rank %d: %s: %s\n", qdr_context_rank(self->ctx), what, qdr_last_error());
    self->n_bad++;
}

/* ---- a step ---- */

static qdr_status make(rank *self)
{
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    self->model = (small_gpt){.shape = {qdr_context_size(self->ctx), 1, 1, 1},
                              .config = {.network = {.layers = 2, .hidden = 16},
                                         .n_sequences = 4,
                                         .dtype = getenv("QDR_ATTENTION") ? QDR_BF16 : QDR_F32}};
    if (self->codecs.size) self->model.config.codecs = &self->codecs;
    TRY(small_gpt_create(self->ctx, &self->model));
    TRY(gpt_init(&self->model.gpt, 1, 0.1));
    TRY(qdr_stack_get_sizes(self->model.gpt.stack, &sizes));
    self->gradient_bytes = sizes.gradients;
    for (int i = 0; i < N_INPUTS; i++)
        if (!(self->expected[i].gradients = calloc(1, self->gradient_bytes + 1))) return QDR_ERR_MEMORY;
    self->got.gradients = calloc(1, self->gradient_bytes + 1);
    return self->got.gradients ? QDR_OK : QDR_ERR_MEMORY;
}

static void unmake(rank *self)
{
    for (int i = 0; i < N_INPUTS; i++) free(self->expected[i].gradients);
    free(self->got.gradients);
    small_gpt_destroy(&self->model);
}

static qdr_status step(rank *self)
{
    TRY(qdr_stack_forward(self->model.gpt.stack));
    return small_gpt_backward(&self->model, 0);
}

static qdr_status read_result(rank *self, result *found)
{
    int64_t n_valid;
    TRY(qdr_stack_loss(self->model.gpt.stack, &found->loss, &n_valid));
    return small_gpt_read_gradients(self->ctx, &self->model, found->gradients);
}

static int is_same(const rank *self, const result *a, const result *b)
{
    return memcmp(&a->loss, &b->loss, sizeof a->loss) == 0 &&
           memcmp(a->gradients, b->gradients, self->gradient_bytes) == 0;
}

static qdr_status run_all(rank *self)
{
    for (int i = 0; i < N_INPUTS; i++) {
        TRY(small_gpt_fill(&self->model, i));
        TRY(step(self));
        TRY(read_result(self, &self->expected[i]));
        for (int j = 0; j < i; j++)
            check(self, !is_same(self, &self->expected[i], &self->expected[j]), "inputs %d and %d give the same", i, j);
    }
    return QDR_OK;
}

/* ---- replays ---- */

static qdr_status record(rank *self, qdr_graph **graph)
{
    TRY(qdr_graph_begin(self->ctx));
    return small_gpt_end_graph(self->ctx, step(self), graph);
}

/* On any stream, the work that the context's stream was given before runs before, and later work runs after. */
static qdr_status replay(rank *self, qdr_graph *graph, int input, qdr_stream *stream)
{
    TRY(small_gpt_fill(&self->model, input));
    TRY(qdr_graph_launch(graph, stream));
    TRY(read_result(self, &self->got));
    check(self, is_same(self, &self->got, &self->expected[input]), "input %d: other bits than the step itself", input);
    return QDR_OK;
}

static qdr_status replay_all(rank *self)
{
    static const int inputs[] = {0, 1, 1, 2, 0};
    qdr_graph *graph = NULL;
    qdr_stream *others = NULL, *wrapped = NULL;
    TRY(run_all(self));
    TRY(small_gpt_fill(&self->model, 0));
    TRY(record(self, &graph));
    check(self, counted("graph of one priority") == 0, "a collective has the priority of a product");
    TRY(read_result(self, &self->got));
    check(self, is_same(self, &self->got, &self->expected[N_INPUTS - 1]), "recording ran the step");
    for (size_t i = 0; i < sizeof inputs / sizeof inputs[0]; i++) TRY(replay(self, graph, inputs[i], NULL));
    TRY(qdr_stream_create(self->ctx, &others));
    TRY(replay(self, graph, 1, others));
    TRY(qdr_stream_wrap_cuda(self->ctx, qdr_stream_cuda(others), &wrapped));
    TRY(replay(self, graph, 2, wrapped));
    qdr_stream_destroy(&wrapped);
    qdr_stream_destroy(&others);
    qdr_graph_destroy(&graph); /* it outlives the streams on which it ran */
    check(self, graph == NULL, "destroying left the graph's pointer");
    return run_all(self); /* the step itself runs as before */
}

/* ---- wrong calls ---- */

static void count(void *user) { ++*(int *)user; }

static void expect(rank *self, const char *what, qdr_status status, qdr_status wanted)
{
    check(self, status == wanted, "%s: %s, not %s", what, qdr_status_name(status), qdr_status_name(wanted));
}

static qdr_status misuse(rank *self)
{
    qdr_graph *graph = NULL, *other = NULL;
    qdr_stream *stream = qdr_context_stream(self->ctx);
    int n_calls = 0;
    expect(self, "begin of NULL", qdr_graph_begin(NULL), QDR_ERR_ARGUMENT);
    expect(self, "end of NULL", qdr_graph_end(NULL, &graph), QDR_ERR_ARGUMENT);
    expect(self, "end to NULL", qdr_graph_end(self->ctx, NULL), QDR_ERR_ARGUMENT);
    expect(self, "launch of NULL", qdr_graph_launch(NULL, NULL), QDR_ERR_ARGUMENT);
    expect(self, "end without begin", qdr_graph_end(self->ctx, &graph), QDR_ERR_STATE);
    check(self, graph == NULL, "a graph of nothing");
    qdr_graph_destroy(&graph);
    TRY(record(self, &other));
    TRY(qdr_graph_begin(self->ctx));
    expect(self, "two begins", qdr_graph_begin(self->ctx), QDR_ERR_STATE);
    expect(self, "a launch within", qdr_graph_launch(other, NULL), QDR_ERR_STATE);
    expect(self, "waiting for what does not run", qdr_stream_synchronize(stream), QDR_ERR_STATE);
    expect(self, "a call of the host", qdr_stream_call(stream, count, &n_calls), QDR_ERR_UNSUPPORTED);
    TRY(qdr_graph_end(self->ctx, &graph));
    TRY(qdr_graph_launch(graph, NULL)); /* of nothing */
    qdr_graph_destroy(&graph);
    qdr_graph_destroy(&other);
    TRY(qdr_stream_call(stream, count, &n_calls));
    TRY(qdr_stream_synchronize(stream));
    check(self, n_calls == 1, "a call ran %d times", n_calls);
    return QDR_OK;
}

/* A record that is lost: only the calls after it are refused. */
static qdr_status spoil(rank *self)
{
    enum { N = 64 };
    qdr_graph *graph = NULL;
    void *memory = NULL;
    float *pageable = calloc(N, sizeof *pageable);
    qdr_status status = pageable ? QDR_OK : QDR_ERR_MEMORY;
    if (status == QDR_OK) status = qdr_mem_alloc(self->ctx, N * sizeof(float), &memory);
    if (status == QDR_OK) status = qdr_graph_begin(self->ctx);
    if (status == QDR_OK) {
        const size_t bytes = N * sizeof(float);
        check(self, qdr_copy(self->ctx, memory, pageable, bytes, NULL) != QDR_OK, "a copy");
        expect(self, "a sum in a lost record",
               qdr_all_reduce(self->model.grid, QDR_X, QDR_SUM, memory, N, QDR_F32, NULL), QDR_ERR_UNSUPPORTED);
        expect(self, "a step in a lost record", step(self), QDR_ERR_UNSUPPORTED);
        expect(self, "the end of a lost record", qdr_graph_end(self->ctx, &graph), QDR_ERR_UNSUPPORTED);
        check(self, graph == NULL, "a graph of a lost record");
        status = qdr_copy(self->ctx, memory, pageable, bytes, NULL);
    }
    if (status == QDR_OK) status = qdr_all_reduce(self->model.grid, QDR_X, QDR_SUM, memory, N, QDR_F32, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(self->ctx));
    if (status == QDR_OK) status = qdr_context_status(self->ctx);
    qdr_mem_free(self->ctx, &memory);
    free(pageable);
    return status;
}

/* ---- an operation that cannot be recorded, within a step ---- */

enum { WIDTH = 8, N_ROWS = 4 };

typedef struct operation {
    int spoils;
    float pageable[WIDTH * N_ROWS]; /* room enough for any rank's part */
} operation;

static qdr_status copy_forward(const qdr_op_call *call, void *user)
{
    const operation *self = user;
    const size_t bytes = (size_t)(call->n_rows * call->out_cols) * sizeof(float);
    const void *from = self->spoils ? self->pageable : call->in[0];
    return qdr_copy(call->ctx, call->out, from, bytes, call->stream);
}

static qdr_status make_operation(rank *self, operation *user, qdr_stack **stack)
{
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = N_ROWS, .dtype = QDR_F32};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{WIDTH, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc layer = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {{WIDTH, 1}}, .out = {{WIDTH, 1}}};
    qdr_op_desc op = {QDR_INIT(qdr_op_desc),   .name = "copy",           .n_in = 1,
                      .forward = copy_forward, .backward = copy_forward, .user = user};
    qdr_edge x = -1, y = -1;
    TRY(qdr_stack_create(self->model.grid, &opts, stack));
    TRY(qdr_stack_add_input(*stack, "x", &input, 0, &x));
    op.in[0] = x;
    TRY(qdr_stack_add_op(*stack, &op, &y));
    TRY(qdr_stack_add_linear(*stack, &layer, y, &y, NULL));
    TRY(qdr_stack_build(*stack));
    return qdr_stack_init(*stack, 1, 0.1);
}

static qdr_status run_operation(rank *self, operation *op, qdr_stack *stack)
{
    qdr_graph *graph = NULL;
    op->spoils = 1;
    TRY(qdr_graph_begin(self->ctx));
    check(self, qdr_stack_forward(stack) != QDR_OK, "a step that cannot be recorded");
    expect(self, "the end of that step", qdr_graph_end(self->ctx, &graph), QDR_ERR_UNSUPPORTED);
    check(self, graph == NULL, "a graph of that step");
    TRY(qdr_stack_forward(stack)); /* nothing spoils where nothing is recorded */
    return qdr_stream_synchronize(qdr_context_stream(self->ctx));
}

static qdr_status spoil_inside(rank *self)
{
    operation op = {0};
    qdr_stack *stack = NULL;
    qdr_status status = make_operation(self, &op, &stack);
    if (status == QDR_OK) status = run_operation(self, &op, stack);
    qdr_stack_destroy(&stack);
    return status;
}

/* It shares only the context's workspace with the step, and runs after it. */
static qdr_status run_beside(rank *self, qdr_stack *stack, qdr_graph *graph, qdr_stream *stream)
{
    TRY(small_gpt_fill(&self->model, 1));
    TRY(qdr_graph_launch(graph, stream));
    TRY(qdr_stack_forward(stack));
    TRY(read_result(self, &self->got));
    check(self, is_same(self, &self->got, &self->expected[1]), "other bits with a product at the same time");
    return QDR_OK;
}

static qdr_status launch_beside(rank *self)
{
    operation op = {.spoils = 1}; /* it reads the host's numbers */
    qdr_stack *stack = NULL;
    qdr_graph *graph = NULL;
    qdr_stream *stream = NULL;
    qdr_status status = make_operation(self, &op, &stack);
    if (status == QDR_OK) status = record(self, &graph);
    if (status == QDR_OK) status = qdr_stream_create(self->ctx, &stream);
    if (status == QDR_OK) status = run_beside(self, stack, graph, stream);
    qdr_graph_destroy(&graph);
    qdr_stream_destroy(&stream);
    qdr_stack_destroy(&stack);
    return status;
}

/* What goes next is the grid, whose streams are part of the record, and then the context. */
static qdr_status leave(rank *self)
{
    TRY(run_all(self));
    TRY(qdr_graph_begin(self->ctx));
    return step(self);
}

static qdr_status run_refused(rank *self)
{
    TRY(run_all(self));
    qdr_graph *graph = NULL;
    const qdr_status status = qdr_graph_begin(self->ctx);
    expect(self, "begin", status, QDR_ERR_UNSUPPORTED);
    for (char **word = self->words; *word; word++)
        check(self, strstr(qdr_last_error(), *word) != NULL, "no \"%s\" in the sentence", *word);
    expect(self, "end", qdr_graph_end(self->ctx, &graph), QDR_ERR_STATE);
    check(self, graph == NULL, "a graph of nothing");
    TRY(small_gpt_fill(&self->model, 1));
    TRY(step(self));
    TRY(read_result(self, &self->got));
    check(self, is_same(self, &self->got, &self->expected[1]), "other bits after the refusal");
    return QDR_OK;
}

/* run_all() has left each list's first run out, and stamped the others. */
static qdr_status check_report(rank *self)
{
    char text[REPORT_BYTES], wanted[64];
    FILE *file = tmpfile();
    if (!file) return QDR_ERR_IO;
    const qdr_status status = qdr_stack_report(self->model.gpt.stack, NULL, file);
    rewind(file);
    const size_t n = fread(text, 1, sizeof text - 1, file);
    text[n] = 0;
    fclose(file);
    snprintf(wanted, sizeof wanted, "medians of %d runs or more", N_INPUTS - 1);
    check(self, strstr(text, wanted) != NULL, "no \"%s\" in \"%.160s\"", wanted, text);
    return status;
}

static qdr_status run_measured(rank *self)
{
    qdr_graph *graph = NULL;
    TRY(run_all(self));
    TRY(record(self, &graph));
    for (int i = 0; i < N_INPUTS; i++) TRY(replay(self, graph, i, NULL));
    qdr_graph_destroy(&graph);
    return qdr_context_rank(self->ctx) == 0 ? check_report(self) : QDR_OK;
}

static qdr_status run_codecs(rank *self)
{
    qdr_stack *stack = self->model.gpt.stack;
    qdr_graph *graph = NULL;
    TRY(run_all(self));
    TRY(qdr_graph_begin(self->ctx));
    expect(self, "codecs within", qdr_stack_set_codecs(stack, NULL), QDR_ERR_STATE);
    TRY(step(self));
    TRY(qdr_graph_end(self->ctx, &graph));
    TRY(replay(self, graph, 1, NULL));
    TRY(qdr_stack_set_codecs(stack, NULL));
    TRY(replay(self, graph, 2, NULL));
    qdr_graph_destroy(&graph);
    TRY(small_gpt_fill(&self->model, 2));
    TRY(step(self));
    TRY(read_result(self, &self->got));
    check(self, !is_same(self, &self->got, &self->expected[2]), "the same bits without codecs");
    return QDR_OK;
}

/* ---- the program ---- */

static qdr_status run(rank *self, const char *mode)
{
    if (strcmp(mode, "codecs") == 0) TRY(qdr_codecs_parse("int8,inside,least=1", &self->codecs));
    TRY(make(self));
    if (strcmp(mode, "codecs") == 0) return run_codecs(self);
    if (strcmp(mode, "refused") == 0) return run_refused(self);
    if (strcmp(mode, "measured") == 0) return run_measured(self);
    if (strcmp(mode, "left") == 0) return leave(self);
    TRY(replay_all(self));
    TRY(misuse(self));
    TRY(spoil(self));
    TRY(spoil_inside(self));
    TRY(launch_beside(self));
    return replay_all(self);
}

static int run_rank(qdr_context *ctx, void *user)
{
    char **argv = user;
    rank self = {.words = argv + 3, .ctx = ctx};
    const qdr_status status = run(&self, argv[1]);
    check(&self, status == QDR_OK, "%s", qdr_status_name(status));
    unmake(&self);
    return self.n_bad != 0;
}

int main(int argc, char **argv) { return argc < 3 ? 2 : small_gpt_launch(atoi(argv[2]), run_rank, argv); }
