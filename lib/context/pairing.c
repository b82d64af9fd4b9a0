/* SPDX-License-Identifier: Apache-2.0 */
/* Choosing between NCCL and the communicator that a world of GPUs has without it. */
#include "comm/cuda_plugin.h"
#include "context/context.h"
#include "core/environment.h"
#include "core/log.h"

static const char *const names[] = {
    [QDRI_PAIR_AUTO] = "auto", [QDRI_PAIR_NCCL] = "nccl", [QDRI_PAIR_MPI] = "mpi", [QDRI_PAIR_LOCAL] = "local"};

static qdr_status find_comms(const qdri_cuda_comms **comms)
{
    const qdri_plugin *plugin;
    QDR_TRY(qdri_plugin_open(&plugin));
    *comms = plugin->comm;
    if (*comms) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED, "context: the CUDA plugin was built without NCCL");
}

qdr_status qdri_pair(qdri_comm **world, qdri_dev *dev, qdri_pairing own, qdri_pairing *pairing)
{
    static const char *const kinds[] = {[QDRI_PAIR_AUTO] = "ranks with callbacks",
                                        [QDRI_PAIR_NCCL] = "",
                                        [QDRI_PAIR_MPI] = "ranks of MPI",
                                        [QDRI_PAIR_LOCAL] = "local ranks"};
    const qdri_cuda_comms *comms = NULL;
    qdri_comm *made = NULL;
    int choice = QDRI_PAIR_AUTO;
    QDR_TRY(qdri_comm_agree(*world, qdri_environment_choice(QDRI_VARIABLE_CUDA_COMM, &choice)));
    QDR_TRY(qdri_comm_broadcast(*world, 0, &choice, sizeof choice));
    const qdri_pairing first = (qdri_pairing)choice;
    if (first != QDRI_PAIR_AUTO && first != QDRI_PAIR_NCCL && first != own)
        return QDR_FAIL(QDR_ERR_ARGUMENT, /* the same on all ranks */
                        "context: QDR_CUDA_COMM=%s cannot connect the GPUs of %s; use auto, nccl%s%s", names[first],
                        kinds[own], own == QDRI_PAIR_AUTO ? "" : " or ", own == QDRI_PAIR_AUTO ? "" : names[own]);
    *pairing = first == QDRI_PAIR_AUTO ? QDRI_PAIR_NCCL : first;
    if (*pairing != QDRI_PAIR_NCCL) return QDR_OK; /* the same on all ranks */
    const int has_other = first == QDRI_PAIR_AUTO && own != QDRI_PAIR_AUTO;
    qdr_status status = qdri_comm_agree(*world, find_comms(&comms));
    /* NOLINTNEXTLINE(clang-analyzer-core.NullDereference): agreed, so it was found */
    if (status == QDR_OK) status = comms->nccl_fits(*world, dev);
    if (status == QDR_ERR_UNSUPPORTED && has_other) {
        qdri_log(QDRI_LOG_INFO, "%s; joined by %s instead", qdr_last_error(), names[own]);
        *pairing = own;
        return QDR_OK;
    }
    QDR_TRY(status);
    QDR_TRY(comms->nccl_wrap(*world, dev, &made));
    *world = made;
    return QDR_OK;
}
