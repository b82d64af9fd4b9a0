/* SPDX-License-Identifier: Apache-2.0 */
/* Arbitrary bytes as a message of each codec: decoded to numbers within the result, or, of LOSSLESS, refused with a
 * message; never read or written beyond (run with the address sanitizer). The first bytes choose codec, type and
 * elements. */
#include "codec/run.h"
#include "codec/zfp.h"
#include "fuzz.h"

enum { MOST_ELEMS = 700, GUARD = 64 };

static qdri_dev *dev;
static qdr_stream *stream;

/* A damaged message fails the device; the next input gets another one. */
static void open_device(void)
{
    if (dev) return;
    require(qdri_dev_create_cpu(1, &dev) == QDR_OK);
    require(qdri_stream_create(dev, QDRI_STREAM_COMPUTE, &stream) == QDR_OK);
}

static void close_device(void)
{
    qdri_stream_destroy(&stream);
    qdri_dev_destroy(&dev);
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t n_bytes)
{
    static const char *const names[] = {"bf16",          "int16",    "int8/32", "int4/256+hadamard",
                                        "int8+hadamard", "lossless", "zfp:5"};
    static const qdr_dtype types[] = {QDR_F32, QDR_BF16, QDR_F16};
    static char y[MOST_ELEMS * sizeof(float) + GUARD];
    qdr_codec codec;
    if (n_bytes < 6) return 0;
    require(qdr_codec_parse(names[bytes[0] % 7], &codec) == QDR_OK);
    const qdr_dtype dtype = types[bytes[1] % 3];
    const int64_t n = (bytes[2] | bytes[3] << 8) % MOST_ELEMS;
    if (codec.kind == QDR_CODEC_ZFP && !qdri_has_zfp()) return 0;
    const qdri_message message = {.codec = &codec, .dtype = dtype, .n = n, .run = bytes[4]};
    const int is_open = codec.kind == QDR_CODEC_LOSSLESS && qdri_codec_shortens(&codec, dtype);
    const size_t rest = n_bytes - 6, wanted = (size_t)qdri_message_bytes(&message);
    const size_t size = is_open && rest < wanted ? rest : wanted;
    /* Exactly as long as the message: what reads more is seen. */
    uint8_t *wire = malloc(size ? size : 1);
    require(wire != NULL);
    for (size_t i = 0; i < size; i++) wire[i] = rest ? bytes[6 + i % rest] : 0;
    memset(y, 0x5a, sizeof y);
    open_device();
    qdri_set_last_error("");
    qdr_status status = qdri_decode(stream, &message, wire, (int64_t)size, bytes[5] % 2, y);
    if (status == QDR_OK) status = qdri_stream_synchronize(stream);
    require(status == QDR_OK || is_open);
    if (status != QDR_OK) {
        check_line(qdr_last_error());
        close_device();
    }
    for (size_t i = (size_t)n * qdr_dtype_bytes(dtype); i < sizeof y; i++) require(y[i] == 0x5a);
    free(wire);
    return 0;
}
