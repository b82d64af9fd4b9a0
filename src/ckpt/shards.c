/* SPDX-License-Identifier: Apache-2.0 */
/* The files that a conversion writes: one, or several with an index, named as Hugging Face names them. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "ckpt/convert.h"
#include "common/files.h"

#define ENDING ".safetensors"
enum { MOST_FILES = 400 /* that are open at once */ };

typedef struct shards {
    const ckpt_plan *plan;
    const ckpt_writing *writing;
    int n;
    int *first; /* output with which each begins; first[n]: their number */
    int n_stem; /* characters of the path before its ending */
    int64_t bytes;
} shards;

/* A tensor that is larger than a file may be has one of its own. */
static int divide(shards *s, failure *why)
{
    int64_t bytes = 0;
    s->first = calloc((size_t)s->plan->n_outputs + 2, sizeof *s->first);
    if (!s->first) return fail_memory(why, "ckpt convert: out of memory for the files");
    for (int i = 0; i < s->plan->n_outputs; i++) {
        const int64_t more = s->plan->outputs[i].tensor.bytes;
        if (i == 0 || (bytes > 0 && more > 0 && more > s->writing->max_bytes - bytes)) {
            s->first[s->n++] = i;
            bytes = 0;
        }
        bytes += more;
        s->bytes += more;
    }
    if (s->n > MOST_FILES)
        return fail(why, EXIT_USAGE, "ckpt convert: --max-size would make %d files; use a size that makes %d at most",
                    s->n, MOST_FILES);
    if (s->n == 0) s->n = 1; /* a file without tensors */
    s->first[s->n] = s->plan->n_outputs;
    return EXIT_OK;
}

static int path_of(const shards *s, int number, char path[FILES_PATH_BYTES], failure *why)
{
    const int n = s->n == 1 ? snprintf(path, FILES_PATH_BYTES, "%s", s->writing->path)
                            : snprintf(path, FILES_PATH_BYTES, "%.*s-%05d-of-%05d" ENDING, s->n_stem, s->writing->path,
                                       number + 1, s->n);
    if (n < FILES_PATH_BYTES) return EXIT_OK;
    return fail(why, EXIT_USAGE, "ckpt convert: the path %s is too long", ckpt_show(s->writing->path).text);
}

static int index_path(const shards *s, char path[FILES_PATH_BYTES], failure *why)
{
    const int n = snprintf(path, FILES_PATH_BYTES, "%.*s" ENDING ".index.json", s->n_stem, s->writing->path);
    if (n < FILES_PATH_BYTES) return EXIT_OK;
    return fail(why, EXIT_USAGE, "ckpt convert: the path %s is too long", ckpt_show(s->writing->path).text);
}

/* ---- inputs, which are never replaced ---- */

static int is_same(const char *a, const char *b)
{
    struct stat left, right;
    return stat(a, &left) == 0 && stat(b, &right) == 0 && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

static int check_output(const shards *s, const char *path, failure *why)
{
    const char *input = s->plan->path; /* which may be an index */
    for (int i = 0; input; input = qdr_safetensors_path(s->plan->file, i++))
        if (is_same(path, input))
            return fail(why, EXIT_USAGE, "ckpt convert: the output %s is the input %s; name another output",
                        ckpt_show(path).text, ckpt_show(input).text);
    return EXIT_OK;
}

static int check_outputs(const shards *s, failure *why)
{
    char path[FILES_PATH_BYTES];
    for (int i = 0; i < s->n; i++)
        if (path_of(s, i, path, why) || check_output(s, path, why)) return why->code;
    return s->n > 1 && !index_path(s, path, why) ? check_output(s, path, why) : why->code;
}

/* The characters before the ending, which a path may lack. */
static int stem_of(const char *path)
{
    const size_t n = strlen(path), n_ending = strlen(ENDING);
    return (int)(n >= n_ending && strcmp(path + n - n_ending, ENDING) == 0 ? n - n_ending : n);
}

/* ---- the index ---- */

static void write_index(FILE *file, const shards *s, failure *why)
{
    json_t *map = json_object(), *root = json_object();
    for (int i = 0; i < s->n; i++) {
        char path[FILES_PATH_BYTES];
        if (path_of(s, i, path, why)) break;
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        for (int output = s->first[i]; output < s->first[i + 1]; output++)
            if (json_object_set_new(map, s->plan->outputs[output].name, json_string(name)))
                fail(why, EXIT_FAILED, "ckpt convert: a name is not UTF-8, or memory ran out for the index");
    }
    json_object_set_new(root, "metadata", json_pack("{s:I}", "total_size", (json_int_t)s->bytes));
    if (json_object_set_new(root, "weight_map", map) || json_dumpf(root, file, JSON_INDENT(2) | JSON_PRESERVE_ORDER))
        fail(why, EXIT_FAILED, "ckpt convert: the index could not be written");
    fputc('\n', file);
    json_decref(root);
}

/* ---- writing ---- */

/* All files are open until all are written, so that a failure, such as a full disk, replaces none of them. */
static int create_file(const shards *s, int number, qdr_safetensors **file, failure *why)
{
    const int begin = s->first[number], n = s->first[number + 1] - begin;
    qdr_tensor *tensors = calloc((size_t)n + 1, sizeof *tensors);
    char path[FILES_PATH_BYTES];
    if (!tensors) return fail_memory(why, "ckpt convert: out of memory for %d tensors", n);
    for (int i = 0; i < n; i++) tensors[i] = s->plan->outputs[begin + i].tensor;
    if (!path_of(s, number, path, why))
        fail_status(why, qdr_safetensors_create(path, tensors, n, s->writing->metadata, file));
    free(tensors);
    return why->code;
}

/* Compares the checksum of a tensor of the input, if it has one. */
static int check_input(const qdr_safetensors *file, int index, failure *why)
{
    const qdr_tensor *tensor = qdr_safetensors_tensor(file, index);
    if (!tensor->has_crc) return EXIT_OK;
    const qdr_status status = qdr_safetensors_verify(file, index);
    return status == QDR_ERR_IO ? fail(why, EXIT_MISMATCH, "%s", qdr_last_error()) : fail_status(why, status);
}

/* The checksums of outputs would hide damage of the input. */
static int check_inputs(const ckpt_plan *plan, failure *why)
{
    int64_t bytes = 0;
    for (int i = 0; i < plan->n_sources; i++)
        for (int piece = 0; piece < plan->sources[i].n_pieces; piece++)
            bytes += qdr_safetensors_tensor(plan->file, plan->sources[i].pieces[piece])->bytes;
    ckpt_progress progress = ckpt_progress_begin("checked", bytes);
    for (int i = 0; i < plan->n_sources && !why->code; i++)
        for (int piece = 0; piece < plan->sources[i].n_pieces && !why->code; piece++) {
            const int input = plan->sources[i].pieces[piece];
            check_input(plan->file, input, why);
            ckpt_progress_add(&progress, qdr_safetensors_tensor(plan->file, input)->bytes);
        }
    ckpt_progress_end(&progress);
    return why->code;
}

static int move_outputs(const shards *s, qdr_safetensors **files, failure *why)
{
    ckpt_progress progress = ckpt_progress_begin("written", s->bytes);
    for (int i = 0; i < s->n; i++)
        for (int output = s->first[i]; output < s->first[i + 1] && !why->code; output++)
            ckpt_move(s->plan, &s->plan->outputs[output], files[i], output - s->first[i], &progress, why);
    ckpt_progress_end(&progress);
    return why->code;
}

/* The index's output is finished, as all files are. */
static int finish_index(const shards *s, qdr_output **output, failure *why)
{
    char path[FILES_PATH_BYTES];
    if (index_path(s, path, why) || fail_status(why, qdr_output_open("ckpt convert", path, QDR_OUTPUT_REPLACE, output)))
        return why->code;
    write_index(qdr_output_file(*output), s, why);
    return why->code ? why->code : fail_status(why, qdr_output_finish(*output));
}

/* Files get their names when nothing is left to be written, and the index comes last. */
static int write_files(const shards *s, qdr_safetensors **files, failure *why)
{
    qdr_output *index = NULL;
    for (int i = 0; i < s->n && !why->code; i++) create_file(s, i, &files[i], why);
    if (!why->code && !check_inputs(s->plan, why)) move_outputs(s, files, why);
    for (int i = 0; i < s->n && !why->code; i++) fail_status(why, qdr_safetensors_finish(files[i]));
    if (s->n > 1 && !why->code) finish_index(s, &index, why);
    for (int i = 0; i < s->n && !why->code; i++) fail_status(why, qdr_safetensors_close(&files[i]));
    if (index) files_end(&index, why);
    for (int i = 0; i < s->n; i++) qdr_safetensors_discard(&files[i]);
    return why->code;
}

static void tell_written(const shards *s)
{
    char path[FILES_PATH_BYTES];
    failure unused = {0};
    if ((s->n > 1 ? index_path(s, path, &unused) : path_of(s, 0, path, &unused)) != EXIT_OK) return;
    printf("%s: %d tensor%s, %" PRId64 " bytes%s\n", ckpt_show(path).text, s->plan->n_outputs,
           PLURAL(s->plan->n_outputs), s->bytes, s->n > 1 ? ", in several files" : "");
}

int ckpt_write(const ckpt_plan *plan, const ckpt_writing *writing, failure *why)
{
    shards s = {.plan = plan, .writing = writing, .n_stem = stem_of(writing->path)};
    if (divide(&s, why) || check_outputs(&s, why)) {
        free(s.first);
        return why->code;
    }
    qdr_safetensors **files = calloc((size_t)s.n + 1, sizeof *files);
    if (!files)
        fail_memory(why, "ckpt convert: out of memory for %d files", s.n);
    else if (!write_files(&s, files, why))
        tell_written(&s);
    free(files);
    free(s.first);
    return why->code;
}
