/* SPDX-License-Identifier: Apache-2.0 */
/* Graphs: a launch enqueues the script again, the first lane on the launching stream, the others on the graph's own
 * streams. */
#include "capture.h"

#define GRAPH_MAGIC 0x66616b6567726170u
#define EXEC_MAGIC 0x66616b6565786563u

struct CUgraph_st {
    uint64_t magic;
    int is_destroyed;
    fake_script *script;
    struct CUgraph_st *next;
};

struct CUgraphExec_st {
    uint64_t magic;
    int is_destroyed;
    fake_script *script;
    fake_stream **lanes; /* the first is the stream that launches */
    fake_moment *last; /* a graph runs once at a time */
    struct CUgraphExec_st *next;
};

static cudaGraph_t graphs;
static cudaGraphExec_t execs;

int64_t fake_leaked_graphs(void)
{
    int64_t n = 0;
    for (cudaGraph_t graph = graphs; graph; graph = graph->next) n += !graph->is_destroyed;
    for (cudaGraphExec_t exec = execs; exec; exec = exec->next) n += !exec->is_destroyed;
    return n;
}

cudaGraph_t fake_graph_make(fake_script *script)
{
    cudaGraph_t graph = fake_new(sizeof *graph);
    *graph = (struct CUgraph_st){GRAPH_MAGIC, 0, script, graphs};
    graphs = graph;
    return graph;
}

static cudaError_t fail_destroyed(const void *handle, const char *name, int twice)
{
    fake_report(twice ? FAKE_DOUBLE_FREE : FAKE_DESTROYED, "\"%s\" of %p, which is no graph any more", name, handle);
    return cudaErrorInvalidValue;
}

static cudaError_t check_graph(cudaGraph_t graph, const char *name, int destroys)
{
    if (graph && graph->magic == GRAPH_MAGIC && !graph->is_destroyed) return cudaSuccess;
    return fail_destroyed(graph, name, destroys);
}

static cudaError_t check_exec(cudaGraphExec_t exec, const char *name, int destroys)
{
    if (exec && exec->magic == EXEC_MAGIC && !exec->is_destroyed) return cudaSuccess;
    return fail_destroyed(exec, name, destroys);
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    fake_lock();
    const cudaError_t error = check_graph(graph, "cudaGraphDestroy", 1);
    if (error == cudaSuccess) {
        graph->is_destroyed = 1;
        fake_script_release(graph->script);
    }
    fake_unlock();
    return fake_note(error);
}

/* ---- executables ---- */

static void end_lanes(cudaGraphExec_t exec)
{
    for (int i = 1; i < exec->script->n_lanes; i++) {
        if (exec->lanes[i]) fake_stream_end(exec->lanes[i]);
    }
    free(exec->lanes);
    exec->lanes = NULL;
}

static cudaError_t open_lanes(cudaGraphExec_t exec)
{
    const fake_script *script = exec->script;
    exec->lanes = fake_new((size_t)script->n_lanes * sizeof(fake_stream *));
    for (int i = 1; i < script->n_lanes; i++) {
        const cudaError_t error = fake_stream_make(script->lanes[i].device, cudaStreamNonBlocking,
                                                   script->lanes[i].priority, &exec->lanes[i]);
        if (error != cudaSuccess) return error;
        exec->lanes[i]->is_internal = 1;
    }
    return cudaSuccess;
}

static cudaError_t instantiate(cudaGraphExec_t *made, cudaGraph_t graph)
{
    cudaError_t error = check_graph(graph, "cudaGraphInstantiate", 0);
    if (error == cudaSuccess) error = fake_unsafe();
    if (error == cudaSuccess && fake_take_failure("create")) error = cudaErrorMemoryAllocation;
    if (error != cudaSuccess) return error;
    cudaGraphExec_t exec = fake_new(sizeof *exec);
    exec->magic = EXEC_MAGIC;
    exec->script = graph->script;
    error = open_lanes(exec);
    if (error != cudaSuccess) {
        end_lanes(exec);
        free(exec);
        return error;
    }
    exec->script->n_holders++;
    exec->next = execs;
    execs = exec;
    *made = exec;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t *exec, cudaGraph_t graph, unsigned long long flags)
{
    if (flags & ~(unsigned long long)cudaGraphInstantiateFlagUseNodePriority)
        return fake_note(cudaErrorNotSupported); /* others are not faked */
    if (!flags) fake_count("graph of one priority");
    fake_lock();
    const cudaError_t error = instantiate(exec, graph);
    fake_unlock();
    return fake_note(error);
}

/* Launches that were enqueued go on: their work holds copies of all it needs. */
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t exec)
{
    fake_lock();
    const cudaError_t error = check_exec(exec, "cudaGraphExecDestroy", 1);
    if (error == cudaSuccess) {
        exec->is_destroyed = 1;
        end_lanes(exec);
        if (exec->last) fake_moment_release(exec->last);
        fake_script_release(exec->script);
    }
    fake_unlock();
    return fake_note(error);
}

/* ---- launches ---- */

static cudaError_t replay(fake_stream *stream, const fake_command *command, fake_moment **marks)
{
    switch (command->kind) {
    case FAKE_COMMAND_WORK: fake_push(stream, command->run, command->data, command->bytes); return cudaSuccess;
    case FAKE_COMMAND_USE: return fake_book(stream, &command->uses);
    case FAKE_COMMAND_MARK: marks[command->mark] = fake_moment_record(stream); return cudaSuccess;
    default: fake_moment_wait(stream, marks[command->mark]); return cudaSuccess;
    }
}

/* Memory that is no more ends the launch: the rest of it is not enqueued. */
static cudaError_t replay_all(cudaGraphExec_t exec, fake_stream *stream)
{
    const fake_script *script = exec->script;
    cudaError_t error = cudaSuccess;
    fake_moment **marks = fake_new((size_t)script->n_marks * sizeof *marks);
    exec->lanes[0] = stream;
    if (exec->last) fake_moment_wait(stream, exec->last);
    if (exec->last) fake_moment_release(exec->last);
    for (int i = 0; i < script->n_commands && error == cudaSuccess; i++)
        error = replay(exec->lanes[script->commands[i].lane], &script->commands[i], marks);
    exec->last = fake_moment_record(stream);
    for (int i = 0; i < script->n_marks; i++) {
        if (marks[i]) fake_moment_release(marks[i]);
    }
    free(marks);
    return error;
}

static cudaError_t launch(cudaGraphExec_t exec, fake_stream *stream)
{
    if (!stream) return cudaErrorInvalidResourceHandle;
    const cudaError_t error = check_exec(exec, "cudaGraphLaunch", 0);
    if (error != cudaSuccess) return error;
    if (stream->capture) { /* graphs in graphs are not faked */
        fake_capture_break(stream);
        return cudaErrorStreamCaptureUnsupported;
    }
    if (fake_take_failure("graph")) return cudaErrorLaunchFailure;
    return replay_all(exec, stream);
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t exec, cudaStream_t stream)
{
    fake_lock();
    const cudaError_t error = launch(exec, fake_find_stream(stream, "cudaGraphLaunch"));
    fake_unlock();
    return fake_note(error);
}
