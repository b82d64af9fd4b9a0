/* SPDX-License-Identifier: Apache-2.0 */
/* The common first member of every backend's device, stream and event, and the checks made before a backend is
 * called. */
#ifndef QDRI_DEV_DEVICE_H
#define QDRI_DEV_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>

#include "dev/dev.h"

struct qdri_dev {
    const qdri_dev_table *table;
    atomic_size_t bytes_now, bytes_peak;
    _Atomic int64_t waited_ns; /* by compute streams, for other streams */
    atomic_int status; /* the first asynchronous failure; written once, after the message */
    pthread_mutex_t lock; /* protects the message and the hook */
    char sentence[QDRI_ERROR_BYTES];
    void (*on_poison)(void *user);
    void *on_poison_user;
    qdri_mem_source source; /* alloc = NULL: none */
    qdri_wake_event *wake_events; /* for its threads */
    qdri_wake_event own_wake_events[QDRI_DEV_WAKE_EVENTS];
};

struct qdr_stream {
    qdri_dev *dev;
    qdri_life *needs; /* what it keeps alive; NULL: nothing */
};

struct qdr_event {
    qdri_dev *dev;
    qdri_life *needs;
};

void qdri_dev_init(qdri_dev *dev, const qdri_dev_table *table);
void qdri_dev_finish(qdri_dev *dev);

/* Argument checks; a backend may rely on them. */
QDR_NODISCARD qdr_status qdri_gemm_check(const qdri_gemm *gemm);
QDR_NODISCARD qdr_status qdri_kernel_check(const qdri_kernel *kernel);
/* Fails because a token or target is outside the vocabulary. */
qdr_status qdri_fail_id(const char *what, int64_t row, int32_t id, int64_t vocab);
/* Fails because of a row's first key in attention: it is to be `least` to `most`. */
qdr_status qdri_fail_first_key(int64_t row, int32_t first_key, int32_t least, int64_t most);
/* Fails because another rank takes a step of AdamW at another rate than this one's. */
qdr_status qdri_fail_rate(double lr);
#define QDRI_ID_TOKEN "embedding: the token"
#define QDRI_ID_TARGET "cross-entropy: the target"

#endif
