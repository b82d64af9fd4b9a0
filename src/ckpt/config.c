/* SPDX-License-Identifier: Apache-2.0 */
/* What all kinds of networks have in their config.json. */
#include "ckpt/config.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/json.h"

static const ckpt_family families[] = {{GPT_NETWORK, "gpt2", "GPT2LMHeadModel", 1},
                                       {"llama", "llama", "LlamaForCausalLM", 0},
                                       {"mistral", "llama", "MistralForCausalLM", 0},
                                       {"qwen2", "llama", "Qwen2ForCausalLM", 0}};
enum { N_FAMILIES = sizeof families / sizeof *families, MAX_CONFIG_BYTES = 1 << 20 };

/* ---- files ---- */

static int is_there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

static int join(const char *folder, int n, const char *name, char path[FILES_PATH_BYTES], failure *why)
{
    if (snprintf(path, FILES_PATH_BYTES, "%.*s%s", n, folder, name) < FILES_PATH_BYTES) return EXIT_OK;
    return fail(why, EXIT_USAGE, "ckpt convert: the path %s is too long", ckpt_show(folder).text);
}

int ckpt_config_find(const char *path, char file[FILES_PATH_BYTES], ckpt_config *config, failure *why)
{
    struct stat info;
    const char *slash = strrchr(path, '/');
    const int is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    const int n = is_folder ? (int)strlen(path) : slash ? (int)(slash - path) + 1 : 0;
    if (fail_loading(why, qdr_safetensors_locate(path, file, FILES_PATH_BYTES))) return why->code;
    if (join(path, n, is_folder ? "/config.json" : "config.json", config->path, why)) return why->code;
    if (!is_there(config->path)) config->path[0] = '\0';
    return EXIT_OK;
}

/* ---- reading ---- */

static const ckpt_family *find_family(const char *model_type)
{
    for (int i = 0; i < N_FAMILIES; i++)
        if (strcmp(families[i].model_type, model_type) == 0) return &families[i];
    return NULL;
}

static int check_architecture(const ckpt_config *config, failure *why)
{
    const json_t *list = json_object_get(config->document, "architectures");
    const size_t n = json_array_size(list);
    for (size_t i = 0; i < n || (i == 0 && list && !json_is_array(list) && !json_is_null(list)); i++) {
        const char *name = json_string_value(json_array_get(list, i));
        if (name && strcmp(name, config->family->architecture) == 0) continue;
        return fail(why, EXIT_USAGE, "%s: architectures has %s, but only the language model %s can be converted",
                    ckpt_show(config->path).text, ckpt_show(name ? name : "what is no name").text,
                    config->family->architecture);
    }
    return EXIT_OK;
}

/* Other code, and weights that are no numbers by themselves. */
static int check_absent(const ckpt_config *config, failure *why)
{
    static const char *const keys[] = {"auto_map", "pruned_heads", "quantization_config"};
    for (size_t i = 0; i < sizeof keys / sizeof *keys; i++) {
        const json_t *value = json_object_get(config->document, keys[i]);
        if (value && !json_is_null(value) && !(json_is_object(value) && !json_object_size(value)))
            return fail(why, EXIT_USAGE,
                        "%s has %s, and with it another network than its names say; convert a model "
                        "without it",
                        ckpt_show(config->path).text, keys[i]);
    }
    return EXIT_OK;
}

static int read_tied(ckpt_config *config, failure *why)
{
    const json_t *value = json_object_get(config->document, "tie_word_embeddings");
    if (value && !json_is_boolean(value))
        return fail(why, EXIT_USAGE, "%s: tie_word_embeddings is true or false", ckpt_show(config->path).text);
    config->tied = value ? json_is_true(value) : config->family->tied;
    return EXIT_OK;
}

int ckpt_config_load(ckpt_config *config, failure *why)
{
    if (ckpt_read_json(config->path, MAX_CONFIG_BYTES, &config->document, why)) return why->code;
    const char *type = json_string_value(json_object_get(config->document, "model_type"));
    config->model_type = type ? type : "";
    config->family = find_family(config->model_type);
    return EXIT_OK;
}

int ckpt_config_read(ckpt_config *config, const char *from, failure *why)
{
    const ckpt_family *family = config->family;
    const ckpt_text path = ckpt_show(config->path);
    const int is_like_llama = from && strcmp(from, "llama") == 0 && *config->model_type;
    if (!family && is_like_llama) return EXIT_OK;
    if (!family)
        return fail(
            why, EXIT_USAGE,
            "%s: model_type is %s; known are gpt2, llama, mistral and qwen2: for others use --from MAP.json, a map "
            "of their names",
            path.text, *config->model_type ? ckpt_show(config->model_type).text : "missing");
    if (from && strcmp(from, family->map) != 0)
        return fail(why, EXIT_USAGE, "%s: model_type is %s, which has not the names of --from %s; leave out --from",
                    path.text, family->model_type, from);
    if (check_architecture(config, why) || check_absent(config, why) || read_tied(config, why)) return why->code;
    return family == families ? ckpt_gpt2_read(config, why) : EXIT_OK;
}

int ckpt_config_check(const ckpt_config *config, const ckpt_plan *plan, failure *why)
{
    int has_head = 0;
    if (!config->family) return EXIT_OK;
    for (int i = 0; i < plan->n_sources; i++) has_head |= strcmp(plan->sources[i].name, "head.weight") == 0;
    if (has_head && config->tied)
        return fail(why, EXIT_USAGE,
                    "%s: tie_word_embeddings is true, but lm_head.weight of %s has other elements than "
                    "the embedding; make it false, or take lm_head.weight out of the file",
                    ckpt_show(config->path).text, ckpt_show(plan->path).text);
    if (!has_head && !config->tied)
        return fail(why, EXIT_USAGE,
                    "%s: tie_word_embeddings is false, but %s has no lm_head.weight; make it true, or "
                    "use a whole file",
                    ckpt_show(config->path).text, ckpt_show(plan->path).text);
    return config->family == families ? ckpt_gpt2_check(config, plan, why) : EXIT_OK;
}

size_t ckpt_real_digits(double value)
{
    char text[40];
    size_t digits = 15;
    for (; digits < 17; digits++) {
        snprintf(text, sizeof text, "%.*g", (int)digits, value);
        const double read = strtod(text, NULL);
        if (read >= value && read <= value) break;
    }
    return JSON_REAL_PRECISION(digits);
}

char *ckpt_config_note(const ckpt_config *config)
{
    const ckpt_gpt2 *gpt2 = &config->gpt2;
    json_t *note = config->family == families
                       ? json_pack("{s:s, s:I, s:I, s:I, s:I, s:f}", NOTE_NETWORK, GPT_NETWORK, NOTE_LAYERS,
                                   (json_int_t)gpt2->sizes.layers, NOTE_HIDDEN, (json_int_t)gpt2->sizes.hidden,
                                   NOTE_HEADS, (json_int_t)gpt2->heads, NOTE_FFN, (json_int_t)gpt2->sizes.ffn,
                                   NOTE_EPSILON, gpt2->epsilon)
                       : json_pack("{s:s, s:O}", NOTE_NETWORK, config->model_type, NOTE_CONFIG, config->document);
    char *text = note ? json_dumps(note, JSON_COMPACT | ckpt_real_digits(gpt2->epsilon)) : NULL;
    json_decref(note);
    if (!json_has_failed()) return text;
    free(text);
    return NULL;
}

void ckpt_config_free(ckpt_config *config)
{
    json_decref(config->document);
    config->document = NULL;
}
