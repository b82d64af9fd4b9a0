/* SPDX-License-Identifier: Apache-2.0 */
/* How W is stored for products of a size on a machine: choices that were measured once, as a table and as the text of
 * the file that keeps them:
 *
 *   {"quadrille_tune": 2, "choices": [
 *     {"machine": "…", "threads": 1, "dtype": "f32", "m": 64, "n": 1024, "k": 4096, "storage": "in-out",
 *      "out-in": {"y": 7e-3, "dx": 7e-3, "dw": 8e-3}, "in-out": {…}}]}
 *
 * Times are seconds on the slowest rank; they are optional. Where the device has several algorithms for a product,
 * "algorithms": [1093, 0, 77] names those of y, dx and dw with the storage chosen; 0 is the device's first choice. */
#ifndef QDRI_CORE_TUNE_H
#define QDRI_CORE_TUNE_H

#include <stdio.h>

#include "core/schedule_linear.h"

/* Version 1 named algorithms by their places in a list, which name others by now. */
enum { QDRI_TUNE_MACHINE_BYTES = 256, QDRI_TUNE_VERSION = 2 };

/* What a choice is made for. */
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
    int algorithms[2][QDRI_N_PRODUCTS]; /* likewise; as in qdri_gemm */
} qdri_tune_choice;

typedef struct qdri_tune_table {
    qdri_tune_choice *choices;
    int n, capacity;
} qdri_tune_table;

/* "out-in", "in-out". */
const char *qdri_storage_name(qdr_storage storage);
/* Sets the storage from the times: OUT_IN, unless the three products together are at least 5 % faster with IN_OUT. */
void qdri_tune_choose(qdri_tune_choice *choice);

/* Adds the choices of a text to the table; an empty text has none. `name` is the file's, for error sentences.
 * @retval QDR_ERR_ARGUMENT  not a text of this form */
QDR_NODISCARD qdr_status qdri_tune_read(const char *text, size_t bytes, const char *name, qdri_tune_table *table);
/* @return 0: not all was written */
int qdri_tune_write(const qdri_tune_table *table, FILE *file);
QDR_NODISCARD qdr_status qdri_tune_add(qdri_tune_table *table, const qdri_tune_choice *choice);
/* NULL: none; the first of several. */
const qdri_tune_choice *qdri_tune_find(const qdri_tune_table *table, const qdri_tune_key *key);
void qdri_tune_free(qdri_tune_table *table);

#endif
