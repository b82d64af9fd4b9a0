/* SPDX-License-Identifier: Apache-2.0 */
/* Which communicator connects the GPUs of a world: QDR_CUDA_COMM. */
#ifndef QDRI_CONTEXT_PAIRING_H
#define QDRI_CONTEXT_PAIRING_H

#include "comm/comm.h"

typedef enum qdri_pairing {
    QDRI_PAIR_AUTO,
    QDRI_PAIR_NCCL,
    QDRI_PAIR_MPI, /* through host memory */
    QDRI_PAIR_LOCAL
} qdri_pairing;

/* The value in the environment.
 * @retval QDR_ERR_ARGUMENT  unknown value */
QDR_NODISCARD qdr_status qdri_pairing_read(qdri_pairing *pairing);

/* Gives a world whose devices are GPUs the communicator requested by rank 0's environment: NCCL, which then owns the
 * previous world, or `own`, the one that a world of this kind has without NCCL (AUTO: none). prefers: the meaning of
 * "auto": NCCL if it can be used, or `own`. The world's time limit applies while NCCL communicators are created.
 * Collective: fails on all ranks, and then the world is unchanged, or on none.
 * @retval QDR_ERR_ARGUMENT     not possible for this kind of world
 * @retval QDR_ERR_UNSUPPORTED  requested, but cannot be used */
QDR_NODISCARD qdr_status qdri_pair(qdri_comm **world, qdri_dev *dev, qdri_pairing own, qdri_pairing prefers,
                                   qdri_pairing *pairing);

#endif
