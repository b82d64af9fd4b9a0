/* SPDX-License-Identifier: Apache-2.0 */
/* Conversions of checkpoints. A map says which tensors of another program are which of ours; with it the tensors of a
 * file become sources (tensors of ours, made of pieces of the input), and these become outputs (parts of them). Without
 * a map, names and shapes stay. */
#ifndef QUADRILLE_SRC_CKPT_CONVERT_H
#define QUADRILLE_SRC_CKPT_CONVERT_H

#include <jansson.h>

#include "ckpt/ckpt.h"

enum {
    CKPT_PARTS = 8, /* tensors of theirs that are one of ours */
    CKPT_PATTERN_BYTES = 4096 /* that a name in a map has at most, with its zero */
};

/* ---- maps: map.c ---- */

/* One tensor of ours, or one of each block. In names, {i} is the block's number. */
typedef struct ckpt_rule {
    const char *ours, *theirs[CKPT_PARTS]; /* theirs: joined along our first axis */
    int n_theirs;
    int is_transposed, is_optional;
    int by_head; /* 0, or how many blocks of ours theirs have head by head: [heads, by_head, rows of a head] */
    const char *first; /* NULL, or a tensor of ours: the first part has as many rows as that has columns */
    const char *tied; /* NULL, or a tensor of ours: theirs is dropped if it has the same elements */
} ckpt_rule;

typedef struct ckpt_map {
    json_t *document; /* has all strings */
    const char *prefix; /* "", or what names of theirs may lack */
    ckpt_rule *rules;
    const char **ignored;
    int n_rules, n_ignored;
    int needs_heads; /* not 0: a rule has by_head */
} ckpt_map;

/* The name of the map of a model_type of transformers; NULL: there is none. */
const char *ckpt_map_of(const char *model_type);
/* Reads a map by model_type, name or path, for an option ("--from"). */
int ckpt_map_read(const char *option, const char *name_or_path, ckpt_map *map, failure *why);
void ckpt_map_free(ckpt_map *map);
int ckpt_read_json(const char *path, size_t max_bytes, json_t **document, failure *why);
/* 1: the pattern has {i}. */
int ckpt_has_block(const char *pattern);
/* The name of a pattern for a block, to be freed with free(); NULL: out of memory. */
char *ckpt_expand(const char *pattern, int64_t block);

/* ---- names: names.c ---- */

/* A tensor of ours. */
typedef struct ckpt_source {
    char *name;
    qdr_tensor tensor; /* its type, that of its pieces, and its shape */
    int n_pieces, pieces[CKPT_PARTS]; /* tensors of the input, joined along the first axis */
    int is_transposed; /* pieces are stored as [columns, rows] */
    const ckpt_rule *rule; /* by which pieces are stored; NULL: there is no map */
    int64_t block;
} ckpt_source;

/* A tensor that is written: rows of a source. */
typedef struct ckpt_output {
    qdr_tensor tensor; /* whose name is `name` */
    char *name;
    int source;
    int64_t first_row, n_rows;
    const ckpt_rule *rule; /* by which it is stored; NULL: there is no map */
} ckpt_output;

typedef struct ckpt_plan {
    const qdr_safetensors *file;
    const char *path;
    ckpt_source *sources;
    ckpt_output *outputs;
    int n_sources, n_outputs, n_dropped;
    int lacks_prefix; /* names of theirs lack the map's prefix */
    int64_t heads; /* of the network; 0: not known */
    ckpt_names ignored, tied; /* left out, as the map says; since another tensor has the same elements */
} ckpt_plan;

typedef struct ckpt_naming {
    const ckpt_map *from, *to; /* NULL: names stay */
    int weights_only;
    int keeps_tied; /* 1: a tensor with the elements of another one is kept: they are two */
    int dtype; /* of all parameters that are real; -1: their own */
} ckpt_naming;

/* Finds what is to be written. `plan` has file and path. */
int ckpt_plan_make(const ckpt_naming *naming, ckpt_plan *plan, failure *why);
void ckpt_plan_free(ckpt_plan *plan);

/* ---- places: slots.c ---- */

/* Which of a file's names is which tensor of a map. */
typedef struct ckpt_slots {
    const ckpt_map *map;
    const char *path;
    const char *const *names;
    int n_names, is_ours; /* is_ours: the names are ours, otherwise theirs */
    int64_t n_blocks;
    int *at; /* numbers of names; -1: none */
    int64_t *offsets; /* of each rule in `at` */
    struct ckpt_pattern *patterns;
    json_t *numbers; /* of patterns, by text */
    int lacks_prefix;
    ckpt_names ignored; /* by the map */
} ckpt_slots;

/* Called for each tensor of a map that is there, with the numbers of its names, in the map's order, block by block. */
typedef int (*ckpt_each)(const ckpt_rule *rule, int64_t block, const int *numbers, void *user, failure *why);
/* Assigns the names, refuses those that the map does not know, and those that it needs and that are not there; then
 * calls `each`. */
int ckpt_assign(ckpt_slots *slots, ckpt_each each, void *user, failure *why);

/* ---- elements: move.c ---- */

/* Writes an output as tensor `index` of a file. */
int ckpt_move(const ckpt_plan *plan, const ckpt_output *output, qdr_safetensors *to, int index, ckpt_progress *progress,
              failure *why);
/* Whether two tensors have the same type, shape and elements, bit for bit. */
int ckpt_compare(const qdr_safetensors *file, int a, int b, int *are_same, failure *why);

/* ---- files: shards.c ---- */

typedef struct ckpt_writing {
    const char *path; /* NAME.safetensors */
    int64_t max_bytes; /* of the tensors of one file */
    const char *const *metadata;
} ckpt_writing;

/* Writes all outputs, and an index if there are several files, and says so. */
int ckpt_write(const ckpt_plan *plan, const ckpt_writing *writing, failure *why);

#endif
