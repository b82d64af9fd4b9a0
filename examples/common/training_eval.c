/* SPDX-License-Identifier: Apache-2.0 */
/* The loss of a text that is read from its first byte to its last. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>

#include "src/common/json.h"
#include "training.h"

static qdr_status print(training *run, double loss, int64_t n)
{
    const int is_text = run->text.info.is_text;
    json_t *answer = json_pack("{s:s, s:I, s:I, s:I, s:o, s:o, s:o}", "text", run->text.name,
                               is_text ? "first_byte" : "first_token", (json_int_t)run->text.info.n_train, "tokens",
                               (json_int_t)n, "context", (json_int_t)run->set->how.context, "loss", json_finite(loss),
                               "perplexity", json_finite(exp(loss)), is_text ? "bits_per_byte" : "bits_per_token",
                               json_finite(loss / log(2)));
    const int bad = !answer || json_dumpf(answer, stdout, JSON_PRESERVE_ORDER) != 0;
    json_decref(answer);
    putchar('\n'); /* a failure to write shows at the end of the program */
    return bad && !ferror(stdout) ? QDR_ERR_MEMORY : QDR_OK;
}

/* Each window predicts the bytes behind those that it reads, so that the next one begins with the last byte that was
 * predicted. */
qdr_status training_eval(training *run)
{
    double sum = 0;
    int64_t n = 0;
    for (int64_t first = 0; first < run->text.info.n_evaluation; first += run->model.config.n_sequences) {
        TRY(training_forward(run, first, 0));
        TRY(training_add_loss(run, &sum, &n));
    }
    return qdr_agree(run->ctx, run->talks ? print(run, sum / (double)n, n) : QDR_OK);
}
