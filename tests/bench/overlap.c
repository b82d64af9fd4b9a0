/* SPDX-License-Identifier: Apache-2.0 */
/* The benefit of overlapping collectives with products: transformer layers forward and backward, with all overlaps,
 * without any, and without each of them, alternating in one run.
 *
 *   mpiexec -n P overlap [-g GRID] [-s] [-l LAYERS] [-h HIDDEN] [-a HEADS] [-c CONTEXT]
 *                        [-b SEQUENCES] [-p PANELS] [-q BATCH_PARTS] [-f PREFETCH] [-n ROUNDS] [-o]
 *
 * -o: only the steps with all overlaps, for a profiler or a trace.
 *
 * Times are those of the slowest rank. `compute` and `communication`: the same lists of tasks without the collectives,
 * and with nothing else. The critical path is the end of the task list if every task takes as long as alone, all ranks
 * begin it at the same time, streams run in order and a rank's collectives share one link. `processors` is the total
 * CPU time of all processes: with fewer cores than ranks, no step can be shorter than that divided by the number of
 * cores. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/gpt.h"
#include "common/meter.h"
#include "common/process.h"
#include "common/statistics.h"
#include "context/context.h"
#include "linear/internal.h"

enum { MAX_ROUNDS = 100, MAX_LAYERS = 16 };

typedef struct settings {
    int grid[4];
    gpt_config model;
    int n_rounds, prefetch, only_all;
} settings;

typedef struct variant {
    const char *name;
    int overlap, one_panel, one_part;
    qdr_stack *stack;
    qdr_edge in, out;
    double secs[MAX_ROUNDS], cpu_secs[MAX_ROUNDS]; /* cpu: of all processes together */
} variant;

enum { ALL, NONE, ALONE, COMPUTE, COMMUNICATION, NO_WEIGHTS, NO_PANELS, NO_PARTS, NO_ROWS, NO_GRADIENTS, N_VARIANTS };

typedef struct bench {
    const settings *set;
    qdr_context *ctx;
    qdr_grid *grid;
    variant variants[N_VARIANTS];
    int n_tasks; /* forward and backward */
    double *alone_secs; /* tasks x rounds */
} bench;

static void check(qdr_status status)
{
    if (status >= QDR_OK) return;
    fprintf(stderr, "overlap: %s\n", qdr_last_error());
    _exit(1); /* its peers see it leave */
}

static void *allocate(size_t n, size_t bytes)
{
    void *memory = calloc(n ? n : 1, bytes);
    if (memory) return memory;
    fprintf(stderr, "overlap: %zu bytes are not there\n", n * bytes);
    _exit(1);
}

/* ---- building ---- */

static int is_wire(const qdri_task *task) { return task->stream != QDRI_STREAM_OF_COMPUTE; }

/* Tasks that do nothing take the place of those on the wire, or of the others. */
static void leave_out(qdr_stack *stack, int wire)
{
    qdri_schedule *const schedules[] = {&stack->lists.forward, &stack->lists.backward[0]};
    for (int k = 0; k < 2; k++)
        for (int i = 0; i < schedules[k]->n_tasks; i++) {
            qdri_task *task = &schedules[k]->tasks[i];
            if (is_wire(task) != wire) continue;
            task->kind = QDRI_TASK_KERNEL;
            task->kernel = (qdri_kernel){.kind = QDRI_K_ZERO};
            task->n_reads = 0;
            task->zero_tail = 0;
        }
}

static void describe(bench *b, variant *v)
{
    const settings *set = b->set;
    const gpt_config *model = &set->model;
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts),
                                 .n_rows = model->n_sequences * model->context,
                                 .row_unit = model->context,
                                 .overlap = v->overlap,
                                 .prefetch = set->prefetch,
                                 .panels = v->one_panel ? 1 : model->panels,
                                 .batch_parts = v->one_part ? 1 : model->batch_parts,
                                 .caller_memory = 1};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{model->network.hidden, 1}}, .col_axis = QDR_X,
                                 .layout = model->layout};
    const qdr_network_desc layers = {QDR_INIT(qdr_network_desc), .context = model->context, .layout = model->layout,
                                     .only_layers = 1};
    check(qdr_stack_create(b->grid, &opts, &v->stack));
    check(qdr_stack_add_input(v->stack, "x", &input, 1, &v->in));
    check(qdr_stack_add_network(v->stack, &model->network, &layers, v->in, &v->out));
    check(qdr_stack_build(v->stack));
    if (v == &b->variants[COMPUTE]) leave_out(v->stack, 1);
    if (v == &b->variants[COMMUNICATION]) leave_out(v->stack, 0);
}

/* All variants use the memory of the first, also its parameters, which qdr_stack_bind() would refuse: only one runs at
 * a time, and ten copies of the weights would not fit. */
static void bind(bench *b)
{
    qdr_stack *first = b->variants[0].stack;
    size_t activations = 0, workspace = 0;
    qdr_stack_memory memory = {QDR_INIT(qdr_stack_memory)};
    for (int i = 0; i < N_VARIANTS; i++) {
        qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
        check(qdr_stack_get_sizes(b->variants[i].stack, &sizes));
        activations = sizes.activations > activations ? sizes.activations : activations;
        workspace = sizes.workspace > workspace ? sizes.workspace : workspace;
    }
    check(qdr_mem_alloc(b->ctx, activations + 64, &memory.activations));
    check(qdr_mem_alloc(b->ctx, workspace + 64, &memory.workspace));
    check(qdr_stack_bind(first, &memory));
    check(qdr_stack_init(first, 1, 0.02));
    for (int i = 1; i < N_VARIANTS; i++) {
        memcpy(b->variants[i].stack->memory, first->memory, sizeof first->memory);
        b->variants[i].stack->bound = 1;
    }
}

static void fill(variant *v, qdr_edge edge, int gradient)
{
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    void *value;
    check(qdr_stack_edge_owned(v->stack, edge, &owned));
    check(gradient ? qdr_stack_edge_gradient(v->stack, edge, &value) : qdr_stack_edge_value(v->stack, edge, &value));
    for (int64_t i = 0; i < owned.n_rows * owned.n_cols; i++)
        ((float *)value)[i] = (float)(i * 7919 % 2003) / 1001.5f - 1;
}

/* ---- running ---- */

static double most_of_ranks(bench *b, double value)
{
    double all[1024], most = value;
    check(meter_all(b->grid, value, all));
    for (int i = 0; i < qdr_context_size(b->ctx); i++) most = all[i] > most ? all[i] : most;
    return most;
}

static double sum_of_ranks(bench *b, double value)
{
    double all[1024], sum = 0;
    check(meter_all(b->grid, value, all));
    for (int i = 0; i < qdr_context_size(b->ctx); i++) sum += all[i];
    return sum;
}

static void step(bench *b, variant *v, int round)
{
    fill(v, v->in, 0);
    fill(v, v->out, 1);
    check(qdr_barrier(b->ctx));
    const double began = process_secs(), cpu_began = meter_cpu_secs();
    check(qdr_stack_forward(v->stack));
    check(qdr_stack_backward(v->stack, 0, 1));
    check(qdr_stream_synchronize(qdr_context_stream(b->ctx)));
    const double secs = process_secs() - began, cpu_secs = meter_cpu_secs() - cpu_began;
    v->secs[round] = most_of_ranks(b, secs);
    v->cpu_secs[round] = sum_of_ranks(b, cpu_secs);
}

static const qdri_task *task_at(const qdr_stack *stack, int number)
{
    const int n_forward = stack->lists.forward.n_tasks;
    return number < n_forward ? &stack->lists.forward.tasks[number]
                              : &stack->lists.backward[0].tasks[number - n_forward];
}

/* One task after the other, all ranks at the same one. */
static void step_alone(bench *b, variant *v, int round)
{
    qdr_stream *stream = qdr_context_stream(b->ctx);
    const double step_began = process_secs();
    fill(v, v->in, 0);
    fill(v, v->out, 1);
    for (int i = 0; i < b->n_tasks; i++) {
        qdri_task task = *task_at(v->stack, i);
        task.n_waits = task.signals = 0;
        const qdri_schedule one = {.tasks = &task, .n_tasks = 1};
        check(qdr_barrier(b->ctx));
        const double began = process_secs();
        check(qdri_execute(v->stack, &one, stream));
        check(qdr_stream_synchronize(stream));
        b->alone_secs[i * MAX_ROUNDS + round] = process_secs() - began;
    }
    v->secs[round] = process_secs() - step_began;
}

static void measure(bench *b)
{
    for (int round = -1; round < b->set->n_rounds; round++)
        for (int i = 0; i < (b->set->only_all ? 1 : N_VARIANTS); i++) {
            variant *v = &b->variants[i];
            if (i == ALONE && round >= 0)
                step_alone(b, v, round);
            else
                step(b, v, round < 0 ? 0 : round); /* the first to warm up */
        }
}

/* ---- what the tasks say ---- */

/* The end of one schedule that begins at `at` on all streams. Of the tasks that could run next the one that can begin
 * first does. */
static double walk(const qdri_schedule *schedule, const double *secs, double at)
{
    double *ends = allocate((size_t)schedule->n_tasks, sizeof *ends);
    double free_at[QDRI_N_STREAMS], wire = at, end = at;
    int next[QDRI_N_STREAMS] = {0};
    for (int s = 0; s < QDRI_N_STREAMS; s++) free_at[s] = at;
    for (int i = 0; i < schedule->n_tasks; i++) ends[i] = -1;
    for (;;) {
        int chosen = -1;
        double first = 0;
        for (int s = 0; s < QDRI_N_STREAMS; s++) {
            while (next[s] < schedule->n_tasks && schedule->tasks[next[s]].stream != s) next[s]++;
            if (next[s] == schedule->n_tasks) continue;
            const qdri_task *task = &schedule->tasks[next[s]];
            double begin = free_at[s];
            if (is_wire(task) && wire > begin) begin = wire;
            for (int i = 0; i < task->n_waits; i++) {
                const double other = ends[task->waits[i]];
                if (other < 0) begin = 1e30;
                if (other > begin) begin = other;
            }
            if (begin < 1e29 && (chosen < 0 || begin < first)) {
                chosen = s;
                first = begin;
            }
        }
        if (chosen < 0) break;
        const int number = next[chosen]++;
        ends[number] = free_at[chosen] = first + secs[number];
        if (is_wire(&schedule->tasks[number])) wire = ends[number];
        if (ends[number] > end) end = ends[number];
    }
    free(ends);
    return end;
}

static double critical_path(bench *b)
{
    const qdr_stack *stack = b->variants[ALL].stack;
    double *secs = allocate((size_t)b->n_tasks, sizeof *secs);
    for (int i = 0; i < b->n_tasks; i++)
        secs[i] = statistics_median(&b->alone_secs[i * MAX_ROUNDS], (size_t)b->set->n_rounds);
    const double forward = walk(&stack->lists.forward, secs, 0);
    const double path = walk(&stack->lists.backward[0], secs + stack->lists.forward.n_tasks, forward);
    free(secs);
    return most_of_ranks(b, path);
}

static double middle(const double *secs, int n)
{
    double sorted[MAX_ROUNDS];
    memcpy(sorted, secs, sizeof sorted);
    return statistics_median(sorted, (size_t)n);
}

static double ratio(const variant *over, const variant *under, int n)
{
    double ratios[MAX_ROUNDS];
    for (int i = 0; i < n; i++) ratios[i] = over->secs[i] / under->secs[i];
    return statistics_median(ratios, (size_t)n);
}

static void report(bench *b)
{
    const int n = b->set->n_rounds;
    const variant *v = b->variants, *all = &v[ALL];
    if (b->set->only_all) {
        if (qdr_context_rank(b->ctx) == 0)
            printf("overlap %.1f ms, processors %.1f ms\n", 1e3 * middle(all->secs, n), 1e3 * middle(all->cpu_secs, n));
        return;
    }
    const double path_secs = critical_path(b);
    if (qdr_context_rank(b->ctx) != 0) return;
    const double compute = middle(v[COMPUTE].secs, n), wire = middle(v[COMMUNICATION].secs, n);
    const double best = middle(all->secs, n);
    printf("compute %.1f ms, communication %.1f ms, critical path %.1f ms; %d rounds\n", 1e3 * compute, 1e3 * wire,
           1e3 * path_secs, n);
    printf("overlap %.1f ms: %.3f of the larger, %.3f of the critical path; gain %.3f\n", 1e3 * best,
           best / (compute > wire ? compute : wire), best / path_secs, ratio(&v[NONE], all, n));
    for (int i = 0; i < N_VARIANTS; i++)
        printf("  %-30s %9.1f ms  %.3f times the time with all overlaps; processors %9.1f ms\n", v[i].name,
               1e3 * middle(v[i].secs, n), ratio(&v[i], all, n), 1e3 * middle(v[i].cpu_secs, n));
}

static int run(qdr_context *ctx, void *user)
{
    static const struct {
        const char *name;
        int overlap, one_panel, one_part;
    } kinds[N_VARIANTS] = {
        [ALL] = {"all overlaps", QDR_OVERLAP_ALL, 0, 0},
        [NONE] = {"no overlap, one panel and part", QDR_OVERLAP_NONE, 1, 1},
        [ALONE] = {"each task alone", QDR_OVERLAP_NONE, 0, 0},
        [COMPUTE] = {"compute", QDR_OVERLAP_ALL, 0, 0},
        [COMMUNICATION] = {"communication", QDR_OVERLAP_ALL, 0, 0},
        [NO_WEIGHTS] = {"without weights ahead", QDR_OVERLAP_ALL & ~QDR_OVERLAP_WEIGHTS, 0, 0},
        [NO_PANELS] = {"without panels", QDR_OVERLAP_ALL, 1, 0},
        [NO_PARTS] = {"without parts of the batch", QDR_OVERLAP_ALL, 0, 1},
        [NO_ROWS] = {"without rows and dX", QDR_OVERLAP_ALL & ~QDR_OVERLAP_ROWS, 0, 0},
        [NO_GRADIENTS] = {"without dW and sum over d", QDR_OVERLAP_ALL & ~QDR_OVERLAP_GRADIENTS, 0, 0},
    };
    bench *b = allocate(1, sizeof *b);
    *b = (bench){.set = user, .ctx = ctx};
    const int *size = b->set->grid;
    check(qdr_grid_create(
        ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = size[0], .y = size[1], .z = size[2], .d = size[3]},
        &b->grid));
    for (int i = 0; i < N_VARIANTS; i++) {
        b->variants[i] = (variant){.name = kinds[i].name,
                                   .overlap = kinds[i].overlap,
                                   .one_panel = kinds[i].one_panel,
                                   .one_part = kinds[i].one_part};
        describe(b, &b->variants[i]);
    }
    bind(b);
    const qdr_stack *stack = b->variants[ALONE].stack;
    b->n_tasks = stack->lists.forward.n_tasks + stack->lists.backward[0].n_tasks;
    b->alone_secs = allocate((size_t)b->n_tasks * MAX_ROUNDS, sizeof(double));
    measure(b);
    report(b);
    for (int i = 0; i < N_VARIANTS; i++) qdr_stack_destroy(&b->variants[i].stack);
    qdr_grid_destroy(&b->grid);
    free(b->alone_secs);
    free(b);
    return 0;
}

int main(int argc, char **argv)
{
    settings set = {.grid = {1, 1, 1, 1},
                    .model = {.network = {.layers = 4, .hidden = 512, .heads = 8}, .context = 128, .n_sequences = 8},
                    .n_rounds = 5};
    int option, exit_code = 1;
    while ((option = getopt(argc, argv, "g:sl:h:a:c:b:p:q:f:n:o")) != -1) {
        const int64_t number = optarg ? strtoll(optarg, NULL, 10) : 0;
        switch (option) {
        case 'g':
            if (sscanf(optarg, "%dx%dx%dx%d", &set.grid[0], &set.grid[1], &set.grid[2], &set.grid[3]) != 4) return 2;
            break;
        case 's': set.model.layout = QDR_SCATTERED; break;
        case 'l': set.model.network.layers = number; break;
        case 'h': set.model.network.hidden = number; break;
        case 'a': set.model.network.heads = number; break;
        case 'c': set.model.context = number; break;
        case 'b': set.model.n_sequences = number; break;
        case 'p': set.model.panels = (int)number; break;
        case 'q': set.model.batch_parts = (int)number; break;
        case 'f': set.prefetch = (int)number; break;
        case 'o': set.only_all = 1; break;
        case 'n': set.n_rounds = number > 0 && number < MAX_ROUNDS ? (int)number : 5; break;
        default: return 2;
        }
    }
    set.model.network.context = set.model.context;
    set.model.network = gpt_network(set.model.network);
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = 1};
    if (qdr_launch(0, &opts, run, &set, &exit_code) != QDR_OK) fprintf(stderr, "overlap: %s\n", qdr_last_error());
    return exit_code;
}
