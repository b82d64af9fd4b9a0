/* SPDX-License-Identifier: Apache-2.0 */
/* Lifetime of an object of the public interface: it ends when the object and everything that needs it have been
 * destroyed. */
#ifndef QDRI_CORE_LIFE_H
#define QDRI_CORE_LIFE_H

#include <stdatomic.h>

/* Must be the first member of the object. */
typedef struct qdri_life qdri_life;
struct qdri_life {
    atomic_int n_users; /* its creator, and the objects that need it */
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

/* Accepts NULL. */
static inline void qdri_life_drop(qdri_life *life)
{
    if (life && atomic_fetch_sub(&life->n_users, 1) == 1) life->end(life);
}

#endif
