/* SPDX-License-Identifier: Apache-2.0 */
/* The threads of a block as fibers. Between two barriers of the block, each warp runs as far as it can, with warps and
 * lanes in ascending and descending order alternately, so that a missing barrier shows. */
#include "emulate.h"

#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include <sys/mman.h>

#include "../narrow.h"

EMULATE_FAST_TLS uint3 threadIdx = {0, 0, 0};
EMULATE_FAST_TLS uint3 blockIdx = {0, 0, 0};
EMULATE_FAST_TLS dim3 blockDim;
EMULATE_FAST_TLS dim3 gridDim;
EMULATE_FAST_TLS unsigned char *shared_bytes;

namespace
{
constexpr int most_threads = 1024;
constexpr size_t stack_bytes = 128 << 10, mapped_bytes = stack_bytes * most_threads + EMULATE_SHARED_BYTES;

enum fiber_state { RUNS, WAITS_FOR_BLOCK, WAITS_FOR_WARP, ENDED };

struct later_copy {
    unsigned to, bytes;
    const void *from; /* nullptr: zeros */
    bool is_ended; /* its group is */
};

struct fiber {
    void *context;
    fiber_state state;
    uint3 index;
    unsigned mask; /* of lanes that it waits for */
    int n_waiting; /* of a warp's first: lanes that wait for others of it */
    void *mine;
    int line; /* where it waits */
    const char *file;
    std::vector<later_copy> copies;
};

struct block_of_fibers {
    fiber fibers[most_threads];
    char *stacks; /* behind them the dynamic shared memory */
    void *scheduler;
    uint3 *index; /* this thread's threadIdx, which is slow to find */
    int n, running;
    const emulate_grid *grid;
    ~block_of_fibers() { munmap(stacks, mapped_bytes); }
};

EMULATE_FAST_TLS block_of_fibers *current;

block_of_fibers &here() { return *current; }

[[noreturn]] void stop(const char *what)
{
    const block_of_fibers &block = here();
    fprintf(stderr, "emulated kernel: %s; block (%u, %u, %u)\n", what, blockIdx.x, blockIdx.y, blockIdx.z);
    for (int i = 0; i < block.n; i++) {
        static const char *const names[] = {"runs", "waits for the block", "waits for its warp", "has ended"};
        const fiber &f = block.fibers[i];
        fprintf(stderr, "  thread %d %s (%s:%d, mask %08x)\n", i, names[f.state], f.file ? f.file : "", f.line, f.mask);
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
    *block.index = block.fibers[i].index;
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

/* A warp runs alone, as far as it gets. */
void run_warp(block_of_fibers &block, int warp, int phase)
{
    const int first = warp * 32, n = block.n - first < 32 ? block.n - first : 32;
    for (bool ran = true; ran; phase++) {
        ran = false;
        for (int k = 0; k < n; k++) {
            const int i = first + (phase / 2 % 2 ? n - 1 - k : k);
            if (block.fibers[i].state != RUNS) continue;
            enter(block, i);
            ran = true;
        }
    }
}

void run_block(block_of_fibers &block)
{
    memset(shared_bytes, 0xff, block.grid->shared_bytes);
    for (int i = 0; i < block.n; i++) {
        const unsigned x = blockDim.x, y = blockDim.y, t = (unsigned)i;
        if (!block.fibers[i].copies.empty()) stop("copies were not waited for");
        block.fibers[i] = {};
        block.fibers[i].index = {t % x, t / x % y, t / x / y};
        block.fibers[i].context = fresh_context(block.stacks + (size_t)i * stack_bytes);
    }
    for (int phase = (int)(blockIdx.x % 2);; phase++) {
        const int n_warps = (block.n + 31) / 32;
        for (int k = 0; k < n_warps; k++) run_warp(block, phase % 2 ? n_warps - 1 - k : k, phase);
        if (!release_block(block)) return;
    }
}
} // namespace

unsigned emulate_lane() { return (unsigned)here().running % 32u; }

void emulate_block_meets(int line, const char *file)
{
    wait_as(here().fibers[here().running], WAITS_FOR_BLOCK, line, file);
}

/* All n lanes of the mask are there, or else the last one waits, too. */
static void end_meeting(block_of_fibers &block, fiber &self, fiber *warp, int n,
                        void (*finish)(void *const *all, unsigned mask))
{
    void *all[32] = {};
    for (unsigned i = 0; i < 32; i++) {
        fiber &f = warp[i];
        if (!(self.mask >> i & 1)) continue;
        if (&f != &self && (&f - block.fibers >= block.n || f.state != WAITS_FOR_WARP)) {
            wait_as(self, WAITS_FOR_WARP, self.line, self.file);
            return;
        }
        if (f.line != self.line || (f.file != self.file && strcmp(f.file, self.file) != 0) || f.mask != self.mask) {
            stop("lanes of a warp meet at different places or with different masks");
        }
        all[i] = f.mine;
    }
    finish(all, self.mask);
    warp->n_waiting -= n;
    for (unsigned i = 0; i < 32; i++)
        if (self.mask >> i & 1) warp[i].state = RUNS;
}

/* Most of the fake's time is spent here. */
void emulate_warp_meets(unsigned mask, void *mine, void (*finish)(void *const *all, unsigned mask), int line,
                        const char *file)
{
    block_of_fibers &block = here();
    fiber &self = block.fibers[block.running];
    fiber *warp = block.fibers + block.running / 32 * 32;
    const int n = mask == ~0u ? 32 : __builtin_popcount(mask);
    self.mask = mask;
    self.mine = mine;
    self.line = line;
    self.file = file;
    if (!(mask >> block.running % 32 & 1)) stop("a lane is not in its own mask");
    if (warp->n_waiting++ < n - 1) { /* more are to come */
        self.state = WAITS_FOR_WARP;
        emulate_switch(&self.context, block.scheduler);
        return;
    }
    end_meeting(block, self, warp, n, finish);
}

/* ---- copies ---- */

/* The address must be aligned even if nothing is read from it. */
static void add_copy(unsigned to, unsigned bytes, const void *from, bool is_there)
{
    if (to % bytes != 0 || to + bytes > here().grid->shared_bytes || (uintptr_t)from % bytes != 0)
        stop("a copy has a bad address");
    here().fibers[here().running].copies.push_back({to, bytes, is_there ? from : nullptr, false});
}

void copy_later(unsigned to, const void *from, bool is_there) { add_copy(to, 16, from, is_there); }

void copy_word_later(unsigned to, const void *from, bool is_there) { add_copy(to, 4, from, is_there); }

void end_copies()
{
    for (later_copy &copy : here().fibers[here().running].copies) copy.is_ended = true;
}

void wait_for_copies()
{
    std::vector<later_copy> &copies = here().fibers[here().running].copies;
    for (const later_copy &copy : copies) {
        if (!copy.is_ended) stop("copies are waited for whose group has not ended");
        if (copy.from) memcpy(shared_bytes + copy.to, copy.from, copy.bytes);
        if (!copy.from) memset(shared_bytes + copy.to, 0, copy.bytes);
    }
    copies.clear();
}

/* ---- tensor cores ---- */

namespace
{
struct matrices {
    unsigned from, to[4];
};

/* Element (row, col) of matrix i; the lanes gave its rows' addresses. */
unsigned element(void *const *all, int i, unsigned row, unsigned col)
{
    const unsigned from = ((const matrices *)all[8 * i + (int)row])->from;
    uint16_t bits;
    if (from % 16 != 0 || from + 16 > here().grid->shared_bytes) stop("a matrix's row lies badly");
    memcpy(&bits, shared_bytes + from + 2 * col, sizeof bits);
    return bits;
}

template <bool TRANSPOSED> void spread_matrices(void *const *all, unsigned)
{
    for (unsigned lane = 0; lane < 32; lane++)
        for (int i = 0; i < 4; i++) {
            const unsigned r = lane / 4, c = lane % 4 * 2;
            unsigned *to = &((matrices *)all[lane])->to[i];
            *to = TRANSPOSED ? element(all, i, c, r) | element(all, i, c + 1, r) << 16
                             : element(all, i, r, c) | element(all, i, r, c + 1) << 16;
        }
}

struct fragments {
    unsigned a[4], b[2];
    float *c;
};

template <bool IS_F16> float half_of(unsigned two, unsigned which)
{
    if (IS_F16) return (float)narrow_value(QDR_F16, (uint16_t)(which ? two >> 16 : two));
    const unsigned bits = which ? two & 0xffff0000u : two << 16;
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <bool IS_F16> void multiply_fragments(void *const *all, unsigned)
{
    float a[16][16], b[16][8];
    for (unsigned lane = 0; lane < 32; lane++) {
        const fragments *f = (const fragments *)all[lane];
        const unsigned r = lane / 4, c = lane % 4 * 2;
        for (unsigned k = 0; k < 8; k++)
            a[r + k / 2 % 2 * 8][c + k % 2 + k / 4 * 8] = half_of<IS_F16>(f->a[k / 2], k % 2);
        for (unsigned k = 0; k < 4; k++) b[c + k % 2 + k / 2 * 8][r] = half_of<IS_F16>(f->b[k / 2], k % 2);
    }
    for (unsigned lane = 0; lane < 32; lane++)
        for (unsigned i = 0; i < 4; i++) {
            const unsigned r = lane / 4 + i / 2 * 8, c = lane % 4 * 2 + i % 2;
            float sum = ((const fragments *)all[lane])->c[i];
            for (unsigned k = 0; k < 16; k++) sum += a[r][k] * b[k][c];
            ((const fragments *)all[lane])->c[i] = sum;
        }
}
} // namespace

void emulate_load_matrices(unsigned *to, unsigned from, bool transposed, int line, const char *file)
{
    matrices mine = {from, {}};
    emulate_warp_meets(~0u, &mine, transposed ? spread_matrices<true> : spread_matrices<false>, line, file);
    memcpy(to, mine.to, sizeof mine.to);
}

void emulate_multiply_add(bool is_f16, float *c, const unsigned *a, unsigned b0, unsigned b1, int line,
                          const char *file)
{
    fragments mine = {{a[0], a[1], a[2], a[3]}, {b0, b1}, c};
    emulate_warp_meets(~0u, &mine, is_f16 ? multiply_fragments<true> : multiply_fragments<false>, line, file);
}

/* ---- grids ---- */

namespace
{
constexpr size_t shared_of_all = 48 << 10;

/* Without a constructor to run, which a sanitizer of other code would not see. */
std::mutex allowances_lock;
std::unordered_map<const void *, size_t> *allowances;

size_t shared_allowed(const void *kernel)
{
    const std::lock_guard<std::mutex> guard(allowances_lock);
    if (!allowances) return shared_of_all;
    const auto found = allowances->find(kernel);
    return found == allowances->end() ? shared_of_all : found->second;
}

/* The calling thread's: most threads run no grids, and need none. */
block_of_fibers &own_block()
{
    static thread_local std::unique_ptr<block_of_fibers> own;
    if (own) return *own;
    own.reset(new block_of_fibers());
    void *memory = mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1,
                        0);
    if (memory == MAP_FAILED) abort();
    own->stacks = (char *)memory;
    shared_bytes = (unsigned char *)memory + stack_bytes * most_threads;
    current = own.get();
    return *own;
}
} // namespace

cudaError_t emulate_allow_shared(const void *kernel, size_t bytes)
{
    if (bytes > EMULATE_SHARED_BYTES) return cudaErrorInvalidValue;
    const std::lock_guard<std::mutex> guard(allowances_lock);
    if (!allowances) allowances = new std::unordered_map<const void *, size_t>;
    (*allowances)[kernel] = bytes > shared_of_all ? bytes : shared_of_all;
    return cudaSuccess;
}

cudaError_t emulate_check(const cudaLaunchConfig_t *config, const void *kernel)
{
    const dim3 grid = config->gridDim, block = config->blockDim;
    const size_t n_threads = (size_t)block.x * block.y * block.z;
    if (n_threads == 0 || n_threads > most_threads || block.z > 64 || grid.x == 0 || grid.y == 0 || grid.z == 0 ||
        grid.x > 0x7fffffffu || grid.y > 65535 || grid.z > 65535 || config->dynamicSmemBytes > shared_allowed(kernel))
        return cudaErrorInvalidConfiguration;
    return cudaSuccess;
}

void emulate_run(const emulate_grid *grid)
{
    static thread_local unsigned n_grids;
    block_of_fibers &block = own_block();
    block.grid = grid;
    block.index = &threadIdx;
    block.n = (int)(grid->block.x * grid->block.y * grid->block.z);
    blockDim = grid->block;
    gridDim = grid->grid;
    const size_t n_x = grid->grid.x, n_y = grid->grid.y, n = n_x * n_y * grid->grid.z;
    const bool is_reversed = n_grids++ % 2 == 1;
    fake_turn turn;
    fake_turn_begin(&turn, 0);
    for (size_t k = 0; k < n; k++) {
        const size_t i = is_reversed ? n - 1 - k : k;
        blockIdx = {(unsigned)(i % n_x), (unsigned)(i / n_x % n_y), (unsigned)(i / n_x / n_y)};
        run_block(block);
    }
    fake_turn_end(&turn);
}
