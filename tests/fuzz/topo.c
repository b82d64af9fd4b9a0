/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a machine recorded by hwloc: refused with one printable message, or accepted; then every index in
 * the tables is valid. */
#define _DEFAULT_SOURCE /* MAP_ANONYMOUS */
#include <hwloc.h>
#include <math.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "core/status.h"
#include "fuzz.h"
#include "topo/machine.h"

enum { MEMORY_BYTES = 384 << 20 };

static void check_index(int index, int n) { require(index >= -1 && index < n); }

static void check_rate(double rate) { require(isfinite(rate) && rate >= 0); }

static void check_cores(const qdr_topo *topo)
{
    for (int i = 0; i < topo->n_numas; i++) {
        check_index(topo->lists->numas[i].package, topo->n_packages);
        require(topo->lists->numas[i].bytes >= 0 && topo->lists->numas[i].n_cores >= 0);
    }
    for (int i = 0; i < topo->n_cores; i++) {
        check_index(topo->lists->cores[i].package, topo->n_packages);
        check_index(topo->lists->cores[i].numa, topo->n_numas);
        check_index(topo->lists->cores[i].cache, topo->n_caches);
        require(topo->lists->cores[i].n_threads > 0);
    }
}

static void check_devices(const qdr_topo *topo)
{
    for (int i = 0; i < topo->n_gpus; i++) {
        check_index(topo->lists->gpus[i].package, topo->n_packages);
        check_index(topo->lists->gpus[i].numa, topo->n_numas);
        check_rate(topo->lists->gpus[i].pci_rate);
        check_rate(topo->lists->gpus[i].host_rate);
        require(memchr(topo->lists->gpus[i].model, '\0', sizeof topo->lists->gpus[i].model) != NULL);
    }
    for (int i = 0; i < topo->n_gpu_links; i++) {
        const qdr_topo_gpu_link *link = &topo->lists->gpu_links[i];
        require(link->a >= 0 && link->a < link->b && link->b < topo->n_gpus);
        check_rate(link->rate);
    }
    for (int i = 0; i < topo->n_nics; i++) {
        check_index(topo->lists->nics[i].package, topo->n_packages);
        check_index(topo->lists->nics[i].numa, topo->n_numas);
        check_rate(topo->lists->nics[i].pci_rate);
    }
}

/* hwloc 2.9 itself crashes on some files that are well-formed and make no sense. Such inputs are counted, and do not
 * fail: ours is what runs once hwloc has taken the file. So a process of its own reads the inputs, and is replaced when
 * it dies. */
static struct reader {
    pid_t process; /* 0: none */
    int asks, answers; /* a byte for each input, and for each one that was read */
} reader;
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
    if (qdr_topo_load(&(qdr_topo_opts){QDR_INIT(qdr_topo_opts), .xml = path}, &topo) != QDR_OK) {
        require(topo == NULL);
        check_line(qdr_last_error());
        return;
    }
    check_cores(topo);
    check_devices(topo);
    qdr_topo_destroy(&topo);
}

static double processor_secs(void)
{
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* hwloc would spend its time on bitmaps of gigabytes for processors with numbers near 2^32. */
static void limit_memory(void)
{
    long n_pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    require(file && fscanf(file, "%ld", &n_pages) == 1 && fclose(file) == 0);
    const rlim_t n_bytes = (rlim_t)n_pages * (rlim_t)sysconf(_SC_PAGESIZE) + MEMORY_BYTES;
    require(setrlimit(RLIMIT_AS, &(struct rlimit){n_bytes, n_bytes}) == 0);
}

static void read_inputs(const char *path, int asks, int answers)
{
    char byte;
    limit_memory();
    signal(SIGABRT, SIG_DFL);
    signal(SIGSEGV, SIG_DFL);
    setenv("HWLOC_HIDE_ERRORS", "2", 1);
    while (read(asks, &byte, 1) == 1) {
        *hwloc_has_loaded = 0;
        load_with_hwloc_alone(path);
        const double began = processor_secs();
        load(path);
        require(processor_secs() - began < 1);
        require(write(answers, &byte, 1) == 1);
    }
    _exit(0);
}

static void start_reader(const char *path)
{
    int asks[2], answers[2];
    require(pipe(asks) == 0 && pipe(answers) == 0);
    reader = (struct reader){fork(), asks[1], answers[0]};
    require(reader.process >= 0);
    if (reader.process == 0) {
        close(asks[1]);
        close(answers[0]);
        read_inputs(path, asks[0], answers[1]);
    }
    close(asks[0]);
    close(answers[1]);
}

static void end_reader(void)
{
    if (!reader.process) return;
    close(reader.asks);
    close(reader.answers);
    require(waitpid(reader.process, NULL, 0) == reader.process);
    reader.process = 0;
}

/* Whether the input was read. */
static int read_input(const char *path)
{
    char byte = 0;
    if (!reader.process) start_reader(path);
    if (write(reader.asks, &byte, 1) == 1 && read(reader.answers, &byte, 1) == 1) return 1;
    end_reader();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const char *path = fuzz_file(bytes, n_bytes, ".xml");
    if (!hwloc_has_loaded) {
        hwloc_has_loaded = mmap(NULL, sizeof *hwloc_has_loaded, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                                0);
        require(hwloc_has_loaded != MAP_FAILED);
        atexit(print_crashes_of_hwloc);
        atexit(end_reader);
    }
    if (read_input(path)) return 0;
    /* Once more in a new process: hwloc may have spoiled the memory of the first with an earlier input. */
    if (!read_input(path)) require(!*hwloc_has_loaded);
    n_crashes_of_hwloc++;
    return 0;
}
