/* SPDX-License-Identifier: Apache-2.0 */
/* Which ranks may be on one GPU. NCCL joins one rank per GPU, except for tests: from 2.30 on, with
 * NCCL_MULTI_RANK_GPU_ENABLE=1, several. Ranks that are processes then take turns on the GPU. Threads of one process
 * share a CUDA context, so that their kernels must not wait for each other in its queues. */
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "comm/nccl/internal.h"
#include "core/environment.h"
#include "core/log.h"
#include "core/size.h"

enum { BUS_BYTES = 24, SHARING_VERSION = 23000 };

/* A rank, as the others of its node see it. Its process: the number, which each container counts for itself, and where
 * the process has this function. */
typedef struct seat {
    char bus[BUS_BYTES];
    int rank, process;
    uintptr_t place;
} seat;

static int is_set(const char *value, const char *wanted) { return value && strcmp(value, wanted) == 0; }

static int are_threads(const seat *a, const seat *b) { return a->process == b->process && a->place == b->place; }

/* A setting without which threads that share a GPU may wait for each other forever. NULL: all are there. */
static const char *setting_missing(void)
{
    const char *queues = getenv("CUDA_DEVICE_MAX_CONNECTIONS");
    if (!is_set(getenv("NCCL_LAUNCH_ORDER_IMPLICIT"), "0")) return "NCCL_LAUNCH_ORDER_IMPLICIT=0";
    if (!is_set(getenv("CUDA_MODULE_LOADING"), "EAGER")) return "CUDA_MODULE_LOADING=EAGER";
    if (!queues || atoi(queues) < 32) return "CUDA_DEVICE_MAX_CONNECTIONS=32";
    if (is_set(qdri_environment_text(QDRI_VARIABLE_CUDA_MEMORY), "managed")) return "QDR_CUDA_MEMORY=device";
    return NULL;
}

static qdr_status check_pair(const qdri_comm *node, const seat *one, const seat *other, int version)
{
    const char *table = node->table->name; /* how ranks that share a GPU can communicate instead */
    const char *other_way = strcmp(table, "local") == 0 ? ", or use QDR_CUDA_COMM=local"
                            : strcmp(table, "mpi") == 0 ? ", or use QDR_CUDA_COMM=mpi"
                                                        : "";
    const int is_asked = is_set(getenv("NCCL_MULTI_RANK_GPU_ENABLE"), "1");
    if (!is_asked)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "nccl: ranks %d and %d of one node are both on the GPU at %s, but NCCL supports one rank per "
                        "GPU; start one rank per GPU%s",
                        one->rank, other->rank, one->bus, other_way);
    if (version < SHARING_VERSION)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "nccl: ranks %d and %d are both on the GPU at %s, which NCCL_MULTI_RANK_GPU_ENABLE=1 allows "
                        "from NCCL 2.30 on, but this is %d.%d.%d; put a newer libnccl.so.2 first in LD_LIBRARY_PATH%s",
                        one->rank, other->rank, one->bus, version / 10000, version / 100 % 100, version % 100,
                        other_way);
    const char *missing = are_threads(one, other) ? setting_missing() : NULL;
    if (!missing) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "nccl: ranks %d and %d are threads on the GPU at %s and could wait for each other forever; set %s "
                    "before the program starts%s",
                    one->rank, other->rank, one->bus, missing, other_way);
}

/* The ranks on this rank's GPU. */
typedef struct neighbours {
    int n, n_threads; /* with this rank; of its process */
    int is_first; /* this is the lowest */
} neighbours;

/* Compares this rank with those of its node. */
static qdr_status check_seats(const qdri_comm *node, const seat *seats, int version, neighbours *found)
{
    const seat *mine = &seats[node->rank];
    *found = (neighbours){.is_first = 1};
    for (int j = 0; j < node->size; j++) {
        if (node->nodes && node->nodes[j] != node->nodes[node->rank]) continue;
        if (strcmp(seats[j].bus, mine->bus) != 0) continue;
        found->n++;
        found->n_threads += are_threads(&seats[j], mine);
        if (j >= node->rank) continue;
        found->is_first = 0;
        QDR_TRY(check_pair(node, &seats[j], mine, version));
    }
    return QDR_OK;
}

static qdr_status find_neighbours(qdri_comm *node, int rank, const char *bus, int version, neighbours *found)
{
    seat *seats = NULL;
    qdr_status status = qdri_comm_agree(node, QDRI_NEW(node->size, "ranks of a node", &seats));
    if (status == QDR_OK) {
        seat *mine = &seats[node->rank];
        *mine = (seat){.rank = rank, .process = (int)getpid(), .place = (uintptr_t)find_neighbours};
        strncpy(mine->bus, bus, BUS_BYTES - 1);
    }
    for (int j = 0; j < node->size && status == QDR_OK; j++)
        status = qdri_comm_broadcast(node, j, &seats[j], sizeof seats[j]);
    if (status == QDR_OK) status = check_seats(node, seats, version, found);
    free(seats);
    return status;
}

qdr_status qdri_nccl_check_sharing(qdri_comm *host, qdri_cuda_dev *dev, int version)
{
    qdri_comm *node = host;
    neighbours found = {.n = 1};
    /* If a host communicator's parts cannot communicate, all ranks are compared with all. */
    if (host->nodes && !host->table->is_only_world)
        QDR_TRY(qdri_comm_split(host, host->nodes[host->rank], host->rank, &node));
    const qdr_status status = find_neighbours(node, host->rank, dev->gpu.bus, version, &found);
    if (node != host) qdri_comm_destroy(&node);
    QDR_TRY(qdri_comm_agree(host, status));
    dev->n_sharing = found.n_threads;
    if (found.is_first && found.n > 1)
        qdri_log(QDRI_LOG_INFO, "nccl: %d ranks from rank %d on share the GPU at %s (NCCL_MULTI_RANK_GPU_ENABLE=1)",
                 found.n, host->rank, dev->gpu.bus);
    return QDR_OK;
}
