/* SPDX-License-Identifier: Apache-2.0 */
/* Overlap changes no bit, with codecs or without, on every grid of the ranks and in both layouts, even if the tasks of
 * all streams are delayed by random times: a missing wait would show as a different number. Nor does the lossless
 * codec. Other numbers of panels stay within rounding. With levels parameters are updated in parts between the passes,
 * and return in the second one. */
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

#include "common/gpt.h"
#include "dev/cpu/cpu.h"
#include "dist.h"

enum { HIDDEN = 48, HEADS = 8, CONTEXT = 4, N_LAYERS = 2 };

/* ---- delays ---- */

static atomic_uint_least64_t delay_seed; /* 0: none is late */

/* One task in four begins up to 0.4 ms late. */
static void delay(void)
{
    static _Thread_local uint64_t state;
    if (atomic_load(&delay_seed) == 0) return;
    if (state == 0) state = atomic_fetch_add(&delay_seed, 1);
    const int64_t ns = dist_below(&state, 4) == 0 ? dist_below(&state, 400000) : 0;
    const struct timespec pause = {.tv_nsec = (long)ns};
    if (ns > 0) nanosleep(&pause, NULL);
}

/* Ranks that are threads may switch at different times: results are the same anyway. */
static void set_delays(uint64_t seed) { atomic_store(&delay_seed, seed); }

/* ---- a step ---- */

typedef struct outcome {
    float *numbers;
    int64_t n;
    int64_t bytes_plain; /* that the first pass would have sent without codecs */
} outcome;

static void keep(outcome *o, const float *numbers, int64_t n)
{
    float *larger = realloc(o->numbers, (size_t)(o->n + n) * sizeof *larger);
    DIST_CHECK(larger != NULL || o->n + n == 0, "no memory");
    if (n > 0) memcpy(larger + o->n, numbers, (size_t)n * sizeof *larger);
    o->numbers = larger;
    o->n += n;
}

static void keep_gradients(qdr_stack *stack, outcome *o)
{
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter parameter = dist_parameter(stack, i);
        float *full = calloc((size_t)parameter.n_global, sizeof *full);
        DIST_CHECK(full != NULL, "no memory");
        DIST_OK(qdr_stack_gather_parameter(stack, i, 1, full));
        keep(o, full, parameter.n_global);
        free(full);
    }
}

/* What this rank has of an edge's gradient. */
static void keep_input_gradient(qdr_stack *stack, qdr_edge edge, outcome *o)
{
    const qdr_owned owned = dist_edge_owned(stack, edge);
    void *data = dist_edge_gradient(stack, edge);
    keep(o, data, owned.n_rows * owned.n_cols);
}

typedef struct plan {
    qdr_layout layout;
    int overlap, panels, batch_parts;
    const qdr_codecs *codecs; /* NULL: none */
    const qdr_codecs *before; /* the stack is built, and first run, with these; NULL: with the others */
} plan;

static int is_lossless(const qdr_codecs *codecs)
{
    return codecs && codecs->of[QDR_X][QDR_TRAFFIC_ACTIVATION].kind == QDR_CODEC_LOSSLESS;
}

/* What was sent is what the lists say; of the lossless codec they only know the most. @return what would have been sent
 * without codecs */
static int64_t check_bytes(const qdr_grid *grid, const qdr_stack *stack, const qdr_codecs *codecs)
{
    int64_t sent = 0, plain = 0;
    for (int channel = 0; channel < (int)QDR_CHANNEL_X_STAT; channel++)
        for (int kind = 0; kind < QDR_N_COLL_KINDS; kind++) {
            const qdr_channel on = (qdr_channel)channel;
            const qdr_traffic traffic = dist_traffic(grid, on, (qdr_coll_kind)kind);
            qdr_planned forward = {QDR_INIT(qdr_planned)}, backward = {QDR_INIT(qdr_planned)};
            DIST_OK(qdr_stack_planned(stack, QDR_LIST_FORWARD, on, (qdr_coll_kind)kind, &forward));
            DIST_OK(qdr_stack_planned(stack, QDR_LIST_BACKWARD, on, (qdr_coll_kind)kind, &backward));
            DIST_CHECK(is_lossless(codecs) || traffic.bytes_sent == forward.bytes_sent + backward.bytes_sent,
                       "%s, %s: %lld bytes, not %lld", qdr_channel_name(on), qdr_coll_kind_name((qdr_coll_kind)kind),
                       (long long)traffic.bytes_sent, (long long)(forward.bytes_sent + backward.bytes_sent));
            sent += traffic.bytes_sent;
            plain += traffic.bytes_plain;
        }
    DIST_CHECK(codecs || sent == plain, "%lld bytes without codecs, %lld sent", (long long)plain, (long long)sent);
    return plain;
}

/* What this rank updates, against its gradient. */
static void descend(qdr_stack *stack)
{
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        float *data = p.data;
        const float *gradient = p.gradient;
        for (int64_t j = p.state_begin; j < p.state_begin + p.n_state; j++)
            data[j] -= 0x1p-10F * gradient[j - p.gradient_begin];
    }
    DIST_OK(qdr_stack_mark_updated(stack));
}

static int is_random(const qdr_codecs *codecs)
{
    return codecs && codecs->of[QDR_D][QDR_TRAFFIC_GRADIENT].flags & QDR_CODEC_STOCHASTIC;
}

/* After a step, unless that would change random numbers. */
static void change_codecs(qdr_stack *stack, qdr_edge x, qdr_edge y, const qdr_codecs *codecs)
{
    DIST_OK(qdr_stack_init(stack, 5, 0.2));
    if (!is_random(codecs)) dist_step(stack, x, 27, y, 37, 0);
    DIST_OK(qdr_stack_set_codecs(stack, codecs));
}

static int64_t sum_of_ranks(qdr_context *ctx, int64_t mine)
{
    int64_t sum = 0;
    for (int rank = 0; rank < qdr_context_size(ctx); rank++) {
        int64_t theirs = mine;
        DIST_OK(qdr_broadcast(ctx, rank, &theirs, sizeof theirs));
        sum += theirs;
    }
    return sum;
}

/* Parameters say where feedback is, all of it, and messages of fewer bits lose something. */
static void check_feedback(qdr_stack *stack, const qdr_codecs *codecs)
{
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    size_t bytes = 0;
    int64_t n_lost = 0;
    DIST_OK(qdr_stack_get_sizes(stack, &sizes));
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        bytes += (size_t)p.n_feedback * sizeof *p.feedback;
        for (int64_t j = 0; j < p.n_feedback; j++) n_lost += p.feedback[j] != 0;
    }
    DIST_CHECK(bytes == sizes.feedback, "%zu bytes of feedback, not %zu", bytes, sizes.feedback);
    const int flags = codecs ? codecs->of[QDR_D][QDR_TRAFFIC_GRADIENT].flags : 0;
    if (!(flags & QDR_CODEC_FEEDBACK) || qdr_grid_size(qdr_stack_grid(stack), QDR_D) == 1) return;
    /* Shards of a rank may be nothing but padding. */
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(stack));
    const int64_t n_with = sum_of_ranks(ctx, bytes > 0), n_lossy = sum_of_ranks(ctx, n_lost > 0);
    DIST_CHECK((n_with > 0) == (n_lossy > 0), "%lld ranks have feedback, %lld have lost anything", (long long)n_with,
               (long long)n_lossy);
}

/* Two steps, the second adding to the first's gradients. */
static outcome run(qdr_grid *grid, plan how)
{
    const int64_t n_sequences = 2 * qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D) + 1;
    const qdr_network network = gpt_network(
        (qdr_network){.layers = N_LAYERS, .hidden = HIDDEN, .heads = HEADS, .context = CONTEXT});
    const qdr_network_desc layers = {QDR_INIT(qdr_network_desc), .context = CONTEXT, .layout = how.layout,
                                     .only_layers = 1};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{HIDDEN, 1}}, .col_axis = QDR_X,
                                 .layout = how.layout};
    qdr_edge x, y;
    qdr_stack *stack = dist_stack(grid, (qdr_stack_opts){.n_rows = n_sequences * CONTEXT,
                                                         .row_unit = CONTEXT,
                                                         .overlap = how.overlap,
                                                         .panels = how.panels,
                                                         .batch_parts = how.batch_parts,
                                                         .codecs = how.before ? how.before : how.codecs});
    DIST_OK(qdr_stack_add_input(stack, "x", &input, 1, &x));
    DIST_OK(qdr_stack_add_network(stack, &network, &layers, x, &y));
    DIST_OK(qdr_stack_build(stack));
    if (how.before) change_codecs(stack, x, y, how.codecs);
    DIST_OK(qdr_stack_init(stack, 3, 0.2));
    qdr_grid_reset_traffic(grid);
    outcome o = {NULL, 0, 0};
    for (int pass = 0; pass < 2; pass++) {
        if (pass) descend(stack);
        dist_step(stack, x, 7 + (uint64_t)pass, y, 17 + (uint64_t)pass, pass ? QDR_ACCUMULATE : 0);
        if (!pass) o.bytes_plain = check_bytes(grid, stack, how.codecs);
    }
    check_feedback(stack, how.codecs);
    keep_gradients(stack, &o);
    keep_input_gradient(stack, x, &o);
    qdr_stack_destroy(&stack);
    return o;
}

static uint32_t bits_of(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static void same_bits(const outcome *a, const outcome *b, const char *what)
{
    DIST_CHECK(a->n == b->n, "%s: %lld and %lld numbers", what, (long long)a->n, (long long)b->n);
    for (int64_t i = 0; i < a->n; i++) {
        const float x = a->numbers[i], y = b->numbers[i]; /* NOLINT(clang-analyzer-core.*): keep() has written both */
        DIST_CHECK(bits_of(x) == bits_of(y), "%s: number %lld is %a, not %a", what, (long long)i, (double)y, (double)x);
    }
}

/* Products of other row counts, and sums in the same order (of gradients of norms: part by part): each of some hundred
 * roundings of a number may go the other way, and numbers here are below 100. */
static void nearly_same(const outcome *a, const outcome *b)
{
    double scale = 0;
    /* By fmax, which has an instruction on aarch64, this is a loop on which GCC 12 fails there. */
    for (int64_t i = 0; i < a->n; i++) scale = fabs(a->numbers[i]) > scale ? fabs(a->numbers[i]) : scale;
    for (int64_t i = 0; i < a->n; i++)
        DIST_CHECK(fabs(a->numbers[i] - b->numbers[i]) <= 1000 * 0x1p-24 * scale, "panels: number %lld is %g, not %g",
                   (long long)i, b->numbers[i], a->numbers[i]);
}

/* Without overlap the plan gives the numbers of `plain` (overlap, no delays, one panel, one part): the same bits with
 * one panel and one part, else up to rounding. With overlap and delays it gives the same bits as without. */
static void run_late(qdr_grid *grid, plan how, const outcome *plain, uint64_t seed, const char *what)
{
    how.overlap = QDR_OVERLAP_NONE;
    const outcome serial = run(grid, how);
    how.overlap = QDR_OVERLAP_ALL;
    set_delays(seed);
    const outcome late = run(grid, how);
    set_delays(0);
    nearly_same(plain, &serial);
    if (how.panels == 1 && how.batch_parts == 1) same_bits(&serial, plain, "overlap without delays");
    same_bits(&serial, &late, what);
    free(serial.numbers);
    free(late.numbers);
}

/* Between all ranks, parts of any length. most: the error of all numbers, relative: sixteen times that of one message
 * of Gaussian elements, since messages pass through products and are summed; of int4, only used for the last sums, four
 * times. */
static const struct {
    const char *codecs;
    double most;
} coded[] = {
    {"int16", 16 * 2.4e-5},
    {"bf16", 16 * 1.7e-3},
    {"int8,xy=int16,z.weight=bf16,d.gradient=int4+hadamard+feedback", 4 * 0.11},
    {"int8+stochastic", 16 * 2 * 6.3e-3},
};
enum { N_CODED = sizeof coded / sizeof *coded };

/* A stack whose codecs are changed has the bits of one that was built with the new ones. */
static void run_changed(qdr_grid *grid, plan how, const outcome *built)
{
    qdr_codecs others;
    DIST_OK(qdr_codecs_parse("int4+feedback,inside,least=1", &others));
    how.before = &others;
    const outcome changed = run(grid, how);
    same_bits(built, &changed, how.codecs ? "codecs that were set later" : "codecs that were given up");
    free(changed.numbers);
}

static void run_coded(qdr_grid *grid, qdr_layout layout, const outcome *plain, uint64_t seed)
{
    const int which = (int)(seed >> 20 & 0xff) % N_CODED;
    char text[128];
    qdr_codecs codecs;
    snprintf(text, sizeof text, "%s,inside,least=1", coded[which].codecs);
    DIST_OK(qdr_codecs_parse(text, &codecs));
    plan how = {layout, QDR_OVERLAP_NONE, 2, 1, &codecs, NULL};
    const outcome serial = run(grid, how);
    how.overlap = QDR_OVERLAP_ALL;
    set_delays(seed);
    const outcome late = run(grid, how);
    set_delays(0);
    if (seed & 2) run_changed(grid, how, &serial);
    double squares = 0, errors = 0;
    DIST_CHECK(serial.n == plain->n, "%s: %lld numbers, not %lld", text, (long long)serial.n, (long long)plain->n);
    for (int64_t i = 0; i < plain->n; i++) {
        const double error = (double)serial.numbers[i] - (double)plain->numbers[i];
        squares += (double)plain->numbers[i] * (double)plain->numbers[i];
        errors += error * error;
    }
    const double error = sqrt(errors / (squares + 1e-30));
    DIST_CHECK(error <= coded[which].most, "%s: an error of %g, relative", text, error);
    same_bits(&serial, &late, text);
    free(serial.numbers);
    free(late.numbers);
}

/* What messages have lost is forgotten when codecs change. */
static void run_feedback(qdr_grid *grid)
{
    qdr_codecs codecs;
    DIST_OK(qdr_codecs_parse("int4+feedback,inside,least=1", &codecs));
    const plan how = {QDR_REPLICATED, QDR_OVERLAP_NONE, 1, 1, &codecs, NULL};
    const outcome built = run(grid, how);
    run_changed(grid, how, &built);
    free(built.numbers);
}

/* Members own whole rows, so that only all of them together would send the same. */
static void run_lossless(qdr_grid *grid, qdr_layout layout, uint64_t seed)
{
    qdr_codecs codecs;
    DIST_OK(qdr_codecs_parse("lossless,inside,least=1", &codecs));
    const outcome plain = run(grid, (plan){layout, QDR_OVERLAP_NONE, 2, 1, NULL, NULL});
    set_delays(seed);
    const outcome late = run(grid, (plan){layout, QDR_OVERLAP_ALL, 2, 1, &codecs, NULL});
    set_delays(0);
    same_bits(&plain, &late, "lossless");
    if (seed & 2) run_changed(grid, (plan){layout, QDR_OVERLAP_NONE, 2, 1, NULL, NULL}, &plain);
    const int64_t difference = sum_of_ranks(qdr_grid_context(grid), late.bytes_plain - plain.bytes_plain);
    DIST_CHECK(difference == 0, "lossless: %lld more plain bytes than without a codec", (long long)difference);
    free(plain.numbers);
    free(late.numbers);
}

static void run_grid(qdr_grid *grid, qdr_layout layout, uint64_t seed)
{
    const outcome plain = run(grid, (plan){layout, QDR_OVERLAP_ALL, 1, 1, NULL, NULL});
    run_late(grid, (plan){layout, 0, 1, 1, NULL, NULL}, &plain, seed, "overlap");
    run_late(grid, (plan){layout, 0, 3, 1, NULL, NULL}, &plain, seed + 2, "overlap of panels");
    if (layout == QDR_REPLICATED)
        run_late(grid, (plan){layout, 0, 3, 2, NULL, NULL}, &plain, seed + 4, "overlap of halves of the batch");
    run_coded(grid, layout, &plain, seed + 6);
    free(plain.numbers);
}

/* On the many grids of 8 ranks, one of the two. */
static void some_layouts(qdr_grid *grid, void *seed)
{
    const int n_ranks = qdr_context_size(qdr_grid_context(grid)), first = (int)(dist_random(seed) >> 33 & 1);
    for (int i = 0; i < (n_ranks < 8 ? 2 : 1); i++)
        run_grid(grid, (first + i) % 2 ? QDR_SCATTERED : QDR_REPLICATED, dist_random(seed) | 1);
    if (qdr_context_gpu(qdr_grid_context(grid)) >= 0) return; /* they have no lossless */
    if (n_ranks < 8 && qdr_grid_size(grid, QDR_D) > 1) run_feedback(grid);
    run_lossless(grid, QDR_REPLICATED, dist_random(seed) | 1);
    run_lossless(grid, QDR_SCATTERED, dist_random(seed) | 1);
}

DIST_TEST(every_grid) { dist_every_grid(ctx, 1, some_layouts, &seed); }

int main(int argc, char **argv)
{
    qdri_cpu_before_item = delay;
    return dist_main(argc, argv, NULL);
}
