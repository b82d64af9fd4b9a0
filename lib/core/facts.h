/* SPDX-License-Identifier: Apache-2.0 */
/* Facts that must be the same on all ranks, as text: a list of "WHO has OPTION VALUE", so that ranks can compare a
 * digest of it and report the first line that differs. Pure; lib/comm/same.c exchanges it. */
#ifndef QDRI_CORE_FACTS_H
#define QDRI_CORE_FACTS_H

#include "core/status.h"

/* Zeroed: empty. */
typedef struct qdri_facts {
    char *text;
    size_t bytes, capacity;
    qdr_status status; /* first failure of the calls that add lines */
} qdri_facts;

/* Adds a line. An empty option makes it "WHO is VALUE". Control characters in a name become '?'. After a failed
 * allocation facts->status is its error, and nothing more is added. */
void qdri_facts_add(qdri_facts *facts, const char *who, const char *option, const char *value);
/* A long text in pieces, a line each, so that the first one that differs is shown, and a digest; NULL: no lines. */
void qdri_facts_add_text(qdri_facts *facts, const char *who, const char *option, const char *text);
void qdri_facts_add_int(qdri_facts *facts, const char *who, const char *option, int64_t value);
/* The text of a number with as few digits as have the same value (NaN: any), but not fewer than least_digits. */
enum { QDRI_REAL_BYTES = 40 };
void qdri_real_text(double value, int least_digits, char text[QDRI_REAL_BYTES]);
void qdri_facts_add_real(qdri_facts *facts, const char *who, const char *option, double value);
/* A list that ends with a block of width 0, as "3*64 64". */
void qdri_facts_add_blocks(qdri_facts *facts, const char *who, const char *option, const qdr_block *blocks, int n);
void qdri_facts_free(qdri_facts *facts);
/* A hash of all lines; never 0. */
uint64_t qdri_facts_digest(const qdri_facts *facts);
uint64_t qdri_digest_of(const void *data, size_t n_bytes);

/* A line; its texts are not terminated by a zero. */
typedef struct qdri_fact {
    const char *who, *option, *value;
    int who_bytes, option_bytes, value_bytes; /* who NULL: there is no line */
} qdri_fact;
/* The first line in which two lists differ. @return 0: they are the same */
int qdri_facts_differ(const qdri_facts *a, const qdri_facts *b, qdri_fact *first, qdri_fact *second);

#endif
