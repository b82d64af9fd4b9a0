/* SPDX-License-Identifier: Apache-2.0 */
/* How much messages of codecs may change what they carry; derived in docs/numerics.md. */
#ifndef QUADRILLE_SRC_COMMON_CODED_H
#define QUADRILLE_SRC_COMMON_CODED_H

#include <quadrille/codec.h>

/* Whether messages of the type may differ from their elements. codec NULL: they are not coded. */
int codec_is_lossy(const qdr_codec *codec, qdr_dtype dtype);
/* Of an element of a gathered matrix with max |x| = most. */
double gather_change(const qdr_codec *codec, qdr_dtype dtype, double most);

/* A sum over the members of a group. */
typedef struct coded_sum {
    const qdr_codec *codec; /* NULL: it is not coded */
    qdr_dtype dtype;
    int n_members;
    int is_all; /* 1: all-reduce, whose sum travels, too; 0: reduce-scatter */
    int64_t n_elems; /* of a message, at most */
    double lost[2]; /* with FEEDBACK: what the last messages have lost, of versions and of sums; zeros at first */
} coded_sum;
/* By how much one more such sum may change an element of all of them together. versions: max |x| of each member's
 * version, added up; most: max |x| of the sum, if its versions do not change. */
double sum_change(coded_sum *sum, double versions, double most);

#endif
