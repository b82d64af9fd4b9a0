/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary text as the codecs of a stack, and as one codec: refused with one printable message, or accepted; what is
 * accepted can be written, and read again as the same. */
#include "core/codec.h"
#include "fuzz.h"
#include "quadrille/codec.h"

enum { TEXT_BYTES = 1024 };

static void check_codec(const char *text)
{
    char again[TEXT_BYTES];
    qdr_codec codec, same;
    if (qdr_codec_parse(text, &codec) != QDR_OK) {
        check_line(qdr_last_error());
        require(codec.kind == QDR_CODEC_RAW);
        return;
    }
    require(qdr_codec_text(&codec, again, sizeof again) < sizeof again);
    require(qdr_codec_parse(again, &same) == QDR_OK);
    require(codec.kind == same.kind && codec.rate == same.rate && codec.flags == same.flags);
    require(qdri_codec_block(&codec) == qdri_codec_block(&same));
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    char text[TEXT_BYTES], again[TEXT_BYTES];
    qdr_codecs codecs, same;
    const size_t n = n_bytes < sizeof text ? n_bytes : sizeof text - 1;
    if (n) memcpy(text, bytes, n);
    text[n] = '\0';
    qdri_set_last_error("");
    check_codec(text);
    if (qdr_codecs_parse(text, &codecs) != QDR_OK) {
        check_line(qdr_last_error());
        require(qdri_codecs_are_none(&codecs) && !codecs.inside);
        return 0;
    }
    require(qdr_codecs_text(&codecs, again, sizeof again) < sizeof again);
    require(qdr_codecs_parse(again, &same) == QDR_OK);
    require(qdri_codecs_are_same(&codecs, &same));
    return 0;
}
