/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille ckpt convert`: other names, shapes, types and files for the same parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/convert.h"
#include "common/files.h"

#define ENDING ".safetensors"
#define MOST_BYTES 9e15

typedef struct convert_options {
    const char *from, *to;
    int dtype, weights_only; /* dtype: -1: those of the input */
    int64_t max_bytes;
} convert_options;

#define AT(member) .at = offsetof(convert_options, member)

static const option_spec specs[] = {
    {"from", 0, "MAP", "the input's names and shapes: gpt2, llama or a map, MAP.json; default: those of this library",
     OPTION_TEXT, AT(from), .words = "gpt2|llama"},
    {"to", 0, "MAP", "the same of the output; drops the optimizer's state", OPTION_TEXT, AT(to), .words = "gpt2|llama"},
    {"dtype", 0, "TYPE", "f32, f64, bf16 or f16, rounded to nearest; default: the input's types", OPTION_CHOICE,
     AT(dtype), .words = DTYPE_WORDS},
    {"weights", 0, NULL, "parameters only, without the optimizer's state", OPTION_FLAG, AT(weights_only)},
    {"max-size", 0, "BYTES", "write several files, each with at most this size of elements, such as 5G, and an index",
     OPTION_BYTES, AT(max_bytes), .max = MOST_BYTES},
    OPTIONS_END,
};

/* ---- metadata ---- */

/* Strings that describe the input's own names, state or checksums are not kept. */
static int is_kept(const char *key, const ckpt_naming *naming)
{
    static const char *const own[] = {"crc32", "header_crc32", "format"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(key, own[i]) == 0) return 0;
    if (strcmp(key, "optimizer") == 0) return !naming->weights_only && !naming->from;
    if (strcmp(key, "prefix") == 0) return !naming->from && !naming->to;
    return 1;
}

/* Keys and values in turn, NULL at the end; the list is freed with free(). Other programs need the format. */
static const char **make_metadata(const ckpt_plan *plan, const ckpt_naming *naming, failure *why)
{
    int n_keys = 0, n = 0;
    while (qdr_safetensors_metadata_key(plan->file, n_keys)) n_keys++;
    const char **list = calloc(2 * (size_t)n_keys + 5, sizeof *list);
    if (!list) fail(why, EXIT_NOTHING_FITS, "ckpt convert: out of memory for the metadata");
    if (!list) return NULL;
    list[n++] = "format";
    list[n++] = "pt";
    for (int i = 0; i < n_keys; i++) {
        const char *key = qdr_safetensors_metadata_key(plan->file, i);
        if (!is_kept(key, naming)) continue;
        list[n++] = key;
        list[n++] = qdr_safetensors_metadata(plan->file, key);
    }
    if (naming->from && !naming->to && *naming->from->prefix) {
        list[n++] = "prefix";
        list[n++] = plan->lacks_prefix ? "" : naming->from->prefix;
    }
    return list;
}

/* ---- the command ---- */

static int convert(const convert_options *options, const char *const paths[2], const ckpt_naming *naming, failure *why)
{
    ckpt_plan plan = {.path = paths[0]};
    qdr_safetensors *file = NULL;
    char map_paths[2][FILES_PATH_BYTES];
    const char **metadata = NULL;
    if (!ckpt_open(paths[0], &file, why)) {
        const char *prefix = qdr_safetensors_metadata(file, "prefix");
        plan.file = file;
        plan.lacks_prefix = prefix && !*prefix;
        if (!ckpt_plan_make(naming, &plan, why)) metadata = make_metadata(&plan, naming, why);
    }
    const ckpt_writing writing = {
        .path = paths[1],
        .max_bytes = options->max_bytes ? options->max_bytes : INT64_MAX,
        .map_paths = {files_find("checkpoints", options->from, map_paths[0]),
                      files_find("checkpoints", options->to, map_paths[1])},
        .metadata = metadata,
    };
    if (!why->code && !ckpt_write(&plan, &writing, why) && plan.n_dropped)
        printf("%d tensor%s of the optimizer's state %s left out\n", plan.n_dropped, PLURAL(plan.n_dropped),
               plan.n_dropped == 1 ? "was" : "were");
    free(metadata);
    ckpt_plan_free(&plan);
    qdr_safetensors_discard(&file);
    return why->code;
}

static int check_output(const char *path, failure *why)
{
    if (!path)
        return fail(why, EXIT_USAGE, "ckpt convert: two files are needed: quadrille ckpt convert FILE OUT" ENDING);
    const size_t n = strlen(path), n_ending = strlen(ENDING);
    const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
    if (strlen(name) > n_ending && strcmp(path + n - n_ending, ENDING) == 0) return EXIT_OK;
    return fail(why, EXIT_USAGE, "ckpt convert: the output %s does not end in " ENDING "; use a name that does",
                ckpt_show(path).text);
}

static int run(int argc, char **argv)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16}; /* of DTYPE_WORDS */
    convert_options options = {.dtype = -1};
    const char *paths[2] = {NULL, NULL};
    ckpt_map from = {.prefix = ""}, to = {.prefix = ""};
    failure why = {0};
    options_read_operands(argc, argv, specs, &options, paths, 2, &why);
    const ckpt_naming naming = {.from = options.from ? &from : NULL,
                                .to = options.to ? &to : NULL,
                                .weights_only = options.weights_only || options.to,
                                .dtype = options.dtype < 0 ? -1 : (int)dtypes[options.dtype]};
    if (!why.code && !check_output(paths[1], &why) &&
        (!options.from || !ckpt_map_read("--from", options.from, &from, &why)) &&
        (!options.to || !ckpt_map_read("--to", options.to, &to, &why)))
        convert(&options, paths, &naming, &why);
    ckpt_map_free(&from);
    ckpt_map_free(&to);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command ckpt_convert = {
    .name = "ckpt convert",
    .summary = "change names, shapes, types and files: GPT-2 and Llama of Hugging Face to ours and back",
    .usage = "quadrille ckpt convert FILE OUT [OPTION]...",
    .text = "Writes the tensors of FILE, or of the several files of a .safetensors.index.json, to OUT, which ends in\n"
            ".safetensors, with checksums. --from and --to take a map: which tensors of another program are which of\n"
            "ours, joined, split and transposed. gpt2 and llama are the maps of Hugging Face's models; others are\n"
            "JSON, as in share/quadrille/checkpoints. Names that a map does not know are refused. Reads and writes\n"
            "pieces: files may be larger than memory. Never replaces its input. First checks the checksums of the\n"
            "tensors that it uses, where FILE has them: if one is damaged, it exits with 4 and writes nothing.",
    .options = specs,
    .examples = "  quadrille ckpt convert model.safetensors run.safetensors --from gpt2 --dtype f32\n"
                "  quadrille ckpt convert model.safetensors.index.json run.safetensors --from llama\n"
                "  quadrille ckpt convert run.safetensors model.safetensors --to llama --dtype bf16 --max-size 5G\n"
                "  quadrille ckpt convert run.safetensors weights.safetensors --weights\n",
    .is_local = 1,
    .run = run,
};
