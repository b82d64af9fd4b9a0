/* SPDX-License-Identifier: Apache-2.0 */
/* A stand-in for libnvidia-ml.so.1, with four GPUs that are in no machine: 0 and 1 are connected by four links, 2 and 3
 * have six links to switches; 1 and 2 are under one PCI switch, 0 and 3 on two packages. FAKE_NVML=broken: its driver
 * does not work; old: it does not report the other ends of links. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct fake_pci {
    char legacy_bus[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char bus_text[32];
} fake_pci;
typedef struct fake_field {
    unsigned field, scope;
    long long timestamp, latency;
    int type, result;
    union {
        unsigned number;
        unsigned long long large;
    } value;
} fake_field;

enum { DRIVER_NOT_LOADED = 9, NOT_SUPPORTED = 3, SWITCH_BUS = 0x80 };
#define EXPORT __attribute__((visibility("default")))

static int handles[4];

static int is(const char *what)
{
    const char *mode = getenv("FAKE_NVML");
    return mode && strcmp(mode, what) == 0;
}
static int index_of(const void *device) { return (int)((const int *)device - handles); }
static void print_bus(unsigned bus, fake_pci *pci)
{
    memset(pci, 0, sizeof *pci);
    pci->domain = 0xffff;
    pci->bus = bus;
    snprintf(pci->bus_text, sizeof pci->bus_text, "0000FFFF:%02X:00.0", bus);
}

EXPORT int nvmlInit_v2(void) { return is("broken") ? DRIVER_NOT_LOADED : 0; }
EXPORT int nvmlShutdown(void) { return 0; }
EXPORT const char *nvmlErrorString(int result)
{
    return result == DRIVER_NOT_LOADED ? "Driver Not Loaded" : "Unknown Error";
}
EXPORT int nvmlSystemGetDriverVersion(char *text, unsigned capacity)
{
    snprintf(text, capacity, "1.2.3");
    return 0;
}
EXPORT int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 4;
    return 0;
}
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device)
{
    *device = &handles[index];
    return index < 4 ? 0 : NOT_SUPPORTED;
}
EXPORT int nvmlDeviceGetName(void *device, char *text, unsigned capacity)
{
    snprintf(text, capacity, "Fake %d", index_of(device));
    return 0;
}
EXPORT int nvmlDeviceGetMemoryInfo(void *device, unsigned long long memory[3])
{
    memory[0] = 1ULL << (30 + index_of(device));
    memory[1] = memory[2] = 0;
    return 0;
}
EXPORT int nvmlDeviceGetPciInfo_v3(void *device, fake_pci *pci)
{
    print_bus(0xa0u + (unsigned)index_of(device), pci);
    return 0;
}
EXPORT int nvmlDeviceGetFieldValues(void *device, int n, fake_field *fields)
{
    (void)device;
    if (n != 1 || fields->field != 90) return NOT_SUPPORTED;
    fields->type = 1;
    fields->result = 0;
    fields->value.large = 25000;
    return 0;
}
EXPORT int nvmlDeviceGetNvLinkState(void *device, unsigned link, int *is_active)
{
    if (link >= 12) return NOT_SUPPORTED;
    *is_active = index_of(device) < 2 ? link < 4 : link >= 2 && link < 8;
    return 0;
}
EXPORT int nvmlDeviceGetNvLinkRemoteDeviceType(void *device, unsigned link, int *type)
{
    (void)link;
    if (is("old")) return NOT_SUPPORTED;
    *type = index_of(device) < 2 ? 0 : 2;
    return 0;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void *device, unsigned link, fake_pci *pci)
{
    const int index = index_of(device);
    print_bus(index < 2 ? 0xa1u - (unsigned)index : SWITCH_BUS + link, pci);
    return 0;
}
EXPORT int nvmlDeviceGetTopologyCommonAncestor(void *a, void *b, int *level)
{
    const int sum = index_of(a) + index_of(b), difference = abs(index_of(a) - index_of(b));
    *level = difference == 3 ? 50 : sum == 3 ? 10 : 30;
    return 0;
}
EXPORT int nvmlDeviceGetP2PStatus(void *a, void *b, int what, int *status)
{
    *status = what == 0 && abs(index_of(a) - index_of(b)) == 1 ? 0 : 5;
    return 0;
}
