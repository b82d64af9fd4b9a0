/* SPDX-License-Identifier: Apache-2.0 */
/* Attention when cuDNN is requested and is missing, or fails: what is logged, what the call returns, and that the
 * results are right.
 *
 *   cases STATUS WORDS…     forward and backward, twice; WORDS are in the log or the last error
 *   cases mixed             forward by cuDNN, backward by the library's own kernels, and vice versa
 *   cases many              more shapes than there are plans for
 *   cases again             without memory for cuDNN, then with enough
 *   cases later             the same, of the memory that cuDNN needs to make handles and plans
 *   cases smaller           with too little for a second stream's workspace, except for smaller pieces
 *   cases query ROWS CONTEXT HEADS KEY-HEADS SIZE bf16|f16 BYTES
 *                           what a stack's sizes say of the workspace; BYTES: at least so many, and at most twice */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/operands.h"
#include "dev/dev.h"
#include "narrow.h"
#include "nodes.h"
#include "quadrille/quadrille.h"

enum { SEQUENCES = 2, CONTEXT = 24, HEADS = 4, KV_HEADS = 2, SIZE = 16, SHAPES = 40 };
enum { IN = (HEADS + 2 * KV_HEADS) * SIZE, OUT = HEADS * SIZE, N_MOST = SHAPES * CONTEXT * IN };

#define TRY(call)                                                                                                      \
    do {                                                                                                               \
        const qdr_status tried = (call);                                                                               \
        if (tried < 0) return tried;                                                                                   \
    } while (0)

static char said[4096];

static void hear(int level, const char *line, void *user)
{
    (void)level;
    (void)user;
    snprintf(said + strlen(said), sizeof said - strlen(said), "%s\n", line);
}

/* A context, and arrays of its memory. */
typedef struct run {
    qdr_context *ctx;
    qdri_kernel kernel; /* of either kind */
    void *qkv, *y, *dy, *dqkv, *saved, *work;
    qdr_stream *stream; /* NULL: the context's */
} run;

static int64_t n_rows_of(const run *r) { return r->kernel.u.attention.n_rows; }

static qdr_stream *stream_of(const run *r) { return r->stream ? r->stream : qdr_context_stream(r->ctx); }

static qdr_status give(run *r, void *array, int64_t n, unsigned seed)
{
    static uint16_t numbers[N_MOST];
    for (int64_t i = 0; i < n; i++) {
        seed = seed * 1664525 + 1013904223;
        numbers[i] = narrow_bits(QDR_BF16, (double)(int)(seed >> 20) / 2048 - 1);
    }
    TRY(qdr_copy(r->ctx, array, numbers, (size_t)n * 2, NULL));
    return qdr_stream_synchronize(qdr_context_stream(r->ctx));
}

static qdr_status make(run *r, const char *device, int64_t n_sequences, int64_t context)
{
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = 1, .device = device};
    const size_t n_rows = (size_t)(n_sequences * context), in_bytes = (n_rows * IN + 1) * 2;
    const size_t out_bytes = (n_rows * OUT + 1) * 2;
    r->kernel = (qdri_kernel){.dtype = QDR_BF16,
                              .u.attention = {.n_rows = n_sequences * context,
                                              .context = context,
                                              .window = context,
                                              .scale = 1 / sqrt((double)SIZE),
                                              .n_heads = HEADS,
                                              .n_kv_heads = KV_HEADS,
                                              .head_size = SIZE}};
    TRY(qdr_context_create_self(&opts, &r->ctx));
    TRY(qdr_mem_alloc(r->ctx, in_bytes, &r->qkv));
    TRY(qdr_mem_alloc(r->ctx, out_bytes, &r->y));
    TRY(qdr_mem_alloc(r->ctx, out_bytes, &r->dy));
    TRY(qdr_mem_alloc(r->ctx, in_bytes, &r->dqkv));
    TRY(qdr_mem_alloc(r->ctx, n_rows * HEADS * sizeof(float), &r->saved));
    return qdr_mem_alloc(r->ctx, qdri_attention_work_bytes(&r->kernel), &r->work);
}

static void drop(run *r)
{
    void **const all[] = {&r->qkv, &r->y, &r->dy, &r->dqkv, &r->saved, &r->work};
    if (!r->ctx) return;
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) qdr_mem_free(r->ctx, all[i]);
    qdr_context_destroy(&r->ctx);
}

/* The own kernels compute it if qkv is odd: if it begins an element later. */
static qdr_status give_qkv(run *r, int is_odd, void **qkv)
{
    *qkv = (uint16_t *)r->qkv + is_odd;
    return give(r, *qkv, n_rows_of(r) * IN, 1);
}

static qdr_status forward(run *r, int is_odd)
{
    void *qkv;
    TRY(give_qkv(r, is_odd, &qkv));
    r->kernel.kind = QDRI_K_ATTENTION_FORWARD;
    qdri_kernel_bind(&r->kernel, &qkv, 1, (void *[]){r->y, r->saved, r->work}, 3);
    TRY(qdri_kernel_run(stream_of(r), &r->kernel));
    return r->stream ? qdr_stream_synchronize(r->stream) : QDR_OK;
}

static qdr_status backward(run *r, int is_odd)
{
    void *qkv;
    TRY(give_qkv(r, is_odd, &qkv));
    TRY(give(r, r->dy, n_rows_of(r) * OUT, 2));
    r->kernel.kind = QDRI_K_ATTENTION_BACKWARD;
    qdri_kernel_bind(&r->kernel, (void *[]){r->dy, qkv, r->y, r->saved}, 4, (void *[]){r->dqkv, r->work}, 2);
    TRY(qdri_kernel_run(stream_of(r), &r->kernel));
    return qdr_stream_synchronize(stream_of(r));
}

/* ---- verdicts ---- */

static qdr_status read_gradients(run *r, uint16_t *to)
{
    TRY(qdr_copy(r->ctx, to, r->dqkv, (size_t)n_rows_of(r) * IN * 2, NULL));
    return qdr_stream_synchronize(qdr_context_stream(r->ctx));
}

/* The gradients are those of the CPU, up to a few roundings of bf16. */
static int check(run *r)
{
    static uint16_t got[N_MOST], wanted[N_MOST];
    run cpu = {0};
    double most = 0, worst = 0;
    const int64_t n = n_rows_of(r) * IN;
    const int is_done = !read_gradients(r, got) &&
                        !make(&cpu, "cpu", n_rows_of(r) / r->kernel.u.attention.context,
                              r->kernel.u.attention.context) &&
                        !forward(&cpu, 0) && !backward(&cpu, 0) && !read_gradients(&cpu, wanted);
    drop(&cpu);
    for (int64_t i = 0; i < n && is_done; i++) {
        const double value = narrow_value(QDR_BF16, wanted[i]);
        most = fmax(most, fabs(value));
        worst = fmax(worst, fabs(value - narrow_value(QDR_BF16, got[i])));
    }
    if (most > 0.1 && worst < most / 32) return 1;
    fprintf(stderr, "cases: gradients up to %g, errors up to %g\n", most, worst);
    return 0;
}

static qdr_status twice(run *r)
{
    for (int i = 0; i < 2; i++) {
        TRY(forward(r, 0));
        TRY(backward(r, 0));
    }
    return QDR_OK;
}

static int run_case(char **words)
{
    static const char own[] = "own kernels compute it";
    run r = {0};
    qdr_status status = make(&r, NULL, SEQUENCES, CONTEXT);
    if (status == QDR_OK) status = twice(&r);
    const char *first = strstr(said, own);
    int is_right = strcmp(qdr_status_name(status), words[0]) == 0 && !(first && strstr(first + 1, own));
    hear(0, qdr_last_error(), NULL);
    for (words++; *words; words++) is_right &= strstr(said, *words) != NULL;
    if (is_right && status == QDR_OK) is_right = check(&r);
    drop(&r);
    return is_right;
}

static int run_mixed(void)
{
    int is_right = 1;
    for (int is_odd = 0; is_odd < 2; is_odd++) {
        run r = {0};
        is_right &= !make(&r, NULL, SEQUENCES, CONTEXT) && !forward(&r, is_odd) && !backward(&r, !is_odd) && check(&r);
        drop(&r);
    }
    return is_right;
}

/* All on one device, whose plans are bounded. */
static int run_many(void)
{
    run r = {0};
    int is_right = !make(&r, NULL, SHAPES, 3);
    for (int64_t n = 1; n <= SHAPES && is_right; n++) {
        r.kernel.u.attention.n_rows = n * r.kernel.u.attention.context;
        is_right = !forward(&r, 0) && !backward(&r, 0) && check(&r);
    }
    drop(&r);
    return is_right && strstr(said, "32 shapes") != NULL;
}

/* A step without memory for cuDNN; one whose forward has none, and whose backward would; a step with memory. The first
 * two are computed by the same kernels, the third is not. */
static int run_again(void)
{
    static uint16_t gradients[3][N_MOST];
    static const size_t large = (size_t)48 << 20;
    run r = {0};
    void *block = NULL;
    int is_right = !make(&r, NULL, SEQUENCES, CONTEXT) && !qdr_mem_alloc(r.ctx, large, &block);
    for (int i = 0; i < 3 && is_right; i++) {
        is_right = !forward(&r, 0);
        if (i == 1) qdr_mem_free(r.ctx, &block);
        is_right &= !backward(&r, 0) && !read_gradients(&r, gradients[i]);
        is_right &= (strstr(said, "enough memory now") != NULL) == (i == 2);
    }
    const size_t bytes = (size_t)n_rows_of(&r) * IN * 2;
    is_right = is_right && strstr(said, "workspace of cuDNN's attention") && check(&r) &&
               memcmp(gradients[0], gradients[1], bytes) == 0 && memcmp(gradients[0], gradients[2], bytes) != 0;
    if (block) qdr_mem_free(r.ctx, &block);
    drop(&r);
    return is_right;
}

/* A step whose forward has too little memory, and whose backward would not; and one with enough. */
static int run_later(void)
{
    run r = {0};
    int is_right = !make(&r, NULL, SEQUENCES, CONTEXT);
    for (int i = 0; i < 2 && is_right; i++) {
        is_right = !forward(&r, 0) && !backward(&r, 0) && check(&r);
        is_right &= (strstr(said, "enough memory now") != NULL) == (i == 1);
    }
    drop(&r);
    return is_right && strstr(said, "ALLOCATION_FAILED");
}

/* Another stream's workspace must do with what a large block leaves. */
static int run_smaller(void)
{
    static const size_t large = (size_t)446 << 20;
    run r = {0};
    void *block = NULL;
    const int is_done = !make(&r, NULL, SEQUENCES, CONTEXT) && !forward(&r, 0) && !backward(&r, 0) &&
                        !qdr_mem_alloc(r.ctx, large, &block) && !qdr_stream_create(r.ctx, &r.stream) &&
                        !forward(&r, 0) && !backward(&r, 0);
    const int is_right = is_done && strstr(said, "4 pieces") && !strstr(said, "own kernels") && check(&r);
    qdr_stream_destroy(&r.stream);
    if (block) qdr_mem_free(r.ctx, &block);
    drop(&r);
    return is_right;
}

/* Of a stack that is not bound to memory. */
static qdr_status query(qdr_grid *grid, char **words, size_t *bytes)
{
    const int64_t heads = atoll(words[2]), keys = atoll(words[3]), size = atoll(words[4]), q_unit = heads / keys * size;
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = atoll(words[0]), .row_unit = atoll(words[1]),
                                 .dtype = strcmp(words[5], "f16") == 0 ? QDR_F16 : QDR_BF16, .caller_memory = 1};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc),
                                 .cols = {{heads * size, q_unit}, {keys * size, size}, {keys * size, size}},
                                 .col_axis = QDR_Y};
    qdr_stack *stack = NULL;
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    qdr_edge in, out;
    qdr_status status = qdr_stack_create(grid, &opts, &stack);
    if (status == QDR_OK) status = qdr_stack_add_input(stack, "qkv", &input, 1, &in);
    if (status == QDR_OK) status = test_add_attention(stack, "attention", size, opts.row_unit, in, &out);
    if (status == QDR_OK) status = qdr_stack_build(stack);
    if (status == QDR_OK) status = qdr_stack_get_sizes(stack, &sizes);
    *bytes = sizes.device - ((size_t)40 << 20); /* for products and kernels */
    qdr_stack_destroy(&stack);
    return status;
}

static int run_query(char **words)
{
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = 1};
    const qdr_grid_opts alone = {QDR_INIT(qdr_grid_opts), .x = 1, .y = 1, .z = 1, .d = 1};
    const size_t wanted = (size_t)atoll(words[6]);
    size_t bytes = 0;
    qdr_context *ctx = NULL;
    qdr_grid *grid = NULL;
    const int is_done = !qdr_context_create_self(&opts, &ctx) && !qdr_grid_create(ctx, &alone, &grid) &&
                        !query(grid, words, &bytes);
    fprintf(stderr, "cases: %zu bytes\n", bytes);
    qdr_grid_destroy(&grid);
    qdr_context_destroy(&ctx);
    return is_done && bytes >= wanted && bytes <= 2 * wanted;
}

static int run_named(int argc, char **argv)
{
    if (strcmp(argv[1], "mixed") == 0) return run_mixed();
    if (strcmp(argv[1], "many") == 0) return run_many();
    if (strcmp(argv[1], "again") == 0) return run_again();
    if (strcmp(argv[1], "later") == 0) return run_later();
    if (strcmp(argv[1], "smaller") == 0) return run_smaller();
    if (strcmp(argv[1], "query") == 0) return argc == 9 && run_query(argv + 2);
    return run_case(argv + 1);
}

int main(int argc, char **argv)
{
    qdr_set_log(hear, NULL);
    if (argc < 2) return 2;
    const int is_right = run_named(argc, argv);
    if (!is_right) fprintf(stderr, "cases: %s: %s, %s\n", argv[1], qdr_last_error(), said);
    return !is_right;
}
