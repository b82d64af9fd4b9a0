/* SPDX-License-Identifier: Apache-2.0 */
#include "ckpt/config.h"

#include <quadrille_private/input.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "common/json.h"
#include "common/network_note.h"

enum { MAX_CONFIG_BYTES = 1 << 20 };

static int is_gpt2(const qdr_network *network) { return strcmp(network->architecture, "gpt2") == 0; }

/* ---- text ---- */

/* To be freed; NULL: out of memory. */
static char *text_of(json_t *document)
{
    char *text = document ? json_dumps(document, JSON_COMPACT | JSON_REAL_PRECISION(json_digits(document))) : NULL;
    if (!json_has_failed()) return text;
    free(text);
    return NULL;
}

static qdr_status parse(json_t *document, const char *name, qdr_network *network)
{
    char *text = text_of(document);
    *network = (qdr_network){QDR_INIT(qdr_network)};
    const qdr_status status = text ? qdr_network_parse(text, strlen(text), name, network) : QDR_ERR_MEMORY;
    free(text);
    return status;
}

/* ---- the file ---- */

/* The config.json of a folder, or beside a file. */
static int path_beside(const char *path, char beside[FILES_PATH_BYTES], failure *why)
{
    struct stat info;
    const char *slash = strrchr(path, '/');
    const int is_folder = stat(path, &info) == 0 && S_ISDIR(info.st_mode);
    const int n = is_folder ? (int)strlen(path) : slash ? (int)(slash - path) + 1 : 0;
    const char *name = is_folder ? "/config.json" : "config.json";
    if (snprintf(beside, FILES_PATH_BYTES, "%.*s%s", n, path, name) < FILES_PATH_BYTES) return EXIT_OK;
    return fail(why, EXIT_USAGE, "ckpt convert: the path %s is too long", ckpt_show(path).text);
}

static int is_there(const char *path)
{
    struct stat info;
    return stat(path, &info) == 0;
}

int ckpt_config_find(const char *path, char file[FILES_PATH_BYTES], ckpt_config *config, failure *why)
{
    if (fail_loading(why, qdr_safetensors_locate(path, file, FILES_PATH_BYTES))) return why->code;
    if (path_beside(path, config->path, why)) return why->code;
    if (!is_there(config->path)) config->path[0] = '\0';
    return EXIT_OK;
}

int ckpt_config_read(ckpt_config *config, int needed, failure *why)
{
    if (ckpt_read_json(config->path, MAX_CONFIG_BYTES, &config->document, why)) return why->code;
    const char *type = json_string_value(json_object_get(config->document, "model_type"));
    if (!needed && !(type && ckpt_map_of(type))) {
        ckpt_config_free(config);
        return EXIT_OK;
    }
    const qdr_status status = parse(config->document, config->path, &config->network);
    if (status == QDR_ERR_MEMORY) return fail_memory(why, "ckpt convert: out of memory for config.json");
    if (fail_loading(why, status)) return why->code;
    config->has_network = 1;
    if (type && strcmp(type, config->network.architecture) == 0) return EXIT_OK;
    return fail(why, EXIT_USAGE,
                "%s is of more than a language model, whose keys alone are known; save its %s by itself, as "
                "transformers' class for causal language models does",
                ckpt_show(config->path).text, config->network.architecture);
}

/* ---- notes ---- */

/* The config.json of a GPT-2. */
static json_t *gpt2_document(const qdr_network *n)
{
    return json_pack("{s:[s], s:s, s:s, s:f, s:f, s:f, s:n, s:n, s:f, s:b, s:b, s:I, s:I, s:I, s:I, s:I, s:I}",
                     "architectures", "GPT2LMHeadModel", "model_type", "gpt2", "activation_function",
                     *n->activation ? n->activation : "gelu_new", "attn_pdrop", 0.0, "embd_pdrop", 0.0, "resid_pdrop",
                     0.0, "bos_token_id", "eos_token_id", "layer_norm_epsilon",
                     n->norm_epsilon > 0 ? n->norm_epsilon : 1e-5, "tie_word_embeddings", n->tied, "scale_attn_weights",
                     !(n->attention_scale > 0), "n_layer", (json_int_t)n->layers, "n_embd", (json_int_t)n->hidden,
                     "n_head", (json_int_t)n->heads, "n_positions", (json_int_t)n->positions, "vocab_size",
                     (json_int_t)n->vocab, "n_inner", (json_int_t)n->ffn);
}

static int64_t extent(const qdr_safetensors *file, const char *name, int dim)
{
    const qdr_tensor *tensor = qdr_safetensors_tensor(file, qdr_safetensors_find(file, name));
    return tensor && dim < tensor->n_dims ? tensor->shape[dim] : 0;
}

/* Older notes have heads and epsilon of a GPT-2, and tensors the rest. */
static qdr_network older(const json_t *note, const qdr_safetensors *file)
{
    const json_t *epsilon = json_object_get(note, "epsilon");
    qdr_network n = network_of_tensors(file);
    snprintf(n.activation, sizeof n.activation, "gelu_new");
    n.heads = (int64_t)json_number_value(json_object_get(note, "heads"));
    n.norm_epsilon = epsilon ? json_number_value(epsilon) : 1e-5;
    return n;
}

/* Makes a GPT-2's config.json, if it says all of the network; given: NULL, or where it must not differ. */
static qdr_status make_document(ckpt_config *config, const qdr_network *sizes, const qdr_network *given)
{
    qdr_network_difference difference = {QDR_INIT(qdr_network_difference)};
    config->document = gpt2_document(sizes);
    const qdr_status status = parse(config->document, "its note", &config->network);
    config->has_network = status >= 0;
    if (status < 0 || !given || !qdr_network_differ(&config->network, given, &difference)) return status;
    config->network = *given;
    snprintf(config->lack, sizeof config->lack, "it cannot say that %s is %s", difference.key, difference.second);
    return QDR_OK;
}

/* A run with a shorter context has fewer positions than the network that it began with. */
static qdr_status cut_positions(ckpt_config *config, const qdr_safetensors *file)
{
    const int64_t n = extent(file, "embedding.positions", 0);
    if (n < 1 || n >= config->network.positions) return QDR_OK;
    json_object_del(config->document, "max_position_embeddings");
    if (json_object_set_new(config->document, "n_positions", json_integer(n))) return QDR_ERR_MEMORY;
    return parse(config->document, "its note", &config->network);
}

static qdr_status take_note(ckpt_config *config, const json_t *note, const qdr_safetensors *file)
{
    json_t *kept = json_object_get(note, NOTE_CONFIG);
    const qdr_network given = config->network, old = older(note, file);
    if (kept && json_object_get(kept, "model_type")) {
        config->document = json_deep_copy(kept);
        return config->document ? QDR_OK : QDR_ERR_MEMORY;
    }
    if (kept && is_gpt2(&given)) return make_document(config, &given, &given);
    if (!kept && old.heads > 0) return make_document(config, &old, NULL);
    snprintf(config->lack, sizeof config->lack, "%s",
             kept ? "its note has none of transformers" : "its note does not say what the network computes");
    return QDR_OK;
}

int ckpt_config_of_note(ckpt_config *config, const qdr_safetensors *file, failure *why)
{
    const char *note = qdr_safetensors_metadata(file, "note");
    json_t *root = NULL;
    config->is_of_note = 1;
    config->network = (qdr_network){QDR_INIT(qdr_network)};
    qdr_status status = network_note_read(note, "its note", &config->network, &config->has_network);
    if (status >= 0 && note && note[strspn(note, " \t\r\n")] == '{')
        status = qdr_json_read(note, strlen(note), "its note", &root);
    if (status >= 0) status = take_note(config, root, file);
    if (status >= 0 && !*config->lack) status = cut_positions(config, file);
    json_decref(root);
    if (status == QDR_ERR_MEMORY || json_has_failed())
        return fail_memory(why, "ckpt convert: out of memory for the note of %s",
                           ckpt_show(qdr_safetensors_path(file, 0)).text);
    if (status < 0)
        snprintf(config->lack, sizeof config->lack, "%.255s", qdr_last_error()); /* others write notes, too */
    if (*config->lack) json_decref(config->document), config->document = NULL;
    return EXIT_OK;
}

/* ---- against tensors ---- */

typedef struct checking {
    const ckpt_plan *plan;
    char *is_known; /* of sources */
    int at;
    ckpt_text where;
    failure *why;
} checking;

static const char *about(const char *name, int tied)
{
    if (strcmp(name, "head.weight") != 0) return "";
    return tied ? "; tie_word_embeddings is true there" : "; tie_word_embeddings is false there";
}

/* Sources mostly have the order of parameters. */
static void check_parameter(const qdr_network_parameter *parameter, void *user)
{
    checking *c = user;
    const ckpt_plan *plan = c->plan;
    const qdr_tensor wanted = {.n_dims = 2 - parameter->is_vector,
                               .shape = {parameter->is_vector ? parameter->n_cols : parameter->n_rows,
                                         parameter->is_vector ? 0 : parameter->n_cols}};
    int tried = 0;
    if (c->why->code) return;
    while (tried < plan->n_sources && strcmp(plan->sources[c->at].name, parameter->name) != 0) {
        c->at = (c->at + 1) % plan->n_sources;
        tried++;
    }
    if (tried == plan->n_sources) {
        fail(c->why, EXIT_USAGE,
             "%s lacks %s %s, which the network of %s has%s; use a whole file, or its own config.json",
             ckpt_show(plan->path).text, parameter->name, ckpt_shape(&wanted).text, c->where.text,
             about(parameter->name, 0));
        return;
    }
    const ckpt_source *source = &plan->sources[c->at];
    c->is_known[c->at] = 1;
    if (!ckpt_same_shape(&source->tensor, &wanted))
        fail(c->why, EXIT_USAGE, "%s: %s is %s, but %s by %s; use the config.json of these tensors",
             ckpt_show(plan->path).text, parameter->name, ckpt_shape(&source->tensor).text, ckpt_shape(&wanted).text,
             c->where.text);
}

static int check_others(const checking *c)
{
    for (int i = 0; i < c->plan->n_sources && !c->why->code; i++) {
        const ckpt_source *source = &c->plan->sources[i];
        if (!c->is_known[i])
            fail(c->why, EXIT_USAGE, "%s has %s, which the network of %s lacks%s; use the config.json of these tensors",
                 ckpt_show(c->plan->path).text, ckpt_show(source->name).text, c->where.text, about(source->name, 1));
    }
    return c->why->code;
}

int ckpt_config_check(const ckpt_config *config, const ckpt_plan *plan, failure *why)
{
    checking c = {plan, NULL, 0, ckpt_show(config->is_of_note ? "its note" : config->path), why};
    if (!config->has_network) return EXIT_OK;
    if (config->network.layers > plan->n_sources)
        return fail(why, EXIT_USAGE, "%s has %d tensors, too few for the %lld layers of %s", ckpt_show(plan->path).text,
                    plan->n_sources, (long long)config->network.layers, c.where.text);
    c.is_known = calloc((size_t)plan->n_sources + 1, 1);
    if (!c.is_known) return fail_memory(why, "ckpt convert: out of memory for names");
    const qdr_status status = qdr_network_parameters(&config->network, check_parameter, &c);
    if (!fail_loading(why, status)) check_others(&c);
    free(c.is_known);
    return why->code;
}

char *ckpt_config_note(const ckpt_config *config)
{
    json_t *note = json_pack("{s:s, s:O}", NOTE_NETWORK, config->network.architecture, NOTE_CONFIG, config->document);
    char *text = text_of(note);
    json_decref(note);
    return text;
}

/* ---- of the output ---- */

/* As torch names it; NULL: it is no type of parameters. */
static const char *torch_type(const char *type)
{
    static const char *const types[][3] = {
        {"F32", "f32", "float32"}, {"F64", "f64", "float64"}, {"BF16", "bf16", "bfloat16"}, {"F16", "f16", "float16"}};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        if (strcmp(types[i][0], type) == 0 || strcmp(types[i][1], type) == 0) return types[i][2];
    return NULL;
}

static const char *const type_keys[] = {"dtype", "torch_dtype"}; /* of transformers 5, 4 */

/* One that is there stays, if it is of the same network and type. */
static int compare(const ckpt_config *config, const char *type, const ckpt_config *other, failure *why)
{
    qdr_network_difference difference = {QDR_INIT(qdr_network_difference)};
    const ckpt_text path = ckpt_show(other->path);
    if (qdr_network_differ(&other->network, &config->network, &difference))
        return fail(why, EXIT_USAGE, "%s is there, and of another network: %s is %s, not %s; write to another folder",
                    path.text, difference.key, difference.first, difference.second);
    for (int i = 0; i < 2; i++) {
        const char *loaded_as = json_string_value(json_object_get(other->document, type_keys[i]));
        if (loaded_as && type && strcmp(loaded_as, type) != 0)
            return fail(why, EXIT_USAGE, "%s is there, and its %s is %s, not %s; write to another folder", path.text,
                        type_keys[i], ckpt_show(loaded_as).text, type);
    }
    return EXIT_OK;
}

int ckpt_config_place(ckpt_config *config, const char *output, const char *type, char path[FILES_PATH_BYTES],
                      failure *why)
{
    ckpt_config other = {.path = ""};
    int is_said = 0;
    type = torch_type(type);
    if (path_beside(output, path, why)) return why->code;
    if (is_there(path)) {
        memcpy(other.path, path, sizeof other.path);
        path[0] = '\0';
        if (!ckpt_config_read(&other, 1, why)) compare(config, type, &other, why);
        ckpt_config_free(&other);
        return why->code;
    }
    for (int i = 0; i < 2 && type; i++) {
        if (!json_object_get(config->document, type_keys[i]) && (i == 0 || is_said)) continue;
        is_said = 1;
        if (json_object_set_new(config->document, type_keys[i], json_string(type)))
            return fail_memory(why, "ckpt convert: out of memory for config.json");
    }
    return EXIT_OK;
}

static void print(FILE *file, const void *user, failure *why)
{
    json_t *document = ((const ckpt_config *)user)->document;
    (void)json_dumpf(document, file, JSON_INDENT(2) | JSON_SORT_KEYS | JSON_REAL_PRECISION(json_digits(document)));
    if (json_has_failed()) fail_memory(why, "ckpt convert: out of memory for config.json");
    fputc('\n', file);
}

int ckpt_config_write(const ckpt_config *config, const char *path, failure *why)
{
    return files_write("ckpt convert", path, print, config, why);
}

void ckpt_config_free(ckpt_config *config)
{
    json_decref(config->document);
    config->document = NULL;
}
