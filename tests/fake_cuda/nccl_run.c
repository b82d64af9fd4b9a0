/* SPDX-License-Identifier: Apache-2.0 */
/* Collectives of the fake NCCL on their streams: members meet, sends are matched with receives. */
#include <stdlib.h>
#include <string.h>

#include "nccl_internal.h"

/* ---- collectives ---- */

static meeting *find_meeting(clan *of, uint64_t number)
{
    meeting *found = of->meetings;
    while (found && found->number != number) found = found->next;
    if (found) return found;
    found = fake_new(sizeof *found);
    found->number = number;
    found->ops = fake_new((size_t)of->size * sizeof *found->ops);
    found->next = of->meetings;
    of->meetings = found;
    return found;
}

static void leave(clan *of, meeting *all)
{
    if (++all->n_gone < of->size) return;
    meeting **link = &of->meetings;
    while (*link != all) link = &(*link)->next;
    *link = all->next;
    free(all->ops);
    free(all);
}

static int is_same(const nccl_op *a, const nccl_op *b)
{
    return a->kind == b->kind && a->type == b->type && a->parts[0].count == b->parts[0].count &&
           (a->kind != BROADCAST || a->root == b->root) &&
           ((a->kind != ALL_REDUCE && a->kind != REDUCE_SCATTER) || a->red == b->red);
}

/* NCCL promises nothing then. */
static void check_registered(const clan *of, const meeting *all)
{
    for (int j = 1; j < of->size; j++)
        if (all->ops[j]->parts[0].is_registered != all->ops[0]->parts[0].is_registered)
            fake_report(FAKE_NCCL,
                        "a collective mixes memory that is registered, of ranks 0 (%d) and %d "
                        "(%d) of %d",
                        all->ops[0]->parts[0].is_registered, j, all->ops[j]->parts[0].is_registered, of->size);
}

/* NCCL would hang, or write where nobody expects it. */
static void perform(const clan *of, meeting *all)
{
    check_registered(of, all);
    for (int j = 1; j < of->size; j++) {
        if (is_same(all->ops[0], all->ops[j])) continue;
        fake_report(FAKE_NCCL,
                    "rank 0 of %d calls kind %d of %zu of type %d, rank %d kind %d of %zu of "
                    "type %d",
                    of->size, (int)all->ops[0]->kind, all->ops[0]->parts[0].count, (int)all->ops[0]->type, j,
                    (int)all->ops[j]->kind, all->ops[j]->parts[0].count, (int)all->ops[j]->type);
        all->is_broken = 1;
        return;
    }
    fake_nccl_perform(all, of->size);
    all->is_done = 1;
}

static void run_collective(const nccl_op *self, uint64_t number)
{
    ncclComm_t comm = self->comm;
    meeting *all = find_meeting(comm->of, number);
    all->ops[comm->rank] = self;
    if (++all->n_here == comm->of->size && !all->is_broken) perform(comm->of, all);
    fake_nccl_changed();
    fake_nccl_look_for_deadlock();
    while (!all->is_done && !comm->is_aborted) fake_nccl_wait();
    all->is_broken |= !all->is_done; /* its memory may go: nobody may touch it any more */
    leave(comm->of, all);
}

/* ---- sends and receives ---- */

static int fits(const post *a, const post *b)
{
    return !a->is_done && a->is_send != b->is_send && a->from == b->from && a->to == b->to;
}

static void move(const post *from, const post *to)
{
    if (!from->part->is_registered != !to->part->is_registered)
        fake_report(FAKE_NCCL, "a pair mixes memory that is registered, of ranks %d and %d", from->from, to->to);
    if (from->part->count != to->part->count || from->type != to->type)
        fake_report(FAKE_NCCL, "rank %d sends %zu of type %d, rank %d expects %zu of type %d", from->from,
                    from->part->count, (int)from->type, to->to, to->part->count, (int)to->type);
    else
        memcpy(fake_translate(to->part->recv), fake_translate(from->part->send),
               from->part->count * fake_nccl_type_bytes(from->type));
}

/* The oldest counterpart, or the end of the list. */
static void put(clan *of, post *mine)
{
    post **link = &of->posts;
    while (*link && !fits(*link, mine)) link = &(*link)->next;
    if (*link) {
        post *other = *link;
        if (mine->is_send)
            move(mine, other);
        else
            move(other, mine);
        mine->is_done = other->is_done = 1;
        *link = other->next;
        return;
    }
    *link = mine;
}

static void take_back(clan *of, const post *mine)
{
    for (post **link = &of->posts; *link; link = &(*link)->next) {
        if (*link != mine) continue;
        *link = mine->next;
        return;
    }
}

static int n_left(const post *posts, int n)
{
    int left = 0;
    for (int i = 0; i < n; i++) left += !posts[i].is_done;
    return left;
}

static void run_pairs(const nccl_op *self)
{
    ncclComm_t comm = self->comm;
    post *posts = fake_new((size_t)self->n_parts * sizeof *posts);
    for (int i = 0; i < self->n_parts; i++) {
        const op_part *part = &self->parts[i];
        posts[i] = (post){.is_send = part->is_send,
                          .from = part->is_send ? comm->rank : part->peer,
                          .to = part->is_send ? part->peer : comm->rank,
                          .type = self->type,
                          .part = part};
        put(comm->of, &posts[i]);
    }
    fake_nccl_changed();
    fake_nccl_look_for_deadlock();
    while (n_left(posts, self->n_parts) > 0 && !comm->is_aborted) fake_nccl_wait();
    for (int i = 0; i < self->n_parts; i++) take_back(comm->of, &posts[i]);
    free(posts);
}

/* ---- a kernel ---- */

static void run_kernel(const nccl_op *self, running *run)
{
    ncclComm_t comm = self->comm;
    if (comm->n_running > 1)
        fake_report(FAKE_NCCL, "rank %d of %d runs two collectives of one communicator at once", comm->rank,
                    comm->of->size);
    if (!fake_nccl_begin(run)) return;
    if (self->fails) comm->error = ncclRemoteError;
    while (self->fails && !comm->is_aborted) fake_nccl_wait();
    if (comm->is_aborted) return;
    if (self->kind == PAIRS)
        run_pairs(self);
    else
        run_collective(self, run->number);
}

void fake_nccl_run(void *args)
{
    const nccl_op *self = args;
    ncclComm_t comm = self->comm;
    fake_nccl_lock();
    running run = {.op = self};
    if (self->kind != PAIRS) run.number = ++comm->n_collectives;
    comm->n_running++;
    run_kernel(self, &run);
    fake_nccl_end(&run);
    comm->n_running--;
    if (!self->is_captured) comm->n_enqueued--;
    fake_nccl_changed();
    fake_nccl_unlock();
}
