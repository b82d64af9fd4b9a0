/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a machine recorded by hwloc: refused with one printable message, or accepted; then every index in
 * the tables is valid. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <hwloc.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "core/status.h"
#include "fuzz.h"
#include "quadrille/topo.h"

static void check_index(int index, int n) { require(index >= -1 && index < n); }

static void check_rate(double rate) { require(isfinite(rate) && rate >= 0); }

static void check_cores(const qdr_topo *topo)
{
    for (int i = 0; i < topo->n_numas; i++) {
        check_index(topo->numas[i].package, topo->n_packages);
        require(topo->numas[i].bytes >= 0 && topo->numas[i].n_cores >= 0);
    }
    for (int i = 0; i < topo->n_cores; i++) {
        check_index(topo->cores[i].package, topo->n_packages);
        check_index(topo->cores[i].numa, topo->n_numas);
        check_index(topo->cores[i].cache, topo->n_caches);
        require(topo->cores[i].n_threads > 0);
    }
}

static void check_devices(const qdr_topo *topo)
{
    for (int i = 0; i < topo->n_gpus; i++) {
        check_index(topo->gpus[i].package, topo->n_packages);
        check_index(topo->gpus[i].numa, topo->n_numas);
        check_rate(topo->gpus[i].pci_rate);
        check_rate(topo->gpus[i].host_rate);
        require(memchr(topo->gpus[i].model, '\0', sizeof topo->gpus[i].model) != NULL);
    }
    for (int i = 0; i < topo->n_gpu_links; i++) {
        const qdr_topo_gpu_link *link = &topo->gpu_links[i];
        require(link->a >= 0 && link->a < link->b && link->b < topo->n_gpus);
        check_rate(link->rate);
    }
    for (int i = 0; i < topo->n_nics; i++) {
        check_index(topo->nics[i].package, topo->n_packages);
        check_index(topo->nics[i].numa, topo->n_numas);
        check_rate(topo->nics[i].pci_rate);
    }
}

/* hwloc 2.9 itself crashes on some files that are well-formed and make no sense. Such inputs are counted, and do not
 * fail: ours is what runs once hwloc has taken the file. */
static int n_crashes_of_hwloc, *hwloc_has_loaded;

static void print_crashes_of_hwloc(void) { printf("hwloc itself crashed on %d inputs\n", n_crashes_of_hwloc); }

static void load_with_hwloc_alone(const char *path)
{
    hwloc_topology_t topology;
    require(hwloc_topology_init(&topology) == 0);
    hwloc_topology_set_all_types_filter(topology, HWLOC_TYPE_FILTER_KEEP_ALL);
    if (hwloc_topology_set_xml(topology, path) == 0) (void)hwloc_topology_load(topology);
    hwloc_topology_destroy(topology);
    *hwloc_has_loaded = 1;
}

static void load(const char *path)
{
    qdr_topo *topo = NULL;
    qdri_set_last_error("");
    if (qdr_topo_load(&(qdr_topo_opts){QDR_OPTS_INIT, .xml = path}, &topo) != QDR_OK) {
        require(topo == NULL);
        check_line(qdr_last_error());
        return;
    }
    check_cores(topo);
    check_devices(topo);
    qdr_topo_destroy(&topo);
}

static void run_child(const char *path)
{
    signal(SIGABRT, SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    setenv("HWLOC_HIDE_ERRORS", "2", 1);
    load_with_hwloc_alone(path);
    load(path);
    _exit(0);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const char *path = fuzz_file(bytes, n_bytes, ".xml");
    int status = 0;
    if (!hwloc_has_loaded) {
        hwloc_has_loaded = mmap(NULL, sizeof *hwloc_has_loaded, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                                0);
        require(hwloc_has_loaded != MAP_FAILED);
        atexit(print_crashes_of_hwloc);
    }
    *hwloc_has_loaded = 0;
    const pid_t child = fork();
    if (child == 0) run_child(path);
    require(child > 0 && waitpid(child, &status, 0) == child);
    if (*hwloc_has_loaded)
        require(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    else
        n_crashes_of_hwloc++;
    return 0;
}
