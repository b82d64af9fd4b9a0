/* SPDX-License-Identifier: Apache-2.0 */
/* How the threads of a program synchronise, for any observer: a library that is loaded before all others (LD_PRELOAD),
 * or linked, so that it receives the calls of pthreads first. Order established by atomics alone is not observed. */
#ifndef FAKE_CUDA_WATCH_H
#define FAKE_CUDA_WATCH_H

/* Called by the thread that it is about. objects: mutexes, barriers, threads that begin and end. */
typedef struct fake_watcher {
    void (*release)(const void *object); /* what the thread knows, those after it there will */
    void (*acquire)(const void *object);
    void (*forget)(const void *object); /* it is no more */
    void (*end)(void); /* the thread ends */
} fake_watcher;

/* From now on this one hears; NULL: nobody. */
void fake_watch_threads(const fake_watcher *watcher);
/* by 1: what the calling thread does is not told until by -1, if as often. */
void fake_watch_pause(int by);
/* A pointer of each thread for the watcher's use, at first NULL. Here, since a plugin's variables of threads can be
 * dear: all come at once where a thread uses one of them. */
void **fake_watch_own(void);

#endif
