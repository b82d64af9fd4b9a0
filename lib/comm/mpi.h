/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI backend: mpi*.c are the only files of the library that include <mpi.h>, but for the public header's
 * functions. */
#ifndef QDRI_COMM_MPI_H
#define QDRI_COMM_MPI_H

#include "comm/comm.h"

/* Collective over the MPI_Comm that comm_handle points to; it is duplicated. `mine` is what this rank has met so far:
 * all ranks return the status and sentence of the lowest that fails. The result has no device yet.
 * timeout_secs: as qdri_comm_set_timeout(), for this call and afterwards. Where it has passed, MPI may hold memory of
 * this call for good, and qdri_mpi_stop() leaves MPI as it is.
 * @retval QDR_ERR_STATE  MPI is not initialised, is finalised, or lacks MPI_THREAD_MULTIPLE */
QDR_NODISCARD qdr_status qdri_comm_create_mpi(const void *comm_handle, qdr_status mine, double timeout_secs,
                                              qdri_comm **comm);
/* Bells for the device of a new world communicator, which other ranks of its node can ring; NULL: none. Good until the
 * communicator is destroyed. */
qdri_bell *qdri_mpi_bells(const qdri_comm *comm);
/* Gives a new world communicator its device. */
void qdri_comm_bind(qdri_comm *comm, qdri_dev *dev);

/* Whether this process has initialised MPI. */
int qdri_mpi_is_initialised(void);
/* Initialises MPI unless it is initialised already; then *started is 0. */
QDR_NODISCARD qdr_status qdri_mpi_start(int *started);
void qdri_mpi_stop(void);

/* Messages of more bytes than this travel in pieces; tests make it small. */
extern int qdri_mpi_max_bytes;
/* The same for messages to other nodes, unless all nodes have adapters that read remote memory. */
extern int qdri_mpi_piece_bytes;
/* And how many bytes of them go before anything has come. */
extern int64_t qdri_mpi_ahead_bytes;
/* 0: collectives inside a node travel as messages, too; for tests. Read when a world is made. */
extern int qdri_mpi_use_node_memory;
/* 0: collectives between nodes are not taken level by level; for tests. Read when a communicator is made. */
extern int qdri_mpi_use_levels;
/* Bytes that a member writes at once into node memory; at least 16 per rank. Tests make it small. */
extern int qdri_mpi_slot_bytes;
/* Collectives of at least this many bytes read and write the members' own memory, where they can map it; tests make it
 * small. */
extern int64_t qdri_mpi_direct_bytes;
/* 0: this rank cannot map others' memory; for tests. */
extern int qdri_mpi_map_memory;

#endif
