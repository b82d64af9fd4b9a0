/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille ckpt ls`: what a file holds. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ckpt/ckpt.h"
#include "common/json.h"

typedef struct ls_options {
    const char *path;
    int has_stats, is_json;
} ls_options;

#define AT(member) .at = offsetof(ls_options, member)

static const option_spec specs[] = {
    {"stats", 0, NULL, "also read the elements: least, largest, mean, NaN, infinities", OPTION_FLAG, AT(has_stats)},
    {"json", 0, NULL, "print one JSON object", OPTION_FLAG, AT(is_json)},
    OPTIONS_END,
};

/* ---- statistics ---- */

/* Of a tensor's elements; least, largest and mean are those of the finite ones. */
typedef struct ls_stats {
    double least, largest, sum;
    int64_t n_finite, n_nan, n_infinite;
} ls_stats;

static void add_element(ls_stats *stats, double x)
{
    if (isnan(x)) {
        stats->n_nan++;
    } else if (isinf(x)) {
        stats->n_infinite++;
    } else {
        if (!stats->n_finite || x < stats->least) stats->least = x;
        if (!stats->n_finite || x > stats->largest) stats->largest = x;
        stats->n_finite++;
        stats->sum += x;
    }
}

static int read_stats(const qdr_safetensors *file, int index, ckpt_progress *progress, ls_stats *stats, failure *why)
{
    static double chunk[CKPT_CHUNK];
    const qdr_tensor *tensor = qdr_safetensors_tensor(file, index);
    *stats = (ls_stats){0};
    for (int64_t done = 0; ckpt_is_real(tensor) && done < tensor->n_elems; done += CKPT_CHUNK) {
        const int64_t left = tensor->n_elems - done, n = left < CKPT_CHUNK ? left : CKPT_CHUNK;
        if (fail_status(why, qdr_safetensors_read(file, index, done, n, QDR_F64, chunk))) return why->code;
        for (int64_t i = 0; i < n; i++) add_element(stats, chunk[i]);
        ckpt_progress_add(progress, n * (tensor->bytes / tensor->n_elems));
    }
    return EXIT_OK;
}

/* ---- text ---- */

/* The longest name decides the width, up to a limit. */
static int name_columns(const qdr_safetensors *file)
{
    enum { LEAST = 6, MOST = 60 };
    int most = LEAST;
    for (int i = 0; i < qdr_safetensors_count(file); i++) {
        const int n = ckpt_columns(ckpt_show(qdr_safetensors_tensor(file, i)->name).text);
        if (n > most) most = n;
    }
    return most < MOST ? most : MOST;
}

/* Checksums of tensors are in the table. */
static int is_checksum(const char *key) { return strcmp(key, "crc32") == 0 || strcmp(key, "header_crc32") == 0; }

static void print_head(const char *path, const qdr_safetensors *file)
{
    int64_t n_elems = 0;
    const int n = qdr_safetensors_count(file);
    const char *key;
    for (int i = 0; i < n; i++) n_elems += qdr_safetensors_tensor(file, i)->n_elems;
    printf("# %s: %d tensor%s, %" PRId64 " elements, %" PRId64 " bytes\n", ckpt_show(path).text, n, PLURAL(n), n_elems,
           ckpt_bytes(file, 0));
    for (int i = 0; (key = qdr_safetensors_metadata_key(file, i)); i++)
        if (!is_checksum(key))
            printf("# %s: %s\n", ckpt_show(key).text, ckpt_show(qdr_safetensors_metadata(file, key)).text);
}

static void print_stats(const qdr_tensor *tensor, const ls_stats *stats)
{
    if (!ckpt_is_real(tensor))
        printf(" %12s %12s %12s %9s %9s", "-", "-", "-", "-", "-");
    else if (!stats->n_finite)
        printf(" %12s %12s %12s %9" PRId64 " %9" PRId64, "-", "-", "-", stats->n_nan, stats->n_infinite);
    else
        printf(" %12.5g %12.5g %12.5g %9" PRId64 " %9" PRId64, stats->least, stats->largest,
               stats->sum / (double)stats->n_finite, stats->n_nan, stats->n_infinite);
}

static void print_tensor(const qdr_tensor *tensor, int columns)
{
    char crc[9] = "-";
    if (tensor->has_crc) snprintf(crc, sizeof crc, "%08" PRIx32, tensor->crc);
    ckpt_print_padded(ckpt_show(tensor->name).text, columns);
    printf(" %-11s %-16s %14" PRId64 " %8s", tensor->type, ckpt_shape(tensor).text, tensor->bytes, crc);
}

static int print_table(const ls_options *options, const qdr_safetensors *file, ckpt_progress *progress, failure *why)
{
    const int columns = name_columns(file), n = qdr_safetensors_count(file);
    print_head(options->path, file);
    ckpt_print_padded("tensor", columns);
    printf(" %-11s %-16s %14s %8s", "type", "shape", "bytes", "crc32");
    if (options->has_stats) printf(" %12s %12s %12s %9s %9s", "least", "largest", "mean", "NaN", "infinite");
    putchar('\n');
    for (int i = 0; i < n; i++) {
        const qdr_tensor *tensor = qdr_safetensors_tensor(file, i);
        ls_stats stats;
        if (options->has_stats && read_stats(file, i, progress, &stats, why)) return why->code;
        ckpt_progress_end(progress);
        print_tensor(tensor, columns);
        if (options->has_stats) print_stats(tensor, &stats);
        putchar('\n');
    }
    ckpt_print_padded("total", columns);
    printf(" %-11s %-16s %14" PRId64 "\n", "", "", ckpt_bytes(file, 0));
    return EXIT_OK;
}

/* ---- JSON ---- */

static json_t *real_or_null(int has, double x) { return has ? json_real(x) : json_null(); }

static json_t *tensor_object(const qdr_tensor *tensor)
{
    char crc[9];
    snprintf(crc, sizeof crc, "%08" PRIx32, tensor->crc);
    return json_pack("{s:o, s:o, s:o, s:I, s:o}", "name", json_text(tensor->name), "type", json_text(tensor->type),
                     "shape", ckpt_json_list(tensor->shape, tensor->n_dims), "bytes", (json_int_t)tensor->bytes,
                     "crc32", tensor->has_crc ? json_string(crc) : json_null());
}

static json_t *stats_object(const ls_stats *stats)
{
    const int has = stats->n_finite > 0;
    return json_pack("{s:o, s:o, s:o, s:I, s:I}", "least", real_or_null(has, stats->least), "largest",
                     real_or_null(has, stats->largest), "mean",
                     real_or_null(has, has ? stats->sum / (double)stats->n_finite : 0), "nan", (json_int_t)stats->n_nan,
                     "infinite", (json_int_t)stats->n_infinite);
}

static json_t *metadata_object(const qdr_safetensors *file)
{
    json_t *object = json_object();
    const char *key;
    for (int i = 0; (key = qdr_safetensors_metadata_key(file, i)); i++)
        if (!is_checksum(key)) json_object_set_new(object, key, json_text(qdr_safetensors_metadata(file, key)));
    return object;
}

static int print_json(const ls_options *options, const qdr_safetensors *file, ckpt_progress *progress, failure *why)
{
    json_t *list = json_array();
    for (int i = 0; i < qdr_safetensors_count(file) && !why->code; i++) {
        const qdr_tensor *tensor = qdr_safetensors_tensor(file, i);
        json_t *object = tensor_object(tensor);
        ls_stats stats;
        if (options->has_stats && !read_stats(file, i, progress, &stats, why))
            json_object_set_new(object, "stats", ckpt_is_real(tensor) ? stats_object(&stats) : json_null());
        if (json_array_append_new(list, object)) fail_memory(why, "ckpt ls: out of memory for the list");
    }
    ckpt_progress_end(progress);
    return write_json(json_pack("{s:o, s:o, s:o, s:I}", "file", json_text(options->path), "metadata",
                                metadata_object(file), "tensors", list, "bytes", (json_int_t)ckpt_bytes(file, 0)),
                      JSON_INDENT(2), "ckpt ls", why);
}

/* ---- the command ---- */

static int run(int argc, char **argv)
{
    ls_options options = {0};
    qdr_safetensors *file = NULL;
    failure why = {0};
    options_read(argc, argv, specs, &options, &options.path, &why);
    if (!options.path) fail(&why, EXIT_USAGE, "ckpt ls: FILE is missing; see quadrille ckpt ls --help");
    if (!why.code && !ckpt_open(options.path, &file, &why)) {
        ckpt_progress progress = ckpt_progress_begin("read", ckpt_bytes(file, 1));
        (options.is_json ? print_json : print_table)(&options, file, &progress, &why);
    }
    qdr_safetensors_discard(&file);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command ckpt_ls = {
    .name = "ckpt ls",
    .summary = "list the tensors of a file: types, shapes, bytes and checksums",
    .usage = "quadrille ckpt ls FILE [OPTION]...",
    .text = "Prints the metadata and the tensors of a .safetensors file, or of the several that a\n"
            ".safetensors.index.json names, in the order of their elements: name, type, shape, bytes, and the\n"
            "checksum (CRC-32, hexadecimal; - if the file has none). With --stats it reads all elements, in\n"
            "pieces, and adds the least, largest and mean of the finite elements, and the number of the others.",
    .options = specs,
    .examples = "  quadrille ckpt ls model.safetensors\n"
                "  quadrille ckpt ls model.safetensors.index.json --stats\n"
                "  quadrille ckpt ls run.safetensors --json\n",
    .is_local = 1,
    .run = run,
};
