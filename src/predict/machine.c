/* SPDX-License-Identifier: Apache-2.0 */
/* The machine and the model of a row; those of the row before are kept, as rows of one kind are often adjacent. */
#include <string.h>

#include "predict/predict.h"

/* ---- machines ---- */

/* The setting without "MACHINE:"; NULL: for another machine. */
static const char *setting_for(const char *setting, const qdr_machine *machine)
{
    const size_t bytes = strcspn(setting, ":=");
    if (setting[bytes] != ':') return setting;
    return strncmp(setting, machine->name, bytes) == 0 && !machine->name[bytes] ? setting + bytes + 1 : NULL;
}

static int apply_settings(predictor *all, failure *why)
{
    for (int i = 0; i < all->asked.n_settings; i++) {
        const char *setting = setting_for(all->asked.settings[i], &all->machine);
        if (!setting) continue;
        all->is_used[i] = 1;
        if (machine_set(setting, "predict", &all->machine, why)) return why->code;
    }
    return all->asked.n_settings ? fail_loading(why, qdr_machine_check(&all->machine, all->machine.name)) : EXIT_OK;
}

static int load(predictor *all, const table *t, int64_t row, int place, failure *why)
{
    const char *text = table_text(t, row, place);
    if (all->asked.machine) {
        if (fail_loading(why, qdr_machine_load(all->asked.machine, &all->machine))) return why->code;
    } else if (!*text) {
        return table_fail(t, row, place, why, "it is empty; fill it in, or name a machine with --machine");
    } else if (qdr_machine_find(text, &all->machine) != QDR_OK) {
        return table_fail(t, row, place, why, "%s", qdr_last_error());
    }
    return apply_settings(all, why);
}

const qdr_machine *predictor_machine(predictor *all, const table *t, int64_t row, int place, failure *why)
{
    const char *text = all->asked.machine ? all->asked.machine : table_text(t, row, place);
    if (all->machine_text && strcmp(all->machine_text, text) == 0) return &all->machine;
    qdr_model_destroy(&all->model);
    all->machine_text = text;
    return load(all, t, row, place, why) ? NULL : &all->machine;
}

int predictor_check_settings(const predictor *all, failure *why)
{
    for (int i = 0; all->machine_text && i < all->asked.n_settings; i++)
        if (!all->is_used[i])
            return fail(why, EXIT_USAGE, "--set %.80s: no row is on that machine; the last one is on %s",
                        all->asked.settings[i], all->machine.name);
    return EXIT_OK;
}

/* ---- models ---- */

qdr_status predictor_model(predictor *all, const qdr_network *network, qdr_model **model)
{
    qdr_status status = QDR_OK;
    /* If only padding differs, the model is made again for nothing. */
    const int is_other = memcmp(&all->network, network, sizeof *network) != 0; /* NOLINT */
    if (!all->model || is_other) {
        qdr_model_destroy(&all->model);
        all->network = *network;
        status = qdr_model_create(&all->machine, network, &all->model);
    }
    *model = all->model;
    return status;
}
