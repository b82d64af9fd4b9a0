/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators, members, calls and their differences in words, for messages; the reasons for giving up. */
#include <stdio.h>
#include <string.h>

#include "comm/internal.h"

enum { MOST_NAMED = 4 };

void qdri_comm_set_names(qdri_comm *comm, const char *name, qdri_comm_describe describe, const void *user)
{
    for (qdri_comm *each = comm; each; each = each->inner) {
        each->name = name;
        each->describe = describe;
        each->describe_user = user;
    }
}

void qdri_describe_rank(const void *user, int member, char *text, size_t capacity)
{
    (void)user;
    snprintf(text, capacity, "rank %d", member);
}

const char *qdri_comm_name(const qdri_comm *comm) { return comm->name ? comm->name : "a communicator"; }

void qdri_comm_name_member(const qdri_comm *comm, int member, char *text, size_t capacity)
{
    if (comm->describe)
        comm->describe(comm->describe_user, member, text, capacity);
    else
        snprintf(text, capacity, "member %d", member);
}

int qdri_comm_name_missing(const qdri_comm *comm, int (*is_missing)(const void *user, int member), const void *user,
                           char *text, size_t capacity)
{
    int n = 0;
    text[0] = '\0';
    for (int j = 0; j < comm->size; j++) {
        if (j == comm->rank || !is_missing(user, j) || ++n > MOST_NAMED) continue;
        const size_t length = strlen(text);
        snprintf(text + length, capacity - length, "%s", n > 1 ? ", " : "");
        qdri_comm_name_member(comm, j, text + strlen(text), capacity - strlen(text));
    }
    const size_t length = strlen(text);
    if (n > MOST_NAMED) snprintf(text + length, capacity - length, " and %d more", n - MOST_NAMED);
    return n;
}

/* "all-reduce (max) of 48 f32 as int8" */
static void describe_call(const qdri_call *call, const char *op, char text[QDRI_CALL_BYTES])
{
    snprintf(text, QDRI_CALL_BYTES, "%s%s of %" PRId64 " %s%s%s", qdr_coll_kind_name(call->kind), op, call->total,
             qdr_dtype_name(call->dtype), call->codec[0] ? " as " : "", call->codec);
}

/* A stage is called what its caller called. */
void qdri_coll_describe(const qdri_coll *coll, int size, char text[QDRI_CALL_BYTES])
{
    static const char *const ops[] = {[QDR_SUM] = "", [QDR_MAX] = " (max)", [QDR_MIN] = " (min)"};
    const char *name = qdr_coll_kind_name(coll->kind), *type = qdr_dtype_name(coll->dtype);
    const qdri_call call = qdri_coll_compared(coll, size).called;
    if (coll->stage_of || qdri_coll_total(coll, size) >= 0)
        describe_call(&call, qdri_coll_reduces(coll) && !coll->stage_of ? ops[coll->op] : "", text);
    else if (coll->kind == QDR_ALL_TO_ALL)
        snprintf(text, QDRI_CALL_BYTES, "%s of %s", name, type);
    else
        snprintf(text, QDRI_CALL_BYTES, "%s of %" PRId64 " %s to member %d, %" PRId64 " from %d", name,
                 coll->peer < 0 ? 0 : coll->count, type, coll->peer, coll->peer2 < 0 ? 0 : coll->recv_count,
                 coll->peer2);
    size_t length = strlen(text);
    if (coll->kind == QDR_BROADCAST) snprintf(text + length, QDRI_CALL_BYTES - length, " from member %d", coll->peer);
    length = strlen(text);
    if (coll->label) snprintf(text + length, QDRI_CALL_BYTES - length, " for %s", coll->label);
}

/* Near and far ranks gather only to return what has been updated. */
const char *qdri_coll_why_differs(const qdri_comm *comm, qdr_coll_kind kind, qdr_coll_kind other_kind)
{
    const char *name = comm ? qdri_comm_name(comm) : "";
    const int is_level = strcmp(name, qdr_channel_name(QDR_CHANNEL_D_NEAR)) == 0 ||
                         strcmp(name, qdr_channel_name(QDR_CHANNEL_D_FAR)) == 0;
    if (!is_level || (kind == QDR_ALL_GATHER) == (other_kind == QDR_ALL_GATHER)) return "";
    return "; the all-gather returns updated parameters: call qdr_stack_mark_updated(), or step the optimizer, on "
           "all ranks or on none";
}

qdr_status qdri_coll_compare(const qdri_comm *comm, const qdri_compared *a, int j, const qdri_compared *b)
{
    const int is_same_call = a->called.digest == b->called.digest;
    char first[QDRI_CALL_BYTES], other[QDRI_CALL_BYTES];
    if (is_same_call && a->own.kind == b->own.kind && a->own.dtype == b->own.dtype && a->own.total == b->own.total &&
        a->op == b->op && a->peer == b->peer)
        return QDR_OK;
    const qdri_call *call = is_same_call ? &a->own : &a->called, *other_call = is_same_call ? &b->own : &b->called;
    describe_call(call, "", first);
    describe_call(other_call, "", other);
    const int only_parts = !is_same_call && strcmp(first, other) == 0;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "comm: rank 0 calls %s, rank %d calls %s%s; all ranks must call the same%s",
                    first, j, other, only_parts ? " in other parts" : "",
                    qdri_coll_why_differs(comm, call->kind, other_call->kind));
}

qdr_status qdri_comm_fail_peer(const qdri_comm *comm, const char *where, const char *why)
{
    return QDR_FAIL(QDR_ERR_PEER, "comm: another rank left or failed while rank %d of %d waited in %s%s%s", comm->rank,
                    comm->size, where, *why ? ": " : "", why);
}

qdr_status qdri_comm_fail_timeout(const qdri_comm *comm, const char *where, const char *missing, int n_missing)
{
    char self[QDRI_MEMBER_BYTES];
    qdri_comm_name_member(comm, comm->rank, self, sizeof self);
    const int is_one = n_missing == 1;
    const double secs = (double)comm->root->timeout_ns * 1e-9;
    const qdr_status status = QDR_FAIL(
        QDR_ERR_TIMEOUT,
        "comm: %s: %s has waited %g s in %s for %s; find out what %s %s doing, or allow more than QDR_TIMEOUT=%g",
        qdri_comm_name(comm), self, secs, where, missing, is_one ? missing : "they", is_one ? "is" : "are", secs);
    qdri_reason_set(&comm->root->lateness, qdr_last_error());
    return status;
}

enum { NO_REASON = 0, REASON_COMES, REASON_IS_THERE };

void qdri_reason_set(qdri_reason *why, const char *sentence)
{
    int none = NO_REASON;
    if (!*sentence || !atomic_compare_exchange_strong(&why->state, &none, REASON_COMES)) return;
    snprintf(why->sentence, sizeof why->sentence, "%s", sentence);
    atomic_store(&why->state, REASON_IS_THERE);
}

const char *qdri_reason_get(qdri_reason *why)
{
    return atomic_load(&why->state) == REASON_IS_THERE ? why->sentence : "";
}
