/* SPDX-License-Identifier: Apache-2.0 */
/* The table of choices, and its text format. */
#include "schedule/tune.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "core/dtype.h"
#include "core/json_text.h"
#include "core/size.h"

#define LEAST_GAIN 0.05 /* smaller gains may be noise */

const char *qdri_storage_name(qdr_storage storage) { return storage == QDR_IN_OUT ? "in-out" : "out-in"; }

static double sum(const double secs[QDRI_N_PRODUCTS])
{
    return secs[QDRI_PRODUCT_Y] + secs[QDRI_PRODUCT_DX] + secs[QDRI_PRODUCT_DW];
}

void qdri_tune_choose(qdri_tune_choice *choice)
{
    const double out_in = sum(choice->secs[0]), in_out = sum(choice->secs[1]);
    choice->storage = in_out <= (1 - LEAST_GAIN) * out_in ? QDR_IN_OUT : QDR_OUT_IN;
}

/* ---- the table ---- */

qdr_status qdri_tune_add(qdri_tune_table *table, const qdri_tune_choice *choice)
{
    QDR_TRY(qdri_list_grow((void **)&table->choices, table->n, &table->capacity, sizeof *table->choices,
                           "choices of storage"));
    table->choices[table->n++] = *choice;
    return QDR_OK;
}

const qdri_tune_choice *qdri_tune_find(const qdri_tune_table *table, const qdri_tune_key *key)
{
    for (int i = 0; i < table->n; i++) {
        const qdri_tune_key *k = &table->choices[i].key;
        if (k->m == key->m && k->n == key->n && k->k == key->k && k->dtype == key->dtype &&
            k->n_threads == key->n_threads && strcmp(k->machine, key->machine) == 0)
            return &table->choices[i];
    }
    return NULL;
}

void qdri_tune_free(qdri_tune_table *table)
{
    free(table->choices);
    *table = (qdri_tune_table){0};
}

/* ---- reading ---- */

static int lacks_memory(const json_error_t *error) { return json_error_code(error) == json_error_out_of_memory; }

/* The algorithms of either storage: only those of the chosen one are required. */
static int unpack_algorithms(json_t *item, qdri_tune_choice *choice, json_error_t *error)
{
    int *a = choice->algorithms[0];
    json_t *list = json_object_get(item, "algorithms");
    if (!list) return 1;
    if (json_unpack_ex(list, error, 0, "[i, i, i!]", &a[0], &a[1], &a[2]) != 0) return 0;
    memcpy(choice->algorithms[1], a, sizeof choice->algorithms[1]);
    for (int i = 0; i < QDRI_N_PRODUCTS; i++) {
        if (a[i] >= 0) continue;
        snprintf(error->text, sizeof error->text, "algorithm %d; none is below 0", a[i]);
        return 0;
    }
    return 1;
}

static qdr_status read_choice(json_t *item, size_t number, const char *name, qdri_tune_choice *choice)
{
    json_error_t error = {0};
    const char *machine, *dtype, *storage;
    json_int_t m, n, k;
    *choice = (qdri_tune_choice){0};
    double *a = choice->secs[0], *b = choice->secs[1];
    if (json_unpack_ex(item, &error, 0, "{s:s, s:i, s:s, s:I, s:I, s:I, s:s, s?{s:F, s:F, s:F}, s?{s:F, s:F, s:F}}",
                       "machine", &machine, "threads", &choice->key.n_threads, "dtype", &dtype, "m", &m, "n", &n, "k",
                       &k, "storage", &storage, "out-in", "y", &a[QDRI_PRODUCT_Y], "dx", &a[QDRI_PRODUCT_DX], "dw",
                       &a[QDRI_PRODUCT_DW], "in-out", "y", &b[QDRI_PRODUCT_Y], "dx", &b[QDRI_PRODUCT_DX], "dw",
                       &b[QDRI_PRODUCT_DW]) != 0 ||
        !unpack_algorithms(item, choice, &error))
        return lacks_memory(&error)
                   ? QDR_ERR_MEMORY
                   : QDR_FAIL(QDR_ERR_ARGUMENT,
                              "tune: choice %zu of %.200s: %.100s; remove it, or set QDR_TUNE to another file",
                              number + 1, name, error.text);
    choice->key.m = m;
    choice->key.n = n;
    choice->key.k = k;
    if (!qdri_float_named(dtype, &choice->key.dtype))
        return QDR_FAIL(QDR_ERR_ARGUMENT, "tune: choice %zu of %.200s: dtype \"%.20s\"; use " QDRI_FLOAT_NAMES,
                        number + 1, name, dtype);
    if (strcmp(storage, "out-in") == 0) choice->storage = QDR_OUT_IN;
    if (strcmp(storage, "in-out") == 0) choice->storage = QDR_IN_OUT;
    if (choice->storage == QDR_STORAGE_AUTO)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "tune: choice %zu of %.200s: storage \"%.20s\"; use out-in or in-out",
                        number + 1, name, storage);
    if (strlen(machine) >= sizeof choice->key.machine)
        return QDR_FAIL(QDR_ERR_ARGUMENT,
                        "tune: choice %zu of %.200s: the machine's name has %zu bytes; the maximum is %d", number + 1,
                        name, strlen(machine), QDRI_TUNE_MACHINE_BYTES - 1);
    memcpy(choice->key.machine, machine, strlen(machine));
    return QDR_OK;
}

static qdr_status read_all(json_t *root, const char *name, qdri_tune_table *table)
{
    json_t *list = NULL, *item;
    json_error_t error = {0};
    int version = 0;
    size_t i;
    if (json_unpack_ex(root, &error, 0, "{s:i, s:o}", "quadrille_tune", &version, "choices", &list) != 0 ||
        !json_is_array(list))
        return lacks_memory(&error)
                   ? QDR_ERR_MEMORY
                   : QDR_FAIL(
                         QDR_ERR_ARGUMENT,
                         "tune: %.200s is not a tuning file; set QDR_TUNE to an earlier tuning file, or to a new one",
                         name);
    if (version != QDRI_TUNE_VERSION)
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "tune: %.200s has version %d, not %d; remove it to measure again, or set QDR_TUNE to another file", name,
            version, QDRI_TUNE_VERSION);
    json_array_foreach(list, i, item)
    {
        qdri_tune_choice choice;
        QDR_TRY(read_choice(item, i, name, &choice));
        QDR_TRY(qdri_tune_add(table, &choice));
    }
    return QDR_OK;
}

qdr_status qdri_tune_read(const char *text, size_t bytes, const char *name, qdri_tune_table *table)
{
    qdri_json_mistake mistake;
    json_t *root;
    if (bytes == 0) return QDR_OK;
    qdr_status status = qdri_json_text_read(text, bytes, &root, &mistake);
    if (status == QDR_ERR_ARGUMENT)
        return QDR_FAIL(
            QDR_ERR_ARGUMENT,
            "tune: %.200s, line %d: %.100s; it is not a tuning file: remove it, or set QDR_TUNE to another one", name,
            mistake.line, mistake.why);
    if (status == QDR_OK) status = read_all(root, name, table);
    json_decref(root);
    return status == QDR_ERR_MEMORY ? QDR_FAIL(QDR_ERR_MEMORY, "tune: out of memory for %.200s; free some", name)
                                    : status;
}

/* ---- writing ---- */

static json_t *secs_json(const double secs[QDRI_N_PRODUCTS])
{
    return json_pack("{s:f, s:f, s:f}", "y", secs[QDRI_PRODUCT_Y], "dx", secs[QDRI_PRODUCT_DX], "dw",
                     secs[QDRI_PRODUCT_DW]);
}

static json_t *choice_json(const qdri_tune_choice *c)
{
    const qdri_tune_key *key = &c->key;
    json_t *object = json_pack("{s:s, s:i, s:s, s:I, s:I, s:I, s:s}", "machine", key->machine, "threads",
                               key->n_threads, "dtype", qdr_dtype_name(key->dtype), "m", (json_int_t)key->m, "n",
                               (json_int_t)key->n, "k", (json_int_t)key->k, "storage", qdri_storage_name(c->storage));
    const int *a = c->algorithms[c->storage == QDR_IN_OUT]; /* added only if they are not all the first choice */
    const int timed = sum(c->secs[0]) > 0 && sum(c->secs[1]) > 0;
    if (!object || ((!timed || (json_object_set_new(object, "out-in", secs_json(c->secs[0])) == 0 &&
                                json_object_set_new(object, "in-out", secs_json(c->secs[1])) == 0)) &&
                    ((a[0] == 0 && a[1] == 0 && a[2] == 0) ||
                     json_object_set_new(object, "algorithms", json_pack("[i, i, i]", a[0], a[1], a[2])) == 0)))
        return object;
    json_decref(object);
    return NULL;
}

int qdri_tune_write(const qdri_tune_table *table, FILE *file)
{
    int good = fprintf(file, "{\"quadrille_tune\": %d, \"choices\": [", QDRI_TUNE_VERSION) > 0;
    for (int i = 0; good && i < table->n; i++) {
        json_t *object = choice_json(&table->choices[i]);
        good = fputs(i ? ",\n" : "\n", file) >= 0 && object &&
               json_dumpf(object, file, JSON_PRESERVE_ORDER | JSON_REAL_PRECISION(4)) == 0;
        json_decref(object);
    }
    return good && fputs("\n]}\n", file) >= 0;
}
