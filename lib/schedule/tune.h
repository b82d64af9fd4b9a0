/* SPDX-License-Identifier: Apache-2.0 */
/* How W is stored for products of a given size on a given machine: choices that were measured once, as a table and as
 * the text of the file that keeps them:
 *
 *   {"quadrille_tune": 2, "choices": [
 *     {"machine": "…", "threads": 1, "dtype": "f32", "m": 64, "n": 1024, "k": 4096, "storage": "in-out",
 *      "out-in": {"y": 7e-3, "dx": 7e-3, "dw": 8e-3}, "in-out": {…}}]}
 *
 * Times are seconds on the slowest rank; they are optional. If the device has several algorithms for a product,
 * "algorithms": [1093, 0, 77] gives the ones for y, dx and dw with the chosen storage; 0 is the device's first
 * choice. */
#ifndef QDRI_SCHEDULE_TUNE_H
#define QDRI_SCHEDULE_TUNE_H

#include <stdio.h>

#include "schedule/linear.h"

/* Version 1 identified algorithms by their position in a list, which has changed since. */
enum { QDRI_TUNE_MACHINE_BYTES = 256, QDRI_TUNE_VERSION = 2 };

/* What a choice applies to. */
typedef struct qdri_tune_key {
    char machine[QDRI_TUNE_MACHINE_BYTES]; /* printable ASCII */
    int n_threads;
    qdr_dtype dtype;
    int64_t m, n, k;
} qdri_tune_key;

typedef struct qdri_tune_choice {
    qdri_tune_key key;
    qdr_storage storage; /* OUT_IN or IN_OUT */
    double secs[2][QDRI_N_PRODUCTS]; /* with OUT_IN, with IN_OUT; 0: not measured */
    int algorithms[2][QDRI_N_PRODUCTS]; /* for each storage; as in qdri_gemm */
} qdri_tune_choice;

typedef struct qdri_tune_table {
    qdri_tune_choice *choices;
    int n, capacity;
} qdri_tune_table;

/* "out-in", "in-out". */
const char *qdri_storage_name(qdr_storage storage);
/* Sets the storage from the times: OUT_IN, unless the three products together are at least 5 % faster with IN_OUT. */
void qdri_tune_choose(qdri_tune_choice *choice);

/* Adds the choices in a text to the table; an empty text has none. `name` is the file's name, for error messages.
 * @retval QDR_ERR_ARGUMENT  the text does not have this format */
QDR_NODISCARD qdr_status qdri_tune_read(const char *text, size_t bytes, const char *name, qdri_tune_table *table);
/* @return 0: could not be written completely */
int qdri_tune_write(const qdri_tune_table *table, FILE *file);
QDR_NODISCARD qdr_status qdri_tune_add(qdri_tune_table *table, const qdri_tune_choice *choice);
/* The first match; NULL: none. */
const qdri_tune_choice *qdri_tune_find(const qdri_tune_table *table, const qdri_tune_key *key);
void qdri_tune_free(qdri_tune_table *table);

#endif
