/* SPDX-License-Identifier: Apache-2.0 */
/* Functions of the plugin's fake (fake.h). */
#ifndef FAKE_CUDA_PROGRAMS_SERVED_H
#define FAKE_CUDA_PROGRAMS_SERVED_H

#include <dlfcn.h>
#include <stdint.h>
#include <stdlib.h>

/* Sets *function, a pointer to one. Ends the program if the plugin is not on a fake. */
static inline void find_function(const char *name, void *function)
{
    void *plugin = dlopen(getenv("QDR_CUDA_PLUGIN"), RTLD_NOW | RTLD_NODELETE);
    void *found = plugin ? dlsym(plugin, name) : NULL;
    if (!found) abort();
    *(void **)function = found;
    dlclose(plugin);
}

static inline int64_t counted(const char *what)
{
    int64_t (*function)(const char *what);
    find_function("fake_counted", &function);
    return function(what);
}

/* Bytes of the GPU's memory that were in use at most. */
static inline size_t bytes_peak(int gpu)
{
    size_t (*function)(int gpu);
    find_function("fake_bytes_peak", &function);
    return function(gpu);
}

/* The calling thread's GPU, as cudaSetDevice() and cudaGetDevice(). */
static inline void set_gpu(int gpu)
{
    void (*function)(int gpu);
    find_function("fake_set_device", &function);
    function(gpu);
}

static inline int current_gpu(void)
{
    int (*function)(void);
    find_function("fake_current_device", &function);
    return function();
}

/* Which calls fail from now on; NULL: none. */
static inline void plan_failure(const char *plan)
{
    void (*function)(const char *plan);
    find_function("fake_fail", &function);
    function(plan);
}

#endif
