/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and opening the CUDA plugin, and its information about this machine's GPUs. */
#include "dev/plugin.h"

#include <ctype.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "core/environment.h"
#include "core/log.h"
#include "core/self.h"
#include "core/sized.h"

#define PLUGIN_FILE "libquadrille_cuda.so"
enum { PATH_BYTES = QDRI_FOLDER_BYTES };

/* Opened once; all calls get the same result, or the same error message. */
static struct {
    qdr_status status;
    const qdri_plugin *plugin; /* NULL: none */
    char sentence[QDRI_ERROR_BYTES];
} opened;

/* Possible locations, in search order. */
typedef struct locations {
    int n;
    char paths[3][PATH_BYTES];
} locations;

static void add_location(locations *p, const char *folder)
{
    char *path = p->paths[p->n];
    snprintf(path, PATH_BYTES, "%.*s" PLUGIN_FILE, PATH_BYTES - 32, folder);
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->paths[i], path) == 0) return;
    p->n++;
}

/* Opens the first file that can be opened; otherwise returns NULL, and the loader's message about the first one that
 * exists, or "" if none does. */
static void *open_library(const locations *p, char *why, size_t capacity)
{
    *why = '\0';
    for (int i = 0; i < p->n; i++) {
        void *library = dlopen(p->paths[i], RTLD_NOW | RTLD_LOCAL);
        if (library) return library;
        const char *path = p->paths[i], *said = dlerror();
        if (*why || !said) continue;
        /* The loader's message about a missing file begins with the given name. */
        const int is_found = strchr(path, '/') ? access(path, F_OK) == 0 : strncmp(said, path, strlen(path)) != 0;
        if (is_found) snprintf(why, capacity, "%s", said);
    }
    return NULL;
}

static qdr_status find_plugin(const qdri_plugin **plugin)
{
    const char *named = qdri_environment_text(QDRI_VARIABLE_CUDA_PLUGIN);
    locations p = {0};
    char folder[PATH_BYTES], why[256];
    size_t length = 0;
    if (named) {
        snprintf(p.paths[p.n++], PATH_BYTES, "%s", named);
    } else {
        qdri_own_folder(folder, sizeof folder);
        add_location(&p, folder);
        add_location(&p, QDRI_LIB_DIR "/");
        add_location(&p, ""); /* the loader's own, LD_LIBRARY_PATH among them */
    }
    void *library = open_library(&p, why, sizeof why);
    if (!library && !*why) {
        for (int i = 0; i < p.n && length < sizeof why; i++)
            length += (size_t)snprintf(why + length, sizeof why - length, "%s%s", i ? ", " : "", p.paths[i]);
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "cuda: the plugin was not found (looked for %s); build Quadrille with nvcc, cublasLt and NCCL "
                        "installed, name the file in QDR_CUDA_PLUGIN, or use the CPU",
                        why);
    }
    if (!library)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "cuda: the plugin exists but cannot be loaded (%s); add the folders of the CUDA and NCCL "
                        "libraries to LD_LIBRARY_PATH, name another plugin in QDR_CUDA_PLUGIN, or use the CPU",
                        why);
    *plugin = dlsym(library, QDRI_PLUGIN_SYMBOL);
    if (*plugin && strcmp((*plugin)->build, QDRI_PLUGIN_BUILD) == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                    "cuda: the plugin " PLUGIN_FILE " is of build \"%s\", this library of \"%s\"; "
                    "install both from one build",
                    *plugin ? (*plugin)->build : "unknown", QDRI_PLUGIN_BUILD);
}

static void open_once(void)
{
    void *nccl = dlopen("libnccl.so.2", RTLD_LAZY | RTLD_NOLOAD);
    const qdri_plugin_host host = {
        .last_error = qdri_last_error_buffer, .log = qdri_log_function(), .had_nccl = nccl != NULL};
    const qdri_plugin *plugin = NULL;
    if (nccl) dlclose(nccl);
    opened.status = find_plugin(&plugin);
    if (opened.status != QDR_OK) {
        snprintf(opened.sentence, sizeof opened.sentence, "%s", qdr_last_error());
        return;
    }
    plugin->connect(&host);
    opened.plugin = plugin;
}

qdr_status qdri_plugin_open(const qdri_plugin **plugin)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_once);
    *plugin = opened.plugin;
    if (opened.status != QDR_OK) qdri_set_last_error(opened.sentence);
    return opened.status;
}

qdr_status qdri_dev_create_cuda(int gpu, int node_rank, qdri_dev **dev)
{
    const qdri_plugin *plugin;
    qdri_cuda_versions versions;
    qdri_cuda_opts opts = {0};
    int attention = 0, fuses_gelu = 0; /* the words of each variable are in the order of the member's values */
    *dev = NULL;
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_ATTENTION, &attention));
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_CUDA_MEMORY, &opts.is_managed));
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_FUSE_GELU, &fuses_gelu));
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_TF32, &opts.tf32));
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_NVTX, &opts.ranges));
    opts.attention = (qdri_attention_choice)attention;
    opts.no_gelu = !fuses_gelu;
    QDR_TRY(qdri_plugin_open(&plugin));
    QDR_TRY(plugin->find_versions(&versions));
    opts.number = gpu >= 0 || versions.n_gpus == 0 ? gpu : node_rank % versions.n_gpus;
    return plugin->dev_create(&opts, dev);
}

/* Keeps the first failure. */
static void note(qdr_gpu_report *report, qdr_status status)
{
    if (status == QDR_OK || report->status != QDR_OK) return;
    report->status = status;
    snprintf(report->sentence, sizeof report->sentence, "%s", qdr_last_error());
}

static qdr_status query_gpu(const qdri_plugin *plugin, int number, qdr_gpu *gpu)
{
    qdr_gpu found;
    *gpu = (qdr_gpu){.number = number};
    gpu->status = plugin->find_gpu(number, &found);
    if (gpu->status != QDR_OK) return gpu->status;
    *gpu = found;
    for (char *c = gpu->bus; *c; c++) *c = (char)tolower((unsigned char)*c); /* all but CUDA write it in lower case */
    return QDR_OK;
}

static void query(qdr_gpu_report *report)
{
    const qdri_plugin *plugin = NULL;
    qdri_cuda_versions versions = {0};
    note(report, qdri_plugin_open(&plugin));
    if (!plugin) return;
    const qdr_status status = plugin->find_versions(&versions);
    note(report, status);
    report->has_plugin = 1;
    report->driver = versions.driver;
    report->runtime = versions.runtime;
    report->cublaslt = (int)versions.cublaslt;
    report->nccl = versions.nccl;
    if (status != QDR_OK) return;
    if (versions.n_gpus == 0) {
        note(report, QDR_FAIL(QDR_ERR_UNSUPPORTED, "cuda: the driver is installed, but this process sees no GPU; see "
                                                   "nvidia-smi and CUDA_VISIBLE_DEVICES, or use the CPU"));
        return;
    }
    report->n_gpus = versions.n_gpus < QDR_MAX_GPUS ? versions.n_gpus : QDR_MAX_GPUS;
    for (int i = 0; i < report->n_gpus; i++) {
        qdr_gpu gpu;
        note(report, query_gpu(plugin, i, &gpu));
    }
    if (plugin->find_cudnn(&report->cudnn) != QDR_OK)
        snprintf(report->cudnn_sentence, sizeof report->cudnn_sentence, "%s", qdr_last_error());
}

qdr_status qdr_gpu_query(qdr_gpu_report *report)
{
    qdr_gpu_report own = {.status = QDR_OK};
    QDR_TRY(QDRI_CLEAR(qdr_gpu_report, report));
    query(&own);
    QDRI_GIVE(qdr_gpu_report, report, &own);
    return QDR_OK;
}

qdr_status qdr_gpu_describe(int number, qdr_gpu *gpu)
{
    const qdri_plugin *plugin = NULL;
    qdri_cuda_versions versions = {0};
    qdr_gpu own;
    QDR_TRY(QDRI_CLEAR(qdr_gpu, gpu));
    QDR_TRY(qdri_plugin_open(&plugin));
    QDR_TRY(plugin->find_versions(&versions));
    if (number < 0 || number >= versions.n_gpus || number >= QDR_MAX_GPUS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "cuda: there is no GPU %d; this process sees %d", number, versions.n_gpus);
    const qdr_status status = query_gpu(plugin, number, &own); /* is part of the answer */
    (void)status;
    QDRI_GIVE(qdr_gpu, gpu, &own);
    return QDR_OK;
}
