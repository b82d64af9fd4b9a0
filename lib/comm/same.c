/* SPDX-License-Identifier: Apache-2.0 */
/* Agreements that also compare: all ranks must contribute the same. A digest is part of the agreement; only if digests
 * differ does rank 0 send its text to the others, so that each can find the first line that differs. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "comm/internal.h"
#include "core/size.h"

enum { TEXT_BYTES = 240, VALUE_BYTES = 120, WHO_BYTES = 64 };

static int is_inside_letter(char byte) { return (byte & 0xc0) == 0x80; } /* of UTF-8 */

/* The value, of which n_same bytes are equal on both ranks. Of a long one, the part around the first difference. */
static void show_value(const qdri_fact *fact, int n_same, char text[VALUE_BYTES + 8])
{
    int from = 0, end = fact->value_bytes;
    if (fact->value_bytes > VALUE_BYTES && n_same > VALUE_BYTES / 2) from = n_same - VALUE_BYTES / 4;
    while (from > 0 && from < end && is_inside_letter(fact->value[from])) from--;
    if (end - from > VALUE_BYTES) end = from + VALUE_BYTES;
    while (end < fact->value_bytes && is_inside_letter(fact->value[end])) end--;
    snprintf(text, VALUE_BYTES + 8, "%s%.*s%s", from ? "..." : "", end - from, fact->value + from,
             end < fact->value_bytes ? "..." : "");
}

/* "layer 'fc' has bias 1", or "entry 3 is gelu 'act'"; with_who = 0: only the value. */
static void describe(const qdri_fact *fact, int with_who, int n_same, char text[TEXT_BYTES])
{
    char value[VALUE_BYTES + 8];
    show_value(fact, n_same, value);
    if (!with_who)
        snprintf(text, TEXT_BYTES, "%s", value);
    else
        snprintf(text, TEXT_BYTES, "%.*s %s%s%.*s %s", fact->who_bytes < WHO_BYTES ? fact->who_bytes : WHO_BYTES,
                 fact->who, fact->option_bytes ? "has" : "is", fact->option_bytes ? " " : "", fact->option_bytes,
                 fact->option, value);
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
    char theirs[TEXT_BYTES], own[TEXT_BYTES], who[QDRI_MEMBER_BYTES], who_else[QDRI_MEMBER_BYTES];
    if (!qdri_facts_differ(first, mine, &a, &b)) return QDR_OK;
    const qdri_fact x = or_nothing(&a, &b), y = or_nothing(&b, &a);
    const int is_same_place = x.who_bytes == y.who_bytes && x.option_bytes == y.option_bytes &&
                              memcmp(x.who, y.who, (size_t)x.who_bytes) == 0 &&
                              memcmp(x.option, y.option, (size_t)x.option_bytes) == 0;
    int n_same = 0;
    while (n_same < x.value_bytes && n_same < y.value_bytes && x.value[n_same] == y.value[n_same]) n_same++;
    describe(&x, 1, n_same, theirs);
    describe(&y, !is_same_place, n_same, own);
    qdri_comm_name_member(comm, 0, who, sizeof who);
    qdri_comm_name_member(comm, comm->rank, who_else, sizeof who_else);
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s%s%s on %s and %s on %s; %s", what, *what ? ": " : "", theirs, who, own,
                    who_else, rule);
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
