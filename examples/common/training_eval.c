/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a text that is read from its first byte to its last. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "src/common/json.h"
#include "training.h"

static qdr_status print(training *run, double loss, int64_t n)
{
    json_t *answer = json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "text", run->text.name, "first_byte",
                               (json_int_t)run->text.n_train, "tokens", (json_int_t)n, "context",
                               (json_int_t)run->set->how.context, "loss", json_finite(loss), "perplexity",
                               json_finite(exp(loss)), "bits_per_byte", json_finite(loss / log(2)));
    const int bad = !answer || json_dumpf(answer, stdout, JSON_PRESERVE_ORDER) != 0;
    json_decref(answer);
    putchar('\n'); /* a failure to write shows at the end of the program */
    return bad && !ferror(stdout) ? QDR_ERR_MEMORY : QDR_OK;
}

/* Each window predicts the bytes behind those that it reads, so that the next one begins with the last byte that was
 * predicted. */
qdr_status training_eval(training *run)
{
    const corpus *text = &run->text;
    const int64_t context = run->set->how.context, n_targets = text->n_bytes - text->n_train - 1;
    double sum = 0;
    int64_t n = 0;
    for (int64_t first = 0; first < n_targets;) {
        for (int64_t i = 0; i < run->model.config.n_sequences; i++, first += context)
            run->starts[i] = first < n_targets ? text->n_train + first : -1;
        TRY(gpt_fill_until(&run->model, text->bytes, text->n_bytes, run->starts));
        TRY(qdr_stack_forward(run->model.stack));
        TRY(training_add_loss(run, &sum, &n));
    }
    return qdr_agree(run->ctx, run->talks ? print(run, sum / (double)n, n) : QDR_OK);
}
