/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and opening the CUDA plugin. */
#include "dev/plugin.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "config.h"
#include "core/environment.h"
#include "core/log.h"
#include "core/self.h"

#define PLUGIN_FILE "libquadrille_cuda.so"
enum { PATH_BYTES = QDRI_FOLDER_BYTES };

/* Opened once; all calls get the same result, or the same error message. */
static struct {
    qdr_status status;
    const qdri_plugin *plugin; /* NULL: none */
    char sentence[QDRI_ERROR_BYTES];
} opened;

/* Possible locations, in search order. */
typedef struct places {
    int n;
    char paths[3][PATH_BYTES];
} places;

static void add_place(places *p, const char *folder)
{
    char *path = p->paths[p->n];
    snprintf(path, PATH_BYTES, "%.*s" PLUGIN_FILE, PATH_BYTES - 32, folder);
    for (int i = 0; i < p->n; i++)
        if (strcmp(p->paths[i], path) == 0) return;
    p->n++;
}

static void list_places(places *p)
{
    char folder[PATH_BYTES];
    const char *path = qdri_environment_text(QDRI_VARIABLE_CUDA_PLUGIN);
    p->n = path != NULL;
    if (p->n > 0) {
        snprintf(p->paths[0], PATH_BYTES, "%s", path);
        return;
    }
    qdri_own_folder(folder, sizeof folder);
    add_place(p, folder);
    add_place(p, QDRI_LIB_DIR "/");
    add_place(p, ""); /* the loader's own, LD_LIBRARY_PATH among them */
}

/* Opens the first file that can be opened; otherwise returns NULL, and the loader's message about the first one that
 * exists, or "" if none does. */
static void *open_library(const places *p, char *why, size_t capacity)
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
    places p;
    char why[256];
    size_t length = 0;
    list_places(&p);
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
    const qdri_plugin_host host = {.last_error = qdri_last_error_place, .log = qdri_log_function()};
    const qdri_plugin *plugin = NULL;
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
    enum { CUDNN = 2 }; /* the words of each variable are in the order of the member's values */
    int attention = 0, fuses_gelu = 0;
    *dev = NULL;
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_ATTENTION, &attention));
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_CUDA_MEMORY, &opts.is_managed));
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_FUSE_GELU, &fuses_gelu));
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_TF32, &opts.tf32));
    QDR_TRY(qdri_environment_choice(QDRI_VARIABLE_NVTX, &opts.ranges));
    opts.wants_cudnn = attention == CUDNN; /* auto: own kernels, until cuDNN's are measured to be faster */
    opts.no_gelu = !fuses_gelu;
    QDR_TRY(qdri_plugin_open(&plugin));
    QDR_TRY(plugin->find_versions(&versions));
    opts.number = gpu >= 0 || versions.n_gpus == 0 ? gpu : node_rank % versions.n_gpus;
    return plugin->dev_create(&opts, dev);
}
