/* SPDX-License-Identifier: Apache-2.0 */
/* Vector clocks, and their slots, which streams allocate and free. */
#include <string.h>

#include "internal.h"

uint64_t fake_clock_at(const fake_clock *clock, int slot) { return slot < clock->n ? clock->times[slot] : 0; }

static void widen(fake_clock *clock, int n)
{
    if (n <= clock->n) return;
    clock->times = fake_grow(clock->times, (size_t)n, sizeof *clock->times);
    memset(clock->times + clock->n, 0, (size_t)(n - clock->n) * sizeof *clock->times);
    clock->n = n;
}

void fake_clock_join(fake_clock *clock, const fake_clock *other)
{
    widen(clock, other->n);
    for (int i = 0; i < other->n; i++) {
        if (other->times[i] > clock->times[i]) clock->times[i] = other->times[i];
    }
}

uint64_t fake_clock_tick(fake_clock *clock, int slot)
{
    widen(clock, slot + 1);
    return ++clock->times[slot];
}

int fake_clock_covers(const fake_clock *clock, const fake_clock *other)
{
    for (int i = 0; i < other->n; i++) {
        if (other->times[i] > fake_clock_at(clock, i)) return 0;
    }
    return 1;
}

void fake_clock_free(fake_clock *clock)
{
    free(clock->times);
    *clock = (fake_clock){0};
}

/* ---- slots ---- */

typedef struct idle_slot {
    int slot;
    uint64_t last_time;
} idle_slot;

static idle_slot *idle;
static int n_idle, n_slots;

/* A stream that takes a slot begins with the clock of its maker: what used the slot is before it. */
int fake_slot_take(void)
{
    const fake_clock *known = fake_host_clock();
    for (int i = 0; i < n_idle; i++) {
        const idle_slot found = idle[i];
        if (fake_clock_at(known, found.slot) < found.last_time) continue;
        idle[i] = idle[--n_idle];
        return found.slot;
    }
    return n_slots++;
}

void fake_slot_give(int slot, uint64_t last_time)
{
    idle = fake_grow(idle, (size_t)n_idle + 1, sizeof *idle);
    idle[n_idle++] = (idle_slot){slot, last_time};
}
