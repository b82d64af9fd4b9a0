/* SPDX-License-Identifier: Apache-2.0 */
/* Facts of the nodes of a job, and in which of them a node differs from the others.
 *
 * A fact is a name and a text. Every rank sends a whole list, whose size must not change: so a rank of another version,
 * which has more facts or fewer, is understood. Pure: nothing here reads a machine or communicates. */
#ifndef QUADRILLE_SRC_DOCTOR_FACTS_H
#define QUADRILLE_SRC_DOCTOR_FACTS_H

#include <stdint.h>

#include "doctor/doctor.h"

enum { MAX_FACTS = 32, FACT_NAME_BYTES = 32, FACT_BYTES = 512 };

/* How the values of two nodes are compared. */
typedef enum fact_kind {
    FACT_TEXT, /* the same text */
    FACT_COUNT, /* the same text, a whole number */
    FACT_BYTE_COUNT, /* a number of bytes, the same within 3 % */
    FACT_CLOCK, /* ns since 1970, the same within a limit */
    FACT_SHOWN /* not compared: a number of bytes */
} fact_kind;

/* What is known of a fact before any rank sends it. */
typedef struct fact_rule {
    const char *name;
    fact_kind kind;
    int is_wide; /* a column of its own only if nodes differ */
    doctor_state state; /* of a difference */
    const char *remedy;
} fact_rule;
enum { N_FACT_RULES = 13 };
extern const fact_rule fact_rules[N_FACT_RULES]; /* in the order of the columns */
/* The rule of this name, or that of unknown facts. */
const fact_rule *fact_rule_of(const char *name);

typedef struct fact {
    char name[FACT_NAME_BYTES], value[FACT_BYTES];
} fact;
typedef struct fact_list {
    int n;
    fact facts[MAX_FACTS];
} fact_list;

/* Replaces or adds a fact; one that there is no room for is left out. Control characters of the value become blanks. */
void fact_set(fact_list *list, const char *name, const char *format, ...) __attribute__((format(printf, 3, 4)));
/* NULL: there is none. */
const char *fact_value(const fact_list *list, const char *name);

/* A set of whole numbers: hardware threads, ranks. */
enum { MAX_NUMBER = 1 << 14 };
typedef struct number_set {
    uint64_t words[MAX_NUMBER / 64];
} number_set;
int numbers_has(const number_set *set, int number);
int numbers_count(const number_set *set);
/* Adds the numbers of "0-3,8". */
void numbers_add(number_set *set, const char *text);
/* "0-3,8", cut off with "..." where it does not fit; returns text. */
const char *numbers_text(const number_set *set, char *text, size_t bytes);

/* The ranks that share a host. */
typedef struct fact_node {
    char host[64];
    int first_rank;
    number_set ranks, threads;
    number_set shared; /* hardware threads of several ranks */
    fact_list facts; /* of its first rank */
} fact_node;

typedef struct fact_difference {
    const fact_node *node;
    char name[FACT_NAME_BYTES];
    doctor_state state;
    char value[FACT_BYTES], usual[FACT_BYTES]; /* for people; usual "": nothing to compare with */
    const char *remedy;
} fact_difference;

typedef struct fact_differences {
    int n;
    int64_t capacity;
    int is_short; /* out of memory: some are missing */
    fact_difference *list; /* freed by the owner */
} fact_differences;

/* Names under which each rank, not only the first of a node, sends facts. */
#define FACT_HOST "host" /* is not compared */
#define FACT_THREADS "threads" /* that the rank may run on, "0-3,8"; is not compared */
#define FACT_LIBRARY "library"
#define FACT_MPI "MPI"
/* Whether a fact only serves to make others. */
int fact_is_inner(const char *name);
/* Names that others look up. */
#define FACT_BOOT "boot" /* the kernel's number of this start of the host; is not compared */
#define FACT_SHM "/dev/shm"
#define FACT_SHM_FREE "/dev/shm free"
#define FACT_CLOCK_NOW "clock"
#define FACT_ALONE "alone" /* a launcher that does not say how many processes it started; is not compared */

/* Which of n nodes is the host of a rank that sent this: has the same name, and has not been restarted. -1: none. */
int nodes_find(const fact_node *nodes, int n, const fact_list *facts);
/* Adds a rank and what it sent to its node, of which it may be the first. Ranks come in ascending order. A later rank
 * that has another library or MPI than the first differs. */
void node_add_rank(fact_node *node, int rank, const fact_list *facts, fact_differences *differences);
/* After the last rank: counts ranks and hardware threads as facts. */
void node_complete(fact_node *node);

/* Clocks that differ by less than this are as good as equal: only traces need more. */
#define FACT_CLOCK_SECS 0.1
/* Adds the differences of nodes that are complete. What most nodes have is usual; between equals, what node 0 has, then
 * what the node that comes first has. clock_bound_secs: clocks that show the same time may have been read so far
 * apart. */
void nodes_compare(const fact_node *nodes, int n_nodes, double clock_bound_secs, fact_differences *differences);

/* A value for people: "16 GiB", "+3.000 s" (from the clock of node 0), "unknown" for NULL; returns text. */
const char *fact_text(const fact_rule *rule, const char *value, const fact_node *first, char text[FACT_BYTES]);

#endif
