/* SPDX-License-Identifier: Apache-2.0 */
/* NVIDIA's management library, if this machine has it: opened at run time, so that it is not needed for building or
 * starting. */
#ifndef QDRI_TOPO_NVML_H
#define QDRI_TOPO_NVML_H

#include <stddef.h>
#include <stdint.h>

enum { QDRI_NVML_LINKS = 18 }; /* the largest number of any GPU so far */

/* The other end of a GPU's link. */
typedef enum nvml_remote { NVML_NOTHING, NVML_GPU, NVML_SWITCH, NVML_HOST } nvml_remote;

typedef struct nvml_gpu {
    char name[96], bus[24]; /* "": unknown; bus as hwloc writes it */
    int64_t bytes; /* memory; 0: unknown */
    double link_rate; /* bytes per second of one NVLink; 0: unknown */
    nvml_remote links[QDRI_NVML_LINKS];
    char remote_bus[QDRI_NVML_LINKS][24]; /* of a GPU */
} nvml_gpu;

/* The distance of two GPUs on PCI: NVML's levels. */
enum {
    NVML_LEVEL_UNKNOWN = -1,
    NVML_LEVEL_SWITCH = 20, /* or below: switches only */
    NVML_LEVEL_NODE = 40, /* or below: one NUMA node */
    NVML_LEVEL_SYSTEM = 50
};

typedef struct nvml_library nvml_library;

/* NULL if there is no library, or its driver does not work; `said` is a sentence in either case. */
nvml_library *qdri_nvml_open(char *said, size_t capacity);
void qdri_nvml_close(nvml_library *nvml); /* accepts NULL */
int qdri_nvml_count(const nvml_library *nvml);
/* What NVML does not report stays unknown. */
void qdri_nvml_read(const nvml_library *nvml, int index, nvml_gpu *gpu);
/* A level, or NVML_LEVEL_UNKNOWN. */
int qdri_nvml_level(const nvml_library *nvml, int a, int b);
/* 1: a may read b's memory; 0: it may not; -1: unknown. */
int qdri_nvml_peer(const nvml_library *nvml, int a, int b);

#endif
