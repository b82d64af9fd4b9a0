/* SPDX-License-Identifier: Apache-2.0 */
/* Which kernels of the fake NCCL run: the order on their GPU, its SMs, and deadlocks. */
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
    int n_held; /* SMs */
} gpus[FAKE_NCCL_GPUS];
static uint64_t n_tickets;

static int n_sms(void)
{
    const char *text = getenv("FAKE_CUDA_SMS");
    return text && *text ? atoi(text) : 8;
}

uint64_t fake_nccl_ticket(int device)
{
    const char *keeps = getenv("NCCL_LAUNCH_ORDER_IMPLICIT");
    if (!keeps || strcmp(keeps, "1") != 0) return 0;
    struct gpu *gpu = &gpus[device];
    ticket *made = fake_nccl_new(sizeof *made);
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

int fake_nccl_begin(running *run)
{
    const nccl_op *op = run->op;
    struct gpu *gpu = &gpus[op->comm->device];
    run->next = fake_nccl_running;
    fake_nccl_running = run;
    while (!op->comm->is_aborted && (!is_next(op) || gpu->n_held + op->n_ctas > n_sms())) {
        fake_nccl_look_for_deadlock();
        fake_nccl_wait();
    }
    if (op->ticket) give_ticket(gpu, op->ticket);
    run->holds = !op->comm->is_aborted;
    if (run->holds) gpu->n_held += op->n_ctas;
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
        fake_nccl_fault("deadlock: a kernel of rank %d of %d on GPU %d waits for %d SMs which are "
                        "held by kernels that wait for it",
                        run->op->comm->rank, run->op->comm->of->size, run->op->comm->device, run->op->n_ctas);
        run->op->comm->error = ncclInternalError;
    }
}
