/* SPDX-License-Identifier: Apache-2.0 */
/* The facts of the node on which this process runs. */
#define _DEFAULT_SOURCE 1 /* realpath, gethostname */
#include <limits.h>
#include <quadrille/launch.h>
#include <quadrille_private/data.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "doctor/nodes.h"

/* A list in one text: items that do not fit are left out. */
typedef struct words {
    char text[FACT_BYTES];
    size_t n;
} words;

static void say(words *list, const char *item)
{
    const size_t room = sizeof list->text - list->n;
    const int length = snprintf(list->text + list->n, room, "%s%s", list->n ? ", " : "", item);
    if ((size_t)length < room)
        list->n += (size_t)length;
    else
        list->text[list->n] = '\0';
}

static void add_adapters(const qdr_topo *topo, fact_list *facts)
{
    words list = {.n = 0};
    for (int i = 0; i < topo->n_nics; i++) {
        const qdr_topo_nic *nic = qdr_topo_nic_at(topo, i);
        char item[64];
        snprintf(item, sizeof item, nic->rate > 0 ? "%s %.1f GB/s" : "%s", *nic->name ? nic->name : "unnamed",
                 nic->rate / 1e9);
        say(&list, item);
    }
    fact_set(facts, "adapters", "%s", list.n ? list.text : "none");
}

static void add_gpus(const qdr_topo *topo, fact_list *facts)
{
    words list = {.n = 0};
    for (int i = 0, next; i < topo->n_gpus; i = next) {
        char item[112];
        for (next = i + 1;
             next < topo->n_gpus && strcmp(qdr_topo_gpu_at(topo, i)->model, qdr_topo_gpu_at(topo, next)->model) == 0;)
            next++;
        snprintf(item, sizeof item, "%d x %s", next - i,
                 *qdr_topo_gpu_at(topo, i)->model ? qdr_topo_gpu_at(topo, i)->model : "unknown");
        say(&list, item);
    }
    fact_set(facts, "GPUs", "%s", list.n ? list.text : "none");
}

/* Of NVML's answer "NVML, driver 550.54.15: 8 GPUs" the version; the GPUs are a fact of their own. */
static void add_driver(const qdr_topo *topo, const qdr_gpu_report *gpus, fact_list *facts)
{
    static const char before[] = "NVML, driver ";
    char version[160] = "", cuda[32] = "";
    if (topo && strncmp(topo->gpu_source, before, sizeof before - 1) == 0)
        snprintf(version, sizeof version, "%.*s", (int)strcspn(topo->gpu_source + sizeof before - 1, ":"),
                 topo->gpu_source + sizeof before - 1);
    if (gpus->driver)
        snprintf(cuda, sizeof cuda, "%sCUDA %d.%d", *version ? ", " : "", gpus->driver / 1000,
                 gpus->driver % 1000 / 10);
    fact_set(facts, "driver", "%s%s", version, *version || *cuda ? cuda : "none");
}

static void add_shm(fact_list *facts)
{
    struct statvfs is = {.f_frsize = 0};
    const int is_there = statvfs("/dev/shm", &is) == 0;
    const double unit = is_there ? (double)is.f_frsize : 0;
    fact_set(facts, FACT_SHM, "%.0f", unit * (double)is.f_blocks);
    fact_set(facts, FACT_SHM_FREE, "%.0f", unit * (double)is.f_bavail);
}

static void add_boot(fact_list *facts)
{
    char boot[64] = "";
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (!file) return;
    if (fgets(boot, sizeof boot, file)) fact_set(facts, FACT_BOOT, "%.*s", (int)strcspn(boot, "\n"), boot);
    fclose(file);
}

/* Of a list that was cut off, without its last range, which may be cut off itself. */
static void add_threads(const qdr_topo *topo, fact_list *facts)
{
    const size_t length = strlen(topo->cpus);
    const char *comma = length + 1 == sizeof topo->cpus ? strrchr(topo->cpus, ',') : NULL;
    fact_set(facts, FACT_THREADS, "%.*s", (int)(comma ? (size_t)(comma - topo->cpus) : length), topo->cpus);
}

/* The folder in which KIND/NAME.json is found; "none". */
static void find_folder(const char *kind, const char *name, char folder[PATH_MAX])
{
    char path[PATH_MAX], whole[PATH_MAX];
    snprintf(folder, PATH_MAX, "none");
    if (qdr_data_find(kind, name, path, sizeof path) != QDR_OK || !realpath(path, whole)) return;
    for (int i = 0; i < 2; i++) {
        char *slash = strrchr(whole, '/');
        if (slash) *slash = '\0';
    }
    snprintf(folder, PATH_MAX, "%s", *whole ? whole : "/");
}

/* By one model and one machine that come with every installation. */
static void add_data_path(fact_list *facts)
{
    char models[PATH_MAX], machines[PATH_MAX];
    find_folder("models", "gpt2", models);
    find_folder("machines", "laptop", machines);
    if (strcmp(models, machines) == 0)
        fact_set(facts, "data path", "%s", models);
    else
        fact_set(facts, "data path", "models: %.200s, machines: %.200s", models, machines);
}

void doctor_collect(int is_first, fact_list *facts)
{
    qdr_gpu_report gpus = {QDR_INIT(qdr_gpu_report)};
    char host[64] = "", library[64], mpi[128];
    qdr_topo *topo = NULL;
    if (gethostname(host, sizeof host - 1) != 0) *host = '\0';
    fact_set(facts, FACT_HOST, "%s", host);
    qdr_launch_mpi_version(mpi, sizeof mpi);
    doctor_library_text(library, sizeof library);
    fact_set(facts, FACT_LIBRARY, "%s", library);
    fact_set(facts, FACT_MPI, "%s", mpi);
    const qdr_status status = qdr_topo_load(NULL, &topo);
    if (topo) add_threads(topo, facts);
    if (qdr_launched() == 0) fact_set(facts, FACT_ALONE, "yes");
    if (is_first) {
        add_boot(facts);
        add_shm(facts);
        if (status != QDR_OK) fact_set(facts, "topology", "%s", qdr_last_error());
        if (topo) {
            fact_set(facts, "memory", "%lld", (long long)topo->bytes);
            add_adapters(topo, facts);
            add_gpus(topo, facts);
        }
        if (qdr_gpu_query(&gpus) == QDR_OK) add_driver(topo, &gpus, facts);
        fact_set(facts, "NCCL", gpus.nccl ? "%d.%d.%d" : "none", gpus.nccl / 10000, gpus.nccl / 100 % 100,
                 gpus.nccl % 100);
        add_data_path(facts);
    }
    qdr_topo_destroy(&topo);
}
