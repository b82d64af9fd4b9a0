/* SPDX-License-Identifier: Apache-2.0 */
/* `quadrille ckpt convert`: other names, shapes, types and files for the same parameters. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ckpt/config.h"
#include "common/foreign_name.h"

#define MOST_BYTES 9e15

typedef struct convert_options {
    const char *from, *to;
    int dtype, weights_only; /* dtype: -1: those of the input */
    int64_t max_bytes;
} convert_options;

#define AT(member) .at = offsetof(convert_options, member)

static const option_spec specs[] = {
    {"from", 0, "MAP",
     "the input's names and shapes: a model_type or a map, MAP.json; default: by config.json, or ours", OPTION_TEXT,
     AT(from)},
    {"to", 0, "MAP", "the same of the output; drops the optimizer's state", OPTION_TEXT, AT(to)},
    {"dtype", 0, "TYPE", "f32, f64, bf16 or f16, rounded to nearest; default: the input's types", OPTION_CHOICE,
     AT(dtype), .words = DTYPE_WORDS},
    {"weights", 0, NULL, "parameters only, without the optimizer's state", OPTION_FLAG, AT(weights_only)},
    {"max-size", 0, "BYTES", "write several files, each with at most this size of elements, such as 5G, and an index",
     OPTION_BYTES, AT(max_bytes), .max = MOST_BYTES},
    OPTIONS_END,
};

/* ---- what the input is ---- */

/* All that a conversion works on. */
typedef struct conversion {
    const convert_options *options;
    const char *given, *output; /* operands */
    char path[FILES_PATH_BYTES]; /* of the input */
    qdr_safetensors *file;
    ckpt_config config; /* of the input */
    ckpt_map from, to;
    ckpt_naming naming;
    ckpt_plan plan;
    char *note; /* of the output; NULL: that of the input */
    char config_path[FILES_PATH_BYTES]; /* of the config.json that is written; "": none is */
} conversion;

/* Whether a conversion with a map needs to know the network; one with a map of the user's own needs only names. */
static int needs_network(const char *name, const ckpt_map *map)
{
    return name && (ckpt_map_of(name) || map->needs_heads);
}

/* Reads the config.json beside the input, and the map of its model_type, which --from must not contradict. */
static int read_config(conversion *c, failure *why)
{
    const char *from = c->options->from, *wanted = from ? ckpt_map_of(from) : NULL;
    const int is_folder = strcmp(c->path, c->given) != 0;
    const char *type = c->config.network.architecture;
    if (ckpt_config_read(&c->config, from || is_folder, why) || !c->config.has_network) return why->code;
    c->naming.from = &c->from;
    if (!from) return ckpt_map_read("model_type", type, &c->from, why);
    if (!wanted || strcmp(wanted, ckpt_map_of(type)) == 0) return EXIT_OK;
    return fail(why, EXIT_USAGE, "%s: model_type is %s, which has not the names of --from %s; leave out --from",
                ckpt_show(c->config.path).text, type, from);
}

/* The input's names and network: by --from and the config.json beside it, which says nothing of names of ours, or of a
 * map of the user's own; else by its note. */
static int choose_names(conversion *c, failure *why)
{
    const char *from = c->options->from, *to = c->options->to;
    const int is_ours = qdr_safetensors_find(c->file, "block0.qkv.weight") >= 0;
    const ckpt_config *config = &c->config;
    if ((from && ckpt_map_read("--from", from, &c->from, why)) || (to && ckpt_map_read("--to", to, &c->to, why)))
        return why->code;
    const int from_needs = needs_network(from, &c->from), is_needed = from_needs || needs_network(to, &c->to);
    c->naming.from = from ? &c->from : NULL;
    if (!is_ours && *config->path && (!from || from_needs) && read_config(c, why)) return why->code;
    if (!config->has_network && is_needed && ckpt_config_of_note(&c->config, c->file, why)) return why->code;
    c->naming.keeps_tied = config->has_network && !config->network.tied;
    c->plan.heads = config->has_network ? config->network.heads : 0;
    return EXIT_OK;
}

/* Of the first tensor. */
static const char *type_of(const ckpt_plan *plan)
{
    const qdr_tensor *first = &plan->outputs[0].tensor;
    return first->type ? first->type : qdr_dtype_name((qdr_dtype)first->dtype);
}

/* ---- metadata ---- */

/* Strings that describe the input's own names, state or checksums are not kept. */
static int is_kept(const char *key, const conversion *c)
{
    const ckpt_naming *naming = &c->naming;
    static const char *const own[] = {"crc32", "header_crc32", "format"};
    for (size_t i = 0; i < sizeof own / sizeof *own; i++)
        if (strcmp(key, own[i]) == 0) return 0;
    if (strcmp(key, "optimizer") == 0) return !naming->weights_only && !naming->from;
    if (strcmp(key, "prefix") == 0) return !naming->from && !naming->to;
    return !(strcmp(key, "note") == 0 && c->note);
}

/* Keys and values in turn, NULL at the end; the list is freed with free(). Other programs need the format. */
static const char **make_metadata(const conversion *c, failure *why)
{
    const ckpt_plan *plan = &c->plan;
    const ckpt_naming *naming = &c->naming;
    int n_keys = 0, n = 0;
    while (qdr_safetensors_metadata_key(plan->file, n_keys)) n_keys++;
    const char **list = calloc(2 * (size_t)n_keys + 7, sizeof *list);
    if (!list) fail_memory(why, "ckpt convert: out of memory for the metadata");
    if (!list) return NULL;
    list[n++] = "format";
    list[n++] = "pt";
    for (int i = 0; i < n_keys; i++) {
        const char *key = qdr_safetensors_metadata_key(plan->file, i);
        if (!is_kept(key, c)) continue;
        list[n++] = key;
        list[n++] = qdr_safetensors_metadata(plan->file, key);
    }
    if (naming->from && !naming->to && *naming->from->prefix) {
        list[n++] = "prefix";
        list[n++] = plan->lacks_prefix ? "" : naming->from->prefix;
    }
    if (c->note) {
        list[n++] = "note";
        list[n++] = c->note;
    }
    return list;
}

/* ---- the command ---- */

/* What the user should know of the file that was written. */
static void print_rest(conversion *c)
{
    const ckpt_config *config = &c->config;
    const qdr_network *net = &config->network;
    const char *to = c->options->to;
    if (c->plan.n_dropped)
        printf("%d tensor%s of the optimizer's state %s left out\n", c->plan.n_dropped, PLURAL(c->plan.n_dropped),
               c->plan.n_dropped == 1 ? "was" : "were");
    if (c->plan.ignored.n) printf("left out, as the map says: %s\n", ckpt_names_end(&c->plan.ignored));
    if (c->plan.tied.n)
        printf("left out, since another tensor has the same elements: %s\n", ckpt_names_end(&c->plan.tied));
    if (config->has_network && !config->is_of_note)
        printf("%s: %s with %lld layers, %lld features, %lld heads of %lld, epsilon %g\n", ckpt_show(config->path).text,
               net->architecture, (long long)net->layers, (long long)net->hidden, (long long)net->heads,
               (long long)net->head_size, net->norm_epsilon);
    if (c->naming.from && !to && config->is_of_note && !config->has_network)
        printf("no config.json lies beside %s: only names are converted%s\n", ckpt_show(c->path).text,
               strcmp(c->options->from, "gpt2") == 0 ? ", and train --load needs --heads" : "");
    if (*c->config_path) printf("%s: that of this network\n", ckpt_show(c->config_path).text);
    if (to && *config->lack) printf("no config.json is written: %s\n", config->lack);
}

static int write_all(conversion *c, failure *why)
{
    const char **metadata = make_metadata(c, why);
    const ckpt_writing writing = {
        .path = c->output,
        .max_bytes = c->options->max_bytes ? c->options->max_bytes : INT64_MAX,
        .metadata = metadata,
    };
    if (metadata && !ckpt_write(&c->plan, &writing, why)) {
        if (*c->config_path) ckpt_config_write(&c->config, c->config_path, why);
        if (!why->code) print_rest(c);
    }
    free(metadata);
    return why->code;
}

static int convert(conversion *c, failure *why)
{
    const convert_options *options = c->options;
    ckpt_config *config = &c->config;
    if (ckpt_config_find(c->given, c->path, config, why) || ckpt_open(c->path, &c->file, why) || choose_names(c, why))
        return why->code;
    const char *prefix = qdr_safetensors_metadata(c->file, "prefix");
    c->plan.path = c->path;
    c->plan.file = c->file;
    c->plan.lacks_prefix = prefix && !*prefix;
    if (ckpt_plan_make(&c->naming, &c->plan, why) || ckpt_config_check(config, &c->plan, why)) return why->code;
    if (config->document && !config->is_of_note && !(c->note = ckpt_config_note(config)))
        return fail_memory(why, "ckpt convert: out of memory for the note");
    if (options->to && config->document && ckpt_config_place(config, c->output, type_of(&c->plan), c->config_path, why))
        return why->code;
    return write_all(c, why);
}

static int check_output(const char *path, failure *why)
{
    if (!path)
        return fail(why, EXIT_USAGE, "ckpt convert: two files are needed: quadrille ckpt convert FILE OUT.safetensors");
    char sentence[512];
    if (foreign_name("ckpt convert: the output", path, ckpt_show(path).text, sentence, sizeof sentence))
        return fail(why, EXIT_USAGE, "%s", sentence);
    return EXIT_OK;
}

static int run(int argc, char **argv)
{
    static const qdr_dtype dtypes[] = {QDR_F32, QDR_F64, QDR_BF16, QDR_F16}; /* of DTYPE_WORDS */
    static conversion c; /* as large as its paths */
    convert_options options = {.dtype = -1};
    const char *paths[2] = {NULL, NULL};
    failure why = {0};
    options_read_operands(argc, argv, specs, &options, paths, 2, &why);
    c = (conversion){.options = &options, .given = paths[0], .output = paths[1]};
    c.from.prefix = c.to.prefix = "";
    c.naming = (ckpt_naming){.to = options.to ? &c.to : NULL,
                             .weights_only = options.weights_only || options.to,
                             .dtype = options.dtype < 0 ? -1 : (int)dtypes[options.dtype]};
    if (!why.code && !check_output(paths[1], &why)) convert(&c, &why);
    ckpt_plan_free(&c.plan);
    qdr_safetensors_discard(&c.file);
    ckpt_map_free(&c.from);
    ckpt_map_free(&c.to);
    ckpt_config_free(&c.config);
    free(c.note);
    return why.code ? fail_print(&why) : EXIT_OK;
}

const command ckpt_convert = {
    .name = "ckpt convert",
    .summary = "change names, shapes, types and files: models of Hugging Face to ours and back",
    .usage = "quadrille ckpt convert FILE OUT [OPTION]...",
    .text = "Writes the tensors of FILE, or of the several files of a .safetensors.index.json, to OUT, with\n"
            "checksums. --from and --to take a map: it says how another program's tensors are named, joined,\n"
            "split and transposed to become ours. Those of Hugging Face's models are known by the model_type:\n"
            "cohere2, gemma, gemma2, gemma3_text, glm4, gpt2, gpt_neox, granite, llama, mistral, olmo2, olmo3,\n"
            "phi3, qwen2, qwen3, smollm3, starcoder2. Other maps are JSON, as in share/quadrille/checkpoints.\n"
            "Names that a map does not know are refused. Reads and writes pieces: files may be larger than\n"
            "memory. Never replaces its input. First checks the checksums of the tensors that it uses, where\n"
            "FILE has them: if one is damaged, it exits with 4 and writes nothing. FILE may be a folder. A\n"
            "config.json beside it says whose names these are, and what their network computes, which goes into\n"
            "the note of OUT; what this library does not compute, and other tensors than its, are refused. --to\n"
            "writes the config.json back.",
    .options = specs,
    .examples = "  quadrille ckpt convert gpt2 run.safetensors --dtype f32\n"
                "  quadrille ckpt convert Qwen3-0.6B run.safetensors\n"
                "  quadrille ckpt convert run.safetensors back/model.safetensors --to qwen3 --max-size 5G\n"
                "  quadrille ckpt convert run.safetensors weights.safetensors --weights\n",
    .is_local = 1,
    .run = run,
};
