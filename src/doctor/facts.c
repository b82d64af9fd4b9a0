/* SPDX-License-Identifier: Apache-2.0 */
#include "doctor/facts.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "common/grow.h"

/* ---- words ---- */

const char *doctor_state_name(doctor_state state)
{
    static const char *const names[] = {"ok", "note", "broken", "none"};
    return names[state];
}

void doctor_bytes_text(double bytes, char text[24])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
    int unit = 0;
    for (; bytes >= 1024 && unit < 4; unit++) bytes /= 1024;
    snprintf(text, 24, bytes == (double)(int64_t)bytes ? "%.0f %s" : "%.1f %s", bytes, units[unit]);
}

/* ---- rules ---- */

const fact_rule fact_rules[N_FACT_RULES] = {
    {"ranks", FACT_COUNT, 0, DOCTOR_NOTE,
     "start as many on each node (mpiexec -ppn, srun --ntasks-per-node), unless it is meant"},
    {"hardware threads", FACT_COUNT, 0, DOCTOR_NOTE,
     "bind ranks alike on all nodes (mpiexec -bind-to, srun --cpus-per-task), and look for cores that are off line"},
    {"memory", FACT_BYTE_COUNT, 0, DOCTOR_NOTE,
     "leave the node out (srun -x), or plan for the smallest; a memory module may have failed"},
    {FACT_SHM, FACT_BYTE_COUNT, 0, DOCTOR_NOTE,
     "make it as large as elsewhere: mount -o remount,size=50% /dev/shm, or docker run --shm-size=8g"},
    {FACT_SHM_FREE, FACT_SHOWN, 0, DOCTOR_NOTE, ""},
    {FACT_CLOCK_NOW, FACT_CLOCK, 0, DOCTOR_NOTE,
     "start NTP or PTP on the node (with chrony, chronyc makestep sets the clock at once); traces of nodes that differ "
     "do not line up"},
    {"adapters", FACT_TEXT, 1, DOCTOR_NOTE,
     "look for a link that is down or slow (ip -s link, ibstat), or leave the node out (srun -x)"},
    {"GPUs", FACT_TEXT, 1, DOCTOR_NOTE,
     "run nvidia-smi there, which says why a GPU is missing, or leave the node out (srun -x)"},
    {"driver", FACT_TEXT, 1, DOCTOR_NOTE, "install the same driver on all nodes"},
    {FACT_LIBRARY, FACT_TEXT, 1, DOCTOR_BROKEN,
     "install the same build on all nodes, or in a folder that they share, and look at LD_LIBRARY_PATH"},
    {FACT_MPI, FACT_TEXT, 1, DOCTOR_BROKEN,
     "load the same MPI on all nodes (module load), and look at LD_LIBRARY_PATH: ranks of two versions may not "
     "understand each other"},
    {"NCCL", FACT_TEXT, 1, DOCTOR_BROKEN,
     "put the same libnccl.so.2 first in LD_LIBRARY_PATH on all nodes: ranks of two versions cannot meet"},
    {"data path", FACT_TEXT, 1, DOCTOR_NOTE,
     "set QDR_DATA_PATH alike on all nodes: models and machines of one name may be different files there"},
};

const fact_rule *fact_rule_of(const char *name)
{
    static const fact_rule unknown = {"", FACT_TEXT, 1, DOCTOR_NOTE,
                                      "install the same build on all nodes: this fact is of another one"};
    for (int i = 0; i < N_FACT_RULES; i++)
        if (strcmp(fact_rules[i].name, name) == 0) return &fact_rules[i];
    return &unknown;
}

int fact_is_inner(const char *name)
{
    static const char *const inner[] = {FACT_HOST, FACT_BOOT, FACT_THREADS, FACT_ALONE};
    for (size_t i = 0; i < sizeof inner / sizeof *inner; i++)
        if (strcmp(name, inner[i]) == 0) return 1;
    return 0;
}

/* ---- lists ---- */

static fact *find(const fact_list *list, const char *name)
{
    for (int i = 0; i < list->n; i++)
        if (strcmp(list->facts[i].name, name) == 0) return (fact *)&list->facts[i];
    return NULL;
}

void fact_set(fact_list *list, const char *name, const char *format, ...)
{
    va_list arguments;
    fact *one = find(list, name);
    if (!one && list->n == MAX_FACTS) return;
    if (!one) one = &list->facts[list->n++];
    snprintf(one->name, sizeof one->name, "%s", name);
    va_start(arguments, format);
    vsnprintf(one->value, sizeof one->value, format, arguments);
    va_end(arguments);
    for (char *c = one->value; *c; c++)
        if ((unsigned char)*c < ' ') *c = ' ';
}

const char *fact_value(const fact_list *list, const char *name)
{
    const fact *one = find(list, name);
    return one ? one->value : NULL;
}

/* ---- sets of numbers ---- */

int numbers_has(const number_set *set, int number) { return (int)(set->words[number / 64] >> number % 64 & 1); }

int numbers_count(const number_set *set)
{
    int n = 0;
    for (int i = 0; i < MAX_NUMBER; i++) n += numbers_has(set, i);
    return n;
}

static void add_range(number_set *set, long first, long last)
{
    for (long i = first; i <= last && i < MAX_NUMBER; i++) set->words[i / 64] |= UINT64_C(1) << i % 64;
}

void numbers_add(number_set *set, const char *text)
{
    while (*text >= '0' && *text <= '9') {
        char *end;
        const long first = strtol(text, &end, 10), last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        add_range(set, first, last);
        text = *end == ',' ? end + 1 : "";
    }
}

const char *numbers_text(const number_set *set, char *text, size_t bytes)
{
    size_t n = 0;
    *text = '\0';
    for (int first = 0; first < MAX_NUMBER; first++) {
        char range[24];
        int last = first;
        if (!numbers_has(set, first)) continue;
        while (last + 1 < MAX_NUMBER && numbers_has(set, last + 1)) last++;
        const int length = snprintf(range, sizeof range, first == last ? "%s%d" : "%s%d-%d", n ? "," : "", first, last);
        const int is_full = n + (size_t)length + sizeof ",..." > bytes;
        n += (size_t)snprintf(text + n, bytes - n, "%s", is_full ? ",..." : range);
        if (is_full) break;
        first = last;
    }
    return text;
}

/* ---- differences ---- */

/* The pointer is valid until the next one is added. If out of memory, returns a dummy that is never shown. */
static fact_difference *add(fact_differences *differences, const fact_node *node, const fact_rule *rule,
                            const char *name)
{
    static fact_difference unseen;
    const int fits = grow((void **)&differences->list, differences->n, &differences->capacity, 16,
                          sizeof *differences->list);
    fact_difference *one = fits ? &differences->list[differences->n++] : &unseen;
    differences->is_short |= !fits;
    *one = (fact_difference){.node = node, .state = rule->state, .remedy = rule->remedy};
    snprintf(one->name, sizeof one->name, "%s", name);
    return one;
}

const char *fact_text(const fact_rule *rule, const char *value, const fact_node *first, char text[FACT_BYTES])
{
    const char *begin = fact_value(&first->facts, FACT_CLOCK_NOW);
    char bytes[24];
    snprintf(text, FACT_BYTES, "%s", value ? value : "unknown");
    if (value && (rule->kind == FACT_BYTE_COUNT || rule->kind == FACT_SHOWN)) {
        doctor_bytes_text(strtod(value, NULL), bytes);
        snprintf(text, FACT_BYTES, "%s", bytes);
    } else if (value && begin && rule->kind == FACT_CLOCK) {
        snprintf(text, FACT_BYTES, "%+.3f s", 1e-9 * (double)(strtoll(value, NULL, 10) - strtoll(begin, NULL, 10)));
    }
    return text;
}

static int is_alike(const fact_rule *rule, const char *a, const char *b, double clock_secs)
{
    const double share = 0.03;
    if (!a || !b) return a == b;
    if (rule->kind == FACT_CLOCK) {
        const double secs = 1e-9 * (double)(strtoll(a, NULL, 10) - strtoll(b, NULL, 10));
        return secs <= clock_secs && -secs <= clock_secs;
    }
    if (rule->kind == FACT_BYTE_COUNT) {
        const double x = strtod(a, NULL), y = strtod(b, NULL), most = x > y ? x : y;
        return most - x <= share * most && most - y <= share * most;
    }
    return strcmp(a, b) == 0;
}

/* Compares one fact of all nodes. */
static void compare(const fact_node *nodes, int n_nodes, const char *name, double clock_secs,
                    fact_differences *differences)
{
    const fact_rule *rule = fact_rule_of(name);
    int usual = 0, n_most = 0;
    for (int i = 0; i < n_nodes && 2 * n_most <= n_nodes; i++) {
        const char *value = fact_value(&nodes[i].facts, name);
        int n = 0;
        for (int j = 0; j < n_nodes; j++) n += is_alike(rule, value, fact_value(&nodes[j].facts, name), clock_secs);
        if (n <= n_most) continue;
        usual = i;
        n_most = n;
    }
    const char *right = fact_value(&nodes[usual].facts, name);
    for (int i = 0; i < n_nodes; i++) {
        const char *value = fact_value(&nodes[i].facts, name);
        if (is_alike(rule, value, right, clock_secs)) continue;
        fact_difference *one = add(differences, &nodes[i], rule, name);
        fact_text(rule, value, nodes, one->value);
        fact_text(rule, right, nodes, one->usual);
        if (!value || !right) one->state = DOCTOR_NOTE; /* unknown is not wrong */
    }
}

/* Free beside what MPI has taken at its start (4.2 MiB for each of several ranks in MPICH 4.0 over UCX 1.13). Runs then
 * took another 16 KiB for four ranks; NCCL and other MPIs may take more. */
#define SHM_LEAST_RANK_BYTES (16.0 * (1 << 10))
#define SHM_RANK_BYTES (8.0 * (1 << 20))

/* The difference about its size that compare() has just found, or a new one. */
static void check_shm(const fact_node *node, const fact_node *first, fact_differences *differences)
{
    const fact_rule *rule = fact_rule_of(FACT_SHM);
    const char *is_free = fact_value(&node->facts, FACT_SHM_FREE), *size = fact_value(&node->facts, FACT_SHM);
    const int n_ranks = numbers_count(&node->ranks);
    char needed_text[24], free_text[24], size_text[FACT_BYTES];
    fact_difference *one = NULL;
    if (!is_free || !size || strtod(is_free, NULL) >= SHM_RANK_BYTES * n_ranks) return;
    for (int i = 0; i < differences->n; i++)
        if (differences->list[i].node == node && strcmp(differences->list[i].name, FACT_SHM) == 0)
            one = &differences->list[i];
    if (!one) one = add(differences, node, rule, FACT_SHM);
    one->state = strtod(is_free, NULL) < SHM_LEAST_RANK_BYTES * n_ranks ? DOCTOR_BROKEN : DOCTOR_NOTE;
    doctor_bytes_text(SHM_RANK_BYTES * n_ranks, needed_text);
    doctor_bytes_text(strtod(is_free, NULL), free_text);
    snprintf(one->value, sizeof one->value, "%.60s with %s free for %d rank%s, which may need %s",
             fact_text(rule, size, first, size_text), free_text, n_ranks, PLURAL(n_ranks), needed_text);
    if (!*one->usual)
        one->remedy = "remove what is left there, or make it larger: mount -o remount,size=50% /dev/shm, or docker run "
                      "--shm-size=8g";
}

static void check_sharing(const fact_node *node, fact_differences *differences)
{
    static const fact_rule rule = {"binding", FACT_TEXT, 1, DOCTOR_NOTE,
                                   "give each rank its own (mpiexec -bind-to core:N, srun --cpus-per-task=N "
                                   "--cpu-bind=cores), or start fewer"};
    const int n_shared = numbers_count(&node->shared);
    char text[128];
    if (!n_shared) return;
    fact_difference *one = add(differences, node, &rule, rule.name);
    snprintf(one->value, sizeof one->value, "several of %d ranks share hardware thread%s %s",
             numbers_count(&node->ranks), PLURAL(n_shared), numbers_text(&node->shared, text, sizeof text));
}

/* Rank 0 of a launcher that this MPI may not understand. If there are other processes, they end with an error. */
static void check_alone(const fact_node *node, fact_differences *differences)
{
    static const fact_rule rule = {
        "launcher", FACT_TEXT, 1, DOCTOR_NOTE,
        "if more were started, use the launcher of this MPI (mpiexec, srun --mpi=pmi2); with --each, every process "
        "reports alone"};
    if (!fact_value(&node->facts, FACT_ALONE) || numbers_count(&node->ranks) != 1) return;
    fact_difference *one = add(differences, node, &rule, rule.name);
    snprintf(one->value, sizeof one->value, "MPI sees one rank, and the launcher does not say how many it started");
}

void nodes_compare(const fact_node *nodes, int n_nodes, double clock_bound_secs, fact_differences *differences)
{
    const double clock_secs = clock_bound_secs > FACT_CLOCK_SECS ? clock_bound_secs : FACT_CLOCK_SECS;
    fact_list names = {.n = 0};
    for (int i = 0; i < N_FACT_RULES; i++) fact_set(&names, fact_rules[i].name, "%s", "");
    for (int i = 0; i < n_nodes; i++)
        for (int j = 0; j < nodes[i].facts.n; j++) fact_set(&names, nodes[i].facts.facts[j].name, "%s", "");
    for (int i = 0; i < names.n; i++) {
        const char *name = names.facts[i].name;
        if (fact_rule_of(name)->kind != FACT_SHOWN && !fact_is_inner(name))
            compare(nodes, n_nodes, name, clock_secs, differences);
    }
    for (int i = 0; i < n_nodes; i++) {
        check_shm(&nodes[i], nodes, differences);
        check_sharing(&nodes[i], differences);
    }
    if (n_nodes == 1) check_alone(&nodes[0], differences);
}

/* ---- nodes ---- */

static void compare_rank(const fact_node *node, int rank, const fact_list *facts, const char *name,
                         fact_differences *differences)
{
    const char *mine = fact_value(facts, name), *first = fact_value(&node->facts, name);
    if (!mine || !first || strcmp(mine, first) == 0) return;
    fact_difference *one = add(differences, node, fact_rule_of(name), name);
    snprintf(one->value, sizeof one->value, "%.400s on rank %d", mine, rank);
    snprintf(one->usual, sizeof one->usual, "%.400s on rank %d", first, node->first_rank);
}

static int are_same(const char *a, const char *b) { return a && b && strcmp(a, b) == 0; }

int nodes_find(const fact_node *nodes, int n, const fact_list *facts)
{
    const char *host = fact_value(facts, FACT_HOST), *boot = fact_value(facts, FACT_BOOT);
    for (int i = 0; i < n; i++) {
        const fact_list *theirs = &nodes[i].facts;
        if (are_same(fact_value(theirs, FACT_HOST), host) && are_same(fact_value(theirs, FACT_BOOT), boot)) return i;
    }
    return -1;
}

void node_add_rank(fact_node *node, int rank, const fact_list *facts, fact_differences *differences)
{
    number_set threads = {{0}};
    const char *list = fact_value(facts, FACT_THREADS), *host = fact_value(facts, FACT_HOST);
    if (numbers_count(&node->ranks) == 0) {
        node->first_rank = rank;
        node->facts = *facts;
        snprintf(node->host, sizeof node->host, "%.60s", host && *host ? host : "?");
    } else {
        compare_rank(node, rank, facts, FACT_LIBRARY, differences);
        compare_rank(node, rank, facts, FACT_MPI, differences);
    }
    add_range(&node->ranks, rank, rank);
    if (list) numbers_add(&threads, list);
    for (int i = 0; i < MAX_NUMBER / 64; i++) {
        node->shared.words[i] |= node->threads.words[i] & threads.words[i];
        node->threads.words[i] |= threads.words[i];
    }
}

void node_complete(fact_node *node)
{
    const int n_threads = numbers_count(&node->threads);
    fact_set(&node->facts, "ranks", "%d", numbers_count(&node->ranks));
    if (n_threads) fact_set(&node->facts, "hardware threads", "%d", n_threads);
}
