/* SPDX-License-Identifier: Apache-2.0 */
/* The notes below a plan: what is padded, and what differs from the request. */
#include <jansson.h>
#include <stdarg.h>

#include "common/planning.h"

void note_print(const char *sentence, void *unused)
{
    (void)unused;
    printf("%s.\n", sentence);
}

void note_append(const char *sentence, void *list) { json_array_append_new(list, json_string(sentence)); }

__attribute__((format(printf, 3, 4))) static void say(note_fn each, void *user, const char *format, ...)
{
    char sentence[256];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(sentence, sizeof sentence, format, arguments);
    va_end(arguments);
    each(sentence, user);
}

static void say_padding(const char *what, int64_t n, int64_t parts, const char *axis, note_fn each, void *user)
{
    const int64_t most = (n + parts - 1) / parts;
    if (n % parts == 0) return;
    say(each, user, "%lld %s over %s = %lld: padded to %lld, of which %.3g %% is idle", (long long)n, what, axis,
        (long long)parts, (long long)(most * parts), 100 * (1 - (double)n / (double)(most * parts)));
}

/* If every rank has queries and some have no key head, as in lib/schedule/key_heads.c. */
static void say_key_heads(const qdr_network *network, int y, note_fn each, void *user)
{
    if (network->kv_heads == network->heads) return; /* as many as heads, for which a note exists already */
    if (network->kv_heads >= y) {
        say_padding("key heads", network->kv_heads, y, "y", each, user);
        return;
    }
    say(each, user,
        "%lld key head%s over y = %d: %lld rank%s and %lld none, and all keys and "
        "values are gathered over y",
        (long long)network->kv_heads, PLURAL(network->kv_heads), y, (long long)network->kv_heads,
        network->kv_heads == 1 ? " has it" : "s have one each", (long long)(y - network->kv_heads));
}

void plan_padding(const qdr_network *network, const qdr_plan *plan, note_fn each, void *user)
{
    say_padding("heads", network->heads, plan->y, "y", each, user);
    say_key_heads(network, plan->y, each, user);
    say_padding("columns of the MLP", network->ffn, plan->y, "y", each, user);
    say_padding("tokens of the vocabulary", network->vocab, plan->y, "y", each, user);
    say_padding("hidden columns", network->hidden, plan->x, "x", each, user);
    say_padding("sequences of the batch", plan->batch, (int64_t)plan->z * plan->d, "z*d", each, user);
}

static void say_micro_batch(const qdr_plan *plan, int64_t asked, note_fn each, void *user)
{
    const int64_t cells = (int64_t)plan->z * plan->d, all = (plan->batch + cells - 1) / cells;
    if (asked <= all) return;
    say(each, user, "--micro-batch %lld: cells have only %lld sequence%s; a forward pass uses %s", (long long)asked,
        (long long)all, PLURAL(all), all == 1 ? "it" : "them all");
}

static void say_positions(const qdr_network *network, int64_t sequence, note_fn each, void *user)
{
    if (network->positions == 0 || sequence <= network->positions) return;
    say(each, user, "--seq %lld: %s has %lld learned positions, which are taken to be %lld", (long long)sequence,
        network->name, (long long)network->positions, (long long)sequence);
}

/* If heads as large as the hidden columns allow leave some columns over. */
static void say_heads(const qdr_network *n, note_fn each, void *user)
{
    if (n->hidden % n->heads == 0 || n->head_size != n->hidden / n->heads) return;
    say(each, user, "%lld heads do not divide %lld hidden columns: a head has %lld, and attention %lld",
        (long long)n->heads, (long long)n->hidden, (long long)n->head_size, (long long)(n->heads * n->head_size));
}

void plan_notes(const qdr_network *network, const qdr_plan *plan, int64_t asked_micro_batch, note_fn each, void *user)
{
    say_micro_batch(plan, asked_micro_batch, each, user);
    say_positions(network, plan_sequence(network, plan), each, user);
    say_heads(network, each, user);
}

void plan_machine_notes(const qdr_machine *machine, int n_ranks, note_fn each, void *user)
{
    if (machine->n_links > 1 || machine->ranks_per_node <= 1 || n_ranks <= machine->ranks_per_node) return;
    say(each, user,
        "machine %s has no link between nodes (its file has one level) and %d ranks per node: %d ranks are priced "
        "as one node of %d",
        machine->name, machine->ranks_per_node, n_ranks, n_ranks);
}
