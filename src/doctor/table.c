/* SPDX-License-Identifier: Apache-2.0 */
/* The table of nodes, and how they differ, as text and as JSON. */
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "doctor/nodes.h"

int nodes_count(const node_report *report, doctor_state state)
{
    int n = 0;
    for (int i = 0; i < report->differences.n; i++) n += report->differences.list[i].state == state;
    return n;
}

/* ---- text ---- */

/* Whether nodes have different values of a fact, which then needs a column. */
static int differs(const node_report *report, const char *name)
{
    for (int i = 0; i < report->differences.n; i++)
        if (strcmp(report->differences.list[i].name, name) == 0) return 1;
    return 0;
}

/* Sets are shown with their sizes: "4: 0-3". */
static void cell(const node_report *report, const fact_node *node, const fact_rule *rule, char text[FACT_BYTES])
{
    const number_set *set = strcmp(rule->name, "ranks") == 0              ? &node->ranks
                            : strcmp(rule->name, "hardware threads") == 0 ? &node->threads
                                                                          : NULL;
    char list[40];
    if (set && numbers_count(set))
        snprintf(text, FACT_BYTES, "%d: %s", numbers_count(set), numbers_text(set, list, sizeof list));
    else
        fact_text(rule, fact_value(&node->facts, rule->name), report->nodes, text);
}

/* One line of the table: a node, or the headings (NULL). A first pass, not printed, finds the widths of the columns. */
static void print_row(const node_report *report, const fact_node *node, int widths[N_FACT_RULES + 1], int is_printed)
{
    char text[FACT_BYTES];
    int missing = 0; /* blanks after the last column, which nothing may follow */
    for (int i = -1; i < N_FACT_RULES; i++) {
        const fact_rule *rule = i < 0 ? NULL : &fact_rules[i];
        if (rule && rule->is_wide && !differs(report, rule->name)) continue;
        if (!node || !rule)
            snprintf(text, sizeof text, "%s", node ? node->host : rule ? rule->name : "node");
        else
            cell(report, node, rule, text);
        const int width = (int)strlen(text);
        if (is_printed) printf("%*s%s", missing, "", text);
        if (width > widths[i + 1]) widths[i + 1] = width;
        missing = widths[i + 1] - width + 2;
    }
    if (is_printed) putchar('\n');
}

static void print_table(const node_report *report)
{
    int widths[N_FACT_RULES + 1] = {0};
    for (int is_printed = 0; is_printed < 2; is_printed++)
        for (int i = -1; i < report->n_nodes; i++)
            print_row(report, i < 0 ? NULL : &report->nodes[i], widths, is_printed);
}

/* Long facts that all nodes share need no column. */
static void print_common(const node_report *report)
{
    char text[FACT_BYTES];
    printf("\n%s\n", report->n_nodes == 1 ? "on this node" : "on every node");
    for (int i = 0; i < N_FACT_RULES; i++) {
        const fact_rule *rule = &fact_rules[i];
        if (!rule->is_wide || differs(report, rule->name)) continue;
        cell(report, &report->nodes[0], rule, text);
        printf("  %-10s %s\n", rule->name, text);
    }
}

void nodes_print(const node_report *report)
{
    const int n_broken = nodes_count(report, DOCTOR_BROKEN), n_notes = nodes_count(report, DOCTOR_NOTE);
    printf("%d node%s, %d rank%s; clocks are compared to within %.3g ms\n\n", report->n_nodes, PLURAL(report->n_nodes),
           report->n_ranks, PLURAL(report->n_ranks), 1e3 * report->clock_bound_secs);
    print_table(report);
    print_common(report);
    putchar('\n');
    for (int i = 0; i < report->differences.n; i++) {
        const fact_difference *one = &report->differences.list[i];
        printf("%-6s %s: %s: %s%s%s; %s\n", doctor_state_name(one->state), one->node->host, one->name, one->value,
               *one->usual ? ", elsewhere " : "", one->usual, one->remedy);
    }
    if (n_broken)
        printf("%d of these %s broken; %d note%s\n", n_broken, n_broken == 1 ? "is" : "are", n_notes, PLURAL(n_notes));
    else
        printf("%s; %d note%s\n", report->n_nodes == 1 ? "nothing is broken" : "no node is broken", n_notes,
               PLURAL(n_notes));
}

/* ---- JSON ---- */

static json_t *numbers(const number_set *set)
{
    json_t *list = json_array();
    for (int i = 0; i < MAX_NUMBER; i++)
        if (numbers_has(set, i)) json_array_append_new(list, json_integer(i));
    return list;
}

static json_t *fact_json(const fact_rule *rule, const char *value, const fact_node *first)
{
    const char *begin = fact_value(&first->facts, FACT_CLOCK_NOW);
    switch (rule->kind) {
    case FACT_TEXT: return json_text(value);
    case FACT_CLOCK: return json_real(begin ? 1e-9 * (double)(strtoll(value, NULL, 10) - strtoll(begin, NULL, 10)) : 0);
    default: return json_integer((json_int_t)strtoll(value, NULL, 10));
    }
}

static json_t *nodes(const node_report *report)
{
    json_t *list = json_array();
    for (int i = 0; i < report->n_nodes; i++) {
        const fact_node *node = &report->nodes[i];
        json_t *facts = json_object();
        for (int j = 0; j < node->facts.n; j++) {
            const fact *one = &node->facts.facts[j];
            if (!fact_is_inner(one->name))
                json_object_set_new(facts, one->name, fact_json(fact_rule_of(one->name), one->value, report->nodes));
        }
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:o, s:o}", "host", json_text(node->host), "ranks",
                                        numbers(&node->ranks), "threads", numbers(&node->threads), "facts", facts));
    }
    return list;
}

static json_t *differences(const fact_differences *all)
{
    json_t *list = json_array();
    for (int i = 0; i < all->n; i++) {
        const fact_difference *one = &all->list[i];
        json_array_append_new(list,
                              json_pack("{s:o, s:o, s:s, s:o, s:o, s:s}", "host", json_text(one->node->host), "fact",
                                        json_text(one->name), "state", doctor_state_name(one->state), "value",
                                        json_text(one->value), "usual",
                                        *one->usual ? json_text(one->usual) : json_null(), "remedy", one->remedy));
    }
    return list;
}

int nodes_print_json(const node_report *report, failure *why)
{
    const int n_broken = nodes_count(report, DOCTOR_BROKEN);
    json_t *object = json_pack("{s:b, s:i, s:i, s:f, s:o, s:o}", "works", n_broken == 0, "broken", n_broken, "ranks",
                               report->n_ranks, "clock_bound_secs", report->clock_bound_secs, "nodes", nodes(report),
                               "differences", differences(&report->differences));
    return write_json(object, JSON_INDENT(1), "doctor", why);
}
