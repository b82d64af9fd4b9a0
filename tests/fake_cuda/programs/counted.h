/* SPDX-License-Identifier: Apache-2.0 */
/* Counters of the plugin's fake (fake.h). */
#ifndef FAKE_CUDA_PROGRAMS_COUNTED_H
#define FAKE_CUDA_PROGRAMS_COUNTED_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

/* @return -1: the plugin is not on a fake, or not loaded */
static inline int64_t counted(const char *what)
{
    int64_t (*ask)(const char *what) = NULL;
    void *plugin = dlopen(getenv("QDR_CUDA_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);
    if (plugin) *(void **)&ask = dlsym(plugin, "fake_counted");
    const int64_t n = ask ? ask(what) : -1;
    if (plugin) dlclose(plugin);
    return n;
}

/* Bytes of the GPU's memory that were in use at most. */
static inline size_t bytes_peak(int gpu)
{
    size_t (*ask)(int gpu) = NULL;
    void *plugin = dlopen(getenv("QDR_CUDA_PLUGIN"), RTLD_NOW | RTLD_NOLOAD);
    if (plugin) *(void **)&ask = dlsym(plugin, "fake_bytes_peak");
    const size_t bytes = ask ? ask(gpu) : 0;
    if (plugin) dlclose(plugin);
    return bytes;
}

#endif
