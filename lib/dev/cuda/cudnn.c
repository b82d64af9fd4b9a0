/* SPDX-License-Identifier: Apache-2.0 */
/* Finding and opening cuDNN. */
#include "dev/cuda/cudnn.h"

#include <dlfcn.h>
#include <glob.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/environment.h"

#define CUDNN_FILE "libcudnn.so.9"

/* Opened once; all calls get the same result, or the same error message. */
static struct {
    qdr_status status;
    qdri_cudnn api;
    char sentence[QDRI_ERROR_BYTES];
} opened;

/* Where packages install it, below the folder named by a variable (NULL: the root). */
static const struct {
    const char *variable, *pattern;
} locations[] = {
    {"CUDA_HOME", "/lib64/" CUDNN_FILE},
    {"VIRTUAL_ENV", "/lib/python3*/site-packages/nvidia/cudnn/lib/" CUDNN_FILE},
    {"CONDA_PREFIX", "/lib/" CUDNN_FILE},
    {"CONDA_PREFIX", "/lib/python3*/site-packages/nvidia/cudnn/lib/" CUDNN_FILE},
    {"HOME", "/.local/lib/python3*/site-packages/nvidia/cudnn/lib/" CUDNN_FILE},
    {NULL, "/usr/local/lib/python3*/*-packages/nvidia/cudnn/lib/" CUDNN_FILE},
    {NULL, "/usr/lib/python3*/*-packages/nvidia/cudnn/lib/" CUDNN_FILE},
    {NULL, "/usr/local/cuda/lib*/" CUDNN_FILE},
};

/* Opens the first file that matches the pattern and can be opened. */
static void *open_pattern(const char *variable, const char *pattern)
{
    char path[1024];
    glob_t files;
    void *library = NULL;
    const char *folder = variable ? getenv(variable) : "";
    if (!folder || (variable && !*folder)) return NULL;
    snprintf(path, sizeof path, "%.800s%s", folder, pattern);
    if (glob(path, 0, NULL, &files) != 0) return NULL;
    for (size_t i = 0; i < files.gl_pathc && !library; i++) library = dlopen(files.gl_pathv[i], RTLD_NOW | RTLD_LOCAL);
    globfree(&files);
    return library;
}

/* Wherever there is a dlsym, pointers to functions and to data have the same representation. */
_Static_assert(sizeof(void *) == sizeof(void (*)(void)), "dlsym gives functions as data");

static int find_functions(void *library, qdri_cudnn *api)
{
    const struct {
        const char *name;
        void *pointer;
    } functions[] = {
        {"cudnnGetVersion", &api->get_version},
        {"cudnnCreate", &api->create},
        {"cudnnDestroy", &api->destroy},
        {"cudnnSetStream", &api->set_stream},
        {"cudnnGetErrorString", &api->error_string},
        {"cudnnBackendCreateDescriptor", &api->desc_create},
        {"cudnnBackendDestroyDescriptor", &api->desc_destroy},
        {"cudnnBackendSetAttribute", &api->desc_set},
        {"cudnnBackendGetAttribute", &api->desc_get},
        {"cudnnBackendFinalize", &api->desc_finalize},
        {"cudnnBackendExecute", &api->execute},
    };
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = dlsym(library, functions[i].name);
        if (!function) return 0;
        memcpy(functions[i].pointer, &function, sizeof function);
    }
    api->version = api->get_version();
    return 1;
}

static qdr_status find_library(qdri_cudnn *api)
{
    char what[320];
    const char *named = qdri_environment_text(QDRI_VARIABLE_CUDNN);
    void *library = dlopen(named ? named : CUDNN_FILE, RTLD_NOW | RTLD_LOCAL);
    const char *why = library ? NULL : dlerror();
    snprintf(what, sizeof what, "%.300s", why ? why : "");
    for (size_t i = 0; !library && !named && i < sizeof locations / sizeof *locations; i++)
        library = open_pattern(locations[i].variable, locations[i].pattern);
    if (!library)
        return QDR_FAIL(QDR_ERR_UNSUPPORTED,
                        "cuDNN: " CUDNN_FILE " cannot be loaded (%s); name the file in QDR_CUDNN, "
                        "or install cuDNN 9 or PyTorch",
                        what);
    if (!find_functions(library, api))
        return QDR_FAIL(QDR_ERR_UNSUPPORTED, "cuDNN: what was loaded as " CUDNN_FILE " lacks a function of its backend "
                                             "API; name another in QDR_CUDNN");
    if (api->version < QDRI_CUDNN_LEAST || api->version >= 100000)
        return QDR_FAIL(
            QDR_ERR_UNSUPPORTED,
            "cuDNN: the library has version %zu.%zu.%zu, but 9.16 to 9.99 are supported; name another in QDR_CUDNN",
            api->version / 10000, api->version / 100 % 100, api->version % 100);
    return QDR_OK;
}

static void open_once(void)
{
    opened.status = find_library(&opened.api);
    if (opened.status != QDR_OK) snprintf(opened.sentence, sizeof opened.sentence, "%s", qdr_last_error());
}

qdr_status qdri_cudnn_open(const qdri_cudnn **api)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, open_once);
    *api = opened.status == QDR_OK ? &opened.api : NULL;
    if (opened.status != QDR_OK) qdri_set_last_error(opened.sentence);
    return opened.status;
}
