/* SPDX-License-Identifier: Apache-2.0 */
/* Settings from the environment. */
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "internal.h"

static fake_settings settings;
static pthread_once_t once = PTHREAD_ONCE_INIT;

static int64_t number(const char *name, int64_t otherwise)
{
    const char *text = getenv(name);
    return text && *text ? strtoll(text, NULL, 10) : otherwise;
}

static uint64_t any_seed(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_nsec % 1000000 + 1000000 * ((uint64_t)getpid() % 1000);
}

static void read_environment(void)
{
    int64_t n_gpus = number("FAKE_CUDA_GPUS", 1);
    if (n_gpus > FAKE_GPUS_MOST) n_gpus = FAKE_GPUS_MOST;
    settings = (fake_settings){
        .n_gpus = (int)n_gpus,
        .driver = (int)number("FAKE_CUDA_DRIVER", CUDART_VERSION),
        .capability = (int)number("FAKE_CUDA_CAPABILITY", 90),
        .n_sms = (int)number("FAKE_CUDA_SMS", 8),
        .shares_managed = (int)number("FAKE_CUDA_MANAGED", 1),
        .has_pools = (int)number("FAKE_CUDA_POOLS", 1),
        .has_peers = (int)number("FAKE_CUDA_PEERS", 1),
        .memory_bytes = (size_t)number("FAKE_CUDA_MEMORY", (int64_t)2 << 30),
        .seed = (uint64_t)number("FAKE_CUDA_SEED", (int64_t)any_seed()),
        .delay_us = number("FAKE_CUDA_DELAY_US", 50),
        .product_us = number("FAKE_CUDA_PRODUCT_US", 0),
        .host_us = number("FAKE_CUDA_HOST_US", 0),
    };
    fake_plan_failures(getenv("FAKE_CUDA_FAIL"));
}

const fake_settings *fake_get_settings(void)
{
    pthread_once(&once, read_environment);
    return &settings;
}

uint64_t fake_seed(void) { return fake_get_settings()->seed; }

uint64_t fake_random(uint64_t *state)
{
    uint64_t z = *state += 0x9e3779b97f4a7c15u;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

static void *must(void *memory)
{
    if (memory) return memory;
    fputs("fake cuda: the host has no memory left\n", stderr);
    abort();
}

void *fake_new(size_t bytes) { return must(calloc(1, bytes ? bytes : 1)); }

void *fake_grow(void *array, size_t n_elems, size_t elem_bytes) { return must(realloc(array, n_elems * elem_bytes)); }
