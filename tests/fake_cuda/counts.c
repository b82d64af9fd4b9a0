/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of events, for tests that observe a plugin from outside. */
#include <string.h>

#include "internal.h"

enum { COUNTED_MOST = 48 };

typedef struct counted {
    const char *what;
    int64_t n;
} counted;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static counted all[COUNTED_MOST];

/* With the lock; the first free one for what has not happened yet. */
static counted *find(const char *what)
{
    int i = 0;
    while (i < COUNTED_MOST - 1 && all[i].what && strcmp(all[i].what, what) != 0) i++;
    return &all[i];
}

void fake_count(const char *what)
{
    pthread_mutex_lock(&lock);
    counted *found = find(what);
    found->what = what;
    found->n++;
    pthread_mutex_unlock(&lock);
}

void fake_count_most(const char *what, int64_t n)
{
    pthread_mutex_lock(&lock);
    counted *found = find(what);
    found->what = what;
    if (n > found->n) found->n = n;
    pthread_mutex_unlock(&lock);
}

__attribute__((visibility("default"))) int64_t fake_counted(const char *what)
{
    pthread_mutex_lock(&lock);
    const int64_t n = find(what)->n;
    pthread_mutex_unlock(&lock);
    return n;
}
