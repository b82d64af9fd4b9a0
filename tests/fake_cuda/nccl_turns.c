/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels run: the order of NCCL's on their GPU, its SMs, and deadlocks. */
#include <stdlib.h>
#include <string.h>

#include "nccl_internal.h"

running *fake_nccl_running;

typedef struct ticket {
    struct ticket *next;
    uint64_t number;
} ticket;

static struct gpu {
    ticket *first, **last; /* enqueued and not begun, in the order of the host */
    int n_held; /* SMs, by collectives */
    fake_turn *turns;
} gpus[FAKE_GPUS_MOST];
static uint64_t n_tickets;

static int n_sms(void) { return fake_get_settings()->n_sms; }

/* Of the environment at the first launch, as NCCL reads it once. */
static int keeps_order(void)
{
    static int keeps = -1;
    const char *text = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    if (keeps < 0) keeps = text && strcmp(text, "1") == 0;
    return keeps;
}

uint64_t fake_nccl_ticket(int device)
{
    if (!keeps_order()) return 0;
    struct gpu *gpu = &gpus[device];
    ticket *made = fake_new(sizeof *made);
    made->number = ++n_tickets;
    if (!gpu->first) gpu->last = &gpu->first;
    *gpu->last = made;
    gpu->last = &made->next;
    return made->number;
}

static void give_ticket(struct gpu *gpu, uint64_t number)
{
    for (ticket **link = &gpu->first; *link; link = &(*link)->next) {
        if ((*link)->number != number) continue;
        ticket *gone = *link;
        *link = gone->next;
        if (gpu->last == &gone->next) gpu->last = link;
        free(gone);
        return;
    }
}

static int is_next(const nccl_op *op)
{
    const struct gpu *gpu = &gpus[op->comm->device];
    return op->ticket == 0 || gpu->first->number == op->ticket;
}

/* SMs of products that run. */
static int n_taken(const struct gpu *gpu)
{
    int n = 0;
    for (const fake_turn *turn = gpu->turns; turn; turn = turn->next) n += turn->n_sms;
    return n;
}

/* Blocks of another kernel give way to what is more urgent than it; those of a product do not. What a product leaves is
 * here and there, so that no cluster fits into it. */
static int fits(const running *run)
{
    const struct gpu *gpu = &gpus[run->op->comm->device];
    if (run->op->n_ctas + gpu->n_held + n_taken(gpu) > n_sms()) return 0;
    for (const fake_turn *turn = gpu->turns; turn; turn = turn->next)
        if (turn->n_sms > 0 ? run->op->is_clustered : turn->priority <= run->priority) return 0;
    return 1;
}

/* Whether a more urgent collective, which can begin now, takes the SMs first. */
static int gives_way(int device, int priority)
{
    for (const running *run = fake_nccl_running; run; run = run->next)
        if (!run->holds && !run->op->comm->is_aborted && run->op->comm->device == device && run->priority < priority &&
            is_next(run->op) && fits(run))
            return 1;
    return 0;
}

int fake_nccl_begin(running *run)
{
    const nccl_op *op = run->op;
    struct gpu *gpu = &gpus[op->comm->device];
    run->priority = fake_own_stream()->priority;
    run->next = fake_nccl_running;
    fake_nccl_running = run;
    if (n_taken(gpu) > 0 && gpu->n_held == 0 && is_next(op) && !fits(run)) fake_count("collective behind a product");
    while (!op->comm->is_aborted && (!is_next(op) || !fits(run))) {
        fake_nccl_look_for_deadlock();
        fake_nccl_wait();
    }
    if (op->ticket) give_ticket(gpu, op->ticket);
    run->holds = !op->comm->is_aborted;
    if (run->holds) gpu->n_held += op->n_ctas;
    if (run->holds && n_taken(gpu) > 0)
        fake_count(op->kind == PAIRS ? "exchange beside a product" : "collective beside a product");
    fake_nccl_changed();
    return run->holds;
}

void fake_nccl_end(running *run)
{
    running **link = &fake_nccl_running;
    while (*link != run) link = &(*link)->next;
    *link = run->next;
    if (run->holds) gpus[run->op->comm->device].n_held -= run->op->n_ctas;
    fake_nccl_changed();
}

/* ---- products and other kernels ---- */

/* Blocks of one urgency run in the order in which their kernels began. */
static int waits_for_product(const struct gpu *gpu, const fake_turn *self)
{
    for (const fake_turn *turn = gpu->turns; turn && self->n_sms == 0; turn = turn->next)
        if (turn->n_sms > 0 && turn->priority <= self->priority) return 1;
    return 0;
}

void fake_turn_begin(fake_turn *self, int n_wanted)
{
    const fake_stream *stream = fake_own_stream();
    self->device = stream ? stream->device : -1;
    if (!stream) return; /* a test's own thread */
    struct gpu *gpu = &gpus[self->device];
    fake_nccl_lock();
    self->n_sms = n_wanted;
    self->priority = stream->priority;
    while (waits_for_product(gpu, self) || gives_way(self->device, self->priority)) fake_nccl_wait();
    const int n_free = n_sms() - gpu->n_held - n_taken(gpu);
    if (self->n_sms > n_free) self->n_sms = n_free > 1 ? n_free : 1; /* its blocks begin where there is room */
    if (self->n_sms == 0 && n_taken(gpu) > 0) fake_count("kernel beside a product");
    self->next = gpu->turns;
    gpu->turns = self;
    fake_nccl_unlock();
}

void fake_turn_end(fake_turn *self)
{
    if (self->device < 0) return;
    fake_nccl_lock();
    fake_turn **link = &gpus[self->device].turns;
    while (*link != self) link = &(*link)->next;
    *link = self->next;
    if (fake_nccl_running || self->n_sms > 0) fake_nccl_changed();
    fake_nccl_unlock();
}

int fake_nccl_holding(void)
{
    int n = 0;
    fake_nccl_lock();
    for (const running *run = fake_nccl_running; run; run = run->next) n += run->holds;
    fake_nccl_unlock();
    return n;
}

/* ---- deadlocks ---- */

/* Whether a, which holds its SMs, waits for b, which has come to its stream but not begun. */
static int waits_for(const running *a, const running *b)
{
    if (b->holds || a->op->comm->of != b->op->comm->of || a == b) return 0;
    if (a->op->kind != PAIRS) return b->op->kind != PAIRS && a->number == b->number;
    for (int i = 0; b->op->kind == PAIRS && i < a->op->n_parts; i++)
        if (a->op->parts[i].peer == b->op->comm->rank) return 1;
    return 0;
}

static int holder_can(const running *run)
{
    for (const running *other = fake_nccl_running; other; other = other->next)
        if (waits_for(run, other) && !other->can) return 0;
    return 1;
}

/* Those before it in its GPU's order that have come can begin, and enough SMs become free. */
static int starter_can(const running *run)
{
    int n_free = n_sms();
    for (const running *other = fake_nccl_running; other; other = other->next) {
        if (other->op->comm->device != run->op->comm->device || other == run) continue;
        if (other->holds && !other->can) n_free -= other->op->n_ctas;
        if (!other->holds && !other->can && run->op->ticket && other->op->ticket && other->op->ticket < run->op->ticket)
            return 0;
    }
    return run->op->n_ctas <= n_free;
}

/* Marks what can end, supposing that what has not come to its stream will. */
static void mark(void)
{
    for (running *run = fake_nccl_running; run; run = run->next) run->can = run->op->comm->is_aborted;
    for (int is_new = 1; is_new;) {
        is_new = 0;
        for (running *run = fake_nccl_running; run; run = run->next) {
            if (run->can || !(run->holds ? holder_can(run) : starter_can(run))) continue;
            run->can = is_new = 1;
        }
    }
}

void fake_nccl_look_for_deadlock(void)
{
    mark();
    for (running *run = fake_nccl_running; run; run = run->next) {
        if (run->can || run->op->comm->error != ncclSuccess) continue;
        fake_report(FAKE_NCCL,
                    "deadlock: a kernel of rank %d of %d on GPU %d waits for %d SMs which are "
                    "held by kernels that wait for it",
                    run->op->comm->rank, run->op->comm->of->size, run->op->comm->device, run->op->n_ctas);
        run->op->comm->error = ncclInternalError;
    }
}
