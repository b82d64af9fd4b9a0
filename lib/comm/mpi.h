/* SPDX-License-Identifier: Apache-2.0 */
/* The MPI backend: the only place of the library that includes <mpi.h> (through quadrille/mpi.h).
 */
#ifndef QDRI_COMM_MPI_H
#define QDRI_COMM_MPI_H

#include "comm/comm.h"

/* comm_handle points to an MPI_Comm; it is duplicated. */
QDR_NODISCARD qdr_status qdri_comm_create_mpi(const void *comm_handle, qdri_dev *dev,
                                              qdri_comm **comm);

#endif
