/* SPDX-License-Identifier: Apache-2.0 */
/* The cores that this process may use. */
#define _GNU_SOURCE 1
#include <sched.h>
#include <unistd.h>

#include "config.h"
#include "qdr_test.h"
#include "topo/topo.h"

TEST(cores_are_within_the_machine)
{
    int n_cores = 0;
    assert_int_equal(qdri_topo_cores(&n_cores), QDR_OK);
    assert_in_range(n_cores, 1, sysconf(_SC_NPROCESSORS_CONF));
    if (QDRI_HAVE_HWLOC)
        assert_true(qdri_topo_hwloc_version()[0] >= '2');
    else
        assert_string_equal(qdri_topo_hwloc_version(), "none");
}

TEST(binding_is_respected)
{
    cpu_set_t before;
    cpu_set_t one;
    int n_cores = 0;
    assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
    CPU_ZERO(&one);
    for (size_t cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; cpu++) {
        if (CPU_ISSET(cpu, &before)) CPU_SET(cpu, &one);
    }
    assert_int_equal(sched_setaffinity(0, sizeof one, &one), 0);
    assert_int_equal(qdri_topo_cores(&n_cores), QDR_OK);
    assert_int_equal(sched_setaffinity(0, sizeof before, &before), 0);
    assert_int_equal(n_cores, 1);
}
