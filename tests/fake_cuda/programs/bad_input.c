/* SPDX-License-Identifier: Apache-2.0 */
/* Mistakes of callers and machines: each gives a status and a message, and afterwards contexts, at least on the CPU,
 * work.
 *
 *   bad_input context STATUS WORDS…     creating a context fails in this way
 *   bad_input memory TERM               two ranks, one of which has too little memory for this term
 *   bad_input staging                   the same, for the memory that NCCL's sums of uneven parts need
 *   bad_input odd                       arrays that begin within an element
 *   bad_input foreign                   arrays of the host, and of another GPU, and its streams
 *                                       (FAKE_CUDA_GPUS=2)
 *
 *   bad_input apart WORDS…              local ranks on GPUs without peer access
 *   bad_input launch DEVICE STATUS WORDS…    ranks of mpiexec, this one on this device
 *
 * The message contains all WORDS. FAKE_CUDA_MEMORY must be MEMORY_BYTES. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../../examples/common/program.h"

enum { RANKS = 2, ROWS = 513, WIDTH = 512, ARRAY_BYTES = ROWS * WIDTH * 4, MEMORY_BYTES = 64 << 20 };

typedef struct rank {
    char **words;
    qdr_local_world *world;
    int number;
    qdr_context *ctx;
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_linear *layer;
    qdr_adamw *optimizer;
    void *hog, *array; /* of the GPU: what the memory is full with; good for any argument */
} rank;

/* ---- verdicts ---- */

static const char environment[] = "environment: ";
/* A variable was refused, as on every device. */
static _Thread_local int is_environment_refused;

/* Each word is in the last sentence. words ends with NULL. */
static int says(const char *what, int number, qdr_status status, qdr_status wanted, char **words)
{
    const char *sentence = qdr_last_error();
    int is_right = status == wanted;
    for (char **word = words; *word; word++) is_right &= strstr(sentence, *word) != NULL;
    is_environment_refused |= strncmp(sentence, environment, sizeof environment - 1) == 0;
    if (is_right) return 1;
    fprintf(stderr, "rank %d, %s: %s, not %s: %s\n", number, what, qdr_status_name(status), qdr_status_name(wanted),
            sentence);
    return 0;
}

/* Or is refused for the same variable. */
static int cpu_works(const rank *self)
{
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .n_threads = 1, .device = "cpu"};
    qdr_context *ctx = NULL;
    void *memory = NULL;
    qdr_status status = qdr_context_create_local(self->world, self->number, &opts, &ctx);
    if (status == QDR_OK) status = qdr_mem_alloc(ctx, 64, &memory);
    if (status == QDR_OK) status = qdr_copy(ctx, memory, (char *)memory + 32, 32, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(ctx));
    const int is_refused = strncmp(qdr_last_error(), environment, sizeof environment - 1) == 0;
    if (is_environment_refused) return status == QDR_ERR_ARGUMENT && is_refused;
    if (status != QDR_OK) fprintf(stderr, "on the CPU: %s\n", qdr_last_error());
    qdr_mem_free(ctx, &memory);
    qdr_context_destroy(&ctx);
    return status == QDR_OK;
}

/* ---- a layer ---- */

static qdr_status describe(rank *self, int caller_memory)
{
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = ROWS, .dtype = QDR_F32,
                                 .caller_memory = caller_memory};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{WIDTH, 1}}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc),   .name = "fc", .in = {{WIDTH, 1}}, .out = {{WIDTH, 1}},
                                  .out_layout = QDR_SCATTERED, .bias = 1};
    qdr_edge x, y;
    TRY(qdr_grid_create(self->ctx, &(qdr_grid_opts){QDR_INIT(qdr_grid_opts), .x = RANKS, .y = 1, .z = 1, .d = 1},
                        &self->grid));
    TRY(qdr_stack_create(self->grid, &opts, &self->stack));
    TRY(qdr_stack_add_input(self->stack, "x", &input, 1, &x));
    TRY(qdr_stack_add_linear(self->stack, &desc, x, &y, &self->layer));
    return qdr_stack_build(self->stack);
}

static void unmake(rank *self)
{
    qdr_adamw_destroy(&self->optimizer);
    qdr_stack_destroy(&self->stack);
    qdr_grid_destroy(&self->grid);
    if (self->ctx) qdr_mem_free(self->ctx, &self->hog);
    if (self->ctx) qdr_mem_free(self->ctx, &self->array);
    qdr_context_destroy(&self->ctx);
}

/* A step of the layer alone runs on the context as it is now. */
static int gpu_works(rank *self)
{
    char *x = self->array, *y = x + ARRAY_BYTES;
    qdr_status status = qdr_linear_forward(self->layer, x, y, 0, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(self->ctx));
    if (status != QDR_OK) fprintf(stderr, "afterwards: %s\n", qdr_last_error());
    return status == QDR_OK;
}

/* ---- making contexts ---- */

static qdr_status status_named(const char *name)
{
    static const qdr_status all[] = {QDR_ERR_ARGUMENT, QDR_ERR_UNSUPPORTED, QDR_ERR_DEVICE};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        if (strcmp(qdr_status_name(all[i]), name) == 0) return all[i];
    return QDR_OK;
}

static int try_context(rank *self)
{
    const qdr_status wanted = status_named(self->words[0]);
    const qdr_status alone = qdr_context_create_self(NULL, &self->ctx);
    const int is_right = says("alone", self->number, alone, wanted, self->words + 1);
    qdr_context_destroy(&self->ctx);
    const qdr_status status = qdr_context_create_local(self->world, self->number, NULL, &self->ctx);
    return is_right & says("together", self->number, status, wanted, self->words + 1);
}

/* ---- too little memory ---- */

static const char *const terms[] = {"parameters", "gradients", "activations", "workspace", "optimizer state"};
enum { N_TERMS = sizeof terms / sizeof terms[0] };

/* bytes_kept: what streams take when the stack is bound. */
static qdr_status measure(const rank *self, size_t bytes[N_TERMS], size_t *bytes_kept)
{
    qdr_stack_sizes sizes = {QDR_INIT(qdr_stack_sizes)};
    TRY(qdr_stack_get_sizes(self->stack, &sizes));
    *bytes_kept = sizes.device;
    bytes[0] = sizes.parameters;
    bytes[1] = sizes.gradients;
    bytes[2] = sizes.activations;
    bytes[3] = sizes.workspace;
    return qdr_adamw_size(self->stack, &bytes[4]);
}

/* Leaves what the terms before this one need, and half of this one. */
static qdr_status fill_memory(rank *self, int term, size_t *needed)
{
    size_t bytes[N_TERMS], now, kept, left;
    TRY(measure(self, bytes, &kept));
    *needed = bytes[term];
    left = term == N_TERMS - 1 ? kept : 0;
    for (int i = 0; i < term; i++) left += bytes[i];
    left += bytes[term] / 2;
    qdr_mem_usage(self->ctx, &now, NULL);
    return qdr_mem_alloc(self->ctx, (size_t)MEMORY_BYTES - now - left, &self->hog);
}

static qdr_status use_memory(rank *self, int term)
{
    const qdr_stack_memory memory = {QDR_INIT(qdr_stack_memory)};
    TRY(qdr_stack_bind(self->stack, &memory));
    return term == N_TERMS - 1 ? qdr_adamw_create(self->stack, NULL, &self->optimizer) : QDR_OK;
}

static int find_term(const char *name)
{
    int term = 0;
    while (term < N_TERMS && strcmp(terms[term], name) != 0) term++;
    return term;
}

static int try_memory(rank *self)
{
    const int term = find_term(self->words[0]), is_full = self->number == RANKS - 1;
    char need[64], all[64];
    char *words[] = {self->words[0], need, is_full ? all : "", is_full ? "are free of" : "", NULL};
    size_t needed = 0, now = 0, after = 0;
    if (term == N_TERMS) return 0;
    qdr_status status = qdr_context_create_local(self->world, self->number, NULL, &self->ctx);
    if (status == QDR_OK) status = describe(self, 1);
    if (status == QDR_OK && is_full) status = fill_memory(self, term, &needed);
    if (status != QDR_OK) return says("the beginning", self->number, status, QDR_OK, words + 4);
    snprintf(need, sizeof need, is_full ? ": %zu bytes" : "bytes", needed);
    snprintf(all, sizeof all, "of %d (0.06 GiB) in all", MEMORY_BYTES);
    qdr_mem_usage(self->ctx, &now, NULL);
    status = use_memory(self, term);
    int is_right = says("filled", self->number, status, QDR_ERR_MEMORY, words);
    /* What the failure took is given back, and with more memory the same works. */
    qdr_mem_usage(self->ctx, &after, NULL);
    if (term < N_TERMS - 1 && after != now) {
        fprintf(stderr, "rank %d: %zu bytes in use, then %zu\n", self->number, now, after);
        is_right = 0;
    }
    qdr_mem_free(self->ctx, &self->hog);
    status = term < N_TERMS - 1 ? use_memory(self, term) : qdr_adamw_create(self->stack, NULL, &self->optimizer);
    return is_right & says("with more", self->number, status, QDR_OK, words + 4);
}

static int try_staging(rank *self)
{
    const int is_full = self->number == RANKS - 1;
    char *words[] = {"for communication staging: ", "GiB) in all", NULL};
    qdr_status status = qdr_context_create_local(self->world, self->number, NULL, &self->ctx);
    if (status == QDR_OK && is_full) status = qdr_mem_alloc(self->ctx, MEMORY_BYTES - 4096, &self->hog);
    if (status != QDR_OK) return says("the beginning", self->number, status, QDR_OK, words + 2);
    status = describe(self, 1);
    const int is_right = says("filled", self->number, status, QDR_ERR_MEMORY, words);
    qdr_stack_destroy(&self->stack);
    qdr_grid_destroy(&self->grid);
    qdr_mem_free(self->ctx, &self->hog);
    return is_right & says("with more", self->number, describe(self, 1), QDR_OK, words + 2);
}

/* ---- wrong pointers ---- */

/* The call was refused with its name and these words. */
static int refused(const rank *self, qdr_status status, const char *name, const char *words)
{
    char *both[] = {(char *)(uintptr_t)name, (char *)(uintptr_t)words, NULL};
    return says(name, self->number, status, QDR_ERR_ARGUMENT, both);
}

/* All calls with this pointer; each is refused. */
static int try_calls(rank *self, void *bad, const char *words)
{
    const qdr_matrix layout = {QDR_INIT(qdr_matrix), .n_rows = 8, .cols = {{8, 1}}, .col_axis = QDR_X};
    qdr_linear *fc = self->layer;
    qdr_grid *grid = self->grid;
    void *good = self->array;
    int is_right = 1;
#define REFUSED(call, name) is_right &= refused(self, (call), (name), words)
    REFUSED(qdr_linear_forward(fc, bad, good, 0, NULL), "fc: x");
    REFUSED(qdr_linear_forward(fc, good, bad, 0, NULL), "fc: y");
    REFUSED(qdr_linear_backward(fc, bad, good, good, 0, NULL), "fc: dy");
    REFUSED(qdr_linear_backward(fc, good, bad, good, 0, NULL), "fc: x");
    REFUSED(qdr_linear_backward(fc, good, good, bad, 0, NULL), "fc: dx");
    REFUSED(qdr_all_reduce(grid, QDR_X, QDR_SUM, bad, 8, QDR_F32, NULL), "all-reduce");
    REFUSED(qdr_all_gather(grid, QDR_X, bad, good, 8, NULL, QDR_F32, NULL), "all-gather");
    REFUSED(qdr_all_gather(grid, QDR_X, good, bad, 8, NULL, QDR_F32, NULL), "all-gather");
    REFUSED(qdr_redistribute(grid, &layout, bad, &layout, good, QDR_F32, NULL), "redistribute: src");
    return is_right & gpu_works(self);
}

static qdr_status make(rank *self)
{
    const size_t bytes = 2 * (size_t)ARRAY_BYTES;
    TRY(qdr_context_create_local(self->world, self->number, NULL, &self->ctx));
    TRY(describe(self, 0));
    TRY(qdr_linear_init(self->layer, 1, 0.02));
    TRY(qdr_mem_alloc(self->ctx, bytes + 64, &self->array));
    void *zeros = calloc(1, bytes);
    if (!zeros) return QDR_ERR_MEMORY;
    qdr_status status = qdr_copy(self->ctx, self->array, zeros, bytes, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(self->ctx));
    free(zeros);
    return status;
}

/* Copies take any address. */
static int try_odd(rank *self)
{
    char *none[] = {NULL};
    if (!says("making", self->number, make(self), QDR_OK, none)) return 0;
    char *odd = (char *)self->array + 1;
    const qdr_status status = qdr_copy(self->ctx, odd, odd + 32, 7, NULL);
    return says("a copy", self->number, status, QDR_OK, none) & try_calls(self, odd, "not a multiple");
}

/* What goes wrong between the members of a collective is an asynchronous failure. */
static int try_apart(rank *self)
{
    char *none[] = {NULL};
    if (!says("making", self->number, make(self), QDR_OK, none)) return 0;
    qdr_status status = qdr_all_reduce(self->grid, QDR_X, QDR_SUM, self->array, 8, QDR_F32, NULL);
    if (status == QDR_OK) status = qdr_stream_synchronize(qdr_context_stream(self->ctx));
    return says("a sum", self->number, status, QDR_ERR_UNSUPPORTED, self->words);
}

static int try_bind(rank *self, void *foreign, const char *words)
{
    const qdr_stack_memory memory = {QDR_INIT(qdr_stack_memory), .gradients = foreign};
    const qdr_stack_memory own = {QDR_INIT(qdr_stack_memory)};
    char *all[] = {"bind: gradients", (char *)(uintptr_t)words, NULL};
    qdr_stack_destroy(&self->stack);
    qdr_grid_destroy(&self->grid);
    qdr_status status = describe(self, 1);
    if (status == QDR_OK) status = qdr_stack_bind(self->stack, &memory);
    const int is_right = says("bind", self->number, status, QDR_ERR_ARGUMENT, all);
    status = qdr_stack_bind(self->stack, &own);
    return is_right & says("bind", self->number, status, QDR_OK, all + 2);
}

static void *align(void *memory) { return (void *)(((uintptr_t)memory + 63) / 64 * 64); }

/* The ranks lend each other their arrays, and streams. */
static void *arrays[RANKS];
static qdr_stream *streams[RANKS];

static int try_streams(rank *self)
{
    char *none[] = {NULL}, *words[] = {self->number ? "to GPU 0" : "to GPU 1", "cudaSetDevice(", NULL};
    qdr_stream *wrapped = NULL;
    qdr_status status = qdr_stream_create(self->ctx, &streams[self->number]);
    if (status == QDR_OK) status = qdr_barrier(self->ctx);
    if (!says("streams", self->number, status, QDR_OK, none)) return 0;
    status = qdr_stream_wrap_cuda(self->ctx, qdr_stream_cuda(streams[1 - self->number]), &wrapped);
    int is_right = says("another GPU's", self->number, status, QDR_ERR_ARGUMENT, words);
    status = qdr_stream_wrap_cuda(self->ctx, qdr_stream_cuda(streams[self->number]), &wrapped);
    is_right &= says("its own", self->number, status, QDR_OK, none);
    qdr_stream_destroy(&wrapped);
    is_right &= qdr_barrier(self->ctx) == QDR_OK;
    qdr_stream_destroy(&streams[self->number]);
    return is_right;
}

static int try_foreign(rank *self)
{
    char *none[] = {NULL};
    if (!says("making", self->number, make(self), QDR_OK, none)) return 0;
    void *host = calloc(1, ARRAY_BYTES + 64);
    int is_right = host && try_calls(self, align(host), "is not GPU memory");
    arrays[self->number] = self->array;
    is_right &= qdr_barrier(self->ctx) == QDR_OK;
    void *others = arrays[1 - self->number];
    is_right &= try_calls(self, others, "allocate it there");
    is_right &= try_bind(self, align(host), "is not GPU memory");
    is_right &= try_bind(self, others, "allocate it there");
    is_right &= try_streams(self);
    is_right &= qdr_barrier(self->ctx) == QDR_OK;
    free(host);
    return is_right;
}

/* ---- the program ---- */

static int run_rank(qdr_local_world *world, int number, void *user)
{
    static const struct {
        const char *name;
        int (*run)(rank *self);
    } trials[] = {{"context", try_context}, {"memory", try_memory},   {"staging", try_staging},
                  {"odd", try_odd},         {"foreign", try_foreign}, {"apart", try_apart}};
    char **words = user;
    rank self = {.words = words + 1, .world = world, .number = number};
    int is_good = 0;
    for (size_t i = 0; i < sizeof trials / sizeof trials[0]; i++)
        if (strcmp(words[0], trials[i].name) == 0) is_good = trials[i].run(&self);
    unmake(&self);
    return !(cpu_works(&self) & is_good);
}

static int unwanted(qdr_context *ctx, void *user)
{
    (void)user;
    fprintf(stderr, "rank %d: a context was made\n", qdr_context_rank(ctx));
    return 1;
}

static int try_launch(char **words)
{
    const qdr_context_opts opts = {QDR_INIT(qdr_context_opts), .device = words[0]};
    int result = 0;
    const qdr_status status = qdr_launch(0, &opts, unwanted, NULL, &result);
    return !says("launching", -1, status, status_named(words[1]), words + 2);
}

int main(int argc, char **argv)
{
    int result = 1;
    if (argc < 2) return 2;
    if (argc > 4 && strcmp(argv[1], "launch") == 0) return try_launch(argv + 2);
    const qdr_status status = qdr_local_run(RANKS, run_rank, argv + 1, &result);
    if (status != QDR_OK) fprintf(stderr, "%s\n", qdr_last_error());
    return status != QDR_OK || result;
}
