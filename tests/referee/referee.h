/* SPDX-License-Identifier: Apache-2.0 */
/* The referee: SimGrid runs a list on every rank of a machine, each with its own links. */
#ifndef QDR_TEST_REFEREE_H
#define QDR_TEST_REFEREE_H

#include "lists.h"

#ifdef __cplusplus
extern "C" {
#endif

/* When the last rank is done. `messages`: rings send their parts from rank to rank one after the other, each over links
 * that have the latency; else each rank's share is one flow, and latencies are waited for before. Once in a process:
 * SimGrid has one engine.
 * @return -1 after an error, which it prints */
double referee_secs(const qdr_machine *machine, const qdr_plan *plan, const referee_list *list, int messages);

#ifdef __cplusplus
}
#endif
#endif
