/* SPDX-License-Identifier: Apache-2.0 */
/* What the cases of fault_stuck share. stuck_calls.c: one rank makes a different call; stuck.c: one does not come. */
#ifndef QDR_TEST_STUCK_H
#define QDR_TEST_STUCK_H

#include "comm/comm.h"
#include "fault/cases.h"
#include "quadrille/quadrille.h"

enum { N = 12, MOST_RANKS = 8 };

/* QDR_TIMEOUT of ranks that wait for a late one, in seconds: LIMIT_SECS is a number, from the build. */
#define TEXT_OF(number) #number
#define TEXT(number) TEXT_OF(number)
#define LIMIT TEXT(LIMIT_SECS)
#define WAITED "has waited " LIMIT " s"

typedef struct stuck {
    qdr_context *ctx;
    qdr_grid *grid; /* all ranks along z */
    int rank, size;
} stuck;

typedef struct stuck_case {
    const char *name;
    int (*run)(const stuck *s); /* AS_EXPECTED or WRONG */
    const char *check, *timeout; /* QDR_CHECK and QDR_TIMEOUT; NULL: not set */
} stuck_case;

/* Ends with a case without a name. */
extern const stuck_case stuck_calls[];

extern const qdri_coll stuck_usual;
qdr_status stuck_call(const stuck *s, qdri_coll coll);

/* The words follow each other in the sentence. A rank may hear of the failure before it finds it. */
int stuck_expect(qdr_status got, qdr_status wanted, const char *const words[], int n_words);
#define EXPECT(got, wanted, ...)                                                                                       \
    stuck_expect(got, wanted, (const char *const[]){__VA_ARGS__},                                                      \
                 (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)))

#endif
