/* SPDX-License-Identifier: Apache-2.0 */
/* Reports of stacks: every kind of task occurs as often as in the lists, numbers are numbers, and measuring changes no
 * result. The only assertion about times is that there are some. */

#include "../support/gpt_fill.h"
#include "dist.h"

enum { CONTEXT = 8, MAX_ROWS = 64 };

typedef struct row {
    char kind[23];
    double count, predicted, measured;
} row;

typedef struct table {
    row rows[MAX_ROWS];
    int n_rows, n_wholes;
} table;

static void create(qdr_grid *grid, qdr_layout layout, gpt *model)
{
    const gpt_config config = {
        .network = gpt_network((qdr_network){.layers = 2, .hidden = 48, .heads = 6, .vocab = 60, .context = CONTEXT}),
        .context = CONTEXT,
        .n_sequences = 2 * qdr_context_size(qdr_grid_context(grid)),
        .layout = layout,
        .dtype = QDR_F32};
    DIST_OK(gpt_create(grid, &config, model));
    DIST_OK(gpt_init(model, 7, 0.05));
}

/* Steps of two micro-batches, after each of which parameters count as updated. @return the last loss */
static double train(gpt *model, int n_steps)
{
    uint8_t text[256];
    int64_t starts[64] = {0}, n_valid;
    double loss = 0;
    for (int i = 0; i < 256; i++) text[i] = (uint8_t)(i * 7 % 60);
    for (int64_t i = 0; i < model->config.n_sequences; i++) starts[i] = i * 3 % 200;
    for (int step = 0; step < n_steps; step++) {
        for (int part = 0; part < 2; part++) {
            DIST_OK(gpt_fill(model, text, starts));
            DIST_OK(qdr_stack_forward(model->stack));
            DIST_OK(qdr_stack_backward(model->stack, part ? QDR_ACCUMULATE : QDR_DEFER_SYNC, 1));
            DIST_OK(qdr_stack_loss(model->stack, &loss, &n_valid));
        }
        DIST_OK(qdr_stack_mark_updated(model->stack));
    }
    return loss;
}

/* One forward and one backward. */
static void train_whole(gpt *model)
{
    uint8_t text[256] = {0};
    int64_t starts[64] = {0};
    DIST_OK(gpt_fill(model, text, starts));
    DIST_OK(qdr_stack_forward(model->stack));
    DIST_OK(qdr_stack_backward(model->stack, 0, 1));
    DIST_OK(qdr_stack_mark_updated(model->stack));
}

/* ---- the text of a report ---- */

static char *text_of(qdr_stack *stack, const qdr_machine *machine)
{
    char *text = NULL;
    size_t n_chars = 0;
    FILE *file = open_memstream(&text, &n_chars);
    DIST_CHECK(file != NULL, "no memory");
    DIST_OK(qdr_stack_report(stack, machine, file));
    fclose(file);
    return text;
}

static int is_time(double number) { return isfinite(number) && number >= 0; }

static void read_row(const char *line, table *read)
{
    row *r = &read->rows[read->n_rows];
    char ratio[16];
    DIST_CHECK(read->n_rows < MAX_ROWS, "too many rows");
    memcpy(r->kind, line, 22);
    r->kind[22] = '\0';
    for (int i = 21; i >= 0 && r->kind[i] == ' '; i--) r->kind[i] = '\0';
    DIST_CHECK(sscanf(line + 22, "%lf %lf %lf %15s", &r->count, &r->predicted, &r->measured, ratio) == 4, "row '%s'",
               line);
    DIST_CHECK(r->count > 0 && is_time(r->predicted) && is_time(r->measured), "row '%s'", line);
    read->n_rows++;
}

static void read_whole(const char *line, table *read)
{
    double predicted, measured, ratio;
    DIST_CHECK(sscanf(line + 30, "%lf %lf %lf", &predicted, &measured, &ratio) == 3, "row '%s'", line);
    DIST_CHECK(is_time(predicted) && is_time(measured), "row '%s'", line);
    read->n_wholes++;
}

static void read_table(char *text, table *read)
{
    int part = 0;
    memset(read, 0, sizeof *read);
    char *rest = NULL; /* ranks are threads */
    for (char *line = strtok_r(text, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest)) {
        if (strncmp(line, "kind of task", 12) == 0 || strncmp(line, "tasks together", 14) == 0)
            part++;
        else if (part == 1)
            read_row(line, read);
        else if (part == 2)
            read_whole(line, read);
    }
}

static double count_of(const table *read, const char *kind)
{
    for (int i = 0; i < read->n_rows; i++)
        if (strcmp(read->rows[i].kind, kind) == 0) return read->rows[i].count;
    return 0;
}

/* ---- */

static void check_counts(const qdr_stack *stack, const table *read)
{
    static const char *const axes[] = {"x", "y", "z"};
    static const char *const once[] = {"loss", "loss-backward", "embed", "embed-sum"};
    double n_products = 0;
    for (int i = 0; i < read->n_rows; i++)
        n_products += strncmp(read->rows[i].kind, "product", 7) == 0 ? read->rows[i].count : 0;
    /* nine layers, and each of them three times; panels may cut them */
    DIST_CHECK(n_products >= 3 * 9, "%g products", n_products);
    DIST_CHECK(count_of(read, "attention") == 2, "attention");
    DIST_CHECK(count_of(read, "norm-backward") == 5, "norms");
    DIST_CHECK(count_of(read, "activation-backward") == 2, "activation");
    for (int i = 0; i < 4; i++) DIST_CHECK(count_of(read, once[i]) == 1, "%s", once[i]);
    for (int axis = 0; axis < 3; axis++) {
        char kind[32];
        const int wide = qdr_grid_size(qdr_stack_grid(stack), (qdr_axis)axis) > 1;
        double n = 0;
        for (int coll = 0; coll < 3; coll++) {
            snprintf(kind, sizeof kind, "%s %s", qdr_coll_kind_name((qdr_coll_kind)coll), axes[axis]);
            n += count_of(read, kind);
        }
        DIST_CHECK((n > 0) == wide, "%g collectives over %s", n, axes[axis]);
    }
}

static void check_count(const qdr_stack *stack, const table *read, const char *kind, qdr_channel channel, double wanted)
{
    const double count = count_of(read, kind);
    if (qdr_grid_channel_size(qdr_stack_grid(stack), channel) == 1) wanted = 0;
    DIST_CHECK(fabs(count - wanted) < 1e-3, "%g times %s instead of %g", count, kind, wanted);
}

/* Of three steps of two micro-batches, all but the first step begin with returns: two forwards of six. Two
 * layers of four matrices, the table and the head. */
static void check_levels(const qdr_stack *stack, const table *read)
{
    const double n_matrices = 10;
    check_count(stack, read, "all-gather d far", QDR_CHANNEL_D_FAR, n_matrices / 3);
    check_count(stack, read, "all-gather d near", QDR_CHANNEL_D_NEAR, n_matrices / 3);
    check_count(stack, read, "reduce-scatter d near", QDR_CHANNEL_D_NEAR, n_matrices);
    check_count(stack, read, "reduce-scatter d far", QDR_CHANNEL_D_FAR, n_matrices / 2);
    check_count(stack, read, "all-reduce d copies", QDR_CHANNEL_D_COPIES, n_matrices / 2);
}

static void check_report(qdr_grid *grid, const qdr_machine *machine, qdr_layout layout)
{
    gpt plain, measured;
    table read;
    create(grid, layout, &plain);
    const double expected = train(&plain, 3);
    gpt_destroy(&plain);
    create(grid, layout, &measured);
    DIST_OK(qdr_stack_measure(measured.stack));
    const double loss = train(&measured, 3);
    DIST_CHECK(loss == expected, "%.17g measured, %.17g not", loss, expected);
    char *text = text_of(measured.stack, machine);
    DIST_CHECK(strstr(text, machine->name) != NULL, "no machine in\n%s", text);
    read_table(text, &read);
    check_counts(measured.stack, &read);
    check_levels(measured.stack, &read);
    DIST_CHECK(read.n_wholes == 3, "%d wholes", read.n_wholes);
    free(text);
    gpt_destroy(&measured);
}

static void check_grid(qdr_grid *grid, void *user)
{
    check_report(grid, user, QDR_REPLICATED);
    check_report(grid, user, QDR_SCATTERED);
}

DIST_TEST(test_every_grid)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    DIST_OK(qdr_machine_load("dgx-a100", &machine));
    dist_every_grid(ctx, 1, check_grid, &machine);
}

/* ---- samples ---- */

typedef struct sums {
    double product_flops;
    double n_collectives[QDR_N_AXES][QDR_N_COLL_KINDS], bytes_sent[QDR_N_AXES][QDR_N_COLL_KINDS];
} sums;

/* Of two ranks each sends half of the vector, or, in an all-reduce, both halves. */
static void add_sample(const qdr_sample *sample, void *user)
{
    sums *all = user;
    DIST_CHECK(sample->size == sizeof *sample && *sample->group && is_time(sample->secs) && sample->secs > 0,
               "sample '%s' took %g s", sample->group, sample->secs);
    if (sample->kind == QDR_SAMPLE_PRODUCT) all->product_flops += 2 * sample->m * sample->n * sample->k;
    if (sample->kind != QDR_SAMPLE_COLLECTIVE) return;
    const char *axis = strchr("xyzd", sample->group[strlen(qdr_coll_kind_name(sample->coll)) + 1]);
    DIST_CHECK(axis != NULL, "sample '%s'", sample->group);
    all->n_collectives[axis - "xyzd"][sample->coll]++;
    all->bytes_sent[axis - "xyzd"][sample->coll] += sample->bytes / (sample->coll == QDR_ALL_REDUCE ? 1 : 2);
}

/* The products of nine layers, forward and backward, over all ranks: 6 flops a weight and token. */
static void check_flops(qdr_grid *grid, double mine)
{
    qdr_context *ctx = qdr_grid_context(grid);
    const double wanted = 6 * (2 * 12.0 * 48 * 48 + 60 * 48) * 2.0 * CONTEXT * qdr_context_size(ctx);
    void *sum = dist_memory(ctx, 1, QDR_F64);
    dist_set(sum, QDR_F64, 0, mine);
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        DIST_OK(qdr_all_reduce(grid, (qdr_axis)axis, QDR_SUM, sum, 1, QDR_F64, NULL));
    dist_synchronize(ctx);
    const double got = dist_get(sum, QDR_F64, 0);
    DIST_CHECK(fabs(got / wanted - 1) < 1e-9, "%g flops instead of %g", got, wanted);
    qdr_mem_free(ctx, &sum);
}

/* Against the bytes that the ranks' collectives counted while they copied. */
static void check_samples(qdr_grid *grid, void *user)
{
    const int is_pair = qdr_context_size(qdr_grid_context(grid)) == 2;
    gpt model;
    sums all = {0};
    (void)user;
    create(grid, QDR_REPLICATED, &model);
    DIST_OK(qdr_stack_measure(model.stack));
    for (int i = 0; i < 3; i++) { /* the second is the first with returns, the third the first that is timed */
        dist_synchronize(qdr_grid_context(grid));
        qdr_grid_reset_traffic(grid);
        train_whole(&model);
    }
    DIST_OK(qdr_stack_samples(model.stack, add_sample, &all));
    for (int axis = 0; axis < QDR_N_AXES; axis++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
            double n = 0, bytes = 0;
            for (int channel = 0; channel < QDR_N_CHANNELS; channel++) {
                if ((int)qdr_channel_axis((qdr_channel)channel) != axis) continue;
                const qdr_traffic traffic = dist_traffic(grid, (qdr_channel)channel, (qdr_coll_kind)kind);
                n += (double)traffic.n_calls;
                bytes += (double)traffic.bytes_sent;
            }
            DIST_CHECK(n == all.n_collectives[axis][kind], "axis %d, kind %d: %g collectives, %g samples", axis, kind,
                       n, all.n_collectives[axis][kind]);
            if (is_pair)
                DIST_CHECK(bytes == all.bytes_sent[axis][kind], "axis %d, kind %d: %g bytes sent, %g in samples", axis,
                           kind, bytes, all.bytes_sent[axis][kind]);
        }
    check_flops(grid, all.product_flops);
    gpt_destroy(&model);
}

DIST_TEST(test_samples)
{
    if (qdr_context_size(ctx) <= 4)
        dist_every_grid(ctx, 1, check_samples, NULL); /* with larger axes some ranks are empty */
}

/* More runs than are kept, and a list whose only run does not count. */
DIST_TEST(test_long)
{
    gpt model;
    table read;
    qdr_grid *grid = dist_grid(ctx, (qdr_grid_opts){.x = 1, .y = 1, .z = qdr_context_size(ctx), .d = 1});
    create(grid, QDR_REPLICATED, &model);
    if (qdr_context_rank(ctx) == 0) DIST_OK(qdr_stack_measure(model.stack)); /* others need not */
    (void)train(&model, 40);
    DIST_OK(qdr_stack_forward(model.stack));
    DIST_OK(qdr_stack_backward(model.stack, 0, 1));
    if (qdr_context_rank(ctx) == 0) {
        char *text = text_of(model.stack, NULL);
        DIST_CHECK(strstr(text, "medians of 32 runs") != NULL, "%s", text);
        read_table(text, &read);
        check_counts(model.stack, &read);
        free(text);
    }
    DIST_OK(qdr_barrier(ctx));
    gpt_destroy(&model);
    qdr_grid_destroy(&grid);
}

DIST_TEST(test_refusals)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    gpt model;
    DIST_OK(qdr_machine_load("dgx-a100", &machine));
    create(grid, QDR_REPLICATED, &model);
    DIST_FAILS(qdr_stack_measure(NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_report(NULL, &machine, stderr), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_report(model.stack, &machine, NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_report(model.stack, &machine, stderr), QDR_ERR_STATE, "qdr_stack_measure");
    DIST_FAILS(qdr_stack_samples(model.stack, add_sample, NULL), QDR_ERR_STATE, "qdr_stack_measure");
    DIST_FAILS(qdr_stack_samples(NULL, add_sample, NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_stack_samples(model.stack, NULL, NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_OK(qdr_stack_measure(model.stack));
    DIST_OK(qdr_stack_measure(model.stack));
    DIST_FAILS(qdr_stack_samples(model.stack, add_sample, NULL), QDR_ERR_STATE, "twice");
    DIST_FAILS(qdr_stack_report(model.stack, &machine, stderr), QDR_ERR_STATE, "twice");
    (void)train(&model, 2);
    machine.f32.peak_flops = 0;
    DIST_FAILS(qdr_stack_report(model.stack, &machine, stderr), QDR_ERR_DTYPE, "f32");
    gpt_destroy(&model);
    qdr_grid_destroy(&grid);
}
