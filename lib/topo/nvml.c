/* SPDX-License-Identifier: Apache-2.0 */
/* What NVIDIA's management library knows about this machine, in addition to hwloc. It is opened at run time, so that it
 * is not needed for building or starting. Its types and constants are copied from nvml.h; they are stable, because NVML
 * introduces a new name for each change. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"
#include "topo/machine.h"

typedef struct nvml_device *nvml_device;

typedef struct nvml_pci {
    char legacy_bus[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_text[32];
} nvml_pci;

typedef struct nvml_memory {
    unsigned long long total, free, used;
} nvml_memory;

typedef struct nvml_field {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    union {
        double real;
        unsigned number;
        unsigned long long large;
    } value;
} nvml_field;

enum { FIELD_LINK_MBYTES = 90, FIELD_TYPE_UNSIGNED = 1, P2P_READ = 0 };
enum { REMOTE_GPU = 0, REMOTE_HOST = 1, REMOTE_SWITCH = 2, REMOTE_UNKNOWN = 255 };
enum { MOST_LINKS = 18 }; /* the largest number of any GPU so far */

/* The distance of two GPUs on PCI. */
enum {
    LEVEL_UNKNOWN = -1,
    LEVEL_SWITCH = 20, /* or below: switches only */
    LEVEL_NODE = 40 /* or below: one NUMA node */
};

/* The other end of a GPU's link. */
typedef enum remote { NOTHING, GPU, SWITCH, HOST } remote;

/* What NVML does not report stays unknown. */
typedef struct nvml_gpu {
    nvml_device device; /* NULL: unknown */
    int index; /* in topo->lists->gpus */
    char name[96], bus[24]; /* "": unknown; bus as hwloc writes it */
    int64_t bytes; /* memory; 0: unknown */
    double link_rate; /* bytes per second of one NVLink; 0: unknown */
    remote links[MOST_LINKS];
    char remote_bus[MOST_LINKS][24]; /* of a GPU */
} nvml_gpu;

typedef struct nvml_library {
    void *handle;
    nvml_gpu *gpus;
    int n;
    int (*init)(void);
    int (*shutdown)(void);
    const char *(*error_text)(int result);
    int (*driver)(char *text, unsigned capacity);
    int (*count)(unsigned *n);
    int (*by_index)(unsigned index, nvml_device *device);
    int (*name)(nvml_device device, char *text, unsigned capacity);
    int (*memory)(nvml_device device, nvml_memory *memory);
    int (*pci)(nvml_device device, nvml_pci *pci);
    int (*fields)(nvml_device device, int n, nvml_field *fields);
    int (*link_state)(nvml_device device, unsigned link, int *is_active);
    int (*remote_type)(nvml_device device, unsigned link, int *type);
    int (*remote_pci)(nvml_device device, unsigned link, nvml_pci *pci);
    int (*ancestor)(nvml_device a, nvml_device b, int *level);
    int (*peer)(nvml_device a, nvml_device b, int what, int *status);
} nvml_library;

/* ---- opening ---- */

typedef struct named_function {
    const char *name;
    size_t offset; /* of its function pointer */
    int is_needed;
} named_function;

static const named_function functions[] = {
    {"nvmlInit_v2", offsetof(nvml_library, init), 1},
    {"nvmlShutdown", offsetof(nvml_library, shutdown), 1},
    {"nvmlErrorString", offsetof(nvml_library, error_text), 0},
    {"nvmlSystemGetDriverVersion", offsetof(nvml_library, driver), 0},
    {"nvmlDeviceGetCount_v2", offsetof(nvml_library, count), 1},
    {"nvmlDeviceGetHandleByIndex_v2", offsetof(nvml_library, by_index), 1},
    {"nvmlDeviceGetName", offsetof(nvml_library, name), 0},
    {"nvmlDeviceGetMemoryInfo", offsetof(nvml_library, memory), 0},
    {"nvmlDeviceGetPciInfo_v3", offsetof(nvml_library, pci), 0},
    {"nvmlDeviceGetFieldValues", offsetof(nvml_library, fields), 0},
    {"nvmlDeviceGetNvLinkState", offsetof(nvml_library, link_state), 0},
    {"nvmlDeviceGetNvLinkRemoteDeviceType", offsetof(nvml_library, remote_type), 0},
    {"nvmlDeviceGetNvLinkRemotePciInfo_v2", offsetof(nvml_library, remote_pci), 0},
    {"nvmlDeviceGetTopologyCommonAncestor", offsetof(nvml_library, ancestor), 0},
    {"nvmlDeviceGetP2PStatus", offsetof(nvml_library, peer), 0},
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

static int start(nvml_library *nvml, char *said, size_t capacity)
{
    char driver[80] = "?";
    unsigned n = 0;
    int result = nvml->init();
    if (result == 0) {
        result = nvml->count(&n);
        if (result != 0) nvml->shutdown();
    }
    if (result != 0) {
        snprintf(said, capacity, "NVML could not be initialised: %s",
                 nvml->error_text ? nvml->error_text(result) : "its driver may not be loaded");
        return 0;
    }
    if (nvml->driver && nvml->driver(driver, sizeof driver) != 0) driver[0] = '?';
    nvml->n = (int)n;
    snprintf(said, capacity, "NVML, driver %s: %u GPU%s", driver, n, n == 1 ? "" : "s");
    return 1;
}

/* Returns 0 if there is no library, or its driver does not work; `said` is a sentence in either case. */
static int open_library(nvml_library *nvml, char *said, size_t capacity)
{
    nvml->handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    snprintf(said, capacity, "NVML (libnvidia-ml.so.1) is not installed");
    if (!nvml->handle) return 0;
    snprintf(said, capacity, "NVML (libnvidia-ml.so.1) lacks functions");
    int has_all = 1;
    for (int i = 0; i < N_FUNCTIONS; i++) {
        void *found = dlsym(nvml->handle, functions[i].name);
        has_all &= found || !functions[i].is_needed;
        /* POSIX allows converting a data pointer to a function pointer, C does not: so it is copied as bytes. */
        memcpy((char *)nvml + functions[i].offset, &found, sizeof found);
    }
    if (has_all && start(nvml, said, capacity)) return 1;
    dlclose(nvml->handle);
    return 0;
}

/* ---- GPUs ---- */

/* "00000000:34:00.0" as "0000:34:00.0", in lower case. */
static void copy_bus(const nvml_pci *pci, char bus[24])
{
    snprintf(bus, 24, "%04x:%02x:%02x.0", pci->domain & 0xffffu, pci->bus & 0xffu, pci->device & 0xffu);
}

/* Older drivers do not report what is at the other end, only its PCI address: then the caller, who knows the GPUs,
 * distinguishes them from switches. */
static void read_link(const nvml_library *nvml, nvml_device device, unsigned link, nvml_gpu *gpu)
{
    int is_active = 0, type = REMOTE_UNKNOWN;
    nvml_pci pci = {.domain = 0};
    if (nvml->link_state(device, link, &is_active) != 0 || !is_active) return;
    if (nvml->remote_type && nvml->remote_type(device, link, &type) != 0) type = REMOTE_UNKNOWN;
    if (type == REMOTE_HOST || type == REMOTE_SWITCH) {
        gpu->links[link] = type == REMOTE_HOST ? HOST : SWITCH;
        return;
    }
    if (!nvml->remote_pci || nvml->remote_pci(device, link, &pci) != 0) return;
    gpu->links[link] = GPU;
    copy_bus(&pci, gpu->remote_bus[link]);
}

static void read_gpu(const nvml_library *nvml, int number, nvml_gpu *gpu)
{
    nvml_device device = NULL;
    nvml_memory memory = {0};
    nvml_pci pci = {.domain = 0};
    if (nvml->by_index((unsigned)number, &device) != 0) return;
    gpu->device = device;
    if (nvml->name && nvml->name(device, gpu->name, sizeof gpu->name) != 0) gpu->name[0] = '\0';
    if (nvml->memory && nvml->memory(device, &memory) == 0) gpu->bytes = (int64_t)memory.total;
    if (nvml->pci && nvml->pci(device, &pci) == 0) copy_bus(&pci, gpu->bus);
    if (!nvml->link_state) return;
    nvml_field field = {.field = FIELD_LINK_MBYTES};
    if (nvml->fields && nvml->fields(device, 1, &field) == 0 && field.result == 0 && field.type == FIELD_TYPE_UNSIGNED)
        gpu->link_rate = 1e6 * field.value.number;
    for (unsigned link = 0; link < MOST_LINKS; link++) read_link(nvml, device, link, gpu);
}

/* hwloc knows where a GPU is; NVML knows what it is. */
static qdr_status take_gpu(topo_loader *loader, int number, nvml_gpu *from)
{
    qdr_topo_gpu *gpu;
    from->index = *from->bus ? qdri_topo_find_gpu(loader->topo, from->bus) : -1;
    if (from->index < 0) {
        QDR_TRY(qdri_topo_add_gpu(loader, &gpu));
        qdri_topo_copy(gpu->bus, sizeof gpu->bus, from->bus);
        qdri_sys_locate(loader->topo, gpu->bus, &gpu->package, &gpu->numa);
        from->index = loader->topo->n_gpus - 1;
    }
    gpu = &loader->topo->lists->gpus[from->index];
    snprintf(gpu->name, sizeof gpu->name, "nvml%d", number);
    if (*from->name) qdri_topo_copy(gpu->model, sizeof gpu->model, from->name);
    if (from->bytes) gpu->bytes = from->bytes;
    return QDR_OK;
}

/* ---- links ---- */

static int count_links(const nvml_gpu *gpu, remote what, const char *bus)
{
    int n = 0;
    for (int link = 0; link < MOST_LINKS; link++)
        n += gpu->links[link] == what && (!bus || strcmp(gpu->remote_bus[link], bus) == 0);
    return n;
}

static qdr_status take_pair(topo_loader *loader, const nvml_library *nvml, const nvml_gpu *a, const nvml_gpu *b)
{
    const qdr_topo_gpu_link *known = qdri_topo_find_link(loader->topo, a->index, b->index);
    qdr_topo_gpu_link link = {.a = a->index, .b = b->index};
    int peer_status = 0;
    const int n_direct = count_links(a, GPU, b->bus);
    const int n_a = count_links(a, SWITCH, NULL), n_b = count_links(b, SWITCH, NULL);
    if (n_direct) {
        link.link = QDR_LINK_NVLINK;
        link.n_hops = 1;
        link.rate = n_direct * a->link_rate;
    } else if (n_a && n_b) {
        const double rate_a = n_a * a->link_rate, rate_b = n_b * b->link_rate;
        link.link = QDR_LINK_NVSWITCH;
        link.n_hops = 2;
        link.rate = rate_a < rate_b ? rate_a : rate_b;
    } else if (known) {
        link = *known;
    } else { /* If hwloc sees no PCI (in some containers), NVML reports the distance of two GPUs. */
        int level = LEVEL_UNKNOWN;
        const int is_known = nvml->ancestor && a->device && b->device &&
                             nvml->ancestor(a->device, b->device, &level) == 0;
        if (!is_known || level < 0) return QDR_OK;
        link.link = level <= LEVEL_SWITCH ? QDR_LINK_PCI : level <= LEVEL_NODE ? QDR_LINK_NUMA : QDR_LINK_NODE;
    }
    const int is_known = nvml->peer && a->device && b->device &&
                         nvml->peer(a->device, b->device, P2P_READ, &peer_status) == 0;
    link.peer = is_known ? peer_status == 0 : -1;
    return qdri_topo_set_link(loader, &link);
}

static qdr_status take_all(topo_loader *loader, nvml_library *nvml)
{
    QDR_TRY(QDRI_NEW(nvml->n, "GPUs of NVML", &nvml->gpus));
    for (int i = 0; i < nvml->n; i++) {
        read_gpu(nvml, i, &nvml->gpus[i]);
        QDR_TRY(take_gpu(loader, i, &nvml->gpus[i]));
    }
    /* A link to a PCI address without a GPU ends in a switch. */
    for (int i = 0; i < nvml->n; i++) {
        nvml_gpu *gpu = &nvml->gpus[i];
        for (int link = 0; link < MOST_LINKS; link++) {
            int is_gpu = 0;
            for (int j = 0; j < nvml->n; j++) is_gpu |= strcmp(gpu->remote_bus[link], nvml->gpus[j].bus) == 0;
            if (gpu->links[link] == GPU && !is_gpu) gpu->links[link] = SWITCH;
        }
    }
    for (int i = 0; i < nvml->n; i++) {
        const nvml_gpu *gpu = &nvml->gpus[i];
        loader->topo->lists->gpus[gpu->index].host_rate = gpu->link_rate * count_links(gpu, HOST, NULL);
        for (int j = i + 1; j < nvml->n; j++) QDR_TRY(take_pair(loader, nvml, gpu, &nvml->gpus[j]));
    }
    return QDR_OK;
}

qdr_status qdri_topo_load_nvml(topo_loader *loader)
{
    qdr_topo *topo = loader->topo;
    nvml_library nvml = {.handle = NULL};
    if (!topo->is_this_machine) {
        snprintf(topo->gpu_source, sizeof topo->gpu_source, "as hwloc recorded them");
        return QDR_OK;
    }
    if (!open_library(&nvml, topo->gpu_source, sizeof topo->gpu_source)) return QDR_OK;
    const qdr_status status = take_all(loader, &nvml);
    free(nvml.gpus);
    nvml.shutdown();
    dlclose(nvml.handle);
    return status;
}
