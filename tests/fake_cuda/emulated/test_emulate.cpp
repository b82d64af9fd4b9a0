/* SPDX-License-Identifier: Apache-2.0 */
/* What the emulation reports about kernels that would hang a GPU, or worse: each runs in its own process, which must
 * end with the message. */
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>

#include "emulate.h"

static int n_failed;

static void half_a_block(int *)
{
    if (threadIdx.x < 32) __syncthreads(); /* the others end, as they may */
}

static void two_places(int *)
{
    if (threadIdx.x < 32) {
        __syncthreads();
    } else {
        __syncthreads();
    }
}

static void half_a_warp(int *)
{
    if (threadIdx.x % 2) __syncwarp();
}

static void two_masks(int *) { __syncwarp(threadIdx.x % 32 < 16 ? ~0u : 0xfffffffeu); }

static void not_in_mask(int *) { __syncwarp(1u); }

static void warp_and_block(int *)
{
    if (threadIdx.x == 0) {
        __syncthreads();
    } else {
        __syncwarp();
    }
}

static void no_wait(int *from) { copy_later(threadIdx.x * 16, from, true); }

static void badly_aligned(int *from) { copy_later(threadIdx.x * 16 + 4, from, true); }

struct alignas(16) four_words {
    int at[4];
};

static void misaligned(int *out) { ((four_words *)(out + 1))->at[0] = 1; }

static void last_block(int *out) { *out = (int)blockIdx.x; }

/* Sums of a block by shuffles and shared memory, right as it is. */
static void fine(int *out)
{
    __shared__ int parts[2];
    int sum = (int)threadIdx.x;
    for (int lanes = 16; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x == 0) *out = parts[0] + parts[1];
}

static void run(void (*kernel)(int *), int *data)
{
    alignas(16) static int memory[4];
    emulate_call<int *> call = {
        {dim3(3), dim3(64), 4096, emulate_thread<int *>, nullptr}, kernel, data ? data : memory};
    emulate_enqueued<int *>(&call);
}

/* The kernel ends the process with these words; NULL: it does not. */
static void expect(const char *name, void (*kernel)(int *), const char *words)
{
    char said[4096] = "";
    int pipe_ends[2], status = 0;
    if (pipe(pipe_ends) != 0) exit(1);
    const pid_t child = fork();
    if (child == 0) {
        dup2(pipe_ends[1], 2);
        run(kernel, nullptr);
        _exit(0);
    }
    close(pipe_ends[1]);
    for (ssize_t n = 0, all = 0; (n = read(pipe_ends[0], said + all, sizeof said - 1 - (size_t)all)) > 0;) all += n;
    close(pipe_ends[0]);
    waitpid(child, &status, 0);
    const bool is_fine = WIFEXITED(status) && WEXITSTATUS(status) == 0;
    const bool is_right = words ? !is_fine && strstr(said, words) : is_fine;
    printf("%s: %s\n", name, is_right ? "ok" : said);
    if (!is_right) n_failed++;
}

/* Grids run from the first block to the last and the other way round, in turn. */
static void check_orders()
{
    int last[2];
    for (int i = 0; i < 2; i++) run(last_block, &last[i]);
    if (last[0] + last[1] != 2 || last[0] == last[1]) n_failed++;
}

/* What one kernel may have another has to ask for. */
static void check_allowances()
{
    cudaLaunchConfig_t config = {};
    config.gridDim = config.blockDim = dim3(1);
    config.dynamicSmemBytes = 64 << 10;
    if (cudaFuncSetAttribute(fine, cudaFuncAttributeMaxDynamicSharedMemorySize, 64 << 10) != cudaSuccess ||
        emulate_check(&config, (const void *)fine) != cudaSuccess ||
        emulate_check(&config, (const void *)last_block) != cudaErrorInvalidConfiguration)
        n_failed++;
}

int main()
{
    int sum = 0;
    run(fine, &sum);
    if (sum != 64 * 63 / 2) n_failed++;
    check_orders();
    check_allowances();
    expect("half a block", half_a_block, nullptr);
    expect("two places", two_places, "at different places");
    expect("half a warp", half_a_warp, "lanes that never come");
    expect("two masks", two_masks, "different masks");
    expect("not in its mask", not_in_mask, "not in its own mask");
    expect("warp and block", warp_and_block, "never come");
    expect("copies nobody waits for", no_wait, "not waited for");
    expect("a bad address", badly_aligned, "bad address");
    expect("a misaligned pack", misaligned, "");
    return n_failed > 0;
}
