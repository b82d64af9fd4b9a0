/* SPDX-License-Identifier: Apache-2.0 */
/* Checkpoints: the same state gives the same bytes on every grid, with all levels, layouts and storages; what is saved
 * on one grid is loaded on another, and training goes on from it; types; errors, with the same sentence on all ranks.
 * What the bytes mean is checked by Python programs (tests/cli/checkpoint_test.py). */
#include <quadrille/checkpoint.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../support/gpt_fill.h"
#include "dist.h"
#include "folder.h"
#include "optim/optim.h"

enum { CONTEXT = 4, TEXT = 512, MOST_PER_FORWARD = 64 };

/* ---- files ---- */

/* A digest of a file, on all ranks. */
static double digest_of(qdr_context *ctx, const char *name)
{
    double digest = 0;
    if (qdr_context_rank(ctx) == 0) {
        struct stat info;
        FILE *file = fopen(name, "rb");
        DIST_CHECK(file && fstat(fileno(file), &info) == 0, "%s: cannot be read", name);
        void *bytes = malloc((size_t)info.st_size);
        DIST_CHECK(bytes && fread(bytes, 1, (size_t)info.st_size, file) == (size_t)info.st_size, "%s is short", name);
        digest = dist_digest(bytes, (size_t)info.st_size);
        free(bytes);
        fclose(file);
    }
    DIST_OK(qdr_broadcast(ctx, 0, &digest, sizeof digest));
    return digest;
}

static void check_absent(qdr_context *ctx, const char *name)
{
    if (qdr_context_rank(ctx) == 0) DIST_CHECK(access(name, F_OK) != 0, "%s is there", name);
}

/* Saves, blocking or in the background, and checks what it said of its size. */
static void save(qdr_stack *stack, qdr_adamw *optimizer, const char *name, int background, const char *note)
{
    const qdr_checkpoint_opts opts = {QDR_INIT(qdr_checkpoint_opts), .note = note, .background = background};
    qdr_context *ctx = qdr_grid_context(qdr_stack_grid(stack));
    qdr_checkpoint *pending = NULL;
    struct stat info;
    int64_t file_bytes;
    size_t host_bytes;
    DIST_OK(qdr_checkpoint_size(stack, optimizer, background, &host_bytes, &file_bytes));
    DIST_CHECK(background || host_bytes <= 16 << 20, "%zu bytes of host memory", host_bytes);
    DIST_OK(qdr_checkpoint_save(stack, optimizer, name, &opts, &pending));
    DIST_CHECK(!pending == !background, "pending");
    if (background) {
        qdr_status status = QDR_PENDING;
        for (int i = 0; i < 3 && status == QDR_PENDING; i++) status = qdr_checkpoint_poll(pending);
        DIST_CHECK(status >= 0, "%s", qdr_last_error());
        DIST_OK(qdr_checkpoint_finish(&pending));
    }
    if (qdr_context_rank(ctx) == 0 && !note)
        DIST_CHECK(stat(name, &info) == 0 && info.st_size == file_bytes, "%s: %lld bytes, not %lld", name,
                   (long long)info.st_size, (long long)file_bytes);
}

/* ---- networks ---- */

static gpt_config random_config(uint64_t *seed, const qdr_grid *grid)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    const int64_t cells = (int64_t)qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D);
    const int64_t n_heads = 1 + dist_below(seed, 4);
    return (gpt_config){.network = gpt_network((qdr_network){.layers = 1 + dist_below(seed, 2),
                                                             .hidden = n_heads * (1 + dist_below(seed, 9)),
                                                             .heads = n_heads,
                                                             .vocab = 3 + dist_below(seed, 40),
                                                             .tied = (int)dist_below(seed, 2),
                                                             .context = CONTEXT}),
                        .context = CONTEXT,
                        .n_sequences = cells,
                        .layout = dist_below(seed, 2) ? QDR_SCATTERED : QDR_REPLICATED,
                        .dtype = dtypes[dist_below(seed, 4)],
                        .panels = 1,
                        .batch_parts = 1};
}

typedef struct trainer {
    gpt model;
    qdr_adamw *optimizer;
} trainer;

static trainer begin(qdr_grid *grid, const gpt_config *config, uint64_t seed)
{
    const qdr_adamw_opts adamw = {QDR_INIT(qdr_adamw_opts), .weight_decay = 0.1, .clip_norm = 1};
    trainer made = {.optimizer = NULL};
    DIST_OK(gpt_create(grid, config, &made.model));
    DIST_OK(gpt_init(&made.model, seed, 0.2));
    DIST_OK(qdr_adamw_create(made.model.stack, &adamw, &made.optimizer));
    return made;
}

static void end(trainer *run)
{
    qdr_adamw_destroy(&run->optimizer);
    gpt_destroy(&run->model);
}

/* A step on two micro-batches; the mean loss. */
static double step(trainer *run, uint64_t data)
{
    const int64_t last = TEXT - CONTEXT - 1, n_sequences = run->model.config.n_sequences;
    uint8_t text[TEXT];
    int64_t starts[MOST_PER_FORWARD], n = 0;
    double sum = 0;
    for (int i = 0; i < TEXT; i++) text[i] = (uint8_t)(i * i % (int)run->model.config.network.vocab);
    for (int micro = 0; micro < 2; micro++) {
        double loss;
        for (int i = 0; i < MOST_PER_FORWARD; i++) starts[i] = dist_below(&data, last);
        DIST_OK(gpt_fill(&run->model, text, starts));
        DIST_OK(qdr_stack_forward(run->model.stack));
        DIST_OK(qdr_stack_backward(run->model.stack, micro ? QDR_ACCUMULATE : QDR_DEFER_SYNC,
                                   0.5 / (double)(n_sequences * CONTEXT)));
        DIST_OK(qdr_stack_loss(run->model.stack, &loss, &n));
        sum += loss / (double)n;
    }
    DIST_OK(qdr_adamw_step(run->optimizer, 0.01));
    return sum / 2;
}

/* All parameters as they are on one process. */
static double gathered(qdr_stack *stack)
{
    double numbers[128] = {0};
    const size_t each = qdr_dtype_bytes(qdr_stack_dtype(stack));
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        void *whole = malloc((size_t)p.n_global * each);
        DIST_CHECK(whole, "no memory");
        DIST_OK(qdr_stack_gather_parameter(stack, i, 0, whole));
        /* Sums of gathering lose the sign of zeros. */
        for (int64_t j = 0; j < p.n_global; j++)
            numbers[i % 128] += dist_get(whole, qdr_stack_dtype(stack), j) * (double)(1 + j % 97);
        free(whole);
    }
    return dist_digest(numbers, sizeof numbers);
}

/* What plans predict: the elements of the file, and of the rank that writes most. */
static void check_predicted(const trainer *run, const char *name)
{
    qdr_context *ctx = qdr_grid_context(run->model.grid);
    const qdr_plan plan = {QDR_INIT(qdr_plan),
                           .x = qdr_grid_size(run->model.grid, QDR_X),
                           .y = qdr_grid_size(run->model.grid, QDR_Y),
                           .z = qdr_grid_size(run->model.grid, QDR_Z),
                           .d = qdr_grid_size(run->model.grid, QDR_D),
                           .gradient_parts = qdr_grid_parts(run->model.grid, QDR_LEVEL_GRADIENTS),
                           .optimizer_parts = qdr_grid_parts(run->model.grid, QDR_LEVEL_OPTIMIZER),
                           .dtype = run->model.config.dtype,
                           .batch = run->model.config.n_sequences,
                           .sequence = run->model.config.context};
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdr_model *model = NULL;
    qdr_plan_checkpoint told = {QDR_INIT(qdr_plan_checkpoint)};
    size_t host_bytes;
    DIST_OK(qdr_machine_load("laptop", &machine));
    DIST_OK(qdr_model_create(&machine, &run->model.config.network, &model));
    DIST_OK(qdr_model_checkpoint(model, &plan, &told));
    qdr_model_destroy(&model);
    DIST_OK(qdr_checkpoint_size(run->model.stack, run->optimizer, 1, &host_bytes, NULL));
    DIST_CHECK((double)host_bytes <= told.rank_bytes + (16 << 20), "%zu bytes, told %.0f", host_bytes, told.rank_bytes);
    if (qdr_context_rank(ctx) != 0) return;
    uint8_t length[8] = {0};
    int64_t header = sizeof length;
    struct stat info;
    FILE *file = fopen(name, "rb");
    DIST_CHECK(file && fstat(fileno(file), &info) == 0 && fread(length, sizeof length, 1, file) == 1, "no %s", name);
    fclose(file);
    for (int i = 0; i < 8; i++) header += (int64_t)length[i] << 8 * i;
    DIST_CHECK((double)(info.st_size - header) == told.bytes, "%s: %lld bytes of elements, told %.0f", name,
               (long long)(info.st_size - header), told.bytes);
}

/* ---- the same bytes on every grid ---- */

typedef struct first_bytes {
    path folder;
    double digest;
    int n_grids;
} first_bytes;

static void compare_bytes(qdr_grid *grid, void *user)
{
    first_bytes *first = user;
    qdr_context *ctx = qdr_grid_context(grid);
    const int64_t cells = (int64_t)qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D);
    const gpt_config config = {
        .network = gpt_network((qdr_network){.layers = 1, .hidden = 21, .heads = 3, .vocab = 29, .context = CONTEXT}),
        .context = CONTEXT,
        .n_sequences = cells,
        .layout = first->n_grids % 2 ? QDR_SCATTERED : QDR_REPLICATED,
        .dtype = QDR_BF16,
        .panels = 1,
        .batch_parts = 1};
    const path name = in(first->folder, "a");
    trainer run = begin(grid, &config, 5);
    save(run.model.stack, run.optimizer, name.text, first->n_grids % 2, NULL);
    const double digest = digest_of(ctx, name.text);
    check_predicted(&run, name.text);
    if (first->n_grids++ == 0) first->digest = digest;
    DIST_CHECK(digest == first->digest, "grid %d: other bytes", first->n_grids);
    end(&run);
}

DIST_TEST(bytes_do_not_depend_on_grids)
{
    first_bytes first = {.folder = make_folder(ctx)};
    dist_every_grid(ctx, 1, compare_bytes, &first);
    remove_folder(ctx, first.folder);
}

/* ---- from one grid to another ---- */

/* With levels a rank has loaded only what it updates: the rest is stale, and a forward returns it. */
static void check_stale(qdr_stack *stack, const qdr_grid *grid)
{
    int n_stale = 0;
    for (int i = 0; i < qdr_stack_n_parameters(stack); i++) {
        const qdr_parameter p = dist_parameter(stack, i);
        n_stale += p.stale;
    }
    DIST_CHECK((n_stale > 0) == dist_has_levels(grid), "%d parameters are stale", n_stale);
}

DIST_TEST(training_goes_on)
{
    const path folder = make_folder(ctx);
    const path a = in(folder, "a"), b = in(folder, "b");
    for (int round = 0; round < dist_rounds(9); round++) {
        const int is_new = round % 3 == 0; /* what is loaded into has taken no step, and has levels */
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        qdr_grid *other = (is_new ? dist_levels_grid : dist_random_grid)(ctx, &seed);
        gpt_config config = random_config(&seed, grid);
        const uint64_t data = dist_random(&seed);
        const int background = (int)dist_below(&seed, 2);
        trainer run = begin(grid, &config, 11);
        for (uint64_t i = 0; i < 3; i++) (void)step(&run, data + i);
        DIST_OK(qdri_adamw_set_steps(run.optimizer, 5, 3)); /* as if two had been skipped */
        save(run.model.stack, run.optimizer, a.text, background, "{\"round\": 1}");
        check_predicted(&run, a.text);
        const double before = gathered(run.model.stack);
        const double next[] = {step(&run, data + 3), step(&run, data + 4)};
        end(&run);

        qdr_checkpoint_loaded loaded = {QDR_INIT(qdr_checkpoint_loaded)};
        for (int same = 0; same < 2; same++) { /* on the same grid all bits are the same */
            qdr_grid *there = same ? grid : other;
            config.n_sequences = same ? config.n_sequences
                                      : (int64_t)qdr_grid_size(other, QDR_Z) * qdr_grid_size(other, QDR_D);
            if (same) config.n_sequences = (int64_t)qdr_grid_size(grid, QDR_Z) * qdr_grid_size(grid, QDR_D);
            run = begin(there, &config, 12);
            if (!is_new && dist_below(&seed, 2)) (void)step(&run, data); /* state that must vanish */
            DIST_OK(qdr_checkpoint_load(run.model.stack, run.optimizer, a.text, &loaded));
            check_stale(run.model.stack, there);
            int64_t n_skipped;
            DIST_OK(qdr_adamw_skipped(run.optimizer, &n_skipped));
            DIST_CHECK(n_skipped == 2, "%lld skipped steps", (long long)n_skipped);
            DIST_CHECK(loaded.n_steps + loaded.has_optimizer >= 1 && loaded.n_ignored == 0, "loaded %d, ignored %d",
                       loaded.n_tensors, loaded.n_ignored);
            DIST_CHECK(loaded.note && strcmp(loaded.note, "{\"round\": 1}") == 0, "another note");
            qdr_checkpoint_loaded_free(&loaded);
            DIST_CHECK(gathered(run.model.stack) == before, "round %d: other parameters", round);
            save(run.model.stack, run.optimizer, b.text, !background, "{\"round\": 1}");
            DIST_CHECK(digest_of(ctx, a.text) == digest_of(ctx, b.text), "round %d: other bytes after loading", round);
            if (same) {
                const double again[] = {step(&run, data + 3), step(&run, data + 4)};
                DIST_CHECK(memcmp(next, again, sizeof next) == 0, "round %d, %s: losses %.17g %.17g, then %.17g %.17g",
                           round, qdr_dtype_name(config.dtype), next[0], next[1], again[0], again[1]);
            }
            end(&run);
        }
        qdr_grid_destroy(&grid);
        qdr_grid_destroy(&other);
    }
    remove_folder(ctx, folder);
}

/* ---- blocks, units and storages ---- */

typedef struct odd {
    qdr_stack *stack;
    qdr_adamw *optimizer;
} odd;

static odd odd_create(qdr_grid *grid, uint64_t shape, qdr_dtype dtype, uint64_t storages)
{
    const int64_t k = 1 + dist_below(&shape, 40), unit = 1 + dist_below(&shape, 3);
    const qdr_block middle[QDR_MAX_BLOCKS] = {{unit * (1 + dist_below(&shape, 9)), unit},
                                              {unit * (1 + dist_below(&shape, 5)), unit},
                                              {unit * (1 + dist_below(&shape, 5)), unit}};
    const qdr_edge_desc input = {QDR_INIT(qdr_edge_desc), .cols = {{k, 1}}, .col_axis = QDR_X};
    qdr_linear_desc first = {QDR_INIT(qdr_linear_desc), .name = "first", .in = {{k, 1}}, .bias = 1,
                             .storage = dist_below(&storages, 2) ? QDR_IN_OUT : QDR_OUT_IN};
    qdr_linear_desc second = {QDR_INIT(qdr_linear_desc),
                              .name = "second",
                              .out = {{1 + dist_below(&shape, 30), 1}},
                              .bias = 1,
                              .transposed = 1,
                              .storage = dist_below(&storages, 2) ? QDR_IN_OUT : QDR_OUT_IN};
    memcpy(first.out, middle, sizeof middle);
    memcpy(second.in, middle, sizeof middle);
    qdr_edge x, y, z;
    qdr_linear *layer;
    odd made = {.stack = NULL};
    made.stack = dist_stack(grid, (qdr_stack_opts){.n_rows = 8, .dtype = dtype, .panels = 1, .batch_parts = 1});
    DIST_OK(qdr_stack_add_input(made.stack, "x", &input, 0, &x));
    DIST_OK(qdr_stack_add_linear(made.stack, &first, x, &y, &layer));
    DIST_OK(qdr_stack_add_linear(made.stack, &second, y, &z, &layer));
    DIST_OK(qdr_stack_build(made.stack));
    DIST_OK(qdr_stack_init(made.stack, 3, 0.5));
    DIST_OK(qdr_adamw_create(made.stack, NULL, &made.optimizer));
    return made;
}

static void odd_destroy(odd *run)
{
    qdr_adamw_destroy(&run->optimizer);
    qdr_stack_destroy(&run->stack);
}

DIST_TEST(storage_does_not_matter)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    const path folder = make_folder(ctx);
    const path a = in(folder, "a"), b = in(folder, "b");
    for (int round = 0; round < dist_rounds(20); round++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed), *other = dist_random_grid(ctx, &seed);
        const uint64_t shape = dist_random(&seed), storages = dist_random(&seed);
        const qdr_dtype dtype = dtypes[dist_below(&seed, 4)];
        const int has_optimizer = (int)dist_below(&seed, 2);
        odd run = odd_create(grid, shape, dtype, storages);
        save(run.stack, has_optimizer ? run.optimizer : NULL, a.text, (int)dist_below(&seed, 2), NULL);
        const double before = gathered(run.stack);
        odd_destroy(&run);
        run = odd_create(other, shape, dtype, dist_random(&seed));
        DIST_CHECK(gathered(run.stack) == before, "round %d: initial values depend on the grid", round);
        for (int i = 0; i < qdr_stack_n_parameters(run.stack); i++) {
            const qdr_parameter p = dist_parameter(run.stack, i);
            void *zeros = calloc((size_t)p.n_global, sizeof(double));
            DIST_OK(qdr_stack_load_parameter(run.stack, i, zeros));
            free(zeros);
        }
        DIST_OK(qdr_checkpoint_load(run.stack, has_optimizer ? run.optimizer : NULL, a.text, NULL));
        DIST_CHECK(gathered(run.stack) == before, "round %d: other parameters", round);
        save(run.stack, has_optimizer ? run.optimizer : NULL, b.text, (int)dist_below(&seed, 2), NULL);
        DIST_CHECK(digest_of(ctx, a.text) == digest_of(ctx, b.text), "round %d: other bytes", round);
        odd_destroy(&run);
        qdr_grid_destroy(&grid);
        qdr_grid_destroy(&other);
    }
    remove_folder(ctx, folder);
}

/* ---- types ---- */

/* Each element of each parameter of b is that of a, rounded. */
static void check_rounded(qdr_stack *a, qdr_stack *b)
{
    for (int i = 0; i < qdr_stack_n_parameters(a); i++) {
        const qdr_parameter p = dist_parameter(a, i);
        void *from = malloc((size_t)p.n_global * sizeof(double)), *to = malloc((size_t)p.n_global * sizeof(double));
        double rounded = 0;
        DIST_CHECK(from && to, "no memory");
        DIST_OK(qdr_stack_gather_parameter(a, i, 0, from));
        DIST_OK(qdr_stack_gather_parameter(b, i, 0, to));
        for (int64_t j = 0; j < p.n_global; j++) {
            dist_set(&rounded, qdr_stack_dtype(b), 0, dist_get(from, qdr_stack_dtype(a), j));
            DIST_CHECK(dist_get(&rounded, qdr_stack_dtype(b), 0) == dist_get(to, qdr_stack_dtype(b), j),
                       "%s, element %lld", p.name, (long long)j);
        }
        free(from);
        free(to);
    }
}

DIST_TEST(types_are_rounded)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16};
    const path folder = make_folder(ctx);
    const path a = in(folder, "a");
    for (int i = 0; i < 16; i++) {
        qdr_grid *grid = dist_random_grid(ctx, &seed);
        const uint64_t shape = dist_random(&seed);
        odd from = odd_create(grid, shape, dtypes[i / 4], seed), to = odd_create(grid, shape, dtypes[i % 4], seed + 1);
        save(from.stack, NULL, a.text, 0, NULL);
        qdr_checkpoint_loaded loaded = {QDR_INIT(qdr_checkpoint_loaded)};
        DIST_OK(qdr_checkpoint_load(to.stack, NULL, a.text, &loaded));
        DIST_CHECK(loaded.n_tensors == 4 && !loaded.has_optimizer && !loaded.note, "%d tensors", loaded.n_tensors);
        check_rounded(from.stack, to.stack);
        odd_destroy(&from);
        odd_destroy(&to);
        qdr_grid_destroy(&grid);
    }
    remove_folder(ctx, folder);
}

/* ---- errors ---- */

DIST_TEST(errors_are_told)
{
    const path folder = make_folder(ctx);
    const path a = in(folder, "a"), b = in(folder, "b"), none = in(folder, "no/such");
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    odd run = odd_create(grid, 1, QDR_F32, 1), other = odd_create(grid, 5, QDR_F32, 1);
    const qdr_checkpoint_opts later = {QDR_INIT(qdr_checkpoint_opts), .background = 1, .keep = 2},
                              wrong = {QDR_INIT(qdr_checkpoint_opts), .keep = -1};
    qdr_checkpoint *pending = NULL, *second = NULL;
    DIST_FAILS(qdr_checkpoint_save(NULL, NULL, a.text, NULL, NULL), QDR_ERR_ARGUMENT, "NULL");
    DIST_FAILS(qdr_checkpoint_save(run.stack, NULL, NULL, NULL, NULL), QDR_ERR_ARGUMENT, "path");
    DIST_FAILS(qdr_checkpoint_save(run.stack, other.optimizer, a.text, NULL, NULL), QDR_ERR_ARGUMENT, "another stack");
    DIST_FAILS(qdr_checkpoint_save(run.stack, NULL, a.text, &wrong, NULL), QDR_ERR_ARGUMENT, "keep");
    DIST_FAILS(qdr_checkpoint_save(run.stack, NULL, a.text, &later, NULL), QDR_ERR_ARGUMENT, "pending");
    DIST_FAILS(qdr_checkpoint_save(run.stack, NULL, none.text, NULL, NULL), QDR_ERR_ARGUMENT, "No such file");
    DIST_FAILS(qdr_checkpoint_save(run.stack, NULL, folder.text, NULL, NULL), QDR_ERR_ARGUMENT, "directory");
    if (qdr_context_size(ctx) > 1)
        DIST_FAILS(qdr_checkpoint_save(run.stack, NULL, qdr_context_rank(ctx) ? a.text : b.text, NULL, NULL),
                   QDR_ERR_ARGUMENT, "path");
    DIST_FAILS(qdr_checkpoint_load(run.stack, NULL, a.text, NULL), QDR_ERR_IO, "No such file");

    DIST_OK(qdr_checkpoint_save(run.stack, run.optimizer, a.text, &later, &pending));
    DIST_FAILS(qdr_checkpoint_save(run.stack, NULL, b.text, NULL, &second), QDR_ERR_STATE, "pending");
    DIST_OK(qdr_checkpoint_finish(&pending));
    DIST_OK(qdr_checkpoint_finish(&pending));
    const double first = digest_of(ctx, a.text);
    DIST_FAILS(qdr_checkpoint_load(other.stack, NULL, a.text, NULL), QDR_ERR_ARGUMENT, "first.weight is [");
    DIST_OK(qdr_checkpoint_save(run.stack, NULL, b.text, NULL, NULL));
    DIST_FAILS(qdr_checkpoint_load(run.stack, run.optimizer, b.text, NULL), QDR_ERR_ARGUMENT, "optimizer");

    /* Two older files are kept. */
    for (int i = 0; i < 3; i++) {
        DIST_OK(qdr_checkpoint_save(run.stack, i % 2 ? NULL : run.optimizer, a.text, &later, &pending));
        DIST_OK(qdr_checkpoint_finish(&pending));
    }
    DIST_CHECK(digest_of(ctx, a.text) == first && digest_of(ctx, in(folder, "a.2").text) == first, "not kept");
    DIST_CHECK(digest_of(ctx, in(folder, "a.1").text) == digest_of(ctx, b.text), "not the older one");
    check_absent(ctx, in(folder, "a.3").text);
    check_absent(ctx, in(folder, "a.partial").text);

    /* The stack is destroyed first. */
    DIST_OK(qdr_checkpoint_save(run.stack, run.optimizer, a.text, &later, &pending));
    odd_destroy(&run);
    DIST_OK(qdr_checkpoint_finish(&pending));
    DIST_CHECK(digest_of(ctx, a.text) == first, "other bytes");
    odd_destroy(&other);
    qdr_grid_destroy(&grid);
    remove_folder(ctx, folder);
}

/* ---- damage ---- */

static int n_flips = 100; /* --flips N */

/* What qdr_safetensors_verify() names first; "": a header that is refused. */
static void find_damage(const char *name, char found[256])
{
    qdr_safetensors *file;
    found[0] = '\0';
    if (qdr_safetensors_open(name, &file) != QDR_OK) return;
    snprintf(found, 256, "nothing");
    for (int i = qdr_safetensors_count(file) - 1; i >= 0; i--)
        if (qdr_safetensors_verify(file, i) != QDR_OK)
            snprintf(found, 256, "tensor %s is damaged", qdr_safetensors_tensor(file, i)->name);
    DIST_OK(qdr_safetensors_close(&file));
}

static void flip(const char *name, int64_t at, int bit)
{
    FILE *file = fopen(name, "r+b");
    DIST_CHECK(file && fseek(file, (long)at, SEEK_SET) == 0, "%s", name);
    const int byte = fgetc(file);
    DIST_CHECK(fseek(file, (long)at, SEEK_SET) == 0 && fputc(byte ^ bit, file) != EOF && fclose(file) == 0, "%s", name);
}

/* Where the elements begin. */
static int64_t data_at(const char *name, int64_t file_bytes)
{
    qdr_safetensors *file;
    DIST_OK(qdr_safetensors_open(name, &file));
    const qdr_tensor *last = qdr_safetensors_tensor(file, qdr_safetensors_count(file) - 1);
    const int64_t at = file_bytes - last->begin - last->bytes;
    DIST_OK(qdr_safetensors_close(&file));
    return at;
}

/* On rank 0: what the sentence about a damaged byte holds; "": any, of the header. */
static void words_of_byte(const char *name, int64_t at, int64_t data, char words[256])
{
    qdr_safetensors *file;
    words[0] = '\0';
    DIST_OK(qdr_safetensors_open(name, &file));
    for (int i = 0; i < qdr_safetensors_count(file); i++) {
        const qdr_tensor *tensor = qdr_safetensors_tensor(file, i);
        if (at >= data + tensor->begin && at < data + tensor->begin + tensor->bytes)
            snprintf(words, 256, "tensor %s is damaged", tensor->name);
    }
    DIST_OK(qdr_safetensors_close(&file));
}

/* A flipped bit anywhere is found, and its tensor is named: half of them in the header. Where the file ends early, it
 * is refused. */
DIST_TEST(damage_is_found)
{
    const path folder = make_folder(ctx);
    const path a = in(folder, "a");
    const int is_root = qdr_context_rank(ctx) == 0;
    qdr_grid *grid = dist_random_grid(ctx, &seed);
    odd run = odd_create(grid, 1, QDR_F32, seed);
    save(run.stack, run.optimizer, a.text, 0, NULL);
    struct stat info = {0};
    DIST_CHECK(!is_root || stat(a.text, &info) == 0, "no file");
    const int64_t all = info.st_size, data = is_root ? data_at(a.text, all) : 0;
    for (int round = 0; round < dist_rounds(n_flips); round++) {
        char words[256] = "", found[256];
        int64_t at = 0;
        int bit = 0;
        if (is_root) {
            at = round % 2 ? dist_below(&seed, data) : data + dist_below(&seed, all - data);
            bit = 1 << dist_below(&seed, 8);
            words_of_byte(a.text, at, data, words);
            flip(a.text, at, bit);
            find_damage(a.text, found);
            DIST_CHECK(strcmp(found, words) == 0, "byte %lld: \"%s\", not \"%s\"", (long long)at, found, words);
        }
        DIST_OK(qdr_broadcast(ctx, 0, words, sizeof words));
        if (*words)
            DIST_FAILS(qdr_checkpoint_load(run.stack, run.optimizer, a.text, NULL), QDR_ERR_IO, words);
        else
            DIST_CHECK(qdr_checkpoint_load(run.stack, run.optimizer, a.text, NULL) < 0, "byte %lld", (long long)at);
        DIST_OK(qdr_barrier(ctx));
        if (is_root) flip(a.text, at, bit);
    }
    DIST_OK(qdr_checkpoint_load(run.stack, run.optimizer, a.text, NULL));
    const double before = gathered(run.stack);
    int64_t left = all;
    do { /* each length if there are many flips, some otherwise */
        if (is_root) left -= n_flips > 1000 ? 1 : 1 + dist_below(&seed, 400);
        if (left < 0) left = 0;
        if (is_root) DIST_CHECK(truncate(a.text, (off_t)left) == 0, "not truncated");
        DIST_OK(qdr_broadcast(ctx, 0, &left, sizeof left));
        DIST_CHECK(qdr_checkpoint_load(run.stack, run.optimizer, a.text, NULL) < 0, "%lld bytes", (long long)left);
        DIST_CHECK(!strstr(qdr_last_error(), "undefined"), "%lld bytes: %s", (long long)left, qdr_last_error());
    } while (left > 0);
    DIST_CHECK(gathered(run.stack) == before, "refused files have changed parameters");
    odd_destroy(&run);
    qdr_grid_destroy(&grid);
    remove_folder(ctx, folder);
}

/* usage: test_checkpoint [--flips N] …, which runs only the flips */
int main(int argc, char **argv)
{
    if (argc < 3 || strcmp(argv[1], "--flips") != 0) return dist_main(argc, argv, NULL);
    n_flips = (int)strtol(argv[2], NULL, 10);
    argv[2] = argv[0];
    return dist_main(argc - 2, argv + 2, "damage_is_found");
}
