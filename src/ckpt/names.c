/* SPDX-License-Identifier: Apache-2.0 */
/* What a conversion writes: tensors of ours from those of the input, and outputs from these. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/convert.h"

static int is_state(const char *name) { return strncmp(name, "optimizer.", strlen("optimizer.")) == 0; }

static int fail_names(failure *why) { return fail_memory(why, "ckpt convert: out of memory for names"); }

/* What all steps work on. */
typedef struct making {
    ckpt_plan *plan;
    const ckpt_naming *naming;
    int *kept; /* tensors of the input, by the number of the name that a map is asked for */
    json_t *numbers; /* of sources, by name */
} making;

static const qdr_tensor *input_of(const ckpt_plan *plan, int index)
{
    return qdr_safetensors_tensor(plan->file, index);
}

/* A tensor whose elements are whole bytes can be cut. */
static int has_whole_bytes(const qdr_tensor *tensor)
{
    return tensor->n_elems == 0 || tensor->bytes % tensor->n_elems == 0;
}

static int is_cut_by(const ckpt_rule *rule) { return rule->is_transposed || rule->n_theirs > 1 || rule->by_head; }

/* Rows that are stored head by head must be those of whole heads. */
static int check_heads(const making *m, const ckpt_rule *rule, const ckpt_source *source, failure *why)
{
    const ckpt_plan *plan = m->plan;
    const int64_t rows = ckpt_rows(&source->tensor);
    if (!rule->by_head) return EXIT_OK;
    if (!plan->heads)
        return fail(why, EXIT_USAGE,
                    "%s: %s is stored head by head, but neither a config.json beside the file nor its note says how "
                    "many heads there are; put the model's config.json there",
                    ckpt_show(plan->path).text, ckpt_show(source->name).text);
    if (rows % rule->by_head == 0 && rows / rule->by_head % plan->heads == 0) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s: the %" PRId64 " rows of %s are not %d of each of %" PRId64 " heads, all alike",
                ckpt_show(plan->path).text, rows, ckpt_show(source->name).text, rule->by_head, plan->heads);
}

/* ---- sources ---- */

static const ckpt_source *find_source(const making *m, const char *pattern, int64_t block)
{
    char *name = ckpt_expand(pattern, block);
    const json_t *number = name ? json_object_get(m->numbers, name) : NULL;
    free(name);
    return number ? &m->plan->sources[json_integer_value(number)] : NULL;
}

/* Takes the name of the source that comes next, and counts it. */
static int name_source(making *m, char *name, failure *why)
{
    const int number = m->plan->n_sources;
    m->plan->sources[number].name = name;
    m->plan->n_sources += name != NULL;
    if (!name || json_object_set_new(m->numbers, name, json_integer(number))) return fail_names(why);
    return EXIT_OK;
}

static int check_piece(const making *m, const ckpt_source *source, const qdr_tensor *piece, failure *why)
{
    const char *path = m->plan->path;
    const qdr_tensor *first = input_of(m->plan, source->pieces[0]);
    const int is_cut = is_cut_by(source->rule);
    if (source->is_transposed && piece->n_dims != 2)
        return fail(why, EXIT_USAGE, "%s: tensor %s has the shape %s; only a matrix can be transposed",
                    ckpt_show(path).text, ckpt_show(piece->name).text, ckpt_shape(piece).text);
    if (is_cut && (piece->n_dims < 1 || !has_whole_bytes(piece)))
        return fail(why, EXIT_USAGE, "%s: tensor %s is %s %s, which cannot be cut or joined", ckpt_show(path).text,
                    ckpt_show(piece->name).text, piece->type, ckpt_shape(piece).text);
    const int are_converted = m->naming->dtype >= 0 && ckpt_is_real(piece) && ckpt_is_real(first);
    if (strcmp(piece->type, first->type) != 0 && !are_converted)
        return fail(why, EXIT_USAGE, "%s: %s is %s, but %s is %s, and they are joined; use --dtype f32",
                    ckpt_show(path).text, ckpt_show(first->name).text, first->type, ckpt_show(piece->name).text,
                    piece->type);
    return EXIT_OK;
}

/* Adds a piece's rows. */
static int add_piece(const making *m, ckpt_source *source, int index, failure *why)
{
    const qdr_tensor *piece = input_of(m->plan, index);
    qdr_tensor rows = *piece, *all = &source->tensor;
    source->pieces[source->n_pieces++] = index;
    if (source->rule && check_piece(m, source, piece, why)) return why->code;
    if (source->is_transposed) {
        rows.shape[0] = piece->shape[1];
        rows.shape[1] = piece->shape[0];
    }
    if (source->n_pieces == 1) {
        *all = rows;
        return EXIT_OK;
    }
    const size_t others = (size_t)(all->n_dims - 1) * sizeof *all->shape;
    if (rows.n_dims != all->n_dims || memcmp(rows.shape + 1, all->shape + 1, others) != 0)
        return fail(why, EXIT_USAGE, "%s: %s has the shape %s, which does not fit %s, with which it is joined",
                    ckpt_show(m->plan->path).text, ckpt_show(piece->name).text, ckpt_shape(piece).text,
                    ckpt_show(input_of(m->plan, source->pieces[0])->name).text);
    if (!__builtin_add_overflow(all->shape[0], rows.shape[0], &all->shape[0])) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s: %s has the shape %s, whose rows are too many to be joined",
                ckpt_show(m->plan->path).text, ckpt_show(piece->name).text, ckpt_shape(piece).text);
}

/* A head that is the table itself is not written. */
static int is_tied(const making *m, const ckpt_rule *rule, int64_t block, int index, int *tied, failure *why)
{
    const ckpt_source *table = rule->tied ? find_source(m, rule->tied, block) : NULL;
    *tied = 0;
    if (m->naming->keeps_tied || !table || table->n_pieces > 1 || table->is_transposed != rule->is_transposed)
        return EXIT_OK;
    return ckpt_compare(m->plan->file, index, table->pieces[0], tied, why);
}

static int add_source(const ckpt_rule *rule, int64_t block, const int *numbers, void *user, failure *why)
{
    making *m = user;
    ckpt_source *source = &m->plan->sources[m->plan->n_sources];
    int tied;
    if (is_tied(m, rule, block, m->kept[numbers[0]], &tied, why)) return why->code;
    if (tied) ckpt_names_add(&m->plan->tied, input_of(m->plan, m->kept[numbers[0]])->name);
    if (tied) return EXIT_OK;
    *source = (ckpt_source){.is_transposed = rule->is_transposed, .rule = rule, .block = block};
    for (int part = 0; part < rule->n_theirs; part++)
        if (add_piece(m, source, m->kept[numbers[part]], why)) return why->code;
    return name_source(m, ckpt_expand(rule->ours, block), why) || check_heads(m, rule, source, why);
}

static int64_t piece_rows(const ckpt_plan *plan, const ckpt_source *source, int part)
{
    const qdr_tensor *piece = input_of(plan, source->pieces[part]);
    return source->is_transposed ? piece->shape[1] : ckpt_rows(piece);
}

/* ---- parts ---- */

/* The rows of each part of a source by a rule. */
static int split(const making *m, const ckpt_rule *rule, int64_t block, const ckpt_source *source,
                 int64_t rows[CKPT_PARTS], failure *why)
{
    const ckpt_plan *plan = m->plan;
    const int n = rule->n_theirs;
    const int64_t all = ckpt_rows(&source->tensor);
    const ckpt_source *first = rule->first ? find_source(m, rule->first, block) : NULL;
    if (rule->first && !first)
        return fail(why, EXIT_USAGE, "%s lacks %s, which says how %s is split", ckpt_show(plan->path).text,
                    ckpt_show(rule->first).text, ckpt_show(source->name).text);
    rows[0] = first ? ckpt_columns_of(&first->tensor) : all / n;
    for (int part = 1; part < n; part++) rows[part] = (all - rows[0]) / (n - 1);
    int64_t sum = 0;
    for (int part = 0; part < n; part++) sum += rows[part];
    if (sum == all && rows[0] <= all) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s: the %" PRId64 " rows of %s are not %d %s; check the shapes",
                ckpt_show(plan->path).text, all, ckpt_show(source->name).text, n,
                first ? "parts, as many as another tensor has columns and then equal ones" : "equal parts");
}

/* What is joined must be what would be split again. */
static int check_parts(const making *m, const ckpt_source *source, failure *why)
{
    const ckpt_plan *plan = m->plan;
    int64_t rows[CKPT_PARTS] = {0};
    if (source->n_pieces < 2) return EXIT_OK;
    if (split(m, source->rule, source->block, source, rows, why)) return why->code;
    for (int part = 0; part < source->n_pieces; part++)
        if (piece_rows(plan, source, part) != rows[part])
            return fail(why, EXIT_USAGE,
                        "%s: %s has %" PRId64 " rows, but %" PRId64 " would be split from %s again; check the shapes, "
                        "or the rule's 'first'",
                        ckpt_show(plan->path).text, ckpt_show(input_of(plan, source->pieces[part])->name).text,
                        piece_rows(plan, source, part), rows[part], ckpt_show(source->name).text);
    return EXIT_OK;
}

/* ---- outputs ---- */

static int64_t bytes_of(const ckpt_plan *plan, const ckpt_source *source, const ckpt_output *output)
{
    const int64_t n = output->tensor.n_elems;
    if (!output->tensor.type) return n * (int64_t)qdr_dtype_bytes((qdr_dtype)output->tensor.dtype);
    for (int i = 0; i < source->n_pieces; i++) {
        const qdr_tensor *piece = input_of(plan, source->pieces[i]);
        if (n == piece->n_elems) return piece->bytes; /* elements may be parts of bytes */
        if (piece->n_elems) return n * (piece->bytes / piece->n_elems);
    }
    return 0;
}

/* Adds an output of these rows; takes the name. */
static int add_output(const making *m, int number, char *name, int64_t first_row, int64_t n_rows, const ckpt_rule *rule,
                      failure *why)
{
    ckpt_plan *plan = m->plan;
    const ckpt_source *source = &plan->sources[number];
    if (!name) return fail_names(why);
    const int is_real = ckpt_is_real(input_of(plan, source->pieces[0]));
    const int is_converted = m->naming->dtype >= 0 && is_real && (source->rule || !is_state(source->name));
    ckpt_output *output = &plan->outputs[plan->n_outputs++];
    *output = (ckpt_output){.name = name,
                            .source = number,
                            .first_row = first_row,
                            .n_rows = n_rows,
                            .rule = rule,
                            .tensor = source->tensor};
    qdr_tensor *tensor = &output->tensor;
    tensor->name = name;
    tensor->has_crc = 0;
    if (is_converted) {
        tensor->type = NULL;
        tensor->dtype = m->naming->dtype;
    }
    if (tensor->n_dims) tensor->shape[0] = n_rows;
    if (rule && rule->is_transposed) {
        tensor->shape[0] = source->tensor.shape[1];
        tensor->shape[1] = n_rows;
    }
    tensor->n_elems = n_rows * ckpt_columns_of(&source->tensor);
    tensor->bytes = bytes_of(plan, source, output);
    return EXIT_OK;
}

/* The outputs that a rule makes of one tensor of ours. */
static int add_outputs(const ckpt_rule *rule, int64_t block, const int *numbers, void *user, failure *why)
{
    const making *m = user;
    const ckpt_map *map = m->naming->to;
    const ckpt_source *source = &m->plan->sources[numbers[0]];
    const qdr_tensor *piece = input_of(m->plan, source->pieces[0]);
    const size_t n_prefix = strlen(map->prefix);
    int64_t rows[CKPT_PARTS] = {0}, first_row = 0;
    if ((rule->is_transposed && source->tensor.n_dims != 2) ||
        (is_cut_by(rule) && (source->tensor.n_dims < 1 || !has_whole_bytes(piece))))
        return fail(why, EXIT_USAGE, "%s: tensor %s is %s with %d dimension%s, which cannot be %s",
                    ckpt_show(m->plan->path).text, ckpt_show(source->name).text, source->tensor.type,
                    source->tensor.n_dims, PLURAL(source->tensor.n_dims), rule->is_transposed ? "transposed" : "split");
    if (check_heads(m, rule, source, why) || split(m, rule, block, source, rows, why)) return why->code;
    for (int part = 0; part < rule->n_theirs && !why->code; part++) {
        const char *pattern = rule->theirs[part];
        const int is_prefixed = n_prefix && strncmp(pattern, map->prefix, n_prefix) == 0;
        const char *shown = pattern + (is_prefixed && m->plan->lacks_prefix ? n_prefix : 0);
        add_output(m, numbers[0], ckpt_expand(shown, block), first_row, rows[part], rule, why);
        first_row += rows[part];
    }
    return why->code;
}

/* ---- the plan ---- */

/* A vector of ours may be stored as a row, which is a matrix to others. */
static void make_vector(ckpt_source *source)
{
    static const char *const endings[] = {"bias", "gamma", "beta"};
    const size_t n = strlen(source->name);
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        const size_t bytes = strlen(endings[i]);
        if (n <= bytes || strcmp(source->name + n - bytes, endings[i]) != 0) continue;
        if (source->tensor.n_dims != 2 || source->tensor.shape[0] != 1) return;
        source->tensor.n_dims = 1;
        source->tensor.shape[0] = source->tensor.shape[1];
    }
}

static int make_sources(making *m, const char **names, failure *why)
{
    ckpt_plan *plan = m->plan;
    const ckpt_map *from = m->naming->from;
    int n = 0;
    for (int i = 0; i < qdr_safetensors_count(plan->file); i++) {
        names[n] = input_of(plan, i)->name;
        m->kept[n] = i;
        if (!from && m->naming->weights_only && is_state(names[n]))
            plan->n_dropped++;
        else
            n++;
    }
    if (from) {
        ckpt_slots slots = {.map = from, .path = plan->path, .names = names, .n_names = n};
        if (ckpt_assign(&slots, add_source, m, why)) return why->code;
        plan->lacks_prefix = slots.lacks_prefix;
        plan->ignored = slots.ignored;
        for (int i = 0; i < plan->n_sources; i++)
            if (check_parts(m, &plan->sources[i], why)) return why->code;
        return EXIT_OK;
    }
    for (int i = 0; i < n; i++) {
        ckpt_source *source = &plan->sources[i];
        if (name_source(m, strdup(names[i]), why)) return why->code;
        if (add_piece(m, source, m->kept[i], why)) return why->code;
        if (m->naming->to) make_vector(source);
    }
    return EXIT_OK;
}

static int make_outputs(making *m, const char **names, failure *why)
{
    ckpt_plan *plan = m->plan;
    const ckpt_map *to = m->naming->to;
    const int64_t parts = to ? CKPT_PARTS : 1;
    plan->outputs = calloc((size_t)(plan->n_sources * parts + 1), sizeof *plan->outputs);
    if (!plan->outputs) return fail_names(why);
    for (int i = 0; i < plan->n_sources; i++) names[i] = plan->sources[i].name;
    ckpt_slots slots = {.map = to, .path = plan->path, .names = names, .n_names = plan->n_sources, .is_ours = 1};
    if (to) return ckpt_assign(&slots, add_outputs, m, why);
    for (int i = 0; i < plan->n_sources && !why->code; i++) {
        const ckpt_source *source = &plan->sources[i];
        char *name = source->name ? strdup(source->name) : NULL;
        add_output(m, i, name, 0, ckpt_rows(&source->tensor), NULL, why);
    }
    return why->code;
}

int ckpt_plan_make(const ckpt_naming *naming, ckpt_plan *plan, failure *why)
{
    const size_t n = (size_t)qdr_safetensors_count(plan->file) + 1;
    const char **names = calloc(n, sizeof *names);
    making m = {.plan = plan, .naming = naming, .kept = calloc(n, sizeof *m.kept), .numbers = json_object()};
    plan->sources = calloc(n, sizeof *plan->sources);
    if (!names || !m.kept || !m.numbers || !plan->sources)
        fail_names(why);
    else if (!make_sources(&m, names, why))
        make_outputs(&m, names, why);
    free(names);
    free(m.kept);
    json_decref(m.numbers);
    return why->code;
}

void ckpt_plan_free(ckpt_plan *plan)
{
    for (int i = 0; i < plan->n_sources; i++) free(plan->sources[i].name);
    for (int i = 0; i < plan->n_outputs; i++) free(plan->outputs[i].name);
    free(plan->sources);
    free(plan->outputs);
    plan->sources = NULL;
    plan->outputs = NULL;
    plan->n_sources = plan->n_outputs = 0;
}
