/* SPDX-License-Identifier: Apache-2.0 */
/* The machine and the model of a row, or why it has no prediction. */
#include <stdarg.h>
#include <string.h>

#include "predict/predict.h"

void skip(measured *row, const char *format, ...)
{
    va_list arguments;
    if (row->why_skipped[0]) return;
    va_start(arguments, format);
    vsnprintf(row->why_skipped, SKIPPED_BYTES, format, arguments);
    va_end(arguments);
}

/* Those for all machines, and for this one: "MACHINE:". */
static int apply_settings(predictor *all, failure *why)
{
    for (int i = 0; i < all->asked.n_settings; i++) {
        const char *setting = all->asked.settings[i], *name = all->machine.name;
        const size_t bytes = strcspn(setting, ":=");
        if (setting[bytes] == ':') {
            if (strncmp(setting, name, bytes) != 0 || name[bytes]) continue;
            setting += bytes + 1;
        }
        all->is_used[i] = 1;
        if (machine_set(setting, "predict", &all->machine, why)) return why->code;
    }
    return all->asked.n_settings ? fail_loading(why, qdr_machine_check(&all->machine, all->machine.name)) : EXIT_OK;
}

/* Whether a cell names a file; otherwise it is a name or begins with an alias. */
static int is_file(const char *text)
{
    const size_t bytes = strlen(text);
    return bytes > 5 && strcmp(text + bytes - 5, ".json") == 0;
}

static int find_software(predictor *all, const table *t, int64_t row, int column, failure *why)
{
    qdr_software software = {QDR_INIT(qdr_software)};
    if (all->asked.software) return machine_run(all->asked.software, &all->machine, why);
    if (!*all->software_text) return EXIT_OK;
    if ((is_file(all->software_text) ? qdr_software_load : qdr_software_find)(all->software_text, &software) != QDR_OK)
        return table_fail(t, row, column, why, "%s", qdr_last_error());
    return fail_status(why, qdr_machine_set_software(&all->machine, &software));
}

const qdr_machine *predictor_machine(predictor *all, const table *t, int64_t row, machine_columns in, failure *why)
{
    const char *text = all->asked.machine ? all->asked.machine : table_text(t, row, in.machine);
    const char *software = in.software < 0 ? "" : table_text(t, row, in.software);
    if (all->machine_text && strcmp(all->machine_text, text) == 0 && strcmp(all->software_text, software) == 0)
        return &all->machine;
    qdr_model_destroy(&all->model);
    all->machine_text = text;
    all->software_text = software;
    all->machine = (qdr_machine){QDR_INIT(qdr_machine)};
    if (all->asked.machine)
        fail_loading(why, qdr_machine_load(text, &all->machine));
    else if (!*text)
        table_fail(t, row, in.machine, why, "it is empty; fill it in, or name a machine with --machine");
    else if ((is_file(text) ? qdr_machine_load : qdr_machine_find)(text, &all->machine) != QDR_OK)
        table_fail(t, row, in.machine, why, "%s", qdr_last_error());
    if (!why->code) find_software(all, t, row, in.software, why);
    return why->code || apply_settings(all, why) ? NULL : &all->machine;
}

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
