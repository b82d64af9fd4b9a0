/* SPDX-License-Identifier: Apache-2.0 */
#include "network/keys.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/facts.h"
#include "core/sized.h"
#include "core/status.h"
#include "network/sizes.h"
#include "schedule/network.h"

enum { VALUE_BYTES = 64 };

static void *member(const qdr_network *network, const qdri_network_key *key) { return (char *)network + key->at; }

/* ---- writing ---- */

static int n_factors(const double *factors)
{
    int n = 0;
    while (n < QDR_ROTARY_MOST_FACTORS && factors[n] > 0) n++;
    return n;
}

static const char *word_of(const qdr_network *network, const qdri_network_key *key)
{
    const int word = *(const int *)member(network, key);
    return word >= 0 && word < key->n_words ? key->words[word] : "unknown";
}

/* One value, without quotes. */
static void show(const qdr_network *network, const qdri_network_key *key, char text[VALUE_BYTES])
{
    const void *at = member(network, key);
    switch (key->kind) {
    case QDRI_NETWORK_TEXT: snprintf(text, VALUE_BYTES, "%.*s", VALUE_BYTES - 1, (const char *)at); break;
    case QDRI_NETWORK_SIZE:
    case QDRI_NETWORK_COUNT: snprintf(text, VALUE_BYTES, "%" PRId64, *(const int64_t *)at); break;
    case QDRI_NETWORK_NUMBER: snprintf(text, VALUE_BYTES, "%d", *(const int *)at); break;
    case QDRI_NETWORK_SWITCH: snprintf(text, VALUE_BYTES, "%s", *(const int *)at ? "true" : "false"); break;
    case QDRI_NETWORK_WORD: snprintf(text, VALUE_BYTES, "%s", word_of(network, key)); break;
    case QDRI_NETWORK_REAL: qdri_real_text(*(const double *)at, 15, text); break;
    default: snprintf(text, VALUE_BYTES, "others"); break;
    }
}

static void put_factors(FILE *file, const double *factors)
{
    char text[VALUE_BYTES];
    for (int i = 0; i < n_factors(factors); i++) {
        qdri_real_text(factors[i], 15, text);
        fprintf(file, "%s%s", i ? ", " : "[", text);
    }
    fputs(n_factors(factors) ? "]" : "[]", file);
}

static void put_layers(FILE *file, const qdr_network *network)
{
    fputc('"', file);
    for (int64_t i = 0; i < network->layers && i < QDR_NETWORK_MOST_LAYERS; i++)
        fputc('0' + network->layer_kinds[i], file);
    fputc('"', file);
}

/* 1: the member is not zero. */
static int has(const qdr_network *network, const qdri_network_key *key)
{
    const unsigned char *at = member(network, key);
    for (size_t i = 0; i < key->bytes; i++)
        if (at[i]) return 1;
    return 0;
}

static void put(FILE *file, const qdr_network *network, const qdri_network_key *key)
{
    char text[VALUE_BYTES], printable[VALUE_BYTES];
    const int is_text = key->kind == QDRI_NETWORK_TEXT || key->kind == QDRI_NETWORK_WORD;
    if (key->kind == QDRI_NETWORK_FACTORS) {
        put_factors(file, member(network, key));
    } else if (key->kind == QDRI_NETWORK_LAYERS) {
        put_layers(file, network);
    } else {
        show(network, key, text);
        qdri_json_printable(text, printable, sizeof printable);
        if (is_text)
            qdri_json_put_quoted(file, printable);
        else
            fputs(printable, file);
    }
}

void qdri_network_put(FILE *file, const qdr_network *network, const char *between, int is_first)
{
    for (int i = 0; i < qdri_n_network_keys; i++) {
        const qdri_network_key *key = &qdri_network_keys[i];
        if (i >= QDRI_N_FIRST_NETWORK_KEYS && !has(network, key)) continue;
        fprintf(file, "%s%s\"%s\": ", i || !is_first ? "," : "", between, key->name);
        put(file, network, key);
    }
}

size_t qdr_network_text(const qdr_network *network, char *text, size_t capacity)
{
    qdr_network own;
    char *whole = NULL;
    size_t bytes = 0;
    if (text && capacity) *text = '\0';
    FILE *file = QDRI_TAKE(qdr_network, network, &own) == QDR_OK ? open_memstream(&whole, &bytes) : NULL;
    if (!file) return 0;
    fputs("{\"name\": ", file);
    qdri_json_put_quoted(file, own.name);
    qdri_network_put(file, &own, " ", 0);
    fputs("}", file);
    const int has_failed = ferror(file);
    if (fclose(file) || has_failed) bytes = 0;
    if (text && capacity) snprintf(text, capacity, "%s", bytes ? whole : "");
    free(whole);
    return bytes;
}

/* ---- reading ---- */

static qdr_status take_factors(qdri_json_node node, double *factors)
{
    qdri_json_node list;
    size_t n;
    QDR_TRY(qdri_json_list(node, &list, &n));
    if (n > QDR_ROTARY_MOST_FACTORS)
        return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has %zu factors; at most %d", qdri_json_where(node).text, n,
                        QDR_ROTARY_MOST_FACTORS);
    for (size_t i = 0; i < n; i++) QDR_TRY(qdri_json_number(qdri_json_at(&list, i), 0, INFINITY, &factors[i]));
    return QDR_OK;
}

static qdr_status take_layers(qdri_json_node node, int64_t n_layers, unsigned char *kinds_of_layers)
{
    enum { ALL = QDR_LAYER_WINDOW | QDR_LAYER_UNROTATED | QDR_LAYER_LOCAL };
    const char *digits;
    QDR_TRY(qdri_json_string(node, QDR_NETWORK_MOST_LAYERS + 1, &digits));
    for (; *digits; digits++) {
        if (*digits < '0' || *digits > '0' + ALL)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s has '%c'; a digit from 0 to %d is needed", qdri_json_where(node).text,
                            *digits >= ' ' && *digits <= '~' ? *digits : '?', ALL);
        *kinds_of_layers++ = (unsigned char)(*digits - '0');
        n_layers--;
    }
    if (n_layers == 0) return QDR_OK;
    return QDR_FAIL(QDR_ERR_ARGUMENT, "%s does not have one digit for each layer", qdri_json_where(node).text);
}

static qdr_status take(qdri_json_node node, const qdri_network_key *key, qdr_network *network)
{
    void *at = member(network, key);
    const char *text;
    int64_t number;
    switch (key->kind) {
    case QDRI_NETWORK_TEXT:
        QDR_TRY(qdri_json_string(node, key->bytes, &text));
        qdri_json_printable(text, at, key->bytes);
        return QDR_OK;
    case QDRI_NETWORK_SIZE:
    case QDRI_NETWORK_COUNT: return qdri_json_int(node, 0, INT32_MAX, at);
    case QDRI_NETWORK_NUMBER:
        QDR_TRY(qdri_json_int(node, 0, INT32_MAX, &number));
        *(int *)at = (int)number;
        return QDR_OK;
    case QDRI_NETWORK_SWITCH: return qdri_json_flag(node, at);
    case QDRI_NETWORK_WORD: return qdri_json_word(node, key->words, key->n_words, at);
    case QDRI_NETWORK_REAL: return qdri_json_number(node, 0, INFINITY, at);
    case QDRI_NETWORK_FACTORS: return take_factors(node, at);
    default: return take_layers(node, network->layers, at);
    }
}

/* Nothing in the file is passed over. */
static qdr_status check_keys(const qdri_json_node *object, const char *other_key)
{
    for (const char *key = NULL; (key = qdri_json_next_key(object, key)) != NULL;) {
        int is_known = other_key && strcmp(key, other_key) == 0;
        for (int i = 0; i < qdri_n_network_keys; i++) is_known |= strcmp(key, qdri_network_keys[i].name) == 0;
        if (!is_known)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is none that networks have; leave it out, or write the file again",
                            qdri_json_where(qdri_json_get(object, key)).text);
    }
    return QDR_OK;
}

qdr_status qdri_network_take(qdri_json_node node, const char *other_key, qdr_network *network)
{
    qdri_json_node object;
    qdr_network_counts counts = {QDR_INIT(qdr_network_counts)};
    char why[QDRI_ERROR_BYTES];
    QDR_TRY(qdri_json_object(node, &object));
    for (int i = 0; i < qdri_n_network_keys; i++) {
        const qdri_json_node value = qdri_json_get(&object, qdri_network_keys[i].name);
        QDR_TRY(qdri_json_not_null(value));
        if (qdri_json_has(value))
            QDR_TRY(take(value, &qdri_network_keys[i], network));
        else if (i < QDRI_N_FIRST_NETWORK_KEYS)
            return QDR_FAIL(QDR_ERR_ARGUMENT, "%s is missing; write the file again", qdri_json_where(value).text);
    }
    QDR_TRY(check_keys(&object, other_key));
    if (qdr_network_params(network, &counts) == QDR_OK) return QDR_OK;
    snprintf(why, sizeof why, "%s", qdr_last_error());
    return qdri_fail(QDR_ERR_ARGUMENT, __FILE__, __LINE__, "%s: %.400s", qdri_json_where(node).text, why);
}

/* ---- comparing ---- */

/* Two names of one function; "" is none. */
static int are_synonyms(const char *one, const char *two)
{
    qdr_activation_function a, b;
    return *one && *two && qdri_activation_named(one, &a) && qdri_activation_named(two, &b) && a == b;
}

static int is_same(const qdr_network *a, const qdr_network *b, const qdri_network_key *key)
{
    const void *one = member(a, key), *two = member(b, key);
    if (key->kind == QDRI_NETWORK_REAL) /* -0 is 0 */
        return !(*(const double *)one < *(const double *)two) && !(*(const double *)one > *(const double *)two);
    if (key->kind != QDRI_NETWORK_TEXT) return memcmp(one, two, key->bytes) == 0;
    return strcmp(one, two) == 0 || are_synonyms(one, two);
}

/* Zeros that stand for something, and what a network does not use. */
static void fill_in(qdr_network *n)
{
    double *const factors[] = {&n->embedding_factor, &n->branch_factor, &n->logits_factor};
    qdr_rotary *const sets[] = {&n->rotary, &n->local_rotary};
    if (n->norm_epsilon == 0) n->norm_epsilon = 1e-5;
    if (n->norms_per_layer == 0) n->norms_per_layer = qdri_network_norms(n);
    for (int i = 0; i < 3; i++)
        if (*factors[i] == 0) *factors[i] = 1;
    for (int i = 0; i < 2; i++) {
        if (n->positions) *sets[i] = (qdr_rotary){.kind = QDR_ROTARY_DEFAULT};
        *sets[i] = qdri_rotary_whole(n, sets[i]);
    }
}

int qdr_network_differ(const qdr_network *first, const qdr_network *second, qdr_network_difference *difference)
{
    qdr_network a, b;
    qdr_network_difference found;
    char values[2][VALUE_BYTES];
    if (!first || !second) return first != second;
    if (QDRI_TAKE(qdr_network, first, &a) != QDR_OK || QDRI_TAKE(qdr_network, second, &b) != QDR_OK) return 1;
    fill_in(&a);
    fill_in(&b);
    for (const qdri_network_key *key = qdri_network_keys; key < qdri_network_keys + qdri_n_network_keys; key++) {
        if (is_same(&a, &b, key)) continue;
        found.key = key->name;
        show(&a, key, values[0]);
        show(&b, key, values[1]);
        snprintf(found.first, sizeof found.first, "%.39s", values[0]);
        snprintf(found.second, sizeof found.second, "%.39s", values[1]);
        if (difference) QDRI_GIVE(qdr_network_difference, difference, &found);
        return 1;
    }
    return 0;
}
