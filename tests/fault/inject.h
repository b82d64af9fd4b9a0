/* SPDX-License-Identifier: Apache-2.0 */
/* Failures on request: the n-th allocation, thread creation or file call of the code under test fails, once or from
 * then on.
 *
 * A program that uses it links with -Wl,--wrap=... (fault_link_args in meson.build), so that calls by the library and
 * by the test are counted, but not those inside other libraries. One counter for the process; any thread may call. */
#ifndef QDR_TEST_INJECT_H
#define QDR_TEST_INJECT_H

#include <stddef.h>

typedef enum inject_kind {
    INJECT_MEMORY = 1, /* malloc, calloc, realloc, posix_memalign, aligned_alloc, strdup */
    INJECT_THREAD = 2, /* pthread_create */
    /* Of programs that link fault_files_dep: */
    INJECT_OPEN = 4, /* open, openat */
    INJECT_WRITE = 8, /* pwrite */
    INJECT_READ = 16, /* pread */
    INJECT_RESERVE = 32, /* fallocate */
    INJECT_TRUNCATE = 64, /* ftruncate */
    INJECT_SYNC = 128, /* fsync, fdatasync */
    INJECT_RENAME = 256, /* renameat */
    INJECT_LINK = 512, /* linkat */
    INJECT_UNLINK = 1024, /* unlinkat */
    INJECT_LOCK = 2048, /* flock */
    INJECT_CLOSE = 4096 /* close, which closes nevertheless, as Linux does */
} inject_kind;

typedef enum inject_extent {
    INJECT_ONCE = 0, /* the n-th call fails, later ones work */
    INJECT_ONWARDS = 1 /* it and all later ones fail */
} inject_extent;

/* Counts from 0 again. The n-th call (0 is the first) of the kinds (a sum) fails; n < 0: none, only count. */
void inject_begin(int kinds, long n, inject_extent extent);
/* Stops failing and counting; the number of calls of these kinds since inject_begin(). */
long inject_end(void);
/* Whether a call has been made to fail since inject_begin(). */
int inject_happened(void);

/* Bytes as they were asked for, of blocks that are not freed yet: at present, at most, and the largest block. */
typedef struct inject_use {
    size_t now, peak, largest;
} inject_use;
/* From now on blocks that the calling thread allocates count for *use, until they are freed by any thread; NULL: no
 * longer, also those that are left. Several threads may each have one. */
void inject_track(inject_use *use);

/* What file calls that fail do from now on: they set errno to `error`; or, if that is 0, pwrite and pread succeed with
 * at most n_bytes. */
void inject_file_error(int error, size_t n_bytes);

/* What a power failure could have taken although it has its name, or is closed, since inject_unsynced_begin(): files
 * that were renamed or closed with bytes which the same descriptor had written after its last fsync() or fdatasync(),
 * and folders that were closed after a rename without fsync(). Descriptors from 1024 on are not looked at. */
typedef struct inject_unsynced {
    int files, folders;
} inject_unsynced;
void inject_unsynced_begin(void);
inject_unsynced inject_unsynced_now(void);

/* For the wrapped functions: counts a call; 1 if it is to fail. */
int inject_call(inject_kind kind);

#endif
