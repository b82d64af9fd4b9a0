/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of nodes: their lists, and in which of them nodes differ. */
#include "doctor/facts.h"

#include "qdr_test.h"

enum { MOST_NODES = 9 };

/* What a rank sends: here from lines "name\tvalue\n". */
static fact_list says(const char *lines)
{
    fact_list facts = {.n = 0};
    while (*lines) {
        char name[FACT_NAME_BYTES];
        const int name_bytes = (int)strcspn(lines, "\t"), bytes = (int)strcspn(lines, "\n");
        snprintf(name, sizeof name, "%.*s", name_bytes, lines);
        fact_set(&facts, name, "%.*s", bytes - name_bytes - 1, lines + name_bytes + 1);
        lines += bytes + 1;
    }
    return facts;
}

/* Nodes "0", "1", ... with one rank each that sends these lines. */
static fact_differences compare_nodes(fact_node nodes[], const char *const lines[], int n, double clock_bound_secs)
{
    fact_differences found = {.n = 0};
    memset(nodes, 0, (size_t)n * sizeof *nodes);
    for (int i = 0; i < n; i++) {
        const fact_list sent = says(lines[i]);
        node_add_rank(&nodes[i], i, &sent, &found);
        node_complete(&nodes[i]);
    }
    nodes_compare(nodes, n, clock_bound_secs, &found);
    return found;
}

/* One difference as "node fact state value|usual", several separated by newlines. */
static void assert_differences(const char *const lines[], int n, double clock_bound_secs, const char *expected)
{
    static fact_node nodes[MOST_NODES];
    char text[4096] = "";
    size_t length = 0;
    assert_true(n <= MOST_NODES);
    fact_differences found = compare_nodes(nodes, lines, n, clock_bound_secs);
    for (int i = 0; i < found.n; i++) {
        const fact_difference *one = &found.list[i];
        assert_true(one->remedy && *one->remedy);
        length += (size_t)snprintf(text + length, sizeof text - length, "%s%d %s %s %s|%s", i ? "\n" : "",
                                   (int)(one->node - nodes), one->name, doctor_state_name(one->state), one->value,
                                   one->usual);
    }
    free(found.list);
    assert_string_equal(text, expected);
}
#define DIFFERENCES(expected, ...)                                                                                     \
    assert_differences((const char *const[]){__VA_ARGS__},                                                             \
                       (int)(sizeof((const char *[]){__VA_ARGS__}) / sizeof(char *)), 1e-4, expected)

/* ---- lists ---- */

TEST(facts_are_found_by_name)
{
    fact_list facts = {.n = 0};
    fact_set(&facts, "library", "%s", "0.1.0");
    fact_set(&facts, "adapters", "%s", "a\tb\nc");
    fact_set(&facts, "empty", "%s", "");
    fact_set(&facts, "library", "%d.%d", 0, 2);
    assert_int_equal(facts.n, 3);
    assert_string_equal(fact_value(&facts, "library"), "0.2");
    assert_string_equal(fact_value(&facts, "adapters"), "a b c");
    assert_string_equal(fact_value(&facts, "empty"), "");
    assert_null(fact_value(&facts, "lib"));
}

TEST(there_is_room_for_so_much)
{
    static char long_text[FACT_BYTES + 1];
    fact_list facts = {.n = 0};
    char name[32];
    memset(long_text, 'x', sizeof long_text - 1);
    for (int i = 0; i < MAX_FACTS + 2; i++) {
        snprintf(name, sizeof name, "fact %02d", i);
        fact_set(&facts, name, "%s", long_text);
    }
    assert_int_equal(facts.n, MAX_FACTS);
    assert_int_equal(strlen(fact_value(&facts, "fact 31")), FACT_BYTES - 1);
    assert_null(fact_value(&facts, "fact 32"));
}

/* ---- numbers ---- */

TEST(sets_of_numbers)
{
    static const char *const texts[] = {"", "0", "0-3", "1,3,5", "0-3,8", "63-64,127-130,16383"};
    static const int sizes[] = {0, 1, 4, 3, 5, 7};
    char text[64];
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        number_set set = {{0}};
        numbers_add(&set, texts[i]);
        assert_int_equal(numbers_count(&set), sizes[i]);
        assert_string_equal(numbers_text(&set, text, sizeof text), texts[i]);
    }
    number_set set = {{0}};
    numbers_add(&set, "7-5,2,16380-99999,x,3");
    assert_string_equal(numbers_text(&set, text, sizeof text), "2,16380-16383");
    set = (number_set){{0}};
    numbers_add(&set, "1,3,5,7,9,11,13");
    assert_string_equal(numbers_text(&set, text, 14), "1,3,5,7,9,...");
}

/* ---- nodes ---- */

TEST(equal_nodes_do_not_differ)
{
    static const char *const alike = "host\ta\nlibrary\t0.1.0\nmemory\t1000\nclock\t5\nMPI\tx\nnew\t1\n";
    DIFFERENCES("", alike);
    DIFFERENCES("", alike, alike);
    DIFFERENCES("", "host\ta\nlibrary\t1\n", "host\tb\nlibrary\t1\n"); /* hosts have names of their own */
    DIFFERENCES("", "", "");
}

TEST(texts_are_equal_or_not)
{
    DIFFERENCES("1 library broken 0.2|0.1", "library\t0.1\n", "library\t0.2\n");
    DIFFERENCES("1 MPI broken b|a", "MPI\ta\n", "MPI\tb\n");
    DIFFERENCES("1 NCCL broken none|2.26.0", "NCCL\t2.26.0\n", "NCCL\tnone\n");
    DIFFERENCES("1 adapters note eth0|eth0, eth1", "adapters\teth0, eth1\n", "adapters\teth0\n");
    DIFFERENCES("1 GPUs note 7 x A|8 x A\n1 driver note 2|1\n1 data path note /b|/a",
                "GPUs\t8 x A\ndriver\t1\ndata path\t/a\n", "data path\t/b\nGPUs\t7 x A\ndriver\t2\n");
}

TEST(most_nodes_are_right)
{
    DIFFERENCES("0 library broken 1|2", "library\t1\n", "library\t2\n", "library\t2\n");
    DIFFERENCES("1 library broken 2|1", "library\t1\n", "library\t2\n", "library\t1\n");
    DIFFERENCES("1 library broken 2|1\n3 library broken 2|1", "library\t1\n", "library\t2\n", "library\t1\n",
                "library\t2\n");
    DIFFERENCES("1 library broken 2|1\n2 library broken 3|1", "library\t1\n", "library\t2\n", "library\t3\n");
    DIFFERENCES("0 library broken 1|3\n1 library broken 2|3", "library\t1\n", "library\t2\n", "library\t3\n",
                "library\t3\n");
}

TEST(facts_of_another_version)
{
    DIFFERENCES("1 firmware note 7|unknown", "", "firmware\t7\n");
    DIFFERENCES("2 library note unknown|1", "library\t1\n", "library\t1\n", "");
    DIFFERENCES("0 library broken 2|1\n2 library note unknown|1", "library\t2\n", "library\t1\n", "", "library\t1\n");
    DIFFERENCES("1 firmware note 8|7", "firmware\t7\n", "firmware\t8\n");
}

TEST(bytes_are_equal_within_a_share)
{
    DIFFERENCES("", "memory\t100000\n", "memory\t97000\n");
    DIFFERENCES("", "memory\t97000\n", "memory\t100000\n");
    DIFFERENCES("1 memory note 94.7 KiB|97.7 KiB", "memory\t100000\n", "memory\t96999\n");
    DIFFERENCES("1 memory note 97.7 KiB|94.7 KiB", "memory\t96999\n", "memory\t100000\n");
    DIFFERENCES("1 memory note 56 GiB|64 GiB", "memory\t68719476736\n", "memory\t60129542144\n",
                "memory\t68719476736\n");
    DIFFERENCES("", "memory\t0\n", "memory\t0\n");
}

TEST(clocks_are_equal_within_a_limit)
{
    DIFFERENCES("", "clock\t1000000000000000000\n", "clock\t1000000000100000000\n");
    DIFFERENCES("1 clock note +0.101 s|+0.000 s", "clock\t1000000000000000000\n", "clock\t1000000000101000000\n");
    DIFFERENCES("1 clock note -3.000 s|+0.000 s", "clock\t1000000003000000000\n", "clock\t1000000000000000000\n");
    /* rank 0's own clock is wrong */
    DIFFERENCES("0 clock note +0.000 s|+3.000 s", "clock\t1000000000000000000\n", "clock\t1000000003000000000\n",
                "clock\t1000000003010000000\n");
    /* ranks on so slow a network that no more can be said */
    const char *const lines[] = {"clock\t1000000000000000000\n", "clock\t1000000003000000000\n"};
    assert_differences(lines, 2, 3.001, "");
    assert_differences(lines, 2, 2.999, "1 clock note +3.000 s|+0.000 s");
}

TEST(shared_memory_is_enough_or_not)
{
    DIFFERENCES("", "/dev/shm\t67108864\n/dev/shm free\t8388608\n", "/dev/shm\t67108864\n/dev/shm free\t67108864\n");
    DIFFERENCES("0 /dev/shm note 64 MiB with 8.0 MiB free for 1 rank, which may need 8 MiB|",
                "/dev/shm\t67108864\n/dev/shm free\t8388607\n");
    DIFFERENCES("1 /dev/shm note 64 MiB|128 MiB", "/dev/shm\t134217728\n/dev/shm free\t134217728\n",
                "/dev/shm\t67108864\n/dev/shm free\t67108864\n");
    /* one line, not two */
    DIFFERENCES("1 /dev/shm note 1 MiB with 1 MiB free for 1 rank, which may need 8 MiB|128 MiB",
                "/dev/shm\t134217728\n/dev/shm free\t134217728\n", "/dev/shm\t1048576\n/dev/shm free\t1048576\n");
    /* each node's own line */
    DIFFERENCES("0 /dev/shm note 2 MiB with 2 MiB free for 1 rank, which may need 8 MiB|128 MiB\n"
                "1 /dev/shm note 1 MiB with 1 MiB free for 1 rank, which may need 8 MiB|128 MiB",
                "/dev/shm\t2097152\n/dev/shm free\t2097152\n", "/dev/shm\t1048576\n/dev/shm free\t1048576\n",
                "/dev/shm\t134217728\n/dev/shm free\t134217728\n", "/dev/shm\t134217728\n/dev/shm free\t134217728\n");
    /* MPI has started, and 16 KiB are enough to go on */
    DIFFERENCES("0 /dev/shm note 5 MiB with 16 KiB free for 1 rank, which may need 8 MiB|",
                "/dev/shm\t5242880\n/dev/shm free\t16384\n");
    DIFFERENCES("0 /dev/shm broken 5 MiB with 12 KiB free for 1 rank, which may need 8 MiB|",
                "/dev/shm\t5242880\n/dev/shm free\t12288\n");
    DIFFERENCES("0 /dev/shm broken 0 B with 0 B free for 1 rank, which may need 8 MiB|",
                "/dev/shm\t0\n/dev/shm free\t0\n");
}

/* ---- ranks of one node ---- */

TEST(hosts_are_found_by_name_and_start)
{
    static fact_node nodes[4];
    static const char *const lines[] = {"host\ta\nboot\t1\n", "host\tb\nboot\t1\n", "host\tb\nboot\t2\n", "host\tc\n"};
    static const struct {
        const char *lines;
        int at;
    } cases[] = {
        {"host\ta\nboot\t1\n", 0}, {"boot\t1\nhost\tb\n", 1},  {"host\tb\nboot\t2\n", 2}, {"host\ta\nboot\t2\n", -1},
        {"host\tc\n", -1},         {"host\tc\nboot\t1\n", -1}, {"boot\t1\n", -1},         {"", -1}};
    fact_differences found = {.n = 0};
    memset(nodes, 0, sizeof nodes);
    for (int i = 0; i < 4; i++) {
        const fact_list sent = says(lines[i]);
        node_add_rank(&nodes[i], i, &sent, &found);
        node_complete(&nodes[i]);
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const fact_list sent = says(cases[i].lines);
        assert_int_equal(nodes_find(nodes, 4, &sent), cases[i].at);
        assert_int_equal(nodes_find(nodes, 0, &sent), -1);
    }
    nodes_compare(nodes, 4, 0, &found);
    assert_int_equal(found.n, 0); /* neither fact is compared */
}

TEST(ranks_are_counted)
{
    static fact_node nodes[2];
    fact_differences found = {.n = 0};
    char text[64];
    memset(nodes, 0, sizeof nodes);
    static const char *const threads[] = {"0-3", "4-7", "0-3", "4-7", "8"};
    for (int i = 0; i < 5; i++) {
        char lines[64];
        snprintf(lines, sizeof lines, "host\tnode-%d\nthreads\t%s\n", i / 2 > 0, threads[i]);
        const fact_list sent = says(lines);
        node_add_rank(&nodes[i / 2 > 0], i, &sent, &found);
    }
    for (int i = 0; i < 2; i++) node_complete(&nodes[i]);
    nodes_compare(nodes, 2, 0, &found);
    assert_string_equal(nodes[1].host, "node-1");
    assert_int_equal(nodes[1].first_rank, 2);
    assert_string_equal(numbers_text(&nodes[1].ranks, text, sizeof text), "2-4");
    assert_string_equal(numbers_text(&nodes[1].threads, text, sizeof text), "0-8");
    assert_int_equal(found.n, 2);
    assert_string_equal(found.list[0].name, "ranks");
    assert_string_equal(found.list[0].value, "3");
    assert_string_equal(found.list[0].usual, "2");
    assert_string_equal(found.list[1].name, "hardware threads");
    assert_string_equal(found.list[1].value, "9");
    assert_string_equal(found.list[1].usual, "8");
    free(found.list);
}

TEST(more_ranks_need_more_shared_memory)
{
    static const char *const lines[] = {"/dev/shm\t25165824\n/dev/shm free\t25165824\n",
                                        "/dev/shm\t25165824\n/dev/shm free\t25165823\n"};
    for (int is_short = 0; is_short < 2; is_short++) {
        static fact_node node;
        fact_differences found = {.n = 0};
        const fact_list sent = says(lines[is_short]);
        memset(&node, 0, sizeof node);
        for (int i = 0; i < 3; i++) node_add_rank(&node, i, &sent, &found);
        node_complete(&node);
        nodes_compare(&node, 1, 0, &found);
        assert_int_equal(found.n, is_short);
        if (is_short)
            assert_string_equal(found.list[0].value, "24 MiB with 24.0 MiB free for 3 ranks, which may need 24 MiB");
        free(found.list);
    }
}

static void assert_shared(const char *const threads[], int n, const char *expected)
{
    static fact_node node;
    fact_differences found = {.n = 0};
    memset(&node, 0, sizeof node);
    for (int i = 0; i < n; i++) {
        char lines[64];
        snprintf(lines, sizeof lines, "threads\t%s\n", threads[i]);
        const fact_list sent = says(lines);
        node_add_rank(&node, i, &sent, &found);
    }
    node_complete(&node);
    nodes_compare(&node, 1, 0, &found);
    assert_int_equal(found.n, *expected != '\0');
    if (found.n) {
        assert_string_equal(found.list[0].name, "binding");
        assert_int_equal(found.list[0].state, DOCTOR_NOTE);
        assert_string_equal(found.list[0].value, expected);
    }
    free(found.list);
}

TEST(ranks_share_cores_or_do_not)
{
    assert_shared((const char *[]){"0-7"}, 1, "");
    assert_shared((const char *[]){"0-3", "4-7"}, 2, "");
    assert_shared((const char *[]){"", ""}, 2, ""); /* unknown */
    assert_shared((const char *[]){"0-3", "3-7"}, 2, "several of 2 ranks share hardware thread 3");
    assert_shared((const char *[]){"0-7", "0-7", "8"}, 3, "several of 3 ranks share hardware threads 0-7");
    assert_shared((const char *[]){"0,1", "2,3", "1,2"}, 3, "several of 3 ranks share hardware threads 1-2");
}

TEST(ranks_of_a_node_have_other_libraries)
{
    static fact_node node;
    static const char *const lines[] = {"library\t1\nMPI\ta\n", "library\t2\nMPI\ta\nGPUs\t3\n", "MPI\tb\n"};
    fact_differences found = {.n = 0};
    memset(&node, 0, sizeof node);
    for (int i = 0; i < 3; i++) {
        const fact_list sent = says(lines[i]);
        node_add_rank(&node, i, &sent, &found);
    }
    assert_int_equal(found.n, 2);
    assert_string_equal(found.list[0].name, "library");
    assert_string_equal(found.list[0].value, "2 on rank 1");
    assert_string_equal(found.list[0].usual, "1 on rank 0");
    assert_string_equal(found.list[1].value, "b on rank 2");
    assert_int_equal(found.list[1].state, DOCTOR_BROKEN);
    free(found.list);
}

TEST(the_first_of_unknown_processes)
{
    static const char first[] = "alone\tyes\nlibrary\t1\n";
    DIFFERENCES("0 launcher note MPI sees one rank, and the launcher does not say how many it started|", first);
    DIFFERENCES("", first, "library\t1\n"); /* it has met others */
    static fact_node node;
    fact_differences found = {.n = 0};
    memset(&node, 0, sizeof node);
    for (int i = 0; i < 2; i++) {
        const fact_list sent = says(i == 0 ? first : "library\t1\n");
        node_add_rank(&node, i, &sent, &found);
    }
    nodes_compare(&node, 1, 0, &found);
    assert_int_equal(found.n, 0);
}
