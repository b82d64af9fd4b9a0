/* SPDX-License-Identifier: Apache-2.0 */
/* Any bytes as a machine that hwloc recorded: refused with one printable sentence, or taken; then every index of the
 * tables names something that is there. */
#include <math.h>

#include "core/status.h"
#include "fuzz.h"
#include "quadrille/topo.h"

static void check_index(int index, int n) { require(index >= -1 && index < n); }

static void check_rate(double rate) { require(isfinite(rate) && rate >= 0); }

static void check_cores(const qdr_topo *topo)
{
    for (int i = 0; i < topo->n_numas; i++) {
        check_index(topo->numas[i].package, topo->n_packages);
        require(topo->numas[i].bytes >= 0 && topo->numas[i].n_cores >= 0);
    }
    for (int i = 0; i < topo->n_cores; i++) {
        check_index(topo->cores[i].package, topo->n_packages);
        check_index(topo->cores[i].numa, topo->n_numas);
        check_index(topo->cores[i].cache, topo->n_caches);
        require(topo->cores[i].n_threads > 0);
    }
}

static void check_devices(const qdr_topo *topo)
{
    for (int i = 0; i < topo->n_gpus; i++) {
        check_index(topo->gpus[i].package, topo->n_packages);
        check_index(topo->gpus[i].numa, topo->n_numas);
        check_rate(topo->gpus[i].pci_rate);
        check_rate(topo->gpus[i].host_rate);
        require(memchr(topo->gpus[i].model, '\0', sizeof topo->gpus[i].model) != NULL);
    }
    for (int i = 0; i < topo->n_gpu_links; i++) {
        const qdr_topo_gpu_link *link = &topo->gpu_links[i];
        require(link->a >= 0 && link->a < link->b && link->b < topo->n_gpus);
        check_rate(link->rate);
    }
    for (int i = 0; i < topo->n_nics; i++) {
        check_index(topo->nics[i].package, topo->n_packages);
        check_index(topo->nics[i].numa, topo->n_numas);
        check_rate(topo->nics[i].pci_rate);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    qdr_topo *topo = NULL;
    const qdr_topo_opts opts = {QDR_OPTS_INIT, .xml = fuzz_file(bytes, n_bytes, ".xml")};
    qdri_set_last_error("");
    if (qdr_topo_load(&opts, &topo) != QDR_OK) {
        require(topo == NULL);
        check_printable(qdr_last_error());
        return 0;
    }
    check_cores(topo);
    check_devices(topo);
    qdr_topo_destroy(&topo);
    return 0;
}
