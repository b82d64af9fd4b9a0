/* SPDX-License-Identifier: Apache-2.0 */
/* JSON files that people write: machines and networks. A document is read whole; its values are asked for one by one,
 * with the type and the range that they must have, and what is wrong is said in one sentence with the file, the line
 * and the key:
 *
 *   my.json, line 7: key 'num_hidden_layers' is -3; a whole number >= 1 is needed
 *
 *   qdri_json_node root, level;
 *   QDR_TRY(qdri_json_root(document, &root));
 *   QDR_TRY(qdri_json_int(qdri_json_get(&root, "nodes"), 1, INT32_MAX, &n_nodes));
 *   QDR_TRY(qdri_json_object(qdri_json_get(&root, "level"), &level));
 *   QDR_TRY(qdri_json_number_or(qdri_json_get(&level, "secs"), 0, 1, 1e-6, &secs));
 *
 * Keys that nobody asks for are allowed, a key twice in one object is not. null counts as absent. A text has at most 16
 * MiB and 64 levels. Sentences are printable ASCII. */
#ifndef QDRI_CORE_JSON_H
#define QDRI_CORE_JSON_H

#include "core/status.h"

enum { QDRI_JSON_MAX_BYTES = 16 << 20, QDRI_JSON_MAX_DEPTH = 64, QDRI_JSON_PATH_BYTES = 96 };

typedef struct qdri_json qdri_json;

/* A place in a document, which need not be there. Valid as long as the document and the node of its parent, which must
 * stay where it is and as it is. */
typedef struct qdri_json_node {
    const qdri_json *document;
    const struct qdri_json_node *parent; /* NULL: the root */
    const char *key; /* NULL: an item of a list */
    size_t index;
    const void *value; /* NULL: absent */
} qdri_json_node;

/* What a value is. */
typedef enum qdri_json_kind {
    QDRI_JSON_ABSENT = 0,
    QDRI_JSON_NULL,
    QDRI_JSON_FLAG,
    QDRI_JSON_NUMBER,
    QDRI_JSON_STRING,
    QDRI_JSON_LIST,
    QDRI_JSON_OBJECT
} qdri_json_kind;

/* Reads a file; "-" is standard input. *document is NULL after an error.
 * @retval QDR_ERR_IO        it cannot be opened or read
 * @retval QDR_ERR_ARGUMENT  it is too large or too deep, or no JSON */
QDR_NODISCARD qdr_status qdri_json_load(const char *path, qdri_json **document);
/* The same for a text of `bytes` bytes. `name` is what sentences call it. */
QDR_NODISCARD qdr_status qdri_json_parse(const char *text, size_t bytes, const char *name, qdri_json **document);
void qdri_json_free(qdri_json **document);
/* What sentences call the document. */
const char *qdri_json_name(const qdri_json *document);

/* The outermost value, which must be an object. */
QDR_NODISCARD qdr_status qdri_json_root(const qdri_json *document, qdri_json_node *root);
/* A member of an object; absent if that is none, too. The key lives as long as the node. */
qdri_json_node qdri_json_get(const qdri_json_node *object, const char *key);
/* The key of the member behind `key` in an object, NULL: of the first; returns NULL after the last. */
const char *qdri_json_next_key(const qdri_json_node *object, const char *key);
/* An item of a list, absent beyond its end. */
qdri_json_node qdri_json_at(const qdri_json_node *list, size_t index);
qdri_json_kind qdri_json_kind_of(qdri_json_node node);
/* 1: there, and not null. */
int qdri_json_has(qdri_json_node node);

/* Values. What is absent or null is an error, except where a default is given. After an error the result is 0 or NULL.
 * @retval QDR_ERR_ARGUMENT  absent, of another type, or out of range */
QDR_NODISCARD qdr_status qdri_json_object(qdri_json_node node, qdri_json_node *object);
QDR_NODISCARD qdr_status qdri_json_list(qdri_json_node node, qdri_json_node *list, size_t *n);
/* A whole number (1e9 is one, too); most = INT64_MAX: no upper bound is named. */
QDR_NODISCARD qdr_status qdri_json_int(qdri_json_node node, int64_t least, int64_t most, int64_t *value);
QDR_NODISCARD qdr_status qdri_json_int_or(qdri_json_node node, int64_t least, int64_t most, int64_t otherwise,
                                          int64_t *value);
/* A finite number; most = INFINITY: no upper bound is named. */
QDR_NODISCARD qdr_status qdri_json_number(qdri_json_node node, double least, double most, double *value);
QDR_NODISCARD qdr_status qdri_json_number_or(qdri_json_node node, double least, double most, double otherwise,
                                             double *value);
/* true or false. */
QDR_NODISCARD qdr_status qdri_json_flag_or(qdri_json_node node, int otherwise, int *value);
/* A string with less than max_bytes bytes (0: any), in the document's memory. */
QDR_NODISCARD qdr_status qdri_json_string(qdri_json_node node, size_t max_bytes, const char **value);
QDR_NODISCARD qdr_status qdri_json_string_or(qdri_json_node node, size_t max_bytes, const char *otherwise,
                                             const char **value);
/* One of n words. */
QDR_NODISCARD qdr_status qdri_json_word(qdri_json_node node, const char *const *words, int n, int *word);

/* "FILE, line 7: key 'a.b[2]'", for the sentences of those who know more about a value. */
typedef struct qdri_json_place {
    char text[320];
} qdri_json_place;
qdri_json_place qdri_json_where(qdri_json_node node);
/* `text` with what is not printable ASCII as '?', at most `bytes` with its end. For sentences. */
void qdri_json_printable(const char *text, char *printable, size_t bytes);

/* json_line.c: the line of the value at a path in a text that is JSON; 0: not found. A step is a key, or an item's
 * number where the key is NULL. Keys with escapes are not found. */
typedef struct qdri_json_step {
    const char *key;
    size_t index;
} qdri_json_step;
int qdri_json_line(const char *text, size_t bytes, const qdri_json_step *steps, int n_steps);
/* The line on which a text, JSON or not, opens more than max_depth objects and lists; 0: none. */
int qdri_json_too_deep(const char *text, size_t bytes, int max_depth);

#endif
