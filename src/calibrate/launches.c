/* SPDX-License-Identifier: Apache-2.0 */
/* What starting a task costs the host of a GPU, which enqueues the tasks of a stack. */
#include <stdio.h>

#include "calibrate/calibrate.h"
#include "common/planning.h"

enum { N_LAYERS = 4, HIDDEN = 64, CONTEXT = 16, ROUNDS = 51, QUICK_ROUNDS = 5 };

/* One line of the printed schedule for each task; what begins with # or is empty is none. */
static int count_tasks(const qdr_stack *stack, failure *why)
{
    char line[512];
    int n = 0;
    FILE *file = tmpfile();
    if (!file) return fail(why, EXIT_FAILED, "calibrate: there is no temporary file; see TMPDIR"), 0;
    fail_status(why, qdr_stack_print(stack, QDR_LIST_FORWARD, file));
    rewind(file);
    while (fgets(line, sizeof line, file)) n += line[0] != '#' && line[0] != '\n';
    fclose(file);
    return n;
}

static qdr_status enqueue(void *user, int series)
{
    (void)series;
    return qdr_stack_forward(((const transformer *)user)->stack);
}

static void wait(void *user, int series, int64_t iteration)
{
    (void)series, (void)iteration;
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(((const transformer *)user)->stack));
    const qdr_status status = qdr_stream_synchronize(qdr_context_stream(ctx));
    (void)status; /* the next call has it, too */
}

int calibrate_launches(calibration *c, failure *why)
{
    calibrate_show(c, "launches");
    const qdr_network network = planning_network("layers", N_LAYERS, HIDDEN, 1, CONTEXT);
    const transformer_desc desc = {.network = &network,
                                   .n_layers = N_LAYERS,
                                   .n_sequences = 1,
                                   .sequence = CONTEXT,
                                   .dtype = QDR_BF16,
                                   .n_panels = 1,
                                   .n_batch_parts = 1,
                                   .overlap = QDR_OVERLAP_ALL};
    const bench_options options = {.n_iterations = c->is_quick ? QUICK_ROUNDS : ROUNDS, .n_warmup = 2};
    transformer made = {0};
    bench_samples samples = {0};
    int n_tasks = 0;
    if (!fail_status(why, transformer_create(c->self, &desc, &made))) n_tasks = count_tasks(made.stack, why);
    const bench_subject forward = {.call = enqueue, .after = wait, .user = &made};
    if (!fail_together(why, c->ctx) && !bench_measure(c->ctx, &options, &forward, 1, 0, &samples, why))
        c->machine.software.host_secs = bench_times_of(&samples, 0).median / (n_tasks ? n_tasks : 1);
    bench_free(&samples);
    qdr_stack_destroy(&made.stack);
    return why->code;
}
