/* SPDX-License-Identifier: Apache-2.0 */
/* What a software makes of a machine. */
#include <math.h>
#include <string.h>

#include "core/sized.h"
#include "machine/machine_table.h"

static void set_neutral(qdr_software *software)
{
    *software = (qdr_software){QDR_INIT(qdr_software),
                               .factors = {.products = 1, .attention = 1, .kernels = 1, .links = 1}};
}

static qdr_status finish(qdr_status status, const char *name, const qdr_software *own, qdr_software *software)
{
    if (status == QDR_OK) status = qdri_check_numbers(&qdri_software_kind, own, name);
    if (status == QDR_OK) QDRI_GIVE(qdr_software, software, own);
    return status;
}

qdr_status qdr_software_load(const char *name_or_path, qdr_software *software)
{
    qdr_software own;
    QDR_TRY(QDRI_CLEAR(qdr_software, software));
    if (!name_or_path) return QDR_FAIL(QDR_ERR_ARGUMENT, "software: the name is NULL");
    set_neutral(&own);
    return finish(qdri_file_load(&qdri_software_kind, name_or_path, &own), name_or_path, &own, software);
}

qdr_status qdr_software_parse(const char *text, size_t bytes, const char *name, qdr_software *software)
{
    qdr_software own;
    QDR_TRY(QDRI_CLEAR(qdr_software, software));
    if (!text || !name) return QDR_FAIL(QDR_ERR_ARGUMENT, "software: the text or its name is NULL");
    set_neutral(&own);
    return finish(qdri_file_parse(&qdri_software_kind, text, bytes, name, &own), name, &own, software);
}

qdr_status qdr_software_find(const char *text, qdr_software *software)
{
    char name[QDRI_DATA_NAME_BYTES];
    QDR_TRY(QDRI_CLEAR(qdr_software, software));
    QDR_TRY(qdri_file_find(&qdri_software_kind, text, name));
    return qdr_software_load(name, software);
}

qdr_status qdr_software_list(qdr_name_fn each, void *user) { return qdri_file_list(&qdri_software_kind, each, user); }

qdr_status qdr_machine_set_software(qdr_machine *given, const qdr_software *software)
{
    qdr_machine machine;
    qdr_software own;
    QDR_TRY(QDRI_TAKE(qdr_machine, given, &machine));
    QDR_TRY(QDRI_TAKE(qdr_software, software, &own));
    QDR_TRY(qdri_check_numbers(&qdri_software_kind, &own, own.name));
    const qdr_software_factors *by = &own.factors;
    qdr_machine_products *types[] = {&machine.f64, &machine.f32, &machine.bf16};
    for (int i = 0; i < 3; i++) types[i]->most = fmin(1, by->products * types[i]->most);
    machine.attention_efficiency = fmin(1, by->attention * machine.attention_efficiency);
    machine.memory_efficiency = fmin(1, by->kernels * machine.memory_efficiency);
    for (int l = 0; l < machine.n_links; l++) {
        machine.links[l].rank_bytes_per_sec *= by->links;
        machine.links[l].adapter_bytes_per_sec *= by->links;
        machine.links[l].switch_bytes_per_sec *= by->links;
    }
    machine.software = own.costs;
    machine.n_states = own.n_states;
    memcpy(machine.states, own.states, sizeof machine.states);
    QDRI_GIVE(qdr_machine, given, &machine);
    return QDR_OK;
}
