/* SPDX-License-Identifier: Apache-2.0 */
/* Communicators that need CUDA, as the plugin offers them: what qdri_plugin.comm points to. */
#ifndef QDRI_COMM_CUDA_PLUGIN_H
#define QDRI_COMM_CUDA_PLUGIN_H

#include "comm/comm.h"
#include "dev/plugin.h"

typedef struct qdri_cuda_comms {
    /* Whether NCCL can join the ranks of a host communicator: it is new enough, and no two share a GPU. Collective: all
     * ranks get the same.
     * @retval QDR_ERR_UNSUPPORTED  it cannot */
    qdr_status (*nccl_fits)(qdri_comm *host, qdri_dev *dev);
    /* Makes a communicator whose collectives are NCCL's and whose talk is the host's, which is *comm's from then on.
     * Collective: fails on all ranks, and host stays the caller's, or on none. The host's timeout limits it; without
     * one, QDRI_NCCL_JOIN_SECS.
     * @retval QDR_ERR_UNSUPPORTED  ranks have different versions of NCCL, or one too old
     * @retval QDR_ERR_ARGUMENT     QDR_NCCL_MAX_CTAS is no number, or too large for a GPU */
    qdr_status (*nccl_wrap)(qdri_comm *host, qdri_dev *dev, qdri_comm **comm);
} qdri_cuda_comms;

#define QDRI_NCCL_JOIN_SECS 300

#endif
