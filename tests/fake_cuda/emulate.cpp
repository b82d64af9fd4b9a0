/* SPDX-License-Identifier: Apache-2.0 */
/* Threads of a block as fibers. Between two meetings the threads run in ascending and descending
 * order in turn, so that a missing meeting shows. */
#include "emulate.h"

#include <cstdio>
#include <cstdlib>

#include <sys/mman.h>

EMULATE_FAST_TLS uint3 threadIdx = {0, 0, 0};
EMULATE_FAST_TLS uint3 blockIdx = {0, 0, 0};
EMULATE_FAST_TLS dim3 blockDim;
EMULATE_FAST_TLS dim3 gridDim;
alignas(128) __constinit thread_local unsigned char shared_bytes[EMULATE_SHARED_BYTES] = {};

namespace
{
constexpr int most_threads = 1024;
constexpr size_t stack_bytes = 128 << 10;

enum fiber_state { RUNS, WAITS_FOR_BLOCK, WAITS_FOR_WARP, ENDED };

struct fiber {
    void *context;
    fiber_state state;
    uint3 index;
    unsigned mask; /* of lanes that it waits for */
    void *mine;
    int line; /* where it waits */
    const char *file;
};

struct block_of_fibers {
    fiber fibers[most_threads];
    char *stacks = nullptr;
    void *scheduler;
    int n, running;
    const emulate_grid *grid;
    ~block_of_fibers()
    {
        if (stacks) munmap(stacks, stack_bytes * most_threads);
    }
};

EMULATE_FAST_TLS block_of_fibers *current;

block_of_fibers &here() { return *current; }

[[noreturn]] void stop(const char *what)
{
    const block_of_fibers &block = here();
    fprintf(stderr, "emulated kernel: %s; block (%u, %u, %u)\n", what, blockIdx.x, blockIdx.y,
            blockIdx.z);
    for (int i = 0; i < block.n; i++) {
        static const char *const names[] = {"runs", "waits for the block", "waits for its warp",
                                            "has ended"};
        const fiber &f = block.fibers[i];
        fprintf(stderr, "  thread %d %s (%s:%d, mask %08x)\n", i, names[f.state],
                f.file ? f.file : "", f.line, f.mask);
    }
    abort();
}

void run_thread();
} // namespace

/* ---- switching stacks ---- */

#ifdef __x86_64__
extern "C" void emulate_switch(void **save, void *load) __attribute__((visibility("hidden")));
asm(R"(
    .text
    .globl emulate_switch
    .hidden emulate_switch
    .type emulate_switch, @function
emulate_switch:
    pushq %rbp
    pushq %rbx
    pushq %r12
    pushq %r13
    pushq %r14
    pushq %r15
    movq %rsp, (%rdi)
    movq %rsi, %rsp
    popq %r15
    popq %r14
    popq %r13
    popq %r12
    popq %rbx
    popq %rbp
    ret
    .size emulate_switch, .-emulate_switch
)");

namespace
{
/* Six registers, the entry, and a word that keeps the stack's alignment. */
void *fresh_context(char *stack)
{
    void **top = (void **)(stack + stack_bytes - 64);
    memset(top, 0, 64);
    top[6] = (void *)run_thread;
    return top;
}

} // namespace
#else
#include <ucontext.h>

namespace
{
struct ucontext_pool {
    ucontext_t contexts[most_threads + 1];
};
thread_local ucontext_pool *pool;

void emulate_switch(void **save, void *load)
{
    static thread_local ucontext_t *current;
    if (!current) current = &pool->contexts[most_threads];
    ucontext_t *from = current;
    *save = from;
    current = (ucontext_t *)load;
    swapcontext(from, current);
}

void *fresh_context(char *stack)
{
    if (!pool) pool = new ucontext_pool;
    ucontext_t *context = &pool->contexts[(stack - here().stacks) / (long)stack_bytes];
    getcontext(context);
    context->uc_stack.ss_sp = stack;
    context->uc_stack.ss_size = stack_bytes;
    makecontext(context, run_thread, 0);
    return context;
}
} // namespace
#endif

namespace
{
void leave(fiber &self) { emulate_switch(&self.context, here().scheduler); }

void enter(block_of_fibers &block, int i)
{
    block.running = i;
    threadIdx = block.fibers[i].index;
    emulate_switch(&block.scheduler, block.fibers[i].context);
}

void run_thread()
{
    block_of_fibers &block = here();
    fiber &self = block.fibers[block.running];
    block.grid->thread(block.grid->args);
    self.state = ENDED;
    leave(self);
    abort(); /* an ended thread never goes on */
}

void wait_as(fiber &self, fiber_state state, int line, const char *file)
{
    self.state = state;
    self.line = line;
    self.file = file;
    leave(self);
}

/* Everybody waits or has ended: lets the block go on if all of it waits for itself at one place. */
bool release_block(block_of_fibers &block)
{
    const fiber *first = nullptr;
    for (int i = 0; i < block.n; i++) {
        const fiber &f = block.fibers[i];
        if (f.state == ENDED) continue;
        if (f.state == WAITS_FOR_WARP) stop("a warp waits for lanes that never come");
        if (!first) first = &f;
        if (first->line != f.line || strcmp(first->file, f.file) != 0)
            stop("its threads wait for each other at different places");
    }
    for (int i = 0; i < block.n; i++)
        if (block.fibers[i].state == WAITS_FOR_BLOCK) block.fibers[i].state = RUNS;
    return first != nullptr;
}

void run_block(block_of_fibers &block)
{
    memset(shared_bytes, 0xff, block.grid->shared_bytes);
    for (int i = 0; i < block.n; i++) {
        const unsigned x = blockDim.x, y = blockDim.y, t = (unsigned)i;
        block.fibers[i] = {};
        block.fibers[i].index = {t % x, t / x % y, t / x / y};
        block.fibers[i].context = fresh_context(block.stacks + (size_t)i * stack_bytes);
    }
    for (bool ascends = true;; ascends = !ascends) {
        bool ran = false;
        for (int k = 0; k < block.n; k++) {
            const int i = ascends ? k : block.n - 1 - k;
            if (block.fibers[i].state != RUNS) continue;
            enter(block, i);
            ran = true;
        }
        if (!ran && !release_block(block)) return;
    }
}
} // namespace

unsigned emulate_lane() { return (unsigned)here().running % 32u; }

void emulate_block_meets(int line, const char *file)
{
    wait_as(here().fibers[here().running], WAITS_FOR_BLOCK, line, file);
}

void emulate_warp_meets(unsigned mask, void *mine, void (*finish)(void *const *all, unsigned mask),
                        int line, const char *file)
{
    block_of_fibers &block = here();
    fiber &self = block.fibers[block.running];
    fiber *warp = block.fibers + block.running / 32 * 32;
    void *all[32] = {};
    self.mask = mask;
    self.mine = mine;
    self.line = line;
    self.file = file;
    if (!(mask >> emulate_lane() & 1)) stop("a lane is not in its own mask");
    for (unsigned i = 0; i < 32; i++) {
        fiber &f = warp[i];
        if (!(mask >> i & 1)) continue;
        if (&f != &self && (&f - block.fibers >= block.n || f.state != WAITS_FOR_WARP)) {
            wait_as(self, WAITS_FOR_WARP, line, file);
            return;
        }
        if (f.line != line || strcmp(f.file, file) != 0 || f.mask != mask) {
            stop("lanes of a warp meet at different places or with different masks");
        }
        all[i] = f.mine;
    }
    finish(all, mask);
    for (unsigned i = 0; i < 32; i++)
        if (mask >> i & 1) warp[i].state = RUNS;
}

/* ---- grids ---- */

static size_t shared_allowed = 48 << 10;

cudaError_t emulate_allow_shared(size_t bytes)
{
    if (bytes > EMULATE_SHARED_BYTES) return cudaErrorInvalidValue;
    if (bytes > __atomic_load_n(&shared_allowed, __ATOMIC_RELAXED))
        __atomic_store_n(&shared_allowed, bytes, __ATOMIC_RELAXED);
    return cudaSuccess;
}

cudaError_t emulate_check(const cudaLaunchConfig_t *config)
{
    const dim3 grid = config->gridDim, block = config->blockDim;
    const size_t n_threads = (size_t)block.x * block.y * block.z;
    if (n_threads == 0 || n_threads > most_threads || block.z > 64 || grid.x == 0 || grid.y == 0 ||
        grid.z == 0 || grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 ||
        config->dynamicSmemBytes > __atomic_load_n(&shared_allowed, __ATOMIC_RELAXED))
        return cudaErrorInvalidConfiguration;
    return fake_take_launch_failure();
}

void emulate_run(const emulate_grid *grid)
{
    static thread_local block_of_fibers block;
    current = &block;
    if (!block.stacks) {
        void *stacks = mmap(nullptr, stack_bytes * most_threads, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (stacks == MAP_FAILED) abort();
        block.stacks = (char *)stacks;
    }
    block.grid = grid;
    block.n = (int)(grid->block.x * grid->block.y * grid->block.z);
    blockDim = grid->block;
    gridDim = grid->grid;
    for (unsigned z = 0; z < grid->grid.z; z++)
        for (unsigned y = 0; y < grid->grid.y; y++)
            for (unsigned x = 0; x < grid->grid.x; x++) {
                blockIdx = {x, y, z};
                run_block(block);
            }
}
