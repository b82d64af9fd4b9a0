/* SPDX-License-Identifier: Apache-2.0 */
/* Handles, engines and plans: the proposals for a graph, and its execution on a stream. Three configurations are
 * proposed: the first is not deterministic, the second cannot be finalised. */
#define _GNU_SOURCE /* RTLD_NOLOAD */
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../lt.h"
#include "../services.h"
#include "entry.h"

enum { NOT_INITIALIZED = 1001, NOT_SUPPORTED = 3000, EXECUTION_FAILED = 5000 };
enum { N_CONFIGS = 3, GOOD_RANK = 2 };

typedef struct handle {
    int device, is_destroyed;
    cudaStream_t stream;
} handle;

static atomic_int n_handles, n_runs;

void fake_cudnn_wrong(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    fputs("fake cudnn: ", stderr);
    vfprintf(stderr, format, args);
    fputc('\n', stderr);
    va_end(args);
    abort();
}

static int is_case(const char *name)
{
    const char *set = getenv("FAKE_CUDNN");
    return set && strcmp(set, name) == 0;
}

/* What is left of it when the process ends; and whether it was used as told. */
__attribute__((destructor)) static void look_back(void)
{
    const char *expected = getenv("FAKE_CUDNN_RUNS");
    if (fake_cudnn_leaks() || n_handles)
        fake_cudnn_wrong("%lld descriptors and %d handles were left", (long long)fake_cudnn_leaks(), n_handles);
    if (!expected) return;
    if (n_runs < atoi(expected) || (n_runs && atoi(expected) == 0))
        fake_cudnn_wrong("%d executions, not %s", n_runs, expected);
}

size_t cudnnGetVersion(void) { return is_case("old") ? 91500 : 91900; }

const char *cudnnGetErrorString(int status)
{
    switch (status) {
    case QDRI_CUDNN_SUCCESS: return "CUDNN_STATUS_SUCCESS";
    case NOT_INITIALIZED: return "CUDNN_STATUS_NOT_INITIALIZED";
    case NOT_SUPPORTED: return "CUDNN_STATUS_NOT_SUPPORTED";
    case QDRI_CUDNN_NO_HOST_MEMORY: return "CUDNN_STATUS_INTERNAL_ERROR_HOST_ALLOCATION_FAILED";
    case QDRI_CUDNN_NO_DEVICE_MEMORY: return "CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED";
    default: return "CUDNN_STATUS_EXECUTION_FAILED";
    }
}

/* The fake CUDA of the plugin that opened this library. */
static void find_cuda(void)
{
    const char *path = getenv("QDR_CUDA_PLUGIN");
    void *plugin = path ? dlopen(path, RTLD_NOW | RTLD_NOLOAD) : NULL;
    fake_cudnn_cuda = plugin ? dlsym(plugin, FAKE_SERVICES_SYMBOL) : NULL;
    if (!fake_cudnn_cuda) fake_cudnn_wrong("the fake plugin is not open");
}

int cudnnCreate(void **made)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    if (is_case("handle")) return NOT_INITIALIZED;
    (void)pthread_once(&once, find_cuda);
    if (fake_cudnn_cuda->take_failure("cudnn_create")) return QDRI_CUDNN_NO_DEVICE_MEMORY;
    handle *h = calloc(1, sizeof *h);
    if (!h || fake_cudnn_cuda->current_device(&h->device) != cudaSuccess) fake_cudnn_wrong("there is no device");
    n_handles++;
    *made = h;
    return QDRI_CUDNN_SUCCESS;
}

int cudnnDestroy(void *made)
{
    free(made);
    n_handles--;
    return QDRI_CUDNN_SUCCESS;
}

int cudnnSetStream(void *made, cudaStream_t stream)
{
    handle *h = made;
    if (fake_cudnn_cuda->stream_device(stream, "cudnnSetStream") != h->device)
        fake_cudnn_wrong("a stream of another GPU than %d", h->device);
    h->stream = stream;
    return QDRI_CUDNN_SUCCESS;
}

/* ---- engines ---- */

int fake_cudnn_finish(descriptor *d)
{
    const descriptor *of = NULL;
    if (d->kind == QDRI_CUDNN_GRAPH) d->graph = fake_cudnn_read_graph(d);
    if (d->kind == QDRI_CUDNN_HEURISTIC) of = fake_cudnn_desc(d, QDRI_CUDNN_HEURISTIC_GRAPH);
    if (d->kind == QDRI_CUDNN_PLAN) of = fake_cudnn_desc(d, QDRI_CUDNN_PLAN_CONFIG);
    if (of) d->graph = of->graph;
    if (!of || of->kind != QDRI_CUDNN_CONFIG) return QDRI_CUDNN_SUCCESS;
    if (of->rank != GOOD_RANK || fake_cudnn_cuda->take_failure("cudnn_refuse")) return NOT_SUPPORTED;
    return fake_cudnn_cuda->take_failure("cudnn_plan") ? QDRI_CUDNN_NO_HOST_MEMORY : QDRI_CUDNN_SUCCESS;
}

static int64_t propose(const descriptor *heuristic, int64_t n, void **configs)
{
    int64_t i;
    if (is_case("none")) return 0;
    for (i = 0; i < N_CONFIGS && i < n; i++) {
        descriptor *config = fake_cudnn_check(configs[i], QDRI_CUDNN_CONFIG, "a proposal");
        config->graph = heuristic->graph;
        config->rank = (int)i;
        config->is_final = 1;
    }
    return i;
}

/* As much as a score matrix of two bytes, where results come from one. */
static int64_t workspace_bytes(const fake_graph *g)
{
    int64_t bytes = 256;
    for (int i = 0; i < g->n_tensors; i++) {
        const int64_t *dims = g->tensors[i].dims;
        if (g->tensors[i].id == QDRI_CUDNN_DQ) bytes += 2 * dims[0] * dims[1] * dims[2] * dims[2];
    }
    return is_case("large") ? bytes << 13 : bytes;
}

int cudnnBackendGetAttribute(void *desc, int name, int type, int64_t n, int64_t *n_got, void *values)
{
    const descriptor *d = fake_cudnn_check(desc, -1, "cudnnBackendGetAttribute");
    if (!d->is_final) fake_cudnn_wrong("attribute %d of a descriptor that is not final", name);
    *n_got = 1;
    if (name == QDRI_CUDNN_HEURISTIC_RESULTS && type == QDRI_CUDNN_OF_DESCRIPTOR) {
        *n_got = propose(d, n, values);
    } else if (name == QDRI_CUDNN_CONFIG_ENGINE && type == QDRI_CUDNN_OF_DESCRIPTOR) {
        descriptor *engine = fake_cudnn_check(*(void **)values, QDRI_CUDNN_ENGINE, "an engine");
        engine->rank = d->rank;
        engine->is_final = 1;
    } else if (name == QDRI_CUDNN_ENGINE_NOTES && type == QDRI_CUDNN_OF_NOTE) {
        ((int *)values)[0] = 0; /* of tensor cores */
        *n_got = d->rank == 0 || is_case("random") ? 2 : 1;
        if (*n_got == 2) ((int *)values)[1] = QDRI_CUDNN_NOTE_NONDETERMINISTIC;
    } else if (name == QDRI_CUDNN_PLAN_WORKSPACE && type == QDRI_CUDNN_OF_I64) {
        *(int64_t *)values = workspace_bytes(d->graph);
    } else {
        fake_cudnn_wrong("attribute %d is asked for as type %d", name, type);
    }
    return QDRI_CUDNN_SUCCESS;
}

/* ---- execution ---- */

/* Rows of packed heads: of dimensions 2 and 3 the one without a stride is the column. */
static fake_access access_of(const fake_tensor *t, fake_access_kind kind, const void *data)
{
    const int column = t->strides[3] == 1 ? 3 : 2, row = 5 - column;
    const int64_t bytes = t->type == QDRI_CUDNN_F32 ? 4 : 2;
    if (t->type == QDRI_CUDNN_F32) return (fake_access){kind, data, (size_t)(t->dims[0] * t->strides[0] * bytes), 0, 1};
    if (t->strides[1] != t->dims[column] || t->strides[0] != t->dims[row] * t->strides[row])
        fake_cudnn_wrong("tensor %lld is no rows of heads", (long long)t->id);
    return (fake_access){kind, data, (size_t)(t->dims[1] * t->strides[1] * bytes), (size_t)(t->strides[row] * bytes),
                         t->dims[0] * t->dims[row]};
}

static int is_written(const fake_graph *g, int index, int *is_read)
{
    int is = 0;
    *is_read = 0;
    for (int i = 0; i < g->n_ops; i++) {
        is |= g->ops[i].y == index;
        for (int k = 0; k < INPUTS_MOST; k++) *is_read |= g->ops[i].x[k] == index;
    }
    return is;
}

/* The data of the tensor with this number. */
static void *find_data(const attribute *ids, const attribute *pointers, int64_t id)
{
    for (int64_t i = 0; i < ids->n; i++)
        if (memcmp(ids->values + 8 * i, &id, 8) == 0) {
            void *data;
            memcpy(&data, pointers->values + 8 * i, sizeof data);
            return data;
        }
    fake_cudnn_wrong("tensor %lld has no data", (long long)id);
}

/* Fills the run, and what it reads and writes. */
static int bind(fake_run *run, const descriptor *pack, fake_access *accesses)
{
    const attribute *ids = fake_cudnn_find(pack, QDRI_CUDNN_PACK_IDS),
                    *pointers = fake_cudnn_find(pack, QDRI_CUDNN_PACK_POINTERS);
    const fake_graph *g = run->graph;
    int n = 0, n_bound = 0, is_read;
    if (ids->n != pointers->n) fake_cudnn_wrong("as many numbers as data");
    for (int i = 0; i < g->n_tensors; i++) {
        const fake_tensor *t = &g->tensors[i];
        if (t->is_virtual) continue;
        void *data = find_data(ids, pointers, t->id);
        n_bound++;
        if (t->is_value) memcpy(&run->values[i], data, sizeof run->values[i]);
        if (t->is_value) continue;
        if ((uintptr_t)data % (uintptr_t)t->alignment)
            fake_cudnn_wrong("tensor %lld at %p is not aligned", (long long)t->id, data);
        run->data[i] = data;
        const int is_output = is_written(g, i, &is_read);
        accesses[n++] = access_of(t, !is_output ? FAKE_READ : is_read ? FAKE_SCRATCH : FAKE_WRITE, data);
    }
    if (n_bound != ids->n) fake_cudnn_wrong("%lld data for %d tensors", (long long)ids->n, n_bound);
    return n;
}

int cudnnBackendExecute(void *made, void *plan, void *pack)
{
    const handle *h = made;
    const descriptor *p = fake_cudnn_check(plan, QDRI_CUDNN_PLAN, "cudnnBackendExecute"),
                     *of = fake_cudnn_check(pack, QDRI_CUDNN_PACK, "cudnnBackendExecute");
    fake_access accesses[TENSORS_MOST + 1];
    fake_run run = {.graph = p->graph};
    void *workspace;
    if (!p->is_final || !of->is_final) fake_cudnn_wrong("what is executed is not final");
    if (is_case("execute")) return EXECUTION_FAILED;
    int n = bind(&run, of, accesses);
    memcpy(&workspace, fake_cudnn_find(of, QDRI_CUDNN_PACK_WORKSPACE)->values, sizeof workspace);
    accesses[n++] = (fake_access){FAKE_SCRATCH, workspace, (size_t)workspace_bytes(p->graph), 0, 1};
    if (fake_cudnn_cuda->use(h->stream, "attention of cuDNN", accesses, n) != cudaSuccess) return EXECUTION_FAILED;
    fake_cudnn_cuda->enqueue(h->stream, fake_cudnn_compute, &run, sizeof run);
    n_runs++;
    return QDRI_CUDNN_SUCCESS;
}
