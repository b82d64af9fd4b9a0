/* SPDX-License-Identifier: Apache-2.0 */
/* QDR_KERNELS: the sets of kernels below the named one, and no others, stay in use. */
#include "dev/cpu/kernels/kernels.h"
#include "qdr_test.h"

static int best_of_the_machine(int most)
{
    while (!qdri_cpu_kernels_limit(most)) most--;
    return most;
}

static int told(const char *word)
{
    assert_int_equal(setenv("QDR_KERNELS", word, 1), 0);
    (void)qdri_cpu_kernels_limit(QDRI_KERNELS_AS_TOLD);
    return qdri_cpu_kernels_best();
}

TEST(the_variable_limits)
{
    const int best = best_of_the_machine(QDRI_KERNELS_AVX512), avx2 = best_of_the_machine(QDRI_KERNELS_AVX2);
    assert_int_equal(told("base"), QDRI_KERNELS_BASE);
    assert_int_equal(told("avx2"), avx2);
    assert_int_equal(told("best"), best);
    assert_int_equal(told("sse9"), best); /* contexts refuse it */
}
