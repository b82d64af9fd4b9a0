/* SPDX-License-Identifier: Apache-2.0 */
#include "sample.h"

#include <math.h>

/* ---- well-formed UTF-8, byte by byte ---- */

static int bytes_of(uint8_t first) { return first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4; }

/* Whether the byte may come next (table 3-7 of the Unicode standard): no overlong forms, no surrogates, nothing beyond
 * U+10FFFF. The control characters U+0080 to U+009F are excluded. */
static int may_follow(const sample_text *text, uint8_t byte)
{
    uint8_t low = 0x80, high = 0xbf;
    if (text->n_begun == 1) {
        const uint8_t first = text->begun[0];
        if (first == 0xc2 || first == 0xe0) low = 0xa0;
        if (first == 0xed) high = 0x9f;
        if (first == 0xf0) low = 0x90;
        if (first == 0xf4) high = 0x8f;
    }
    return byte >= low && byte <= high;
}

void sample_end(sample_text *text)
{
    for (; text->n_begun > 0; text->n_begun--) fputc('?', text->out);
}

void sample_put(sample_text *text, uint8_t byte)
{
    if (text->n_begun > 0 && may_follow(text, byte)) {
        text->begun[text->n_begun++] = byte;
        if (text->n_begun < bytes_of(text->begun[0])) return;
        fwrite(text->begun, 1, (size_t)text->n_begun, text->out);
        text->n_begun = 0;
        return;
    }
    sample_end(text);
    if (byte >= 0xc2 && byte <= 0xf4)
        text->begun[text->n_begun++] = byte;
    else
        fputc((byte >= ' ' && byte < 0x7f) || byte == '\n' || byte == '\t' ? byte : '?', text->out);
}

/* ---- sampling ---- */

int32_t sample_draw(const float *logits, int n, double temperature, double uniform)
{
    float highest = logits[0];
    double sum = 0;
    int token = 0;
    for (int i = 1; i < n; i++) highest = fmaxf(highest, logits[i]);
    if (temperature <= 0) {
        while (token < n - 1 && logits[token] != highest) token++;
        return token;
    }
    for (int i = 0; i < n; i++) sum += exp((double)(logits[i] - highest) / temperature);
    for (double left = uniform * sum; token < n - 1; token++) {
        const double weight = exp((double)(logits[token] - highest) / temperature);
        if (left < weight) break;
        left -= weight;
    }
    return token;
}
