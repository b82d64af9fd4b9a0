/* SPDX-License-Identifier: Apache-2.0 */
/* Operations for which CUDA C++ has no functions, for sm_80 and later. Tests replace this file. */
#ifndef QDRI_DEV_CUDA_KERNELS_INTRINSICS_CUH
#define QDRI_DEV_CUDA_KERNELS_INTRINSICS_CUH

#include <stdint.h>

__device__ inline int64_t nanosecs_now()
{
    int64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
    return now;
}

/* 2^x within 2 units in the last place; 0 where it would be subnormal. */
__device__ inline float fast_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

/* a/b within 2 units in the last place, if |b| is in 2^-126..2^126; 0 beyond. */
__device__ inline float fast_divide(float a, float b)
{
    float y;
    asm("div.approx.ftz.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
    return y;
}

/* Stores 16 bytes to global memory at once: the compiler splits some such stores. */
__device__ inline void store_at_once(void *to, uint4 x)
{
    asm volatile("st.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(__cvta_generic_to_global(to)), "r"(x.x), "r"(x.y),
                 "r"(x.z), "r"(x.w)
                 : "memory");
}

/* The dynamic shared memory requested by the launch. */
__device__ inline void *dynamic_shared()
{
    extern __shared__ __align__(128) unsigned char shared_bytes[];
    return shared_bytes;
}

/* Its address in the shared address space, in bytes. */
__device__ inline unsigned dynamic_shared_address() { return (unsigned)__cvta_generic_to_shared(dynamic_shared()); }

/* ---- asynchronous copies to shared memory ---- */

/* Copies 16 bytes, both addresses aligned; if is_there is false, stores zeros and reads nothing. */
__device__ inline void copy_later(unsigned to, const void *global, bool is_there)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(global), "r"(is_there ? 16 : 0)
                 : "memory");
}

/* The same for 4 bytes. */
__device__ inline void copy_word_later(unsigned to, const void *global, bool is_there)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(to), "l"(global), "r"(is_there ? 4 : 0)
                 : "memory");
}

/* Makes all copies of this thread so far one group. */
__device__ inline void end_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }

/* Waits until all groups are complete; for the whole block, a barrier must follow. */
__device__ inline void wait_for_copies() { asm volatile("cp.async.wait_group 0;" ::: "memory"); }

/* ---- tensor cores, used by whole warps ---- */

/* Loads four matrices of 8x8 two-byte elements: each lane gives the address of one row, lanes 8·i, … those of matrix i.
 * A lane gets row lane/4, columns 2·(lane%4) and the next, of each matrix, or of its transpose if TRANSPOSED. */
template <bool TRANSPOSED> __device__ inline void load_matrices(unsigned (&to)[4], unsigned from)
{
    if (TRANSPOSED) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
    } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
                     : "r"(from)
                     : "memory");
    }
}

/* C[16,8] += A[16,16]·B[16,8] in f16 or bf16, sums in fp32, in the lanes' fragments (PTX, mma.m16n8k16). */
template <bool IS_F16>
__device__ inline void multiply_add(float (&c)[4], const unsigned (&a)[4], unsigned b0, unsigned b1)
{
    if (IS_F16) {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
        asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, "
            "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
            : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
            : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
}

#endif
