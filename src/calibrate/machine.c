/* SPDX-License-Identifier: Apache-2.0 */
/* The machine before anything is measured: its name, device, memory and links; and, of what a run does not measure, the
 * constants of another machine. */
#include <quadrille/cuda.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "calibrate/calibrate.h"

static void add_link(qdr_machine *machine, const char *name, int n_ranks)
{
    qdr_machine_link *link = &machine->links[machine->n_links++];
    *link = (qdr_machine_link){.n_ranks = n_ranks, .step_secs = 1e-5};
    snprintf(link->name, sizeof link->name, "%s", name);
    if (machine->n_links == 1) {
        link->rank_bytes_per_sec = 1e9;
        return;
    }
    link->n_adapters = 1;
    link->adapter_bytes_per_sec = 1e8;
}

/* Levels of links: inside nodes if they have several ranks, and between nodes. CPUs communicate level by level, as in
 * lib/comm, and GPUs by NCCL. */
static void begin_anew(calibration *c)
{
    qdr_machine *machine = &c->machine;
    *machine = (qdr_machine){QDR_INIT(qdr_machine), .ranks_per_node = c->ranks_per_node, .memory_bytes_per_sec = 1e10,
                             .memory_efficiency = 1, .f32 = {.peak_flops = 1e10}};
    qdr_machine_products *types[] = {&machine->f64, &machine->f32, &machine->bf16};
    for (int i = 0; i < 3; i++) {
        types[i]->most = types[i]->odd_factor = 1;
        for (int mode = 0; mode < 3; mode++) types[i]->factor[mode] = 1;
    }
    machine->collectives.by_level = !c->is_on_gpu;
    machine->collectives.has_tree = c->is_on_gpu;
    machine->collectives.n_protocols = 1;
    machine->collectives.protocols[0] = (qdr_machine_protocol){.step_factor = 1, .rate_factor = 1};
    c->begins_links = 1;
    if (c->n_nodes == 1 || c->ranks_per_node > 1) add_link(machine, "node", c->n_nodes > 1 ? c->ranks_per_node : 0);
    if (c->n_nodes > 1) add_link(machine, "network", 0);
}

/* The file's name without its folder and ".json". */
static void take_name(qdr_machine *machine, const char *name, const char *path)
{
    const char *slash = strrchr(path, '/');
    snprintf(machine->name, QDR_MAX_NAME, "%s", name ? name : slash ? slash + 1 : path);
    char *end = strrchr(machine->name, '.');
    if (!name && end && strcmp(end, ".json") == 0) *end = 0;
}

/* The processor's name in Linux, and a rank's share of the memory. */
static void find_processor(calibration *c)
{
    char line[256];
    FILE *file = fopen("/proc/cpuinfo", "r");
    snprintf(c->machine.device, QDR_MAX_NAME, "CPU");
    while (file && fgets(line, sizeof line, file)) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) != 0 || !colon) continue;
        line[strcspn(line, "\n")] = 0;
        snprintf(c->machine.device, QDR_MAX_NAME, "%.60s", colon + 2);
        break;
    }
    if (file) fclose(file);
    const double pages = (double)sysconf(_SC_PHYS_PAGES), page = (double)sysconf(_SC_PAGESIZE);
    c->machine.memory_bytes = pages * page / c->ranks_per_node;
}

/* Rank 0 asks for all: asking takes memory on each GPU. */
int calibrate_find_gpu(const calibration *c, qdr_gpu *gpu, failure *why)
{
    *gpu = (qdr_gpu){QDR_INIT(qdr_gpu)};
    if (qdr_context_rank(c->ctx) == 0 && !fail_status(why, qdr_gpu_describe(qdr_context_gpu(c->ctx), gpu)))
        fail_status(why, gpu->status);
    return fail_together(why, c->ctx) ? why->code : fail_status(why, qdr_broadcast(c->ctx, 0, gpu, sizeof *gpu));
}

int calibrate_begin(calibration *c, const qdr_machine *base, const char *name, const char *path, failure *why)
{
    if (base->n_links)
        c->machine = *base;
    else
        begin_anew(c);
    /* One rank says nothing of nodes. */
    if (base->n_links && qdr_context_size(c->ctx) > 1)
        fail_status(why, qdr_machine_set_ranks_per_node(&c->machine, c->ranks_per_node));
    c->machine.is_gpu = c->is_on_gpu;
    /* What is fitted to products has no tiles. */
    c->machine.n_units = 1;
    c->machine.wave_power = 1;
    c->machine.n_tiles = 0;
    if (c->is_on_gpu && !base->n_links) {
        c->machine.software.host_power = GPU_HOST_POWER;
        c->machine.processor_slowdown = GPU_PROCESSOR_SLOWDOWN;
        c->machine.transfer_slowdown = GPU_TRANSFER_SLOWDOWN;
    }
    take_name(&c->machine, name, path);
    if (why->code) return why->code;
    if (!c->is_on_gpu) {
        find_processor(c);
        return EXIT_OK;
    }
    qdr_gpu gpu = {QDR_INIT(qdr_gpu)};
    if (calibrate_find_gpu(c, &gpu, why)) return why->code;
    snprintf(c->machine.device, QDR_MAX_NAME, "%.63s", gpu.name);
    c->machine.memory_bytes = (double)gpu.bytes;
    return EXIT_OK;
}
