/* SPDX-License-Identifier: Apache-2.0 */
/* Calls NVML through function pointers. Its types and constants are copied from nvml.h; they are stable, because NVML
 * introduces a new name for each change. */
#include "topo/nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/size.h"

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

struct nvml_library {
    void *handle;
    int n_devices;
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
};

/* ---- opening ---- */

typedef struct named_function {
    const char *name;
    size_t offset; /* of its function pointer */
    int is_needed;
} named_function;

#define FUNCTION(member, text, is_needed)                                                                              \
    {                                                                                                                  \
        text, offsetof(nvml_library, member), is_needed                                                                \
    }
static const named_function functions[] = {
    FUNCTION(init, "nvmlInit_v2", 1),
    FUNCTION(shutdown, "nvmlShutdown", 1),
    FUNCTION(error_text, "nvmlErrorString", 0),
    FUNCTION(driver, "nvmlSystemGetDriverVersion", 0),
    FUNCTION(count, "nvmlDeviceGetCount_v2", 1),
    FUNCTION(by_index, "nvmlDeviceGetHandleByIndex_v2", 1),
    FUNCTION(name, "nvmlDeviceGetName", 0),
    FUNCTION(memory, "nvmlDeviceGetMemoryInfo", 0),
    FUNCTION(pci, "nvmlDeviceGetPciInfo_v3", 0),
    FUNCTION(fields, "nvmlDeviceGetFieldValues", 0),
    FUNCTION(link_state, "nvmlDeviceGetNvLinkState", 0),
    FUNCTION(remote_type, "nvmlDeviceGetNvLinkRemoteDeviceType", 0),
    FUNCTION(remote_pci, "nvmlDeviceGetNvLinkRemotePciInfo_v2", 0),
    FUNCTION(ancestor, "nvmlDeviceGetTopologyCommonAncestor", 0),
    FUNCTION(peer, "nvmlDeviceGetP2PStatus", 0),
};
enum { N_FUNCTIONS = sizeof functions / sizeof *functions };

/* POSIX allows converting a data pointer to a function pointer, C does not: so it is copied as bytes. */
static int find_functions(nvml_library *nvml)
{
    for (int i = 0; i < N_FUNCTIONS; i++) {
        void *found = dlsym(nvml->handle, functions[i].name);
        if (!found && functions[i].is_needed) return 0;
        memcpy((char *)nvml + functions[i].offset, &found, sizeof found);
    }
    return 1;
}

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
    nvml->n_devices = (int)n;
    snprintf(said, capacity, "NVML, driver %s: %u GPU%s", driver, n, n == 1 ? "" : "s");
    return 1;
}

nvml_library *qdri_nvml_open(char *said, size_t capacity)
{
    nvml_library *nvml = NULL;
    void *handle = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    snprintf(said, capacity, "NVML (libnvidia-ml.so.1) is not installed");
    if (!handle) return NULL;
    snprintf(said, capacity, "NVML (libnvidia-ml.so.1) lacks functions");
    if (QDRI_NEW(1, "NVML", &nvml) == QDR_OK) {
        nvml->handle = handle;
        if (find_functions(nvml) && start(nvml, said, capacity)) return nvml;
    }
    free(nvml);
    dlclose(handle);
    return NULL;
}

void qdri_nvml_close(nvml_library *nvml)
{
    if (!nvml) return;
    nvml->shutdown();
    dlclose(nvml->handle);
    free(nvml);
}

int qdri_nvml_count(const nvml_library *nvml) { return nvml->n_devices; }

/* ---- GPUs ---- */

static int device_at(const nvml_library *nvml, int index, nvml_device *device)
{
    *device = NULL;
    return nvml->by_index((unsigned)index, device) == 0;
}

/* "00000000:34:00.0" as "0000:34:00.0", in lower case. */
static void copy_bus(const nvml_pci *pci, char bus[24])
{
    snprintf(bus, 24, "%04x:%02x:%02x.0", pci->domain & 0xffffu, pci->bus & 0xffu, pci->device & 0xffu);
}

static double link_rate(const nvml_library *nvml, nvml_device device)
{
    nvml_field field = {.field = FIELD_LINK_MBYTES};
    if (!nvml->fields || nvml->fields(device, 1, &field) != 0 || field.result != 0 || field.type != FIELD_TYPE_UNSIGNED)
        return 0;
    return 1e6 * field.value.number;
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
        gpu->links[link] = type == REMOTE_HOST ? NVML_HOST : NVML_SWITCH;
        return;
    }
    if (!nvml->remote_pci || nvml->remote_pci(device, link, &pci) != 0) return;
    gpu->links[link] = NVML_GPU;
    copy_bus(&pci, gpu->remote_bus[link]);
}

void qdri_nvml_read(const nvml_library *nvml, int index, nvml_gpu *gpu)
{
    nvml_device device;
    nvml_memory memory = {0};
    nvml_pci pci = {.domain = 0};
    memset(gpu, 0, sizeof *gpu);
    if (!device_at(nvml, index, &device)) return;
    if (nvml->name && nvml->name(device, gpu->name, sizeof gpu->name) != 0) gpu->name[0] = '\0';
    if (nvml->memory && nvml->memory(device, &memory) == 0) gpu->bytes = (int64_t)memory.total;
    if (nvml->pci && nvml->pci(device, &pci) == 0) copy_bus(&pci, gpu->bus);
    if (!nvml->link_state) return;
    gpu->link_rate = link_rate(nvml, device);
    for (unsigned link = 0; link < QDRI_NVML_LINKS; link++) read_link(nvml, device, link, gpu);
}

int qdri_nvml_level(const nvml_library *nvml, int a, int b)
{
    nvml_device left, right;
    int level = NVML_LEVEL_UNKNOWN;
    if (!nvml->ancestor || !device_at(nvml, a, &left) || !device_at(nvml, b, &right)) return level;
    return nvml->ancestor(left, right, &level) == 0 ? level : NVML_LEVEL_UNKNOWN;
}

int qdri_nvml_peer(const nvml_library *nvml, int a, int b)
{
    nvml_device left, right;
    int status = 0;
    if (!nvml->peer || !device_at(nvml, a, &left) || !device_at(nvml, b, &right)) return -1;
    return nvml->peer(left, right, P2P_READ, &status) == 0 ? status == 0 : -1;
}
