/* SPDX-License-Identifier: Apache-2.0 */
/** @file topo.h  Machines: packages, NUMA nodes, caches, cores, GPUs, network adapters and the links between them; and
 * which of these links the axes of a grid use.
 *
 * A machine is one node. It is read with hwloc, from the node that this process runs on or from an XML file that
 * hwloc has written elsewhere. In a build without hwloc it is this node alone: one package, one NUMA node, the cores
 * that this process may use, no caches or adapters, and the GPUs that NVML knows. All functions are local and need no
 * context; they are thread-safe as long as no one changes what they read. Memory is in bytes, bandwidth in bytes per
 * second and direction; unknown numbers are 0, unknown indices -1. */
#ifndef QUADRILLE_TOPO_H
#define QUADRILLE_TOPO_H

#include "status.h"

#ifdef __cplusplus
extern "C" {
#endif

/** What lies between two ranks: from the nearest to the farthest. */
typedef enum qdr_link {
    QDR_LINK_NONE = 0, /**< there is no second rank */
    QDR_LINK_SAME, /**< they share a core, or a GPU */
    QDR_LINK_CACHE, /**< cores with a cache in common */
    QDR_LINK_XGMI_MODULE, /**< XGMI between the two dies of one module */
    QDR_LINK_NVLINK, /**< NVLink from GPU to GPU */
    QDR_LINK_XGMI, /**< XGMI from GPU to GPU */
    QDR_LINK_NVSWITCH, /**< NVLink through switches */
    QDR_LINK_PCI, /**< GPUs under one PCI switch */
    QDR_LINK_NUMA, /**< the memory of one NUMA node */
    QDR_LINK_PACKAGE, /**< NUMA nodes of one package */
    QDR_LINK_NODE, /**< packages of one node */
    QDR_LINK_NETWORK, /**< nodes */
    QDR_N_LINKS
} qdr_link;

typedef struct qdr_topo_package {
    int n_cores;
    char model[96]; /**< of the processor; "": unknown */
} qdr_topo_package;

typedef struct qdr_topo_numa {
    int os_index; /**< the system's number */
    int package; /**< -1: of no package, or of several */
    int n_cores; /**< may be 0: memory without cores */
    int64_t bytes;
} qdr_topo_numa;

/** A data or unified cache. */
typedef struct qdr_topo_cache {
    int level; /**< 1, 2, 3, … */
    int n_cores; /**< that share it */
    int64_t bytes;
} qdr_topo_cache;

/** A core. If a machine shows hardware threads only, each counts as a core. */
typedef struct qdr_topo_core {
    int package, numa; /**< -1: not visible */
    int cache; /**< the outermost cache of the core; -1: not visible */
    int n_threads;
    int first_cpu; /**< the system's number of its first hardware thread */
} qdr_topo_core;

typedef struct qdr_topo_gpu {
    char name[32]; /**< "nvml0", "rsmi0", "cuda0"; "gpu0" where no driver names it */
    char model[96];
    char bus[24]; /**< on PCI, "0000:c1:00.0"; "": unknown */
    char module[32]; /**< serial number; the dies of one module share it; "": unknown */
    int package, numa; /**< that it is attached to; -1: unknown */
    int64_t bytes; /**< memory */
    double pci_rate;
    double host_rate; /**< of NVLink to its package; 0: none */
} qdr_topo_gpu;

/** A link between two GPUs a < b that does not pass through the host. */
typedef struct qdr_topo_gpu_link {
    int a, b;
    qdr_link link;
    int n_hops; /**< 0: unknown */
    int is_assumed; /**< 1: the rate was neither measured nor reported (hwloc always states 100 GB/s for XGMI) */
    int peer; /**< 1: each may read the other's memory; 0: not; -1: unknown */
    double rate;
} qdr_topo_gpu_link;

/** A network adapter (a PCI function). */
typedef struct qdr_topo_nic {
    char name[32]; /**< "eth0", "mlx5_0" */
    char bus[24]; /**< on PCI; "": unknown */
    int package, numa;
    double rate; /**< of its line; known on this machine only */
    double pci_rate;
} qdr_topo_nic;

/** Where a rank is: the parts of a machine to which it is bound. -1: unknown, or several. No members will be added:
 * lists of it are passed. */
typedef struct qdr_topo_place {
    int node, package, numa, cache, core;
    int gpu; /**< that it computes on; -1: on its cores */
} qdr_topo_place;

/** A machine, made by qdr_topo_load(). GPUs are in the order of their PCI addresses; other lists in hwloc's order. */
typedef struct qdr_topo {
    size_t size; /**< as the library knows it */
    char host[64]; /**< name of the node; "": unknown */
    char product[96]; /**< of the machine; "": unknown */
    char gpu_source[160]; /**< which source was asked for GPUs, and its answer: a sentence */
    int is_this_machine; /**< 0: recorded, or made up */
    int n_packages, n_numas, n_caches, n_cores, n_threads, n_gpus, n_gpu_links, n_nics;
    int64_t bytes; /**< memory of all NUMA nodes */
    struct qdr_topo_lists *lists; /**< read by qdr_topo_gpu_at(), … */
    qdr_topo_place here; /**< of the calling thread, by its binding; its node is 0 */
    char cpus[128]; /**< hardware threads that it may run on, as the system counts them: "0-3,8"; "": unknown */
} qdr_topo;

typedef struct qdr_topo_opts {
    size_t size; /**< QDR_INIT(qdr_topo_opts) */
    const char *xml; /**< a file that hwloc wrote (lstopo machine.xml); NULL: what the environment variable
                        HWLOC_XMLFILE names, else this machine */
} qdr_topo_opts;

/** Reads a machine. For this machine, NVML is also asked for GPUs and their links, if it is available. Blocking: a
 * fraction of a second. opts may be NULL. Destroy it with qdr_topo_destroy().
 *  @retval QDR_ERR_ARGUMENT     opts have no size, or hwloc cannot parse the file; *topo is NULL
 *  @retval QDR_ERR_IO           the file cannot be opened; *topo is NULL
 *  @retval QDR_ERR_UNSUPPORTED  hwloc cannot read this machine, or this build has no hwloc and another machine is
 *                               requested; *topo is NULL
 *  @retval QDR_ERR_MEMORY       *topo is NULL */
QDR_API QDR_NODISCARD qdr_status qdr_topo_load(const qdr_topo_opts *opts, qdr_topo **topo);
/** Frees what qdr_topo_load() made and sets *topo to NULL. NULL is allowed. */
QDR_API void qdr_topo_destroy(qdr_topo **topo);

/** One of the machine's packages, NUMA nodes, …, by number; links between GPUs by a, then b. It lives as long as the
 * machine. NULL: there is none. */
QDR_API const qdr_topo_package *qdr_topo_package_at(const qdr_topo *topo, int index);
QDR_API const qdr_topo_numa *qdr_topo_numa_at(const qdr_topo *topo, int index);
QDR_API const qdr_topo_cache *qdr_topo_cache_at(const qdr_topo *topo, int index);
QDR_API const qdr_topo_core *qdr_topo_core_at(const qdr_topo *topo, int index);
QDR_API const qdr_topo_gpu *qdr_topo_gpu_at(const qdr_topo *topo, int index);
QDR_API const qdr_topo_gpu_link *qdr_topo_gpu_link_at(const qdr_topo *topo, int index);
QDR_API const qdr_topo_nic *qdr_topo_nic_at(const qdr_topo *topo, int index);

/** "shared cache", "NVLink", "network", …; "?" for an unknown link. */
QDR_API const char *qdr_link_name(qdr_link link);
/** All that a node can send to others: the rate of its fastest adapter times how many are as fast. 0: unknown. */
QDR_API double qdr_topo_network_rate(const qdr_topo *topo);

/** Where rank `index` of `n_ranks` on node `node` is, if they are spread over its GPUs (one each, in order; if there
 * are more ranks than GPUs, neighbours share) or over its cores (equal runs of consecutive cores). If there is nothing
 * to spread over, everything but the node is -1. */
QDR_API void qdr_topo_spread(const qdr_topo *topo, int on_gpus, int node, int index, int n_ranks,
                             qdr_topo_place *place);

/** The link between two ranks, on nodes like `topo`. topo may be NULL: then no GPU links are known.
 *  @param[out] rate        bytes per second, 0 where unknown; may be NULL
 *  @param[out] is_assumed  as in qdr_topo_gpu_link; may be NULL */
QDR_API qdr_link qdr_topo_between(const qdr_topo *topo, const qdr_topo_place *a, const qdr_topo_place *b, double *rate,
                                  int *is_assumed);

/** The groups of one axis: ranks that differ in this coordinate only. */
typedef struct qdr_topo_axis {
    size_t size; /**< QDR_INIT(qdr_topo_axis) */
    int n_ranks; /**< members of a group */
    int stride; /**< from a member to the next, in ranks */
    int n_nodes; /**< that the widest group spans */
    int n_on_node; /**< the most members that a group has on one node */
    int n_siblings; /**< the most groups of this axis that share one node's link of this kind; 0: there is no link */
    qdr_link link; /**< the slowest between any two members of any group */
    double rate; /**< of that link; siblings share it if it is the network. 0: unknown for at least one such pair */
    int is_assumed; /**< the rate, as in qdr_topo_gpu_link */
    qdr_link inner; /**< the slowest between members on one node; QDR_LINK_NONE: no two members share a node */
    double inner_rate;
    int inner_is_assumed;
} qdr_topo_axis;

/** Which links an axis of a grid uses. Pure: the same arguments give the same result.
 *  @param topo    all nodes are like it; may be NULL, as for qdr_topo_between()
 *  @param sizes   ranks along x, y, z and d, ≥ 1; their product p is at most 2^20
 *  @param order   fastest axis first, a permutation of "xyzd"; NULL: "xyzd"
 *  @param places  of ranks 0 … p-1; nodes are numbered from 0 to p-1 or less
 *  @param[out] found  zeroed after an error
 *  @retval QDR_ERR_ARGUMENT  one of these conditions is violated
 *  @retval QDR_ERR_MEMORY */
QDR_API QDR_NODISCARD qdr_status qdr_topo_map(const qdr_topo *topo, const int sizes[QDR_N_AXES], const char *order,
                                              const qdr_topo_place *places, qdr_axis axis, qdr_topo_axis *found);

/** Numbers of parts, as in qdr_grid_opts. */
typedef struct qdr_topo_levels {
    size_t size; /**< QDR_INIT(qdr_topo_levels) */
    int gradient_parts, optimizer_parts;
    char note[512]; /**< which words another one replaces, and why; "": none */
} qdr_topo_levels;

/** The numbers that words of levels mean for a grid on these places. Words, and words that fit no grid, are treated as
 * by qdr_levels_read(). Pure.
 *  @param places  as for qdr_topo_map(); a number of -1 is shared with no one
 *  @param[out] levels  zeroed after an error
 *  @retval QDR_ERR_ARGUMENT  also unknown words, and numbers that do not nest */
QDR_API QDR_NODISCARD qdr_status qdr_topo_levels_read(const qdr_topo *topo, const int sizes[QDR_N_AXES],
                                                      const char *order, const qdr_topo_place *places,
                                                      const char *words, qdr_topo_levels *levels);

#ifdef __cplusplus
}
#endif
#endif
