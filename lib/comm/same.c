/* SPDX-License-Identifier: Apache-2.0 */
/* Agreements that also compare: all ranks must contribute the same. A digest is part of the agreement; only if digests
 * differ does rank 0 send its text to the others, so that each can find the first line that differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/internal.h"
#include "core/size.h"

enum { TEXT_BYTES = 120 }; /* of each part of a message */

/* "layer 'fc' has bias 1", or "entry 3 is gelu 'act'"; with_who = 0: only the value. */
static void describe(const qdri_fact *fact, int with_who, char text[2 * TEXT_BYTES])
{
    if (!with_who)
        snprintf(text, 2 * TEXT_BYTES, "%.*s", fact->value_bytes < TEXT_BYTES ? fact->value_bytes : TEXT_BYTES,
                 fact->value);
    else
        snprintf(text, 2 * TEXT_BYTES, "%.*s %s%s%.*s %.*s", fact->who_bytes < 64 ? fact->who_bytes : 64, fact->who,
                 fact->option_bytes ? "has" : "is", fact->option_bytes ? " " : "", fact->option_bytes, fact->option,
                 fact->value_bytes < TEXT_BYTES ? fact->value_bytes : TEXT_BYTES, fact->value);
}

/* If one list has ended, it has nothing where the other one has a line. */
static qdri_fact or_nothing(const qdri_fact *fact, const qdri_fact *other)
{
    qdri_fact nothing = *other;
    nothing.value = "nothing";
    nothing.value_bytes = 7;
    return fact->who ? *fact : nothing;
}

static qdr_status compare(const qdri_comm *comm, const qdri_facts *first, const qdri_facts *mine, const char *what,
                          const char *rule)
{
    qdri_fact a, b;
    char theirs[2 * TEXT_BYTES], own[2 * TEXT_BYTES], who[QDRI_MEMBER_BYTES], who_else[QDRI_MEMBER_BYTES];
    if (!qdri_facts_differ(first, mine, &a, &b)) return QDR_OK;
    const qdri_fact x = or_nothing(&a, &b), y = or_nothing(&b, &a);
    const int is_same_place = x.who_bytes == y.who_bytes && x.option_bytes == y.option_bytes &&
                              memcmp(x.who, y.who, (size_t)x.who_bytes) == 0 &&
                              memcmp(x.option, y.option, (size_t)x.option_bytes) == 0;
    describe(&x, 1, theirs);
    describe(&y, !is_same_place, own);
    qdri_comm_name_member(comm, 0, who, sizeof who);
    qdri_comm_name_member(comm, comm->rank, who_else, sizeof who_else);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s: %s on %s and %s on %s; %s", what, theirs, who, own, who_else, rule);
}

qdr_status qdri_comm_agree_same(qdri_comm *comm, qdr_status mine, const qdri_facts *facts, const char *what,
                                const char *rule)
{
    int differs = 0;
    if (mine == QDR_OK) mine = facts->status;
    QDR_TRY(qdri_comm_agree_on(comm, mine, qdri_facts_digest(facts), &differs));
    if (!differs) return QDR_OK;
    qdri_facts first = {.bytes = facts->bytes};
    QDR_TRY(qdri_comm_broadcast(comm, 0, &first.bytes, sizeof first.bytes));
    qdr_status status = qdri_calloc(first.bytes, 1, "the description of rank 0", (void **)&first.text);
    status = qdri_comm_agree(comm, status);
    if (status == QDR_OK && comm->rank == 0) memcpy(first.text, facts->text, first.bytes);
    if (status == QDR_OK) status = qdri_comm_broadcast(comm, 0, first.text, first.bytes);
    if (status == QDR_OK) status = qdri_comm_agree(comm, compare(comm, &first, facts, what, rule));
    free(first.text);
    return status;
}
