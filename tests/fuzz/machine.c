/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a machine file: refused with one printable message, or accepted; an accepted machine gives a plan
 * a time, and survives being written. */
#include <math.h>

#include "core/status.h"
#include "fuzz.h"
#include "quadrille/plan.h"

static void write_and_read(const qdr_machine *machine)
{
    char *text = NULL;
    size_t n_bytes = 0;
    qdr_machine again = {QDR_INIT(qdr_machine)};
    FILE *file = open_memstream(&text, &n_bytes);
    require(file != NULL);
    require(qdr_machine_write(machine, NULL, file) == QDR_OK);
    require(fclose(file) == 0);
    require(qdr_machine_parse(text, n_bytes, "written", &again) == QDR_OK);
    free(text);
}

static void predict(const qdr_machine *machine)
{
    const qdr_network network = {QDR_INIT(qdr_network), .name = "tiny",  .layers = 2, .hidden = 64, .heads = 4,
                                 .kv_heads = 4,         .head_size = 16, .ffn = 256,  .vocab = 128, .context = 32,
                                 .positions = 32};
    const qdr_plan plan = {QDR_INIT(qdr_plan),
                           .x = 2,
                           .y = 2,
                           .z = 2,
                           .d = 2,
                           .batch = 16,
                           .micro_batch = 2,
                           .dtype = machine->bf16.peak_flops > 0 ? QDR_BF16 : QDR_F32};
    qdr_model *model = NULL;
    qdr_plan_result result = {QDR_INIT(qdr_plan_result)};
    require(qdr_model_create(machine, &network, &model) == QDR_OK);
    require(qdr_model_predict(model, &plan, &result) == QDR_OK);
    require(isfinite(result.secs) && result.secs > 0);
    require(isfinite(result.memory_bytes) && result.memory_bytes > 0);
    qdr_model_destroy(&model);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    qdr_machine machine = {QDR_INIT(qdr_machine)};
    qdri_set_last_error("");
    if (qdr_machine_parse((const char *)bytes, n_bytes, "fuzz", &machine) != QDR_OK) {
        check_line(qdr_last_error());
        require(machine.n_links == 0);
        return 0;
    }
    write_and_read(&machine);
    predict(&machine);
    return 0;
}
