/* SPDX-License-Identifier: Apache-2.0 */
/* The text that a trained model writes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"
#include "training.h"

/* The model continues the prompt. It sees the last `context` bytes, as the first sequence of a forward pass. window:
 * one byte more; logits: of each token. */
static qdr_status write_bytes(training *run, uint8_t *window, float *logits)
{
    const settings *set = run->set;
    const int64_t context = set->how.context;
    const char *prompt = set->prompt ? set->prompt : "\n";
    const int64_t n_prompt = (int64_t)strlen(prompt);
    int64_t seen = n_prompt < context ? n_prompt : context;
    memcpy(window, prompt + (n_prompt - seen), (size_t)seen);
    for (int64_t i = 0; i < run->model.config.n_sequences; i++) run->starts[i] = i == 0 ? 0 : -1;
    sample_text text = {.out = stdout};
    if (run->talks) fputs(prompt, stdout);

    int has_left = 0;
    qdr_status status = QDR_OK;
    for (int64_t i = 0; i < set->n_sample; i++) {
        if ((status = training_look(run)) < 0 || run->stops) break;
        if ((status = program_any(run->ctx, run->talks && ferror(stdout), &has_left)) < 0 || has_left) break;
        if ((status = training_forward(run, window)) < 0 ||
            (status = gpt_logits_row(&run->model, seen - 1, logits)) < 0)
            break;
        const uint8_t byte = sample_draw(logits, N_BYTES, set->temperature,
                                         corpus_uniform((uint64_t)set->seed ^ 0x5a17, (uint64_t)i));
        if (run->talks) {
            sample_put(&text, byte);
            fflush(stdout); /* somebody reads along, and may have read enough */
        }
        if (seen == context) memmove(window, window + 1, (size_t)--seen);
        window[seen++] = byte;
    }
    if (run->talks) {
        sample_end(&text);
        putchar('\n');
        fflush(stdout);
    }
    return status;
}

qdr_status training_write_sample(training *run)
{
    uint8_t *window = program_new(run->ctx, run->set->how.context + 1, 1);
    float *logits = program_new(run->ctx, run->set->network.vocab, sizeof *logits);
    const qdr_status status = window && logits ? write_bytes(run, window, logits) : QDR_ERR_MEMORY;
    free(logits);
    free(window);
    return status;
}
