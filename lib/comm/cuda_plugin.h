/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that need CUDA, as exported by the plugin: what qdri_plugin.comm points to. */
#ifndef QDRI_COMM_CUDA_PLUGIN_H
#define QDRI_COMM_CUDA_PLUGIN_H

#include "comm/comm.h"
#include "dev/plugin.h"

typedef struct qdri_cuda_comms {
    /* Whether NCCL can connect the ranks of a host communicator: it is recent enough, and no two ranks share a GPU.
     * Collective: all ranks get the same result.
     * @retval QDR_ERR_UNSUPPORTED  it cannot */
    qdr_status (*nccl_fits)(qdri_comm *host, qdri_dev *dev);
    /* Creates a communicator that uses NCCL for collectives and the host communicator, which *comm then owns, for
     * everything else. Collective: fails on all ranks, and then the caller keeps host, or on none. Limited in time by
     * the host's timeout or, without one, by QDRI_NCCL_JOIN_SECS.
     * @retval QDR_ERR_UNSUPPORTED  ranks have different versions of NCCL, or one that is too old
     * @retval QDR_ERR_ARGUMENT     QDR_NCCL_MAX_CTAS is not a number, or too large for a GPU */
    qdr_status (*nccl_wrap)(qdri_comm *host, qdri_dev *dev, qdri_comm **comm);
} qdri_cuda_comms;

#define QDRI_NCCL_JOIN_SECS 300

#endif
