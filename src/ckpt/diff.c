/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille ckpt diff`: what differs between two files. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "common/json.h"

typedef struct diff_options {
    double tolerance;
    int is_json;
} diff_options;

#define AT(member) .at = offsetof(diff_options, member)

static const option_spec specs[] = {
    {"tolerance", 0, "X", "the largest absolute difference that is still equal; default 0", OPTION_REAL, AT(tolerance),
     0, 1e300},
    {"json", 0, NULL, "print one JSON object", OPTION_FLAG, AT(is_json)},
    OPTIONS_END,
};

typedef enum diff_kind { DIFF_NONE, DIFF_ELEMENTS, DIFF_BYTES, DIFF_SHAPE, DIFF_TYPE } diff_kind;

/* Two tensors of one name. */
typedef struct diff_pair {
    const qdr_tensor *a, *b;
    diff_kind kind; /* NONE: all elements are equal */
    double largest; /* of ELEMENTS; infinite where one is NaN or infinite and the other is not the same */
    int64_t n_differing, at; /* elements that differ at all; the number of that with the largest difference */
    int is_over; /* it counts as different */
} diff_pair;

typedef struct diff_answer {
    const char *paths[2];
    qdr_safetensors *files[2];
    diff_pair *pairs;
    int n_pairs, n_equal, n_over, n_only[2];
    double tolerance;
} diff_answer;

/* ---- elements ---- */

static double difference(double a, double b)
{
    if (a == b || (isnan(a) && isnan(b))) return 0;
    return isnan(a) || isnan(b) ? (double)INFINITY : fabs(a - b);
}

/* Elements that are real as numbers, others byte by byte: then `largest` is 1, of the first byte that differs. */
static int compare_items(const qdr_safetensors *const files[2], const int index[2], int are_real,
                         ckpt_progress *progress, diff_pair *pair, failure *why)
{
    static union {
        double reals[CKPT_CHUNK];
        unsigned char bytes[CKPT_CHUNK];
    } chunk[2];
    const int64_t n = are_real ? pair->a->n_elems : pair->a->bytes;
    for (int64_t done = 0; done < n; done += CKPT_CHUNK) {
        const int64_t some = n - done < CKPT_CHUNK ? n - done : CKPT_CHUNK;
        for (int side = 0; side < 2; side++)
            if (fail_status(why, qdr_safetensors_read(files[side], index[side], done, some, are_real ? QDR_F64 : QDR_U8,
                                                      &chunk[side])))
                return why->code;
        for (int64_t i = 0; i < some; i++) {
            const double far = are_real ? difference(chunk[0].reals[i], chunk[1].reals[i])
                                        : chunk[0].bytes[i] != chunk[1].bytes[i];
            if (far == 0) continue;
            pair->n_differing++;
            if (far <= pair->largest) continue;
            pair->largest = far;
            pair->at = done + i;
        }
        ckpt_progress_add(progress, some * (pair->a->bytes / n));
    }
    return EXIT_OK;
}

static int compare(const diff_answer *answer, const int index[2], ckpt_progress *progress, diff_pair *pair,
                   failure *why)
{
    const qdr_safetensors *const files[2] = {answer->files[0], answer->files[1]};
    const int are_real = ckpt_is_real(pair->a) && ckpt_is_real(pair->b);
    if (!ckpt_same_shape(pair->a, pair->b))
        pair->kind = DIFF_SHAPE;
    else if (!are_real && strcmp(pair->a->type, pair->b->type) != 0)
        pair->kind = DIFF_TYPE;
    if (pair->kind) {
        pair->is_over = 1;
        return EXIT_OK;
    }
    if (compare_items(files, index, are_real, progress, pair, why) || !pair->n_differing) return why->code;
    pair->kind = are_real ? DIFF_ELEMENTS : DIFF_BYTES;
    pair->is_over = !are_real || pair->largest > answer->tolerance;
    if (!are_real) pair->at = 8 * pair->at / (8 * pair->a->bytes / pair->a->n_elems);
    return EXIT_OK;
}

static int64_t shared_bytes(const diff_answer *answer)
{
    int64_t bytes = 0;
    for (int i = 0; i < qdr_safetensors_count(answer->files[0]); i++) {
        const qdr_tensor *tensor = qdr_safetensors_tensor(answer->files[0], i);
        if (qdr_safetensors_find(answer->files[1], tensor->name) >= 0) bytes += tensor->bytes;
    }
    return bytes;
}

static int compare_all(diff_answer *answer, failure *why)
{
    const int n[2] = {qdr_safetensors_count(answer->files[0]), qdr_safetensors_count(answer->files[1])};
    ckpt_progress progress = ckpt_progress_begin("compared", shared_bytes(answer));
    answer->pairs = calloc((size_t)n[0] + 1, sizeof *answer->pairs);
    if (!answer->pairs) return fail_memory(why, "ckpt diff: out of memory for %d tensors", n[0]);
    for (int i = 0; i < n[0] && !why->code; i++) {
        const qdr_tensor *tensor = qdr_safetensors_tensor(answer->files[0], i);
        const int index[2] = {i, qdr_safetensors_find(answer->files[1], tensor->name)};
        if (index[1] < 0) continue;
        diff_pair *pair = &answer->pairs[answer->n_pairs++];
        *pair = (diff_pair){.a = tensor, .b = qdr_safetensors_tensor(answer->files[1], index[1])};
        compare(answer, index, &progress, pair, why);
        answer->n_equal += pair->kind == DIFF_NONE;
        answer->n_over += pair->is_over;
    }
    ckpt_progress_end(&progress);
    for (int side = 0; side < 2; side++) answer->n_only[side] = n[side] - answer->n_pairs;
    return why->code;
}

/* ---- text ---- */

/* The place of the element with the largest difference. */
static void find_place(const diff_pair *pair, int64_t place[QDR_TENSOR_MAX_DIMS])
{
    int64_t rest = pair->at;
    for (int i = pair->a->n_dims; i-- > 0; rest /= pair->a->shape[i]) place[i] = rest % pair->a->shape[i];
}

static ckpt_text place_of(const diff_pair *pair)
{
    int64_t place[QDR_TENSOR_MAX_DIMS];
    find_place(pair, place);
    return ckpt_list(place, pair->a->n_dims);
}

static void print_pair(const diff_pair *pair)
{
    if (pair->kind == DIFF_NONE) return;
    const char *name = pair->a->name;
    const int64_t n = pair->a->n_elems;
    switch (pair->kind) {
    case DIFF_NONE: break;
    case DIFF_SHAPE:
        printf("other shape: %s: %s and %s\n", ckpt_show(name).text, ckpt_shape(pair->a).text,
               ckpt_shape(pair->b).text);
        break;
    case DIFF_TYPE: printf("other type: %s: %s and %s\n", ckpt_show(name).text, pair->a->type, pair->b->type); break;
    case DIFF_BYTES:
        printf("differs: %s: %" PRId64 " of %" PRId64 " bytes, the first in element %s\n", ckpt_show(name).text,
               pair->n_differing, pair->a->bytes, place_of(pair).text);
        break;
    case DIFF_ELEMENTS:
        printf("%s: %s: %.9g at %s; %" PRId64 " of %" PRId64 " elements differ\n",
               pair->is_over ? "differs" : "within tolerance", ckpt_show(name).text, pair->largest, place_of(pair).text,
               pair->n_differing, n);
    }
}

/* The tensors of one file whose name the other lacks. `each` gets their names. */
typedef void (*take_name)(const char *name, const char *where, void *user);
static void visit_only(const diff_answer *answer, int side, const char *where, take_name each, void *user)
{
    const qdr_safetensors *mine = answer->files[side], *other = answer->files[1 - side];
    for (int i = 0; i < qdr_safetensors_count(mine); i++) {
        const char *name = qdr_safetensors_tensor(mine, i)->name;
        if (qdr_safetensors_find(other, name) < 0) each(name, where, user);
    }
}

static void print_name(const char *name, const char *where, void *user)
{
    (void)user;
    printf("only in %s: %s\n", where, ckpt_show(name).text);
}

static const diff_pair *farthest(const diff_answer *answer)
{
    const diff_pair *most = NULL;
    for (int i = 0; i < answer->n_pairs; i++)
        if (answer->pairs[i].kind == DIFF_ELEMENTS && (!most || answer->pairs[i].largest > most->largest))
            most = &answer->pairs[i];
    return most;
}

static void print_text(const diff_answer *answer)
{
    const diff_pair *most = farthest(answer);
    for (int i = 0; i < answer->n_pairs; i++) print_pair(&answer->pairs[i]);
    visit_only(answer, 0, ckpt_show(answer->paths[0]).text, print_name, NULL);
    visit_only(answer, 1, ckpt_show(answer->paths[1]).text, print_name, NULL);
    printf("%d tensor%s in both: %d equal, %d within the tolerance, %d different; %d only in the first, %d only in the "
           "second\n",
           answer->n_pairs, PLURAL(answer->n_pairs), answer->n_equal,
           answer->n_pairs - answer->n_equal - answer->n_over, answer->n_over, answer->n_only[0], answer->n_only[1]);
    if (most)
        printf("largest difference: %.9g in %s at %s\n", most->largest, ckpt_show(most->a->name).text,
               place_of(most).text);
}

/* ---- JSON ---- */

static json_t *pair_object(const diff_pair *pair)
{
    static const char *const kinds[] = {"", "elements", "bytes", "shape", "type"};
    json_t *object = json_pack("{s:o, s:s, s:b}", "name", json_text(pair->a->name), "kind", kinds[pair->kind],
                               "different", pair->is_over);
    if (pair->kind == DIFF_SHAPE)
        json_object_set_new(object, "shapes",
                            json_pack("[o, o]", ckpt_json_list(pair->a->shape, pair->a->n_dims),
                                      ckpt_json_list(pair->b->shape, pair->b->n_dims)));
    if (pair->kind == DIFF_TYPE)
        json_object_set_new(object, "types", json_pack("[s, s]", pair->a->type, pair->b->type));
    if (pair->kind == DIFF_ELEMENTS) json_object_set_new(object, "largest", json_finite(pair->largest));
    if (pair->kind == DIFF_ELEMENTS || pair->kind == DIFF_BYTES) {
        int64_t place[QDR_TENSOR_MAX_DIMS];
        find_place(pair, place);
        json_object_set_new(object, "at", ckpt_json_list(place, pair->a->n_dims));
        json_object_set_new(object, "differing", json_integer(pair->n_differing));
    }
    return object;
}

static void append_name(const char *name, const char *where, void *user)
{
    (void)where;
    json_array_append_new(user, json_text(name));
}

static int print_json(const diff_answer *answer, failure *why)
{
    json_t *list = json_array(), *only[2] = {json_array(), json_array()};
    for (int side = 0; side < 2; side++) visit_only(answer, side, "", append_name, only[side]);
    for (int i = 0; i < answer->n_pairs; i++)
        if (answer->pairs[i].kind) json_array_append_new(list, pair_object(&answer->pairs[i]));
    return write_json(json_pack("{s:o, s:o, s:f, s:i, s:i, s:i, s:o, s:o, s:o}", "first", json_text(answer->paths[0]),
                                "second", json_text(answer->paths[1]), "tolerance", answer->tolerance, "in_both",
                                answer->n_pairs, "equal", answer->n_equal, "different", answer->n_over, "only_in_first",
                                only[0], "only_in_second", only[1], "tensors", list),
                      JSON_INDENT(2), "ckpt diff", why);
}

/* ---- the command ---- */

static int print(const diff_answer *answer, int is_json, failure *why)
{
    const int n_only = answer->n_only[0] + answer->n_only[1];
    if (is_json)
        print_json(answer, why);
    else
        print_text(answer);
    if (answer->n_over || n_only)
        fail(why, EXIT_MISMATCH, "%s and %s differ: %d tensor%s by more than %g, %d in only one of them",
             ckpt_show(answer->paths[0]).text, ckpt_show(answer->paths[1]).text, answer->n_over, PLURAL(answer->n_over),
             answer->tolerance, n_only);
    return why->code;
}

static int run(int argc, char **argv)
{
    diff_options options = {0};
    diff_answer answer = {0};
    failure why = {0};
    options_read_operands(argc, argv, specs, &options, answer.paths, 2, &why);
    if (!answer.paths[1]) fail(&why, EXIT_USAGE, "ckpt diff: two files are needed: quadrille ckpt diff FILE FILE2");
    answer.tolerance = options.tolerance;
    for (int side = 0; side < 2 && !why.code; side++) ckpt_open(answer.paths[side], &answer.files[side], &why);
    if (!why.code && !compare_all(&answer, &why)) print(&answer, options.is_json, &why);
    free(answer.pairs);
    for (int side = 0; side < 2; side++) qdr_safetensors_discard(&answer.files[side]);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command ckpt_diff = {
    .name = "ckpt diff",
    .summary = "compare two files by the names of their tensors",
    .usage = "quadrille ckpt diff FILE FILE2 [OPTION]...",
    .text = "Compares tensors of the same name and prints for each pair that differs the largest absolute\n"
            "difference and its element, and the tensors that are in one file only or differ in shape. F32, F64,\n"
            "BF16 and F16 are compared with each other as numbers, where NaN equals NaN, and 0 equals -0; other\n"
            "types byte by byte. Metadata are not compared. Exits with 4 if anything differs by more than\n"
            "--tolerance.",
    .options = specs,
    .examples = "  quadrille ckpt diff before.safetensors after.safetensors\n"
                "  quadrille ckpt diff f32.safetensors bf16.safetensors --tolerance 1e-3\n",
    .is_local = 1,
    .run = run,
};
