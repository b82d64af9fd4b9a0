/* SPDX-License-Identifier: Apache-2.0 */
/* The doctor for several processes of a launcher: one table of their nodes. */
#ifndef QUADRILLE_SRC_DOCTOR_NODES_H
#define QUADRILLE_SRC_DOCTOR_NODES_H

#include "doctor/facts.h"

/* build.c: "0.1.0, build c007f5ec", with the first digits of the linker's build ID of the library; "0.1.0": it has
 * none. */
void doctor_library_text(char *text, size_t bytes);
/* collect.c: the facts of this process and, if it is the first on its node, those of the node. Asking for GPUs takes
 * memory on each of them, which is why only one rank does. */
void doctor_collect(int is_first, fact_list *facts);
/* nodes.c: starts MPI, gathers the facts of all ranks; rank 0 prints. Returns the exit code. */
int doctor_run_nodes(int is_json);

typedef struct node_report {
    int n_ranks, n_nodes;
    fact_node *nodes; /* only rank 0 has these */
    int *node_of; /* of each rank */
    fact_differences differences;
    double clock_bound_secs; /* clocks that show the same time may have been read so far apart */
} node_report;
/* table.c */
int nodes_count(const node_report *report, doctor_state state);
void nodes_print(const node_report *report);
int nodes_print_json(const node_report *report, failure *why);

#endif
