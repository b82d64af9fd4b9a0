/* SPDX-License-Identifier: Apache-2.0 */
/* Calls of the fake NCCL: groups, checks, and enqueuing on a stream. */
#include <stdlib.h>
#include <string.h>

#include "nccl_internal.h"

/* A group of the calling thread: one op per collective, one for the pairs of a communicator. */
typedef struct pending {
    struct pending *next;
    cudaStream_t stream;
    nccl_op *op;
} pending;

static _Thread_local int depth;
static _Thread_local pending *group;
static _Thread_local ncclResult_t group_result;

static size_t op_bytes(int n_parts) { return sizeof(nccl_op) + (size_t)n_parts * sizeof(op_part); }

/* ---- accesses ---- */

static void use(fake_access *list, int *n, fake_access_kind kind, const void *at, size_t bytes)
{
    if (bytes) list[(*n)++] = (fake_access){kind, at, bytes, 0, 1};
}

/* What is received is another rank's: not a copy of what is sent. So the receives are in front. */
static int list_pairs(const nccl_op *op, fake_access *list)
{
    const size_t type = fake_nccl_type_bytes(op->type);
    int n = 0;
    for (int sends = 0; sends < 2; sends++)
        for (int i = 0; i < op->n_parts; i++) {
            const op_part *part = &op->parts[i];
            if (!part->is_send != !sends) continue;
            use(list, &n, sends ? FAKE_READ_COPY : FAKE_WRITE, sends ? part->send : part->recv, part->count * type);
        }
    return n;
}

static int list_accesses(const nccl_op *op, fake_access *list)
{
    const size_t type = fake_nccl_type_bytes(op->type), size = (size_t)op->comm->of->size;
    int n = 0;
    if (op->kind == PAIRS) return list_pairs(op, list);
    for (int i = 0; i < op->n_parts; i++) {
        const op_part *part = &op->parts[i];
        const size_t bytes = part->count * type;
        const int is_root = op->kind == BROADCAST && op->root == op->comm->rank;
        const int sums = op->kind == ALL_REDUCE || op->kind == REDUCE_SCATTER;
        const size_t n_sent = op->kind == REDUCE_SCATTER ? size : 1;
        const size_t n_received = op->kind == ALL_GATHER ? size : 1;
        if (op->kind != BROADCAST || is_root)
            use(list, &n, sums ? FAKE_READ : FAKE_READ_COPY, part->send, bytes * n_sent);
        if (!is_root || part->recv != part->send) use(list, &n, FAKE_WRITE, part->recv, bytes * n_received);
    }
    return n;
}

static const char *name_of(op_kind kind)
{
    static const char *const names[] = {"ncclAllGather", "ncclReduceScatter", "ncclAllReduce", "ncclBroadcast",
                                        "ncclSend and ncclRecv"};
    return names[kind];
}

/* ---- onto the stream ---- */

/* A graph is no more, and its collectives with it. */
static void forget(void *args)
{
    const nccl_op *op = args;
    fake_nccl_lock();
    op->comm->n_in_graphs--;
    fake_nccl_changed();
    fake_nccl_unlock();
}

/* Whether memory is registered counts when a collective is called. */
static void note_registered(nccl_op *op)
{
    const size_t type = fake_nccl_type_bytes(op->type), size = (size_t)op->comm->of->size;
    for (int i = 0; i < op->n_parts; i++) {
        op_part *part = &op->parts[i];
        const size_t bytes = part->count * type;
        const size_t sent = op->kind == REDUCE_SCATTER ? bytes * size : bytes;
        const size_t received = op->kind == ALL_GATHER ? bytes * size : bytes;
        part->is_registered = fake_nccl_is_registered(op->comm, part->send, sent) +
                              2 * fake_nccl_is_registered(op->comm, part->recv, received);
        if (op->kind != PAIRS) fake_count(part->is_registered == 3 ? "registered collective" : "collective");
    }
}

static void count(const nccl_op *op, const fake_stream *stream)
{
    fake_count("launch");
    if (stream->priority == FAKE_GREATEST_PRIORITY) fake_count("urgent");
    if (!op->ticket && !op->is_captured) fake_count("unordered");
    if (op->comm->is_sharing) fake_count("shared");
    if (!op->comm->blocking) fake_count("asynchronous");
    fake_count_most("CTAs", op->n_ctas);
}

/* Sends and receives take pow2Up(nChannels), p2pnChannels in NCCL's graph/paths.cc. A grid that no cluster divides has
 * none. */
static void count_ctas(nccl_op *op)
{
    const ncclComm_t comm = op->comm;
    op->n_ctas = 1;
    while (op->n_ctas < comm->max_ctas) op->n_ctas *= 2;
    if (op->kind != PAIRS) op->n_ctas = comm->max_ctas;
    op->is_clustered = comm->cluster > 1 && op->n_ctas % comm->cluster == 0;
}

static void book(nccl_op *op, cudaStream_t stream)
{
    op->is_captured = fake_is_captured(stream);
    if (op->is_captured) fake_on_forget(fake_nccl_run, forget);
    op->fails = fake_take_failure("nccl_async");
    fake_nccl_lock();
    count_ctas(op);
    op->comm->n_in_graphs += op->is_captured;
    note_registered(op);
    if (!op->is_captured) op->comm->n_enqueued++;
    if (!op->is_captured) op->ticket = fake_nccl_ticket(op->comm->device);
    fake_nccl_unlock();
    count(op, stream);
}

static int is_with(const nccl_op *op, int member)
{
    int found = op->kind != PAIRS;
    for (int i = 0; i < op->n_parts && !found; i++) found = op->parts[i].peer == member;
    return found;
}

/* NCCL connects members when they first need it, and all of them have to call. */
static ncclResult_t connect(const nccl_op *op)
{
    ncclComm_t comm = op->comm;
    const clan *of = comm->of;
    const unsigned kind = 1u << op->kind;
    fake_nccl_lock();
    for (int j = 0; j < of->size; j++)
        if (is_with(op, j)) of->connected[comm->rank * of->size + j] |= kind;
    fake_nccl_changed();
    comm->n_calls++;
    for (int j = 0; j < of->size; j++)
        while (is_with(op, j) && !(of->connected[j * of->size + comm->rank] & kind) && !comm->is_aborted)
            fake_nccl_wait();
    comm->n_calls--;
    const int is_aborted = comm->is_aborted;
    fake_nccl_unlock();
    return is_aborted ? ncclInternalError : ncclSuccess;
}

static ncclResult_t submit(nccl_op *op, cudaStream_t stream)
{
    const ncclResult_t connected = connect(op);
    if (connected != ncclSuccess) return connected;
    fake_access *accesses = fake_new((2 * (size_t)op->n_parts + 1) * sizeof *accesses);
    const int n = list_accesses(op, accesses);
    const cudaError_t error = fake_use(stream, name_of(op->kind), accesses, n);
    free(accesses);
    if (error != cudaSuccess) return ncclUnhandledCudaError;
    book(op, stream);
    fake_enqueue(stream, fake_nccl_run, op, op_bytes(op->n_parts));
    return ncclSuccess;
}

static pending *find_pairs(ncclComm_t comm, cudaStream_t stream, ncclDataType_t type)
{
    for (pending *each = group; each; each = each->next)
        if (each->op->kind == PAIRS && each->op->comm == comm && each->stream == stream && each->op->type == type)
            return each;
    return NULL;
}

/* Adds a call to the thread's group. */
static void add(const nccl_op *call, const op_part *part, cudaStream_t stream)
{
    pending *to = call->kind == PAIRS ? find_pairs(call->comm, stream, call->type) : NULL;
    if (group && group->op->comm->blocking != call->comm->blocking)
        fake_report(FAKE_NCCL, "a group of a communicator that blocks and one that does not");
    if (!to) {
        pending **link = &group;
        while (*link) link = &(*link)->next;
        to = *link = fake_new(sizeof *to);
        to->stream = stream;
        to->op = fake_new(op_bytes(0));
        *to->op = *call;
    }
    nccl_op *grown = realloc(to->op, op_bytes(to->op->n_parts + 1));
    if (!grown) abort();
    grown->parts[grown->n_parts++] = *part;
    to->op = grown;
}

static ncclResult_t check(const nccl_op *call, const op_part *part, cudaStream_t stream, const char *name)
{
    fake_nccl_lock();
    const int is_good = fake_nccl_check(call->comm, name) && call->comm->of->state == ncclSuccess;
    fake_nccl_unlock();
    if (!is_good) return ncclInvalidArgument;
    if (fake_stream_device(stream, name) != call->comm->device)
        fake_report(FAKE_NCCL, "%s on a stream of another GPU", name);
    if ((call->kind == PAIRS ? part->peer : call->root) >= call->comm->of->size) return ncclInvalidArgument;
    return fake_take_failure("nccl") ? ncclSystemError : ncclSuccess;
}

static ncclResult_t end_group(void)
{
    ncclResult_t result = group_result;
    while (group) {
        pending *each = group;
        group = each->next;
        if (result == ncclSuccess) result = submit(each->op, each->stream);
        free(each->op);
        free(each);
    }
    group_result = ncclSuccess;
    fake_nccl_end_aborts();
    return result;
}

ncclResult_t ncclGroupStart(void)
{
    depth++;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    if (depth == 0) {
        fake_report(FAKE_NCCL, "ncclGroupEnd without ncclGroupStart");
        return ncclInvalidUsage;
    }
    return --depth > 0 ? ncclSuccess : end_group();
}

static ncclResult_t call(const nccl_op *wanted, const op_part *part, cudaStream_t stream)
{
    const ncclResult_t result = check(wanted, part, stream, name_of(wanted->kind));
    (void)ncclGroupStart();
    if (result == ncclSuccess)
        add(wanted, part, stream);
    else
        group_result = result;
    const ncclResult_t ended = ncclGroupEnd();
    return result != ncclSuccess ? result : ended;
}

/* ---- the calls ---- */

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type, ncclComm_t comm,
                           cudaStream_t stream)
{
    const nccl_op wanted = {.comm = comm, .kind = ALL_GATHER, .type = type};
    return call(&wanted, &(op_part){.send = send, .recv = recv, .count = count}, stream);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t red,
                               ncclComm_t comm, cudaStream_t stream)
{
    const nccl_op wanted = {.comm = comm, .kind = REDUCE_SCATTER, .type = type, .red = red};
    return call(&wanted, &(op_part){.send = send, .recv = recv, .count = count}, stream);
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type, ncclRedOp_t red,
                           ncclComm_t comm, cudaStream_t stream)
{
    const nccl_op wanted = {.comm = comm, .kind = ALL_REDUCE, .type = type, .red = red};
    return call(&wanted, &(op_part){.send = send, .recv = recv, .count = count}, stream);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                           cudaStream_t stream)
{
    const nccl_op wanted = {.comm = comm, .kind = BROADCAST, .type = type, .root = root};
    return call(&wanted, &(op_part){.send = send, .recv = recv, .count = count}, stream);
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                      cudaStream_t stream)
{
    const nccl_op wanted = {.comm = comm, .kind = PAIRS, .type = type};
    return call(&wanted, &(op_part){.send = send, .count = count, .peer = peer, .is_send = 1}, stream);
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm, cudaStream_t stream)
{
    const nccl_op wanted = {.comm = comm, .kind = PAIRS, .type = type};
    return call(&wanted, &(op_part){.recv = recv, .count = count, .peer = peer}, stream);
}
