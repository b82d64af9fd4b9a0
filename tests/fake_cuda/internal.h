/* SPDX-License-Identifier: Apache-2.0 */
/* Shared by the files of the fake. One lock protects all records (clocks, blocks, captures, lists of handles); a
 * stream's queue and a moment have their own locks, so that work runs without it. Records are updated when work is
 * enqueued, never when it runs: what is detected does not depend on timing. */
#ifndef FAKE_CUDA_INTERNAL_H
#define FAKE_CUDA_INTERNAL_H

#include <cuda.h>
#include <pthread.h>
#include <stdlib.h>

#include "fake.h"
#include "hosts.h"

#define FAKE_GPUS_MOST 16

/* ---- settings.c ---- */

typedef struct fake_settings {
    int n_gpus, driver, capability, n_sms, has_peers, has_pools, shares_managed;
    size_t memory_bytes;
    uint64_t seed;
    int64_t delay_us, product_us, host_us;
} fake_settings;

const fake_settings *fake_get_settings(void);
uint64_t fake_random(uint64_t *state); /* splitmix64 */
/* Memory of the fake itself; ends the process when there is none. */
void *fake_new(size_t bytes);
void *fake_grow(void *array, size_t n_elems, size_t elem_bytes);

/* ---- report.c: the lock of the books, the last error of a thread ---- */

void fake_lock(void);
void fake_unlock(void);
cudaError_t fake_note(cudaError_t error); /* for cudaGetLastError() */
void fake_check_taken(const char *name); /* reports what the thread's last query left */

/* ---- failures.c ---- */

void fake_plan_failures(const char *plan);

/* ---- devices.c ---- */

cudaError_t fake_ready(void); /* whether there is a driver and a GPU */
int fake_current_device(void); /* makes a context if the thread has none */
void fake_break(cudaError_t error); /* what all calls say from now on, as after an illegal address */
cudaError_t fake_broken(void); /* cudaSuccess: nothing is */
CUresult fake_ctx_get(CUcontext *context);
CUresult fake_ctx_set(CUcontext context);
int fake_peer_enabled(int device, int peer); /* whether `device` may use memory of `peer` */
/* Whether the calling thread's current GPU is the one that the stream belongs to; reports. */
cudaError_t fake_check_current(int device, const char *name);

/* ---- clocks.c ---- */

uint64_t fake_clock_at(const fake_clock *clock, int slot);
void fake_clock_join(fake_clock *clock, const fake_clock *other);
uint64_t fake_clock_tick(fake_clock *clock, int slot);
int fake_clock_covers(const fake_clock *clock, const fake_clock *other);
void fake_clock_free(fake_clock *clock);
int fake_slot_take(void);
void fake_slot_give(int slot, uint64_t last_time); /* for a thread that has waited */

/* ---- ranges.c ---- */

int fake_overlap(const fake_access *a, const fake_access *b);
int fake_covers(const fake_access *a, const fake_access *b); /* a has all bytes of b; 0 if unsure */

/* ---- races.c ---- */

typedef struct fake_past {
    fake_access access;
    int slot, stream; /* its number */
    uint64_t time;
    const char *name;
} fake_past;

typedef struct fake_history {
    fake_past *past;
    int n, capacity, n_clean; /* cleaned when it grows beyond n_clean */
} fake_history;

typedef struct CUstream_st fake_stream;

void fake_history_add(fake_history *history, const fake_access *access, fake_stream *stream, const char *name);
/* The first access that the calling thread does not know to be finished; NULL: none. */
const fake_past *fake_history_open(const fake_history *history);
void fake_history_free(fake_history *history);

/* ---- memory.c, places.c ---- */

typedef enum fake_block_kind { FAKE_DEVICE, FAKE_MANAGED, FAKE_PINNED } fake_block_kind;

typedef struct fake_block {
    fake_block_kind kind;
    uintptr_t begin;
    size_t bytes;
    uintptr_t pages; /* where its pages begin, and how long they are; 0: host memory of malloc() */
    size_t page_bytes;
    int device, is_freed; /* freed: until the stream comes there */
    int is_registered; /* the caller's own */
    cudaMemPool_t pool;
    unsigned char *shadow; /* of what has pages, per byte: 1 if written; else NULL */
    fake_history history;
} fake_block;

/* The block at or around an address; NULL: none. */
fake_block *fake_find_block(const void *pointer);
fake_block *fake_add_block(fake_block_kind kind, int device, size_t bytes, uintptr_t host);
void fake_remove_block(fake_block *block); /* from the books, and its pages */
int64_t fake_leaked_blocks(void);
/* Whether an address was a block's that is gone. */
int fake_was_freed(const void *pointer);
int fake_in_region(const void *pointer);
/* Pages of device memory, or of managed. 0: no room. */
int fake_place(fake_block *block);
void fake_unplace(fake_block *block);
size_t fake_device_bytes_used(int device);
cudaError_t fake_device_alloc(int device, size_t bytes, cudaMemPool_t pool, fake_block **block);
/* Freed as of now for who enqueues; its bytes stay until fake_remove_block(). */
void fake_mark_freed(fake_block *block);

/* ---- managed.c ---- */

int fake_managed_has_views(void); /* else it is host memory as any */
/* Both views of `bytes` of pages. 0: no room. */
int fake_managed_open(char *view, char *data, size_t bytes);
void fake_managed_close(char *view, char *data, size_t bytes);
/* Whether reads of what neither host nor work has written are found. */
int fake_managed_is_checked(void);
/* From now on not: something may write managed memory that work enqueued before then will read. */
void fake_managed_be_unsure(void);
/* Marks as written what the host has touched there. */
void fake_managed_look(const fake_block *block, const void *begin, size_t bytes);

/* ---- pools.c ---- */

int fake_pool_allows(cudaMemPool_t pool, int device);
int64_t fake_leaked_pools(void);

/* ---- uses.c ---- */

/* What a piece of work does to memory. */
typedef struct fake_use_list {
    const char *name;
    const fake_access *accesses;
    int n;
    int is_copy; /* accesses[0] from, [1] to, of as many bytes in rows as long: moved, not read */
    int by_engine; /* of copies, which reaches all memory, the host's too */
} fake_use_list;

/* Checks places; then books: shadow, history. */
cudaError_t fake_check_places(fake_stream *stream, const fake_use_list *uses);
cudaError_t fake_book(fake_stream *stream, const fake_use_list *uses);
/* Books now, or into the capture. */
cudaError_t fake_submit_use(fake_stream *stream, const fake_use_list *uses);

/* ---- streams.c ---- */

typedef struct fake_task {
    struct fake_task *next;
    void (*run)(void *args);
    _Alignas(16) unsigned char args[];
} fake_task;

typedef struct fake_capture fake_capture;

struct CUstream_st {
    uint64_t magic;
    int number, device, priority, is_destroyed, is_internal;
    unsigned flags;
    int slot;
    fake_clock clock;
    fake_capture *capture; /* NULL: none */
    int lane; /* in the capture */
    fake_stream *next; /* of all that ever were */
    /* the queue's */
    pthread_mutex_t lock;
    pthread_cond_t changed;
    fake_task *first, **last;
    uint64_t n_pushed, n_done;
    int ends;
    uint64_t random;
};

/* The stream whose work the calling thread runs; NULL: none. */
const fake_stream *fake_own_stream(void);
cudaError_t fake_stream_make(int device, unsigned flags, int priority, fake_stream **stream);
void fake_stream_end(fake_stream *stream);
/* What is enqueued next comes after all that the calling thread has waited for. */
void fake_follow_host(fake_stream *stream);
/* The stream of a handle, or NULL and a report. */
fake_stream *fake_find_stream(cudaStream_t handle, const char *name);
void fake_push(fake_stream *stream, void (*run)(void *), const void *args, size_t bytes);
void fake_submit(fake_stream *stream, void (*run)(void *), const void *args, size_t bytes);
/* Without the lock of the books. */
void fake_wait_for(fake_stream *stream, uint64_t n_done);
void fake_wait_for_device(int device);
void fake_join_device(int device);
int64_t fake_leaked_streams(void);

/* ---- stream_facts.c ---- */

#define FAKE_GREATEST_PRIORITY (-5)
void fake_run_host_call(void *args);

/* ---- events.c ---- */

/* One record of an event: what waits holds on to it. */
typedef struct fake_moment {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    int n_holders, is_done;
    int64_t nanosecs;
    fake_clock clock;
} fake_moment;

fake_moment *fake_moment_record(fake_stream *stream); /* held once by who calls */
void fake_moment_wait(fake_stream *stream, fake_moment *moment);
void fake_moment_release(fake_moment *moment);
int64_t fake_leaked_events(void);

struct CUevent_st {
    uint64_t magic;
    int number, device, is_destroyed;
    unsigned flags;
    fake_moment *moment; /* NULL: never recorded */
    uint64_t capture_id; /* of the capture that recorded it last; 0: none */
    int mark; /* there */
    struct CUevent_st *next;
};

/* ---- capture.c, graphs.c ---- */

typedef enum fake_command_kind {
    FAKE_COMMAND_WORK,
    FAKE_COMMAND_USE,
    FAKE_COMMAND_MARK, /* an event's record within the graph */
    FAKE_COMMAND_WAIT
} fake_command_kind;

typedef struct fake_command {
    fake_command_kind kind;
    int lane, mark;
    void (*run)(void *args);
    void *data; /* copied arguments, or accesses */
    size_t bytes;
    fake_use_list uses;
} fake_command;

typedef struct fake_lane {
    int device, priority;
} fake_lane;

/* Commands of several lanes in the order in which they were captured; lane 0 is the origin's. */
typedef struct fake_script {
    fake_command *commands;
    int n_commands, n_marks, n_lanes, n_holders;
    fake_lane *lanes;
} fake_script;

void fake_script_release(fake_script *script);
/* Whether the stream may be used (its capture is not broken). */
cudaError_t fake_capture_check(const fake_stream *stream);
void fake_capture_break(fake_stream *stream);
/* Whether the calling thread may do what is unsafe while streams are captured; breaks them if not. */
cudaError_t fake_unsafe(void);
void fake_capture_work(fake_stream *stream, void (*run)(void *), const void *args, size_t bytes);
void fake_capture_use(fake_stream *stream, const fake_use_list *uses);
void fake_capture_record(fake_stream *stream, cudaEvent_t event);
/* The stream may not be captured yet: then it joins the event's capture. */
cudaError_t fake_capture_wait(fake_stream *stream, cudaEvent_t event);
/* The host looks at an event of a capture, which breaks it. @return the error */
cudaError_t fake_capture_ask(cudaEvent_t event);
int64_t fake_leaked_graphs(void);

/* ---- lt.c ---- */

int64_t fake_leaked_handles(void);

#endif
