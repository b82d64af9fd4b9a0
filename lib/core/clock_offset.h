/* SPDX-License-Identifier: Apache-2.0 */
/* The offset between two clocks, measured by asking for the time: the clock is read between the request and the reply,
 * so half the round trip bounds the error. */
#ifndef QDRI_CORE_CLOCK_OFFSET_H
#define QDRI_CORE_CLOCK_OFFSET_H

#include <stdint.h>

typedef struct qdri_clock_offset {
    int64_t at_ns; /* on this rank's clock, when they were compared */
    int64_t ahead_ns; /* this rank's clock minus rank 0's */
    int64_t bound_ns; /* of the error of ahead_ns */
} qdri_clock_offset;

/* asked_ns and answered_ns are times on this rank's clock, theirs_ns is the reply. */
static inline qdri_clock_offset qdri_clock_compare(int64_t asked_ns, int64_t theirs_ns, int64_t answered_ns)
{
    const int64_t round_trip_ns = answered_ns - asked_ns;
    const int64_t middle_ns = asked_ns + round_trip_ns / 2;
    return (qdri_clock_offset){
        .at_ns = middle_ns, .ahead_ns = middle_ns - theirs_ns, .bound_ns = (round_trip_ns + 1) / 2};
}

#endif
