/* SPDX-License-Identifier: Apache-2.0 */
/* Objects are destroyed in any order: for each pair of objects, one is destroyed, then the other, while all remaining
 * ones are used; then these are destroyed, parents first. If something is freed too early, or never, the address
 * sanitizer reports it.
 *
 *   test_lives local N       N ranks in threads
 *   test_lives mpi           under mpiexec
 *   test_lives finalized     under mpiexec: MPI is finalised before anything is destroyed
 *   test_lives headers DIR   every object that the public headers in DIR can destroy is in the table */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "config.h"
#include "quadrille/quadrille.h"
#if QDRI_HAVE_MPI
#include "quadrille/mpi.h"
#endif

enum { ROWS = 8, WIDTH = 4, ELEMS = 16, MOST_RANKS = 8 };

#define CHECK(call)                                                                                                    \
    do {                                                                                                               \
        const qdr_status status_ = (call);                                                                             \
        if (status_ == QDR_OK) break;                                                                                  \
        fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, qdr_last_error());                               \
        abort();                                                                                                       \
    } while (0)

/* What one rank has, each NULL once it is destroyed. */
typedef struct family {
    qdr_context *ctx;
    qdr_context *ctx_for_memory; /* a copy, as a caller might keep it */
    qdr_grid *grid;
    qdr_stack *stack;
    qdr_adamw *optimizer;
    qdr_graph *graph; /* where steps can be recorded */
    qdr_stream *stream;
    qdr_event *event;
    void *memory;
} family;

/* ---- the table ---- */

static void make_grid(family *f)
{
    const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = qdr_context_size(f->ctx), .y = 1, .z = 1, .d = 1};
    CHECK(qdr_grid_create(f->ctx, &opts, &f->grid));
}

static void fill(const family *f, void *data, int64_t n_elems)
{
    static const float zeros[ROWS * WIDTH * MOST_RANKS];
    qdr_context *ctx = qdr_grid_context(f->grid);
    CHECK(qdr_copy(ctx, data, zeros, (size_t)n_elems * sizeof *zeros, NULL));
    CHECK(qdr_stream_synchronize(qdr_context_stream(ctx)));
}

static void make_stack(family *f)
{
    const qdr_block width = {WIDTH * MOST_RANKS, 1};
    const qdr_edge_desc rows = {QDR_INIT(qdr_edge_desc), .cols = {width}, .col_axis = QDR_X};
    const qdr_linear_desc desc = {QDR_INIT(qdr_linear_desc), .name = "layer", .in = {width}, .out = {width}, .bias = 1};
    const qdr_stack_opts opts = {QDR_INIT(qdr_stack_opts), .n_rows = ROWS};
    qdr_edge in, out;
    qdr_linear *layer;
    qdr_owned owned = {QDR_INIT(qdr_owned)};
    void *data;
    CHECK(qdr_stack_create(f->grid, &opts, &f->stack));
    CHECK(qdr_stack_add_input(f->stack, "x", &rows, 1, &in));
    CHECK(qdr_stack_add_linear(f->stack, &desc, in, &out, &layer));
    CHECK(qdr_stack_build(f->stack));
    CHECK(qdr_stack_init(f->stack, 1, 0.1));
    CHECK(qdr_stack_edge_owned(f->stack, in, &owned));
    CHECK(qdr_stack_edge_value(f->stack, in, &data));
    fill(f, data, owned.n_rows * owned.n_cols);
    CHECK(qdr_stack_edge_owned(f->stack, out, &owned));
    CHECK(qdr_stack_edge_gradient(f->stack, out, &data));
    fill(f, data, owned.n_rows * owned.n_cols);
}

static void make_optimizer(family *f) { CHECK(qdr_adamw_create(f->stack, NULL, &f->optimizer)); }

static void use_stack(family *f)
{
    CHECK(qdr_stack_forward(f->stack));
    CHECK(qdr_stack_backward(f->stack, 0, 1));
}

static void use_optimizer(family *f) { CHECK(qdr_adamw_step(f->optimizer, 0.01)); }

static void make_graph(family *f)
{
    use_stack(f);
    use_optimizer(f);
    if (qdr_context_gpu(f->ctx) < 0) return;
    CHECK(qdr_graph_begin(f->ctx));
    use_stack(f);
    CHECK(qdr_adamw_step_as_set(f->optimizer));
    CHECK(qdr_graph_end(f->ctx, &f->graph));
}

static void make_context(family *f) { f->ctx_for_memory = f->ctx; } /* there from the start */
static void make_stream(family *f) { CHECK(qdr_stream_create(f->ctx, &f->stream)); }
static void make_event(family *f) { CHECK(qdr_event_create(f->ctx, &f->event)); }
static void make_memory(family *f) { CHECK(qdr_mem_alloc(f->ctx, ELEMS * sizeof(float), &f->memory)); }

static void use_context(family *f) { CHECK(qdr_barrier(f->ctx)); }

static void use_grid(family *f)
{
    void *data;
    qdr_context *ctx = qdr_grid_context(f->grid);
    CHECK(qdr_mem_alloc(ctx, ELEMS * sizeof(float), &data));
    fill(f, data, ELEMS);
    CHECK(qdr_all_reduce(f->grid, QDR_X, QDR_SUM, data, ELEMS, QDR_F32, NULL));
    CHECK(qdr_stream_synchronize(qdr_context_stream(ctx)));
    qdr_mem_free(ctx, &data);
}

static void use_graph(family *f) { CHECK(qdr_graph_launch(f->graph, NULL)); }
static void use_stream(family *f) { CHECK(qdr_stream_synchronize(f->stream)); }

static void use_event(family *f)
{
    if (!f->stream) return;
    CHECK(qdr_event_record(f->event, f->stream));
    CHECK(qdr_stream_wait(f->stream, f->event));
}

/* It is there as long as something needs the context. */
static void use_memory(family *f)
{
    if (f->ctx && qdr_context_gpu(f->ctx) < 0) memset(f->memory, 1, ELEMS * sizeof(float));
}

static void end_context(family *f) { qdr_context_destroy(&f->ctx); }
static void end_grid(family *f) { qdr_grid_destroy(&f->grid); }
static void end_stack(family *f) { qdr_stack_destroy(&f->stack); }
static void end_optimizer(family *f) { qdr_adamw_destroy(&f->optimizer); }
static void end_graph(family *f) { qdr_graph_destroy(&f->graph); }
static void end_stream(family *f) { qdr_stream_destroy(&f->stream); }
static void end_event(family *f) { qdr_event_destroy(&f->event); }
static void end_memory(family *f) { qdr_mem_free(f->ctx_for_memory, &f->memory); }

/* Parents before their children. Without `make`: it needs nothing, and nothing needs it. */
static const struct {
    const char *destroys; /* the public function */
    void (*make)(family *f), (*use)(family *f), (*end)(family *f);
    size_t at; /* its pointer */
} objects[] = {
    {"qdr_context_destroy", make_context, use_context, end_context, offsetof(family, ctx)},
    {"qdr_grid_destroy", make_grid, use_grid, end_grid, offsetof(family, grid)},
    {"qdr_stack_destroy", make_stack, use_stack, end_stack, offsetof(family, stack)},
    {"qdr_adamw_destroy", make_optimizer, use_optimizer, end_optimizer, offsetof(family, optimizer)},
    {"qdr_graph_destroy", make_graph, use_graph, end_graph, offsetof(family, graph)},
    {"qdr_stream_destroy", make_stream, use_stream, end_stream, offsetof(family, stream)},
    {"qdr_event_destroy", make_event, use_event, end_event, offsetof(family, event)},
    {"qdr_mem_free", make_memory, use_memory, end_memory, offsetof(family, memory)},
    {"qdr_model_destroy", NULL, NULL, NULL, 0},
    {"qdr_topo_destroy", NULL, NULL, NULL, 0},
    {"qdr_checkpoint_loaded_free", NULL, NULL, NULL, 0},
};
enum { N_OBJECTS = sizeof objects / sizeof *objects };

static int is_there(const family *f, int number)
{
    void *pointer;
    memcpy(&pointer, (const char *)f + objects[number].at, sizeof pointer);
    return objects[number].make && pointer;
}

/* ---- all pairs ---- */

static void make_all(family *f)
{
    for (int i = 0; i < N_OBJECTS; i++)
        if (objects[i].make) objects[i].make(f);
}

static void use_all(family *f)
{
    for (int i = 0; i < N_OBJECTS; i++)
        if (is_there(f, i)) objects[i].use(f);
}

static void end_one(family *f, int number)
{
    if (objects[number].make) objects[number].end(f);
    if (!is_there(f, number)) return;
    fprintf(stderr, "%s leaves the caller's pointer\n", objects[number].destroys);
    abort();
}

/* Makes the context of a rank. */
typedef void (*context_fn)(qdr_context **ctx, void *user);

static void destroy_in_order(context_fn make, void *user, int first, int second)
{
    family f = {0};
    make(&f.ctx, user);
    make_all(&f);
    use_all(&f);
    end_one(&f, first);
    use_all(&f);
    end_one(&f, second);
    use_all(&f);
    for (int i = 0; i < N_OBJECTS; i++) end_one(&f, i);
}

static void destroy_all_pairs(context_fn make, void *user)
{
    for (int first = 0; first < N_OBJECTS; first++)
        for (int second = 0; second < N_OBJECTS; second++)
            if (first != second && objects[first].make && objects[second].make)
                destroy_in_order(make, user, first, second);
}

/* ---- local ranks ---- */

typedef struct local_rank {
    qdr_local_world *world;
    int rank;
} local_rank;

static void make_local(qdr_context **ctx, void *user)
{
    const local_rank *me = user;
    CHECK(qdr_context_create_local(me->world, me->rank, NULL, ctx));
}

static qdr_event *left[MOST_RANKS];

/* And an object that outlives the world of its context. */
static int run_local(qdr_local_world *world, int rank, void *user)
{
    local_rank me = {world, rank};
    qdr_context *ctx;
    (void)user;
    destroy_all_pairs(make_local, &me);
    make_local(&ctx, &me);
    CHECK(qdr_event_create(ctx, &left[rank]));
    qdr_context_destroy(&ctx);
    return 0;
}

static int test_local(int n)
{
    int result = 1;
    if (n < 1 || n > MOST_RANKS) return 2;
    CHECK(qdr_local_run(n, run_local, NULL, &result));
    for (int rank = 0; rank < n; rank++) qdr_event_destroy(&left[rank]);
    return result;
}

/* What a rank of qdr_launch() leaves ends with its context, on that rank alone: others do not wait. */
static int leave_all(qdr_context *ctx, void *user)
{
    qdr_grid *grid;
    qdr_event *event;
    const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = qdr_context_size(ctx), .y = 1, .z = 1, .d = 1};
    (void)user;
    CHECK(qdr_grid_create(ctx, &opts, &grid));
    CHECK(qdr_event_create(ctx, &event));
    if (qdr_context_rank(ctx) == 0) return 3;
    qdr_event_destroy(&event);
    qdr_grid_destroy(&grid);
    return 3;
}

static int test_left(int n)
{
    int code = 0;
    CHECK(qdr_launch(n, NULL, leave_all, NULL, &code));
    return code != 3;
}

/* ---- MPI ---- */

#if QDRI_HAVE_MPI
static void make_mpi(qdr_context **ctx, void *user)
{
    (void)user;
    CHECK(qdr_context_create_mpi(MPI_COMM_WORLD, NULL, ctx));
}

static int test_mpi(int argc, char **argv)
{
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    destroy_all_pairs(make_mpi, NULL);
    MPI_Finalize();
    return 0;
}

static void check_refused(qdr_status status, const char *what)
{
    if (status == QDR_ERR_STATE && strstr(qdr_last_error(), "finalised")) return;
    fprintf(stderr, "%s after MPI_Finalize: %s, %s\n", what, qdr_status_name(status), qdr_last_error());
    abort();
}

/* Parents first, then children first. */
static int test_finalized(int argc, char **argv)
{
    family f[2] = {{0}};
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    for (int i = 0; i < 2; i++) {
        make_mpi(&f[i].ctx, NULL);
        make_all(&f[i]);
        use_all(&f[i]);
        CHECK(qdr_stream_synchronize(qdr_context_stream(f[i].ctx)));
        CHECK(qdr_barrier(f[i].ctx));
    }
    MPI_Finalize();
    qdr_grid *grid = NULL;
    const qdr_grid_opts opts = {QDR_INIT(qdr_grid_opts), .x = qdr_context_size(f[0].ctx), .y = 1, .z = 1, .d = 1};
    if (qdr_context_size(f[0].ctx) > 1) {
        check_refused(qdr_barrier(f[0].ctx), "a barrier");
        check_refused(qdr_grid_create(f[0].ctx, &opts, &grid), "a grid");
        check_refused(qdr_all_reduce(f[0].grid, QDR_X, QDR_SUM, f[0].memory, ELEMS, QDR_F32, NULL), "an all-reduce");
    }
    for (int i = 0; i < N_OBJECTS; i++) end_one(&f[0], i);
    for (int i = N_OBJECTS - 1; i >= 0; i--) end_one(&f[1], i);
    return 0;
}
#endif

/* ---- the headers ---- */

static int is_in_table(const char *name, size_t letters)
{
    for (int i = 0; i < N_OBJECTS; i++)
        if (strlen(objects[i].destroys) == letters && strncmp(objects[i].destroys, name, letters) == 0) return 1;
    fprintf(stderr, "%.*s() is in a public header, and not in the table of tests/dist/test_lives.c\n", (int)letters,
            name);
    return 0;
}

/* Declarations are "QDR_API void qdr_…_destroy(" or "…_free(", one a line. */
static void read_header(const char *path, int *n_found, int *n_missing)
{
    static const char begin[] = "QDR_API void ";
    char line[1024];
    FILE *file = fopen(path, "r");
    if (!file) abort();
    while (fgets(line, sizeof line, file)) {
        if (strncmp(line, begin, sizeof begin - 1) != 0) continue;
        const char *name = line + sizeof begin - 1, *end = strchr(name, '(');
        const int ends = end && ((end - name > 8 && strncmp(end - 8, "_destroy", 8) == 0) ||
                                 (end - name > 5 && strncmp(end - 5, "_free", 5) == 0));
        if (!ends) continue;
        (*n_found)++;
        *n_missing += !is_in_table(name, (size_t)(end - name));
    }
    fclose(file);
}

static int test_headers(const char *folder)
{
    char path[2048];
    int n_found = 0, n_missing = 0;
    DIR *dir = opendir(folder);
    if (!dir) return 2;
    for (struct dirent *entry; (entry = readdir(dir)) != NULL;) {
        if (entry->d_name[0] == '.' || !strstr(entry->d_name, ".h")) continue;
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        read_header(path, &n_found, &n_missing);
    }
    closedir(dir);
    if (n_found != N_OBJECTS) fprintf(stderr, "%d objects in the headers, %d in the table\n", n_found, (int)N_OBJECTS);
    return n_found != N_OBJECTS || n_missing;
}

int main(int argc, char **argv)
{
    if (argc == 3 && strcmp(argv[1], "headers") == 0) return test_headers(argv[2]);
    if (argc == 3 && strcmp(argv[1], "local") == 0) return test_local(atoi(argv[2]));
    if (argc == 3 && strcmp(argv[1], "left") == 0) return test_left(atoi(argv[2]));
#if QDRI_HAVE_MPI
    if (argc == 2 && strcmp(argv[1], "mpi") == 0) return test_mpi(argc, argv);
    if (argc == 2 && strcmp(argv[1], "finalized") == 0) return test_finalized(argc, argv);
#endif
    return 2;
}
