/* SPDX-License-Identifier: Apache-2.0 */
/* Which communicator joins the GPUs of a world: QDR_CUDA_COMM. */
#ifndef QDRI_GRID_PAIRING_H
#define QDRI_GRID_PAIRING_H

#include "comm/comm.h"

typedef enum qdri_pairing {
    QDRI_PAIR_AUTO,
    QDRI_PAIR_NCCL,
    QDRI_PAIR_MPI, /* through the host's memory */
    QDRI_PAIR_LOCAL
} qdri_pairing;

/* What the environment asks for.
 * @retval QDR_ERR_ARGUMENT  nothing that is known */
QDR_NODISCARD qdr_status qdri_pairing_read(qdri_pairing *pairing);

/* Gives a world whose devices are GPUs what rank 0's environment asks for: NCCL, which then has taken the world over,
 * or `own`, the pairing that a world of this kind has without (AUTO: none). prefers: what "auto" means, NCCL if it
 * fits, or `own`. The world's limit of waits holds while NCCL's communicators are made. Collective: fails on all ranks,
 * and the world stays what it was, or on none.
 * @retval QDR_ERR_ARGUMENT     this kind of world cannot have it
 * @retval QDR_ERR_UNSUPPORTED  it was asked for, and does not fit */
QDR_NODISCARD qdr_status qdri_pair(qdri_comm **world, qdri_dev *dev, qdri_pairing own, qdri_pairing prefers,
                                   qdri_pairing *pairing);

#endif
