/* SPDX-License-Identifier: Apache-2.0 */
/* Rank 1 passes something different from the others: for each member of each description, and each argument of the
 * calls that create, fill and train a stack, all ranks fail with one message, which names it. descriptions.py compares
 * the list with the public headers, so that a new member must be varied here, or excused.
 *
 *   test_same [--local P] [--seed N]     mpiexec -n P test_same
 *   test_same --list                     what is varied, and what is not and why
 *
 * With QDR_CHECK=1 also the arguments of each step. */
#include <unistd.h>

#include "dist.h"
#include "same_cases.h"

/* ---- the calls; the first status that is not QDR_OK ends them ---- */

static qdr_status redistribute(const subject *s, qdr_grid *grid)
{
    void *from = dist_memory(qdr_grid_context(grid), 2 * ROWS * 16, QDR_F64);
    void *to = dist_memory(qdr_grid_context(grid), 2 * ROWS * 16, QDR_F64);
    qdr_status status = qdr_redistribute(grid, &s->from, from, &s->to, to, s->moved, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(qdr_grid_context(grid)));
    qdr_mem_free(qdr_grid_context(grid), &from);
    qdr_mem_free(qdr_grid_context(grid), &to);
    return status;
}

static qdr_status build(const subject *s, qdr_grid *grid)
{
    qdr_stack *stack = NULL;
    qdr_stack_opts opts = s->stack;
    opts.codecs = s->without_codecs ? NULL : &s->codecs;
    qdr_status status = qdr_stack_create(grid, &opts, &stack);
    if (status == QDR_OK) {
        describe(s, stack);
        status = qdr_stack_build(stack);
    }
    qdr_stack_destroy(&stack);
    return status;
}

/* x, a layer, logits, a loss. */
typedef struct small {
    qdr_stack *stack;
    qdr_edge x, targets;
    qdr_linear *fc;
} small;

static small make_small(qdr_grid *grid)
{
    const qdr_linear_desc fc = {QDR_INIT(qdr_linear_desc), .name = "fc", .in = {{8, 2}}, .out = {{8, 2}},
                                .transposed = 1};
    const qdr_linear_desc head = {QDR_INIT(qdr_linear_desc), .name = "head", .in = {{8, 2}}, .out = {{16, 2}}};
    small m;
    qdr_edge h, logits;
    m.stack = dist_stack(grid, (qdr_stack_opts){.n_rows = ROWS, .row_unit = UNIT});
    m.x = dist_input(m.stack, "x", (qdr_edge_desc){.cols = {{8, 2}}, .col_axis = QDR_Y}, 0);
    DIST_OK(qdr_stack_add_linear(m.stack, &fc, m.x, &h, &m.fc));
    DIST_OK(qdr_stack_add_linear(m.stack, &head, h, &logits, NULL));
    DIST_OK(qdr_stack_add_cross_entropy(m.stack, "loss", logits, &m.targets));
    DIST_OK(qdr_stack_build(m.stack));
    void *data = dist_edge_value(m.stack, m.x);
    dist_fill_edge(m.stack, m.x, data, 3);
    data = dist_edge_value(m.stack, m.targets);
    const qdr_owned owned = dist_edge_owned(m.stack, m.targets);
    memset(data, 0, (size_t)owned.n_rows * sizeof(int32_t));
    return m;
}

static qdr_status fill(const subject *s, const small *m)
{
    float full[MOST_ELEMS];
    qdr_codecs later = {QDR_INIT(qdr_codecs), .inside = s->later_inside};
    qdr_status status = qdr_stack_set_codecs(m->stack, &later);
    if (status == QDR_OK) status = qdr_stack_init(m->stack, s->seed, s->stddev);
    if (status == QDR_OK) status = qdr_linear_init(m->fc, s->layer_seed, s->layer_stddev);
    for (int i = 0; i < MOST_ELEMS; i++) full[i] = (float)s->loaded;
    if (status == QDR_OK) status = qdr_stack_load_parameter(m->stack, s->load_index, full);
    return status;
}

static qdr_status layer_alone(const subject *s, const small *m)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(m->stack));
    void *memory[4];
    for (int i = 0; i < 4; i++) {
        memory[i] = dist_memory(ctx, MOST_ELEMS, QDR_F32);
        memset(memory[i], 0, MOST_ELEMS * sizeof(float));
    }
    qdr_status status = qdr_linear_forward(m->fc, memory[0], memory[1], s->forward_flags, NULL);
    if (status == QDR_OK)
        status = qdr_linear_backward(m->fc, memory[2], memory[0], memory[3], s->linear_backward_flags, NULL);
    /* A forward may be running when the backward was refused. */
    const qdr_status finished = qdr_stream_synchronize(qdr_context_stream(ctx));
    float full[MOST_ELEMS];
    if (status == QDR_OK) status = qdr_stack_gather_parameter(m->stack, 0, 1, full);
    for (int i = 0; i < 4; i++) qdr_mem_free(ctx, &memory[i]);
    return status != QDR_OK ? status : finished;
}

static qdr_status step(const subject *s, const small *m, qdr_adamw *adamw)
{
    double norm;
    float full[MOST_ELEMS];
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(m->stack));
    qdr_status status = qdr_stack_forward(m->stack);
    if (status == QDR_OK) status = qdr_stack_backward(m->stack, s->backward_flags, s->loss_scale);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    if (status == QDR_OK) status = qdr_grad_norm(m->stack, &norm);
    if (status == QDR_OK) status = qdr_stack_gather_parameter(m->stack, s->index, (qdr_parameter_data)s->which, full);
    if (status == QDR_OK) status = qdr_adamw_step(adamw, s->lr);
    if (status == QDR_OK) status = qdr_adamw_set_rate(adamw, s->set_lr);
    if (status == QDR_OK) status = qdr_adamw_step_as_set(adamw);
    if (status == QDR_OK) status = qdr_adamw_backward(adamw, s->joined_flags, s->joined_scale);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    return status;
}

static qdr_status save(const subject *s, const small *m, qdr_adamw *adamw)
{
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(m->stack));
    char path[64];
    long pid = (long)getpid(); /* another test may run at the same time */
    qdr_checkpoint *pending = NULL;
    qdr_status status = qdr_broadcast(ctx, 0, &pid, sizeof pid);
    snprintf(path, sizeof path, "/tmp/quadrille_same_%ld%s", pid, s->other_path ? ".other" : "");
    if (status == QDR_OK) status = qdr_checkpoint_save(m->stack, adamw, path, &s->save, &pending);
    if (status == QDR_OK) status = qdr_checkpoint_finish(&pending);
    if (status == QDR_OK) status = qdr_checkpoint_load_with(m->stack, adamw, path, &s->load, NULL);
    if (qdr_context_rank(ctx) == 0) (void)unlink(path);
    return status;
}

static qdr_status train(const subject *s, qdr_grid *grid)
{
    const small m = make_small(grid);
    qdr_stack *stack = m.stack;
    qdr_adamw *adamw = NULL;
    qdr_status status = fill(s, &m);
    if (status == QDR_OK) status = qdr_adamw_create(stack, &s->adamw, &adamw);
    if (status == QDR_OK) status = layer_alone(s, &m);
    if (status == QDR_OK) status = step(s, &m, adamw);
    if (status == QDR_OK) status = save(s, &m, adamw);
    qdr_adamw_destroy(&adamw);
    qdr_stack_destroy(&stack);
    return status;
}

static qdr_status run(const subject *s, qdr_context *ctx)
{
    qdr_grid *grid = NULL;
    qdr_status status = qdr_grid_create(ctx, &s->grid, &grid);
    if (status == QDR_OK) status = redistribute(s, grid);
    if (status == QDR_OK) status = build(s, grid);
    if (status == QDR_OK) status = train(s, grid);
    qdr_grid_destroy(&grid);
    return status;
}

DIST_TEST(each_is_named)
{
    const char *check = getenv("QDR_CHECK");
    const int is_checked = check && strcmp(check, "1") == 0, rank = qdr_context_rank(ctx);
    const subject same = usual(ctx);
    DIST_OK(run(&same, ctx));
    if (qdr_context_size(ctx) < 2) return;
    for (int i = 0; i < N_VARIATIONS; i++) {
        const variation *v = &variations[i];
        subject s = usual(ctx);
        if (v->checked && !is_checked) continue;
        if (rank == 1) v->vary(&s);
        const qdr_status status = run(&s, ctx);
        DIST_CHECK(status == QDR_ERR_ARGUMENT, "%s gave %s: %s", v->what, qdr_status_name(status), qdr_last_error());
        DIST_CHECK(strstr(qdr_last_error(), v->words), "%s: \"%s\" is not in \"%s\"", v->what, v->words,
                   qdr_last_error());
        DIST_CHECK(strstr(qdr_last_error(), "rank 1"), "%s: rank 1 is not in \"%s\"", v->what, qdr_last_error());
        DIST_OK(qdr_barrier(ctx)); /* the context works on */
    }
}

static int list(void)
{
    for (int i = 0; i < N_VARIATIONS; i++) puts(variations[i].what);
    for (int i = 0; i < N_EXCUSES; i++) printf("%s: %s\n", excuses[i].what, excuses[i].why);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 2 && strcmp(argv[1], "--list") == 0) return list();
    return dist_main(argc, argv, NULL);
}
