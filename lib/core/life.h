/* SPDX-License-Identifier: Apache-2.0 */
/* How long an object of the interface lives: until it was destroyed, and all that need it, too. */
#ifndef QDRI_CORE_LIFE_H
#define QDRI_CORE_LIFE_H

#include <stdatomic.h>

/* The first member of what it is the life of. */
typedef struct qdri_life qdri_life;
struct qdri_life {
    atomic_int n_users; /* its maker, and what needs it */
    void (*end)(qdri_life *life); /* frees the object */
};

static inline void qdri_life_begin(qdri_life *life, void (*end)(qdri_life *life))
{
    atomic_init(&life->n_users, 1);
    life->end = end;
}

static inline qdri_life *qdri_life_keep(qdri_life *life)
{
    atomic_fetch_add(&life->n_users, 1);
    return life;
}

/* Takes NULL. */
static inline void qdri_life_drop(qdri_life *life)
{
    if (life && atomic_fetch_sub(&life->n_users, 1) == 1) life->end(life);
}

#endif
