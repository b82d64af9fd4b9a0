/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a plan file: refused with one printable message that names the file, or accepted; an accepted plan
 * can be stored, and read again with the same numbers. */
#include <quadrille/plan.h>

#include "core/status.h"
#include "fuzz.h"

/* What the file says of the plan; no padding is compared. */
static void check_again(const qdr_stored_plan *stored, const char *path)
{
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_plan plan = {QDR_INIT(qdr_plan)};
    qdr_stored_plan again = {QDR_INIT(qdr_stored_plan), .network = &network, .plan = &plan};
    const qdr_plan *a = stored->plan, *b = &plan;
    require(qdr_plan_store(stored, path) == QDR_OK);
    require(qdr_plan_load(path, &again) == QDR_OK);
    require(strcmp(stored->network->name, network.name) == 0 && strcmp(stored->machine, again.machine) == 0);
    require(!qdr_network_differ(stored->network, &network, NULL));
    require(a->x == b->x && a->y == b->y && a->z == b->z && a->d == b->d && strcmp(a->order, b->order) == 0);
    require(a->layout == b->layout && a->recompute == b->recompute && a->dtype == b->dtype);
    require(a->batch == b->batch && a->micro_batch == b->micro_batch && a->sequence == b->sequence);
    require(a->gradient_parts == b->gradient_parts && a->optimizer_parts == b->optimizer_parts);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    const char *path = fuzz_file(bytes, n_bytes, ".json");
    qdr_network network = {QDR_INIT(qdr_network)};
    qdr_plan plan = {QDR_INIT(qdr_plan)};
    qdr_stored_plan stored = {QDR_INIT(qdr_stored_plan), .network = &network, .plan = &plan};
    qdri_set_last_error("");
    if (qdr_plan_load(path, &stored) == QDR_OK) {
        check_again(&stored, path);
        return 0;
    }
    check_line(qdr_last_error());
    require(strstr(qdr_last_error(), "qdr_fuzz_") != NULL);
    require(plan.x == 0);
    return 0;
}
