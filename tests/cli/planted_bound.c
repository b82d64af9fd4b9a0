/* SPDX-License-Identifier: Apache-2.0 */
/* The linker places this between the command and the library: bounds of codecs are half of what they are. So
 * `quadrille verify --codec` must find them exceeded. */
#include <quadrille/codec.h>

double __real_qdr_codec_bound(const qdr_codec *codec, double block_max);
double __wrap_qdr_codec_bound(const qdr_codec *codec, double block_max);
double __wrap_qdr_codec_bound(const qdr_codec *codec, double block_max)
{
    return 0.5 * __real_qdr_codec_bound(codec, block_max);
}
