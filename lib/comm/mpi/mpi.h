/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI backend: apart from the functions of the public header, mpi*.c are the only files of the library that include
 * <mpi.h>. */
#ifndef QDRI_COMM_MPI_MPI_H
#define QDRI_COMM_MPI_MPI_H

#include "comm/comm.h"

/* Collective over the MPI_Comm that comm_handle points to; it is duplicated. `mine` is this rank's status so far: all
 * ranks return the status and message of the lowest that fails. The result has no device yet.
 * timeout_secs: as in qdri_comm_set_timeout(), for this call and afterwards. If the limit is exceeded, MPI may hold
 * memory of this call for good, and qdri_mpi_stop() does not finalise MPI.
 * @retval QDR_ERR_STATE  MPI is not initialised, is finalised, or lacks MPI_THREAD_MULTIPLE */
QDR_NODISCARD qdr_status qdri_comm_create_mpi(const void *comm_handle, qdr_status mine, double timeout_secs,
                                              qdri_comm **comm);
/* Wake events for the device of a new world communicator, which other ranks of its node can signal; NULL: none. Valid
 * until the communicator is destroyed. */
qdri_wake_event *qdri_mpi_wake_events(const qdri_comm *comm);
/* Sets the device of a new world communicator. */
void qdri_comm_bind(qdri_comm *comm, qdri_dev *dev);

/* The first words of what the MPI library that is loaded says of itself: "MPICH Version: 4.0.2". Before MPI starts,
 * too. */
void qdri_mpi_describe(char *text, size_t bytes);
/* Whether this process has initialised MPI. */
int qdri_mpi_is_initialised(void);
/* Initialises MPI. If it is initialised already, does nothing and sets *started to 0. */
QDR_NODISCARD qdr_status qdri_mpi_start(int *started);
/* Does nothing if a rank is missing. */
void qdri_mpi_stop(void);
/* 1: a rank did not come when a world was made or ended. */
int qdri_mpi_misses_a_rank(void);

/* Messages of more bytes than this are sent in pieces; tests make it small. */
extern int qdri_mpi_max_bytes;
/* The same for messages to other nodes, unless all nodes have adapters that read remote memory. */
extern int qdri_mpi_piece_bytes;
/* The number of bytes of such messages that may be sent before anything is received. */
extern int64_t qdri_mpi_ahead_bytes;
/* 0: collectives inside a node use messages, too; for tests. Read when a world is created. */
extern int qdri_mpi_use_node_memory;
/* 0: collectives between nodes are not performed level by level; for tests. Read when a communicator is created. */
extern int qdri_mpi_use_levels;
/* Number of bytes that a member writes to node memory at a time; at least 16 per rank. Tests make it small. */
extern int qdri_mpi_slot_bytes;
/* 0: this rank cannot map others' memory that it has not mapped yet; for tests. */
extern int qdri_mpi_map_memory;

#endif
