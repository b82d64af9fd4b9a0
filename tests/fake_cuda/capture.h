/* SPDX-License-Identifier: Apache-2.0 */
/* A capture in progress. */
#ifndef FAKE_CUDA_CAPTURE_H
#define FAKE_CUDA_CAPTURE_H

#include "internal.h"

struct fake_capture {
    uint64_t id;
    enum cudaStreamCaptureMode mode;
    pthread_t owner;
    int is_broken;
    fake_script *script;
    fake_stream **lanes;
    fake_clock *clocks; /* of each lane: what of each lane is before its next work */
    fake_clock *marks; /* of each mark, the same */
    fake_capture *next;
};

cudaGraph_t fake_graph_make(fake_script *script); /* takes it over */

#endif
