/* SPDX-License-Identifier: Apache-2.0 */
/* The text that a trained model writes. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "sample.h"
#include "training.h"

/* The numbers of the prompt, of text its bytes; at most `most`, the last ones of a longer one. NULL: how many there
 * are. -1: one is no token. */
static int64_t take_prompt(const training *run, int32_t *tokens, int64_t most)
{
    const char *prompt = run->set->prompt ? run->set->prompt : run->text.info.is_text ? "\n" : "0";
    int64_t n = 0;
    for (const char *at = prompt; *at;) {
        char *end = NULL;
        const long number = run->text.info.is_text ? (uint8_t)*at++ : strtol(at, &end, 10);
        if (end && (end == at || number < 0 || number >= run->set->network.vocab)) return -1;
        if (end) at = end + strspn(end, " ,\n");
        if (tokens && n == most) memmove(tokens, tokens + 1, (size_t)--n * sizeof *tokens);
        if (tokens) tokens[n] = (int32_t)number;
        n++;
    }
    return n;
}

qdr_status training_try_prompt(const training *run)
{
    if (take_prompt(run, NULL, 0) > 0) return QDR_OK;
    return REFUSE(run->sentence, "--prompt %.100s: give numbers of tokens below %lld, or some text to a text",
                  run->set->prompt, (long long)run->set->network.vocab);
}

/* Text as a terminal can show it, tokens by their numbers. Somebody reads along, and may have read enough. */
static void show(const training *run, sample_text *text, int32_t token)
{
    if (!run->talks) return;
    if (run->text.info.is_text)
        sample_put(text, (uint8_t)token);
    else
        printf("%d ", token);
    fflush(stdout);
}

/* Rows do not see documents before their own. */
static void set_first_keys(const corpus *text, const qdr_token_rows *rows)
{
    int32_t first = 0;
    for (int64_t row = 0; row < text->context; row++) {
        rows->first_keys[row] = first;
        if (rows->tokens[row] == text->document_token) first = (int32_t)row + 1;
    }
}

/* The model continues the prompt. It sees the last `context` tokens, as the first sequence of a forward pass. */
static qdr_status write_tokens(training *run, qdr_token_rows rows, float *logits)
{
    const settings *set = run->set;
    const int64_t context = set->how.context;
    const int is_text = run->text.info.is_text, n_kinds = is_text ? N_BYTES : (int)set->network.vocab;
    sample_text text = {.out = stdout};
    int64_t seen = take_prompt(run, rows.tokens, context);
    if (run->talks) fputs(set->prompt ? set->prompt : is_text ? "\n" : "0", stdout);
    if (run->talks && !is_text) putchar(' ');

    int has_left = 0;
    qdr_status status = QDR_OK;
    for (int64_t i = 0; i < set->n_sample; i++) {
        if ((status = training_look(run)) < 0 || run->stops) break;
        if ((status = program_any(run->ctx, run->talks && ferror(stdout), &has_left)) < 0 || has_left) break;
        set_first_keys(&run->text, &rows);
        if ((status = gpt_fill_rows(&run->model, &rows, 0)) < 0 || (status = qdr_stack_forward(run->model.stack)) < 0 ||
            (status = gpt_logits_row(&run->model, seen - 1, logits)) < 0)
            break;
        const int32_t token = sample_draw(logits, n_kinds, set->temperature,
                                          corpus_uniform((uint64_t)set->seed ^ 0x5a17, (uint64_t)i));
        show(run, &text, token);
        if (seen == context) memmove(rows.tokens, rows.tokens + 1, (size_t)--seen * sizeof token);
        rows.tokens[seen++] = token;
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
    const int64_t n_rows = run->model.config.n_sequences * run->set->how.context;
    int32_t *numbers = program_new(run->ctx, 3 * n_rows, sizeof *numbers);
    float *logits = program_new(run->ctx, run->set->network.vocab, sizeof *logits);
    const qdr_token_rows rows = {QDR_INIT(qdr_token_rows), numbers, numbers + n_rows, numbers + 2 * n_rows};
    if (numbers) memset(rows.targets, -1, (size_t)n_rows * sizeof *numbers);
    const qdr_status status = numbers && logits ? write_tokens(run, rows, logits) : QDR_ERR_MEMORY;
    free(logits);
    free(numbers);
    return status;
}
