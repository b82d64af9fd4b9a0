/* SPDX-License-Identifier: Apache-2.0 */
/* Bytes of a text as a batch of the examples' GPT. */
#ifndef TESTS_SUPPORT_GPT_FILL_H
#define TESTS_SUPPORT_GPT_FILL_H

#include <stdlib.h>

#include "../../examples/common/gpt.h"

/* Sequence i reads context + 1 bytes of `text` from starts[i]; starts[i] < 0: no sequence, and its targets are ignored.
 * Blocking. */
static inline qdr_status gpt_fill(gpt *model, const uint8_t *text, const int64_t *starts)
{
    const int64_t context = model->config.context, n = model->config.n_sequences * context;
    int32_t *numbers = calloc(2 * (size_t)n, sizeof *numbers);
    if (!numbers) return QDR_ERR_MEMORY;
    const qdr_token_rows rows = {QDR_INIT(qdr_token_rows), numbers, numbers + n, NULL};
    for (int64_t row = 0; row < n; row++) {
        const int64_t start = starts[row / context], at = start + row % context;
        rows.tokens[row] = start < 0 ? 0 : text[at];
        rows.targets[row] = start < 0 ? -1 : text[at + 1];
    }
    qdr_status status = gpt_fill_rows(model, &rows, 0);
    const qdr_status ended = qdr_stream_synchronize(qdr_context_stream(qdr_grid_context(model->grid)));
    free(numbers);
    return status < 0 ? status : ended;
}

#endif
